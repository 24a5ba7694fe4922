"""A program that attacks a server's port until it is killed.

    python3 -m torture.stranger flood|garbage|hold HOST PORT SEED

flood: opens connections as fast as it can, sends nothing, closes some of them, with or without a reset. garbage: sends
what no client would send: noise, beginnings of messages, unlimited lengths. hold: opens connections and keeps them,
until it cannot open more.
"""

import contextlib
import random
import socket
import struct
import sys
import time

CONNECTIONS_MAX = 1000  # at a time: below a process's limit
HELLO = bytes.fromhex("00cef7853c")  # the first bytes of a TCPStore client


def connect(address, timeout=1.0):
    try:
        return socket.create_connection(address, timeout)
    except OSError:
        return None


def reset(connection):
    """Closes it with a reset, as a crashed machine's router would."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def flood(address, rng):
    held = []
    while True:
        if connection := connect(address):
            held.append(connection)
        if len(held) >= CONNECTIONS_MAX or rng.random() < 0.3 and held:
            victim = held.pop(rng.randrange(len(held)))
            (reset if rng.random() < 0.5 else socket.socket.close)(victim)


def nonsense(rng):
    noise = rng.randbytes(rng.randrange(1, 3000))
    return rng.choice((
        noise,
        HELLO + noise,
        HELLO[:rng.randrange(1, 5)],
        # A session message with an arbitrary length; a key without end; a valid beginning that is cut off.
        HELLO + b"\xa0" + struct.pack("<I", rng.choice((0, 1, 22, 16384, 16385, 0xFFFFFFFF))) + noise,
        HELLO + bytes([rng.randrange(16)]) + struct.pack("<Q", rng.choice((0, 5, 1 << 20, 1 << 62))) + noise,
        b"GET / HTTP/1.1\r\nHost: muster\r\n\r\n",
    ))


def garbage(address, rng):
    while True:
        connection = connect(address)
        if connection is None:
            continue
        with contextlib.suppress(OSError):
            for _ in range(rng.randrange(1, 4)):
                connection.sendall(nonsense(rng))
                if rng.random() < 0.2:
                    connection.settimeout(0.05)
                    connection.recv(4096)
        (reset if rng.random() < 0.3 else socket.socket.close)(connection)


def hold(address, rng):
    del rng
    held = []
    while True:
        connection = connect(address) if len(held) < CONNECTIONS_MAX else None
        if connection:
            held.append(connection)
        else:
            time.sleep(0.1)


if __name__ == "__main__":
    what, host, port, seed = sys.argv[1:]
    {"flood": flood, "garbage": garbage, "hold": hold}[what]((host, int(port)), random.Random(int(seed)))
