# SPDX-License-Identifier: MIT OR Apache-2.0
"""Level Zero on a machine without a GPU: Tally's driver, its compiler, and a loader.

A command runs on Tally with `tally-run COMMAND`, a test run with `pytest --tally`, and a Python process that
runs already, such as a notebook's, after

    import tally_level_zero
    tally_level_zero.activate()

which has to come before the first import of a package that opens Level Zero (dpctl, dpnp).
"""

import ctypes
import os
from importlib.metadata import version as _version
from pathlib import Path

__all__ = ["activate", "driver", "include", "libraries", "loader"]
__version__ = _version("tally-level-zero")

_HERE = Path(__file__).resolve().parent
_DRIVERS = "ZE_ENABLE_ALT_DRIVERS"
_PLATFORMS = "OCL_ICD_FILENAMES"
_LIBRARIES = "LD_LIBRARY_PATH"
# A Level Zero loader, and SYCL's run time.
_SEEKERS = ("libze_loader.so", "libsycl.so")
_LAYERS = ("libze_tracing_layer.so.1", "libze_validation_layer.so.1")
# The loader and the layers of this process; the libraries stay open as long as this lives.
_opened = None


def libraries():
    """The folder of the libraries and programs. A C program is linked with `-L` and this folder, and
    `-l:libze_loader.so.1`."""
    return _HERE / "lib"


def include():
    """The folder for the compiler's option `-I`: it holds `level_zero/ze_api.h`."""
    return _HERE / "include"


def driver():
    """The driver's library."""
    return libraries() / "libze_tally.so"


def loader():
    """The Level Zero loader."""
    return libraries() / "libze_loader.so.1"


def opencl():
    """The OpenCL platform, which only compiles kernels: oneMKL's Fourier transforms need it."""
    return libraries() / "libtally_opencl.so"


def activate():
    """Makes Tally the only Level Zero driver of this process and of those that it starts.

    Raises RuntimeError if a Level Zero loader or SYCL's run time is in the process already: it may have
    looked for devices, and does so once. Does nothing the second time, nor under `tally-run`.
    """
    global _opened
    if _opened is not None or _started_on_tally():
        return
    there = _too_late()
    if there:
        raise RuntimeError(
            f"{there} is in this process already and may have looked for devices: call "
            "tally_level_zero.activate() before the first import that opens Level Zero, such as dpctl's, or "
            "start the program with tally-run"
        )
    os.environ[_DRIVERS] = str(driver())
    # Behind the user's own, since programs may take the first.
    others = os.environ.get(_PLATFORMS)
    os.environ[_PLATFORMS] = f"{others}:{opencl()}" if others else str(opencl())
    # Processes that this one starts find the loader in the variable. This one has it open: the dynamic
    # linker answers later requests for the name with the library that is there.
    before = os.environ.get(_LIBRARIES)
    os.environ[_LIBRARIES] = f"{libraries()}:{before}" if before else str(libraries())
    # The loader opens its layers by name, and would get the system's, which may be too old for it.
    _opened = [ctypes.CDLL(str(libraries() / layer)) for layer in _LAYERS]
    _opened.append(ctypes.CDLL(str(loader()), mode=ctypes.RTLD_GLOBAL))


def _started_on_tally():
    """Whether this process was started with Tally as its driver."""
    named = f"{_DRIVERS}={driver()}".encode()
    return named in Path("/proc/self/environ").read_bytes().split(b"\0")


def _too_late():
    """The file of a library in this process that looks for devices, or None."""
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        path = line.split(maxsplit=5)[5:]
        if path and os.path.basename(path[0]).startswith(_SEEKERS):
            return path[0]
    return None
