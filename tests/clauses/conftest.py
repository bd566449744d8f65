"""The fixtures that run a program."""

from __future__ import annotations

from tests.running import device_program, program

__all__ = ["device_program", "program"]
