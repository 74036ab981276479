#!/usr/bin/env python3
"""How much strangers on a job's multicast group slow its broadcasts down.

In a lab of hosts with links of a given rate, broadcasts alternately run alone
and while a stranger on a host of its own floods the group with equal parts of
random bytes, packets of an earlier job, and packets of the same job with a
wrong tag. The data of every broadcast are checked. The loss is

  lost   1 - throughput with strangers / throughput without, within a round

The stranger's packets share the links with the broadcast, so part of the loss
is their own traffic; their share of a link is reported.

examples:
  tools/bench-strangers.py
  tools/bench-strangers.py --n 8 --rates 10000,100000 --rounds 5

Requires root. Status: 0; 1 if a job failed, data arrived wrong or the median
loss exceeds --limit; 2 for invalid usage; 77 if nothing can be measured here.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from arguments import list_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
RELEASE = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "release"
OMNES, STRANGER = RELEASE / "omnes", RELEASE / "examples" / "strangers"
LAB = f"strangers{os.getpid()}"
SUBNET = "10.77.0"  # of `omnes lab`
GROUP = "239.192.7.7:20777"
# Size on the link of a stranger's packet of 64 bytes, with UDP, IP and Ethernet headers.
WIRE_BYTES = 64 + 8 + 20 + 14
STOP_S = 5
JOB_S = 120


def say(text):
    print(f"bench-strangers: {text}", file=sys.stderr, flush=True)


def omnes(*words):
    subprocess.run([OMNES, "lab", *words], check=True, stdout=subprocess.DEVNULL)


def inside(host, *command):
    return [OMNES, "lab", "exec", "--name", LAB, str(host), "--", *map(str, command)]


class Bench:
    """Jobs in one lab, whose last host is the stranger's."""

    def __init__(self, args, folder):
        self.args = args
        self.earlier = pathlib.Path(folder, "earlier.packets")
        self.jobs = 0

    def stranger(self, rate):
        host = self.args.n
        return subprocess.Popen(inside(host, STRANGER, GROUP, f"{SUBNET}.{host + 1}", rate,
                                       self.earlier), stdout=subprocess.PIPE, text=True)

    def job(self):
        """The point of a job of broadcasts, as printed by rank 0."""
        self.jobs += 1
        place = f"OMNES_RENDEZVOUS={SUBNET}.1:{20000 + self.jobs}"
        ranks = []
        for rank in range(self.args.n):
            command = ["env", place, f"OMNES_RANK={rank}", f"OMNES_SIZE={self.args.n}",
                       f"OMNES_MULTICAST_GROUP={GROUP}", "OMNES_MULTICAST=on", OMNES, "bench",
                       "bcast", "--sizes", self.args.size, "--scheme", "combined", "--budget",
                       f"{self.args.budget}s", "--format", "json"]
            ranks.append(subprocess.Popen(inside(rank, *command), text=True,
                                          stdout=subprocess.PIPE if rank == 0 else None,
                                          stderr=subprocess.DEVNULL))
        output = ranks[0].communicate(timeout=JOB_S)[0]
        failed = [rank for rank, child in enumerate(ranks) if child.wait(JOB_S) != 0]
        points = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        if failed or len(points) != 1 or points[0]["errors"]:
            raise RuntimeError(f"ranks {failed} failed; points: {points}")
        return points[0]

    def flooded(self, rate):
        """As job(), while a stranger floods; also the packets per second that it sent."""
        stranger = self.stranger(rate)
        try:
            point = self.job()
        finally:
            stranger.terminate()
            told = stranger.communicate(timeout=STOP_S)[0].split()
        if not told:
            raise RuntimeError("the stranger sent for less than a second: choose a longer --budget")
        sent, seconds = told[-2:]
        return point, int(sent) / float(seconds)

    def remember(self):
        """Makes the stranger record packets of a job that is over when the others begin."""
        stranger = self.stranger(0)
        self.job()
        stranger.wait(STOP_S)

    def round(self, rate):
        alone = self.job()
        disturbed, sent = self.flooded(rate)
        say(f"{rate} a second: {alone['median_us']:.0f} us alone, {disturbed['median_us']:.0f} us "
            f"with {sent:.0f} strangers' packets a second")
        return {"rate": rate, "sent_per_s": sent, "alone_us": alone["median_us"],
                "disturbed_us": disturbed["median_us"],
                "lost": 1 - alone["median_us"] / disturbed["median_us"],
                "retransmits": [alone["retransmits"], disturbed["retransmits"]]}


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench-strangers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--n", type=int, default=4, help="ranks, one per host (default: %(default)s)")
    add("--size", default="4m", help="bytes of a broadcast (default: %(default)s)")
    add("--rates", type=list_of(int), default="100000",
        help="strangers' packets per second (default: %(default)s)")
    add("--link", type=int, default=1000, help="Mbit/s of a link (default: %(default)s)")
    add("--rounds", type=int, default=5, help="rounds (default: %(default)s)")
    add("--budget", type=float, default=3, help="seconds per point (default: %(default)s)")
    add("--limit", type=float, default=0.1, help="maximum share lost (default: %(default)s)")
    add("--json", action="store_true", help="print one JSON object per round")
    return parser.parse_args()


def main():
    args = parse_arguments()
    if os.geteuid() != 0:
        say("needs root")
        return 77
    missing = [path for path in (OMNES, STRANGER) if not path.exists()]
    if missing:
        say(f"missing: {missing[0]}; build it: cargo build --release -p omnes-cli && "
            "cargo build --release -p omnes-net --example strangers")
        return 77
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rounds = []
    with tempfile.TemporaryDirectory(prefix="omnes-strangers.") as folder:
        omnes("up", str(args.n + 1), "--name", LAB, "--rate", f"{args.link}mbit")
        try:
            bench = Bench(args, folder)
            bench.remember()
            for turn in range(args.rounds):
                say(f"round {turn + 1} of {args.rounds}")
                rounds += [bench.round(rate) for rate in args.rates]
        except RuntimeError as error:
            say(error)
            return 1
        finally:
            omnes("down", "--name", LAB)
    return report(args, rounds)


def report(args, rounds):
    worst = 0
    for rate in args.rates:
        of_rate = [one for one in rounds if one["rate"] == rate]
        if args.json:
            print("\n".join(map(json.dumps, of_rate)))
        lost = sorted(one["lost"] for one in of_rate)
        sent = statistics.median(one["sent_per_s"] for one in of_rate)
        share = sent * WIRE_BYTES * 8 / (args.link * 1e6)
        median = statistics.median(lost)
        worst = max(worst, median)
        if not args.json:
            print(f"{args.n} hosts, {args.size}, {sent:.0f} strangers' packets a second "
                  f"({share:.1%} of a link): lost {median:.1%} ({lost[0]:.1%}..{lost[-1]:.1%}), "
                  f"retransmits {statistics.median(one['retransmits'][0] for one in of_rate):.2f} "
                  f"and {statistics.median(one['retransmits'][1] for one in of_rate):.2f}")
    return 1 if worst > args.limit else 0


if __name__ == "__main__":
    start = time.monotonic()
    status = main()
    say(f"{time.monotonic() - start:.0f} s")
    sys.exit(status)
