#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the commands of the CI examples in a minimal Debian. Usage: ci.py SYSTEM SUITE EXAMPLES

SYSTEM is a folder of bare_debian in scripts/bare.sh, with the wheel, the package and what pip installs in its
wheels/. EXAMPLES is docs/ci. The systems for the examples: bookworm for GitHub's (a runner has a Python), trixie
for GitLab's and for the Dockerfile's, which name Debian 13 or an image based on it.
"""

import pathlib
import shutil
import sys

import yaml
from bare import System

TEST = """import dpctl
def test_it():
    assert [it.name for it in dpctl.get_devices()] == ["Tally virtual GPU"]
"""


def project(system):
    """A project with a test and the wheel; its folder in the system."""
    system.clear()
    folder = system.root / "tmp/home/project"
    (folder / "tests").mkdir(parents=True)
    (folder / "tests/test_device.py").write_text(TEST)
    (folder / "ci").mkdir()
    for kind, into in (("whl", "ci"), ("deb", ".")):
        for file in (system.root / "wheels").glob(f"tally*.{kind}"):
            shutil.copy(file, folder / into)
    return "/tmp/home/project"


def shell(system, folder, variables, script):
    """Runs a script like a CI runner, and returns its output. It fails with the first command that fails."""
    home = {"CI_PROJECT_DIR": folder, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"}
    settings = [f"{name}={value.replace('$CI_PROJECT_DIR', folder)}" for name, value in {**home, **variables}.items()]
    ran = system.run("env", *settings, "sh", "-e", "-c", f"cd {folder}\n{script}", check=False)
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


def strings(variables):
    return {name: str(value) for name, value in variables.items()}


def github(system, examples):
    job = yaml.safe_load((examples / "github-actions.yml").read_text())["jobs"]["level-zero"]
    folder = project(system)
    said = [shell(system, folder, strings(job["env"]), step["run"]) for step in job["steps"] if "run" in step]
    assert "Tally virtual GPU" in said[-2] and "1 passed" in said[-1], said


def gitlab(system, examples):
    job = yaml.safe_load((examples / "gitlab-ci.yml").read_text())["level-zero"]
    folder = project(system)
    said = shell(system, folder, strings(job["variables"]), "\n".join(job["before_script"] + job["script"]))
    assert "Tally virtual GPU" in said and "1 passed" in said, said
    assert job["cache"]["paths"] == [".tally-kernels"]


def dockerfile(system, examples):
    """Executes the instructions: COPY from the folder, RUN, ENV, then the command."""
    folder, variables, entry, command = project(system), {}, [], []
    for line in (examples / "Dockerfile").read_text().splitlines():
        word, _, rest = line.partition(" ")
        if word == "COPY":
            pattern, into = rest.split()
            for file in (system.root / folder[1:]).glob(pattern):
                shutil.copy(file, system.root / into[1:])
        elif word == "RUN":
            # There is no network, and the package needs none.
            assert "apt-get update && apt-get install" in rest, rest
            install = rest.replace("apt-get update && apt-get install", "apt-get -o APT::Sandbox::User=root install")
            shell(system, folder, {}, install.replace(" /var/lib/apt/lists/*", ""))
        elif word == "ENV":
            variables |= dict(part.split("=") for part in rest.split())
        elif word == "ENTRYPOINT":
            entry = yaml.safe_load(rest)
        elif word == "CMD":
            command = yaml.safe_load(rest)
    said = shell(system, folder, variables, " ".join(entry + command))
    system.run("apt-get", "-qq", "-o", "APT::Sandbox::User=root", "-o", "Dir::Log::Terminal=", "--yes", "purge", "tally")
    assert "Tally virtual GPU" in said, said


def main(folder, suite, examples):
    system = System(folder)
    for check in {"bookworm": [github], "trixie": [gitlab, dockerfile]}[suite]:
        check(system, pathlib.Path(examples))
        print(f"{check.__name__}, in Debian {suite}: ok", flush=True)
    system.clear()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
