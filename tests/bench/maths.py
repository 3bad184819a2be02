#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the speed and the accuracy of mathematical functions. Usage: maths.py NAME=COMMAND... [FUNCTION...]

The first program is compared with each of the others. A command is a build of tests/bench/maths.c with
its module. Prints for floats and doubles the processor time of a value in nanoseconds, as the minimum of
interleaved runs, and the worst error in units of the last place (ulp).
"""

import sys

from kernels import Program, mean

FUNCTIONS = (
    "exp exp2 exp10 expm1 log log2 log10 log1p sqrt rsqrt cbrt pow powr hypot sin cos tan sine_and_cosine sinpi "
    "cospi asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf erfc tgamma lgamma fmod"
).split()
REPEATS = 3


def main():
    programs = [Program(*word.split("=", 1)) for word in sys.argv[1:] if "=" in word]
    chosen = [word for word in sys.argv[1:] if "=" not in word] or FUNCTIONS
    if not programs or not set(chosen) <= set(FUNCTIONS):
        sys.exit(__doc__)
    own, *peers = programs
    for bits in (32, 64):
        head = f"{f'{bits} bits':20}{own.name + ' ns':>12}{'ulp':>8}"
        print(head + "".join(f"{p.name + ' ns':>14}{'ulp':>8}{'ratio':>8}" for p in peers))
        ratios = {peer: [] for peer in peers}
        for function in chosen:
            results = {program: [] for program in programs}
            for _ in range(REPEATS):
                for program in programs:
                    if result := program.run(f"{function}{bits}"):
                        results[program].append(result)
            if not results[own]:
                print(f"{function:20}{'failed':>12}")
                continue
            best = {program: min(runs) for program, runs in results.items() if runs}
            line = f"{function:20}{best[own][0]:12.2f}{best[own][1]:8.2f}"
            for peer in peers:
                if peer in best:
                    ratio = best[peer][0] / best[own][0]
                    ratios[peer].append(ratio)
                    line += f"{best[peer][0]:14.2f}{best[peer][1]:8.2f}{ratio:8.2f}"
                else:
                    line += f"{'missing':>14}{'':16}"
            print(line, flush=True)
        print(f"{'mean':40}" + "".join(f"{mean(ratios[peer]):30.2f}" for peer in peers) + "\n")
    for program in programs:
        program.end()


if __name__ == "__main__":
    main()
