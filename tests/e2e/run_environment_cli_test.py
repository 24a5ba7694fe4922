#!/usr/bin/env python3
"""The environment of a worker of `muster run`: variables, descriptors, signals, its place among processes."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import unittest

from launching import MUSTER, PATIENCE, Launching
from needs import require_own_networks
from ports import free_port

PROMISED = """
    RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE
    MASTER_ADDR MASTER_PORT TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID
    TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_ERROR_FILE TORCH_NCCL_ASYNC_ERROR_HANDLING
    TORCHELASTIC_SIGNALS_TO_HANDLE
""".split()

# In a network of its own no process has taken the port. Switches on the loopback there, and becomes its arguments.
LOOPBACK_UP = """
import fcntl, os, socket, struct, sys
flags = struct.pack("16sH", b"lo", 1)  # IFF_UP
fcntl.ioctl(socket.socket(), 0x8914, flags)  # SIOCSIFFLAGS
os.execv(sys.argv[1], sys.argv[1:])
"""


def static(port):
    return ("--rdzv-backend=static", "--master-addr=127.0.0.1", f"--master-port={port}")


C10D = ("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")


class Variables(Launching, unittest.TestCase):

    def pick(self, seen, *names):
        return [one.get(name) for one in seen for name in names]

    def test_launch049_all_that_is_promised_is_there(self):
        for backend in (("--standalone",), C10D, static(free_port())):
            with self.subTest(backend):
                seen = self.environments("--nproc-per-node=2", "--max-restarts=2", "--role=tr", *backend)
                self.assertEqual(len(seen), 2)
                for rank, one in enumerate(seen):
                    self.assertEqual([name for name in PROMISED if name not in one], [])
                    reported = {name: one[name] for name in PROMISED}
                    for name in ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "MASTER_ADDR", "MASTER_PORT"):
                        del reported[name]
                    self.assertEqual(reported, {
                        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                        "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_NAME": "tr", "ROLE_RANK": str(rank),
                        "ROLE_WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "2",
                        "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
                        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT"})

    def test_launch050_what_the_launcher_was_given_is_handed_on(self):
        strange = {"SOME_VARIABLE": "some value", "EMPTY": "", "EQUALS": "a=b=c", "LINES": "one\ntwo",
                   "BYTES": b"\xff\xfe".decode(errors="surrogateescape"), "PET_ROLE": "tr"}
        seen = self.environments(env=strange)[0]
        self.assertEqual({name: seen.get(name) for name in strange}, strange)

    def test_launch051_values_of_the_parent_are_overwritten(self):
        wrong = {name: "17" for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK",
                                         "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT")}
        seen = self.environments(env=wrong)[0]
        for name in wrong:
            self.assertNotEqual(seen[name], "17", name)

    def test_launch052_a_run_without_a_name_is_none_and_its_role_is_default(self):
        self.assertEqual(self.pick(self.environments(), "TORCHELASTIC_RUN_ID", "ROLE_NAME"), ["none", "default"])

    def test_launch053_workers_get_whose_store_it_is(self):
        name = "TORCHELASTIC_USE_AGENT_STORE"
        self.assertEqual(self.pick(self.environments(*static(free_port())), name), ["True"])
        self.assertEqual(self.pick(self.environments(*C10D), name), ["True"])
        alone = self.environments(*C10D, env={"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})
        self.assertEqual(self.pick(alone, name), ["False"])

    def test_launch054_error_handling_is_on_unless_the_parent_sets_it(self):
        name = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
        self.assertEqual(self.pick(self.environments(), name), ["1"])
        self.assertEqual(self.pick(self.environments(env={name: "0"}), name), ["0"])

    def test_launch055_threads_are_limited_where_there_are_several_workers(self):
        name = "OMP_NUM_THREADS"
        several = self.run_job("--nproc-per-node=2", "--no-python", self.witness())
        self.assertEqual(self.pick(self.seen_environments(), name), ["1", "1"])
        self.assertIn(name, several.err)
        chosen = self.run_job("--nproc-per-node=2", "--no-python", self.witness(), env={name: "3"})
        self.assertEqual(self.pick(self.seen_environments(), name), ["3", "3"])
        self.assertEqual(chosen.err, "")
        (self.seen / "1.0.env").unlink()
        one = self.run_job("--no-python", self.witness())
        self.assertEqual(self.pick(self.seen_environments(), name), [None])
        self.assertEqual(one.err, "")

    def test_launch056_visible_devices_are_handed_on_as_they_are(self):
        seen = self.environments("--nproc-per-node=2", env={"CUDA_VISIBLE_DEVICES": "3, 5"})
        self.assertEqual(self.pick(seen, "CUDA_VISIBLE_DEVICES"), ["3, 5", "3, 5"])

    def test_launch057_in_virtual_mode_each_worker_sees_its_own_device_as_its_first(self):
        seen = self.environments("--nproc-per-node=2", "--virtual-local-rank", env={"CUDA_VISIBLE_DEVICES": "3, 5"})
        self.assertEqual(self.pick(seen, "CUDA_VISIBLE_DEVICES", "LOCAL_RANK"), ["3", "0", "5", "0"])
        self.assertEqual([one["TORCHELASTIC_ERROR_FILE"].split("/")[-2] for one in seen], ["0", "1"])

    def test_launch058_in_virtual_mode_devices_are_counted_where_none_are_named(self):
        seen = self.environments("--nproc-per-node=3", "--virtual-local-rank")
        self.assertEqual(self.pick(seen, "CUDA_VISIBLE_DEVICES"), ["0", "1", "2"])

    def test_launch059_in_virtual_mode_too_few_devices_are_refused(self):
        outcome = self.run_job("--nproc-per-node=3", "--virtual-local-rank", "--no-python", self.witness(), status=1,
                               env={"CUDA_VISIBLE_DEVICES": "3,5", "OMP_NUM_THREADS": "1"})
        self.assertEqual(len(outcome.err.splitlines()), 1, outcome.err)
        self.assertIn("CUDA_VISIBLE_DEVICES", outcome.err)
        self.assertEqual(os.listdir(self.seen), [], "a worker was started")

    def test_launch060_static_without_an_address_is_port_29500_on_the_loopback(self):
        require_own_networks()
        seen = self.environments("--rdzv-backend=static", program=(
            "unshare", "-rn", sys.executable, "-c", LOOPBACK_UP, MUSTER, "run"))
        self.assertEqual(self.pick(seen, "MASTER_ADDR", "MASTER_PORT"), ["127.0.0.1", "29500"])

    def test_launch060_static_workers_meet_where_the_nodes_do(self):
        port = str(free_port())
        for address in ("127.0.0.1", "localhost"):
            seen = self.environments("--nproc-per-node=2", f"--master-addr={address}", f"--master-port={port}")
            self.assertEqual(self.pick(seen, "MASTER_ADDR", "MASTER_PORT"), [address, port] * 2)

    def test_launch061_c10d_workers_have_a_store_separate_from_the_rendezvous(self):
        port = str(free_port())
        c10d = ("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}")
        seen = self.environments(*c10d, "--local-addr=127.0.0.1")[0]
        self.assertEqual(seen["MASTER_ADDR"], "127.0.0.1")
        self.assertNotEqual(seen["MASTER_PORT"], port)
        # Without a domain it is the machine's own name, where torchrun may use "localhost".
        self.assertIn(self.environments(*c10d)[0]["MASTER_ADDR"], (socket.getfqdn(), socket.gethostname()))

    def test_a_worker_can_reach_the_store_in_its_environment(self):
        worker = self.script(f'"{MUSTER}" store --server "$MASTER_ADDR:$MASTER_PORT" set key value &&\n'
                             f'"{MUSTER}" store --server "$MASTER_ADDR:$MASTER_PORT" get key')
        for backend in (("--standalone",), C10D + ("--local-addr=127.0.0.1",), static(free_port())):
            with self.subTest(backend):
                self.assertIn("value", self.run_job(*backend, "--no-python", worker).out)

    def test_launch074_equal_nodes_need_no_exchange_of_ranks(self):
        worker = self.script('env -0 > "$SEEN/$RANK.0.env.part"; mv "$SEEN/$RANK.0.env.part" "$SEEN/$RANK.0.env"\n'
                             'while [ ! -e "$SEEN/enough" ]; do sleep 0.05; done')
        for identical, written in ((None, True), ("1", False)):
            with self.subTest(identical):
                port = free_port()
                job = self.launch("--nproc-per-node=2", *static(port), "--no-python", worker,
                                  env={"TORCH_ELASTIC_WORKER_IDENTICAL": identical})
                self.wait_for_seen("0.0.env", "1.0.env")
                keys = subprocess.run([MUSTER, "store", "--server", f"127.0.0.1:{port}", "keys"], check=True,
                                      capture_output=True, text=True, timeout=PATIENCE).stdout
                (self.seen / "enough").touch()
                self.assertEqual(self.ended(job).status, 0)
                self.assertEqual("torchelastic/role_info/0" in keys, written, keys)
                self.assertEqual("torchelastic/assigned_ranks/0" in keys, written, keys)
                self.assertEqual(self.pick(self.seen_environments(), "RANK", "WORLD_SIZE", "ROLE_RANK",
                                           "ROLE_WORLD_SIZE"), ["0", "2", "0", "2", "1", "2", "1", "2"])
                for path in self.seen.iterdir():
                    path.unlink()


class System(Launching, unittest.TestCase):

    def test_launch065_a_worker_leads_its_own_session_and_is_the_launchers_child(self):
        worker = self.python_script("import json, os\n"
                                    "print(json.dumps([os.getpid(), os.getpgid(0), os.getsid(0), os.getppid()]))\n")
        job = self.launch(worker)
        pid, group, session, parent = json.loads(self.ended(job).out)
        self.assertEqual((group, session, parent), (pid, pid, job.pid))

    def test_launch066_a_worker_has_three_descriptors(self):
        worker = self.python_script("import os\n"
                                    "def is_open(fd):\n"
                                    "    try:\n"
                                    "        return bool(os.fstat(fd))\n"
                                    "    except OSError:\n"
                                    "        return False\n"
                                    "print([fd for fd in range(4096) if is_open(fd)])\n")
        inherited, other = os.pipe()  # the launcher's parent may leak descriptors; workers must not inherit them
        self.addCleanup(os.close, inherited)
        self.addCleanup(os.close, other)
        for options in ((), C10D, ("-t", "3"), ("-r", "3", "--event-log-handler", f"file:{self.folder / 'events'}")):
            with self.subTest(options):
                log_dir = self.folder / f"logs{len(options)}"
                outcome = self.run_job("--log-dir", log_dir, *options, worker, pass_fds=(inherited, other))
                shown = outcome.out or self.logs(log_dir)["attempt_0/0/stdout.log"].decode()
                self.assertIn("[0, 1, 2]", shown)

    def test_launch067_a_worker_starts_with_signals_as_the_system_has_them(self):
        def ignore():  # as nohup and some schedulers do
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGCHLD})

        for before in (None, ignore):
            with self.subTest(before):
                shown = self.run_job("--no-python", "grep", "^Sig[BIC]", "/proc/self/status", preexec_fn=before).out
                masks = {name: int(value, 16) for name, value in re.findall(r"(Sig\w+):\s*(\w+)", shown)}
                self.assertEqual(masks["SigBlk"], 0)
                for number in (signal.SIGPIPE, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
                    self.assertFalse(masks["SigIgn"] >> (number - 1) & 1, number)
                    self.assertFalse(masks["SigCgt"] >> (number - 1) & 1, number)

    def test_launch068_a_worker_reads_the_launchers_input(self):
        self.assertEqual(self.run_job("--no-python", "cat", feed=b"x\n").out, "x\n")

    def test_other_attributes_are_the_launchers(self):
        def change():
            os.umask(0o027)
            os.nice(3)

        outcome = self.run_job("--no-python", "sh", "-c", "pwd; umask; nice", preexec_fn=change)
        where, mask, nice = outcome.out.split()
        self.assertEqual(pathlib.Path(where).resolve(), self.here.resolve())
        self.assertEqual((int(mask, 8), int(nice)), (0o027, os.nice(0) + 3))


if __name__ == "__main__":
    unittest.main()
