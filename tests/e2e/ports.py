"""Ports for servers that are started later, or a second time. Not a test itself."""

import errno
import random
import socket

LOWEST = 10_000


def free_port(host="127.0.0.1"):
    """Not one of the ephemeral ports, which the system gives to other tests: they could take it while this one's server
    is not there."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as given_away:
        end = int(given_away.read().split()[0])
    while True:
        port = random.randrange(LOWEST, end)
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            try:
                probe.bind((host, port))
                return port
            except OSError as failure:
                if failure.errno != errno.EADDRINUSE:
                    raise
