#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the time that programs wait for first launches. Usage: first.py FOLDER NAME=COMMAND...

Commands are the same as for kernels.py; each time a program is started again. FOLDER has modules NAME.spv: of each,
one group of every kernel is launched, in turn. Programs with a cache on disk are measured without it,
or with an empty one, and with one that such a run has filled. Prints medians of interleaved runs:
milliseconds from before the module's creation until that was done, until the first kernel had run, and
until all had; processor time and peak memory of the program, from its start, and of the processes that
it has started.
"""

import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import uuid

from compile import NO_CACHE, cost
from kernels import split
from spirv import launches

REPEATS = 11
# Modules with more kernels than this run fewer times, and without the peers' caches.
MANY, REPEATS_OF_MANY = 100, 3
SECONDS = 300
# The variable for the cache's folder, by the name of the program. Intel's run time has no cache.
CACHES = {"Tally": "TALLY_CACHE_DIR", "PoCL": "POCL_CACHE_DIR"}


def run(words, env, module, lines):
    """Milliseconds until the module is created, until the first and the last kernel has run, of processor
    time, and MiB; or None if the program fails."""
    # A driver's helper processes need not be its children, but have its environment.
    env = env | {"BENCH_RUN": uuid.uuid4().hex}
    with subprocess.Popen(
            [*words, str(module)], env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL) as process:
        guard = threading.Timer(SECONDS, process.kill)
        guard.start()
        try:
            answers = []
            for line in lines:
                process.stdin.write(line + "\n")
                process.stdin.flush()
                answers.append(process.stdout.readline().split())
                if not answers[-1]:
                    return None
            return (*(float(each) for each in (answers[0][0], answers[0][2], answers[-1][2])),
                    *cost(env["BENCH_RUN"].encode()))
        except BrokenPipeError:
            return None
        finally:
            guard.cancel()
            process.communicate()


def measure(programs, module, lines, folder):
    """Runs by the name of the program and of the state of its cache."""
    runs, many, own = {}, len(lines) > MANY, programs[0][0]
    for _ in range(REPEATS_OF_MANY if many else REPEATS):
        for name, words, env in programs:
            states = {name: NO_CACHE}
            if name in CACHES and (name == own or not many):
                cache = os.path.join(folder, name)
                shutil.rmtree(cache, ignore_errors=True)
                os.mkdir(cache)
                cached = {CACHES[name]: cache, "TALLY_CACHE": "1"}
                states |= {f"{name}, empty cache": cached, f"{name}, filled cache": cached}
            for title, more in states.items():
                done = runs.setdefault(title, [])
                # A repeat of a failed run would only take time.
                if None not in done:
                    done.append(run(words, env | more, module, lines))
    return runs


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    programs = [(name, *split(command)) for name, command in (word.split("=", 1) for word in sys.argv[2:])]
    with tempfile.TemporaryDirectory() as folder:
        for module in sorted(pathlib.Path(sys.argv[1]).glob("*.spv")):
            lines = launches(module.read_bytes())
            kernel = lines[0].split()[0] if len(lines) == 1 else f"{len(lines)} kernels"
            print(f"\n{module.stem}: {kernel}, {module.stat().st_size} bytes", flush=True)
            print(f"{'':24}{'module ms':>12}{'first':>10}{'last':>10}{'cpu':>10}{'MiB':>8}")
            for name, runs in measure(programs, module, lines, folder).items():
                good = [each for each in runs if each]
                line = "fails"
                if len(good) == len(runs):
                    wall, first, last, cpu, mib = map(statistics.median, zip(*good))
                    line = f"{wall:12.1f}{first:10.1f}{last:10.1f}{cpu:10.0f}{mib:8.0f}"
                print(f"{name:24}{line:>12}", flush=True)


if __name__ == "__main__":
    main()
