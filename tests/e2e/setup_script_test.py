#!/usr/bin/env python3
"""scripts/setup on systems without apt: anything that is installed counts, and only what is missing is listed."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["MUSTER_SOURCE_DIR"])
DEBIANS = ("apt", "dpkg", "sudo")  # Programs with these prefixes are absent.


class SetupWithoutApt(unittest.TestCase):
    TEST_TOOLS = ("clang-format", "clang-tidy", "shellcheck", "faketime", "openssl")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bin = pathlib.Path(folder.name, "bin")
        self.bin.mkdir()
        for place in reversed(os.environ["PATH"].split(":")):
            for program in pathlib.Path(place).glob("*"):
                if not program.name.startswith(DEBIANS):
                    (self.bin / program.name).unlink(missing_ok=True)
                    (self.bin / program.name).symlink_to(program)
        self.venv = pathlib.Path(folder.name, "venv")
        (self.venv / "bin").mkdir(parents=True)
        self.program(self.venv / "bin" / "python", "exit 0")  # PyTorch is installed, and so are Python's tools.

    def program(self, path, text):
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="ascii")
        path.chmod(0o755)

    def without(self, *names):
        for name in names:
            (self.bin / name).unlink(missing_ok=True)

    def setup_script(self, what, **variables):
        environment = {name: value for name, value in os.environ.items() if name not in ("CXX", "CPATH")}
        environment.update(PATH=str(self.bin), MUSTER_TORCH_VENV=str(self.venv), MUSTER_PYTHON_VENV=str(self.venv))
        environment.update(variables)
        return subprocess.run([shutil.which("bash"), ROOT / "scripts" / "setup", what], env=environment,
                              capture_output=True, text=True, timeout=120, check=False)

    def expect_missing(self, what, *packages):
        done = self.setup_script(what)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("no apt-get", done.stderr)
        self.assertEqual([line.strip() for line in done.stderr.splitlines()[1:]], list(packages))

    def test_a_system_that_has_everything_is_not_stopped(self):
        done = self.setup_script("run")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("all packages are there", done.stdout)

    def test_only_what_is_missing_is_listed(self):
        self.without("ninja", "ninja-build")
        self.expect_missing("run", "ninja-build")

    def test_a_missing_header_is_noticed(self):
        compiler = shutil.which("c++")
        self.program(self.bin / "c++", f'input=$(cat)\ncase $input in *CLI/CLI.hpp*) exit 1 ;; esac\n'
                                       f'printf "%s\\n" "$input" | {compiler} "$@"')
        self.expect_missing("run", "libcli11-dev")

    def test_a_missing_library_is_noticed(self):
        self.program(self.bin / "pkg-config", 'case "$*" in *libuv*) exit 1 ;; esac')
        self.expect_missing("run", "libuv1-dev")

    def test_a_cmake_that_is_too_old_is_noticed(self):
        self.program(self.bin / "cmake", "echo cmake version 3.20.1")
        self.expect_missing("run", "cmake")

    def test_a_compiler_without_cxx20_is_noticed(self):
        self.program(self.bin / "c++", f'case "$*" in *c++20*) exit 1 ;; esac\nexec {shutil.which("c++")} "$@"')
        self.expect_missing("run", "build-essential")

    def test_another_compiler_can_be_chosen(self):
        self.without("c++")
        done = self.setup_script("run", CXX=shutil.which("g++"))
        self.assertEqual(done.returncode, 0, done)

    def test_what_only_saves_time_is_not_required(self):
        self.without("ccache")
        done = self.setup_script("run")
        self.assertEqual(done.returncode, 0, done)

    def test_without_gdb_the_tests_continue(self):
        for name in self.TEST_TOOLS:
            self.program(self.bin / name, "exit 0")
        self.without("gdb")
        self.assertEqual(self.setup_script("test").returncode, 0)

    def test_what_the_tests_need_is_looked_for_too(self):
        for name in self.TEST_TOOLS:  # So that the result does not depend on this machine.
            self.program(self.bin / name, "exit 0")
        self.assertEqual(self.setup_script("test").returncode, 0)
        self.without("clang-format")
        self.expect_missing("test", "clang-format")

    def test_without_clang_the_tests_continue_and_report_it(self):
        for name in self.TEST_TOOLS:
            self.program(self.bin / name, "exit 0")
        self.without("clang++")
        done = self.setup_script("test", MUSTER_REQUIRE_CLANG="")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("the fuzzers will be reported as skipped", done.stderr)
        done = self.setup_script("test", MUSTER_REQUIRE_CLANG="1")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("MUSTER_REQUIRE_CLANG=1", done.stderr)

    def test_without_etcd_the_tests_continue_and_report_it(self):
        for name in (*self.TEST_TOOLS, "etcdctl"):
            self.program(self.bin / name, "exit 0")
        self.without("etcd")
        done = self.setup_script("test", MUSTER_REQUIRE_ETCD="")
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("there is no etcd", done.stderr)
        self.assertIn("will be reported as skipped", done.stderr)
        done = self.setup_script("test", MUSTER_REQUIRE_ETCD="1")
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("MUSTER_REQUIRE_ETCD=1", done.stderr)

    def test_without_pythons_headers_the_tests_continue_and_report_it(self):
        for name in self.TEST_TOOLS:
            self.program(self.bin / name, "exit 0")
        self.program(self.bin / "python3", 'case "$*" in *Python.h*) exit 1 ;; esac')  # It never makes an environment.
        nowhere = str(self.venv.parent / "nowhere")
        for required, status in (("", 0), ("1", 1)):
            done = self.setup_script("test", MUSTER_PYTHON_VENV=nowhere, MUSTER_REQUIRE_PYTHON=required,
                                     MUSTER_SYSTEM_PYTHON=str(self.bin / "python3"))
            self.assertEqual(done.returncode, status, done)
            self.assertIn("has no headers (package python3-dev)", done.stderr)
            self.assertIn("will be reported as skipped" if status == 0 else "MUSTER_REQUIRE_PYTHON=1", done.stderr)

    def test_the_newest_pytorch_has_an_environment_of_its_own(self):
        nowhere = str(self.venv.parent / "nowhere")
        done = self.setup_script("torch-latest", MUSTER_TORCH_VENV=nowhere, MUSTER_TORCH_LATEST_VENV=str(self.venv))
        self.assertEqual(done.returncode, 0, done)
        self.assertIn(f"PyTorch is there, in {self.venv}", done.stdout)

    def test_grpc_and_its_compiler_are_looked_for(self):
        self.program(self.bin / "pkg-config", 'case "$*" in *grpc++*|*protobuf-lite*) exit 1 ;; esac')
        self.without("protoc")
        self.expect_missing("run", "libgrpc++-dev", "libprotobuf-dev", "protobuf-compiler")

    def test_fuzzing_needs_a_clang_with_the_libraries(self):
        self.program(self.bin / "clang++", "exit 1")
        self.expect_missing("fuzz", "clang", "libclang-rt-14-dev")


class Requirements(unittest.TestCase):
    """pip's packages are named by version and hash; the package index is the user's choice."""

    LISTS = ("python/tools.txt", "tests/compat/requirements.txt")

    def test_every_requirement_has_its_version_and_a_hash(self):
        for name in self.LISTS:
            text = (ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
            entries = [line for line in text.splitlines() if not line.startswith("#")]
            self.assertTrue(entries)
            for entry in entries:
                with self.subTest(list=name, entry=entry[:40]):
                    self.assertRegex(entry, r"^[a-z0-9-]+==[0-9.]+( +--hash=sha256:[0-9a-f]{64})+$")

    def test_scripts_demand_hashes_of_all_but_pytorch(self):
        installs = []
        for script in (ROOT / "scripts").iterdir():
            installs += [line for line in script.read_text(encoding="utf-8").splitlines() if "pip install" in line]
        self.assertTrue(installs)
        for line in installs:
            self.assertTrue("--require-hashes" in line or '"torch==$TORCH_VERSION"' in line, line)

    def test_workflows_install_nothing_besides(self):
        for workflow in (ROOT / ".github/workflows").iterdir():
            for line in workflow.read_text(encoding="utf-8").splitlines():
                if " pip " in line:
                    self.assertIn("--no-index --no-build-isolation", line)

    def test_no_package_index_is_required(self):
        for place in ("scripts", "CONTRIBUTING.md", "README.md", "docs", "python/README.md", ".ci"):
            path = ROOT / place
            for file in path.rglob("*") if path.is_dir() else [path]:
                if file.is_file():
                    text = file.read_text(encoding="utf-8").lower().replace("-", "_")
                    self.assertNotIn("extra_index", text, file)


class ContinuousIntegration(unittest.TestCase):
    """There, whatever a machine lacks is a failure."""

    # scripts/test builds what the first needs.
    ELSEWHERE = {"MUSTER_REQUIRE_RELEASE"}

    def test_it_requires_everything_that_a_test_may_need(self):
        known = set()
        for folder in ("tests", "python/tests", "scripts"):
            for path in (ROOT / folder).rglob("*"):
                if path.is_file() and path.suffix not in (".pyc", ".gz"):
                    text = path.read_text(encoding="utf-8", errors="replace")
                    known |= set(re.findall(r"MUSTER_REQUIRE_[A-Z0-9]+", text))
        self.assertGreater(len(known), 8)
        exported = set(re.findall(r"^export (MUSTER_REQUIRE_\w+)=1$", (ROOT / ".ci/run").read_text(encoding="utf-8"),
                                  re.MULTILINE))
        self.assertEqual(exported, known - self.ELSEWHERE)

    def test_every_test_run_of_a_workflow_is_that_run(self):
        runs = []
        for workflow in (ROOT / ".github/workflows").iterdir():
            runs += re.findall(r"- run: (.*)", workflow.read_text(encoding="utf-8"))
        self.assertTrue([run for run in runs if run.startswith(".ci/run")], runs)
        for run in runs:
            self.assertNotRegex(run, r"(^|\s)(scripts/test|make test|ctest)(\s|$)", "nothing is required there")


class LongSuite(unittest.TestCase):
    def run_script(self, *parts):
        return subprocess.run([ROOT / "scripts" / "test_all", *parts], text=True, capture_output=True, timeout=60)

    def test_an_unknown_part_is_refused_with_the_names_of_all(self):
        done = self.run_script("dev", "nothing")
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no part 'nothing'; the parts are clang-tidy dev asan", done.stderr)

    def test_the_documents_and_the_forge_have_all_parts(self):
        parts = set(self.run_script("?").stderr.partition("the parts are ")[2].split())
        section = (ROOT / "CONTRIBUTING.md").read_text().partition("## The long suite")[2].partition("\n## ")[0]
        rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
        self.assertEqual(set(re.findall(r"`([\w-]+)`", " ".join(rows))), parts)
        nightly = (ROOT / ".github" / "workflows" / "nightly.yaml").read_text()
        self.assertEqual(set(re.search(r"part: \[(.*)\]", nightly)[1].split(", ")), parts)


class Workflows(unittest.TestCase):
    def test_every_step_is_a_script_of_the_repository(self):
        for workflow in sorted((ROOT / ".github" / "workflows").iterdir()):
            commands = re.findall(r"^ *- run: (.*)", workflow.read_text(), re.MULTILINE)
            self.assertTrue(commands, workflow)
            for command in commands:
                if not command.startswith("apt-get update && apt-get install"):  # what a bare container lacks
                    self.assertTrue(os.access(ROOT / command.split()[0], os.X_OK), f"{workflow.name}: {command}")


class Jobs(unittest.TestCase):
    def jobs(self, **variables):
        done = subprocess.run(["bash", "-c", 'source "$0"; echo "$JOBS"', ROOT / "scripts" / "common.sh"], text=True,
                              env={**os.environ, **variables}, capture_output=True, timeout=60, check=True)
        return done.stdout.strip()

    def test_all_cores_by_default(self):
        self.assertEqual(self.jobs(MUSTER_JOBS=""), subprocess.check_output(["nproc"], text=True).strip())
        self.assertEqual(self.jobs(MUSTER_JOBS="3"), "3")


if __name__ == "__main__":
    unittest.main()
