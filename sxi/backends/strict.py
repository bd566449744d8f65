"""NumPy memory under a device's rules: what a run on a GPU may do, shown and tested without one.

An array here is a `StrictArray`.  It is never converted to a NumPy array implicitly, NumPy's functions do
not take it, and `xp` refuses NumPy's arrays and the names that CuPy lacks (`lacking.py`).  Whatever takes
a number from the device to the host is written down in `StrictBackend.reads` with its kind and its place
in the Python source; an asynchronous copy reads as NaN until it is waited for, and so does `xp.empty`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from sxi.backends import HostArray, lacking
from sxi.backends.device import DeviceBackend

_PACKAGE = Path(__file__).parent
_NOT_A_CALLER = (str(_PACKAGE), str(Path(np.__file__).parent))
_POISON = 0xFF  # every float of these bytes is a NaN


@dataclass(frozen=True, slots=True)
class Read:
    """One time that a number went from the device to the host.

    kind:        `get`, `get-async`, `item`, `bool`, `boolean-index`, a function's name, …
    path, line:  the Python source that asked for it
    """

    kind: str
    path: str
    line: int

    def __str__(self) -> str:
        path = Path(self.path)
        root = _PACKAGE.parent.parent
        return f"{self.kind} at {path.relative_to(root) if path.is_relative_to(root) else path}:{self.line}"


class HostRead(RuntimeError):
    """The host read a number where `StrictBackend.forbid_reads` forbids it: a bug, not a user's error."""


class Device:
    """What one backend's arrays share: the list of reads, and the copies that are on their way."""

    def __init__(self) -> None:
        self.reads: list[Read] = []
        self.reads_forbidden = False
        self._copies: list[Callable[[], None]] = []

    def note(self, kind: str) -> None:
        """Write down a read by the nearest caller outside the backends and NumPy.  Raises HostRead where forbidden."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_A_CALLER):
            frame = frame.f_back
        read = Read(kind, frame.f_code.co_filename, frame.f_lineno)
        self.reads.append(read)
        if self.reads_forbidden:
            raise HostRead(str(read))

    def copy_later(self, source: HostArray, target: HostArray) -> None:
        """Queue a copy: `target` holds nothing of use until `wait`, and then what `source` holds now."""
        then = source.copy()
        _poison(target)
        self._copies.append(lambda: np.copyto(target, then))

    def wait(self) -> None:
        for copy in self._copies:
            copy()
        self._copies.clear()

    def call(self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`function` of NumPy over the memory of the arrays among its arguments, its arrays wrapped again."""
        for key in kwargs:
            if lacking.keyword(name, key):
                raise TypeError(f"{name}() got an unexpected keyword argument {key!r}: CuPy's has none")
        of_host_numbers = name in lacking.OF_HOST_NUMBERS and any(isinstance(x, StrictArray) for x in args)
        if of_host_numbers or lacking.reads(name, len(args)):
            self.note(name)
        operands, options = _host(args), _host(kwargs)
        with np.errstate(all="ignore"):
            try:
                result = function(*operands, **options)
            except np.linalg.LinAlgError:
                if name != "cholesky":
                    raise
                result = _cholesky_that_fails(*operands)
        out = kwargs.get("out")
        if out is not None:
            return out[0] if isinstance(out, tuple) and len(out) == 1 else out
        if name in lacking.ABOUT_ARRAYS:
            return result
        return self.wrap(result)

    def wrap(self, x: Any) -> Any:
        """A result as the device would hold it: numbers too are arrays there, of no axes."""
        if isinstance(x, (tuple, list)):
            return tuple([self.wrap(i) for i in x]) if isinstance(x, tuple) else [self.wrap(i) for i in x]
        return StrictArray(np.asarray(x), self) if isinstance(x, (np.ndarray, np.generic, bool, int, float)) else x


def _host(x: Any) -> Any:
    """An argument as NumPy takes it.  Raises TypeError for what CuPy does not take."""
    if isinstance(x, StrictArray):
        return x._host
    if isinstance(x, (np.ndarray, FunctionType)):
        raise TypeError(f"Unsupported type {type(x)}")  # CuPy's own words
    if isinstance(x, (tuple, list)):
        return type(x)([_host(i) for i in x])
    if isinstance(x, dict):
        return {key: _host(value) for key, value in x.items()}
    return x


def _cholesky_that_fails(a: HostArray) -> HostArray:
    """What a device gives for matrices some of which have no factor: it tells of a failure only when asked.

    The columns before the pivot that failed are done; that one stays what it was, not above 0.
    """
    lower = np.tril(a)
    for matrix in lower.reshape(-1, *a.shape[-2:]):
        for j in range(a.shape[-1]):
            matrix[j:, j] -= matrix[j:, :j] @ matrix[j, :j]
            if not matrix[j, j] > 0:
                break
            matrix[j:, j] /= np.sqrt(matrix[j, j])
    return lower


def _poison(x: HostArray) -> None:
    if x.dtype == bool:
        x[...] = True
    else:
        x.reshape(-1).view(np.uint8)[...] = _POISON


class StrictArray:
    """An array in the device's memory."""

    __slots__ = ("_device", "_host")
    __array_ufunc__ = None  # NumPy's functions and scalars leave it to the operators below
    __hash__ = None  # type: ignore[assignment]  # as NumPy's: equality is elementwise

    def __init__(self, host: HostArray, device: Device) -> None:
        self._host, self._device = host, device

    def __array__(self, *args: Any, **kwargs: Any) -> HostArray:
        raise TypeError("a device array is not converted to a NumPy array implicitly: `get` it")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in lacking.METHODS:
            raise AttributeError(f"'cupy.ndarray' object has no attribute {name!r}")
        value = getattr(self._host, name)
        if isinstance(value, (np.ndarray, np.generic)):
            return StrictArray(np.asarray(value), self._device)
        if not callable(value):
            return value
        return lambda *args, **kwargs: self._device.call(name, value, args, kwargs)

    def __len__(self) -> int:
        return len(self._host)

    def __iter__(self) -> Iterator[StrictArray]:
        return (self[i] for i in range(len(self._host)))

    def __copy__(self) -> StrictArray:
        return StrictArray(self._host.copy(), self._device)

    def __deepcopy__(self, memo: Any) -> StrictArray:
        return self.__copy__()

    def _index(self, key: Any) -> tuple[Any, ...]:
        """An index as NumPy takes it.  CuPy finds a mask's positions on the host, in an assignment too."""
        parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(k, (StrictArray, list)) and np.asarray(_host(k)).dtype == bool for k in parts):
            self._device.note("boolean-index")
        return tuple([_host(k) for k in parts])

    def __getitem__(self, key: Any) -> StrictArray:
        index = self._index(key)
        found = self._host[index]
        if not isinstance(found, np.ndarray):
            found = self._host[(*index, ...)] if Ellipsis not in index else np.asarray(found)  # a view, no scalar
        return StrictArray(found, self._device)

    def __setitem__(self, key: Any, value: Any) -> None:
        with np.errstate(all="ignore"):
            self._host[self._index(key)] = _host(value)

    # What the host may ask for, each a read.

    def get(
        self,
        stream: Any = None,  # noqa: ARG002 - CuPy's signature; there is one queue here
        order: str = "C",  # noqa: ARG002 - CuPy's signature; a copy for the host is in C order
        out: HostArray | None = None,
        blocking: bool = True,
    ) -> HostArray:
        """A copy in the host's memory; one that is not `blocking` has arrived only after `synchronize`."""
        self._device.note("get" if blocking else "get-async")
        if out is None:
            out = np.empty(self._host.shape, self._host.dtype)
        if out.shape != self._host.shape or out.dtype != self._host.dtype:
            raise ValueError(f"out is {out.dtype}{out.shape}, the array {self._host.dtype}{self._host.shape}")
        if blocking:
            out[...] = self._host
        else:
            self._device.copy_later(self._host, out)
        return out

    def set(self, host: HostArray) -> None:
        """Overwrite with a NumPy array of the same shape and dtype."""
        if host.shape != self._host.shape or host.dtype != self._host.dtype:
            raise ValueError(f"{host.dtype}{host.shape} does not replace {self._host.dtype}{self._host.shape}")
        self._host[...] = host

    def __repr__(self) -> str:
        self._device.note("repr")
        return repr(self._host)

    def __format__(self, spec: str) -> str:
        self._device.note("format")
        return format(self._host.item() if self._host.ndim == 0 else self._host, spec)


def _define_reads() -> None:
    """The conversions to Python's own values.  CuPy has no `__index__`, so neither is there one here."""

    def define(method: str, kind: str, convert: Callable[..., Any]) -> None:
        def read(self: StrictArray, *args: Any) -> Any:
            self._device.note(kind)
            return convert(self._host, *args)

        setattr(StrictArray, method, read)

    for name in ("item", "tolist", "tobytes", "tofile", "dump", "dumps"):
        define(name, name, getattr(np.ndarray, name))
    for convert in (bool, int, float, complex):
        define(f"__{convert.__name__}__", convert.__name__, convert)


def _define_operators() -> None:
    """Python's operators, by the functions that NumPy takes for them."""

    def define(symbol: str, function: np.ufunc, in_place: bool) -> None:
        def forward(self: StrictArray, other: Any) -> Any:
            return self._device.call(symbol, function, (self, other), {}) if _computes_with(other) else NotImplemented

        def reverse(self: StrictArray, other: Any) -> Any:
            return self._device.call(symbol, function, (other, self), {}) if _computes_with(other) else NotImplemented

        def into(self: StrictArray, other: Any) -> Any:
            if not _computes_with(other):
                return NotImplemented
            return self._device.call(symbol, function, (self, other), {"out": self})

        setattr(StrictArray, f"__{symbol}__", forward)
        if in_place:
            setattr(StrictArray, f"__r{symbol}__", reverse)
            if symbol not in ("matmul", "divmod"):  # Python takes the operator above for `@=`, as with CuPy
                setattr(StrictArray, f"__i{symbol}__", into)

    for symbol, function in _BINARY.items():
        define(symbol, function, True)
    for symbol, function in _COMPARING.items():
        define(symbol, function, False)
    for symbol, function in _UNARY.items():
        setattr(
            StrictArray,
            f"__{symbol}__",
            lambda self, symbol=symbol, function=function: self._device.call(symbol, function, (self,), {}),
        )


_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": np.power, "matmul": np.matmul, "lshift": np.left_shift, "rshift": np.right_shift,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "divmod": np.divmod,
}  # fmt: skip
_COMPARING = {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}  # fmt: skip
_UNARY = {"neg": np.negative, "pos": np.positive, "invert": np.invert, "abs": np.absolute}


def _computes_with(other: Any) -> bool:
    """Whether an operator takes `other`; a NumPy array it takes in order to refuse it by name."""
    return isinstance(other, (StrictArray, bool, int, float, complex, np.generic, np.ndarray))


_define_reads()
_define_operators()


class Namespace:
    """A module of NumPy's as the same module of CuPy's."""

    def __init__(self, module: ModuleType, device: Device) -> None:
        self._module, self._device = module, device

    def __getattr__(self, name: str) -> Any:
        if name in lacking.NAMES.get(self._module.__name__, ()) or name.startswith("_"):
            raise AttributeError(f"module '{self._module.__name__.replace('numpy', 'cupy')}' has no attribute {name!r}")
        value = self._faced(name, getattr(self._module, name))
        self.__dict__[name] = value
        return value

    def _faced(self, name: str, value: Any) -> Any:
        if isinstance(value, ModuleType):
            return Namespace(value, self._device)
        if isinstance(value, np.ufunc):
            return Ufunc(value, self._device)
        if value is np.ndarray:
            return StrictArray
        if isinstance(value, type) or not callable(value):
            return value

        @wraps(value)
        def function(*args: Any, **kwargs: Any) -> Any:
            return self._device.call(name, value, args, kwargs)

        return function


class Ufunc:
    """An elementwise function, with those of its methods that CuPy has."""

    def __init__(self, ufunc: np.ufunc, device: Device) -> None:
        self._ufunc, self._device, self.__name__ = ufunc, device, ufunc.__name__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for key in kwargs:
            if key not in lacking.UFUNC_KEYWORDS and self._ufunc.signature is None:
                raise TypeError(f"Wrong arguments {kwargs}")  # CuPy's own words
        return self._device.call(self.__name__, self._ufunc, args, kwargs)

    def __getattr__(self, method: str) -> Any:
        having = lacking.UFUNC_METHODS.get(method)
        if having is None:
            return getattr(self._ufunc, method)
        if having and self.__name__ not in having:
            raise NotImplementedError(f"`{self.__name__}.{method}` is not supported yet")
        return lambda *args, **kwargs: self._device.call(method, getattr(self._ufunc, method), args, kwargs)


class DeviceModule(Namespace):
    """`xp`: NumPy's main module as CuPy's, with the functions that differ by where memory is."""

    def __init__(self, device: Device) -> None:
        super().__init__(np, device)
        self.__name__ = "cupy"

    def array(self, x: Any, *args: Any, **kwargs: Any) -> StrictArray:
        """A copy of `x`, which may be in the host's memory."""
        return self._made(np.array, x, args, kwargs)

    def asarray(self, x: Any, *args: Any, **kwargs: Any) -> StrictArray:
        """`x`, or its copy where it is in the host's memory."""
        return self._made(np.asarray, x, args, kwargs)

    def _made(self, function: Any, x: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StrictArray:
        mine = StrictArray(x.copy(), self._device) if isinstance(x, np.ndarray) else x
        made: StrictArray = self._device.call(function.__name__, function, (mine, *args), kwargs)
        return made

    def empty(self, *args: Any, **kwargs: Any) -> StrictArray:
        return self._poisoned(np.empty, args, kwargs)

    def empty_like(self, *args: Any, **kwargs: Any) -> StrictArray:
        return self._poisoned(np.empty_like, args, kwargs)

    def _poisoned(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StrictArray:
        made: StrictArray = self._device.call(function.__name__, function, args, kwargs)
        _poison(made._host)
        return made

    def asnumpy(self, x: StrictArray, *args: Any, **kwargs: Any) -> HostArray:
        return x.get(*args, **kwargs)


class StrictBackend(DeviceBackend):
    """A device that is not there: NumPy computes, the rules are CuPy's.

    reads:  what the host has read, in order; `clear` it at the start of a step to see a step's
    """

    name = "strict"

    def __init__(self) -> None:
        super().__init__()
        self._device = Device()
        self.xp = DeviceModule(self._device)

    @property
    def reads(self) -> list[Read]:
        return self._device.reads

    def reads_summary(self) -> list[str]:
        """A line for each kind and place of a read, the most frequent first: `3 × item at sxi/run.py:80`."""
        return [f"{count} × {read}" for read, count in Counter(self.reads).most_common()]

    @contextmanager
    def aside(self) -> Iterator[None]:
        before = len(self.reads)
        yield
        del self.reads[before:]

    @contextmanager
    def forbid_reads(self) -> Iterator[None]:
        """Make a host read raise HostRead, after it is written down."""
        before, self._device.reads_forbidden = self._device.reads_forbidden, True
        try:
            yield
        finally:
            self._device.reads_forbidden = before

    def synchronize(self) -> None:
        self._device.wait()

    def _pinned_buffer(self, n: int) -> HostArray:
        return np.empty(n)

    def _wait_for_copy(self) -> None:
        self._device.wait()
