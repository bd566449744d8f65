"""What every test runs under: one thread, a terminal of 80 columns without colours, the golden programs."""

from __future__ import annotations

import os
import sys

# Before NumPy is imported: with two threads a matrix product may be summed in another order.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ |= {"COLUMNS": "80", "LINES": "24", "NO_COLOR": "1", "PYTHONUTF8": "1"}
for _name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
    os.environ.pop(_name, None)

import pytest
from hypothesis import settings

if "numpy" in sys.modules:
    raise RuntimeError("NumPy was imported before its number of threads was set")

from tests import golden_files

# A shared machine may be slow at any moment; a failure is to be the same each time.
settings.register_profile("sxi", deadline=None, print_blob=True)
settings.load_profile("sxi")


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.register(golden_files, "golden-files")
