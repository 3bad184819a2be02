# SPDX-License-Identifier: MIT OR Apache-2.0
"""A first SYCL program: doubles numbers with a kernel and checks the result. Usage: kernel.py [activate]

The kernel is `saxpy.spv` beside this file.
"""

import ctypes
import pathlib
import struct
import sys

if sys.argv[1:] == ["activate"]:
    import tally_level_zero

    tally_level_zero.activate()

import dpctl
import dpctl.memory
import dpctl.program

COUNT = 1024

queue = dpctl.SyclQueue("level_zero:gpu")
code = (pathlib.Path(__file__).parent / "saxpy.spv").read_bytes()
kernel = dpctl.program.create_program_from_spirv(queue, code).get_sycl_kernel("saxpy")
numbers = [float(i) for i in range(COUNT)]
x, y = (dpctl.memory.MemoryUSMDevice(4 * COUNT, queue=queue) for _ in range(2))
for memory in (x, y):
    memory.copy_from_host(bytearray(struct.pack(f"{COUNT}f", *numbers)))
arguments = [ctypes.c_float(1.0), x, y, ctypes.c_uint32(COUNT)]
queue.submit(kernel, arguments, [COUNT])
queue.wait()
found = struct.unpack(f"{COUNT}f", bytes(y.copy_to_host()))
assert list(found) == [2 * number for number in numbers], found[:8]
