"""A lab of namespace hosts in which MPIs and Omnes run the same programs, job
by job.

The folder of the peers (OMNES_PEERS; default ../shared/peers beside this
repository) contains the lab and the launcher of MPIs.
"""

import collections
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RELEASE = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "release"
PEERS = pathlib.Path(os.environ.get("OMNES_PEERS", ROOT.parent / "shared" / "peers")).resolve()
BUILT = RELEASE / "peers"
QUIET = 0.15  # a job may start if less than this share of the machine is in use
PORT_FIRST = 20000  # within our own namespaces, so not in use otherwise
STOP_S = 10  # time for a job to end after TERM

Job = collections.namedtuple("Job", "impl n program ops sizes")


def say(text):
    print(f"{pathlib.Path(sys.argv[0]).stem}: {text}", file=sys.stderr, flush=True)


def is_omnes(impl):
    """True for programs started by Omnes: itself, and the floor, measured with its help."""
    return impl == "floor" or impl.split(":")[0] == "omnes"


def build(command, what):
    """Run a build command; True if it succeeds, else report that `what` is left out."""
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, check=False)
    if result.returncode != 0:
        say(f"{what} is left out: {' '.join(map(str, command[:3]))} failed:")
        print(result.stdout[-2000:], file=sys.stderr)
    return result.returncode == 0


# ---- the lab, and jobs in it --------------------------------------------------


class Site:
    """The lab, its running job, and a folder for files that jobs leave behind.

    Unless `aslr` is true, all ranks of a job, of any library, have the same memory layout, as in
    the labs of `omnes run`: ranks that share a core then need not retrain its branch predictor in
    each turn, as hosts with cores of their own need not.
    """

    def __init__(self, hosts, aslr=False):
        self.hosts = hosts
        self.layout = [] if aslr else ["setarch", platform.machine(), "--addr-no-randomize"]
        self.lab = PEERS / "lab"
        self.scratch = tempfile.TemporaryDirectory(prefix="omnes-peers.")
        self.environment = dict(os.environ, LAB_NAME=f"omb{os.getpid()}", TMPDIR=self.scratch.name)
        self.subnet = self.environment.setdefault("LAB_SUBNET", "10.78.0")
        self.child = None
        self.jobs = 0

    def __enter__(self):
        # Every signal must reach __exit__, even one that the shell of a background job ignores.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: sys.exit(128 + number))
        try:
            if self.lab.is_file():
                subprocess.run([self.lab, "up", str(self.hosts)], env=self.environment, check=True)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self.stop()
        if self.lab.is_file():
            # Also ends processes that a launcher left running in the namespaces.
            subprocess.run([self.lab, "down"], env=self.environment, check=False)
        self.scratch.cleanup()

    def stop(self):
        """End the running job, if any, with all its processes here."""
        if self.child is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.child.pid, number)
                self.child.wait(STOP_S)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        self.child = None

    def command(self, job, options):
        """The command line of a job."""
        if is_omnes(job.impl):
            return self.omnes_command(job, options)
        library = job.impl.split("-")[0]
        program = BUILT / f"{'mpibench' if job.program == 'collbench' else 'pt2pt'}.{library}"
        config, extra = job.impl, []
        if job.impl in ("mpich", "mpich-yield"):
            # As mpi-in-lab does for these, with the fix from where we built it.
            config, extra = "mpich-bare", ["--preload", BUILT / "mpichfix.so"]
            if job.impl == "mpich-yield":
                extra += ["--env", "MPICHFIX_YIELD=1"]
        return [PEERS / "mpi-in-lab", *extra, config, "-n", str(job.n), "--", program, *options]

    def omnes_command(self, job, options):
        program = RELEASE / f"omnes-{'floor' if job.impl == 'floor' else job.program}"
        if not self.lab.is_file():
            return [RELEASE / "omnes", "run", "-n", str(job.n), "--lab=ephemeral", "--no-prefix",
                    "--", program, *options]
        # A new port for every job, so that packets of the last one cannot be mistaken for this
        # one's.
        port = PORT_FIRST + self.jobs
        variables = "OMNES_RANK=$LAB_RANK OMNES_SIZE=$LAB_SIZE "
        variables += f"OMNES_RENDEZVOUS={self.subnet}.1:{port}"
        algorithm = job.impl.partition(":")[2]
        if algorithm:
            variables += f" OMNES_BCAST={algorithm}"
        return [self.lab, "run", str(job.n), "sh", "-c", f'{variables} exec "$0" "$@"', program,
                *options]

    def run(self, job, options, timeout_s):
        """Run a job; return its points and None, or the points before a failure and its reason."""
        self.jobs += 1
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            command = self.layout + self.command(job, options)
            self.child = subprocess.Popen(command, env=self.environment,
                                          stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                          start_new_session=True)
            try:
                status = self.child.wait(timeout_s)
                self.child = None
                why = f"status {status}" if status else None
            except subprocess.TimeoutExpired:
                why = f"no end after {timeout_s:.0f} s"
                self.stop()
            out.seek(0)
            err.seek(0)
            # A terminated rank may leave half a line.
            whole = [line for line in out if line.startswith("{") and line.endswith("}\n")]
            points = [json.loads(line) for line in whole]
            return points, why and f"{why}: {err.read().strip()[-600:]}"


def wait_until_quiet(limit_s):
    """Wait, at most `limit_s`, until the machine is nearly idle."""

    def read():
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(field) for field in file.readline().split()[1:8]]
        return sum(ticks), ticks[3] + ticks[4]

    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        all_before, idle_before = read()
        time.sleep(0.5)
        all_after, idle_after = read()
        if (idle_after - idle_before) > (1 - QUIET) * (all_after - all_before):
            return


# ---- tables ---------------------------------------------------------------------


def size_name(size):
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} B" if size else "-"


def print_table(title, head, rows):
    print(f"\n{title}")
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, ["-" * width for width in widths], *rows]:
        # Names to the left, numbers to the right.
        cells = [cell.ljust(width) if i < 2 else cell.rjust(width)
                 for i, (cell, width) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())


def spread(ratios):
    if not ratios:
        return "-"
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})"
