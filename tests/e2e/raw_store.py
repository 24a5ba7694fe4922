"""TCPStore's bytes, for tests that attack a server: docs/reference/protocol.md describes them."""

import socket
import struct

SET, COMPARE_SET, GET, ADD, CHECK, WAIT, DELETE, APPEND, MULTI_GET, MULTI_SET = 1, 2, 3, 4, 5, 6, 8, 9, 10, 11
QUEUE_PUSH, LIST_KEYS = 14, 17


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


def text(data):
    return struct.pack("<H", len(data)) + data


def session_message(kind, body=b"", token=0):
    """Without a token: from a node that has no session yet."""
    return struct.pack("<BIBQIq", 0xA0, len(body) + 21, kind, token, 1 if token else 0, -1) + body


def session_join(token):
    return session_message(1, struct.pack("<q", 3_600_000), token)


def session_leave(token):
    return session_message(2, token=token)


def session_open(run, patience_ms=1000, nodes=(1, 1), pid=1):
    """`patience_ms`: the interval of its keep-alives, and its grace."""
    node = text(b"") + struct.pack("<qq", pid, 0)
    settings = struct.pack("<qqqqqqB", *nodes, 1000, patience_ms, 3, patience_ms, 0)
    return session_message(0, b"\x02\x02" + text(run) + node + settings + text(b"") + struct.pack("<H", 1))


def session_status(run=b"", names=0, after=b""):
    return session_message(5, text(run) + text(after) + struct.pack("<I", names))


class Client:
    def __init__(self, port, receive_buffer=None, patience=60, source=None):
        self.socket = socket.socket()
        self.socket.settimeout(patience)
        if source:
            self.socket.bind((source, 0))
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect(("127.0.0.1", port))
        self.address = "%s:%d" % self.socket.getsockname()
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

    def wait(self, *keys):
        self.send(listed(WAIT, *keys))
        if self.receive(1) != b"\0":
            raise ValueError("a WAIT that does not end with \"stop waiting\"")

    def delete(self, key):
        self.send(request(DELETE, key))
        return self.receive_number()

    def receive_session(self):
        """The kind of a session's next message, and the rest of it."""
        opcode, size = struct.unpack("<BI", self.receive(5))
        if opcode != 0xA0:
            raise ValueError(f"byte {opcode} does not begin a message of a session")
        body = self.receive(size)
        return body[0], body[1:]

    def is_closed(self):
        """Waits for the server to end this connection. Returns whether it does."""
        try:
            while self.socket.recv(1 << 20):
                pass
            return True
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def vanish(self):
        """As a process that is killed with an unread reply."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self):
        self.socket.close()
