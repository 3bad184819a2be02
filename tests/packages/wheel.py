#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests the wheel in a bare system, according to docs/install.md. Usage: wheel.py SYSTEM [dpnp]

SYSTEM is a folder of scripts/bare.sh; its kernel/ also has `demo`, a C program. Prints a line per check.
"""

import sys

from bare import PIP, System

BIN = "/tmp/env/bin"
DEVICE = "Tally virtual GPU"
LIST = "import dpctl; print([it.name for it in dpctl.get_devices()])"
ACTIVATE = "import tally_level_zero as t; t.activate(); "
DPNP = """
import math, dpnp as np
a = np.arange(1000.0)
print(float((a * a).sum()), float(np.sqrt(a).sum()) - math.fsum(map(math.sqrt, range(1000))) < 1e-9, a.device)
print(np.sort(np.array([3, 1, 2])), np.linalg.solve(np.array([[3.0, 1.0], [1.0, 2.0]]), np.array([9.0, 8.0])))
"""
FFT = """
import dpnp
print(dpnp.fft.fft(dpnp.array([1.0, 2.0, 3.0])).real, dpnp.fft.rfft(dpnp.ones(1000)).real.sum())
"""
LATE = "import tally_level_zero as t\ntry: t.activate()\nexcept RuntimeError as error: print('raised', error)"


def a_bare_system_has_nothing_of_it(s):
    for name in ("gcc", "clang", "tally-run"):
        assert s.run("sh", "-c", f"command -v {name}", check=False).returncode != 0, name
    libraries = s.run("sh", "-c", "ls /usr/lib/x86_64-linux-gnu").stdout
    assert "libLLVM" not in libraries and "libze" not in libraries, libraries


def commands_run_with_tally_run(s):
    assert DEVICE in s.run(f"{BIN}/tally-run", f"{BIN}/python", "-c", LIST).stdout
    s.run(f"{BIN}/tally-run", f"{BIN}/python", "/kernel/first_kernel.py")


def c_programs_run(s):
    said = s.run(f"{BIN}/tally-run", "/kernel/demo", "/kernel").stdout
    assert "loader   1.32" in said and "All 5 parts agree" in said, said


def dpnp_runs(s):
    said = s.run(f"{BIN}/tally-run", f"{BIN}/python", "-c", DPNP).stdout
    assert said == "332833500.0 True Device(level_zero:gpu:0)\n[1 2 3] [2. 3.]\n", said
    for command in ([f"{BIN}/tally-run", f"{BIN}/python", "-c", FFT], [f"{BIN}/python", "-c", ACTIVATE + FFT]):
        said = s.run(*command).stdout
        assert said == "[ 6.  -1.5 -1.5] 1000.\n", said


def tools_answer(s):
    assert DEVICE in s.run(f"{BIN}/tally-info", "--list").stdout
    assert "/tmp/home/.cache/tally/kernels" in s.run(f"{BIN}/tally-info").stdout
    for tool in ("tally-run", "tally-replay", "tally-top"):
        assert s.run(f"{BIN}/{tool}", "--version").stdout.startswith(tool)


def python_activates_it(s):
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', %r], check=True)" % LIST
    assert DEVICE in s.run(f"{BIN}/python", "-c", ACTIVATE + ACTIVATE + LIST).stdout
    assert DEVICE in s.run(f"{BIN}/python", "-c", ACTIVATE + child).stdout, "and its children have it"
    s.run(f"{BIN}/python", "/kernel/first_kernel.py", "activate")


def activation_that_comes_too_late_raises(s):
    loader = "import ctypes, tally_level_zero as t; ctypes.CDLL(str(t.loader()))\n"
    for before, named in ((loader, "libze_loader"), ("import dpctl\n", "libsycl")):
        said = s.run(f"{BIN}/python", "-c", before + LATE).stdout
        assert said.startswith("raised") and named in said and "tally-run" in said, said
    said = s.run(f"{BIN}/tally-run", f"{BIN}/python", "-c", "import dpctl\n" + LATE).stdout
    assert not said, f"under tally-run it does nothing: {said}"


def the_cache_outlives_an_installation(s):
    kernels = s.root / "tmp/home/.cache/tally/kernels"
    before = {it.name for it in kernels.iterdir()}
    s.run(*PIP, "--force-reinstall", "--no-deps", "tally-level-zero")
    s.run(f"{BIN}/tally-run", f"{BIN}/python", "/kernel/first_kernel.py")
    assert before and {it.name for it in kernels.iterdir()} == before, "the same compiler has the same names"


def pytest_has_an_option(s):
    tests = s.root / "tmp/home/tests"
    tests.mkdir()
    (tests / "conftest.py").write_text("import dpctl\n")
    (tests / "test_it.py").write_text(
        f"import dpctl\ndef test_it():\n    assert [it.name for it in dpctl.get_devices()] == ['{DEVICE}']\n")
    said = s.run(f"{BIN}/pytest", "--tally", "/tmp/home/tests", check=False)
    assert said.returncode == 0 and "Level Zero: " in said.stdout and "1 passed" in said.stdout, said.stdout
    said = s.run(f"{BIN}/pytest", "/tmp/home/tests", check=False)
    assert "1 failed" in said.stdout and "Level Zero: " not in said.stdout, said.stdout


def files(s):
    """All files of the environment, except those that Python and pytest write on imports."""
    env = s.root / "tmp/env"
    return {str(it.relative_to(env)) for it in env.rglob("*") if it.is_file() and it.suffix != ".pyc"}


def main(folder, *more):
    system = System(folder)
    system.new_environment()
    system.run(*PIP, "dpctl", "pytest", *more)
    before = files(system)
    system.run(*PIP, "tally-level-zero")
    for check in (
            a_bare_system_has_nothing_of_it, commands_run_with_tally_run, c_programs_run, tools_answer,
            python_activates_it, activation_that_comes_too_late_raises,
            the_cache_outlives_an_installation, pytest_has_an_option, *([dpnp_runs] if more else [])):
        check(system)
        print(f"{check.__name__.replace('_', ' ')}: ok", flush=True)
    system.run(f"{BIN}/pip", "uninstall", "--quiet", "--yes", "tally-level-zero")
    left = files(system) - before
    assert not left, left
    at_home = {it.name for it in (system.root / "tmp/home").iterdir()} - {"tests"}
    assert at_home == {".cache"}, at_home
    assert {it.name for it in (system.root / "tmp/home/.cache").iterdir()} == {"tally"}
    print("uninstalling leaves the cache: ok")
    system.clear()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
