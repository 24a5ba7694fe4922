#!/usr/bin/env python3
"""Shows every rule of tools/documents.py firing, and not firing where it should not."""

import pathlib
import tempfile
import unittest

import documents


class Documents(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("docs/other.md", "# A title, with `code`\n")
        self.write("src/store/machine.cc", "void Machine::Step() {}\n")
        for room in ("server", "rendezvous", "etcd", "os"):
            self.write(f"src/{room}/a.cc", "void Run() {}\n")

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def mistakes(self, text):
        self.write("docs/page.md", text)
        return [line.partition(": ")[2] for line in documents.check_tree(self.root)]

    def test_wide_lines(self):
        self.assertEqual(self.mistakes("x" * 121), ["121 columns, 120 are allowed"])
        self.assertEqual(self.mistakes("x" * 120 + "\n| " + "x" * 200 + " |\n"), [])
        self.assertEqual(self.mistakes("```\n" + "x" * 121 + "\n```\n"), ["121 columns, 120 are allowed"])
        self.assertEqual(self.mistakes("[" + "x" * 121 + "](other.md)"), ["133 columns, 120 are allowed"])

    def test_blocks_of_commands(self):
        unmarked = ["a command in a block that no test runs; mark the block as sh"]
        for command in ("muster status --server a:1", "$ make run", "A=1 build/dev/muster run x", "scripts/test dev"):
            self.assertEqual(self.mistakes(f"```\n{command}\n```\n"), unmarked, command)
            self.assertEqual(self.mistakes(f"```sh\n{command}\n```\n"), [])
        self.assertEqual(self.mistakes("<!-- not run: it builds -->\n```sh\nmake\n```\nmake run\n"), [])
        self.assertEqual(self.mistakes("```\nstore: wake only one waiter\n muster run, on each node:  starts\n```\n"), [])
        self.assertEqual(self.mistakes("<!-- not run -->\n```sh\nmake\n```\n"),
                         ["a block that is not run needs a reason: <!-- not run: REASON -->"])
        self.assertEqual(self.mistakes("<!-- not run: it builds -->\ntext\n"), ["no block of commands follows"])
        self.assertEqual(self.mistakes("```rust\n```\n"),
                         ["no test knows the language 'rust'; use one of cmake, cpp, python, sh"])

    def test_sentences_with_who(self):
        for text in ("Who comes late waits.", "It waits. Whoever comes late joins.", "* Who closes it is known."):
            self.assertEqual(self.mistakes(text), ["a sentence starts with Who; name the subject"])
        self.assertEqual(self.mistakes("The node who leads. The World Health Organization (WHO)."), [])

    def test_links(self):
        self.assertEqual(self.mistakes("[a](gone.md)"), ["the link gone.md leads nowhere"])
        self.assertEqual(self.mistakes("[a](other.md#gone)"), ["other.md has no heading #gone"])
        self.assertEqual(self.mistakes("# Here\n[a](other.md#a-title-with-code) [b](#here) [c](https://example.org)"), [])

    def test_named_files(self):
        self.assertEqual(self.mistakes("`store/gone.cc`"), ["there is no store/gone.cc"])
        self.assertEqual(self.mistakes("`gone.cc`"), ["no file is called gone.cc"])
        self.assertEqual(self.mistakes("`src/gone`"), ["there is no src/gone"])
        self.assertEqual(self.mistakes("`store/machine.cc` `machine.cc` `src/store/` `_test.cc`"), [])

    def test_documents_that_code_refers_to(self):
        self.write("src/store/machine.h", "// docs/gone.md and docs/other.md\n")
        self.assertEqual(self.mistakes(""), ["there is no docs/gone.md"])

    def test_ways(self):
        def ways(*steps):
            return self.mistakes("## The five ways\n\n### SET\n\n" + "\n".join(f"1. `{step}`" for step in steps))
        self.assertEqual(ways("store/gone.cc: Machine::Step()"), ["there is no src/store/gone.cc"])
        self.assertEqual(ways("store/machine.cc: Machine::Jump()"), ["src/store/machine.cc has no Machine::Jump()"])
        self.assertEqual(ways("store/machine.cc: Machine::Step()", "server/a.cc: Run()", "etcd/a.cc: Run()",
                              "os/a.cc: Run()"), [])
        self.assertEqual(ways("store/machine.cc: Machine::Step()", "server/a.cc: Run()", "etcd/a.cc: Run()",
                              "rendezvous/a.cc: Run()"),
                         ["the way 'SET' visits 4 rooms (etcd, rendezvous, server, store), 3 are allowed"])


if __name__ == "__main__":
    unittest.main()
