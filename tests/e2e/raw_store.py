"""TCPStore's bytes, for tests that play opponents: docs/protocol.md has them in words."""

import socket
import struct

SET, COMPARE_SET, GET, ADD, CHECK, WAIT, DELETE, APPEND, MULTI_GET, MULTI_SET, LIST_KEYS = 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 17


def number(value):
    return struct.pack("<Q", value)


def blob(data):
    return number(len(data)) + data


def request(op, *blobs):
    return bytes([op]) + b"".join(map(blob, blobs))


def listed(op, *blobs, per_key=1):
    return bytes([op]) + number(len(blobs) // per_key) + b"".join(map(blob, blobs))


def multi_set(pairs):
    return listed(MULTI_SET, *(part for pair in pairs for part in pair), per_key=2)


class Client:
    def __init__(self, port, receive_buffer=None, patience=60):
        self.socket = socket.socket()
        self.socket.settimeout(patience)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect(("127.0.0.1", port))
        self.socket.sendall(b"\x00" + struct.pack("<I", 0x3C85F7CE))

    def send(self, data):
        self.socket.sendall(data)

    def receive(self, count):
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(min(count - len(data), 1 << 20))
            if not piece:
                raise ConnectionError("closed by the server")
            data += piece
        return bytes(data)

    def receive_number(self):
        return struct.unpack("<q", self.receive(8))[0]

    def add(self, key, delta=1):
        self.send(request(ADD, key) + struct.pack("<q", delta))
        return self.receive_number()

    def get(self, key):
        self.send(request(GET, key))
        return self.receive(self.receive_number())

    def is_closed(self):
        """Whether the server ends this connection; waits for that."""
        try:
            while self.socket.recv(1 << 20):
                pass
            return True
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def close(self):
        self.socket.close()
