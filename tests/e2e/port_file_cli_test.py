#!/usr/bin/env python3
"""`--port-file`: complete, owned by the server, and never written through a link."""

import os
import pathlib
import signal
import tempfile
import unittest

from launching import PATIENCE
from processes import Processes


class PortFile(Processes, unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "port"

    def serve(self):
        return self.start("serve", "--listen", "127.0.0.1:0", "--port-file", str(self.path))

    def serving(self):
        server = self.serve()
        port = server.stdout.readline().rsplit(":", 1)[1]
        self.assertEqual(self.path.read_text(encoding="ascii"), port)
        return server

    def stop(self, server):
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(PATIENCE), 0)

    def test_it_has_the_port_and_goes_with_the_server(self):
        self.stop(self.serving())
        self.assertEqual(os.listdir(self.folder), [])

    def test_an_old_one_is_replaced(self):
        self.path.write_text("of an earlier server, which was killed", encoding="ascii")
        self.stop(self.serving())
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_link_is_refused_and_nothing_behind_it_is_touched(self):
        target = self.folder / "precious"
        target.write_text("precious", encoding="ascii")
        for points_to in (target, self.folder / "nowhere"):
            self.path.symlink_to(points_to)
            server = self.serve()
            _, err = server.communicate(timeout=PATIENCE)
            self.assertEqual(server.returncode, 1)
            self.assertIn(f"cannot write the port file {self.path}: it is a symbolic link", err)
            self.assertEqual(err.count("\n"), 1, err)
            self.path.unlink()
        self.assertEqual(os.listdir(self.folder), ["precious"])
        self.assertEqual(target.read_text(encoding="ascii"), "precious")

    def test_a_link_next_to_it_is_not_followed_either(self):
        target = self.folder / "precious"
        target.write_text("precious", encoding="ascii")
        (self.folder / "port.new").symlink_to(target)
        self.stop(self.serving())
        self.assertEqual(target.read_text(encoding="ascii"), "precious")

    def test_another_servers_is_left_alone(self):
        server = self.serving()
        self.path.unlink()
        self.path.write_text("4711\n", encoding="ascii")
        self.stop(server)
        self.assertEqual(self.path.read_text(encoding="ascii"), "4711\n")


if __name__ == "__main__":
    unittest.main()
