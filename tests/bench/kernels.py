#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares programs that run the same kernels. Usage: kernels.py NAME=COMMAND...

The first is measured against each of the others. A command is one of the programs that
`scripts/bench kernels` builds, with its arguments; assignments in front of it go to its environment.
Prints medians of interleaved runs in microseconds of wall and of processor time, and all ratios.
"""

import contextlib
import math
import os
import shlex
import statistics
import subprocess
import sys

REPEATS = 21
KERNELS = """triad gemm_naive gemm_tiled mandelbrot nbody maths reduce subgroup histogram transpose
stencil sort_step""".split()
# Changes what it sorts: each run sees what the one before has left.
UNSTEADY = {"sort_step"}


def split(command):
    """A command's words, and the environment with the assignments in front of it."""
    words, env = shlex.split(command), dict(os.environ)
    while "=" in words[0]:
        key, value = words.pop(0).split("=", 1)
        env[key] = value
    return words, env


class Program:
    """A program that runs a kernel for each line that it reads."""

    def __init__(self, name, command):
        words, env = split(command)
        self.name = name
        self.process = subprocess.Popen(
            words, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, kernel):
        """Wall and processor microseconds and the sum of the results, or None if it has ended."""
        try:
            self.process.stdin.write(kernel + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        words = self.process.stdout.readline().split()
        return tuple(map(float, words)) if len(words) == 3 else None

    def end(self):
        # It may have ended by itself, with a command unread.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()


def agree(a, b):
    return math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-3)


def measure(kernel, programs):
    """Medians by program, and whether the results are the same. The first run builds."""
    runs = {program: [] for program in programs}
    sums = {}
    for _ in range(REPEATS + 1):
        for program in programs:
            result = program.run(kernel)
            if result:
                runs[program].append(result)
                sums.setdefault(program, result[2])
    medians = {
        program: tuple(statistics.median(run[k] for run in list_[1:]) for k in (0, 1))
        for program, list_ in runs.items() if len(list_) > 1
    }
    first = next(iter(sums.values()), 0)
    same = kernel in UNSTEADY or all(agree(first, other) for other in sums.values())
    return medians, same


def mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan


def main():
    programs = [Program(*word.split("=", 1)) for word in sys.argv[1:]]
    if not programs:
        sys.exit(__doc__)
    own, peers = programs[0], programs[1:]
    head = f"{'kernel':12}{own.name + ' µs':>12}{'cpu':>10}"
    head += "".join(f"{p.name + ' µs':>14}{'cpu':>10}{'ratio':>8}{'cpu':>7}" for p in peers)
    print(head)
    ratios = {peer: [] for peer in peers}
    for kernel in KERNELS:
        medians, same = measure(kernel, programs)
        if own not in medians:
            print(f"{kernel:12}{'failed':>12}")
            continue
        wall, cpu = medians[own]
        line = f"{kernel:12}{wall:12.0f}{cpu:10.0f}"
        for peer in peers:
            if peer not in medians:
                line += f"{'missing':>14}{'':>25}"
                continue
            peer_wall, peer_cpu = medians[peer]
            ratios[peer].append((peer_wall / wall, peer_cpu / max(cpu, 1)))
            line += f"{peer_wall:14.0f}{peer_cpu:10.0f}"
            line += f"{peer_wall / wall:8.2f}{peer_cpu / max(cpu, 1):7.2f}"
        print(line + ("" if same else "  results differ"), flush=True)
    for peer in peers:
        for what, which in (("wall", 0), ("processor time", 1)):
            all_ = sorted(pair[which] for pair in ratios[peer])
            if len(all_) > 2:
                print(f"{own.name} against {peer.name}, {what}: geometric mean {mean(all_):.2f}, "
                      f"without best and worst {mean(all_[1:-1]):.2f}, least {all_[0]:.2f}")
    for program in programs:
        program.end()


if __name__ == "__main__":
    main()
