#!/usr/bin/env python3
"""Shows each rule of tidy.py firing on a small bad sample, and not on its good twin."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import tidy  # noqa: E402  (found through the line above)

HEADER = "// What it is.\n#pragma once\n"


class TidyTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def violations(self, files):
        """The violations in a tree with these files and no others."""
        for path in sorted(self.root.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        for path, text in files.items():
            self.write(path, text)
        return tidy.check_tree(self.root)[0]

    def assert_fires(self, path, text, message, line=None):
        found = self.violations({path: text})
        self.assertEqual(len(found), 1, found)
        self.assertIn(message, found[0])
        self.assertTrue(found[0].startswith(f"{path}:{line or ''}"), found[0])

    def assert_quiet(self, path, text):
        self.assertEqual(self.violations({path: text}), [])

    # --- The architecture ---

    def test_an_include_against_an_arrow_fires(self):
        for path, include in [
            ("src/base/a.cc", "store/core/machine.h"),
            ("src/os/posix/a.cc", "store/core/machine.h"),
            ("src/os/uv/a.cc", "store/throw.h"),
            ("src/store/a.cc", "rendezvous/registry.h"),
            ("src/rendezvous/a.cc", "server/server_loop.h"),
            ("src/server/a.cc", "etcd/link.h"),
            ("src/launch/a.cc", "etcd/link.h"),
            ("lab/load/a.cc", "cli/serve.h"),
            ("lab/sim/a.cc", "program/bench.h"),
            ("src/cli/a.cc", "load/generator.h"),
            ("src/server/a.cc", "sim/world.h"),
            ("python/native/a.cc", "store/throw.h"),
        ]:
            with self.subTest(path=path, include=include):
                self.assert_fires(path, f'#include "{include}"\n', "against the arrows; use what it may see")

    def test_what_is_pure_includes_only_what_is_pure(self):
        for path, include in [
            ("src/store/core/a.cc", "os/ports/loop.h"),
            ("src/store/wire/a.cc", "store/throw.h"),
            ("src/rendezvous/core/a.cc", "rendezvous/registry.h"),
            ("src/launch/options/a.cc", "muster/store.h"),
        ]:
            with self.subTest(path=path, include=include):
                self.assert_fires(path, f'#include "{include}"\n', "what is pure includes")
        self.assert_quiet("src/rendezvous/wire/a.cc", '#include "rendezvous/core/state.h"\n')
        self.assert_quiet("src/launch/options/a.cc", '#include "launch/core/ranks.h"\n')

    def test_an_include_along_the_arrows_is_quiet(self):
        for path, include in [
            ("src/store/core/a.cc", "base/bytes.h"),
            ("src/store/wire/a.cc", "store/core/request.h"),
            ("src/store/client/a.cc", "os/ports/loop.h"),
            ("src/os/uv/a.cc", "os/posix/address.h"),
            ("src/store/a.cc", "muster/store.h"),
            ("src/rendezvous/a.cc", "os/uv/uv_loop.h"),
            ("lab/load/a.cc", "os/posix/address.h"),
            ("lab/program/a.cc", "load/generator.h"),
            ("lab/program/a.cc", "cli/flags.h"),
            ("lab/fuzz/a.cc", "support/bytes.h"),
            ("src/cli/a.cc", "muster/store.h"),
            ("python/native/a.cc", "muster/store.h"),
            ("python/native/a.cc", "arguments.h"),
            ("tests/contracts/a.cc", "server/server_loop.h"),
        ]:
            with self.subTest(path=path, include=include):
                self.assert_quiet(path, f'#include "{include}"\n')

    def test_base_and_os_do_not_include_the_public_headers(self):
        for folder in ["base", "os/posix", "os/uv"]:
            with self.subTest(folder=folder):
                self.assert_fires(f"src/{folder}/a.cc", '#include "muster/store.h"\n', "arrows")

    def test_a_public_header_includes_nothing_from_the_inside(self):
        self.assert_fires("include/muster/a.h", HEADER + '#include "base/bytes.h"\n',
                          "use muster/* and C++ headers only", line=3)
        self.assert_quiet("include/muster/a.h", HEADER + '#include <string>\n#include "muster/b.h"\n')

    def test_a_new_folder_needs_a_place(self):
        self.assert_fires("src/misc/a.cc", '#include "base/bytes.h"\n', "give it one in tools/tidy.py")

    def test_an_include_in_a_comment_does_not_count(self):
        self.assert_quiet("src/base/a.cc", '// #include "store/core/machine.h"\n')

    # --- Guests and the system ---

    def test_guests_stay_in_their_rooms(self):
        for path, include, message in [
            ("src/store/client/a.cc", "uv.h", "guest of src/os and lab/load"),
            ("src/rendezvous/a.cc", "uv.h", "guest of src/os"),
            ("lab/load/a.cc", "CLI/CLI.hpp", "guest of src/cli"),
            ("src/store/a.cc", "nanobind/nanobind.h", "guest of python"),
            ("src/store/a.cc", "nlohmann/json.hpp", "guest of src/base and src/cli"),
            ("src/store/client/a.cc", "spdlog/spdlog.h", "use the log sink of base/log.h"),
            ("src/base/a.cc", "fmt/format.h", "guest of src/cli"),
            ("src/base/a.cc", "gtest/gtest.h", "outside a test"),
        ]:
            with self.subTest(path=path, include=include):
                self.assert_fires(path, f"#include <{include}>\n", message, line=1)

    def test_guests_in_their_rooms_are_quiet(self):
        self.assert_quiet("src/os/uv/a.cc", "#include <uv.h>\n")
        self.assert_quiet("lab/load/a.cc", "#include <uv.h>\n")
        self.assert_quiet("src/cli/a.cc", "#include <CLI/CLI.hpp>\n#include <spdlog/spdlog.h>\n")
        self.assert_quiet("src/base/a_test.cc", "#include <gtest/gtest.h>\nTEST(A, B) {}\n")

    def test_system_headers_stay_in_os(self):
        for header in ["sys/socket.h", "unistd.h", "netdb.h", "poll.h", "pthread.h"]:
            with self.subTest(header=header):
                self.assert_fires("src/store/a.cc", f"#include <{header}>\n", "use a port from src/os/ports")
                for folder in ["os/posix", "os/uv", "load", "cli"]:
                    self.assert_quiet(f"src/{folder}/a.cc", f"#include <{header}>\n")

    def test_a_unit_test_may_measure_memory_but_no_more(self):
        self.assert_quiet("src/store/core/a_test.cc", "#include <malloc.h>\nTEST(A, B) {}\n")
        self.assert_fires("src/store/core/a.cc", "#include <malloc.h>\n", "use a port")
        self.assert_fires("src/store/core/a_test.cc", "#include <unistd.h>\nTEST(A, B) {}\n", "use a port")

    def test_the_c_name_of_a_standard_header_fires(self):
        self.assert_fires("src/base/a.cc", "#include <string.h>\n", "use <cstring>")

    # --- Bans ---

    def test_banned_code_fires_and_names_the_replacement(self):
        for path, code, message in [
            ("src/store/client/a.cc", "std::random_device entropy;", "use the Prng you were given"),
            ("src/store/client/a.cc", "auto t = steady_clock::now();", "use the Instant you were given"),
            ("src/store/core/a.cc", "auto t = std::chrono::system_clock::now();", "use the Instant"),
            ("src/store/tcp_store.cc", "auto t = steady_clock::now();", "use the Instant"),
            ("src/base/a.cc", "int i = std::rand();", "use base/prng.h"),
            ("tests/e2e/a.cc", "srand(1);", "use base/prng.h"),
            ("lab/fuzz/a_fuzzer.cc", "srand(1);", "use base/prng.h"),
            ("lab/fuzz/a_fuzzer.cc", "std::random_device entropy;", "use the Prng you were given"),
            ("lab/fuzz/a_fuzzer.cc", "auto t = steady_clock::now();", "use the Instant you were given"),
            ("lab/load/a.cc", "std::this_thread::sleep_for(1s);", "use a wait on the condition"),
            ("tests/e2e/a.cc", "std::this_thread::sleep_for(1s);", "in tests EventuallyTrue"),
            ("src/store/client/a.cc", "throw Error();", "use a Result"),
            ("lab/load/a.cc", "throw Error();", "use a Result"),
            ("src/store/client/a.cc", "auto* a = new A;", "use std::make_unique"),
            ("src/store/client/a.cc", "Take(new A);", "use std::make_unique"),
            ("src/cli/a.cc", "delete a;", "use std::unique_ptr"),
            ("src/cli/a.cc", "delete[] a;", "use std::unique_ptr"),
            ("src/base/a.cc", "using namespace std;", "use std:: where it is needed"),
            ("tests/e2e/a.cc", "using namespace std;", "use std:: where it is needed"),
        ]:
            with self.subTest(path=path, code=code):
                self.assert_fires(path, f"// Why.\n{code}\n", "banned: ", line=2)
                self.assert_fires(path, f"// Why.\n{code}\n", message, line=2)

    def test_what_only_looks_like_banned_code_is_quiet(self):
        for path, code in [
            ("src/store/client/a.cc", "// Never throw, never new, never steady_clock::now()."),
            ("src/store/client/a.cc", "/* delete\n   sleep_for */"),
            ("src/store/client/a.cc", 'const char* text = "throw \\" new";'),
            ("src/store/client/a.cc", 'const char* text = R"(throw "new")";'),
            ("src/store/client/a.cc", "A(const A&) = delete;"),
            ("src/store/client/a.cc", "int operand(int renewed);"),
            ("src/store/client/a.cc", "std::unique_ptr<A> a(new A(1, 2));"),
            ("src/store/client/a.cc", "return std::unique_ptr<A>(new A);"),
            ("src/store/client/a.cc", "#include <new>"),
            ("src/store/client/a.cc", "int million = 1'000'000; char quote = '\"'; int more = 1'0;"),
            ("src/os/uv/a.cc", "auto* handle = new Handle; delete handle;"),
            ("src/os/posix/a.cc", "auto t = steady_clock::now();"),
            ("src/store/hash_store.cc", "auto t = steady_clock::now();"),
            ("src/store/a.cc", "throw StoreError();"),
            ("src/cli/a.cc", "std::random_device entropy;"),
            ("tests/support/eventually.cc", "std::this_thread::sleep_for(1s);"),
            ("examples/elastic_worker/main.cc", "std::this_thread::sleep_for(1s);"),
        ]:
            with self.subTest(path=path, code=code):
                self.assert_quiet(path, code + "\n")

    def test_a_corpus_is_bytes_and_not_looked_at(self):
        self.assert_quiet("lab/fuzz/corpus/configuration/0a1b", "killall muster \n")
        self.assert_fires("lab/fuzz/corpus.md", "killall muster\n", "ending processes by their name")

    def test_banned_words_fire_in_any_file(self):
        for path in ["scripts/run", "README.md", "Makefile", "tests/compat/a.py", "src/base/a.cc"]:
            for text, message in [
                ("pkill muster", "use kill with the process id"),
                ("killall muster", "use kill with the process id"),
                ("TODO(now): think", "before the commit"),
                ("see /" + "home/somebody/x", "a path of one machine"),
                ("see /" + "root/x", "a path of one machine"),
                ('"/' + 'work/x"', "a path of one machine"),
            ]:
                with self.subTest(path=path, text=text):
                    self.assert_fires(path, text + "\n", message, line=1)

    def test_what_only_looks_like_a_banned_word_is_quiet(self):
        self.assert_quiet("docs/a.md", "TODO(perf): tests/" + "work/x, $HOME/" + "root/x, ${dir}/" + "home/x\n")

    def test_skipping_is_for_missing_torch_only(self):
        self.assert_fires("tests/e2e/a.cc", 'GTEST_SKIP() << "no torch";\n', "always runs")
        self.assert_fires("tests/contracts/a.cc", 'GTEST_SKIP() << "slow";\n', "always runs")
        self.assert_quiet("tests/contracts/a.cc", 'GTEST_SKIP()\n    << "MUSTER_TORCH_PYTHON is not set";\n')

    # --- Form ---

    def test_a_header_has_a_comment_and_a_guard(self):
        self.assert_fires("src/base/a.h", "#pragma once\n", "no file comment", line=1)
        self.assert_fires("src/base/a.h", "// What it is.\n", "use #pragma once", line=1)
        self.assert_fires("tests/support/a.h", "// #pragma once\n", "use #pragma once", line=1)
        self.assert_quiet("src/base/a.h", HEADER)

    def test_a_source_includes_its_own_header_first(self):
        found = self.violations({
            "src/base/a.h": HEADER,
            "src/base/a.cc": '#include <string>\n#include "base/a.h"\n',
            "include/muster/b.h": HEADER,
            "src/store/b.cc": '\n#include "store/throw.h"\n',
        })
        self.assertEqual(found, [
            'src/base/a.cc:1: the first include is not its own header; use "base/a.h"',
            'src/store/b.cc:2: the first include is not its own header; use "muster/b.h"',
        ])
        self.assertEqual(self.violations({
            "src/base/a.h": HEADER,
            "src/base/a.cc": '// Why.\n#include "base/a.h"\n\n#include <string>\n',
            "src/base/alone.cc": "#include <string>\n",
        }), [])

    def test_files_lines_and_line_ends_have_limits(self):
        self.assert_fires("src/base/a.cc", "\n" * 601, "601 lines, 600 are allowed")
        self.assert_quiet("src/base/a.cc", "\n" * 600)
        self.assert_quiet("docs/reference/protocol.md", "\n" * 601)
        self.assert_fires("src/base/a.cc", "// " + "x" * 98 + "\n", "101 columns, 100 are allowed", line=1)
        self.assert_quiet("src/base/a.cc", "// " + "\u2190" * 97 + "\n")
        self.assert_fires("src/base/a.cc", "int a;\nint b; \n", "white space at the end", line=2)
        self.assert_fires("Makefile", "all:\t\n", "white space at the end", line=1)

    def test_a_test_file_has_a_test(self):
        self.assert_fires("src/base/a_test.cc", "// TEST(A, B)\n", "no TEST in a test file")
        for macro in ["TEST", "TEST_F", "TEST_P", "TYPED_TEST", "RC_GTEST_PROP"]:
            self.assert_quiet("src/base/a_test.cc", f"{macro}(A, B) {{}}\n")

    def test_a_long_function_fires_where_it_starts(self):
        body = "  x();\n" * 68
        for head in [
            "int F(int a)",
            "void A::F() const",
            "A::A(int a) : a_{a}, b_(a)",
            "A::A(int a) : b_(a), a_{a}",
            "A::A(B b = {}) noexcept : b_(b)",
            "auto F() -> std::vector<int>",
            "template <class T> int F()",
            "TEST(A, B)",
        ]:
            with self.subTest(head=head):
                text = f"namespace a {{\nint kA[] = {{1, 2}};\n\n{head} {{\n{body}  x();\n}}\n}}\n"
                self.assert_fires("src/base/a.cc", text, "function of 71 lines, 70 are allowed", line=4)
                text = f"namespace a {{\nint kA[] = {{1, 2}};\n\n{head} {{\n{body}}}\n}}\n"
                self.assert_quiet("src/base/a.cc", text)

    def test_a_long_class_or_table_is_not_a_function(self):
        lines = "  int x() { return 1; }\n" * 80
        self.assert_quiet("src/base/a.cc", f"class A : public B {{\n{lines}}};\n")
        self.assert_quiet("src/base/a.cc", "const int kA[] = {\n" + "  1,\n" * 80 + "};\n")

    # --- The tree ---

    def test_build_folders_are_not_looked_at(self):
        self.assert_quiet("build/dev/a.h", "int a; \n")
        self.assert_quiet(".venv/lib/a.py", "a = 1 \n")

    def test_main_counts_and_exits_with_1(self):
        self.write("src/base/a.h", "#pragma once\n")
        self.assertEqual(tidy.main([str(self.root)]), 1)
        self.write("src/base/a.h", HEADER)
        self.assertEqual(tidy.main([str(self.root)]), 0)


if __name__ == "__main__":
    unittest.main()
