"""Plays a campaign and prints the verdict. Status 0: clean; 1: something was found; 2: it cannot be played here."""

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time

from torture import etcd_fleet, network
from torture.campaign import Campaign, Failure


def parse():
    parser = argparse.ArgumentParser(prog="torture", description="Fault campaigns on muster's processes.")
    parser.add_argument("--muster", required=True, help="the program")
    parser.add_argument("--minutes", type=float, default=30, help="how long; the last strike is played to its end")
    parser.add_argument("--seed", type=lambda text: int(text, 0), help="default: drawn, and printed")
    parser.add_argument("--episode", type=int, default=1, help="begin with this one")
    parser.add_argument("--store", choices=("muster", "c10d", "file", "job", "etcd"),
                        help="only this kind (job: launchers and workers); default: drawn")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().getrandbits(32)
    return options


def say(text):
    print(text, flush=True)


def play(options):
    folder = tempfile.mkdtemp(prefix="muster-torture-")
    campaign = Campaign(os.path.abspath(options.muster), options.seed, folder, say)
    keep = False
    began = time.monotonic()
    try:
        campaign.build()
        moved = campaign.site.clocks.can_be_moved
        say(f"etcd: {etcd_fleet.missing() or 'drawn, too'}")
        say(f"clocks: {'moved' if moved else 'not moved: no faketime, or the program does not run with it'}")
        campaign.run(began + 60 * options.minutes, options.episode, options.store)
    except Failure as failure:
        keep = True
        say(f"\nVIOLATION, seed {options.seed}, episode {campaign.counts['episodes'] + options.episode}:\n{failure}")
        say(f"\nAll events and output of the processes: {folder}")
    except Exception:
        keep = True
        say(f"\nThe campaign itself has failed, seed {options.seed}. Output of the processes: {folder}")
        raise
    finally:
        campaign.remove()
        if not keep:
            shutil.rmtree(folder)
    say(f"\nfaults: {', '.join(f'{name} {count}' for name, count in campaign.faults.items())}")
    say(f"{', '.join(f'{what} {count}' for what, count in campaign.counts.items())}; "
        f"slowest recovery {campaign.slowest_s:.1f} s; {(time.monotonic() - began) / 60:.1f} minutes")
    slowest = campaign.slowest_notice_s
    say(f"losses, by what each other member received: {', '.join(f'{what} {n}' for what, n in campaign.losses.items())}; "
        f"slowest {slowest['killed']:.2f} s after a kill, {slowest['silent']:.2f} s after silence began; "
        f"the latest thread woke up {campaign.latest_s:.2f} s late")
    say(f"torture: {'a violation' if keep else 'clean'}, seed {options.seed}")
    return 1 if keep else 0


def main():
    options = parse()
    say(f"torture: seed={options.seed} minutes={options.minutes:g} episode={options.episode} "
        f"store={options.store or 'drawn'} muster={options.muster}")
    missing = network.missing() or (etcd_fleet.missing() if options.store == "etcd" else "")
    if missing:
        print(f"torture: cannot be played here: {missing}", file=sys.stderr)
        return 2
    network.sweep()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that no process stays behind
    try:
        return play(options)
    except KeyboardInterrupt:
        print("torture: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
