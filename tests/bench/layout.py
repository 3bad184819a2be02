# SPDX-License-Identifier: MIT OR Apache-2.0
"""How many names of a linker script are those of no function.

Usage: layout.py SCRIPT LIBRARY. The linker says nothing when a function that the script places has another
name by now. A few may be gone, since what a compiler inlines differs; more fail.
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
