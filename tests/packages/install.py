#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measures the time from an installation to a kernel's result. Usage: install.py SYSTEM

SYSTEM is a folder of scripts/bare.sh. Prints medians of seconds, with minimum and maximum, and of processor
time, which other work on the machine does not change much:

  pip install     of the wheel and of dpctl, from files, into a new environment
  first kernel    from before `pip install` until a kernel's result is available, with an empty cache
  first process   a process with an empty cache, from its start to its end
  warm process    the same with a filled cache, by tally-run, and with activate()

Exits with 1 if a median exceeds its budget: 15 s for the first kernel, 0.3 s for a warm process.
"""

import shutil
import statistics
import sys

from bare import PIP, System

REPEATS, REPEATS_WARM = 5, 21
BUDGETS = {"first kernel": 15.0, "warm process, tally-run": 0.3, "warm process, activate()": 0.3}


def measure(system):
    seconds = {}

    def note(name, *parts):
        seconds.setdefault(name, []).append([sum(each) for each in zip(*parts)])

    tally_run = ["/tmp/env/bin/tally-run", "/tmp/env/bin/python", "/kernel/first_kernel.py"]
    activate = ["/tmp/env/bin/python", "/kernel/first_kernel.py", "activate"]
    for _ in range(REPEATS):
        system.new_environment()
        installed = system.seconds(*PIP, "tally-level-zero", "dpctl")
        first = system.seconds(*tally_run)
        note("pip install", installed)
        note("first kernel", installed, first)
    for _ in range(REPEATS):
        shutil.rmtree(system.root / "tmp/home/.cache")
        note("first process", system.seconds(*tally_run))
    for _ in range(REPEATS_WARM):
        note("warm process, tally-run", system.seconds(*tally_run))
        note("warm process, activate()", system.seconds(*activate))
        note("entering the system", system.seconds("true"))
    system.clear()
    return seconds


def main(folder):
    exceeded = False
    print(f"{'':28}{'median s':>10}{'least':>10}{'most':>10}{'budget':>10}{'cpu s':>10}")
    for name, runs in measure(System(folder)).items():
        wall, cpu = zip(*runs)
        median, budget = statistics.median(wall), BUDGETS.get(name)
        exceeded |= budget is not None and median > budget
        print(f"{name:28}{median:10.3f}{min(wall):10.3f}{max(wall):10.3f}{budget or '':>10}"
              f"{statistics.median(cpu):10.3f}")
    return 1 if exceeded else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
