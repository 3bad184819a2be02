#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measures how long it takes from an installation to a kernel's result. Usage: install.py ROOT

ROOT is a bare system with Python that holds `wheels/`, the packages to install, and `kernel/`, the program
that each process runs. It is entered with its own /proc and without a network. Prints medians of seconds,
with the least and the most, and of processor time, which other work on the machine does not change much:

  pip install     of the wheel and of dpctl, from files, into a new environment
  first kernel    from before `pip install` until a kernel's result is there, with an empty cache
  first process   a process with an empty cache, from its start to its end
  warm process    the same with a filled cache, by tally-run, and with activate()

Exits with 1 if a median exceeds its budget: 15 s for the first kernel, 0.3 s for a warm
process.
"""

import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import time

REPEATS, REPEATS_WARM = 5, 21
BUDGETS = {"first kernel": 15.0, "warm process, tally-run": 0.3, "warm process, activate()": 0.3}
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HOME": "/tmp/home", "LANG": "C.UTF-8"}
# In namespaces of its own: a user's, for chroot, and empty ones for the network and the processes.
ENTER = """
root=$1; shift
mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && exec /usr/sbin/chroot "$root" "$@"
"""


def now():
    """Seconds on the clock, and of processor time of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic(), usage.ru_utime + usage.ru_stime


def inside(root, *words):
    """Runs a command in the root; seconds, and seconds of processor time."""
    start = now()
    subprocess.run(
        ["/usr/bin/unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--net", "--kill-child",
         "/bin/sh", "-c", ENTER, "sh", root, *words],
        env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)
    return tuple(after - before for before, after in zip(start, now()))


def clear(root):
    for name in ("env", "home"):
        shutil.rmtree(root / "tmp" / name, ignore_errors=True)
    (root / "tmp/home").mkdir(parents=True)


def measure(root):
    seconds = {}

    def note(name, *parts):
        seconds.setdefault(name, []).append([sum(each) for each in zip(*parts)])

    tally_run = ["/tmp/env/bin/tally-run", "/tmp/env/bin/python", "/kernel/kernel.py"]
    activate = ["/tmp/env/bin/python", "/kernel/kernel.py", "activate"]
    for _ in range(REPEATS):
        clear(root)
        inside(root, "python3", "-m", "venv", "/tmp/env")
        installed = inside(
            root, "/tmp/env/bin/pip", "install", "--quiet", "--no-index", "--find-links", "/wheels",
            "tally-level-zero", "dpctl")
        first = inside(root, *tally_run)
        note("pip install", installed)
        note("first kernel", installed, first)
    for _ in range(REPEATS):
        shutil.rmtree(root / "tmp/home/.cache")
        note("first process", inside(root, *tally_run))
    for _ in range(REPEATS_WARM):
        note("warm process, tally-run", inside(root, *tally_run))
        note("warm process, activate()", inside(root, *activate))
        note("entering the root", inside(root, "true"))
    clear(root)
    return seconds


def main(root):
    exceeded = False
    print(f"{'':28}{'median s':>10}{'least':>10}{'most':>10}{'budget':>10}{'cpu s':>10}")
    for name, runs in measure(root).items():
        wall, cpu = zip(*runs)
        median, budget = statistics.median(wall), BUDGETS.get(name)
        exceeded |= budget is not None and median > budget
        print(f"{name:28}{median:10.3f}{min(wall):10.3f}{max(wall):10.3f}{budget or '':>10}"
              f"{statistics.median(cpu):10.3f}")
    return 1 if exceeded else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1])))
