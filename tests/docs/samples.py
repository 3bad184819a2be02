#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Builds and runs the programs of docs/first-programs.md unchanged.

usage: samples.py TALLY_RUN [SYCL]

TALLY_RUN is the program; SYCL is an environment of Python with dpctl, which replaces the one that the
page creates. Without it the programs that need SYCL are skipped. Prints a line per program.

In the page, `<!-- file: NAME -->` precedes a file's contents, `<!-- run: NAME -->` its commands, and
`<!-- output: NAME -->` their output.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/first-programs.md"
MARKED = re.compile(r"<!-- (file|run|output): (\S+) -->\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LIMIT = 600


def run(commands, folder, tally_run, sycl):
    """The exit status of a program's commands, and the output of the last one."""
    lines = commands.splitlines()
    if sycl:
        lines = [line for line in lines if "-m venv" not in line and "pip install" not in line]
    path = f"{tally_run.parent}:{os.environ['PATH']}"
    # The lines of the page; only the last one's output is compared with it.
    script = "\n".join(["set -e", *(f"{line} >&2" for line in lines[:-1]), lines[-1]])
    ran = subprocess.run(["sh", "-c", script], cwd=folder, env={**os.environ, "PATH": path}, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT)
    return ran.returncode, ran.stdout, ran.stderr


def main(tally_run, sycl):
    parts = {"file": {}, "run": {}, "output": {}}
    for kind, name, text in MARKED.findall(PAGE.read_text()):
        parts[kind][name] = text
    assert list(parts["run"]) == ["kernel", "c", "cpp", "python"], "the page has other programs"
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, text in parts["file"].items():
            (folder / name).write_text(text)
        if sycl:
            (folder / "sycl").symlink_to(sycl)
        for name, commands in parts["run"].items():
            if "sycl/" in commands and not sycl:
                print(f"sample {name}: skipped, dpctl or a loader for it could not be fetched", flush=True)
                continue
            status, said, errors = run(commands, folder, tally_run, sycl)
            expected = parts["output"].get(name, "")
            right = status == 0 and said == expected
            failed += not right
            print(f"sample {name}: {'ok' if right else 'FAILED'}", flush=True)
            if not right:
                print(f"exit status {status}, expected:\n{expected}found:\n{said}{errors}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve() if sys.argv[2:] else None))
