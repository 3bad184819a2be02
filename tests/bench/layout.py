# SPDX-License-Identifier: MIT OR Apache-2.0
"""Counts the names in a linker script that no function has.

Usage: layout.py SCRIPT LIBRARY. The linker does not report that a function placed by the script has been
renamed. A few may be missing, since compilers inline different functions; more are a failure.
"""

import fnmatch
import re
import subprocess
import sys

MOST_GONE = 4


def main() -> int:
    script, library = sys.argv[1:]
    with open(script, encoding="utf-8") as file:
        sections = re.findall(r"\*\(\.text\.(\S+)\)", file.read())
    listing = subprocess.run(["nm", library], capture_output=True, text=True, check=True).stdout
    functions = [fields[2] for fields in map(str.split, listing.splitlines()) if len(fields) == 3]
    # The guarded call is a section of assembly, whose symbols have longer names.
    gone = [name for name in sections if not fnmatch.filter(functions, name + "*")]
    for name in gone:
        print(f"in no function's name: {name}")
    is_bad = not sections or len(gone) > MOST_GONE
    print(f"{'names of functions to be placed, gone':42}{len(gone):14}   {'TOO MUCH' if is_bad else 'ok'}")
    return int(is_bad)


sys.exit(main())
