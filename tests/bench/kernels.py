#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares programs that run the same kernels. Usage: kernels.py NAME=COMMAND... [KERNEL...]

The first is compared with each of the others, with all kernels or with those that are named. A command is one of the
programs that `scripts/bench kernels` builds, with its arguments; assignments in front of it set its environment.
Prints medians of interleaved runs in microseconds of wall and of processor time, all ratios, and for each
ratio of wall times the lower bound that the median of its pairs has with a confidence of 95 %.

All programs are started several times. Where the pages of a process lie decides how well its arrays share the
processor's caches: arrays as large as the last cache take up to twice as long in one process as in the next.
"""

import contextlib
import math
import os
import shlex
import statistics
import subprocess
import sys

STARTS = 3
# Of each start.
REPEATS = 7
CLASSES = {
    "Memory": "triad saxpy4 lengths transpose stencil stencil3d".split(),
    "Compute": "gemm_naive nbody maths pricing polynomial".split(),
    "Private arrays": "block_hash lattice attention matrix4 top8 dct8".split(),
    "Local memory and barriers": "gemm_tiled reduce scan bitonic fft256 convolve".split(),
    "Divergence": "mandelbrot collatz spheres cube_root".split(),
    "Gather": "sparse table permute".split(),
    "Integers": "sort_step philox crc32 murmur bits".split(),
    "Sub-groups": "subgroup subgroup_scan subgroup_broadcast".split(),
    "Numbers of 16 bits": "half_axpy half_dot".split(),
    "Numbers of 64 bits": "double_axpy double_maths double_stencil".split(),
    "Bytes": "grey blur8 dot8".split(),
    "Atomics": "histogram count_global largest".split(),
    "Launches": "small".split(),
}
KERNELS = [kernel for kernels in CLASSES.values() for kernel in kernels]
# Each run works on the results of the previous one.
UNSTEADY = {"sort_step", "small"}


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
        # It may have ended by itself, without reading a command.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()


def agree(a, b):
    return math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-3)


class Runs:
    """The runs of a kernel."""

    def __init__(self, kernel):
        self.kernel, self.by_name, self.same = kernel, {}, True

    def add(self, programs):
        """Runs the kernel in programs that have been started. The first run of each builds."""
        sums = {}
        for repeat in range(REPEATS + 1):
            for program in programs:
                result = program.run(self.kernel)
                if result and repeat == 0:
                    sums[program.name] = result[2]
                elif result:
                    self.by_name.setdefault(program.name, []).append(result)
        first = next(iter(sums.values()), 0)
        if self.kernel not in UNSTEADY:
            self.same &= all(agree(first, other) for other in sums.values())


def medians(runs):
    return tuple(statistics.median(run[k] for run in runs) for k in (0, 1))


def lower_bound(ratios):
    """The median's lower bound by the two-sided sign test, with a confidence of slightly more than 95 %."""
    ratios, below, chance = sorted(ratios), 0, 0.0
    while (chance := chance + math.comb(len(ratios), below) / 2 ** len(ratios)) <= 0.025:
        below += 1
    return ratios[max(below - 1, 0)]


def mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else math.nan


class Against:
    """The comparison of the first program with another."""

    WHAT = ("wall", "processor time")

    def __init__(self, own, peer):
        self.name, self.peer = f"{own} against {peer}", peer
        self.ratios = {}

    def add(self, kernel, own, runs):
        """The columns of a kernel."""
        wall, cpu = medians(own)
        peer_wall, peer_cpu = medians(runs)
        self.ratios[kernel] = (peer_wall / wall, peer_cpu / max(cpu, 1))
        bound = lower_bound([other[0] / mine[0] for mine, other in zip(own, runs)])
        return (f"{peer_wall:14.0f}{peer_cpu:10.0f}{peer_wall / wall:8.2f}{bound:7.2f}"
                f"{peer_cpu / max(cpu, 1):7.2f}")

    def of_class(self, kernels):
        """The mean ratios of a class."""
        pairs = [self.ratios[kernel] for kernel in kernels if kernel in self.ratios]
        means = [mean([pair[which] for pair in pairs]) for which in range(2)]
        return f"{'':24}{means[0]:8.2f}{'':7}{means[1]:7.2f}"

    def of_all(self):
        """The sums over all kernels, by line."""
        for which, what in enumerate(self.WHAT):
            all_ = sorted(pair[which] for pair in self.ratios.values())
            if len(all_) > 2:
                yield (f"{self.name}, {what}: geometric mean {mean(all_):.2f}, "
                       f"without best and worst {mean(all_[1:-1]):.2f}, least {all_[0]:.2f}")


def line(runs, own, against):
    """The line of a kernel."""
    if own not in runs.by_name:
        return f"{runs.kernel:20}{'failed':>12}"
    wall, cpu = medians(runs.by_name[own])
    text = f"{runs.kernel:20}{wall:12.0f}{cpu:10.0f}"
    for other in against:
        if other.peer in runs.by_name:
            text += other.add(runs.kernel, runs.by_name[own], runs.by_name[other.peer])
        else:
            text += f"{'missing':>14}{'':>32}"
    return text + ("" if runs.same else "  results differ")


def main():
    commands = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    chosen = [word for word in sys.argv[1:] if "=" not in word] or KERNELS
    if not commands or not set(chosen) <= set(KERNELS):
        sys.exit(__doc__)
    measured = {kernel: Runs(kernel) for kernel in chosen}
    for _ in range(STARTS):
        programs = [Program(name, command) for name, command in commands.items()]
        for runs in measured.values():
            runs.add(programs)
        for program in programs:
            program.end()
    own, *peers = commands
    against = [Against(own, peer) for peer in peers]
    head = f"{'kernel':20}{own + ' µs':>12}{'cpu':>10}"
    head += "".join(f"{p + ' µs':>14}{'cpu':>10}{'ratio':>8}{'>=':>7}{'cpu':>7}" for p in peers)
    print(head)
    for title, kernels in CLASSES.items():
        kernels = [kernel for kernel in kernels if kernel in chosen]
        for kernel in kernels:
            print(line(measured[kernel], own, against))
        if kernels and against:
            print(f"{title:42}" + "".join(other.of_class(kernels) for other in against) + "\n")
    for other in against:
        print("\n".join(other.of_all()))


if __name__ == "__main__":
    main()
