# SPDX-License-Identifier: MIT OR Apache-2.0
"""The pytest plug-in: `pytest --tally` runs the tests on Tally."""

import pytest

from . import activate, driver


def pytest_addoption(parser):
    group = parser.getgroup("tally", "Level Zero on a virtual GPU")
    group.addoption("--tally", action="store_true", help="run on Tally, as the only Level Zero driver")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config):
    # Before any conftest.py, which may import what opens Level Zero.
    if early_config.known_args_namespace.tally:
        try:
            activate()
        except RuntimeError as error:
            raise pytest.UsageError(f"--tally: {error}") from error


def pytest_report_header(config):
    return f"Level Zero: {driver()}" if config.getoption("tally") else None
