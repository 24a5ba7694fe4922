"""Jobs of `muster run` that are started, watched, and gone when their test ends."""

import collections
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import uuid

MUSTER = os.environ["MUSTER_BIN"]
PATIENCE = 60  # seconds for what takes milliseconds, because the machine may be busy
MARK = "LAUNCH_TEST_MARK"  # in the environment of a test's processes, whichever parent they have

# Variables that a user may have set, and that a launcher would read.
FOREIGN = ("PET_", "TORCH", "CUDA_", "HIP_", "ROCR_", "ZE_", "OMP_", "MUSTER_AGENT", "PYTHON_EXEC", "LOGLEVEL",
           "VIRTUAL_ENV", "CONDA_PREFIX", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "NO_COLOR")

Outcome = collections.namedtuple("Outcome", "status out err")


def eventually(condition, what, patience=PATIENCE):
    """The value of the condition as soon as it is true."""
    deadline = time.monotonic() + patience
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen in {patience} s: {what}")
        time.sleep(0.01)


def processes_with(mark):
    """Pid and command of all processes with it in their environment. Ended ones have none."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if wanted in pathlib.Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                found.append((int(entry), pathlib.Path("/proc", entry, "cmdline").read_bytes().replace(b"\0", b" ")))
        except OSError:
            continue  # ended in the meantime
    return found


class Launching:
    """A mixin for a TestCase."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.temporary = self.folder / "tmp"  # for logs without --log-dir
        self.seen = self.folder / "seen"  # where workers write what they see
        self.here = self.folder / "here"  # the launcher's working folder
        for made in (self.temporary, self.seen, self.here):
            made.mkdir()
        self.mark = str(uuid.uuid4())
        self.addCleanup(self.assert_nothing_runs)

    # --- starting ---------------------------------------------------------------------------------

    def environment(self, changes):
        """The launcher's environment. A change of None removes the variable."""
        made = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        made |= {MARK: self.mark, "TMPDIR": str(self.temporary), "SEEN": str(self.seen),
                 "PATH": os.path.dirname(sys.executable) + ":" + made["PATH"]}
        made |= changes
        return {name: value for name, value in made.items() if value is not None}

    def launch(self, *arguments, env=None, program=(MUSTER, "run"), **options):
        """Starts it and does not wait."""
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
                   "cwd": self.here, **options}
        process = subprocess.Popen([*program, *map(str, arguments)], env=self.environment(env or {}), **options)
        self.addCleanup(self.end, process)
        return process

    def ended(self, process, feed=None, patience=PATIENCE):
        """Waits for it. Bytes that are not valid text are kept as surrogates."""
        received = process.communicate(feed, timeout=patience)
        out, err = (b"" if part is None else part for part in received)
        return Outcome(process.returncode, out.decode(errors="surrogateescape"), err.decode(errors="surrogateescape"))

    def run_job(self, *arguments, status=0, feed=None, **options):
        """Starts it, waits for it, and checks its status."""
        if feed is not None:
            options["stdin"] = subprocess.PIPE
        outcome = self.ended(self.launch(*arguments, **options), feed)
        self.assertEqual(outcome.status, status, f"{outcome.out}\n{outcome.err}")
        return outcome

    def refused(self, *arguments, status, mentions=(), **options):
        """One clear line, after a usage line for a usage error, and no worker."""
        outcome = self.run_job(*arguments, status=status, **options)
        self.assertEqual(outcome.out, "")
        lines = outcome.err.splitlines()
        if status == 2:
            self.assertTrue(lines[0].startswith("usage: "), outcome.err)
            lines = lines[1:]
        self.assertEqual(len(lines), 1, outcome.err)
        for part in (mentions,) if isinstance(mentions, str) else mentions:
            self.assertIn(part, lines[0])
        self.assertEqual(os.listdir(self.seen), [], "a worker was started")
        return outcome

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()

    def assert_nothing_runs(self):
        try:
            eventually(lambda: not processes_with(self.mark), "all processes of the job are gone", 10)
        except AssertionError:
            left = processes_with(self.mark)
            for pid, _ in left:
                os.kill(pid, signal.SIGKILL)
            self.fail(f"left behind: {left}")

    # --- workers ----------------------------------------------------------------------------------

    def script(self, text, name="worker", first_line="#!/bin/sh"):
        """A program for --no-python."""
        path = self.folder / name
        path.write_text(f"{first_line}\n{text}\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def python_script(self, text, name="worker.py"):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def witness(self):
        """A program that writes its environment and its arguments to $SEEN, and prints that it ran."""
        return self.script('of="$SEEN/$RANK.$TORCHELASTIC_RESTART_COUNT"\n'
                           'env -0 > "$of.env"\n'
                           'for word in "$@"; do printf "%s\\0" "$word"; done > "$of.words"\n'
                           'echo "worker ran"', name="witness")

    def environments(self, *options, restarts=0, **more):
        """Runs a job of such programs. Returns each worker's environment, by rank."""
        self.run_job(*options, "--no-python", self.witness(), **more)
        return self.seen_environments(restarts)

    def seen_environments(self, restarts=0):
        found = {}
        for path in self.seen.glob(f"*.{restarts}.env"):
            lines = path.read_bytes().decode(errors="surrogateescape").split("\0")
            found[int(path.name.split(".")[0])] = dict(line.split("=", 1) for line in lines if line)
        return [found[rank] for rank in sorted(found)]

    def seen_words(self, rank=0, restarts=0):
        return (self.seen / f"{rank}.{restarts}.words").read_text(encoding="utf-8").split("\0")[:-1]

    def wait_for_seen(self, *names):
        """Waits until workers have written these."""
        for name in names:
            eventually((self.seen / name).exists, f"a worker writes {name}")

    # --- logs -------------------------------------------------------------------------------------

    def run_directory(self, root=None):
        """The only run directory, of the only job that logs there."""
        roots = [root] if root else list(self.temporary.glob("torchelastic_*"))
        self.assertEqual(len(roots), 1, roots)
        runs = list(pathlib.Path(roots[0]).iterdir())
        self.assertEqual(len(runs), 1, runs)
        return runs[0]

    def logs(self, root=None):
        """The content of each log, by its path below the run's directory."""
        run = self.run_directory(root)
        return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*.log")}
