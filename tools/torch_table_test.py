#!/usr/bin/env python3
"""Shows every rule of tools/torch_table.py firing, and not firing where it should not."""

import contextlib
import io
import pathlib
import tempfile
import unittest

import torch_table

ORIGINAL = '''
class Handler:
    def __init__(self, patience=5):
        self.rank = 0
    def join(self):
        raise ValueError("rank is absent")
def _hidden(): pass
'''
ROWS = ("| `Handler` | `Handler` | same | `HandlerTest.Joins` |",
        "| `Handler.join` | `Join` | same | `HandlerTest.Joins`, `python/tests/test_a.py::test_joins` |",
        "| `Handler.rank` | - | same | `HandlerTest.Joins` |",
        "| `Handler(patience=5)` | - | same | `HandlerTest.Joins` |")
FIRST, *OTHERS = sorted(torch_table.FILES)


class TorchTable(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.write("src/a.cc", "class Handler { void Join(); };")
        self.write("python/src/a.py", "class Handler:\n    rank = 0\n    patience = 5\n    def join(self): pass\n")
        self.write("tests/a_test.cc", "TEST(HandlerTest, Joins) {\n}\n")
        self.write("python/tests/test_a.py", "def test_joins():\n    pass\n")
        self.write("original.py", ORIGINAL)
        self.write("empty.py", "")

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def mistakes(self, *rows, compared=True, files=(FIRST, *OTHERS)):
        """Of a page with these rows, all of the first file of PyTorch; and what it prints."""
        heading = "| Original | C++ | Python | Test |\n|---|---|---|---|"
        sections = [f"## {file}\n{heading}\n" + "\n".join(rows if file == FIRST else ()) for file in files]
        self.write(torch_table.PAGE, "# A title\n" + "\n".join(sections) + "\n")
        read = (lambda file: torch_table.Original(self.root / ("original.py" if file == FIRST else "empty.py")))
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            found = list(torch_table.mistakes_in(self.root, read if compared else None))
        self.printed = printed.getvalue()
        return [line.partition(": ")[2] for line in found]

    def test_a_right_page(self):
        self.assertEqual(self.mistakes(*ROWS), [])
        self.assertEqual(self.mistakes(*ROWS, "| message `rank is absent` | - | - | `HandlerTest.Joins` |"), [])
        self.assertEqual(self.printed, "torch_table: 0 rows say missing\n")

    def test_what_pytorch_has_and_has_not(self):
        self.assertEqual(self.mistakes(*ROWS[:2], *ROWS[3:]), ["Handler.rank is not in the table above"])
        self.assertEqual(self.mistakes(*ROWS[:3]), ["Handler(patience=5) is not in the table above"])
        gone = "| `Handler.leave` | - | - | `HandlerTest.Joins` |"
        self.assertEqual(self.mistakes(*ROWS, gone), [f"{FIRST} has no `Handler.leave`"])
        said = "| message `another text` | - | - | `HandlerTest.Joins` |"
        self.assertEqual(self.mistakes(*ROWS, said), [f"{FIRST} has no message `another text`"])
        self.assertEqual(self.mistakes(gone, said, compared=False), [])

    def test_what_muster_has_and_has_not(self):
        self.assertEqual(self.mistakes("| `Handler` | `Other` | same | `HandlerTest.Joins` |", *ROWS[1:]),
                         ["nothing is called Other in C++"])
        self.write("python/src/a.py", "class Handler:\n    rank = patience = 0\n")
        self.assertEqual(self.mistakes(*ROWS), ["nothing is called join in Python"])

    def test_tests(self):
        self.assertEqual(self.mistakes("| `Handler` | `Handler` | same | - |", *ROWS[1:]), ["the row has no test"])
        self.assertEqual(self.mistakes("| `Handler` | `Handler` | same | `HandlerTest.Flies` |", *ROWS[1:]),
                         ["there is no test HandlerTest.Flies"])
        self.assertEqual(self.mistakes("| `Handler` | `Handler` | missing | missing |", *ROWS[1:]), [])
        self.assertEqual(self.printed, "torch_table: 1 rows say missing\n")

    def test_rows_and_tables(self):
        self.assertEqual(self.mistakes(*ROWS, "| `Handler` | same |"), ["a row has an item, C++, Python and tests"])
        self.assertEqual(self.mistakes(*ROWS, files=(FIRST, *OTHERS[1:])), [f"there is no table of {OTHERS[0]}"])


if __name__ == "__main__":
    unittest.main()
