#!/usr/bin/env python3
"""A short fault campaign, and some that must find a violation. `make torture` plays the long ones."""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

from needs import skip_or_fail

MUSTER = os.environ["MUSTER_BIN"]
LAB = os.path.join(os.environ["MUSTER_SOURCE_DIR"], "lab")
SEED = os.environ.get("MUSTER_SEED", "673")  # all kinds of faults, spares, and an end
MINUTES = "0.4"  # the last strike is played to its end, and healed

# The program, with an edited output of its nodes, or of its launchers and workers.
FALSE_REPORTS = """#!/bin/bash
if [[ $1 == {command} ]]; then
  exec {muster} "$@" > >(exec sed -u '{edit}')
fi
exec {muster} "$@"
"""
ALL_HAVE_RANK_0 = 's/"rank": *[0-9]*/"rank":0/'
LOSSES_ARE_NOT_REPORTED = '/"member_lost"/d'  # but all join the next round
A_NODE_IS_KILLED_SEED = "74"  # in the first strike, and nothing else happens then
ETCD_SEED = os.environ.get("MUSTER_SEED", "1")  # members die, stand still and are cut off
JOB_SEED = os.environ.get("MUSTER_SEED", "1")


class Torture(unittest.TestCase):
    def campaign(self, muster, *options):
        done = subprocess.run([sys.executable, "-m", "torture", "--muster", muster, *options], cwd=LAB, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=280, check=False)
        skip_or_fail(done.stdout.splitlines()[-1] if done.returncode == 2 else "", "MUSTER_REQUIRE_NETWORKS")
        return done

    def test_a_short_campaign_is_clean(self):
        done = self.campaign(MUSTER, "--minutes", MINUTES, "--seed", SEED, "--store", "muster")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn(f"torture: clean, seed {SEED}\n", done.stdout)
        self.assertRegex(done.stdout, r"\nepisodes \d+, strikes [1-9]")
        print(done.stdout)

    def test_a_short_campaign_on_launchers_is_clean(self):
        done = self.campaign(MUSTER, "--minutes", "0.2", "--seed", JOB_SEED, "--store", "job")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"\nepisodes \d+, strikes [1-9]\d*, rounds [1-9]\d*, workers [1-9]")
        print(done.stdout)

    def test_a_short_campaign_in_etcd_is_clean(self):
        skip_or_fail("" if shutil.which("etcd") else "the program 'etcd' is missing", "MUSTER_REQUIRE_ETCD")
        done = self.campaign(MUSTER, "--minutes", "0.3", "--seed", ETCD_SEED, "--store", "etcd")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"\nepisodes \d+, strikes [1-9]")
        print(done.stdout)

    def test_workers_that_share_a_rank_are_found(self):
        found = self.output_with_false_reports(ALL_HAVE_RANK_0, JOB_SEED, "job")
        self.assertIn("episode 1:\ntwo workers of one round have one rank\n", found)

    def output_with_false_reports(self, edit, seed, store="muster"):
        """The output of a campaign that finds the edited reports."""
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "muster")
            with open(program, "w", encoding="utf-8") as script:
                command = "run" if store == "job" else "rendezvous"
                script.write(FALSE_REPORTS.format(command=command, muster=MUSTER, edit=edit))
            os.chmod(program, stat.S_IRWXU)
            done = self.campaign(program, "--minutes", MINUTES, "--seed", seed, "--store", store)
        self.assertEqual(done.returncode, 1, done.stdout)
        kept = re.search(r"output of the processes: (\S+)", done.stdout).group(1)
        self.assertTrue(os.path.exists(os.path.join(kept, "episode-1", "events.jsonl")), "it is kept, to be looked at")
        shutil.rmtree(kept)
        return done.stdout

    def test_a_program_with_false_reports_is_found(self):
        found = self.output_with_false_reports(ALL_HAVE_RANK_0, SEED)
        self.assertIn(f"VIOLATION, seed {SEED}, episode 1:\ntwo nodes of one round have one rank\n", found)

    def test_a_program_that_does_not_report_a_loss_is_found(self):
        found = self.output_with_false_reports(LOSSES_ARE_NOT_REPORTED, A_NODE_IS_KILLED_SEED)
        self.assertRegex(found, r"episode 1:\na member was not notified of a loss within .* s\n.* killed .*\n.* joining ")

    def test_members_are_notified_of_a_loss(self):
        done = self.campaign(MUSTER, "--minutes", "0.1", "--seed", A_NODE_IS_KILLED_SEED, "--store", "muster")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"\nlosses, by what each other member received: notified [1-9]")

    def test_a_campaign_that_is_interrupted_leaves_nothing_behind(self):
        self.campaign(MUSTER, "--minutes", "0")  # whether there can be one
        with tempfile.TemporaryDirectory() as folder:
            campaign = subprocess.Popen([sys.executable, "-m", "torture", "--muster", MUSTER, "--seed", SEED],
                                        cwd=LAB, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env={**os.environ, "TMPDIR": folder})
            printed = []
            for line in campaign.stdout:
                printed.append(line)
                if "strike 1" in line:
                    campaign.send_signal(signal.SIGTERM)
            campaign.stdout.close()
            self.assertEqual(campaign.wait(), 130, printed)
            self.assertEqual(os.listdir(folder), [])
            self.assertNotIn(folder, self.output("mount"))
        self.assertNotIn(f"muster-torture-{campaign.pid}-", self.output("ip", "netns", "list"))
        self.assertNotIn(folder, self.output("ps", "-eo", "args"))  # every process has a file there

    @staticmethod
    def output(*command):
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    unittest.main()
