#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs Tally's tests on a machine with many cores, from a folder that scripts/campaign has made.

A program hangs if it makes no progress for a minute. Its seed, its output and, if there is a debugger,
the stacks of its threads are then kept, and the campaign continues. The status is 0 if nothing hung, differed
or failed.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BENCH = HERE / "bench"
CORES = len(os.sched_getaffinity(0))
TICK = os.sysconf("SC_CLK_TCK")
# Seconds without progress after which a program hangs.
HUNG = 60
# Seconds for a test program that makes progress but does not end, for example because it spins.
ENDLESS = 900
# Random programs of one process. Each process builds its kernels first, which takes as long as a hundred
# programs.
PROGRAMS = 5000
# A program whose last sign of life is younger, in seconds, is still making progress.
ALIVE = 5
RANDOM = ["ze_random_programs", "--exact", "the_driver_agrees_with_the_model", "--nocapture"]
RACES = ["random_races", "--exact", "programs", "--ignored", "--nocapture"]
# The tests print this as soon as a program differs. The first spends a while then on making the program smaller.
DIFFERS = ("before it is made smaller", "of the seed")
# Reports of the driver's checks of programs that make no mistake.
FALSE = ("tally: races", "tally: sync")


def loader():
    """The folder of the newest Level Zero loader that this machine's C library can load."""
    for folder in sorted((HERE / "loaders").iterdir(), key=lambda it: version(it.name), reverse=True):
        # In a process of its own: an incompatible loader must not stay in this one.
        try:
            libraries = environment(folder)
            subprocess.run(
                [sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])",
                 folder / "libze_loader.so.1"], env=libraries, check=True, capture_output=True)
            return folder
        except subprocess.CalledProcessError:
            continue
    sys.exit("campaign: no Level Zero loader of the pack fits this machine's C library")


def version(name):
    return [int(part) for part in name.split(".")]


def environment(loader_folder):
    """The environment of all programs: the pack's libraries, and the recorded SPIR-V."""
    libraries = [loader_folder, HERE / "lib", os.environ.get("LD_LIBRARY_PATH")]
    return os.environ | {
        "LD_LIBRARY_PATH": ":".join(str(it) for it in libraries if it),
        "PATH": f"{HERE / 'tools'}:{os.environ.get('PATH', os.defpath)}",
        "TALLY_CLANG": str(HERE / "tools/clang"),
        "TALLY_COMPILER": str(HERE / "bin/tally-compiler"),
        "TALLY_LIBRARY": str(HERE / "bin/libze_tally.so"),
        "TALLY_SPIRV": os.environ.get("TALLY_SPIRV", str(HERE / "spirv")),
        "TALLY_TEST_FILES": str(HERE / "files"),
        "ZE_ENABLE_ALT_DRIVERS": str(HERE / "bin/libze_tally.so"),
    }


class Kept:
    """Outputs and stacks for later inspection, in a folder that is created when it is needed."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def file(self, name):
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / name


class Child:
    """A test program in a session of its own, with its output in a file."""

    def __init__(self, name, command, env, folder):
        self.name = name
        self.log = Path(folder) / f"{name}.log"
        self.started = self.moved = time.monotonic()
        self.signs = None
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True)

    def look(self, signs):
        """Records signs of life; returns the number of seconds since the last new one."""
        if signs != self.signs:
            self.signs, self.moved = signs, time.monotonic()
        return time.monotonic() - self.moved

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def text(self):
        return self.log.read_text(errors="replace")

    def keep(self, kept, what):
        """Keeps the output, and the stacks of a program that still runs; returns the place."""
        file = kept.file(f"{self.name}.{what}.txt")
        shutil.copyfile(self.log, file)
        debugger = shutil.which("cuda-gdb") or shutil.which("gdb")
        if self.process.poll() is None and debugger:
            with open(file, "a", encoding="utf-8") as out:
                for pid in session(self.process.pid):
                    print(f"\n==== stacks of process {pid}", file=out, flush=True)
                    command = [debugger, "-p", str(pid), "-batch", "-ex", "thread apply all bt"]
                    try:
                        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                       timeout=120, check=False)
                    except subprocess.TimeoutExpired:
                        print("the debugger hangs", file=out)
        return file


def stats():
    """Process number, session and ticks of processor time of every process."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = Path(entry.path, "stat").read_text(errors="replace")
            except OSError:
                continue
            # The name of the program, in parentheses, may contain anything.
            words = stat.rpartition(")")[2].split()
            yield int(entry.name), int(words[3]), int(words[11]) + int(words[12])


def session(leader):
    return [pid for pid, session_, _ in stats() if session_ == leader]


class Counts:
    """The findings of a campaign, and their place."""

    def __init__(self):
        self.hangs, self.differences, self.failures = [], [], []

    def report(self):
        for what in ("hangs", "differences", "failures"):
            found = getattr(self, what)
            print(f"{what:12} {len(found)}")
            for line in found:
                print(f"  {line}")
        return 1 if self.hangs or self.differences or self.failures else 0


class Random:
    """Processes that run random programs, each with a seed of its own."""

    def __init__(self, arguments, env, folder):
        self.arguments, self.env, self.folder = arguments, env, folder
        self.kept, self.counts = Kept(arguments.keep), Counts()
        self.seed, self.done, self.running = arguments.seed, 0, {}

    def start(self):
        seed, self.seed = self.seed, self.seed + 1
        progress = Path(self.folder) / f"{seed}.progress"
        progress.write_bytes(b"")
        env = self.env | {
            "TALLY_SEED": str(seed), "TALLY_PROGRAMS": str(self.arguments.programs),
            "TALLY_RUNS": str(self.arguments.runs), "TALLY_PROGRESS": str(progress)}
        if self.arguments.chaos:
            env["TALLY_CHAOS"] = str(seed)
        if self.arguments.delays:
            driver = str(HERE / "bin/libze_tally-delays.so")
            env |= {"TALLY_DELAYS": str(seed), "TALLY_LIBRARY": driver, "ZE_ENABLE_ALT_DRIVERS": driver}
        if self.arguments.checks or self.arguments.races:
            env["TALLY_CHECK"] = "races,sync"
        if self.arguments.races:
            env |= {"TALLY_LANE": "embedded", "TALLY_CHECK_LOG": str(Path(self.folder) / f"{seed}.races")}
        test, *options = RACES if self.arguments.races else RANDOM
        command = [HERE / "tests" / test, *options]
        self.running[seed] = Child(f"random-{seed}", command, env, self.folder)

    def programs_of(self, seed):
        return int.from_bytes((Path(self.folder) / f"{seed}.progress").read_bytes(), "little")

    def forget(self, seed):
        child = self.running.pop(seed)
        child.kill()
        self.done += self.programs_of(seed)
        child.log.unlink()
        for kind in ("progress", "races"):
            (Path(self.folder) / f"{seed}.{kind}").unlink(missing_ok=True)

    def found(self, seed, what):
        child, number = self.running[seed], self.programs_of(seed)
        file = child.keep(self.kept, what)
        variables = f" TALLY_CHAOS={seed}" if self.arguments.chaos else ""
        variables += f" TALLY_DELAYS={seed}" if self.arguments.delays else ""
        line = (f"after program {number} of TALLY_SEED={seed} TALLY_PROGRAMS={self.arguments.programs}"
                f"{variables}: {file}")
        print(f"{what}: {line}", flush=True)
        self.forget(seed)
        return line

    def is_right(self, child):
        """Whether its output has neither a difference nor a false report."""
        text = child.text()
        # A program with races has reports of races, which the test compares with the model's.
        false = FALSE[1:] if self.arguments.races else FALSE
        return not any(it in text for it in DIFFERS + false)

    def look(self, seed, ending):
        """One process: whether it has ended, hangs, or may be ended because the time is over."""
        child = self.running[seed]
        status = child.process.poll()
        silent = child.look(self.programs_of(seed))
        if status == 0 and self.is_right(child):
            self.forget(seed)
        elif status is None and silent <= HUNG and not (ending and silent < ALIVE and child.signs):
            return
        elif not self.is_right(child):
            self.counts.differences.append(self.found(seed, "difference"))
        elif status is not None:
            what = f"signal-{-status}" if status < 0 else f"status-{status}"
            self.counts.failures.append(self.found(seed, what))
        elif silent > HUNG:
            self.counts.hangs.append(self.found(seed, "hang"))
        else:
            self.forget(seed)

    def run(self):
        start = time.monotonic()
        last = start + self.arguments.seconds
        while self.running or time.monotonic() < last:
            ending = time.monotonic() >= last
            while not ending and len(self.running) < self.arguments.processes:
                self.start()
            for seed in list(self.running):
                self.look(seed, ending)
            if len(self.counts.failures) > 20:
                print("too many processes fail: given up", flush=True)
                break
            time.sleep(0.1)
        for seed in list(self.running):
            self.forget(seed)
        how = ", on the adversarial device" if self.arguments.chaos else ""
        how += ", with delays" if self.arguments.delays else ""
        how += ", with races" if self.arguments.races else ", under checks" if self.arguments.checks else ""
        print(f"{self.done:,} random programs in {time.monotonic() - start:.0f} s, "
              f"{self.arguments.processes} processes on {CORES} cores{how}, "
              f"seeds {self.arguments.seed} to {self.seed - 1}")
        return self.counts.report()


class Tests:
    """All test programs, several side by side."""

    def __init__(self, arguments, env, folder):
        self.arguments, self.env, self.folder = arguments, env, folder
        self.kept, self.counts = Kept(arguments.keep), Counts()
        self.running, self.passed, self.ended = [], 0, 0
        self.tests = HERE / "tests"
        if arguments.tsan:
            self.watch()

    def watch(self):
        """Uses the programs and the driver built with ThreadSanitizer."""
        folder = HERE / "tsan"
        if not folder.is_dir():
            sys.exit("campaign: the pack was made without --with-tsan")
        options = (folder / "options").read_text().strip()
        driver = str(folder / "bin/libze_tally.so")
        self.tests = folder / "tests"
        self.env = self.env | {
            "TALLY_LIBRARY": driver, "ZE_ENABLE_ALT_DRIVERS": driver,
            "TSAN_OPTIONS": f"{options} suppressions={folder / 'tsan.supp'}"}

    def programs(self):
        every = sorted(it for it in self.tests.iterdir() if it.is_file())
        wanted = self.arguments.names
        return [it for it in every if not wanted or it.name in wanted]

    def start(self, program, round_):
        name = program.name if self.arguments.rounds == 1 else f"{program.name}-{round_}"
        child = Child(name, [program], self.env, self.folder)
        child.ticks = 0
        self.running.append(child)

    def look(self, child, ticks):
        status = child.process.poll()
        # A program that sleeps uses no processor time; its monitoring threads use next to none.
        if ticks > child.ticks + TICK // 10:
            child.ticks = ticks
        silent = child.look((child.ticks, child.log.stat().st_size))
        endless = time.monotonic() - child.started > ENDLESS
        if status is None and (silent > HUNG or endless):
            self.counts.hangs.append(f"{child.name}: {child.keep(self.kept, 'hang')}")
        elif status is not None:
            text = child.text()
            names = [line.split()[1] for line in text.splitlines()
                     if line.startswith("test ") and line.endswith("... FAILED")]
            self.passed += sum(line.startswith("test ") and line.endswith("... ok")
                               for line in text.splitlines())
            if status:
                file = child.keep(self.kept, "failure")
                what = ", ".join(names) or f"ended with {status}"
                self.counts.failures.append(f"{child.name}: {what}: {file}")
            elif self.arguments.verbose:
                print(f"{child.name}: {time.monotonic() - child.started:.1f} s", flush=True)
        else:
            return
        child.kill()
        child.log.unlink()
        self.running.remove(child)
        self.ended += 1

    def run(self):
        start = time.monotonic()
        wanted = [(it, round_) for round_ in range(self.arguments.rounds) for it in self.programs()]
        while wanted or self.running:
            while wanted and len(self.running) < self.arguments.processes:
                self.start(*wanted.pop(0))
            ticks = {}
            for _, session_, used in stats():
                ticks[session_] = ticks.get(session_, 0) + used
            for child in list(self.running):
                self.look(child, ticks.get(child.process.pid, 0))
            time.sleep(0.2)
        print(f"{self.passed:,} tests of {self.ended} programs passed in {time.monotonic() - start:.0f} s, "
              f"{self.arguments.processes} programs at a time on {CORES} cores")
        return self.counts.report()


class Bench:
    """A benchmark of the pack, beside the peer if that was unpacked too."""

    COMMANDS = {"scaling": ("threads", BENCH), "kernels": ("kernels", BENCH / "bench.spv")}

    def __init__(self, arguments, env, folder):
        self.arguments, self.env, self.folder = arguments, env, folder

    def run(self):
        if self.arguments.command == "tuning":
            return self.tuning()
        name, module = self.COMMANDS[self.arguments.command]
        programs = ["Tally=" + shlex.join([str(BENCH / name), str(module)])]
        peer = HERE / "peer"
        if peer.is_dir():
            libraries = f"LD_LIBRARY_PATH={peer}:{self.env['LD_LIBRARY_PATH']}"
            words = [libraries, f"OCL_ICD_FILENAMES={peer}/libintelocl.so", str(peer / name), str(module)]
            programs.append("Intel=" + shlex.join(words))
        if name == "kernels":
            programs.append("threads=" + self.bare(module))
        command = [sys.executable, BENCH / f"{name}.py", *self.arguments.options, *programs]
        return subprocess.run(command, env=self.env, check=False).returncode

    def bare(self, module):
        """The command that runs a module's code on threads without a driver."""
        code = Path(self.folder) / "blobs"
        subprocess.run([BENCH / "blobs", module, code], env=self.env, check=True)
        return shlex.join([str(BENCH / "kernels-bare"), str(code)])

    def tuning(self):
        """Measures the gain of each mechanism of the device."""
        drivers = BENCH / "mechanisms"
        if not drivers.is_dir():
            sys.exit("campaign: the pack was made without --with-tuning")
        programs = [shlex.join([str(BENCH / name), str(module)]) for name, module in self.COMMANDS.values()]
        command = [sys.executable, BENCH / "tuning.py", *self.arguments.options, drivers, *programs]
        return subprocess.run(command, env=self.env, check=False).returncode


def parse():
    parser = argparse.ArgumentParser(prog="run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", default="campaign-kept", metavar="FOLDER",
                        help="where outputs and stacks are kept (default: campaign-kept)")
    commands = parser.add_subparsers(dest="command", required=True)
    random = commands.add_parser("random", help="random programs against the model of events")
    random.add_argument("--seconds", type=float, default=60)
    random.add_argument("--chaos", action="store_true",
                        help="on the adversarial device: TALLY_CHAOS is the seed")
    random.add_argument("--delays", action="store_true",
                        help="the device's threads wait now and then where they race: TALLY_DELAYS is the seed")
    random.add_argument("--checks", action="store_true",
                        help="under TALLY_CHECK=races,sync: a report is a difference")
    random.add_argument("--races", action="store_true",
                        help="programs with races, which the driver's checks have to tell as the model does")
    random.add_argument("--processes", type=int, default=CORES, metavar="N",
                        help="at the same time (default: as many as cores)")
    random.add_argument("--seed", type=int, default=1, metavar="N", help="the first process's (default: 1)")
    random.add_argument("--programs", type=int, default=PROGRAMS, metavar="N",
                        help=f"of each process (default: {PROGRAMS})")
    random.add_argument("--runs", type=int, default=1, metavar="N",
                        help="times that each program runs (default: 1)")
    tests = commands.add_parser("tests", help="the tests of the API and the device, side by side")
    tests.add_argument("names", nargs="*", help="of test programs (default: all)")
    tests.add_argument("--processes", type=int, default=max(2, CORES // 4), metavar="N",
                       help="programs at the same time (default: a quarter of the cores)")
    tests.add_argument("--rounds", type=int, default=1, metavar="N", help="times that each runs (default: 1)")
    tests.add_argument("--tsan", action="store_true", help="with a driver that ThreadSanitizer watches")
    tests.add_argument("--verbose", action="store_true", help="how long each program took")
    commands.add_parser("scaling", add_help=False,
                        help="how operations scale with threads; takes the options of bench/threads.py")
    commands.add_parser("kernels", help="wall and processor time of kernels")
    commands.add_parser("tuning", add_help=False,
                        help="what each mechanism gains; takes the options of bench/tuning.py")
    arguments, options = parser.parse_known_args()
    arguments.options = options
    if arguments.options and arguments.command not in ("scaling", "tuning"):
        parser.error(f"unknown: {' '.join(arguments.options)}")
    return arguments


def main():
    arguments = parse()
    arguments.keep = Path(arguments.keep).resolve()
    folder = loader()
    print(f"loader {folder.name}, {CORES} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="tally-campaign-run-") as scratch:
        run = {"random": Random, "tests": Tests}.get(arguments.command, Bench)
        return run(arguments, environment(folder), scratch).run()


if __name__ == "__main__":
    sys.exit(main())
