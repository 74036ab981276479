#!/usr/bin/env python3
"""How well the simulator predicts the times of live broadcasts and barriers.

First, `omnes tune --testbed` measures a lab: single calls, copies, turns of a
core, half of a round trip; never a collective. Then the same broadcasts and
barriers run in labs of several sizes, and in the model of that testbed. Each
point is the median over the rounds; a deviation is (simulated - live) / live.

Requires root, and an otherwise idle machine. Status: 0; 1 if the median of the
absolute deviations exceeds the limit; 2 for invalid usage; 77 if nothing can
be measured here.

Examples:
  tools/bench-model.py
  tools/bench-model.py --hosts 2,4,8 --rounds 5 --json > points.jsonl
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from arguments import list_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
RELEASE = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "release"
OMNES = RELEASE / "omnes"
BCASTS = ("combined", "binomial:store", "binomial", "chain")
BARRIERS = ("user:dissemination", "user:counter", "channel:dissemination",
            "channel:gather-broadcast", "nic:dissemination", "nic:counter")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=list_of(int), default=[2, 4, 8, 16], metavar="N,N",
                        help="lab sizes in hosts (default 2,4,8,16)")
    parser.add_argument("--sizes", type=list_of(str), default=["8", "1k", "16k", "256k", "1m"],
                        metavar="BYTES", help="message sizes (default 8,1k,16k,256k,1m)")
    parser.add_argument("--rounds", type=int, default=3, help="live rounds (default 3)")
    parser.add_argument("--budget", default="0.3s", help="time per live point (default 0.3s)")
    parser.add_argument("--testbed", type=pathlib.Path,
                        help="use this testbed instead of measuring one")
    parser.add_argument("--limit", type=float, default=0.3,
                        help="maximum median deviation (default 0.3)")
    parser.add_argument("--json", action="store_true", help="print one JSON object per point")
    return parser.parse_args()


def lines(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"bench-model: {' '.join(map(str, command))}: status {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def in_lab(hosts, *command):
    return [OMNES, "run", "-n", str(hosts), "--lab", "--no-prefix", "--", OMNES, *command]


def measure_testbed(path):
    command = in_lab(8, "tune", "--testbed", path)
    if subprocess.run(command, check=False).returncode:
        sys.exit("bench-model: cannot measure a testbed")


def key(line):
    operation = line["op"].replace("bcast_window", "bcast")
    return operation, line["algorithm"].split("@")[0], line["bytes"]


def live(hosts, args):
    """Medians in microseconds by operation, algorithm and size, over the rounds."""
    found = {}
    for _ in range(args.rounds):
        common = ["--budget", args.budget, "--format", "json"]
        bcasts = in_lab(hosts, "bench", "wbcast", "--sizes", ",".join(args.sizes),
                        "--algorithms", ",".join(BCASTS), *common)
        barriers = in_lab(hosts, "bench", "barrier", "--algorithms", ",".join(BARRIERS), *common)
        for line in lines(bcasts) + lines(barriers):
            found.setdefault(key(line), []).append(line["median_us"])
    return {point: statistics.median(times) for point, times in found.items()}


def simulated(hosts, testbed, args):
    common = ["-n", str(hosts), "--testbed", testbed, "--json"]
    bcasts = lines([OMNES, "sim", "bcast", "--sizes", ",".join(args.sizes),
                    "--algorithms", ",".join(BCASTS), *common])
    barriers = lines([OMNES, "sim", "barrier", "--algorithms", ",".join(BARRIERS), *common])
    return {key(line): line["median_us"] for line in bcasts + barriers}


def compare(args, testbed):
    points = []
    for hosts in args.hosts:
        ours, theirs = simulated(hosts, testbed, args), live(hosts, args)
        for point in sorted(ours.keys() & theirs.keys()):
            deviation = (ours[point] - theirs[point]) / theirs[point]
            operation, algorithm, size = point
            points.append({
                "n": hosts, "op": operation, "algorithm": algorithm, "bytes": size,
                "live_us": round(theirs[point], 2), "simulated_us": round(ours[point], 2),
                "deviation": round(deviation, 3),
            })
    return points


def show(points):
    print(f"{'hosts':>5}  {'operation':<9} {'algorithm':<26} {'bytes':>8} {'live':>10} "
          f"{'simulated':>10} {'deviation':>9}")
    for it in points:
        print(f"{it['n']:>5}  {it['op']:<9} {it['algorithm']:<26} {it['bytes']:>8} "
              f"{it['live_us']:>10.1f} {it['simulated_us']:>10.1f} {100 * it['deviation']:>8.0f}%")


def main():
    args = parse_arguments()
    if os.geteuid() != 0 or not OMNES.exists():
        print(f"bench-model: skipped: needs root and {OMNES}", file=sys.stderr)
        return 77
    with tempfile.TemporaryDirectory() as folder:
        testbed = args.testbed or pathlib.Path(folder) / "live.toml"
        if not args.testbed:
            measure_testbed(testbed)
        points = compare(args, testbed)
    if args.json:
        print(*map(json.dumps, points), sep="\n")
    else:
        show(points)
    for operation in ("bcast", "barrier", None):
        some = [abs(it["deviation"]) for it in points if operation in (None, it["op"])]
        if some:
            print(f"median deviation of {operation or 'all'}: "
                  f"{100 * statistics.median(some):.0f} % ({len(some)} points)", file=sys.stderr)
    worst = statistics.median(abs(it["deviation"]) for it in points)
    return int(worst > args.limit)


if __name__ == "__main__":
    sys.exit(main())
