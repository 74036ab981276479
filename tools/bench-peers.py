#!/usr/bin/env python3
"""Measure Omnes beside MPI libraries in one lab, in alternating rounds.

Every library runs one rank per namespace host, timed by the same loop:
collbench of the peers for broadcast and barrier, benches/pt2pt.c for messages
between two hosts. Numbers of one machine are compared as ratios within a
round; the tables give the median over the rounds and the spread.

All ranks of a job, of every library, have the same memory layout unless --aslr
is given: otherwise hosts that share a core, as they do not in a cluster, would
evict each other's branch predictions.

A point during which other processes used more than a tenth of the machine is
measured again and, if that does not help, marked with *. Libraries:

  omnes            as it comes
  omnes:ALGORITHM  with OMNES_BCAST=ALGORITHM; broadcasts only
  floor            no library: ranks that share memory send the datagrams of a barrier or a
                   small broadcast, which nobody reads; of a large one the root sends trains of
                   full packets, which the others read into place (benches/collbench_floor.c)
  openmpi          Open MPI as it comes
  openmpi-best     with the measured best algorithm for every size
  mpich-yield      MPICH, where a rank that waits gives its processor away

OMNES_PEERS is the folder of the peers (default ../shared/peers beside this
repository). Requires root. Anything missing is reported, and the rest is
measured. Status: 0; 1 if a target is missed, a job failed or data arrived
wrong; 2 for invalid usage; 77 if nothing can be measured here.
"""

import argparse
import collections
import json
import os
import shutil
import statistics
import subprocess
import sys

from arguments import list_of, one_of, parse_size
from peers import (BUILT, Job, PEERS, ROOT, Site, build, is_omnes, print_table, say, size_name,
                   spread, wait_until_quiet)

PAIR_OPS = ("latency", "bandwidth")  # of benches/pt2pt.c; the others are collbench's
COLLECTIVE_OPS = ("barrier", "bcast", "wbcast", "allgather", "allreduce")
FLOOR_OPS = ("barrier", "bcast", "wbcast")  # those of them that the floor supports
PRINTED_OPS = {"wbcast": "bcast_window"}  # where a loop prints a different name
DISTURBED = 0.1  # share of the machine used by other processes
WARM_UPS = 2  # measurements of the first size that do not count
WARM_UP_BARRIERS = 2000  # uncounted barriers, while a new job loads what it needs

Key = collections.namedtuple("Key", "n op bytes")
Target = collections.namedtuple("Target", "key impl peer relation limit")

K1, K64, M4 = 1 << 10, 64 << 10, 4 << 20
TARGETS = (
    Target(Key(2, "latency", 8), "omnes", "openmpi", "<=", 0.6),
    Target(Key(2, "bandwidth", M4), "omnes", "openmpi", ">=", 1.5),
    Target(Key(8, "bcast_window", 8), "omnes:binomial", "openmpi", "<=", 1.0),
    Target(Key(8, "bcast_window", K64), "omnes:binomial", "openmpi", "<=", 1.0),
    Target(Key(8, "bcast", M4), "omnes", "openmpi", "<=", 1.0),
    Target(Key(8, "barrier", 0), "omnes", "openmpi", "<=", 0.7),
    Target(Key(8, "bcast_window", 8), "omnes", "openmpi-best", "<=", 0.5),
    Target(Key(8, "bcast_window", K1), "omnes", "openmpi-best", "<=", 0.5),
    Target(Key(16, "bcast_window", 8), "omnes", "openmpi-best", "<=", 0.4),
    Target(Key(16, "bcast_window", K1), "omnes", "openmpi-best", "<=", 0.4),
    Target(Key(8, "bcast", M4), "omnes", "openmpi-best", "<=", 1 / 2.5),
    Target(Key(16, "bcast", M4), "omnes", "openmpi-best", "<=", 1 / 3),
)


# ---- what is there, and building it -----------------------------------------


def build_mpi(library):
    """Build both measuring programs for "openmpi" or "mpich"; False if that is impossible."""
    compiler = f"mpicc.{library}"
    for tool in (compiler, "mpirun.openmpi" if library == "openmpi" else "mpiexec.mpich"):
        if not shutil.which(tool):
            say(f"missing: {tool}, so {library} is left out ('make setup' installs it)")
            return False
    targets = [BUILT / f"mpibench.{library}"]
    if library == "mpich":
        targets.append(BUILT / "mpichfix.so")
    sources = [ROOT / "benches" / name for name in ("pt2pt_mpi.c", "pt2pt.c", "pt2pt_cpu.c")]
    compile_pair = [compiler, "-std=c11", "-O2", "-o", BUILT / f"pt2pt.{library}", *sources, "-lm"]
    make_loop = ["make", "-C", PEERS / "bench", f"OUT={BUILT}", *targets]
    return build(make_loop, library) and build(compile_pair, library)


def prepare(impls):
    """Build what is needed; return the `impls` that can be measured, or exit if there are none."""
    if os.geteuid() != 0:
        say("needs root, for namespaces")
        sys.exit(77)
    tools = [tool for tool in ("ip", "jq", "unshare", "cc", "make") if not shutil.which(tool)]
    if tools:
        say(f"missing: {', '.join(tools)} ('make setup' installs them)")
        sys.exit(77)
    if any(map(is_omnes, impls)):
        status = subprocess.run([ROOT / "tools" / "collbench.sh"], stdout=subprocess.DEVNULL,
                                check=False).returncode
        if status not in (0, 77):
            sys.exit(77)
    if not (PEERS / "lab").is_file():
        say(f"missing: the peers, no lab in {PEERS} (OMNES_PEERS=FOLDER names it);")
        say("only messages of Omnes are measured, over a lab of its own")
        return [impl for impl in impls if impl == "omnes"]
    BUILT.mkdir(parents=True, exist_ok=True)
    libraries = {impl.split("-")[0] for impl in impls if not is_omnes(impl)}
    usable = {library for library in sorted(libraries) if build_mpi(library)}
    return [impl for impl in impls if is_omnes(impl) or impl.split("-")[0] in usable]


# ---- rounds ---------------------------------------------------------------------


class Comparison:
    """All points, the best attempt of each round, and the failures."""

    def __init__(self, args, site):
        self.args, self.site = args, site
        self.rounds = []  # per round: {(impl, Key): point}
        self.failures = []
        self.out = open(args.out, "a", encoding="utf-8") if args.out else None

    def jobs(self, shift):
        """The jobs of a round; libraries take turns in going first."""
        first = shift % len(self.args.impls)
        order = self.args.impls[first:] + self.args.impls[:first]
        for n in self.args.n:
            pair = [op for op in self.args.ops if op in PAIR_OPS and n == 2]
            collective = [op for op in self.args.ops if op in COLLECTIVE_OPS and PEERS.is_dir()]
            for impl in order:
                if pair and ":" not in impl and impl != "floor":
                    yield Job(impl, n, "pt2pt", pair, None)
            for impl in order:
                casts = [op for op in collective if op != "barrier"]
                if impl == "floor":
                    casts = [op for op in casts if op in FLOOR_OPS]
                if casts:
                    yield Job(impl, n, "collbench", casts, self.args.sizes)
                if "barrier" in collective and ":" not in impl:
                    yield Job(impl, n, "collbench", ["barrier"], None)

    def measure(self, job, attempt):
        """Run one job and keep each point that is less disturbed than the one before."""
        wait_until_quiet(self.args.wait)
        options = ["--impl", job.impl, "--ops", ",".join(job.ops),
                   "--budget", str(self.args.budget), "--tag", f"round={len(self.rounds)}",
                   "--tag", f"attempt={attempt}"]
        if job.ops == ["barrier"]:
            options += ["--warmup", str(WARM_UP_BARRIERS)]
        elif job.sizes:
            # If a size is measured several times, the last measurement counts.
            sizes = [job.sizes[0]] * WARM_UPS + job.sizes
            options += ["--sizes", ",".join(map(str, sizes))]
        points, why = self.site.run(job, options, self.args.timeout)
        points = {(point["op"], point["bytes"]): point for point in points}.values()
        if why:
            self.failures.append(f"{job.impl} n={job.n} {','.join(job.ops)}: {why}")
            say(self.failures[-1])
        for point in points:
            if self.out:
                self.out.write(json.dumps(point) + "\n")
                self.out.flush()
            place = job.impl, Key(job.n, point["op"], point["bytes"])
            old = self.rounds[-1].get(place)
            if old is None or point["other_cpu"] < old["other_cpu"]:
                self.rounds[-1][place] = point
            if point["errors"]:
                self.failures.append(f"{place}: {point['errors']:.0f} bytes arrived wrong")
        return why is None

    def again(self, job):
        """Jobs that repeat the disturbed measurements of `job`."""
        for op in job.ops:
            printed = PRINTED_OPS.get(op, op)
            sizes = [key.bytes for (impl, key), point in self.rounds[-1].items()
                     if impl == job.impl and key.n == job.n and key.op == printed
                     and point["other_cpu"] > DISTURBED]
            if sizes:
                yield job._replace(ops=[op], sizes=sizes)

    def run(self):
        for turn in range(self.args.rounds):
            self.rounds.append({})
            for job in self.jobs(turn):
                say(f"round {turn + 1} of {self.args.rounds}: {job.impl}, {job.n} hosts, "
                    f"{','.join(job.ops)}")
                good = self.measure(job, 0)
                for attempt in range(1, self.args.repeats + 1):
                    if good:
                        good = all([self.measure(part, attempt) for part in self.again(job)])

    def values(self, impl, key):
        """Per round: the figure by which the point is judged (microseconds or MB/s), or None."""
        field = "MBps" if key.op == "bandwidth" else "median_us"
        points = [points.get((impl, key)) for points in self.rounds]
        return [point and point[field] for point in points]

    def is_disturbed(self, impl, key):
        points = [points.get((impl, key)) for points in self.rounds]
        return any(point and point["other_cpu"] > DISTURBED for point in points)

    def ratios(self, impl, peer, key):
        """impl / peer in each round that has both."""
        pairs = zip(self.values(impl, key), self.values(peer, key))
        return [own / other for own, other in pairs if own is not None and other]


# ---- tables ---------------------------------------------------------------------


def row_start(key):
    return [key.op, str(key.n), size_name(key.bytes)]


def print_results(comparison, impls):
    keys = sorted({key for points in comparison.rounds for _, key in points})
    head = ["operation", "hosts", "message"]
    rows = []
    for key in keys:
        cells = []
        for impl in impls:
            values = [value for value in comparison.values(impl, key) if value is not None]
            mark = "*" if comparison.is_disturbed(impl, key) else " "
            cells.append(f"{statistics.median(values):.1f}{mark}" if values else "- ")
        rows.append(row_start(key) + cells)
    print_table(f"Median of {len(comparison.rounds)} rounds; microseconds, bandwidth in MB/s "
                f"(* others used over {DISTURBED:.0%} of the machine)", head + impls, rows)
    peers = [impl for impl in impls if not is_omnes(impl)]
    rows = []
    for key in keys:
        for impl in filter(is_omnes, impls):
            cells = [spread(comparison.ratios(impl, peer, key)) for peer in peers]
            if any(cell != "-" for cell in cells):
                rows.append(row_start(key) + [impl] + cells)
    if rows:
        print_table("Ratio of Omnes, and of the floor, to its peer, median (least..most over "
                    "rounds); below 1 Omnes is faster, for bandwidth above 1",
                    head + ["library"] + peers, rows)


def print_targets(comparison):
    """Prints the table of targets; True if no measured one is missed."""
    rows, passed = [], True
    for target in TARGETS:
        key, ratios = target.key, comparison.ratios(target.impl, target.peer, target.key)
        verdict = "not measured"
        if ratios:
            middle = statistics.median(ratios)
            met = middle <= target.limit if target.relation == "<=" else middle >= target.limit
            passed &= met
            verdict = "pass" if met else "MISS"
            if any(comparison.is_disturbed(impl, key) for impl in (target.impl, target.peer)):
                verdict += " *"
        rows.append(row_start(key) + [f"{target.impl} / {target.peer}",
                                      f"{target.relation} {target.limit}", spread(ratios), verdict])
    print_table("Targets", ["operation", "hosts", "message", "ratio of", "target", "measured",
                            "verdict"], rows)
    return passed


# ---- command line ---------------------------------------------------------------


def library(text):
    return text if text.startswith("omnes:") else one_of(
        ("omnes", "floor", "openmpi", "openmpi-best", "openmpi-ucx", "mpich", "mpich-yield"))(text)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench-peers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--n", type=list_of(int), default="2,8", help="numbers of hosts (default: %(default)s)")
    add("--ops", type=list_of(one_of(PAIR_OPS + COLLECTIVE_OPS)),
        default=",".join(PAIR_OPS + COLLECTIVE_OPS),
        help="operations (default: %(default)s); wbcast is a broadcast of at most 64 KiB, started "
             "by the clock; latency (8 B) and bandwidth (4 MiB) are measured at 2 hosts")
    add("--sizes", type=list_of(parse_size), default="8,64k,4m",
        help="bytes of a broadcast, with k and m (default: %(default)s)")
    add("--rounds", type=int, default=5, help="rounds (default: %(default)s)")
    add("--budget", type=float, default=0.3, help="seconds per point (default: %(default)s)")
    add("--impls", type=list_of(library), help="libraries (default: %(default)s)",
        default="omnes,omnes:binomial,openmpi,openmpi-best,mpich-yield")
    add("--repeats", type=int, default=2,
        help="maximum repeats of a disturbed point in a round (default: %(default)s)")
    add("--wait", type=float, default=5,
        help="maximum wait in seconds for a quiet machine before a job (default: %(default)s)")
    add("--timeout", type=float, default=180, help="seconds a job may take (default: %(default)s)")
    add("--out", metavar="FILE", help="append each point to FILE as a JSON line")
    add("--aslr", action="store_true", help="randomize the memory layout of each rank")
    add("--quick", action="store_true", help="2 rounds of 0.1 s per point, without repeats")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.budget, args.repeats, args.wait = 2, 0.1, 0, 0
    if args.rounds < 1 or min(args.n) < 2 or max(args.n) > 200:
        parser.error("--rounds must be at least 1, --n 2 to 200")
    return args


def main():
    args = parse_arguments()
    args.impls = prepare(args.impls)
    if not args.impls:
        say("nothing that was asked for can be measured here")
        return 77
    with Site(max(args.n), args.aslr) as site:
        comparison = Comparison(args, site)
        comparison.run()
    print_results(comparison, args.impls)
    passed = print_targets(comparison)
    for failure in comparison.failures:
        say(f"failed: {failure}")
    return 0 if passed and not comparison.failures else 1


if __name__ == "__main__":
    sys.exit(main())
