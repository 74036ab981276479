#!/usr/bin/env python3
"""Measure how much of Omnes's advantage over an MPI the preload library keeps.

In one lab of namespace hosts, with one rank on each, rounds alternate between

  omnes            the peers' loop on Omnes itself, as bench-peers has it
  MPI              collbench, a plain MPI program, on the MPI as it comes
  MPI+preload      the same program with the library preloaded

for openmpi, and for mpich-yield (MPICH whose waiting ranks yield the
processor). Before each iteration, the ranks meet in a barrier of their own
library; with --sync messages, both programs of an MPI meet in the same
messages instead, because ranks leave different barriers at different times,
which shows in a short call. Ratios are taken within a round; the tables give
the median (least..most). The share of an advantage that is kept is

  kept   (t_mpi / t_preload - 1) / (t_mpi / t_omnes - 1)

which means nothing where Omnes is hardly faster than the MPI, so the share of
the speed, t_omnes / t_preload, is given, too. The loop on Omnes only has
bcast, barrier, allreduce and allgather; all other operations are measured
plain and preloaded, as are, with --passed, the nanoseconds of calls that are
passed to the MPI. A size is that of a broadcast, of the floats to sum, or of
the part of one rank. Data are checked once per point, after the timed
iterations.

All ranks have the same memory layout; see bench-peers.

--loss runs everything in a lab of `omnes lab`, whose links can drop packets.

examples:
  tools/bench-mpi.py --n 8,16
  tools/bench-mpi.py --n 8 --mpis openmpi --loss 1% --sizes 8,64k
  tools/bench-mpi.py --n 4,8 --mpis openmpi --ops gather,scatter,alltoall --sizes 8,1k

Requires root. Status: 0; 1 if a job failed, data arrived wrong or less than
--target is kept; 2 for invalid usage; 77 if nothing can be measured here.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys

from arguments import list_of, one_of, parse_size
from peers import (BUILT, Job, PEERS, RELEASE, ROOT, Site, build, print_table, say, size_name,
                   spread, wait_until_quiet)

PROGRAMS = ROOT / "crates" / "omnes-mpi" / "programs"
MPIS = ("openmpi", "mpich", "mpich-yield")
OPS = ("bcast", "barrier", "allreduce", "reduce", "allgather", "ibcast", "ibarrier", "iallreduce",
       "ireduce", "iallgather", "reduce_scatter", "gather", "scatter", "alltoall", "allgatherv",
       "gatherv", "scatterv", "alltoallv", "scan")
OMNES_OPS = ("bcast", "barrier", "allreduce", "allgather")  # operations of the loop on Omnes itself
PRELOADED = "+preload"
SUBNET = "10.77.0"  # of `omnes lab`
WARM_UPS = 7  # measurements of the first point that do not count
PASSED_MAX_NS = 100  # maximum loss of a call that is passed to the MPI

# Runs a command on the host with that address, for a launcher: [-x] HOST COMMAND...
AGENT = """#!/bin/sh
[ "$1" = -x ] && shift
host=$1
shift
exec {omnes} lab exec --name {name} $((${{host##*.}} - 1)) -- sh -c "$*"
"""


def library_of(impl):
    """The MPI of, for example, "mpich-yield+preload"."""
    return impl.split(PRELOADED)[0].split("-")[0]


class MpiSite(Site):
    """The peers' lab, with collbench on MPIs; or, with loss, a lab of `omnes lab`."""

    def __init__(self, hosts, args):
        super().__init__(hosts)
        self.args = args
        self.name = f"mpi{os.getpid()}"

    def __enter__(self):
        if not self.args.loss:
            return super().__enter__()
        self.lab = pathlib.Path("/nonexistent")  # the peers' lab stays down
        super().__enter__()
        self.omnes("lab", "up", str(self.hosts), "--name", self.name, "--loss", self.args.loss)
        agent = pathlib.Path(self.scratch.name, "agent")
        agent.write_text(AGENT.format(omnes=RELEASE / "omnes", name=self.name))
        agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
        self.agent = agent
        return self

    def __exit__(self, *problem):
        if self.args.loss:
            self.stop()
            self.omnes("lab", "down", "--name", self.name)
        super().__exit__(*problem)

    def omnes(self, *words):
        subprocess.run([RELEASE / "omnes", *words], check=True, stdout=subprocess.DEVNULL)

    def command(self, job, options):
        if job.impl == "omnes":
            return self.omnes_in_loss(job, options) if self.args.loss else \
                self.omnes_command(job, options)
        library = library_of(job.impl)
        preloads, variables = [], []
        if library == "mpich":
            preloads.append(BUILT / "mpichfix.so")
        if job.impl.startswith("mpich-yield"):
            variables.append("MPICHFIX_YIELD=1")
        if job.impl.endswith(PRELOADED):
            preloads.insert(0, self.args.preload[library])
            # The state of a job after some seconds: by default, ranks wait a second before they
            # load firmware.
            variables += ["OMNES_NIC=kernel", *self.args.env]
        program = [BUILT / f"collbench.{library}", "--json", *options]
        if self.args.loss:
            return self.launch(library, job.n, preloads, variables) + program
        extra = []
        for preload in preloads:
            extra += ["--preload", preload]
        for variable in variables:
            extra += ["--env", variable]
        config = "openmpi" if library == "openmpi" else "mpich-bare"
        return [PEERS / "mpi-in-lab", *extra, config, "-n", str(job.n), "--", *program]

    def omnes_in_loss(self, job, options):
        """Starts all ranks from a shell on the first host, through the agent."""
        port = 20000 + self.jobs
        words = " ".join(["exec", str(RELEASE / "omnes-collbench"), *options])
        start = (f"for i in $(seq 1 {job.n}); do {self.agent} {SUBNET}.$i OMNES_RANK=$((i - 1)) "
                 f"OMNES_SIZE={job.n} OMNES_RENDEZVOUS={SUBNET}.1:{port} {words} & done; wait")
        return ["sh", "-c", start]

    def launch(self, library, ranks, preloads, variables):
        """mpirun on the first host of the lab, with the same settings as in the peers' lab."""
        hosts = [f"{SUBNET}.{i + 1}" for i in range(ranks)]
        if preloads:
            variables = [*variables, "LD_PRELOAD=" + ":".join(map(str, preloads))]
        # The lab is not visible inside a host, so only the network is the host's.
        first = ["nsenter", f"--net=/run/omnes-lab/{self.name}/net.0"]
        if library == "openmpi":
            words = ["mpirun.openmpi", "--allow-run-as-root", "-n", str(ranks), "-H",
                     ",".join(f"{host}:1" for host in hosts), "--map-by", "node", "--bind-to",
                     "none", "--leave-session-attached"]  # a lab kills what leaves its command
            for name, value in (("plm", "rsh"), ("plm_rsh_agent", str(self.agent)),
                                ("plm_rsh_no_tree_spawn", "1"), ("pml", "ob1"),
                                ("btl", "tcp,self"), ("mpi_yield_when_idle", "1"),
                                ("oob_tcp_if_include", f"{SUBNET}.0/24"),
                                ("btl_tcp_if_include", f"{SUBNET}.0/24")):
                words += ["--mca", name, value]
            for variable in variables:
                words += ["-x", variable]
            return first + words
        words = ["mpiexec.mpich", "-launcher", "ssh", "-launcher-exec", str(self.agent),
                 "-iface", "eth0", "-hosts",
                 ",".join(hosts), "-ppn", "1", "-bind-to", "none"]
        for variable in ("UCX_TLS=tcp,self", "UCX_WARN_UNUSED_ENV_VARS=n", *variables):
            words += ["-genv", *variable.split("=", 1)]
        return first + words + ["-n", str(ranks)]


# ---- rounds -------------------------------------------------------------------


class Rounds:
    """Per round {(impl, n, op, bytes): median in microseconds}, and the failures."""

    def __init__(self, args, site):
        self.args, self.site = args, site
        self.rounds, self.passed, self.failures = [], {}, []
        self.impls = ["omnes"] if set(args.ops) & set(OMNES_OPS) else []
        for mpi in args.mpis:
            self.impls += [mpi] + [mpi + PRELOADED] * (library_of(mpi) in args.preload)
        self.out = open(args.out, "a", encoding="utf-8") if args.out else None

    def options(self, impl):
        ops = [op for op in self.args.ops if impl != "omnes" or op in OMNES_OPS]
        # The first point is measured several times, and the last measurement counts: a job's first
        # second is slower, while ranks load what they need, such as the firmware after some
        # barriers.
        sizes = [self.args.sizes[0]] * WARM_UPS + self.args.sizes
        options = ["--ops", ",".join(ops), "--budget", str(self.args.budget), "--sizes",
                   ",".join(map(str, sizes))]
        return options + (["--no-check"] if impl == "omnes" else ["--sync", self.args.sync])

    def job(self, impl, n, options):
        wait_until_quiet(self.args.wait)
        say(f"round {len(self.rounds)} of {self.args.rounds}: {impl}, {n} hosts")
        job = Job(impl, n, "collbench", self.args.ops, self.args.sizes)
        points, why = self.site.run(job, options, self.args.timeout)
        if why:
            self.failures.append(f"{impl}, {n} hosts: {why}")
        for point in points:
            if self.out:
                self.out.write(json.dumps(dict(point, impl=impl, round=len(self.rounds))) + "\n")
            if point.get("errors"):
                self.failures.append(f"{impl}, {n} hosts: {point['errors']} bytes arrived wrong")
        return points

    def run(self):
        for turn in range(self.args.rounds):
            self.rounds.append({})
            order = self.impls[turn % len(self.impls):] + self.impls[:turn % len(self.impls)]
            for n in self.args.n:
                for impl in order:
                    for point in self.job(impl, n, self.options(impl)):
                        place = impl, n, point["op"], point["bytes"]
                        self.rounds[-1][place] = point["median_us"]
        for impl in self.impls if self.args.passed else ():
            if impl == "omnes":
                continue
            for point in self.job(impl, min(self.args.n), ["--passed"]):
                self.passed[impl, point["op"]] = point["passed_ns"]

    def ratios(self, n, op, size, combine, impls):
        """`combine` of the times of `impls`, in each round that has them all."""
        for points in self.rounds:
            times = [points.get((impl, n, op, size)) for impl in impls]
            if all(times):
                yield combine(*times)


def kept(mpi, preloaded, omnes):
    """Share of the advantage that is kept; None where there is no advantage."""
    return (mpi / preloaded - 1) / (mpi / omnes - 1) if mpi > omnes else None


# ---- tables -------------------------------------------------------------------


def print_results(rounds):
    """Prints all tables; True if the target is reached everywhere."""
    places = sorted({place[1:] for points in rounds.rounds for place in points})
    good = True
    rows = []
    for n, op, size in places:
        cells = [spread(list(rounds.ratios(n, op, size, lambda time: time, [impl])))
                 for impl in rounds.impls]
        rows.append([op, str(n), size_name(size), *cells])
    print_table(f"Microseconds, median of {len(rounds.rounds)} rounds (least..most)",
                ["operation", "hosts", "message", *rounds.impls], rows)
    rows = []
    for mpi in rounds.args.mpis:
        preloaded = mpi + PRELOADED
        for n, op, size in places:
            impls = [mpi, preloaded, "omnes"]
            speed = list(rounds.ratios(n, op, size, lambda plain, ours: plain / ours, impls[:2]))
            if not speed:
                continue
            shares = list(rounds.ratios(n, op, size, kept, impls))
            shares = sorted(share for share in shares if share is not None)
            of_omnes = list(rounds.ratios(n, op, size, lambda _, ours, own: own / ours, impls))
            if shares:
                good &= shares[len(shares) // 2] >= rounds.args.target
            rows.append([op, str(n), size_name(size), mpi, spread(speed), spread(shares),
                         spread(of_omnes)])
    if rows:
        print_table("With the library", ["operation", "hosts", "message", "MPI", "MPI / preload",
                                         "kept", "omnes / preload"], rows)
    return good


def print_passed(rounds):
    """Prints the nanoseconds of calls that are passed to the MPI; True if none loses too much."""
    rows, good = [], True
    for (impl, op), ns in sorted(rounds.passed.items()):
        if impl.endswith(PRELOADED) or (impl + PRELOADED, op) not in rounds.passed:
            continue
        lost = rounds.passed[impl + PRELOADED, op] - ns
        good &= lost < PASSED_MAX_NS
        rows.append([op, impl, f"{ns:.1f}", f"{ns + lost:.1f}", f"{lost:.1f}"])
    if rows:
        print_table("Nanoseconds of calls that are not taken",
                    ["call", "MPI", "plain", "preloaded", "lost"], rows)
    return good


# ---- command line -------------------------------------------------------------


def build_programs(mpi):
    """Build collbench for an MPI, and for MPICH the library that lets it end and yield."""
    library = library_of(mpi)
    for tool in (f"mpicc.{library}", f"mpirun.{library}"):
        if not shutil.which(tool):
            say(f"missing: {tool}, so {mpi} is left out")
            return False
    if not build(["make", "-C", PROGRAMS, f"OUT={BUILT}", f"MPI={library}",
                  BUILT / f"collbench.{library}"], mpi):
        return False
    return library != "mpich" or build(["make", "-C", PEERS / "bench", f"OUT={BUILT}",
                                        BUILT / "mpichfix.so"], mpi)


def prepare(args):
    """Build what is needed and find the libraries; exit if nothing can be measured."""
    needed = [RELEASE / "omnes"] if args.loss else [PEERS / "lab"]
    missing = [str(path) for path in needed if not path.is_file()]
    missing += [tool for tool in ("ip", "jq", "unshare", "make") if not shutil.which(tool)]
    if os.geteuid() != 0 or missing:
        say(f"needs root, and: {', '.join(missing) or 'nothing else'}")
        sys.exit(77)
    BUILT.mkdir(parents=True, exist_ok=True)
    built = subprocess.run([ROOT / "tools" / "collbench.sh"], stdout=subprocess.DEVNULL,
                           check=False)
    args.mpis = [mpi for mpi in args.mpis if build_programs(mpi)]
    if built.returncode != 0 or not args.mpis:
        sys.exit(77)
    for library in {library_of(mpi) for mpi in args.mpis} - set(args.preload):
        path = RELEASE / f"libomnes-mpi-{library}.so"
        if path.is_file():
            args.preload[library] = path
        else:
            say(f"missing: {path} ('make mpi' builds it); {library} is measured plain only")


def preload(text):
    library, _, path = text.partition("=")
    if library not in ("openmpi", "mpich") or not pathlib.Path(path).is_file():
        raise argparse.ArgumentTypeError(f"{text} is not MPI=PATH of a library that is there")
    return library, pathlib.Path(path).resolve()


def percentage(text):
    if not re.fullmatch(r"\d+(\.\d+)?%", text):
        raise argparse.ArgumentTypeError(f"{text} is no share such as 1%")
    return text


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench-mpi", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--n", type=list_of(int), default="8", help="numbers of hosts (default: %(default)s)")
    add("--mpis", type=list_of(one_of(MPIS)), default="openmpi,mpich-yield",
        help="MPIs (default: %(default)s)")
    add("--ops", type=list_of(one_of(OPS)), default="bcast,barrier",
        help=f"operations, of {', '.join(OPS)} (default: %(default)s)")
    add("--sizes", type=list_of(parse_size), default="8,1k,64k,1m",
        help="message sizes in bytes, with k and m (default: %(default)s)")
    add("--rounds", type=int, default=5, help="rounds (default: %(default)s)")
    add("--budget", type=float, default=0.3, help="seconds per point (default: %(default)s)")
    add("--preload", type=preload, action="append", default=[], metavar="MPI=PATH",
        help="library to preload (default: target/release/libomnes-mpi-MPI.so)")
    add("--sync", choices=("barrier", "messages"), default="barrier",
        help="how ranks of MPIs meet before each iteration (default: %(default)s)")
    add("--env", action="append", default=[], metavar="NAME=VALUE",
        help="variable for preloaded ranks, besides OMNES_NIC=kernel; may be repeated")
    add("--loss", type=percentage, metavar="SHARE", help="packets dropped by each link, e.g. 1%%")
    add("--passed", action="store_true", help="also the cost of calls passed to the MPI")
    add("--target", type=float, default=0.85, help="minimum share kept (default: %(default)s)")
    add("--wait", type=float, default=5,
        help="maximum wait in seconds for a quiet machine before a job (default: %(default)s)")
    add("--timeout", type=float, default=180, help="seconds a job may take (default: %(default)s)")
    add("--out", metavar="FILE", help="append each point to FILE as a JSON line")
    args = parser.parse_args()
    args.preload = dict(args.preload)
    if args.rounds < 1 or min(args.n) < 2 or max(args.n) > 200:
        parser.error("--rounds must be at least 1, --n 2 to 200")
    return args


def main():
    args = parse_arguments()
    prepare(args)
    with MpiSite(max(args.n), args) as site:
        rounds = Rounds(args, site)
        rounds.run()
    good = print_results(rounds)
    good &= print_passed(rounds)
    for failure in rounds.failures:
        say(f"failed: {failure}")
    return 0 if good and not rounds.failures else 1


if __name__ == "__main__":
    sys.exit(main())
