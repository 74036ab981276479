#!/usr/bin/env python3
"""Run mpi4py's own tests on an MPI, plain and with a library preloaded.

For each MPI, a virtual environment is created once, with mpi4py built from its
source package of the Python index; the tests are those of the same package.
Each module of tests is a run of its own, so a hang or a crash costs one
module, which is then run again test by test. The output of each rank is kept
separately, and a test passes if it passes on all ranks.

A test counts against the library if it passes without and fails with it. Tests
that fail or hang without any library are listed in KNOWN, with the reason.

examples:
  tools/mpi4py-suite.py --ranks 4 --mpi openmpi
  tools/mpi4py-suite.py --ranks 2,4,5 --preload openmpi=PATH --preload mpich=PATH
  tools/mpi4py-suite.py --quick --env OMNES_MPI_ONE_NODE=on --env OMNES_SHM=off

Status: 0; 1 if a test fails with the library only; 2 for invalid usage; 77 if
nothing can be run here.
"""

import argparse
import collections
import fnmatch
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

from arguments import list_of, one_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()

MPIS = ("openmpi", "mpich")
VERSION = "4.0.3"  # works with both MPIs
SCRIPT = "test/main.py"
# Modules that use broadcasts, barriers, requests and communicators.
QUICK = ("test_cco_buf", "test_cco_nb_buf", "test_cco_obj", "test_comm", "test_request",
         "test_cco_buf_inter", "test_attributes", "test_grequest", "test_util_sync")
TEST_S = 60  # limit of one test
STOP_S = 5  # time for a run to end after TERM

# Excluded by name (a pattern of "module.Class.test"), per MPI, with the reason.
SPAWN = "processes of theirs do not end where ranks outnumber cores"
DOCSTRINGS = "today's Cython leaves other white space in docstrings than the test allows"
KNOWN = {
    "openmpi": {"test_doc.TestDoc.testDoc": DOCSTRINGS, "test_spawn.*": SPAWN},
    "mpich": {"test_doc.TestDoc.testDoc": DOCSTRINGS, "test_spawn.*": SPAWN,
              "test_util_sync.*World.*": "its locks in other ranks' memory may never be granted"},
}

# "testName (module.Class.testName) ... ok", which output of the test itself may split.
LINE = re.compile(r"^(\w+) \((\w+)\.([\w.]+?)(?:\.\1)?\)(.*)$")
VERDICT = re.compile(r"(ok|FAIL|ERROR|skipped .*|expected failure|unexpected success)\s*$")
PASSED = ("ok", "skipped", "expected failure")

Run = collections.namedtuple("Run", "mpi ranks preload")


def say(text):
    print(f"mpi4py-suite: {text}", file=sys.stderr, flush=True)


# ---- what the tests need ------------------------------------------------------


def missing_tool(mpi):
    """The first tool of the MPI that is missing, or None."""
    for tool in (f"mpicc.{mpi}", f"mpirun.{mpi}"):
        if not shutil.which(tool):
            return tool
    return None


def call(command, **options):
    """Run a step of the preparation; its output is shown only if it fails."""
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            check=False, **options)
    if result.returncode != 0:
        say(f"{' '.join(map(str, command))} failed:")
        print(result.stdout[-3000:], file=sys.stderr)
        sys.exit(77)


def source_package(cache):
    """The unpacked source package, fetched once."""
    folder = cache / f"mpi4py-{VERSION}"
    if (folder / SCRIPT).is_file():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    packed = cache / f"mpi4py-{VERSION}.tar.gz"
    if not packed.is_file():
        say(f"fetching mpi4py {VERSION}")
        call([sys.executable, "-m", "pip", "download", "--no-binary", "mpi4py", "--no-deps",
              "--dest", cache, f"mpi4py=={VERSION}"])
    with tarfile.open(packed) as archive:
        archive.extractall(cache)
    return folder


def environment_of(mpi, cache, source):
    """The Python with mpi4py for this MPI, built once."""
    folder = cache / f"venv.{mpi}"
    python = folder / "bin" / "python"
    built = folder / f"mpi4py-{VERSION}"
    if built.exists():
        return python
    say(f"building mpi4py {VERSION} for {mpi}, which takes a minute or more")
    call([sys.executable, "-m", "venv", "--clear", folder])
    # Unoptimized: compiling takes a tenth of the time, and nothing here is measured.
    call([python, "-m", "pip", "install", "--no-deps", source],
         env=dict(os.environ, MPICC=f"mpicc.{mpi}", CFLAGS="-O0 -g0"))
    built.touch()
    return python


# ---- one run ------------------------------------------------------------------


def launcher(mpi, ranks):
    """mpirun with all ranks on this machine; waiting ranks yield if the MPI supports it."""
    if mpi == "openmpi":
        return ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", "--mca",
                "mpi_yield_when_idle", "1", "--mca", "orte_abort_print_stack", "0",
                "-n", str(ranks)]
    return ["mpirun.mpich", "-n", str(ranks)]


# Each rank writes to a file of its own.
RANK_SCRIPT = """
exec "$@" > "$SUITE_OUT/${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" 2>&1
"""


class Suite:
    """Runs modules of tests and keeps verdicts: {run: {test: verdict}}."""

    def __init__(self, args):
        self.args = args
        self.source = source_package(args.cache)
        self.pythons = {mpi: environment_of(mpi, args.cache, self.source) for mpi in args.mpi}
        self.verdicts = {}

    def modules(self):
        names = sorted(path.stem for path in (self.source / "test").glob("test_*.py"))
        return [name for name in names if not self.args.quick or name in QUICK]

    def command(self, run, module, test, skip):
        variables = list(self.args.env)
        libraries = [run.preload, self.args.always.get(run.mpi)]
        if any(libraries):
            # Passed to Python only, so that it does not affect mpirun and the shell.
            variables.append("LD_PRELOAD=" + ":".join(map(str, filter(None, libraries))))
        rank = ["sh", "-c", RANK_SCRIPT, "rank", "env", *variables, self.pythons[run.mpi],
                self.source / SCRIPT, "--no-builddir", "--no-numpy", "-v"]
        for pattern in skip:
            rank += ["-x", pattern]
        if test:
            rank += ["-k", test.split(".", 1)[1]]
        return [*launcher(run.mpi, run.ranks), *rank, "-i", f"^{module}\\.py$"]

    def execute(self, run, module, test=None, limit_s=None, skip=()):
        """Run one module, or one of its tests; return the ranks' outputs and why it ended badly, or
        None.
        """
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", PYTHONDONTWRITEBYTECODE="1",
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        with tempfile.TemporaryDirectory(prefix="omnes-mpi4py.") as folder:
            environment["SUITE_OUT"] = folder
            with open(os.path.join(folder, "launcher"), "w", encoding="utf-8") as out:
                child = subprocess.Popen(self.command(run, module, test, skip), env=environment,
                                         cwd=folder, stdin=subprocess.DEVNULL, stdout=out,
                                         stderr=out, start_new_session=True)
                why = wait_for(child, limit_s or self.args.timeout)
            texts = [pathlib.Path(folder, str(rank)) for rank in range(run.ranks)]
            outputs = [text.read_text(errors="replace") if text.exists() else "" for text in texts]
        return outputs, why

    def run_module(self, run, module):
        known = [pattern for pattern in KNOWN[run.mpi] if pattern.split(".")[0] == module]
        verdicts = self.verdicts.setdefault(run, {})
        outputs, why = self.execute(run, module, skip=known)
        found = merge([verdicts_in(output) for output in outputs])
        if why:
            # Tests before the hang have their verdict; the others are run one by one.
            say(f"{run.mpi}, {run.ranks} ranks, {module}: {why}")
            for test in self.tests_of(run, module, known):
                if found.get(test) not in PASSED:
                    found[test] = self.run_test(run, module, test)
        verdicts.update(found)

    def tests_of(self, run, module, known):
        """The names of a module's tests, according to unittest."""
        program = ("import sys, unittest; sys.path.insert(0, sys.argv[1]); "
                   "sys.modules['numpy'] = None\n"
                   "def walk(suite):\n"
                   "    for test in suite:\n"
                   "        if isinstance(test, unittest.TestSuite): walk(test)\n"
                   "        else: print(test.id())\n"
                   "walk(unittest.defaultTestLoader.loadTestsFromName(sys.argv[2]))\n")
        command = [*launcher(run.mpi, 1), self.pythons[run.mpi], "-c", program,
                   self.source / "test", module]
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        out = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True,
                             stderr=subprocess.DEVNULL, check=False).stdout
        tests = [line for line in out.splitlines() if line.startswith(f"{module}.")]
        return [test for test in tests if not any(fnmatch.fnmatch(test, name) for name in known)]

    def run_test(self, run, module, test):
        outputs, why = self.execute(run, module, test, TEST_S)
        verdict = merge([verdicts_in(output) for output in outputs]).get(test, "not run")
        return f"{verdict}, {why}" if why and verdict in ("not run", "no verdict") else verdict

    def run_all(self):
        for mpi in self.args.mpi:
            preloads = [None, self.args.preload[mpi]] if mpi in self.args.preload else [None]
            for ranks in self.args.ranks:
                for library in preloads:
                    run = Run(mpi, ranks, library)
                    start = time.monotonic()
                    for module in self.modules():
                        self.run_module(run, module)
                    report(run, self.verdicts[run], time.monotonic() - start)


def wait_for(child, limit_s):
    """Wait for a run; return why it ended badly, or None. Failed tests are not a bad end."""
    try:
        status = child.wait(limit_s)
        return None if status in (0, 1) else f"status {status}"
    except subprocess.TimeoutExpired:
        stop(child)
        return f"no end after {limit_s} s"
    except BaseException:
        stop(child)
        raise


def stop(child):
    """Terminate a launcher, which terminates its ranks."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
            child.wait(STOP_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


# ---- verdicts -----------------------------------------------------------------


def verdicts_in(text):
    """{test: verdict} of one rank's output."""
    found, test = {}, None
    for line in text.splitlines():
        match = LINE.match(line)
        if match:
            name, module, owner, rest = match.groups()
            test = f"{module}.{owner}.{name}"
            found[test] = "no verdict"
            line = rest
        verdict = VERDICT.search(line)
        if test and verdict and (match or line.strip() == verdict.group(1)):
            found[test] = verdict.group(1).split(" '")[0].split(' "')[0]
            test = None
    return found


def merge(ranks):
    """The worst verdict of all ranks; a test that a rank did not reach has none."""
    merged = {}
    for test in sorted({test for rank in ranks for test in rank}):
        verdicts = [rank.get(test, "no verdict") for rank in ranks]
        bad = [verdict for verdict in verdicts if verdict not in PASSED]
        merged[test] = bad[0] if bad else "ok" if "ok" in verdicts else verdicts[0]
    return merged


def report(run, verdicts, seconds):
    bad = sorted(test for test, verdict in verdicts.items() if verdict not in PASSED)
    kind = "with the library" if run.preload else "plain"
    count = collections.Counter(verdicts.values())
    print(f"{run.mpi}, {run.ranks} ranks, {kind}: {count['ok']} ok, {count['skipped']} skipped, "
          f"{len(bad)} bad, {seconds:.0f} s", flush=True)
    for test in bad:
        print(f"    {test}: {verdicts[test]}", flush=True)


def compare(verdicts):
    """Tests that pass without and fail with the library, as text."""
    lines = []
    for run, with_it in verdicts.items():
        if not run.preload:
            continue
        for test, verdict in sorted(verdicts[run._replace(preload=None)].items()):
            if verdict in PASSED and with_it.get(test, "not run") not in PASSED:
                lines.append(f"{run.mpi}, {run.ranks} ranks: {test}: {verdict} without, "
                             f"{with_it.get(test, 'not run')} with the library")
    return lines


# ---- command line -------------------------------------------------------------


def preload(text):
    mpi, _, path = text.partition("=")
    if mpi not in MPIS or not pathlib.Path(path).is_file():
        raise argparse.ArgumentTypeError(f"{text} is not MPI=PATH of a library that is there")
    return mpi, str(pathlib.Path(path).resolve())


def parse_arguments():
    parser = argparse.ArgumentParser(prog="mpi4py-suite", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--mpi", type=one_of((*MPIS, "both")), default="both", help="MPI (default: %(default)s)")
    add("--ranks", type=list_of(int), default="4", help="numbers of ranks (default: %(default)s)")
    add("--preload", type=preload, action="append", default=[], metavar="MPI=PATH",
        help="library to preload for an MPI; may be repeated")
    add("--always", type=preload, action="append", default=[], metavar="MPI=PATH",
        help="library to preload in all runs, e.g. one that makes waiting ranks yield")
    add("--env", action="append", default=[], metavar="NAME=VALUE",
        help="variable for the ranks; may be repeated")
    add("--quick", action="store_true", help=f"run only {', '.join(QUICK)}")
    add("--cache", type=pathlib.Path, default=TARGET / "mpi4py",
        help="build folder of mpi4py (default: target/mpi4py)")
    add("--timeout", type=int, default=240,
        help="time limit in seconds per module of tests (default: %(default)s)")
    add("--out", type=pathlib.Path, metavar="FILE", help="write all verdicts to FILE as JSON")
    args = parser.parse_args()
    args.cache = args.cache.resolve()
    args.mpi = list(MPIS) if args.mpi == "both" else [args.mpi]
    args.preload, args.always = dict(args.preload), dict(args.always)
    return args


def main():
    args = parse_arguments()
    for mpi in list(args.mpi):
        if missing_tool(mpi):
            say(f"missing: {missing_tool(mpi)}, so {mpi} is left out")
            args.mpi.remove(mpi)
    if not args.mpi:
        return 77
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    suite = Suite(args)
    suite.run_all()
    if args.out:
        rows = [dict(run._asdict(), verdicts=found) for run, found in suite.verdicts.items()]
        args.out.write_text(json.dumps(rows, indent=1))
    worse = compare(suite.verdicts)
    for line in worse:
        print(f"worse: {line}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
