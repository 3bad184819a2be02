#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measures how operations scale with threads. Usage: threads.py [--seconds S] [--cores N] [--only NAME] NAME=COMMAND...

A command is a program that `scripts/bench threads` builds, with its arguments; assignments in front of it set
its environment. Each operation runs for S seconds in 1, 2, 4 ... N threads of one process and in as many
processes, all in turn, five times. Prints medians, and how threads scale in comparison with processes:
(threads' rate at N / at 1) / (processes' rate at N / at 1).
"""

import argparse
import itertools
import os
import selectors
import shlex
import statistics
import subprocess
import sys
import time

ROUNDS = 5
# Seconds for a measurement beyond its own length. After that it counts as hung.
PATIENCE = 60
# Until all processes have read their requests.
LEAD = 0.05
OPERATIONS = {
    "append": "append to a regular list",
    "event": "CB event (OpenCL: user event), create and destroy",
    "trip": "empty kernel and wait, one engine",
    "trip-4": "empty kernel and wait, four engines",
    "stream": "stream of empty kernels, one engine",
    "stream-4": "stream of empty kernels, four engines",
    "allocate": "allocate and free 4 KiB",
    "copy-4": "copy of 64 KiB and wait, four engines",
    "memcpy": "no driver: memcpy of 64 KiB",
}
# Further operations for `scripts/bench tuning` and --only.
MORE = {
    "limit": "empty kernel, and wait with a time limit",
    "slowly": "stream of empty kernels, with 4 µs between two",
    "short": "stream of copies of 64 bytes",
    "series": "recorded list of 256 copies of 64 bytes, to its end",
    "long": "copy of 1 MiB and wait, four engines",
    "fill": "fill of 1 MiB and wait, four engines",
    "few": "stream of kernels of 16 empty groups",
    "many": "stream of kernels of 4,096 empty groups",
    "ask": "eight empty kernels and waits, then one that is only asked for",
    "look": "eight empty kernels and waits, then a copy whose result is looked for",
    "rest": "empty kernel and wait after 12 ms of sleep",
}
TITLES = OPERATIONS | MORE


class Hung(Exception):
    """A program did not answer."""


class Program:
    """A process that makes the requested measurements, line by line."""

    def __init__(self, command):
        words, environment = shlex.split(command), dict(os.environ)
        while "=" in words[0]:
            key, value = words.pop(0).split("=", 1)
            environment[key] = value
        self.process = subprocess.Popen(
            words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)

    def ask(self, operation, threads, start, seconds):
        self.process.stdin.write(f"{operation} {threads} {start} {seconds}\n")
        self.process.stdin.flush()

    def answer(self, seconds):
        """Operations per second and processor nanoseconds of one; None for an unknown operation."""
        if not self.selector.select(seconds + PATIENCE):
            raise Hung(f"process {self.process.pid} does not answer")
        line = self.process.stdout.readline()
        if not line:
            raise Hung(f"process {self.process.pid} has ended")
        words = line.split()
        return (float(words[0]), float(words[1])) if len(words) == 2 else None

    def kill(self):
        self.process.kill()
        self.process.wait()


def measure(programs, operation, threads, seconds):
    """The same from all programs at once: the sum of their rates, and the cost of one operation."""
    start = time.monotonic_ns() + LEAD * 1e9
    for program in programs:
        program.ask(operation, threads, int(start), seconds)
    answers = [program.answer(seconds) for program in programs]
    if None in answers:
        return None
    rate = sum(answer[0] for answer in answers)
    return rate, sum(answer[0] * answer[1] for answer in answers) / rate


def counts_of(cores):
    """1, 2, 4 ... and the number of cores itself."""
    counts = [1]
    while counts[-1] * 2 < cores:
        counts.append(counts[-1] * 2)
    return counts + [cores] * (cores > 1)


class Samples:
    """Every round's figures of one operation: by number of threads, and of processes."""

    def __init__(self):
        self.of = {"threads": {}, "processes": {}}

    def add(self, kind, count, figures):
        self.of[kind].setdefault(count, []).append(figures)

    def median(self, kind, count, which):
        return statistics.median(sample[which] for sample in self.of[kind][count])

    def scaling(self, count):
        rate = {kind: self.median(kind, count, 0) / self.median(kind, 1, 0) for kind in self.of}
        return rate["threads"] / rate["processes"]

    def scalings(self, count):
        """The same for each round."""
        rates = zip(*(self.of[kind][number] for kind in self.of for number in (count, 1)))
        return [tn[0] / t1[0] / (pn[0] / p1[0]) for tn, t1, pn, p1 in rates]


def run(commands, counts, seconds, wanted):
    """Samples by operation of each program."""
    programs = {}
    samples = {name: {} for name in commands}
    try:
        for name, command in commands.items():
            programs[name] = [Program(command) for _ in range(max(counts))]
        for _ in range(ROUNDS):
            for operation, name, count in itertools.product(wanted, commands, counts):
                own = programs[name]
                for kind, some, threads in (("threads", own[:1], count), ("processes", own[:count], 1)):
                    figures = measure(some, operation, threads, seconds)
                    if figures:
                        samples[name].setdefault(operation, Samples()).add(kind, count, figures)
    finally:
        for program in itertools.chain(*programs.values()):
            program.kill()
    return samples


def print_operation(operation, samples, counts):
    print(f"\n{TITLES[operation]}")
    rows = [
        ("thousand a second, threads", lambda n: samples.median("threads", n, 0) / 1e3),
        ("  processes", lambda n: samples.median("processes", n, 0) / 1e3),
        ("wall ns of one in its thread", lambda n: n * 1e9 / samples.median("threads", n, 0)),
        ("  processes", lambda n: n * 1e9 / samples.median("processes", n, 0)),
        ("processor ns of one, threads", lambda n: samples.median("threads", n, 1)),
        ("  processes", lambda n: samples.median("processes", n, 1)),
    ]
    for title, figure in rows:
        print(f"  {title:34}" + "".join(f"{figure(count):12,.0f}" for count in counts))
    print(f"  {'scaling':34}" + "".join(f"{samples.scaling(count):12.3f}" for count in counts))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.2)
    parser.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--only", action="append", choices=TITLES)
    parser.add_argument("programs", nargs="+", metavar="NAME=COMMAND")
    arguments = parser.parse_args()
    counts = counts_of(arguments.cores)
    commands = dict(word.split("=", 1) for word in arguments.programs)
    try:
        samples = run(commands, counts, arguments.seconds, arguments.only or list(OPERATIONS))
    except Hung as hung:
        sys.exit(f"threads.py: {hung}")
    summary = []
    for name in commands:
        print(f"{name}; threads, or processes: " + ", ".join(map(str, counts)))
        for operation, own in samples[name].items():
            print_operation(operation, own, counts)
            scalings = own.scalings(counts[-1])
            summary.append(f"{name + ', ' + TITLES[operation]:64}{own.scaling(counts[-1]):8.3f}"
                           f"  [{min(scalings):.3f}..{max(scalings):.3f}]")
        print()
    print(f"scaling, {counts[-1]} threads beside as many processes: of medians [least..most of {ROUNDS} rounds]")
    print("\n".join(summary))


if __name__ == "__main__":
    main()
