#!/usr/bin/env python3
"""`muster sim`: what it prints, and that a seed is a run."""

import json
import os
import re
import subprocess
import unittest

MUSTER = os.environ["MUSTER_BIN"]


def sim(*options):
    return subprocess.run([MUSTER, "sim", *options], text=True, capture_output=True, timeout=120)


class SimCommand(unittest.TestCase):
    def test_prints_the_seed_and_every_drawn_option_first(self):
        first = sim("--seed", "8123").stdout.splitlines()[0]
        for option in ("seed=8123", "driver=", "nodes=", "min=", "max=", "grace=", "loss=", "faults="):
            self.assertIn(option, first)

    def test_draws_a_seed_where_none_is_given_and_says_which(self):
        seeds = {re.match(r"seed=(\d+) ", sim().stdout)[1] for _ in range(3)}
        self.assertGreater(len(seeds), 1)

    def test_the_same_seed_is_the_same_story_to_the_byte(self):
        def told(seed):
            # All but what the machine needed for it.
            return re.sub(r"[\d.]+ s of real time, \d+ MiB", "", sim("--seed", seed, "--story").stdout)
        self.assertEqual(told("8123"), told("8123"))
        self.assertNotEqual(told("8123"), told("8124"))

    def test_a_campaign_counts_its_runs_and_tells_them_as_json(self):
        done = sim("--seed", "1", "--runs", "100", "--jobs", "2", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report["runs"], 100)
        self.assertEqual(report["findings"], [])
        self.assertEqual(sum(driver["runs"] for driver in report["drivers"].values()), 100)

    def test_a_violation_is_told_with_the_command_that_repeats_it_and_fails(self):
        done = sim("--seed", "1", "--runs", "200", "--driver", "coordinator", "--plant", "rank-by-arrival")
        self.assertEqual(done.returncode, 1)
        self.assertIn("VIOLATION", done.stdout)
        repeat = re.search(r"muster (sim --seed .* --plant rank-by-arrival) --story", done.stdout)[1]
        again = sim(*repeat.split()[1:])
        self.assertEqual(again.returncode, 1)
        self.assertIn("VIOLATION", again.stdout)

    def test_a_curve_shows_the_cost_of_a_node(self):
        done = sim("--curve", "--nodes", "1000", "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        point = json.loads(done.stdout)
        self.assertEqual(point["nodes"], 1000)
        self.assertGreater(point["real_us_per_node"], 0)
        self.assertGreater(point["messages"], 0)

    def test_what_cannot_be_meant_is_refused_by_name(self):
        for options, said in ((["--driver", "etcd"], "coordinator, document, mixed"),
                              (["--nodes", "1"], "--nodes"),
                              (["--runs", "0"], "--runs"),
                              (["--seed", "x"], "--seed"),
                              (["--plant", "nothing"], "no such bug")):
            with self.subTest(options=options):
                done = sim(*options)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main()
