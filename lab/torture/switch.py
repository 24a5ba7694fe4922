"""The cables between the machines of a campaign, as a program. It takes every packet that a machine sends and delivers
it to its receiver: late, not at all, or out of order, as configured.

Namespaces alone can only be cut. The kernel's modules for delay and loss (netem) and for one direction (filters) are
often missing; this program needs only /dev/net/tun.

    python3 -m torture.switch SEED NAMESPACE=ADDRESS...

Each machine gets the interface `cable`. The program reads commands, a JSON object in each line, and answers each with a
line:
    {"address": "198.18.0.2", "sends": CONDITION, "receives": CONDITION}
    CONDITION: {"cut": false, "delay_s": 0.0, "jitter_s": 0.0, "loss": 0.0}

It ends with its standard input, and the interfaces end with it.
"""

import fcntl
import heapq
import itertools
import json
import os
import random
import selectors
import socket
import struct
import subprocess
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
PACKET_BYTES_MAX = 4096
DESTINATION = slice(16, 20)  # of an IPv4 header


def open_cable(namespace, address, number):
    """Opens this program's end. The other end is an interface of the namespace."""
    name = f"mt{os.getpid()}-{number}"[-15:]
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    for words in (("link", "set", name, "netns", namespace, "name", "cable"),
                  ("-n", namespace, "address", "add", f"{address}/24", "dev", "cable"),
                  ("-n", namespace, "link", "set", "cable", "up")):
        subprocess.run(["ip", *words], check=True)
    return end


class Switch:
    def __init__(self, seed, machines):
        self._random = random.Random(seed)
        self._ends = {socket.inet_aton(address): open_cable(namespace, address, number)
                      for number, (namespace, address) in enumerate(machines)}
        self._sends, self._receives = {}, {}  # by address; an address without an entry has a perfect cable
        self._later = []  # a heap of packets to be delivered later
        self._order = itertools.count()
        self._selector = selectors.DefaultSelector()
        for address, end in self._ends.items():
            self._selector.register(end, selectors.EVENT_READ, address)
        os.set_blocking(0, False)
        self._selector.register(0, selectors.EVENT_READ, None)
        self._with_timeout = b""

    def run(self):
        while True:
            wait = max(0, self._later[0][0] - time.monotonic()) if self._later else None
            for key, _ in self._selector.select(wait):
                if key.data is None:
                    if not self._listen():
                        return
                else:
                    self._take(key.data, key.fd)
            while self._later and self._later[0][0] <= time.monotonic():
                _, _, end, packet = heapq.heappop(self._later)
                self._hand_over(end, packet)

    def _take(self, source, end):
        for _ in range(64):  # then the other machines have their turn
            try:
                packet = os.read(end, PACKET_BYTES_MAX)
            except OSError:  # no more packets, or the machine has switched its interface off
                return
            target = self._ends.get(packet[DESTINATION])
            if target is None or packet[0] >> 4 != 4:
                continue
            delay = 0
            for condition in (self._sends.get(source), self._receives.get(packet[DESTINATION])):
                if condition is None:
                    continue
                if condition["cut"] or self._random.random() < condition["loss"]:
                    delay = None
                    break
                delay += condition["delay_s"] + self._random.random() * condition["jitter_s"]
            if delay is None:
                continue
            if delay == 0:
                self._hand_over(target, packet)
            else:
                heapq.heappush(self._later, (time.monotonic() + delay, next(self._order), target, packet))

    @staticmethod
    def _hand_over(end, packet):
        try:
            os.write(end, packet)
        except OSError:  # its interface is off, or it does not keep up: the packet is lost
            pass

    def _listen(self):
        """Reads commands. False at the end of the input."""
        try:
            read = os.read(0, 65536)
        except BlockingIOError:
            return True
        if not read:
            return False
        *lines, self._with_timeout = (self._with_timeout + read).split(b"\n")
        for line in lines:
            command = json.loads(line)
            address = socket.inet_aton(command["address"])
            self._sends[address], self._receives[address] = command["sends"], command["receives"]
            print("done", flush=True)
        return True


if __name__ == "__main__":
    switch = Switch(int(sys.argv[1]), [word.split("=") for word in sys.argv[2:]])
    print("ready", flush=True)
    switch.run()
