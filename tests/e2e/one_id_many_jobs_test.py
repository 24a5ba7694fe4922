"""Jobs of one id, one after the other on one server that soon forgets a run: each is separate.

    one_id_many_jobs_test.py [--jobs N] [--seed S]     default: 12 jobs; `--jobs 200` is the whole measurement

Jobs have different sizes. Some succeed, in some a worker fails, and some are killed. All ranks and exit statuses of
workers must be right, and no key of an older job may be read: the server has none, and keys that are planted under the
names of older jobs change nothing.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import unittest

from fleet_of_agents import MUSTER, PATIENCE, QUICK, Fleet, until

JOBS = 12
SEED = 17
WORKER = 'echo "$RANK $WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $LOCAL_RANK" > "$0/rank.$RANK.$$"; '
ENDINGS = {"succeeds": "exit 0", "fails": '[ "$RANK" != 0 ] || exit 3; sleep 60', "is killed": "sleep 60"}
# Keys that agents of muster and PyTorch read in a round, with misleading values.
POISON = {
    "torchelastic/role_info/0": '{"role": "default", "rank": 0, "local_world_size": 7}',
    "torchelastic/role_info/1": '{"role": "default", "rank": 1, "local_world_size": 7}',
    "torchelastic/assigned_ranks/0": "[7, 77, 7, 77]",
    "torchelastic/assigned_ranks/1": "[14, 77, 14, 77]",
    "torchelastic/agent/terminal_state/num_members": "1",
    "torchelastic/agent/terminal_state/last_member": "1",
    "muster/first_failure": '{"message": "of an older job"}',
    "muster/ready": "1",
}


class OneId(Fleet):
    CONF = {**QUICK, "last_call_timeout": "0.1", "is_host": "false"}

    def runs(self):
        done = subprocess.run([MUSTER, "status", "--server", self.endpoint, "--json"], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["runs"]

    def keys(self):
        return self.store(self.endpoint, "keys")["keys"]

    def plant(self, prefix):
        for key, value in POISON.items():
            self.store(self.endpoint, "set", f"{prefix}/{key}", value)

    def play(self, rng, ending):
        """Plays one job. Returns the prefixes of its keys, and what its workers saw."""
        nodes = [rng.randint(1, 3) for _ in range(rng.randint(1, 4))]
        command = WORKER + ENDINGS[ending]
        seen = self.folder_for(f"job-{len(self.agents)}")
        agents = [self.agent("--nproc-per-node", str(workers), "--max-restarts", "0", nodes=str(len(nodes)),
                             worker=("/bin/sh", "-c", command, seen)) for workers in nodes]
        prefix = set()

        def note_prefix():
            for run in self.runs():
                prefix.add(f"muster.run/{run['generation']}")
            return prefix
        if ending == "is killed":
            until(lambda: len(self.ranks(seen)) == sum(nodes), lambda: f"{nodes}: all workers run: {self.ranks(seen)}")
            note_prefix()
            for agent in agents:
                agent.process.kill()
        else:
            until(lambda: note_prefix() or all(agent.ended for agent in agents), "the run is there")
        statuses = [agent.end() for agent in agents]
        expected = {"succeeds": 0, "fails": 1, "is killed": -9}[ending]
        printed = "\n".join(agent.printed() for agent in agents)
        self.assertEqual(set(statuses), {expected}, f"{nodes} {ending}\n{printed}")
        self.assertNotIn("of an older job", printed)
        self.assert_right(nodes, self.ranks(seen), ending)
        return prefix

    def folder_for(self, name):
        path = os.path.join(self.folder, name)
        os.makedirs(path)
        return path

    @staticmethod
    def ranks(folder):
        found = []
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                line = file.read().split()
            if len(line) == 5:
                found.append(tuple(map(int, line)))
        return sorted(found)

    def assert_right(self, nodes, seen, ending):
        world = sum(nodes)
        if ending == "succeeds":
            self.assertEqual(len(seen), world, seen)
        self.assertEqual([rank for rank, *_ in seen], sorted({rank for rank, *_ in seen}), "no rank twice")
        for rank, size, group_rank, groups, local in seen:
            self.assertEqual((size, groups), (world, len(nodes)), seen)
            self.assertTrue(0 <= rank < world and 0 <= group_rank < groups, seen)
            self.assertEqual(len({r for r, _, g, _, l in seen if (g, l) == (group_rank, local)}), 1, seen)

    def test_no_job_meets_another_of_its_name(self):
        rng = random.Random(SEED)
        self.serve(options=("--run-kept-seconds", "0.2"))
        older = {"torch.rendezvous.job.0"}
        generations = 0
        for number in range(JOBS):
            for prefix in older:
                self.plant(prefix if prefix.startswith("torch") else f"{prefix}/0")
            names = self.play(rng, rng.choice(list(ENDINGS)))
            until(lambda: not self.runs(), "the run is forgotten")
            self.assertFalse(names & older, f"job {number} had the keys of an older one")
            generations += len(names)
            left = [key for key in self.keys() if any(key.startswith(name + "/") for name in names)]
            self.assertEqual(left, [], "its keys have gone with it")
            older = set(list(older - {"torch.rendezvous.job.0"})[-3:]) | names | {"torch.rendezvous.job.0"}
        self.assertGreater(generations, JOBS // 3, "some runs were seen while they lasted")
        print(f"{JOBS} jobs of one id, {generations} generations seen: no rank wrong, no key of an older job read")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--seed", type=int, default=SEED)
    options, rest = parser.parse_known_args()
    JOBS, SEED = options.jobs, options.seed
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)
