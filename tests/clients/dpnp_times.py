# SPDX-License-Identifier: MIT OR Apache-2.0
"""The time that dpnp's operations take, beside Intel's OpenCL for CPUs: `scripts/clients times` starts this.

Three parts, each in a process of its own, in turn with each device:

  first  98 different operations, each for the first time, with an empty cache
  large  80 operations on arrays of 20 MB, that have run before
  small  400 operations on arrays of 1,000 numbers, that have run before

Prints medians: seconds from the first call to the last result, and the processor time of the process and of
its compilers.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

# Last, since a file there is called dpnp, too.
sys.path.append(str(pathlib.Path(__file__).parent.parent / "bench"))
from compile import cost

UNARY = """abs ceil cos cosh exp exp2 expm1 floor log log10 log1p log2 negative positive reciprocal rint sign
    sin sinh sqrt square tan tanh trunc arcsin arccos arctan arcsinh cbrt isfinite isinf isnan signbit""".split()
BINARY = """add subtract multiply divide maximum minimum hypot arctan2 copysign power logaddexp fmod remainder
    floor_divide equal not_equal less less_equal greater greater_equal logical_and logical_or
    logical_xor""".split()
BITS = "bitwise_and bitwise_or bitwise_xor left_shift right_shift".split()
REDUCED = "sum prod max min argmax argmin any all mean std var median".split()
OTHERS = {
    "cumsum": lambda m, x, y: m.cumsum(x),
    "cumprod": lambda m, x, y: m.cumprod(x),
    "sort": lambda m, x, y: m.sort(x),
    "argsort": lambda m, x, y: m.argsort(x),
    "where": lambda m, x, y: m.where(x > y, x, y),
    "clip": lambda m, x, y: m.clip(x, 0.2, 0.8),
    "diff": lambda m, x, y: m.diff(x),
    "roll": lambda m, x, y: m.roll(x, 3),
    "flip": lambda m, x, y: m.flip(x).copy(),
    "repeat": lambda m, x, y: m.repeat(x, 2),
    "tile": lambda m, x, y: m.tile(x, 2),
    "take": lambda m, x, y: m.take(x, m.arange(7)),
    "concatenate": lambda m, x, y: m.concatenate((x, y)),
    "stack": lambda m, x, y: m.stack((x, y)),
    "astype": lambda m, x, y: x.astype("f8"),
    "complex": lambda m, x, y: x.astype("c8") * y,
    "linspace": lambda m, x, y: m.linspace(0, 1, 50),
    "eye": lambda m, x, y: m.eye(20),
    "tri": lambda m, x, y: m.tril(m.outer(x[:8], y[:8])),
    "nonzero": lambda m, x, y: m.nonzero(x > y)[0],
    "unique": lambda m, x, y: m.unique(x),
    "searchsorted": lambda m, x, y: m.searchsorted(m.sort(x), y),
    "dot": lambda m, x, y: m.dot(x, y),
    "matmul": lambda m, x, y: x[:64].reshape(8, 8) @ y[:64].reshape(8, 8),
    "histogram": lambda m, x, y: m.histogram(x, 5)[0],
}


def operations():
    """The operations of `first`, by name; each takes the library and two arrays of floats."""
    whole = lambda a: (a * 7).astype("i4")
    made = {name: lambda m, x, y, name=name: getattr(m, name)(x) for name in UNARY + REDUCED}
    made |= {name: lambda m, x, y, name=name: getattr(m, name)(x, y) for name in BINARY}
    made |= {name: lambda m, x, y, name=name: getattr(m, name)(whole(x), whole(y)) for name in BITS}
    return made | OTHERS


LARGE = """add subtract multiply divide maximum less sqrt exp sin log tanh sum max cumsum where
    concatenate""".split()
SMALL = LARGE + ["clip", "astype", "mean", "flip"]


def part(name):
    """Runs one part, in its process, and prints what it took; wrong results are named."""
    import dpnp
    import numpy

    known, random = operations(), numpy.random.default_rng(1)
    numbers = {"first": 100, "large": 5 << 20, "small": 1000}[name]
    host = [(random.random(numbers) * 0.9 + 0.05).astype("f4") for _ in range(2)]
    device = [dpnp.asarray(each) for each in host]
    print("ready", flush=True)
    if name == "first":
        begun = time.monotonic()
        for title, operation in known.items():
            since, own = time.monotonic(), time.process_time()
            result = dpnp.asnumpy(operation(dpnp, *device))
            print(title, time.monotonic() - since, time.process_time() - own, flush=True)
            expected = operation(numpy, *host)
            if not numpy.allclose(result, expected, rtol=1e-4, atol=1e-5, equal_nan=True):
                print("wrong:", title, file=sys.stderr, flush=True)
        print("done", time.monotonic() - begun, flush=True)
        return
    titles, repeats = (LARGE, 5) if name == "large" else (SMALL, 20)
    # The first round builds the kernels.
    for _ in range(2):
        spent, begun = {}, time.monotonic()
        for title in titles:
            since, used = time.monotonic(), time.process_time()
            for _ in range(repeats):
                result = known[title](dpnp, *device)
            result.sycl_queue.wait()
            spent[title] = (time.monotonic() - since, time.process_time() - used)
        elapsed = time.monotonic() - begun
    for title, (wall, used) in spent.items():
        print(title, wall, used, flush=True)
    print("done", elapsed, flush=True)


def environments(tally_run, cache):
    """The command before Python, and the environment, by the name of a device."""
    library = f"{sys.prefix}/lib"
    level_zero = {"ONEAPI_DEVICE_SELECTOR": "level_zero:gpu", "TALLY_CACHE_DIR": cache}
    for adapter in 0, 1:
        more = {"UR_LOADER_USE_LEVEL_ZERO_V2": str(adapter)}
        yield f"Tally, adapter v{adapter + 1}", [tally_run, "--loader", "sid"], level_zero | more
    yield "Intel's CPU", [], {
        "ONEAPI_DEVICE_SELECTOR": "opencl:cpu",
        "OCL_ICD_FILENAMES": f"{library}/libintelocl.so",
        "LD_LIBRARY_PATH": library,
    }


def run(name, command, environment):
    """What one process of a part took: wall time and the processor time of all its processes, then both of
    each operation."""
    mark, known = uuid.uuid4().hex, operations()
    words = [*command, sys.executable, __file__, "--part", name]
    with subprocess.Popen(
        words, env=os.environ | environment | {"BENCH_RUN": mark}, text=True, stdout=subprocess.PIPE
    ) as process:
        each = {}
        for line in process.stdout:
            words = line.split()
            if words == ["ready"]:
                before = cost(mark.encode())[0]
            elif words[0] == "done":
                return float(words[1]), (cost(mark.encode())[0] - before) / 1e3, each
            elif words[0] in known:  # oneMKL prints warnings, too
                each[words[0]] = tuple(map(float, words[1:]))
    sys.exit(f"{name} ended with {process.returncode}")


def main():
    parser = argparse.ArgumentParser(prog="scripts/clients times", description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=3, help="of each part on each device; default: 3")
    parser.add_argument("--each", action="store_true", help="also the times of each operation")
    parser.add_argument("--tally-run", help=argparse.SUPPRESS)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("parts", nargs="*", help="first, large, small; default: all")
    arguments = parser.parse_args()
    if arguments.part:
        return part(arguments.part)
    with tempfile.TemporaryDirectory() as cache:
        devices = list(environments(arguments.tally_run, cache))
        for name in arguments.parts or ["first", "large", "small"]:
            runs = {device: [] for device, _, _ in devices}
            for _ in range(arguments.runs):
                for device, command, environment in devices:
                    if name == "first":
                        shutil.rmtree(cache)
                        os.mkdir(cache)
                    runs[device].append(run(name, command, environment))
            show(name, runs, arguments.each)


def show(name, runs, each):
    print(f"{name:20}{'wall s':>9}{'least':>9}{'most':>9}{'cpu s':>9}")
    for device, done in runs.items():
        walls = [wall for wall, _, _ in done]
        used = statistics.median(used for _, used, _ in done)
        print(f"{device:20}{statistics.median(walls):9.2f}{min(walls):9.2f}{max(walls):9.2f}{used:9.2f}")
    if each:
        print(f"{'':20}" + "".join(f"{device:>20}" for device in runs))
        for title in next(iter(runs.values()))[0][2]:
            cells = "".join(
                f"{statistics.median(times[title][0] for _, _, times in done):20.4f}" for done in runs.values()
            )
            print(f"{title:20}{cells}")
    print(flush=True)


if __name__ == "__main__":
    main()
