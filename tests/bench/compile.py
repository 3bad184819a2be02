#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the cost for programs until a kernel has run for the first time. Usage: compile.py NAME=COMMAND...

The first program is compared with each of the others. Commands are the same as for kernels.py. Each time a program
is started again, loads the module and runs one kernel, or all. Prints medians of interleaved runs: wall
time from the start to the last result, processor time and peak memory of the program and of the
processes that it has started.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import time
import uuid

from kernels import KERNELS, split

REPEATS = 9
# PoCL has a cache on disk unless told otherwise.
NO_CACHE = {"POCL_KERNEL_CACHE": "0", "TALLY_CACHE": "0"}
TICK = os.sysconf("SC_CLK_TCK")


def processes(mark):
    """The folders in /proc of the processes whose environment contains a word."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes():
                yield folder
        except OSError:
            continue  # another user's, or ended


def cost(mark):
    """Milliseconds of processor time and MiB of peak memory of all such processes."""
    ticks, kib = 0, 0
    for folder in processes(mark):
        try:
            stat, status = (folder / "stat").read_text(), (folder / "status").read_text()
        except OSError:
            continue  # it has ended meanwhile
        # Its own time and that of its ended children.
        ticks += sum(map(int, stat.rpartition(")")[2].split()[11:15]))
        kib += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return 1e3 * ticks / TICK, kib / 1024


def run(command, kernels):
    """Wall and processor milliseconds and MiB, or None if the program fails."""
    words, env = split(command)
    # A driver's helper processes need not be its children, but have its environment.
    env |= NO_CACHE | {"BENCH_RUN": uuid.uuid4().hex}
    start = time.monotonic()
    with subprocess.Popen(
            words, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL) as process:
        try:
            for kernel in kernels:
                process.stdin.write(kernel + "\n")
                process.stdin.flush()
                if not process.stdout.readline():
                    return None
            wall = 1e3 * (time.monotonic() - start)
            return (wall, *cost(env["BENCH_RUN"].encode()))
        except BrokenPipeError:
            return None
        finally:
            process.communicate()


def main():
    programs = [word.split("=", 1) for word in sys.argv[1:]]
    if not programs:
        sys.exit(__doc__)
    print(f"{'kernel':12}" + "".join(f"{name + ' ms':>14}{'cpu':>8}{'MiB':>7}" for name, _ in programs))
    for title, kernels in [(kernel, [kernel]) for kernel in KERNELS] + [("all", KERNELS)]:
        runs = {name: [] for name, _ in programs}
        for _ in range(REPEATS):
            for name, command in programs:
                runs[name].append(run(command, kernels))
        line = f"{title:12}"
        for name, _ in programs:
            good = [each for each in runs[name] if each]
            if good:
                wall, cpu, mib = (statistics.median(column) for column in zip(*good))
                line += f"{wall:14.0f}{cpu:8.0f}{mib:7.0f}"
            else:
                line += f"{'missing':>14}{'':15}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
