"""Where examples come from and in which order: files on disk, their splits, the batches of steps and passes.

To add a kind of source, write a function from a `_File` to its arrays as they are in the file and enter it in
`_READERS`; names, types and conversion are the same for every kind.  Nothing here is kept between calls, and no
file can run code: pickles are refused.
"""

from __future__ import annotations

import csv
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import safetensors

from sxi import codes
from sxi.arraytype import CARRIERS, FLOATS, ArrayType, fits
from sxi.errors import SxiError
from sxi.random import permutation_of
from sxi.source import Span
from sxi.suggest import did_you_mean, some_of, suggest_file

HostArray: TypeAlias = Any  # numpy.ndarray

# The package says no types.
_deserialize: Callable[[bytes], list[tuple[str, dict[str, Any]]]] = safetensors.deserialize

# A bf16 array is rounded where it is used, so no source gives one.
DTYPES = tuple(dtype for dtype in CARRIERS if dtype != "bf16")

_SAFETENSORS = {
    "F64": "f8",
    "F32": "f4",
    "F16": "f2",
    "BF16": "u2",
    "I64": "i8",
    "U64": "u8",
    "I32": "i4",
    "U32": "u4",
    "I16": "i2",
    "U16": "u2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
    "C64": "c8",
}  # fmt: skip - a table reads best in few lines


@dataclass(frozen=True)
class _File:
    """A file that a source form names, and what its errors are told with.

    spans:  where `path`, `columns` and `dtype` are written in the form of `span`
    """

    kind: str
    path: str
    span: Span | None
    columns: Sequence[str] | None
    dtype: Mapping[str, str]
    spans: Mapping[str, Span] = field(default_factory=dict)

    def at(self, part: str) -> Span | None:
        return self.spans.get(part, self.span)

    def malformed(self, reason: object) -> SxiError:
        text = " ".join(str(reason).split()) or type(reason).__name__
        return codes.DATA_MALFORMED.at(self.at("path"), path=self.path, kind=self.kind, reason=text)

    def failed(self, error: OSError | ValueError) -> SxiError:
        """The error of the operating system's `error`, or of Python's where the path is none."""
        if isinstance(error, FileNotFoundError):
            near = suggest_file(self.path)
            help = f"did you mean {near}?" if near else None
            return codes.DATA_MISSING.at(self.at("path"), path=self.path, help=help)
        reason = getattr(error, "strerror", None) or error
        return codes.DATA_UNREADABLE.at(self.at("path"), path=self.path, reason=reason)

    def opened(self, *magic: bytes) -> BinaryIO:
        """The file, open at its beginning; refused unless its first bytes are one of `magic`."""
        try:
            file = open(self.path, "rb")  # noqa: SIM115 - the caller closes it
            first = file.read(max(map(len, magic)))
            file.seek(0)
        except (OSError, ValueError) as error:
            raise self.failed(error) from None
        if not first.startswith(magic):
            file.close()
            raise self.malformed(f"it begins with {first!r}" if first else "it is empty")
        return file

    def contents(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                return file.read()
        except (OSError, ValueError) as error:
            raise self.failed(error) from None

    def chosen(self, names: Iterable[str]) -> list[str]:
        """Those of the arrays `names` that `:columns` takes, in its order; `:dtype` must name taken ones."""
        names = list(names)
        taken = names if self.columns is None else list(dict.fromkeys(self.columns))
        asked = [*(("columns", n, names) for n in taken), *(("dtype", n, taken) for n in self.dtype)]
        for option, name, there in asked:
            if name not in there:
                help = did_you_mean(name, there) or None
                listed = some_of(there) if there else "no arrays"
                raise codes.DATA_NO_ARRAY.at(self.at(option), path=self.path, name=name, names=listed, help=help)
        return taken


class Column:
    """One array of a source, converted as it is read, so that a file larger than memory can be mapped.

    type:  its dtype in the language and its shape, the rows first
    """

    def __init__(self, name: str, held: HostArray, dtype: str, file: _File) -> None:
        self._name, self._held, self._file = name, held, file
        self.type = ArrayType(dtype, held.shape)

    def rows(self, indices: HostArray | slice) -> HostArray:
        """The rows at `indices`, i64[n] or a slice: an array of the column's type, contiguous, not to be written to.

        Raises E-RUN-007 where a value does not fit the type.
        """
        return self._converted(self._held[indices])

    def whole(self) -> HostArray:
        """Every row, as `rows` gives them."""
        return self._converted(self._held)

    def _converted(self, held: HostArray) -> HostArray:
        target = np.dtype(self.type.carrier)
        if held.dtype == target:
            return np.asarray(held, order="C")
        with np.errstate(all="ignore"):
            out = np.asarray(held.astype(target, order="C"))
        if not np.can_cast(held.dtype, target):
            changed = _changed(held, out)
            if changed.any():
                value = np.asarray(held)[changed][0].item()
                raise codes.DATA_DOES_NOT_FIT.at(
                    self._file.span, name=self._name, path=self._file.path, value=value, dtype=self.type.dtype
                )
        return out


def _changed(held: HostArray, out: HostArray) -> HostArray:
    """Where the conversion of `held` to `out` changed a value by more than rounding, bool[*n]."""
    if out.dtype.kind == "f":
        return np.isinf(out) & np.isfinite(held)
    if out.dtype.kind == "b":
        return (held != 0) & (held != 1)
    limits = np.iinfo(out.dtype)
    if held.dtype.kind == "f":
        # A power of two is exact in every float type, the largest integer is not.
        return ~((held >= -(2.0 ** (limits.bits - 1))) & (held < 2.0 ** (limits.bits - 1)) & (held == np.trunc(held)))
    return (held < limits.min) | (held > limits.max)


def load(
    kind: str,
    files: str | Mapping[str, str],
    base: str,
    span: Span | None,
    *,
    columns: Sequence[str] | None = None,
    dtype: Mapping[str, str] | None = None,
    spans: Mapping[str, Span] | None = None,
) -> dict[str, Column | int]:
    """The arrays of a data source by name; and for a text its `vocabulary`, a host integer.

    kind:     "npz", "npy", "csv", "safetensors" or "text"
    files:    the path of its file; for "npy" the path of each array by name
    base:     the folder that paths are relative to
    span:     the source form, which errors point at
    columns:  the arrays that are taken, all without it
    dtype:    the types of arrays that are not to have the usual one: f32 of reals, i32 of bytes, short integers
              and i32, i64 of longer ones, bool of bools
    spans:    where `path`, `columns` and `dtype` are written
    raises:   E-RUN-001 to E-RUN-010
    """
    dtype, spans = dict(dtype or {}), spans or {}
    for name in dtype.values():
        if name not in DTYPES:
            help = did_you_mean(name, DTYPES, ":{}") or None
            raise codes.DATA_UNKNOWN_DTYPE.at(spans.get("dtype", span), dtype=name, help=help)
    if isinstance(files, str):
        return _READERS[kind](_File(kind, os.path.join(base, files), span, columns, dtype, spans))
    out: dict[str, Column | int] = {}
    listed = _File(kind, "the source", span, columns, dtype, spans)
    for name in listed.chosen(files):
        own = {name: dtype[name]} if name in dtype else {}
        file = _File(kind, os.path.join(base, files[name]), span, None, own, spans)
        out[name] = _column(name, _npy(file), file, mapped=True)
    return out


def _column(name: str, held: HostArray, file: _File, *, mapped: bool = False, usual: str | None = None) -> Column:
    """The column of the array `held` as its file has it; converted at once unless it is `mapped`."""
    usual = usual or _usual_dtype(held.dtype)
    if usual is None:
        held_name = {"O": "Python objects", "U": "text", "S": "text", "T": "text"}.get(held.dtype.kind, held.dtype)
        raise codes.DATA_NOT_NUMBERS.at(file.span, name=name, path=file.path, held=held_name)
    column = Column(name, held, file.dtype.get(name, usual), file)
    if mapped:
        return column
    whole = column.whole()
    whole.flags.writeable = False
    return Column(name, whole, column.type.dtype, file)


def _usual_dtype(dtype: np.dtype[Any]) -> str | None:
    """The type in the language of an array that a file holds as `dtype`, or None."""
    if dtype.kind == "f":
        return "f32"
    if dtype.kind == "b":
        return "bool"
    if dtype.kind not in "iu":
        return None
    return "i32" if np.can_cast(dtype, np.int32) else "i64"


# The kinds of sources.


def _npy(file: _File) -> HostArray:
    file.opened(b"\x93NUMPY").close()
    return _by_numpy(file, "it", partial(np.load, file.path, mmap_mode="r", allow_pickle=False))


def _npz(file: _File) -> dict[str, Column | int]:
    out: dict[str, Column | int] = {}
    with file.opened(b"PK\x03\x04", b"PK\x05\x06") as opened:
        archive = _by_numpy(file, "it", partial(np.load, opened, allow_pickle=False))
        for name in file.chosen(archive.files):
            held = _by_numpy(file, name, partial(archive.__getitem__, name))
            if not isinstance(held, np.ndarray):
                raise file.malformed(f"its member {name} is no array")
            out[name] = _column(name, held, file)
    return out


def _by_numpy(file: _File, name: str, read: Callable[[], Any]) -> Any:
    """What `read` gives, its failures as errors of `file` or its array `name`."""
    with warnings.catch_warnings():
        # A header that NumPy takes with a warning is taken; one that it refuses is refused below.
        warnings.simplefilter("ignore")
        try:
            return read()
        except OSError as error:
            # zipfile and numpy also raise OSError for wrong contents, then without a number.
            raise (file.malformed(error) if error.errno is None else file.failed(error)) from None
        except Exception as error:
            # Damaged bytes lead numpy, zipfile and zlib to anything from ValueError to MemoryError.
            if "allow_pickle" in str(error) or "Python objects" in str(error):
                raise codes.DATA_NOT_NUMBERS.at(file.span, name=name, path=file.path, held="Python objects") from None
            raise file.malformed(error) from None


def _safetensors(file: _File) -> dict[str, Column | int]:
    try:
        arrays = read_safetensors(file.contents())
    except ValueError as error:
        raise file.malformed(error) from None
    return {name: _column(name, arrays[name], file) for name in file.chosen(arrays)}


def read_safetensors(contents: bytes) -> dict[str, HostArray]:
    """The arrays of a safetensors file by name, each owning its memory; bf16 is widened to f32.

    Raises ValueError where the contents are not whole, or hold a type that NumPy does not have.
    """
    try:
        entries = _deserialize(contents)
    except safetensors.SafetensorError as error:
        raise ValueError(str(error).removeprefix("Error while deserializing: ")) from None
    out = {}
    for name, entry in entries:
        held = _SAFETENSORS.get(entry["dtype"])
        if held is None:
            raise ValueError(f"{name} has the type {entry['dtype']}")
        array = np.frombuffer(entry["data"], np.dtype(held).newbyteorder("<"))
        if entry["dtype"] == "BF16":
            array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
        out[name] = array.astype(array.dtype.newbyteorder("=")).reshape(entry["shape"])
    return out


def _text(file: _File) -> dict[str, Column | int]:
    try:
        text = file.contents().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise file.malformed(f"byte {error.start} is not UTF-8") from None
    file.chosen(["tokens"])
    characters = np.frombuffer(text.encode("utf-32-le"), "<u4")
    present = np.zeros(0x110000, bool)
    present[characters] = True
    numbers = np.cumsum(present, dtype=np.int32) - 1
    return {"tokens": _column("tokens", numbers[characters], file), "vocabulary": int(present.sum())}


def _csv(file: _File) -> dict[str, Column | int]:
    header, rows, lines = _csv_rows(file)
    taken = file.chosen(header)
    out: dict[str, Column | int] = {}
    for name in taken:
        at = header.index(name)
        held = _csv_numbers(file, name, [row[at] for row in rows], lines)
        short = held.dtype.kind == "i" and all(fits(int(end), "i32") for end in (held.min(), held.max()))
        out[name] = _column(name, held, file, usual="i32" if short else None)
    return out


def _csv_rows(file: _File) -> tuple[list[str], list[list[str]], list[int]]:
    """The names in the header, the fields of each row and the line each row ends on; blank lines are skipped."""
    try:
        with open(file.path, encoding="utf-8-sig", newline="") as opened:
            reader = csv.reader(opened, strict=True)
            header = [name.strip() for name in next(reader, [])]
            _check_header(file, header)
            rows: list[list[str]] = []
            lines: list[int] = []
            for row in reader:
                if len(row) == len(header):
                    rows.append(row)
                    lines.append(reader.line_num)
                elif row:
                    raise codes.CSV_RAGGED.at(
                        file.span, path=file.path, line=reader.line_num, given=len(row), wanted=len(header)
                    )
            return header, rows, lines
    except OSError as error:
        raise file.failed(error) from None
    except UnicodeDecodeError as error:
        raise file.malformed(f"byte {error.object[error.start]:#x} is not UTF-8") from None
    except csv.Error as error:
        raise file.malformed(f"{error} on line {reader.line_num}") from None


def _check_header(file: _File, header: list[str]) -> None:
    twice = [name for at, name in enumerate(header) if name in header[:at]]
    if not any(header):
        reason = "it is empty"
    elif not all(header):
        reason = f"column {header.index('') + 1} has no name"
    elif twice:
        reason = f"{twice[0]} is there twice"
    elif all(map(_is_real, header)):
        reason = "it holds numbers"
    else:
        return
    raise codes.CSV_HEADER.at(file.span, path=file.path, reason=reason)


def _csv_numbers(file: _File, name: str, cells: list[str], lines: list[int]) -> HostArray:
    """The numbers of a column: i64[n] where all are whole numbers that fit and no real is asked for, else f64[n]."""
    whole = file.dtype.get(name) not in FLOATS and cells and all(map(_is_whole, cells))
    if whole:
        numbers = [int(cell) for cell in cells]
        for number in (min(numbers), max(numbers)):
            if not -(2**63) <= number < 2**63:
                raise codes.DATA_DOES_NOT_FIT.at(file.span, name=name, path=file.path, value=number, dtype="i64")
        return np.array(numbers, np.int64)
    for cell, line in zip(cells, lines, strict=True):
        if not _is_real(cell):
            raise codes.CSV_TEXT.at(file.span, name=name, path=file.path, value=f'"{cell}"', line=line)
    return np.array([float(cell) for cell in cells], np.float64)


def _is_whole(cell: str) -> bool:
    digits = cell.strip()
    return digits.isascii() and digits.removeprefix("-").removeprefix("+").isdigit()


def _is_real(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    # Python also reads `1_000` and digits of other scripts, which no other reader of CSV does.
    return cell.isascii() and "_" not in cell


_READERS: dict[str, Callable[[_File], dict[str, Column | int]]] = {
    "npz": _npz,
    "csv": _csv,
    "safetensors": _safetensors,
    "text": _text,
}


# Rows, splits and batches.


def leading_sizes(columns: Mapping[str, Column | int]) -> dict[str, int | None]:
    """The number of rows of each array, None for one without axes; host integers are left out."""
    arrays = {name: column.type for name, column in columns.items() if isinstance(column, Column)}
    return {name: type.shape[0] if type.shape else None for name, type in arrays.items()}


def split(n: int, fractions: Mapping[str, float], span: Span | None = None) -> dict[str, HostArray]:
    """The rows of each split, i64[size], in the order of the file.

    Which rows is a fixed permutation of the `n`, whatever the run's seed; a size is its fraction of `n`, rounded,
    and the last split takes the rest.  Raises E-RUN-011 and E-RUN-012.
    """
    values = list(fractions.values())
    if not values or not all(0 < value <= 1 for value in values) or abs(sum(values) - 1) > 1e-6:
        raise codes.SPLIT_FRACTIONS.at(span, fractions=", ".join(map(str, values)) or "none")
    order = permutation_of(n, 0, "split")
    out: dict[str, HostArray] = {}
    start = 0
    for at, (name, fraction) in enumerate(fractions.items(), 1):
        end = n if at == len(values) else min(n, start + round(n * fraction))
        if end == start:
            raise codes.SPLIT_EMPTY.at(span, name=name, fraction=fraction, rows=n)
        out[name] = np.sort(order[start:end])
        start = end
    return out


class Order:
    """In which order a run takes its examples: a permutation for each epoch, one laid after the other."""

    def __init__(self, rows: HostArray, seed: int, *, shuffle: bool = True, span: Span | None = None) -> None:
        """`rows`, i64[n], are the run's examples in the order of the file, which they keep without `shuffle`.

        Raises E-RUN-013 where there are none.
        """
        if not len(rows):
            raise codes.DATA_EMPTY.at(span)
        self._examples, self._seed, self._shuffle = rows, seed, shuffle
        self._epochs: dict[int, HostArray] = {}

    def rows(self, at: int, count: int) -> HostArray:
        """The rows of the `count` examples behind the first `at`: i64[count]."""
        n = len(self._examples)
        end = at + count
        parts = []
        while at < end:
            epoch, start = divmod(at, n)
            parts.append(self._epoch(epoch)[start : start + end - at])
            at += len(parts[-1])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _epoch(self, epoch: int) -> HostArray:
        if not self._shuffle:
            return self._examples
        if epoch not in self._epochs:
            if len(self._epochs) > 1:
                self._epochs.clear()
            self._epochs[epoch] = self._examples[permutation_of(len(self._examples), self._seed, "epoch", epoch)]
        return self._epochs[epoch]


def chunk(rows: HostArray, microbatches: int, i: int) -> HostArray:
    """The rows of microbatch `i`, counted from 0: the i-th of the equal runs that `rows` is cut into."""
    size = len(rows) // microbatches
    return rows[i * size : (i + 1) * size]


def pass_batches(n: int, batch: int) -> list[slice]:
    """The batches of a pass over `n` examples, in their order, a ragged last one included."""
    return [slice(start, min(start + batch, n)) for start in range(0, n, batch)]
