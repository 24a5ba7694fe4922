#!/usr/bin/env python3
"""`muster run`'s command line on one node: what runs, what is refused, and with which status."""

import os
import signal
import socket
import subprocess
import sys
import unittest
import uuid

from launching import MUSTER, Launching
from needs import skip_or_fail
from ports import free_port

LEGACY = (MUSTER, "launch")

# torchrun's options, with those that it has, or may have, since 2.12.
OPTIONS = """
    nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf standalone max-restarts monitor-interval
    start-method event-log-handler role module no-python run-path log-dir redirects tee local-ranks-filter
    duplicate-stdout-filters duplicate-stderr-filters node-rank master-addr master-port local-addr logs-specs
    numa-binding signals-to-handle virtual-local-rank shutdown-timeout exit-barrier-timeout log-line-prefix-template
    wait-for-children print-completion help
""".split()


def has_accelerator():
    return any(os.path.exists(path) for path in ("/dev/nvidiactl", "/dev/kfd", "/dev/dri"))


def can_bind(host):
    try:
        free_port(host)
    except OSError:
        return False
    return True


class Options(Launching, unittest.TestCase):
    """Workers write down their environment and arguments."""

    def workers_of(self, *options, **more):
        return len(self.environments(*options, **more))

    # --- help and usage ---------------------------------------------------------------------------

    def test_launch001_without_arguments_there_is_a_usage_line_and_status_2(self):
        self.refused(status=2, mentions="script")
        self.assertEqual(os.listdir(self.temporary), [])

    def test_launch002_help_is_on_stdout_and_makes_nothing(self):
        for asked in ("--help", "-h"):
            shown = self.run_job(asked)
            self.assertEqual(shown.err, "")
            self.assertTrue(shown.out.startswith("usage: muster run"), shown.out[:80])
            for option in OPTIONS:
                self.assertRegex(shown.out, rf"(?m)^  (-\w, )?--{option}\b", "every option has a line of its own")
        self.assertLessEqual(max(map(len, shown.out.splitlines())), 100, "it fits a terminal")
        self.assertIn("Exit status:", shown.out)
        self.assertIn("muster run --standalone", shown.out, "the help has an example")
        self.assertEqual(os.listdir(self.temporary) + os.listdir(self.here), [])

    def test_help_of_the_older_entry_names_its_own_option(self):
        self.assertIn("--use-env", self.run_job("--help", program=LEGACY).out)
        self.assertNotIn("--use-env", self.run_job("--help").out)

    def test_launch003_an_unknown_option_is_a_usage_error(self):
        self.refused("--nope", "--no-python", self.witness(), status=2, mentions="--nope")

    def test_launch006_a_clear_beginning_of_a_name_is_enough(self):
        outcome = self.run_job("--redirect=3", "--no-python", self.witness())
        self.assertEqual(outcome.out, "")
        self.assertEqual(self.logs()["attempt_0/0/stdout.log"], b"worker ran\n")

    def test_launch007_an_ambiguous_beginning_is_a_usage_error(self):
        self.refused("--nproc", "2", "--no-python", self.witness(), status=2, mentions="--nproc")
        self.assertEqual(self.workers_of("--nproc-per", "2"), 2)

    # --- how many ---------------------------------------------------------------------------------

    def test_launch004_one_worker_runs_and_the_status_is_0(self):
        worker = self.python_script("import os, pathlib\n"
                                    "pathlib.Path(os.environ['SEEN'], os.environ['RANK']).touch()\n")
        outcome = self.run_job(worker)
        self.assertEqual((outcome.out, outcome.err), ("", ""))
        self.assertEqual(os.listdir(self.seen), ["0"])

    def test_launch005_either_spelling_starts_three(self):
        for words in (("--nproc-per-node=3",), ("--nproc_per_node", "3")):
            with self.subTest(words):
                self.assertEqual(self.workers_of(*words), 3)
                for path in self.seen.iterdir():
                    path.unlink()

    def test_launch014_a_number_of_workers_has_to_be_one(self):
        for number in ("0", "-1", "foo"):
            self.refused(f"--nproc-per-node={number}", "--no-python", self.witness(), status=1, mentions=["nproc", number])

    @unittest.skipIf(has_accelerator(), "this machine has an accelerator")
    def test_launch015_gpu_without_a_gpu_is_refused(self):
        self.refused("--nproc-per-node=gpu", "--no-python", self.witness(), status=1, mentions="no GPU")

    @unittest.skipIf(has_accelerator(), "this machine has an accelerator")
    def test_launch016_auto_without_accelerators_is_one_worker_for_each_cpu(self):
        started = self.workers_of("--nproc-per-node=auto")
        self.assertEqual(started, self.workers_of("--nproc-per-node=cpu"))
        self.assertLessEqual(started, len(os.sched_getaffinity(0)), "a quota may allow fewer")

    def test_launch017_cpu_counts_the_cpus_of_the_launchers_affinity(self):
        one = min(os.sched_getaffinity(0))
        started = self.workers_of("--nproc-per-node=cpu", preexec_fn=lambda: os.sched_setaffinity(0, {one}))
        self.assertEqual(started, 1)

    def test_bash_completes_the_options(self):
        shown = self.run_job("--print-completion", "bash").out
        # What bash does for "torchrun --nproc<tab>".
        completed = subprocess.run(["bash", "-c", f"{shown}\neval compgen $(complete -p torchrun | sed 's/complete//; "
                                    "s/ torchrun$//') -- --nproc"], capture_output=True, text=True, check=True)
        self.assertEqual(completed.stdout, "--nproc-per-node\n")

    def test_torchruns_own_logs_specs_are_accepted_by_name(self):
        self.assertEqual(self.workers_of("--logs-specs=default"), 1)

    def test_launch013_a_number_of_nodes_has_to_be_one(self):
        for nodes in ("1:2:3", "2:1", "0", "a"):
            self.refused(f"--nnodes={nodes}", "--no-python", self.witness(), status=1, mentions=["--nnodes", nodes])

    # --- typed values and variables ---------------------------------------------------------------

    def test_launch010_restarts_are_a_number_from_0_on(self):
        self.refused("--max-restarts=a", "--no-python", self.witness(), status=2, mentions=["--max-restarts", "a"])
        self.refused("--max-restarts=-1", "--no-python", self.witness(), status=1, mentions=["--max-restarts", "-1"])

    def test_launch011_choices_are_demanded_of_the_command_line_only(self):
        self.refused("--start-method=foo", "--no-python", self.witness(), status=2, mentions=["--start-method", "spawn"])
        self.assertEqual(self.workers_of(env={"PET_START_METHOD": "foo"}), 1)

    def test_launch012_a_numa_binding_is_one_of_four(self):
        self.refused("--numa-binding=foo", "--no-python", self.witness(), status=2, mentions=["--numa-binding", "socket"])

    def test_launch018_a_monitor_interval_of_0_is_refused(self):
        self.refused("--monitor-interval=0", "--no-python", self.witness(), status=1, mentions="--monitor-interval")

    def test_launch019_a_variable_stands_in_and_the_command_line_goes_before_it(self):
        variable = {"PET_NPROC_PER_NODE": "2"}
        self.assertEqual(self.environments("--nproc-per-node=1", env=variable)[0]["LOCAL_WORLD_SIZE"], "1")
        self.assertEqual(self.workers_of(env=variable), 2)

    def test_launch020_a_flags_variable_is_on_unless_it_is_0(self):
        self.run_job(self.witness(), env={"PET_NO_PYTHON": "1"})
        self.assertEqual(len(self.seen_environments()), 1)
        self.run_job(self.witness(), env={"PET_NO_PYTHON": "0"}, status=1)  # Python cannot read it

    def test_launch021_a_flags_variable_that_is_no_number_is_refused(self):
        for options in ((), ("--module",)):
            self.refused(*options, "x", env={"PET_MODULE": "x"}, status=1, mentions=["PET_MODULE", "x"])

    def test_launch022_a_typed_variable_that_cannot_be_read_is_a_usage_error(self):
        self.refused("--no-python", self.witness(), env={"PET_MAX_RESTARTS": "x"}, status=2, mentions="PET_MAX_RESTARTS")

    def test_launch023_the_plug_in_of_logs_has_no_variable(self):
        self.assertEqual(self.workers_of(env={"PET_LOGS_SPECS": "zzz"}), 1)

    # --- where nodes meet -------------------------------------------------------------------------

    def test_launch024_a_configuration_that_is_no_list_of_pairs_is_refused(self):
        for pairs in ("a", "=1", "a=1,"):
            self.refused(f"--rdzv-conf={pairs}", "--no-python", self.witness(), status=1, mentions="--rdzv-conf")

    def test_launch025_blanks_around_pairs_do_not_count(self):
        self.assertEqual(self.workers_of("--rdzv-conf", " a = 1 , b=2=3"), 1)

    def test_launch026_a_pair_cannot_stand_for_an_option(self):
        self.refused("--rdzv-conf=backend=x", "--no-python", self.witness(), status=1, mentions="backend")

    def test_launch027_an_unknown_backend_is_refused(self):
        self.refused("--rdzv-backend=nope", "--no-python", self.witness(), status=1, mentions=["nope", "c10d"])

    def test_launch028_launch029_an_endpoint_without_a_port_that_can_be_is_refused(self):
        for backend, endpoint in (("static", "localhost"), ("static", "h:99999"), ("c10d", "h:99999")):
            self.refused(f"--rdzv-backend={backend}", f"--rdzv-endpoint={endpoint}", "--no-python", self.witness(),
                         status=1, mentions=["--rdzv-endpoint", endpoint])

    def test_launch030_brackets_are_taken_off_a_master_address(self):
        skip_or_fail("" if socket.has_ipv6 and can_bind("::1") else "this machine has no address ::1",
                     "MUSTER_REQUIRE_IPV6")
        port = str(free_port("::1"))
        seen = self.environments("--master-addr=[::1]", f"--master-port={port}")[0]
        self.assertEqual((seen["MASTER_ADDR"], seen["MASTER_PORT"]), ("::1", port))

    def test_launch031_a_static_endpoint_goes_before_the_master_port(self):
        port, other = str(free_port()), str(free_port())
        seen = self.environments("--rdzv-backend=static", f"--rdzv-endpoint=127.0.0.1:{port}",
                                 f"--master-port={other}")[0]
        self.assertEqual(seen["MASTER_PORT"], port)

    def test_launch037_an_empty_id_becomes_a_decimal_one_and_a_warning(self):
        outcome = self.run_job("--rdzv-id", "", "--no-python", self.witness())
        run_id = self.seen_environments()[0]["TORCHELASTIC_RUN_ID"]
        self.assertRegex(run_id, r"^\d{30,39}$")
        self.assertIn("--rdzv-id", outcome.err)

    def test_launch038_standalone_overrides_the_options_of_the_rendezvous(self):
        seen = self.environments("--standalone", "--rdzv-backend=c10d", "--rdzv-endpoint=name.invalid:1",
                                 "--rdzv-id=mine")[0]
        self.assertEqual(str(uuid.UUID(seen["TORCHELASTIC_RUN_ID"])), seen["TORCHELASTIC_RUN_ID"])

    # --- logs -------------------------------------------------------------------------------------

    def test_launch032_a_module_needs_python(self):
        self.refused("--no-python", "--module", "x", status=1, mentions=["--no-python", "--module"])

    def test_launch033_streams_are_chosen_by_digits(self):
        # torchrun cannot name a rank above 9. Here it is a rank like any other.
        for spec in ("0", "1", "2", "3", "0:1,1:2", "10:1"):
            with self.subTest(spec):
                self.assertEqual(self.workers_of("-r", spec, "--nproc-per-node=2"), 2)
        for path in self.seen.iterdir():
            path.unlink()
        for spec in ("4", "0:1,", "0:4", ""):
            self.refused("-r", spec, "--no-python", self.witness(), status=1, mentions="--redirects")

    def test_launch034_a_filter_of_ranks_is_a_list_of_numbers(self):
        self.refused("--local-ranks-filter=a", "--no-python", self.witness(), status=1, mentions="--local-ranks-filter")

    def test_launch035_a_log_directory_that_is_a_file_is_refused(self):
        taken = self.folder / "taken"
        taken.touch()
        self.refused("--log-dir", taken, "--no-python", self.witness(), status=1, mentions=["--log-dir", str(taken)])

    def test_launch036_parents_of_a_log_directory_are_made(self):
        self.run_job("--log-dir", "a/b/c", "--no-python", self.witness())
        self.assertTrue((self.run_directory(self.here / "a/b/c") / "attempt_0/0").is_dir())

    def test_launch040_two_commas_are_one_in_a_text_to_look_for(self):
        worker = self.script('echo "has a,b"; echo "has a"; echo "has b"')
        self.run_job("--duplicate-stdout-filters", "a,,b", "-t", "3", "--no-python", worker)
        self.assertEqual(self.logs()["attempt_0/filtered_stdout.log"], b"[default0]:has a,b\n")

    # --- signals ----------------------------------------------------------------------------------

    def test_launch039_listed_signals_stop_the_job_and_unknown_ones_are_left_out(self):
        worker = self.script('trap "touch $SEEN/told; exit 0" USR1\ntouch "$SEEN/started"\n'
                             'while :; do sleep 0.05; done')
        job = self.launch("--signals-to-handle=SIGUSR1,SIGFOO", "--no-python", worker)
        self.wait_for_seen("started")
        job.send_signal(signal.SIGUSR1)
        outcome = self.ended(job)
        self.assertEqual(outcome.status, 1)
        self.assertEqual(outcome.err.count("SIGFOO"), 1, outcome.err)
        self.assertTrue((self.seen / "told").exists())

    def test_launch039_a_signal_that_cannot_be_handled_is_refused(self):
        self.refused("--signals-to-handle=SIGTERM,SIGKILL", "--no-python", self.witness(), status=1, mentions="SIGKILL")

    # --- the command ------------------------------------------------------------------------------

    def test_launch008_what_stands_behind_the_script_is_the_scripts(self):
        words = ["--nnodes", "3", "-h", "--tee=3", "--", "--", "-x"]
        self.run_job("--no-python", self.witness(), *words)
        self.assertEqual(self.seen_words(), words)

    def test_launch009_two_dashes_before_the_script_are_swallowed(self):
        self.run_job("--no-python", "--", self.witness(), "x")
        self.assertEqual(self.seen_words(), ["x"])
        self.run_job("--no-python", self.witness(), "--", "x")
        self.assertEqual(self.seen_words(), ["x"])

    def test_launch041_launch047_a_script_is_run_by_python_unbuffered_with_its_arguments_only(self):
        worker = self.python_script("import sys; print(sys.orig_argv[1:], sys.argv)")
        self.assertEqual(self.run_job(worker, "a", "b").out,
                         f"{['-u', str(worker), 'a', 'b']} {[str(worker), 'a', 'b']}\n")

    def test_the_interpreter_is_the_first_on_the_path(self):
        worker = self.python_script("import os; print(os.readlink('/proc/self/exe'))")
        self.assertEqual(self.run_job(worker).out.strip(), os.path.realpath(sys.executable))

    def test_launch042_a_module_is_run_by_its_name(self):
        (self.here / "pack").mkdir()
        (self.here / "pack" / "__init__.py").touch()
        (self.here / "pack" / "__main__.py").write_text("import sys; print(sys.orig_argv[1:])", encoding="utf-8")
        self.assertEqual(self.run_job("-m", "pack", "a").out, f"{['-u', '-m', 'pack', 'a']}\n")

    def test_launch043_the_interpreter_can_be_named(self):
        outcome = self.run_job("--nproc-per-node=2", "script.py", "a", env={"PYTHON_EXEC": "/bin/echo"})
        self.assertEqual(outcome.out, "-u script.py a\n" * 2)

    def test_launch044_a_program_is_found_on_the_path_and_given_to_no_shell(self):
        self.assertEqual(self.run_job("--no-python", "echo", "hi", "*", ";", "`x`").out, "hi * ; `x`\n")

    def test_launch045_a_program_that_is_not_there_is_refused(self):
        self.refused("--no-python", "nosuch", status=1, mentions="nosuch")

    def test_launch046_macros_in_arguments(self):
        words = ["${local_rank}", "$local_rank", "a${local_rank}b", "$local_rankx", "$1", "$", "$$", "a$$b"]
        self.run_job("--nproc-per-node=2", "--no-python", self.witness(), *words)
        for rank in ("0", "1"):
            self.assertEqual(self.seen_words(rank),
                             [rank, rank, f"a{rank}b", "$local_rankx", "$1", "$", "$", "a$b"])

    def test_launch048_the_older_entry_passes_the_local_rank_as_an_argument(self):
        worker = self.python_script("import sys; sys.stdout.write(' '.join(sys.argv[1:]) + '\\n')")  # as one argument
        reported = self.run_job("--nproc-per-node=2", worker, "a", program=LEGACY)
        self.assertEqual(sorted(reported.out.splitlines()), ["--local-rank=0 a", "--local-rank=1 a"])
        self.assertIn("deprecated", reported.err)
        self.assertEqual(self.run_job("--use-env", worker, "a", program=LEGACY).out, "a\n")
        self.assertEqual(self.run_job("--use_env", worker, "a", program=LEGACY).out, "a\n")
        self.run_job("--no-python", "--use-env", self.witness(), "a", program=LEGACY)
        self.assertEqual(self.seen_words(), ["a"])
        (self.seen / "0.0.env").unlink()
        (self.seen / "0.0.words").unlink()
        refusal = self.run_job("--no-python", self.witness(), program=LEGACY, status=1)
        self.assertIn("--use-env", refusal.err)
        self.assertEqual(os.listdir(self.seen), [])
        self.refused("--use-env", "x", status=2, mentions="--use-env")  # only there

    def test_under_torchruns_name_the_program_is_torchrun(self):
        link = self.folder / "torchrun"
        link.symlink_to(MUSTER)
        self.assertTrue(self.run_job("--help", program=(link,)).out.startswith("usage: "))
        self.refused(program=(link,), status=2)
        self.run_job("--nproc-per-node=2", "--no-python", self.witness(), "run", program=(link,))
        self.assertEqual(self.seen_words(1), ["run"])
        # Found on the PATH, as in a job's script.
        by_name = self.run_job("--no-python", "echo", "found", program=("torchrun",),
                               env={"PATH": f"{self.folder}:{os.environ['PATH']}"}, executable=link)
        self.assertEqual(by_name.out, "found\n")

    def test_launch149_the_interpreter_next_to_the_program_goes_before_all_others(self):
        environment = self.folder / "environment" / "bin"
        environment.mkdir(parents=True)
        (environment / "torchrun").symlink_to(MUSTER)
        self.script('echo "this one: $*"', name="environment/bin/python3")
        worker = self.python_script("")
        self.assertEqual(self.run_job(worker, program=(environment / "torchrun",)).out, f"this one: -u {worker}\n")

    def test_an_active_environment_goes_before_the_interpreter_next_to_the_program(self):
        for folder in ("usual/bin", "active/bin"):
            (self.folder / folder).mkdir(parents=True)
            self.script(f'echo "{folder}"; exit $STATUS', name=f"{folder}/python3")
        (self.folder / "active/bin/python").symlink_to("python3")
        program, worker = self.folder / "usual/bin/torchrun", self.python_script("")
        program.symlink_to(MUSTER)
        active = {"VIRTUAL_ENV": str(self.folder / "active"), "STATUS": "0"}
        self.assertEqual(self.run_job(worker, program=(program,), env=active).out, "active/bin\n")
        shown = self.run_job("--verbose", worker, program=(program,), env=active).err
        self.assertIn(f"interpreter of the workers is {self.folder}/active/bin/python\n", shown)
        report = self.run_job(worker, program=(program,), env=active | {"STATUS": "3"}, status=1).err
        self.assertIn(f"\ninterpreter: {self.folder}/active/bin/python\n", report)
        (self.folder / "usual/pyvenv.cfg").touch()  # now the program lies in an environment, too
        self.assertEqual(self.run_job(worker, program=(program,), env=active).out, "usual/bin\n")


if __name__ == "__main__":
    unittest.main()
