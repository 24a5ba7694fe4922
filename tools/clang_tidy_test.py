#!/usr/bin/env python3
"""What tools/clang_tidy.py checks, and with which options."""

import json
import pathlib
import tempfile
import unittest

import clang_tidy

WRONG = """#include <string>
#include <utility>
std::string Twice(std::string text) {
  std::string other = std::move(text);
  return other + text;
}
"""


class ClangTidy(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def findings(self, text):
        """Of a file to which the checks of this repository apply."""
        (self.folder / ".clang-tidy").write_text((clang_tidy.ROOT / ".clang-tidy").read_text(encoding="utf-8"))
        file = self.folder / "a.cc"
        file.write_text(text, encoding="utf-8")
        return clang_tidy.check(str(file), ["-std=c++20"])

    def test_a_mistake_is_found(self):
        self.assertIn("[bugprone-use-after-move,-warnings-as-errors]", self.findings(WRONG))
        self.assertIsNone(self.findings(WRONG.replace("other + text", "other + other")))

    def test_a_file_that_does_not_compile_is_a_finding(self):
        self.assertIn("'gone.h' file not found", self.findings('#include "gone.h"\n'))

    def test_the_options_are_those_that_clang_knows(self):
        command = ("cmake -E env A=1 ccache c++ -DHAS_ETCD -I/a/src -isystem /a/wire -O2 -g -Wno-maybe-uninitialized "
                   "-std=c++20 -include pch.hxx -fpch-preprocess -o a.o -c a.cc")
        self.assertEqual(clang_tidy.options_of({"command": command}),
                         ["-DHAS_ETCD", "-I/a/src", "-isystem", "/a/wire", "-std=c++20"])

    def test_tests_and_generated_code_are_left_out(self):
        names = ("src/store/a.cc", "src/store/a_test.cc", "tests/e2e/a.cc", "lab/sim/a.cc", "build/dev/etcd.pb.cc")
        entries = [{"directory": str(clang_tidy.ROOT), "file": name, "command": "c++"} for name in names]
        (self.folder / "compile_commands.json").write_text(json.dumps(entries), encoding="utf-8")
        self.assertEqual(list(clang_tidy.sources(self.folder)), ["lab/sim/a.cc", "src/store/a.cc"])

    def test_a_sample_is_repeated_by_its_seed_and_has_the_changed_files(self):
        files = [f"src/{number}.cc" for number in range(100)]
        chosen = clang_tidy.sample(files, 5, "seed", {"src/7.cc", "README.md"})
        self.assertEqual(len(chosen), 5)
        self.assertIn("src/7.cc", chosen)
        self.assertEqual(clang_tidy.sample(files, 5, "seed", {"src/7.cc"}), chosen)
        self.assertNotEqual(clang_tidy.sample(files, 5, "other", {"src/7.cc"}), chosen)
        self.assertEqual(clang_tidy.sample(files, 200, "seed", set()), sorted(files))


if __name__ == "__main__":
    unittest.main()
