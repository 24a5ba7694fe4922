#!/usr/bin/env python3
"""A short fault campaign on nodes that meet in etcd. `make torture` plays the long ones."""

import os
import shutil
import unittest

from fault_campaign import MUSTER, FaultCampaign
from needs import skip_or_fail

SEED = os.environ.get("MUSTER_SEED", "1")  # members die, stand still and are cut off


class TortureInEtcd(FaultCampaign, unittest.TestCase):
    def test_a_short_campaign_is_clean(self):
        skip_or_fail("" if shutil.which("etcd") else "the program 'etcd' is missing", "MUSTER_REQUIRE_ETCD")
        done = self.campaign(MUSTER, "--minutes", "0.3", "--seed", SEED, "--store", "etcd")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout, r"\nepisodes \d+, strikes [1-9]")
        print(done.stdout)


if __name__ == "__main__":
    unittest.main()
