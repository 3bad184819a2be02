#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the ways to install Tally with those of other drivers. Usage: compare.py BARE TARGET

BARE is the folder of scripts/bare.sh, with the packages to install; TARGET has Tally's packages, the programs and
the kernel. Each way begins in a minimal Debian and installs from files, with no network. Then a C program loads
SPIR-V, runs it and checks the result. Prints the commands, the sizes of the fetched packages and of the installed
files, and medians of seconds with minimum and maximum, and of processor time: of the installation, and of
it with the program.
"""

import pathlib
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass, field

from bare import System, now

REPEATS = 5
APT = "apt-get -qq -o APT::Sandbox::User=root -o Dir::Log::Terminal= --yes install"
PIP = "/tmp/env/bin/pip install --quiet --no-index --find-links /files"
KERNEL = "/kernel/saxpy.spv"


@dataclass
class Way:
    name: str
    suite: str
    files: list  # of pathlib.Path
    install: str
    run: str
    pip: bool = False
    device: bool = True
    runs: list = field(default_factory=list)
    disk: int = 0


def ways(bare, target):
    cl, ze = f"/kernel/first-kernel-cl {KERNEL}", f"/kernel/first-kernel-ze {KERNEL}"
    here = "env LD_LIBRARY_PATH=/tmp/env/lib OCL_ICD_FILENAMES=/tmp/env/lib/libintelocl.so"
    return [
        Way("Tally, pip", "trixie", list(target.glob("wheel/tally_level_zero-*.whl")),
            f"{PIP} tally-level-zero", f"/tmp/env/bin/tally-run {ze}", pip=True),
        Way("Tally, apt", "trixie", list(target.glob("deb/tally_*.deb")), APT, f"tally-run {ze}"),
        Way("PoCL, apt", "trixie", list(bare.glob("debs-pocl/*.deb")), APT, cl),
        Way("Intel's OpenCL for CPUs, pip", "trixie", list(bare.glob("wheels-intel-cpu/*.whl")),
            f"{PIP} intel-opencl-rt intel-cmplr-lib-rt", f"{here} {cl}", pip=True),
        Way("Intel's GPU driver, apt", "sid", list(bare.glob("debs-intel-gpu/*.deb")), APT, ze, device=False),
    ]


class Layer(System):
    """A system whose changes are kept in a folder of their own."""

    enter = """
root=$1/root; lower=$(cat "$1/lower"); shift
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$root/../upper,workdir=$root/../work,userxattr" "$root" &&
mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && mount --rbind /sys "$root/sys" &&
exec /usr/sbin/chroot "$root" "$@"
"""

    def __init__(self, folder, lower):
        super().__init__(folder)
        for name in ("root", "upper", "work", "upper/tmp/home", "upper/files", "upper/kernel"):
            (self.root / name).mkdir(parents=True)
        (self.root / "upper/tmp").chmod(0o1777)
        (self.root / "lower").write_text(str(lower))

    def used(self):
        """Bytes on the disk, without the files that were there for the test."""
        passed = {"files", "kernel"}
        upper = self.root / "upper"
        every = (it for part in upper.iterdir() if part.name not in passed for it in [part, *part.rglob("*")])
        return sum(it.lstat().st_blocks * 512 for it in every)


def try_way(way, bare, target):
    with tempfile.TemporaryDirectory(dir=bare) as folder:
        layer = Layer(folder, bare / way.suite)
        for file in way.files:
            shutil.copy(file, layer.root / "upper/files")
        for file in ("bench/first-kernel-ze", "bench/first-kernel-cl", "kernels/saxpy.spv"):
            shutil.copy(target / file, layer.root / "upper/kernel")
        install = way.install.split()
        if way.pip:
            layer.run("python3", "-m", "venv", "/tmp/env")
        else:
            install += [f"/files/{file.name}" for file in way.files]
        before = layer.used()
        installed = layer.seconds(*install)
        way.disk = layer.used() - before
        start = now()
        ran = layer.run(*way.run.split(), check=False)
        taken = [after - before for before, after in zip(start, now())]
        assert (ran.returncode == 0 and ran.stdout.endswith("right\n")) == way.device, ran.stdout
        way.runs.append((*installed, *(a + b for a, b in zip(installed, taken))))
        if not way.device:
            print(f"{way.name}: {ran.stdout.strip()}", file=sys.stderr)


def main(bare, target):
    every = ways(bare, target)
    for way in every:
        assert way.files, f"{way.name}: there is nothing to install"
    for _ in range(REPEATS):
        for way in every:
            try_way(way, bare, target)
    print(f"{'':30}{'fetched MB':>11}{'disk MB':>9}{'install s':>18}{'cpu':>6}{'first kernel s':>18}{'cpu':>6}")
    for way in every:
        cells = []
        for at in (0, 2):
            wall, cpu = [run[at] for run in way.runs], [run[at + 1] for run in way.runs]
            cells.append(f"{statistics.median(wall):.1f} ({min(wall):.1f}-{max(wall):.1f})")
            cells.append(f"{statistics.median(cpu):.1f}")
        if not way.device:
            cells[2:] = ["no device", ""]
        fetched = sum(file.stat().st_size for file in way.files)
        print(f"{way.name:30}{fetched / 1e6:11.1f}{way.disk / 1e6:9.1f}"
              f"{cells[0]:>18}{cells[1]:>6}{cells[2]:>18}{cells[3]:>6}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
