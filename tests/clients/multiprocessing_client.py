#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Level Zero from Python's multiprocessing, by ctypes and the stock loader.

usage: multiprocessing_client.py before|after|spawn

  before  the parent has not used the driver when it forks: the children can
  after   the parent has used it: a forked child gets errors, and the parent continues
  spawn   the parent has used it: a spawned child starts afresh and can
"""

import ctypes
import multiprocessing
import sys
from ctypes import byref, c_size_t, c_uint32, c_uint64, c_void_p

SUCCESS = 0
UNINITIALIZED = 0x78000001
LEN = 1 << 16


class Struct(ctypes.Structure):
    """A descriptor with its type and no extensions."""

    def __init__(self, stype):
        super().__init__(stype=stype)


def struct(stype, *fields):
    head = [("stype", c_uint32), ("pNext", c_void_p)]
    kind = type("Desc", (Struct,), {"_fields_": head + list(fields)})
    return kind(stype)


def call(name, *arguments):
    """The result of a Level Zero function; every pointer and handle is passed in a form that ctypes accepts."""
    loader = ctypes.CDLL("libze_loader.so.1")
    function = getattr(loader, name)
    function.restype = c_uint32
    return function(*arguments)


def check(name, *arguments):
    result = call(name, *arguments)
    if result != SUCCESS:
        raise SystemExit(f"{name}: {result:#x}")


def work(byte):
    """Fills memory on the device and checks it; returns the first wrong element, or None."""
    check("zeInit", c_uint32(0))
    driver, device, context, events = c_void_p(), c_void_p(), c_void_p(), c_void_p()
    check("zeDriverGet", byref(c_uint32(1)), byref(driver))
    check("zeDeviceGet", driver, byref(c_uint32(1)), byref(device))
    desc = struct(0xD, ("flags", c_uint32))
    check("zeContextCreate", driver, byref(desc), byref(context))
    memory = c_void_p()
    desc = struct(0x16, ("flags", c_uint32))
    check("zeMemAllocHost", context, byref(desc), c_size_t(LEN), c_size_t(0), byref(memory))
    desc = struct(
        0xE,
        ("ordinal", c_uint32),
        ("index", c_uint32),
        ("flags", c_uint32),
        ("mode", c_uint32),
        ("priority", c_uint32),
    )
    desc.mode = 1  # synchronous
    immediate = c_void_p()
    check("zeCommandListCreateImmediate", context, device, byref(desc), byref(immediate))
    pattern = ctypes.c_uint8(byte)
    check(
        "zeCommandListAppendMemoryFill",
        *(immediate, memory, byref(pattern), c_size_t(1), c_size_t(LEN)),
        *(events, c_uint32(0), events),
    )
    got = ctypes.string_at(memory, LEN)
    check("zeCommandListDestroy", immediate)
    check("zeMemFree", context, memory)
    check("zeContextDestroy", context)
    wrong = [i for i, it in enumerate(got) if it != byte]
    return wrong[0] if wrong else None


def refused(_):
    """The results in a forked child of a process that has used the driver."""
    count = c_uint32(1)
    return call("zeInit", c_uint32(0)), call("zeDriverGet", byref(count), byref(c_void_p()))


def main(mode):
    methods = {"before": "fork", "after": "fork", "spawn": "spawn"}
    context = multiprocessing.get_context(methods[mode])
    if mode != "before":
        assert work(1) is None
    with context.Pool(3) as pool:
        if mode == "after":
            answers = pool.map(refused, range(12))
            # Newer loaders return their own result from zeInit after the first call.
            assert set(answers) <= {(SUCCESS, UNINITIALIZED), (UNINITIALIZED, UNINITIALIZED)}, answers
        else:
            answers = pool.map(work, range(12))
            assert answers == [None] * 12, answers
    assert work(200) is None, "the parent goes on"
    print("ok")


if __name__ == "__main__":
    main(sys.argv[1])
