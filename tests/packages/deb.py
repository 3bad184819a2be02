#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests the Debian package in a minimal Debian, according to docs/install.md. Usage: deb.py SYSTEM

SYSTEM is a folder of bare_debian in scripts/bare.sh, with the package in its wheels/; its kernel/ also has
`demo`, a C program. It has no network. Prints a line per check.
"""

import sys

from bare import System

DEVICE = "Tally virtual GPU"
TOOLS = ("tally-run", "tally-replay", "tally-info", "tally-top", "tally-compiler")
LIST = "import dpctl; print([it.name for it in dpctl.get_devices()])"
# There are no other users' files, and no network.
APT = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "-o", "Dir::Log::Terminal=", "--yes"]


def a_bare_system_has_nothing_of_it(s):
    for name in ("gcc", "clang", *TOOLS):
        assert s.run("sh", "-c", f"command -v {name}", check=False).returncode != 0, name
    libraries = s.run("sh", "-c", "ls /usr/lib/x86_64-linux-gnu").stdout
    assert "libLLVM" not in libraries and "libze" not in libraries, libraries


def the_package_alone_is_enough(s):
    said = s.run(*APT, "install", "./wheels/tally.deb", check=False)
    assert said.returncode == 0, said.stdout
    assert "libze" not in s.run("dpkg-query", "-W", "-f", "${Package}\n").stdout
    changed = s.run("dpkg", "--verify", "tally").stdout
    assert not changed, changed


def tools_answer(s):
    for tool in TOOLS:
        assert s.run(tool, "--version").stdout.startswith(tool)
        assert "Usage:" in s.run(tool, "--help").stdout
    assert DEVICE in s.run("tally-info", "--list").stdout
    said = s.run("tally-run", "--check-environment", "python3").stdout
    assert "OCL_ICD_FILENAMES=/usr/lib/tally/libtally_opencl.so" in s.run("tally-run", "--print", "true").stdout
    assert "/usr/lib/tally/libze_tally.so" in said and "/usr/lib/tally/libze_loader.so.1" in said, said


def c_programs_run(s):
    said = s.run("tally-run", "/kernel/demo", "/kernel").stdout
    assert "loader   1.32" in said and "All 5 parts agree" in said, said


def sycl_runs(s):
    s.run("/tmp/env/bin/pip", "install", "--quiet", "--no-index", "--find-links", "/wheels", "dpctl")
    assert DEVICE in s.run("tally-run", "/tmp/env/bin/python", "-c", LIST).stdout
    s.run("tally-run", "/tmp/env/bin/python", "/kernel/first_kernel.py")


def manual_pages_and_completions_are_there(s):
    files = s.run("dpkg", "-L", "tally").stdout.splitlines()
    for tool in TOOLS:
        assert f"/usr/share/man/man1/{tool}.1.gz" in files, files
        script = f"/usr/share/bash-completion/completions/{tool}"
        said = s.run("bash", "-c", f"source {script}; complete -p {tool}").stdout
        assert said.strip().endswith(tool), said
        assert f"/usr/share/zsh/vendor-completions/_{tool}" in files
        assert f"/usr/share/fish/vendor_completions.d/{tool}.fish" in files


def purging_leaves_the_cache_only(s):
    assert (s.root / "tmp/home/.cache/tally/kernels").is_dir()
    s.run(*APT, "purge", "tally")
    # Except the checks' own files, and the records of apt and dpkg.
    left = s.run("find", "/usr", "/etc", "/var", "/opt", "-name", "*tally*", "-not", "-name", "totally*").stdout
    assert not left, left
    assert {it.name for it in (s.root / "tmp/home").iterdir()} == {".cache"}


def main(folder):
    system = System(folder)
    system.new_environment()
    system.run(*APT, "purge", "tally", check=False)
    for check in (
            a_bare_system_has_nothing_of_it, the_package_alone_is_enough, tools_answer, c_programs_run, sycl_runs,
            manual_pages_and_completions_are_there, purging_leaves_the_cache_only):
        check(system)
        print(f"{check.__name__.replace('_', ' ')}: ok", flush=True)
    system.clear()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
