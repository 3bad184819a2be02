# SPDX-License-Identifier: MIT OR Apache-2.0
"""The commands of the package: each becomes the program of its name."""

import os
import sys

from . import libraries


def _become(name):
    program = str(libraries() / name)
    os.execv(program, [program, *sys.argv[1:]])


def tally_compiler():
    _become("tally-compiler")


def tally_info():
    _become("tally-info")


def tally_replay():
    _become("tally-replay")


def tally_run():
    _become("tally-run")


def tally_top():
    _become("tally-top")
