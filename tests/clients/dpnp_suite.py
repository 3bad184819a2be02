# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs dpnp's own tests, file by file, unattended. `scripts/clients dpnp` starts this.

Each file is run by pytest in a process of its own. It writes each result at once, so an interrupted run
continues where it was: tests with a result are not run again, and the one during which the process
died or hung has "died" or "timed out" as its result. The results of a device are in FOLDER/DEVICE, a file
of tab-separated lines for each test file.
"""

import argparse
import collections
import hashlib
import os
import pathlib
import subprocess
import sys
import time

# Results of a finished test: of its set-up, call and tear-down, the one that comes first here counts.
ORDER = ["died", "timed out", "failed", "xfailed", "skipped", "passed"]
# The exit status of a process that has lost its device: the remaining tests run in a new one.
LOST = 17
# Replaces a file's tests if they could not be listed.
COLLECTION = "(collection)"


def read(path):
    """The result and the reason of each test in a file of results; the one that was running has none."""
    results = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        test, result, reason = (line.split("\t") + ["", ""])[:3]
        results[test] = (result, reason)
    return results


def key(test):
    """A test's name in a file of results: pytest puts values into names, including line breaks."""
    return " ".join(test.split())


class Recorder:
    """The part within pytest: selects tests, and records their results."""

    def __init__(self, path, sample, seed):
        self.path, self.sample, self.seed = path, sample, seed
        self.worst = {}
        self.lost = False

    def write(self, *words):
        with self.path.open("a") as out:
            out.write("\t".join(words) + "\n")

    def pytest_collection_modifyitems(self, items):
        done = read(self.path)
        if self.sample:
            # By name, so that devices with different tests have most of the sample in common.
            kept = set(sorted((item.nodeid for item in items), key=self.chance)[: self.sample])
            items[:] = [item for item in items if item.nodeid in kept]
        items[:] = [item for item in items if key(item.nodeid) not in done]

    def chance(self, test):
        name = test.partition("::")[2]
        return hashlib.sha256(f"{self.seed} {name}".encode()).digest()

    def pytest_runtest_logstart(self, nodeid):
        self.write(key(nodeid))

    def pytest_runtest_logreport(self, report):
        reason = ""
        if hasattr(report, "wasxfail"):
            result = "xfailed" if report.skipped else "passed"
        else:
            result = report.outcome
        if result == "failed":
            crash = getattr(report.longrepr, "reprcrash", None)
            lines = (crash.message if crash else str(report.longrepr)).split("\n")
            reason = " ".join(" ".join(lines[:3]).split())[:200]
            self.lost |= "DEVICE_LOST" in str(report.longrepr)
        before = self.worst.get(report.nodeid)
        if before is None or ORDER.index(result) < ORDER.index(before[0]):
            self.worst[report.nodeid] = (result, reason)

    def pytest_runtest_logfinish(self, nodeid):
        self.write(key(nodeid), *self.worst.pop(nodeid, ("skipped", "")))
        if self.lost:
            pytest.exit("the device is lost", LOST)


def run_file(arguments):
    """Runs one file, in its process. Only pytest imports dpnp, after its options."""
    global pytest
    import pytest

    recorder = Recorder(pathlib.Path(arguments.record), arguments.sample, arguments.seed)
    options = ["-q", "-p", "no:cacheprovider", "--tb=short", "--no-header", "-W", "ignore"]
    # Without this, pytest looks for dpnp's fixtures and lists of tests to skip only in the file's
    # folder.
    options += ["--confcutdir", arguments.root]
    status = pytest.main([*options, arguments.files[0]], plugins=[recorder])
    # 0, all passed; 1, some failed; 5, none were left to run. Python ends with 1, too, if pytest cannot start.
    sys.exit(0 if status in (0, 1, 5) else status)


def watch(command, path, limit):
    """Runs one file's process to its end; returns whether it ended by itself and ran all tests."""
    log = path.with_suffix(".log").open("ab")
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    size, since = -1, time.monotonic()
    while process.poll() is None:
        time.sleep(0.5)
        now = path.stat().st_size if path.exists() else 0
        if now != size:
            size, since = now, time.monotonic()
        elif time.monotonic() - since > limit:
            process.kill()
            process.wait()
            return end_running(path, "timed out", f"no result after {limit} s")
    if process.returncode == 0:
        return True
    if process.returncode == LOST:
        return False
    return end_running(path, "died", f"the process ended with {process.returncode}")


def end_running(path, result, reason):
    """Records the result of the test that was running. If there was none, the tests could not even be listed."""
    running = [test for test, (known, _) in read(path).items() if not known]
    if not running:
        with path.open("a") as out:
            out.write(f"{COLLECTION}\t{result}\t{reason}\n")
        return True
    with path.open("a") as out:
        out.write(f"{running[-1]}\t{result}\t{reason}\n")
    return False


def record(folder, device, root, file):
    name = str(file.relative_to(root).with_suffix("")).replace("/", ".")
    return folder / device / f"{name}.tsv"


def run_all(arguments, root, files):
    runner = [arguments.tally_run, "--loader", "sid"] if arguments.device == "tally" else []
    for at, file in enumerate(files, 1):
        path = record(arguments.folder, arguments.device, root, file)
        path.parent.mkdir(parents=True, exist_ok=True)
        done = path.with_suffix(f".{arguments.sample}-{arguments.seed}.done")
        if done.exists():
            continue
        # Tests that were interrupted when the whole run was stopped run again, and so do files without
        # tests.
        lines = path.read_text().splitlines() if path.exists() else []
        kept = [line for line in lines if "\t" in line and not line.startswith(COLLECTION)]
        path.write_text("".join(line + "\n" for line in kept))
        own = [sys.executable, __file__, "--record", str(path), "--root", str(root)]
        chosen = ["--sample", str(arguments.sample), "--seed", str(arguments.seed)]
        command = [*runner, *own, *chosen, str(file)]
        while not watch(command, path, arguments.limit):
            pass
        results = read(path)
        if COLLECTION not in results:
            done.touch()
        counts = collections.Counter(result for result, _ in results.values())
        told = ", ".join(f"{counts[result]} {result}" for result in ORDER if counts[result])
        print(f"{at} of {len(files)}, {path.stem}: {told}", flush=True)


def table(folder, devices):
    """A row for each file, then the reasons of each device, the most frequent first."""
    names = sorted({path.stem for device in devices for path in (folder / device).glob("*.tsv")})
    heads = [f"{device}: passed | failed | skipped" for device in devices]
    print(f"| file | {' | '.join(heads)} |\n|---|{'---|' * 3 * len(devices)}")
    totals = [collections.Counter() for _ in devices]
    reasons = [collections.Counter() for _ in devices]
    for name in names:
        cells = []
        for device, total, reason in zip(devices, totals, reasons):
            counts = collections.Counter()
            for result, why in read(folder / device / f"{name}.tsv").values():
                kind = {"passed": "passed", "xfailed": "skipped", "skipped": "skipped"}
                kind = kind.get(result, "failed")
                counts[kind] += 1
                if kind == "failed":
                    reason[(name, f"{result}: {why}")] += 1
            total.update(counts)
            cells += [f"{counts[kind]:,}" for kind in ("passed", "failed", "skipped")]
        print(f"| `{name}` | {' | '.join(cells)} |")
    cells = [f"{total[kind]:,}" for total in totals for kind in ("passed", "failed", "skipped")]
    print(f"| all | {' | '.join(cells)} |")
    for device, reason in zip(devices, reasons):
        print(f"\n{device}:")
        for (name, why), times in reason.most_common():
            print(f"{times:6} {name}: {why}")


def main():
    parser = argparse.ArgumentParser(prog="scripts/clients dpnp", description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=["tally", "intel-cpu"], default="tally", help="tally")
    parser.add_argument("--sample", type=int, default=0, help="tests of a file, by chance; default: all")
    parser.add_argument("--seed", type=int, default=1, help="of that choice; default: 1")
    parser.add_argument("--limit", type=int, default=600, help="seconds for one test; default: 600")
    parser.add_argument("--shard", default="1/1", help="2/3: of every three files the second")
    parser.add_argument("--table", action="store_true", help="only show the results there are")
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--tally-run", help=argparse.SUPPRESS)
    parser.add_argument("--record", help=argparse.SUPPRESS)
    parser.add_argument("--root", help=argparse.SUPPRESS)
    parser.add_argument("files", nargs="*", help="test_sort, linalg_tests.test_product, …; default: all")
    arguments = parser.parse_args()
    if arguments.record:
        run_file(arguments)
    if arguments.table:
        return table(arguments.folder, ["tally", "intel-cpu"])
    packages = next(path for path in map(pathlib.Path, sys.path) if (path / "dpnp/tests").is_dir())
    root = packages / "dpnp/tests"
    files = sorted(root.rglob("test_*.py"))
    if arguments.files:
        wanted = tuple(f".{name}" for name in arguments.files)
        names = {file: "." + ".".join(file.relative_to(root).with_suffix("").parts) for file in files}
        files = [file for file in files if names[file].endswith(wanted)]
    shard, of = map(int, arguments.shard.split("/"))
    files = files[shard - 1 :: of]
    if arguments.device == "tally":
        os.environ["ONEAPI_DEVICE_SELECTOR"] = "level_zero:gpu"
    else:
        os.environ["ONEAPI_DEVICE_SELECTOR"] = "opencl:cpu"
        os.environ["OCL_ICD_FILENAMES"] = f"{sys.prefix}/lib/libintelocl.so"
        os.environ["LD_LIBRARY_PATH"] = f"{sys.prefix}/lib"
    run_all(arguments, root, files)


main()
