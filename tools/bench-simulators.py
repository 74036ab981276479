#!/usr/bin/env python3
"""Measure the simulator of Omnes against other simulators, in alternating
rounds.

All simulate the same patterns: one binomial broadcast, and consecutive
dissemination barriers. They do so at different levels of detail, so the ratio
of two columns gives the cost of a level, and does not say which program is
better:

  omnes-same  the library's machines, every packet with its tag through hosts,
              NICs and a switch; acknowledgements and timers included
  omnes-own   the same with what the library itself would use: its multicast
              broadcast ("combined"), and the barrier in the NICs
  loggopsim   schedule files with LogGP costs: no packets, no protocol
  smpi        SimGrid/SMPI: MPI code on a flow-level network

The figures are processor time (user and system) and peak memory of the whole
run, from the kernel's accounting of the child, including startup, reading of
files and setup. Writing of schedules and platforms is excluded. Other jobs on
the machine stretch wall time, and processor time a little. A run longer than
--once processor seconds is not repeated.

Other simulators are found by --loggopsim and in PATH (smpicc, smpirun); a
missing one is left out, with a line on how to get it.

examples:
  tools/bench-simulators.py
  tools/bench-simulators.py --loggopsim ~/LogGOPSim/build --rounds 5
  tools/bench-simulators.py --sims omnes-same,smpi --ranks 1024 --sizes 1k
  tools/bench-simulators.py --parts speed,growth --out points.jsonl

A full run takes ten minutes on a quiet machine, most of them for 1 MiB to
65,536 ranks: 250 million events. "< 17 MiB" of memory is less than this script
itself uses; below that, the kernel's accounting of a child means nothing.

Status: 0; 1 if a run failed; 2 for invalid usage; 77 if nothing can be
measured.
"""

import argparse
import collections
import json
import os
import pathlib
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading

from arguments import list_of, one_of, parse_size

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
MODEL_SPEED = TARGET / "release" / "examples" / "model_speed"

SIMS = ("omnes-same", "omnes-own", "loggopsim", "smpi")
PARTS = ("barrier", "bcast", "speed", "growth")
BARRIER_RANKS, BARRIERS = 1024, 100
SMPI_BYTES_MAX = 1 << 20  # longest message of the program below

# LogGP of 25 GbE in nanoseconds, the same scale as the testbed of Omnes. The parameters change the
# result, but not the cost of computing it. No rendezvous: it would add messages that no other
# simulator has.
LOGGP = ["-L", "2000", "-o", "1000", "-g", "500", "-G", "1", "-S", str(1 << 30)]

SMPI_OPTIONS = [
    "--cfg=smpi/bcast:binomial_tree",
    "--cfg=smpi/barrier:ompi_bruck",  # dissemination
    "--cfg=smpi/simulate-computation:no",  # same result every time, and less work
    "--cfg=smpi/privatization:no",  # the program has no globals that ranks write
    "--cfg=contexts/guard-size:0",  # 65,536 guard pages are more mappings than Linux grants
    "--cfg=contexts/stack-size:32",  # KiB
    "--log=root.thres:warning",
]

# One buffer for all ranks, so that memory is the simulator's and not the messages'.
SMPI_PROGRAM = """
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static char message[%d];

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	if (argc != 4)
		MPI_Abort(MPI_COMM_WORLD, 2);
	int bytes = atoi(argv[2]), repeat = atoi(argv[3]);
	for (int i = 0; i < repeat; i++) {
		if (strcmp(argv[1], "bcast") == 0)
			MPI_Bcast(message, bytes, MPI_CHAR, 0, MPI_COMM_WORLD);
		else
			MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Finalize();
	return 0;
}
""" % SMPI_BYTES_MAX

PLATFORM = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
  <cluster id="c" prefix="h" suffix="" radical="0-%d" speed="1Gf" bw="25Gbps" lat="1us"/>
</platform>
"""

# A simulated operation; `bytes` is 0 for barriers.
Case = collections.namedtuple("Case", "op ranks bytes repeat")
Run = collections.namedtuple("Run", "part sim case command")

# Long enough to count a million events or more: name, and arguments of model_speed.
SPEEDS = (
    ("multicast broadcasts, 8 B", "1024 combined 8 1000"),
    ("multicast broadcasts, 1 MB", "1024 combined 1000000 2"),
    ("binomial broadcasts, 8 B", "1024 binomial:store 8 200"),
    ("binomial broadcast, 1 MiB", "1024 binomial:store 1048576 1"),
    ("dissemination by messages", "1024 barrier:messages:dissemination 0 100"),
    ("dissemination, host machine", "1024 barrier:host:dissemination 0 200"),
    ("dissemination, NIC machine", "1024 barrier:nic:dissemination 0 200"),
)
GROWTHS = (("multicast, 1 KiB", "combined"), ("binomial, 1 KiB", "binomial:store"))
GROWTH_RANKS = (1024, 4096, 16384, 65536)


def say(text):
    print(f"bench-simulators: {text}", file=sys.stderr, flush=True)


# ---- schedules for LogGOPSim ----------------------------------------------------


def binomial_lines(rank, case):
    """Broadcast from rank 0: receive from the rank without the lowest bit, then send farthest
    first.
    """
    lines, first = [], None
    bit = 1
    while bit < case.ranks and not rank & bit:
        bit <<= 1
    if rank:
        lines.append(f"l1: recv {case.bytes}b from {rank - bit} tag 0")
        first = "l1"
    while bit > 1:
        bit >>= 1
        if rank + bit < case.ranks:
            label = f"l{len(lines) + 1}"
            lines.append(f"{label}: send {case.bytes}b to {rank + bit} tag 0")
            if first:
                lines.append(f"{label} requires {first}")
    return lines


def dissemination_lines(rank, case):
    """Every step sends and receives; the next one waits for both."""
    lines, label, before = [], 0, ()
    for step in [1 << i for i in range((case.ranks - 1).bit_length())] * case.repeat:
        send, hear = f"l{label + 1}", f"l{label + 2}"
        label += 2
        lines.append(f"{send}: send 1b to {(rank + step) % case.ranks} tag {step}")
        lines.append(f"{hear}: recv 1b from {(rank - step) % case.ranks} tag {step}")
        lines += [f"{new} requires {old}" for new in (send, hear) for old in before]
        before = (send, hear)
    return lines


def write_schedule(path, case):
    lines_of = binomial_lines if case.op == "bcast" else dissemination_lines
    with open(path, "w", encoding="ascii") as file:
        file.write(f"num_ranks {case.ranks}\n")
        for rank in range(case.ranks):
            file.write(f"\nrank {rank} {{\n" + "\n".join(lines_of(rank, case)) + "\n}\n")


# ---- the simulators ---------------------------------------------------------------


class Omnes:
    """Our model, with the arguments of model_speed for each operation."""

    def __init__(self, bcast, barrier):
        self.words = {"bcast": bcast, "barrier": f"barrier:{barrier}:dissemination"}

    def prepare(self, _):
        return build_model_speed()

    def command(self, case, _):
        return [MODEL_SPEED, str(case.ranks), self.words[case.op], str(case.bytes),
                str(case.repeat), "--json"]


class LogGopSim:
    """LogGP on schedules, which its txt2bin converts to binary before the run."""

    def __init__(self, folder):
        self.folder = folder

    def prepare(self, _):
        self.tools = {}
        for name in ("LogGOPSim", "txt2bin"):
            inside = self.folder and shutil.which(name, path=str(self.folder))
            self.tools[name] = inside or shutil.which(name)
            if not self.tools[name]:
                return (f"no {name}: get https://github.com/spcl/LogGOPSim, build it as its README "
                        "says, name the folder of the programs with --loggopsim")
        return None

    def command(self, case, scratch):
        path = scratch / f"{case.op}-{case.ranks}-{case.bytes}-{case.repeat}.bin"
        if not path.exists():
            text = path.with_suffix(".goal")
            write_schedule(text, case)
            subprocess.run([self.tools["txt2bin"], "-i", text, "-o", path], check=True,
                           stdout=subprocess.DEVNULL)
            text.unlink()
        return [self.tools["LogGOPSim"], "-b", *LOGGP, "-f", path]


class Smpi:
    """MPI code on SimGrid, on a generated cluster with a 25 Gbit/s link per host."""

    def prepare(self, scratch):
        for name in ("smpicc", "smpirun"):
            if not shutil.which(name):
                return f"no {name}: apt-get install simgrid libsimgrid-dev"
        source = scratch / "smpi.c"
        source.write_text(SMPI_PROGRAM, encoding="ascii")
        result = subprocess.run(["smpicc", "-O2", source, "-o", source.with_suffix("")],
                                capture_output=True, text=True, check=False)
        return f"smpicc failed: {result.stderr[-500:]}" if result.returncode else None

    def command(self, case, scratch):
        platform, hosts = scratch / f"{case.ranks}.xml", scratch / f"{case.ranks}.hosts"
        if not platform.exists():
            platform.write_text(PLATFORM % (case.ranks - 1), encoding="ascii")
            hosts.write_text("".join(f"h{i}\n" for i in range(case.ranks)), encoding="ascii")
        return ["smpirun", "-np", str(case.ranks), "-platform", platform, "-hostfile", hosts,
                *SMPI_OPTIONS, scratch / "smpi", case.op, str(case.bytes), str(case.repeat)]


def build_model_speed():
    """Build our simulator; the reason why that failed, or None."""
    command = ["cargo", "build", "--release", "-q", "-p", "omnes-sim", "--example", "model_speed"]
    try:
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "no cargo"
    return f"cargo failed: {result.stderr[-1000:]}" if result.returncode else None


def prepare(args, scratch):
    """The available simulators of `args`, by name."""
    makers = {"omnes-same": lambda: Omnes("binomial:store", "messages"),
              "omnes-own": lambda: Omnes("combined", "nic"),
              "loggopsim": lambda: LogGopSim(args.loggopsim), "smpi": Smpi}
    usable = {}
    for name in args.sims:
        sim = makers[name]()
        why = sim.prepare(scratch)
        if why:
            say(f"{name} is left out: {why}")
        else:
            usable[name] = sim
    return usable


# ---- runs -------------------------------------------------------------------------


def execute(command, limit_s, scratch):
    """Run a command to its end; return its cost, and the reason if it failed."""
    with open(scratch / "out", "w+", encoding="utf-8", errors="replace") as out:
        # In a session of its own, as smpirun is a script that starts the simulator.
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out,
                                 stderr=subprocess.STDOUT, cwd=scratch, start_new_session=True)
        timer = threading.Timer(limit_s, os.killpg, (child.pid, signal.SIGKILL))
        timer.start()
        try:
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            raise
        finally:
            timer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    point = {"cpu_s": round(usage.ru_utime + usage.ru_stime, 6),
             "peak_bytes": usage.ru_maxrss * 1024}
    ours = [line for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
    if ours:
        inner = json.loads(ours[-1])
        names = ("build_cpu_s", "run_cpu_s", "peak_bytes", "events", "acks", "repairs",
                 "dropped", "sample_ns", "end_ns", "hash")
        point.update({name: inner[name] for name in names})
    if child.returncode == -signal.SIGKILL:
        return point, f"no end after {limit_s:.0f} s, or killed"
    return point, f"status {child.returncode}: {text[-400:]}" if child.returncode else None


def parse_case(words):
    ranks, algorithm, size, repeat = words.split()
    op = "barrier" if algorithm.startswith("barrier:") else "bcast"
    return Case(op, int(ranks), int(size), int(repeat))


def runs(args, sims, scratch):
    """All runs of a round, cheap ones first."""
    cases = []
    if "barrier" in args.parts:
        cases.append(Case("barrier", BARRIER_RANKS, 0, BARRIERS))
    if "bcast" in args.parts:
        cases += [Case("bcast", ranks, size, 1) for size in args.sizes for ranks in args.ranks]
    for case in cases:
        for name, sim in sims.items():
            yield Run(case.op, name, case, sim.command(case, scratch))
    if not any(name.startswith("omnes") for name in sims):
        return
    own = [("speed", name, words) for name, words in SPEEDS]
    own += [("growth", name, f"{ranks} {algorithm} 1024 1")
            for name, algorithm in GROWTHS for ranks in GROWTH_RANKS]
    for part, name, words in own:
        if part in args.parts:
            yield Run(part, name, parse_case(words), [MODEL_SPEED, *words.split(), "--json"])


def measure(args, sims, scratch):
    """All points by (part, sim, case), and the failures."""
    points, failed = collections.defaultdict(list), {}
    out = open(args.out, "a", encoding="utf-8") if args.out else None
    todo = list(runs(args, sims, scratch))
    for turn in range(args.rounds):
        for run in todo:
            key = run[:3]
            longest = max((point["cpu_s"] for point in points[key]), default=0)
            if key in failed or longest > args.once:
                continue
            say(f"round {turn + 1} of {args.rounds}: {run.sim}, {case_name(run.case)}")
            point, why = execute(run.command, args.timeout, scratch)
            if why:
                failed[key] = why
                say(f"failed: {run.sim}, {case_name(run.case)}: {why}")
                continue
            points[key].append(point)
            if out:
                line = {"part": run.part, "simulator": run.sim, **run.case._asdict(),
                        "round": turn, **point}
                out.write(json.dumps(line) + "\n")
                out.flush()
    return points, failed


# ---- tables -----------------------------------------------------------------------


def size_name(size):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B"


def case_name(case):
    times = f"{case.repeat} x " if case.repeat > 1 else ""
    size = f" of {size_name(case.bytes)}" if case.op == "bcast" else ""
    return f"{times}{case.op}{size}, {case.ranks:,} ranks"


def number(value):
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def spread(values, form=number):
    middle = form(statistics.median(values))
    if len(values) == 1:
        return f"{middle} (once)"
    return f"{middle} ({form(min(values))}..{form(max(values))})"


def memory(points):
    """The kernel's accounting starts with this script's own memory: lower values mean nothing."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    peak = statistics.median(point["peak_bytes"] for point in points)
    mark = "" if "events" in points[0] or peak > own else "< "
    return f"{mark}{peak / (1 << 20):.0f} MiB"


def print_table(title, head, rows):
    print(f"\n{title}\n")
    for row in [head, ["---"] + ["---:"] * (len(head) - 1), *rows]:
        print("| " + " | ".join(row) + " |")


def print_comparison(points, failed, sims):
    rows = []
    for part, case in dict.fromkeys((key[0], key[2]) for key in [*points, *failed]):
        if part not in ("barrier", "bcast"):
            continue
        row = [case_name(case)]
        for sim in sims:
            found = points.get((part, sim, case))
            row.append(f"{spread([point['cpu_s'] for point in found])}, {memory(found)}"
                       if found else "failed")
        rows.append(row)
    print_table("Processor seconds of the whole run: median (least..most), and peak memory",
                ["simulated", *sims], rows)


def print_speeds(points):
    rows = []
    for (part, name, case), found in points.items():
        if part != "speed" or not found:
            continue
        rates = [point["events"] / max(point["run_cpu_s"], 1e-9) / 1e6 for point in found]
        rows.append([name, f"{case.repeat}", f"{found[0]['events']:,}", spread(rates),
                     memory(found)])
    print_table("Omnes, 1,024 ranks: million events per processor second, median (least..most)",
                ["simulated", "times", "events", "M events/s", "peak memory"], rows)


def print_growth(points):
    rows = []
    for (part, name, case), found in points.items():
        if part != "growth" or not found:
            continue
        seconds = [point["cpu_s"] for point in found]
        peak = statistics.median(point["peak_bytes"] for point in found)
        per_rank = [second / case.ranks * 1e6 for second in seconds]
        rows.append([name, f"{case.ranks:,}", f"{found[0]['events']:,}", spread(seconds),
                     spread(per_rank), memory(found), f"{peak / case.ranks / 1024:.1f}"])
    print_table("Omnes, one broadcast: growth",
                ["simulated", "ranks", "events", "processor s, whole run", "us per rank",
                 "peak memory", "KiB per rank"], rows)


# ---- command line -----------------------------------------------------------------


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench-simulators", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--sims", type=list_of(one_of(SIMS)), default=",".join(SIMS),
        help="simulators (default: %(default)s)")
    add("--parts", type=list_of(one_of(PARTS)), default=",".join(PARTS),
        help="barrier, bcast: all simulators; speed: events per second of Omnes; growth: Omnes "
             "from 1,024 to 65,536 ranks (default: %(default)s)")
    add("--ranks", type=list_of(int), default="1024,16384,65536",
        help="ranks of a broadcast (default: %(default)s)")
    add("--sizes", type=list_of(parse_size), default="1k,1m",
        help="bytes of a broadcast, with k and m (default: %(default)s)")
    add("--rounds", type=int, default=3, help="rounds (default: %(default)s)")
    add("--once", type=float, default=20, metavar="SECONDS",
        help="processor seconds above which a run is not repeated (default: %(default)s)")
    add("--timeout", type=float, default=1800, metavar="SECONDS",
        help="wall seconds after which a run is killed (default: %(default)s)")
    add("--loggopsim", type=pathlib.Path, metavar="FOLDER",
        help="folder of LogGOPSim and txt2bin (default: in PATH)")
    add("--out", metavar="FILE", help="append each point to FILE as a JSON line")
    args = parser.parse_args()
    if args.rounds < 1 or min(args.ranks) < 2 or max(args.sizes) > SMPI_BYTES_MAX:
        parser.error("--rounds must be at least 1, --ranks 2, --sizes at most 1m")
    return args


def main():
    args = parse_arguments()
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda number, _: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="omnes-simulators.") as folder:
        scratch = pathlib.Path(folder)
        sims = prepare(args, scratch)
        if not sims:
            say("nothing that was asked for can be measured here")
            return 77
        points, failed = measure(args, sims, scratch)
    if {"barrier", "bcast"} & set(args.parts):
        print_comparison(points, failed, list(sims))
    if any(name.startswith("omnes") for name in sims):
        if "speed" in args.parts:
            print_speeds(points)
        if "growth" in args.parts:
            print_growth(points)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
