"""What every test runs under: one thread, a terminal of 80 columns without colours, the golden programs."""

# ruff: noqa: E402 -- the number of threads is set before anything can import NumPy

from __future__ import annotations

import os
import sys

# With two threads a matrix product may be summed in another order.
if "numpy" in sys.modules and os.environ.get("OPENBLAS_NUM_THREADS") != "1":
    raise RuntimeError("NumPy was imported before its number of threads was set")
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ |= {"COLUMNS": "80", "LINES": "24", "NO_COLOR": "1", "PYTHONUTF8": "1"}
for _name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
    os.environ.pop(_name, None)

import pytest
from hypothesis import settings

from tests import golden_files

# A shared machine may be slow at any moment.
settings.register_profile("sxi", deadline=None, print_blob=True)
settings.load_profile("sxi")


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.register(golden_files, "golden-files")
