#!/usr/bin/env python3
"""Shows what tools/size.py counts, and every limit firing."""

import pathlib
import tempfile
import unittest

import size


class Size(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def code_lines(self, text):
        self.write("src/store/a.cc", text)
        return next(size.product(self.root)).code_lines

    def public_types(self, text):
        self.write("include/muster/a.h", text)
        return next(size.product(self.root)).public_types

    def mistakes(self):
        return list(size.mistakes(list(size.product(self.root))))

    def test_comments_and_blank_lines_do_not_count(self):
        self.assertEqual(self.code_lines("// one\n\n/* two\n three */\nint a;  // four\n"), 1)

    def test_what_looks_like_a_comment_in_a_literal_counts(self):
        self.assertEqual(self.code_lines('auto a = "// no comment";\nauto b = R"x(\n// no comment\n)x";\n'), 4)
        self.assertEqual(self.code_lines("char a = '\\'';  // one\nchar b = '\"';  // \" two\n// three\n"), 2)

    def test_unit_tests_are_not_the_product(self):
        self.write("src/store/a_test.cc", "int a;\n")
        self.write("tests/e2e/a.cc", "int a;\n")
        self.write("src/store/notes.md", "text\n")
        self.assertEqual(list(size.product(self.root)), [])

    def test_rooms_are_counted_separately(self):
        for path in ("src/store/core/a.h", "src/store/b.cc", "src/etcd/c.proto", "include/muster/d.h"):
            self.write(path, "int a;\n")
        rows = [line.split() for line in size.table(list(size.product(self.root)))]
        self.assertEqual(rows[1:], [["include", "1", "1"], ["src/etcd", "1", "1"], ["src/store", "2", "2"],
                                    ["the", "product", "4", "4"], ["public", "types", "0"]])

    def test_types_are_those_that_are_defined(self):
        self.assertEqual(self.public_types("class A;\nstruct B {\n  enum class C { kOne };\n};\n// class D {\n"
                                           "class E final\n    : public B {\n};\nenum F : int { kTwo };\n"
                                           "template <class G>\nvoid Use(struct H* h) {}\nusing I = B;\n"),
                         ["B", "C", "E", "F"])

    def test_types_of_the_inside_are_not_public(self):
        self.write("src/store/a.h", "struct A {};\n")
        self.assertEqual(next(size.product(self.root)).public_types, [])

    def test_every_limit_fires(self):
        self.write("src/store/a.cc", "int a;\n" * size.FILE_LINES_MAX)
        self.assertEqual(self.mistakes(), [])
        self.write("src/store/a.cc", "int a;\n" * size.FILE_LINES_MAX + "// one more\n")
        self.assertEqual(self.mistakes(), ["src/store/a.cc: 501 lines, 500 are allowed; use two files"])
        self.write("src/store/a.cc", "")
        for number in range(size.CODE_LINES_MAX // size.FILE_LINES_MAX):
            self.write(f"src/store/b{number}.cc", "int a;\n" * size.FILE_LINES_MAX)
        self.assertEqual(self.mistakes(), [])
        self.write("src/etcd/c.cc", "int a;\n")
        self.assertEqual(self.mistakes(), ["29,001 code lines, 29,000 are allowed; delete what is double or unused"])
        (self.root / "src/etcd/c.cc").unlink()
        self.write("src/store/b0.cc", "")
        self.write("include/muster/a.h", "struct A {};\n" * size.PUBLIC_TYPES_MAX)
        self.assertEqual(self.mistakes(), [])
        self.write("include/muster/a.h", "struct A {};\n" * (size.PUBLIC_TYPES_MAX + 1))
        self.assertEqual(self.mistakes(), ["46 public types, 45 are allowed; make one of them private"])


if __name__ == "__main__":
    unittest.main()
