"""A CUDA device by CuPy, which is imported when the backend is made and not before.

Opening it says which of four things is missing: the package, a working import, a device, a compiler.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

from sxi import codes
from sxi.backends import HostArray
from sxi.backends.device import DeviceBackend


class CupyBackend(DeviceBackend):
    """Arrays are `cupy.ndarray`s, and all work is queued on one stream, which is this thread's from then on.

    Raises E-RUN-050 to E-RUN-053 where CuPy, a device or a compiler is missing.
    """

    name = "cupy"

    def __init__(self) -> None:
        super().__init__()
        self.xp = cupy = _imported()
        _require_device(cupy)
        _require_compiler(cupy)
        self._empty_pinned = importlib.import_module("cupyx").empty_pinned
        # A stream that does not wait for the default one, where other libraries queue their work.
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.stream.use()
        self._copied = cupy.cuda.Event(disable_timing=True)

    def synchronize(self) -> None:
        self.stream.synchronize()

    def _pinned_buffer(self, n: int) -> HostArray:
        return self._empty_pinned(n, dtype="float64")

    def _wait_for_copy(self) -> None:
        self._copied.record(self.stream)
        self._copied.synchronize()


def _imported() -> Any:
    if find_spec("cupy") is None:
        raise codes.CUPY_MISSING.at(None)
    try:
        return importlib.import_module("cupy")
    except (ImportError, OSError) as error:
        raise codes.CUPY_BROKEN.at(None, reason=_one_line(error)) from error


def _require_device(cupy: Any) -> None:
    try:
        found = cupy.cuda.runtime.getDeviceCount()
        cupy.zeros(1)  # a driver may count devices that it cannot use
    except (cupy.cuda.runtime.CUDARuntimeError, MemoryError) as error:
        raise codes.NO_DEVICE.at(None, reason=_one_line(error)) from error
    if found == 0:
        raise codes.NO_DEVICE.at(None, reason="the driver counts none")


def _require_compiler(cupy: Any) -> None:
    try:
        # CuPy keeps compiled kernels on the disk, so that the kernel alone could pass without a compiler.
        cupy.cuda.nvrtc.getVersion()
        cupy.ElementwiseKernel("float32 x", "float32 y", "y = x + 1.0f", "sxi_probe")(cupy.zeros(1, dtype="float32"))
    except (cupy.cuda.compiler.CompileException, RuntimeError, ImportError, OSError) as error:
        raise codes.CANNOT_COMPILE.at(None, reason=_one_line(error)) from error


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
