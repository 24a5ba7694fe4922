#!/usr/bin/env python3
"""`muster-lab sim`: its output, and that a seed repeats a run."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

from processes import LAB, MUSTER, Processes

ROOT = pathlib.Path(os.environ["MUSTER_SOURCE_DIR"])
LAST_SEED = str(2**64 - 1)


def sim(*options):
    return subprocess.run([LAB, "sim", *options], text=True, capture_output=True, timeout=120)


class SimCommand(Processes, unittest.TestCase):
    def start_sim(self, *options, **popen):
        return self.start("sim", *options, program=LAB, **popen)

    def test_it_is_no_command_of_muster_any_more_and_the_new_one_is_named(self):
        for command in ("sim", "bench"):
            done = subprocess.run([MUSTER, command, "--help"], text=True, capture_output=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertEqual(done.stderr, f"muster: muster {command} is now muster-lab {command}\n")

    def test_prints_the_seed_and_every_drawn_option_first(self):
        first = sim("--seed", "57").stdout.splitlines()[0]
        for option in ("seed=57", "driver=", "nodes=", "min=", "max=", "grace=", "loss=", "faults="):
            self.assertIn(option, first)

    def test_draws_a_seed_where_none_is_given_and_prints_it(self):
        seeds = {re.match(r"seed=(\d+) ", sim().stdout)[1] for _ in range(3)}
        self.assertGreater(len(seeds), 1)

    def test_the_same_seed_is_the_same_story_to_the_byte(self):
        def reported(seed):
            return sim("--seed", seed, "--story").stdout
        self.assertEqual(reported("57"), reported("57"))
        self.assertNotEqual(reported("57"), reported("58"))

    def test_a_campaign_prints_the_same_again_whichever_thread_was_first(self):
        def reported(jobs, *options):
            return sim("--seed", "1", "--runs", "200", "--jobs", jobs, *options).stdout.replace(f"{jobs} at a time", "")
        self.assertEqual(reported("1"), reported("3"))
        # Here all runs are equally slow to heal, and one of them is named.
        calm = reported("1", "--no-faults")
        for _ in range(3):
            self.assertEqual(reported("3", "--no-faults"), calm)

    def test_what_the_machine_needed_is_printed_separately(self):
        # At the end: a sanitizer may have printed something before.
        self.assertRegex(sim("--seed", "1").stderr, r"(^|\n)[\d.]+ s of real time, \d+ MiB\n$")
        self.assertRegex(sim("--seed", "1", "--runs", "2").stderr, r"(^|\n)2 runs in [\d.]+ s\n$")

    def test_a_hash_is_written_alike_everywhere(self):
        reported = re.search(r"hash ([0-9a-f]{16})$", sim("--seed", "57").stdout, re.MULTILINE)[1]
        self.assertEqual(json.loads(sim("--seed", "57", "--json").stdout)["hash"], reported)

    def test_runs_played_twice_are_counted(self):
        options = ("--seed", "1", "--runs", "20", "--twice")
        self.assertIn("\n20 of 20 runs gave equal hashes\n", sim(*options).stdout)
        self.assertEqual(json.loads(sim(*options, "--json").stdout)["equal_hashes"], 20)
        self.assertNotIn("equal hashes", sim(*options[:-1]).stdout)

    def test_a_campaign_counts_its_runs_and_prints_them_as_json(self):
        done = sim("--seed", "1", "--runs", "100", "--jobs", "2", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report["runs"], 100)
        self.assertEqual(report["findings"], [])
        self.assertEqual(sum(driver["runs"] for driver in report["drivers"].values()), 100)

    def test_a_violation_is_printed_with_the_command_that_repeats_it_and_fails(self):
        done = sim("--seed", "1", "--runs", "200", "--driver", "coordinator", "--plant", "rank-by-arrival")
        self.assertEqual(done.returncode, 1)
        self.assertIn("VIOLATION", done.stdout)
        repeat = re.search(r"muster-lab (sim --seed .* --plant rank-by-arrival) --story", done.stdout)[1]
        again = sim(*repeat.split()[1:])
        self.assertEqual(again.returncode, 1)
        self.assertIn("VIOLATION", again.stdout)

    def test_a_finding_carries_its_replay_as_json_too(self):
        bug = ("--driver", "coordinator", "--plant", "rank-by-arrival", "--json")
        finding = json.loads(sim("--seed", "1", "--runs", "200", *bug).stdout)["findings"][0]
        for reported in (finding, json.loads(sim("--seed", str(finding["seed"]), *bug).stdout)):
            self.assertRegex(reported["replay"], rf"^muster-lab sim --seed {finding['seed']} .*--plant rank-by-arrival --story$")
            again = sim(*reported["replay"].split()[2:])
            self.assertEqual(again.returncode, 1)
            self.assertIn("VIOLATION", again.stdout)

    def test_a_hunt_prints_its_seed_first_and_how_to_repeat_each_bug(self):
        done = sim("--seed", "7", "--runs", "1", "--hunt")
        first, *rest = done.stdout.splitlines()
        self.assertEqual(first, "seed 7: for each bug up to 1 runs")
        self.assertTrue(any("NOT FOUND in 1 runs" in line for line in rest), done.stdout)
        found = next(i for i, line in enumerate(rest) if "found with seed 7 (run 1): " in line)
        again = sim(*rest[found + 1].split()[2:])
        self.assertEqual(again.returncode, 1)
        self.assertIn(rest[found].split("(run 1): ")[1], again.stdout)

    def test_a_drawn_hunt_prints_its_seed(self):
        hunt = self.start_sim("--hunt")
        self.assertRegex(hunt.stdout.readline(), r"^seed \d+: for each bug up to 1000 runs")

    def test_a_curve_shows_the_cost_of_a_node(self):
        done = sim("--curve", "--nodes", "1000", "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        point = json.loads(done.stdout)
        self.assertEqual(point["nodes"], 1000)
        self.assertGreater(point["real_us_per_node"], 0)
        self.assertGreater(point["messages"], 0)

    def test_a_curve_ends_at_the_requested_nodes(self):
        def sizes(nodes):
            done = sim("--seed", "1", "--curve", "--nodes", nodes, "--json")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return [json.loads(line)["nodes"] for line in done.stdout.splitlines()]
        self.assertEqual(sizes("90"), [90])
        self.assertEqual(sizes("1100"), [1000, 1100])

    def test_side_by_side_all_sizes_have_as_many_nodes(self):
        done = sim("--seed", "1", "--curve", "--side-by-side", "--nodes", "2000", "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        points = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([(point["nodes"], point["worlds"]) for point in points], [(1000, 2), (2000, 1)])
        alone = [json.loads(sim("--seed", seed, "--nodes", "1000", "--json").stdout) for seed in ("1", "2")]
        self.assertEqual(points[0]["messages"], sum(world["messages"] for world in alone))

    def test_side_by_side_is_for_curves(self):
        done = sim("--side-by-side")
        self.assertEqual((done.returncode, done.stderr), (2, "muster-lab: --side-by-side is a way to play a --curve\n"))
        done = sim("--curve", "--side-by-side", "--driver", "launcher")
        self.assertEqual((done.returncode, done.stderr),
                         (2, "muster-lab: --side-by-side: launchers do not take turns to the end\n"))

    def test_a_curve_prints_every_plan_first_and_each_row_as_it_comes(self):
        # Each write of the program is a separate message here.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                self.start_sim("--seed", "5", "--curve", "--nodes", "1100", stdout=theirs)
            ours.settimeout(120)
            head, *rows = iter(lambda: ours.recv(65536).decode(), "")
        *plans, columns = head.splitlines()
        self.assertEqual([re.match(r"seed=5 driver=\w+ nodes=(\d+) .* faults=", plan)[1] for plan in plans],
                         ["1000", "1100"])
        self.assertRegex(columns, "^ +nodes +virtual s ")
        self.assertEqual([row.split()[0] for row in rows], ["1000", "1100"])

    def test_probes_that_were_never_hit_are_named_also_of_one_run(self):
        done = sim("--seed", "1", "--require-probes")
        self.assertEqual(done.returncode, 1)
        never = re.findall(r"^ +0 times  (.+)$", done.stdout, re.MULTILINE)
        self.assertGreater(len(never), 1)
        self.assertRegex(done.stderr, rf"muster-lab: {len(never)} of \d+ probes were never hit:\n")
        self.assertEqual(re.findall(r"^  (.+)$", done.stderr, re.MULTILINE), never)

    def test_a_campaign_that_dies_names_the_run_it_was_in(self):
        for deadly in (signal.SIGABRT, signal.SIGSEGV):
            with self.subTest(signal=deadly):
                campaign = self.start_sim("--seed", "1000", "--runs", "1000000", "--jobs", "2", "--no-faults")
                self.assertIn("seeds 1000 to", campaign.stdout.readline())
                campaign.send_signal(deadly)
                _, reported = campaign.communicate(timeout=120)
                self.assertNotEqual(campaign.returncode, 0)
                replay = re.search(r"^  muster-lab (sim --seed (\d+) --no-faults) --story$", reported, re.MULTILINE)
                self.assertIsNotNone(replay, reported)
                self.assertGreaterEqual(int(replay[2]), 1000)
                self.assertEqual(sim(*replay[1].split()[1:]).returncode, 0)

    def test_one_run_that_dies_names_its_seed_also_where_it_was_drawn(self):
        run = self.start_sim("--nodes", "50000")
        seed = re.match(r"seed=(\d+) ", run.stdout.readline())[1]
        run.send_signal(signal.SIGABRT)
        _, reported = run.communicate(timeout=120)
        self.assertIn(f"muster-lab sim --seed {seed} --nodes 50000 --story\n", reported)

    def test_invalid_input_is_refused_by_name(self):
        for options, printed in ((["--driver", "zookeeper"], "coordinator, document, mixed"),
                              (["--nodes", "1"], "--nodes"),
                              (["--runs", "0"], "--runs"),
                              (["--seed", "x"], "--seed"),
                              (["--seed", "-1"], "--seed: '-1' is not a whole number"),
                              (["--seed", "18446744073709551616"], "--seed: '18446744073709551616' is not"),
                              (["--seed", LAST_SEED, "--runs", "2"], f"beyond the last seed, {LAST_SEED}"),
                              (["--driver", ""], "--driver: '' is none of"),
                              (["--plant", ""], "--plant: ''"),
                              (["--plant", "nothing"], "none of fencing-ignored, ")):
            with self.subTest(options=options):
                done = sim(*options)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(printed, done.stderr)

    def test_the_last_seed_is_a_seed(self):
        self.assertTrue(sim("--seed", LAST_SEED).stdout.startswith(f"seed={LAST_SEED} "))

    def test_what_would_be_ignored_is_refused_with_what_excludes_it(self):
        both = {
            "--story": ("--json", "--runs=2", "--twice", "--require-probes"),
            "--curve": ("--runs=2", "--twice", "--story", "--jobs=2", "--require-probes", "--hunt"),
            "--hunt": ("--driver=mixed", "--json", "--plant=one-too-many", "--story", "--require-probes"),
        }
        for one, others in both.items():
            for other in others:
                with self.subTest(one=one, other=other):
                    done = sim(one, other)
                    self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                    name = other.split("=")[0]
                    self.assertRegex(done.stderr, f"^muster-lab: ({one} and {name}|{name} and {one}) exclude each other\n$")


class SimScript(unittest.TestCase):
    """scripts/sim, with a program in the simulator's place that prints its arguments."""

    def calls(self, **variables):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "scripts").mkdir()
            for name in ("sim", "common.sh"):
                shutil.copy(ROOT / "scripts" / name, root / "scripts")
            for program, text in (("build/sim/muster-lab", 'echo "CALL $*"'), ("bin/cmake", "exit 0")):
                (root / program).parent.mkdir(parents=True)
                (root / program).write_text(f"#!/bin/sh\n{text}\n", encoding="ascii")
                (root / program).chmod(0o755)
            environment = {**os.environ, "PATH": f"{root / 'bin'}:{os.environ['PATH']}", **variables}
            done = subprocess.run([root / "scripts" / "sim"], env=environment, text=True, capture_output=True,
                                  timeout=120, check=True)
        return done.stdout, re.findall(r"^CALL sim (.*)$", done.stdout, re.MULTILINE)

    def test_a_long_run_demands_every_probe_and_the_whole_curve(self):
        _, calls = self.calls(SIM_RUNS="200000")
        self.assertIn("--seed 1 --curve --driver coordinator", calls)
        self.assertIn("--seed 1 --curve --side-by-side --driver coordinator", calls)
        self.assertRegex(calls[-3], r"^--seed 1 --runs 200000 .*--require-probes$")
        self.assertRegex(calls[-2], r"^--seed 1 --runs 40000 .*--driver etcd --require-probes$")
        self.assertRegex(calls[-1], r"^--seed 1 --runs 40000 .*--driver launcher --require-probes$")

    def test_a_short_one_does_not_and_reports_it(self):
        reported, calls = self.calls(SIM_RUNS="199999", SIM_SEED="3")
        self.assertIn("sim: 199999 runs are fewer than 200,000: ", reported)
        self.assertIn("--seed 3 --curve --driver coordinator --nodes 10000", calls)
        self.assertRegex(calls[-3], r"^--seed 3 --runs 199999 ")
        self.assertRegex(calls[-2], r"^--seed 3 --runs 39999 .*--driver etcd$")
        self.assertRegex(calls[-1], r"^--seed 3 --runs 39999 .*--driver launcher$")
        self.assertNotIn("--require-probes", reported)


if __name__ == "__main__":
    unittest.main()
