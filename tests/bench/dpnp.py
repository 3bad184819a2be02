#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Extracts SYCL modules from a wheel of dpnp. Usage: dpnp.py WHEEL FOLDER

All different modules with a kernel are sorted by their sizes and then by their bytes; those at the
following hundredths are extracted.
"""

import pathlib
import sys
import zipfile

from spirv import modules

HUNDREDTHS = (25, 45, 50, 55, 75, 95)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    found, folder = set(), pathlib.Path(sys.argv[2])
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        for name in wheel.namelist():
            if ".so" in name:
                found.update(modules(wheel.read(name)))
    if not found:
        sys.exit(f"{sys.argv[1]} holds no SPIR-V")
    in_order = sorted(found, key=lambda module: (len(module), module))
    for hundredth in HUNDREDTHS:
        module = in_order[len(in_order) * hundredth // 100]
        (folder / f"dpnp-{hundredth}.spv").write_bytes(module)


if __name__ == "__main__":
    main()
