# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs commands in the bare system of scripts/bare.sh, which has `wheels/`, the packages to install, and
`kernel/`, SPIR-V and programs."""

import pathlib
import resource
import shutil
import subprocess
import time

ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "HOME": "/tmp/home", "LANG": "C.UTF-8"}
# Installs into a new environment.
PIP = ["/tmp/env/bin/pip", "install", "--quiet", "--no-index", "--find-links", "/wheels"]
# Namespaces: a user's, for chroot, and empty ones for the network and the processes.
UNSHARE = ["/usr/bin/unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--net", "--kill-child"]

def now():
    """Seconds of wall time, and of processor time of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic(), usage.ru_utime + usage.ru_stime


class System:
    # A script: the folder and a command are its arguments.
    enter = """
root=$1; shift
mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && exec /usr/sbin/chroot "$root" "$@"
"""

    def __init__(self, folder):
        self.root = pathlib.Path(folder)

    def run(self, *words, check=True):
        """Runs a command; returns its output and its exit status."""
        return subprocess.run(
            [*UNSHARE, "/bin/sh", "-c", self.enter, "sh", self.root, *words],
            env=ENVIRONMENT, check=check, text=True, stdout=subprocess.PIPE, stderr=None if check else subprocess.STDOUT)

    def seconds(self, *words):
        """Runs a command; returns seconds of wall time and of processor time."""
        start = now()
        self.run(*words)
        return tuple(after - before for before, after in zip(start, now()))

    def clear(self):
        """Removes the environment and the home folder, and creates the latter again."""
        for name in ("env", "home"):
            shutil.rmtree(self.root / "tmp" / name, ignore_errors=True)
        (self.root / "tmp/home").mkdir(parents=True)

    def new_environment(self):
        self.clear()
        self.run("python3", "-m", "venv", "/tmp/env")
