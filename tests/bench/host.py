#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes a table of the output of host.c and host_cl.c.

Usage: host.py [--plain] NAME=FILE... Each file has lines of name, wall time and processor time in ns, and the time of a loop
without calls beside that (cost.h); an empty or missing file is a peer that could not be measured. The
first column is Tally. --plain: without the budgets."""

import statistics
import sys

# Key, title, and the budget as (figure, factor, peers that it is compared with).
ROWS = [
    ("loader", "cheapest call through the loader", None),
    ("append", "append, regular in-order list, 3 pointers", (None, 0.15, ["Intel GPU"])),
    ("append-signal", "  with CB signal", None),
    ("append-wait-signal", "  with CB wait (another list's) and signal", (None, 0.2, ["Intel GPU"])),
    ("event", "CB event (OpenCL: user event), create, destroy", (None, 0.3, ["Intel GPU"])),
    ("immediate", "append to an immediate list (OpenCL: enqueue)", None),
    ("round-trip", "immediate append to completion, awake", (2000, 0.5, ["Intel CPU", "PoCL"])),
    ("asleep", "  after 2 ms of sleep, 25 in a row (median)", (15000, None, [])),
    ("asleep-first", "  the same, once, after 200 appends", None),
    ("asleep-long", "  after 50 ms of sleep", None),
    ("wake-call", "no driver: futex wake after 2 ms of sleep, the call", None),
    ("wake-answered", "  until the woken thread has answered", None),
]

# If no other thread runs on the same core at the same time, the loop takes at most this times the
# fastest of all.
UNDISTURBED = 1.2

# The peers' times when the limits in nanoseconds were set: they calibrate the speed of the machine.
THEN = [("append-wait-signal", "Intel GPU", 542), ("round-trip", "Intel CPU", 4500)]


def read(path):
    samples = {}
    try:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                name, *times = line.split("\t")
                samples.setdefault(name, []).append([float(time) for time in times])
    except OSError:
        pass
    return samples


def spread(values):
    """The median, and the quartiles around it."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, median, high = statistics.quantiles(values, n=4)
    return median, low, high


def cell(samples):
    if not samples:
        return "-"
    median, low, high = spread([times[0] for times in samples])
    return f"{median:,.0f} [{low:,.0f}..{high:,.0f}]"


def verdict(key, budget, columns):
    """A row of figures beside its limits; "" if there are none, or nothing was measured."""
    ours = columns[0][1].get(key)
    if not budget or not ours:
        return ""
    median = spread([times[0] for times in ours])[0]
    limit, factor, peers = budget
    parts = [] if limit is None else [f"{median:,.0f} of {limit:,} ns"]
    for name, samples in columns[1:]:
        if name in peers and samples.get(key):
            ratio = median / spread([times[0] for times in samples[key]])[0]
            parts.append(f"{ratio:.2f} of {factor} x {name}")
    return "; ".join(parts)


def undisturbed(columns):
    """The same columns, only with repeats during which the program had its core to itself."""
    every = [times[2] for _, samples in columns for repeats in samples.values() for times in repeats]
    longest = UNDISTURBED * min(every, default=0)
    return [
        (name, {key: [times for times in repeats if times[2] <= longest] for key, repeats in samples.items()})
        for name, samples in columns
    ]


def main():
    columns = []
    arguments = sys.argv[1:]
    plain = arguments[:1] == ["--plain"]
    for argument in arguments[plain:]:
        name, _, path = argument.partition("=")
        columns.append((name, read(path)))
    titles = [name + ("" if samples else " (not there)") for name, samples in columns]
    print(f"{'ns: median [quartiles]':52}" + "".join(f" {title:>28}" for title in titles))
    for key, what, _ in ROWS:
        print(f"{what:52}" + "".join(f" {cell(samples.get(key)):>28}" for _, samples in columns))
    if plain:
        return
    ours = columns[0][1]
    for key in ("round-trip", "asleep", "asleep-first", "asleep-long"):
        if key in ours:
            used = spread([times[1] for times in ours[key]])[0]
            print(f"processor time of all threads, {key}: {used:,.0f} ns")
    print("\nbeside the budgets")
    alone = undisturbed(columns)
    for key, what, budget in ROWS:
        if text := verdict(key, budget, columns):
            print(f"{what.strip():52}{text}")
            text = verdict(key, budget, alone) or "-"
            counts = ", ".join(str(len(samples[key])) for _, samples in alone if key in samples)
            print(f"{'  with the core to itself':52}{text} (in {counts} repeats)")
    peers = dict(columns[1:])
    for key, name, then in THEN:
        if peers.get(name, {}).get(key):
            now = spread([times[0] for times in peers[name][key]])[0]
            row = f"  {name}, {key}: ns here, and where set"
            print(f"{row:52}{now:,.0f}, {then:,}: {now / then:.2f} x")


if __name__ == "__main__":
    main()
