"""Parts that a test may need and a machine may lack: absent they skip it, or fail it where CI demands them."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

import pytest


def require(name: str) -> ModuleType:
    """The module `name`.  Skips the test where it is not installed, and fails it where SXI_REQUIRE_<NAME> is 1."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        variable = f"SXI_REQUIRE_{name.partition('.')[0].upper()}"
        if os.environ.get(variable) == "1":
            pytest.fail(f"{variable} is 1 and {name} cannot be imported: {error}")
        pytest.skip(f"{name} is not installed")
