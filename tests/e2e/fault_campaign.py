"""Runs a short fault campaign (lab/torture) on the program under test."""

import os
import subprocess
import sys

from needs import skip_or_fail

MUSTER = os.environ["MUSTER_BIN"]
LAB = os.path.join(os.environ["MUSTER_SOURCE_DIR"], "lab")
# AddressSanitizer keeps freed memory, up to 256 MB (2 MB a second for a node that cannot reach etcd), and the call stack
# of every allocation. The campaign would report both as leaks. With these options it keeps enough to find an early use
# of freed memory. It also does not have to be loaded first: libfaketime, which changes the clocks, has to be.
SANITIZER = ("quarantine_size_mb=1:thread_local_quarantine_size_kb=64:malloc_context_size=2:"
             "verify_asan_link_order=0")


class FaultCampaign:
    """A mixin for a TestCase."""

    def campaign(self, muster, *options):
        given = os.environ.get("ASAN_OPTIONS")
        done = subprocess.run([sys.executable, "-m", "torture", "--muster", muster, *options], cwd=LAB, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=280, check=False,
                              env={**os.environ, "ASAN_OPTIONS": f"{given}:{SANITIZER}" if given else SANITIZER})
        skip_or_fail(done.stdout.splitlines()[-1] if done.returncode == 2 else "", "MUSTER_REQUIRE_NETWORKS")
        return done
