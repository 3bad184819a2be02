#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measures the gain of each mechanism of device/src/tuning.rs. Usage: tuning.py [OPTION]... FOLDER THREADS KERNELS

FOLDER has a driver NAME.so for each mechanism, in which it is switched off, and all.so, in which all are on.
THREADS and KERNELS are the commands of the programs that `scripts/bench tuning` builds. All drivers do the same
in turn, five times. A row shows how much longer an operation takes without the mechanism, as the median over the
rounds, in per cent: in one thread, and in as many as there are cores; then processor time likewise.
"""

import argparse
import math
import os
import shlex
import statistics
import sys
from pathlib import Path

import kernels
import threads

ROUNDS = 5
OPERATIONS = ["trip", "limit", "stream", "slowly", "short", "series", "copy-4", "long", "fill", "few", "many",
              "ask", "look", "rest"]
# Kernels with few groups, with many short ones, and with few long ones.
KERNELS = ["triad", "reduce", "histogram", "transpose", "sort_step", "mandelbrot"]


def command(driver, words):
    return f"ZE_ENABLE_ALT_DRIVERS={shlex.quote(str(driver))} {words}"


def measure_operations(drivers, words, counts, seconds):
    """Nanoseconds of wall and processor time, by driver, operation and number of threads; one a round."""
    figures = {}
    programs = {name: threads.Program(command(driver, words)) for name, driver in drivers.items()}
    try:
        for _ in range(ROUNDS):
            for operation in OPERATIONS:
                for count in counts:
                    for name, program in programs.items():
                        rate, processor = threads.measure([program], operation, count, seconds)
                        figures.setdefault((operation, count), {}).setdefault(name, []).append(
                            (count * 1e9 / rate, processor))
    finally:
        for program in programs.values():
            program.kill()
    return figures


def measure_kernels(drivers, words):
    """Microseconds of wall and processor time, as geometric means over the kernels; one a round."""
    figures = {}
    programs = {name: kernels.Program(name, command(driver, words)) for name, driver in drivers.items()}
    for round_ in range(ROUNDS + 1):
        sums = {name: [] for name in programs}
        for kernel in KERNELS:
            for name, program in programs.items():
                sums[name].append(program.run(kernel))
        for name, results in sums.items():
            # The first run includes the build.
            if round_ and None not in results:
                mean = tuple(math.exp(statistics.fmean(math.log(max(it[k], 0.1)) for it in results)) for k in (0, 1))
                figures.setdefault(name, []).append(mean)
    for program in programs.values():
        program.end()
    return figures


def gain(own, base, which):
    """The increase over the base, in per cent, as the median over the rounds."""
    return 100 * (statistics.median(a[which] / b[which] for a, b in zip(own, base)) - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--only", action="append", help="mechanism; default: all", metavar="NAME")
    parser.add_argument("folder", type=Path)
    parser.add_argument("threads", metavar="THREADS")
    parser.add_argument("kernels", metavar="KERNELS")
    arguments = parser.parse_args()
    names = sorted(it.stem for it in arguments.folder.glob("*.so") if it.stem != "all")
    names = [name for name in names if not arguments.only or name in arguments.only]
    drivers = {name: arguments.folder / f"{name}.so" for name in ["all", *names]}
    counts = [1, len(os.sched_getaffinity(0))]
    try:
        figures = measure_operations(drivers, arguments.threads, counts, arguments.seconds)
    except threads.Hung as hung:
        sys.exit(f"tuning.py: {hung}")
    figures = {f"{operation} {count}": of for (operation, count), of in figures.items()}
    figures["kernels"] = measure_kernels(drivers, arguments.kernels)
    for which, title in ((0, "wall time"), (1, "processor time")):
        print(f"{title} without each mechanism, in per cent more; threads after each operation")
        print(f"{'':18}" + "".join(f"{column:>13}" for column in figures))
        unit = "".join(f"{statistics.median(it[which] for it in of['all']):13,.0f}" for of in figures.values())
        print(f"{'all on: ns, us':18}{unit}")
        for name in names:
            print(f"{name:18}" + "".join(f"{gain(of[name], of['all'], which):13.0f}" for of in figures.values()))
        print()


if __name__ == "__main__":
    main()
