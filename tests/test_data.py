"""Data sources: what each kind reads, what it refuses and how; splits, epochs and batches."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from sxi import data
from sxi.data import Column, Order, chunk, leading_sizes, load, pass_batches, split
from sxi.errors import SxiError
from sxi.source import Source, Span

TEXT = '(data d (npz "d.npz"))'
SPAN = Span(Source("run.sx", TEXT), 8, len(TEXT) - 1)


def read_all(kind: str, files: str | dict[str, str], base: Path, **options: Any) -> None:
    for column in load(kind, files, str(base), SPAN, **options).values():
        if isinstance(column, Column) and column.type.size < 10**6:  # a damaged header may say any shape
            column.whole()


def refused(code: str, kind: str, files: str | dict[str, str], base: Path, **options: Any) -> SxiError:
    """The error that reading all of a source raises, which must have `code`, the place and a repair."""
    with pytest.raises(SxiError) as caught:
        read_all(kind, files, base, **options)
    error = caught.value
    assert (error.code, error.span, error.exit_status) == (f"E-RUN-{code}", SPAN, 1)
    assert error.help
    assert "\n" not in error.message
    return error


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


# What an array of a file becomes.


@pytest.mark.parametrize(
    ("held", "dtype"),
    [
        ("f2", "f32"),
        ("f4", "f32"),
        ("f8", "f32"),
        (">f4", "f32"),
        (">f8", "f32"),
        ("i1", "i32"),
        ("u1", "i32"),
        ("i2", "i32"),
        ("u2", "i32"),
        (">u2", "i32"),
        ("i4", "i32"),
        ("u4", "i64"),
        ("i8", "i64"),
        ("u8", "i64"),
        ("?", "bool"),
    ],
)  # fmt: skip - a table
@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_types_of_arrays(tmp_path: Path, kind: str, held: str, dtype: str) -> None:
    values = np.array([[0, 1], [1, 0], [1, 1]], held)
    if kind == "npz":
        np.savez(tmp_path / "d.npz", x=values)
        loaded = load(kind, "d.npz", str(tmp_path), SPAN)
    else:
        np.save(tmp_path / "x.npy", values)
        loaded = load(kind, {"x": "x.npy"}, str(tmp_path), SPAN)
    x = loaded["x"]
    assert isinstance(x, Column)
    assert str(x.type) == f"{dtype}[3 2]"
    assert x.whole().dtype == np.dtype({"f32": "f4", "i32": "i4", "i64": "i8", "bool": "?"}[dtype])
    assert x.whole().tolist() == [[0, 1], [1, 0], [1, 1]]
    assert x.rows(np.array([2, 0])).tolist() == [[1, 1], [0, 1]]
    assert x.rows(slice(1, 3)).tolist() == [[1, 0], [1, 1]]


def test_a_given_type_is_taken(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.array([0.1]), y=np.array([3], "u1"), z=np.array([2.0]), b=np.array([1, 0]))
    types = {"x": "f64", "y": "f16", "z": "i32", "b": "bool"}
    loaded = load("npz", "d.npz", str(tmp_path), SPAN, dtype=types)
    read = {name: column.whole() for name, column in loaded.items() if isinstance(column, Column)}
    assert {name: str(array.dtype) for name, array in read.items()} == {
        "x": "float64",
        "y": "float16",
        "z": "int32",
        "b": "bool",
    }  # fmt: skip - short
    assert read["x"][0] == 0.1
    assert read["b"].tolist() == [True, False]


@pytest.mark.parametrize(
    ("values", "dtype", "shown"),
    [
        (np.array([1.0, 1e300]), None, "1e+300"),
        (np.array([1.0, -1e39]), None, "-1e+39"),
        (np.array([70000]), "f16", "70000"),
        (np.array([2**31]), "i32", "2147483648"),
        (np.array([2**63], "u8"), None, "9223372036854775808"),
        (np.array([2**64 - 1], "u8"), "i32", "18446744073709551615"),
        (np.array([0.5]), "i32", "0.5"),
        (np.array([np.nan]), "i64", "nan"),
        (np.array([2.0**63]), "i64", "9.223372036854776e+18"),
        (np.array([-np.inf], "f4"), "i32", "-inf"),
        (np.array([2]), "bool", "2"),
        (np.array([np.nan]), "bool", "nan"),
    ],
)
@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_a_value_that_does_not_fit_is_refused(
    tmp_path: Path, kind: str, values: np.ndarray, dtype: str | None, shown: str
) -> None:
    np.savez(tmp_path / "d.npz", x=values)
    np.save(tmp_path / "x.npy", values)
    files: str | dict[str, str] = "d.npz" if kind == "npz" else {"x": "x.npy"}
    error = refused("007", kind, files, tmp_path, dtype={"x": dtype} if dtype else None)
    assert f"has the value {shown}, which" in error.message


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        (np.array([np.inf, np.nan, 0.1]), "f32", [np.inf, np.nan, np.float32(0.1)]),
        (np.array([-(2**31), 2**31 - 1]), "i32", [-(2**31), 2**31 - 1]),
        (np.array([-(2.0**63), 2.0**53]), "i64", [-(2**63), 2**53]),
        (np.array([2**53 + 1]), "f32", [2.0**53]),
        (np.array([2**63 - 1], "u8"), "i64", [2**63 - 1]),
    ],
)
def test_a_value_at_the_edge_fits(tmp_path: Path, values: np.ndarray, dtype: str, expected: list[float]) -> None:
    np.savez(tmp_path / "d.npz", x=values)
    x = load("npz", "d.npz", str(tmp_path), SPAN, dtype={"x": dtype})["x"]
    assert isinstance(x, Column)
    np.testing.assert_array_equal(x.whole(), np.array(expected, x.whole().dtype))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.array(["a"]), "text"),
        (np.array([b"a"]), "text"),
        (np.array([1j]), "complex128"),
        (np.array([(1, 2.0)], "i4,f4"), "i4"),
        (np.array(["2020-01-01"], "M8[D]"), "datetime64"),
        (np.array([None]), "Python objects"),
    ],
)
@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_what_no_array_holds_is_refused(tmp_path: Path, kind: str, values: np.ndarray, said: str) -> None:
    np.savez(tmp_path / "d.npz", x=np.ones(2), y=values)
    np.save(tmp_path / "y.npy", values)
    error = refused("004", kind, "d.npz" if kind == "npz" else {"y": "y.npy"}, tmp_path)
    assert said in error.message
    assert ":columns" in error.help
    if kind == "npz":
        assert list(load(kind, "d.npz", str(tmp_path), SPAN, columns=["x"])) == ["x"]


def test_rows_are_contiguous_and_the_source_is_not_written_to(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.asfortranarray(np.arange(6, dtype="f4").reshape(3, 2)))
    np.save(tmp_path / "x.npy", np.asfortranarray(np.arange(6, dtype="f4").reshape(3, 2)))
    for kind in ("npz", "npy"):
        x = load(kind, "d.npz" if kind == "npz" else {"x": "x.npy"}, str(tmp_path), SPAN)["x"]
        assert isinstance(x, Column)
        for array in (x.whole(), x.rows(slice(0, 2)), x.rows(np.array([1, 0]))):
            assert array.flags.c_contiguous
            if array.flags.writeable:  # then it is a copy
                array[:] = 9
        assert x.whole().tolist() == [[0, 1], [2, 3], [4, 5]]


def test_empty_arrays_and_arrays_without_axes(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", none=np.zeros((0, 3)), one=np.float64(2.5))
    np.save(tmp_path / "x.npy", np.zeros((0, 3)))
    loaded = load("npz", "d.npz", str(tmp_path), SPAN)
    assert leading_sizes(loaded) == {"none": 0, "one": None}
    mapped = load("npy", {"x": "x.npy"}, str(tmp_path), SPAN)["x"]
    assert isinstance(mapped, Column)
    assert mapped.whole().shape == (0, 3)


def test_a_file_larger_than_memory_is_mapped(tmp_path: Path) -> None:
    rows = 2**37  # half a tebibyte of zeros that take no room on the disk
    path = tmp_path / "x.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<u2", "fortran_order": False, "shape": (rows, 2)})
        try:
            file.truncate(file.tell() + rows * 4)
        except OSError as error:
            pytest.skip(f"the file system takes no such file: {error}")
    x = load("npy", {"x": "x.npy"}, str(tmp_path), SPAN)["x"]
    assert isinstance(x, Column)
    assert str(x.type) == f"i32[{rows} 2]"
    assert x.rows(np.array([rows - 1, 5])).tolist() == [[0, 0], [0, 0]]


LIMITED = """
import resource, sys
from sxi.cli import main
resource.setrlimit(resource.RLIMIT_DATA, (2**30, 2**30))  # what a process has of its own: a mapped file is not
sys.exit(main(["run", "p.sx", "--out", "done", "--quiet"]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_a_run_takes_from_a_file_larger_than_memory_only_what_a_step_needs(tmp_path: Path) -> None:
    rows, width = 2**14, 2**22  # 128 GiB that take no room on the disk; a row 8 MiB, 16 as i32
    with (tmp_path / "x.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<u2", "fortran_order": False, "shape": (rows, width)})
        try:
            file.truncate(file.tell() + rows * width * 2)
        except OSError as error:
            pytest.skip(f"the file system takes no such file: {error}")
    (tmp_path / "p.sx").write_text(
        """(data d (npy {:x "x.npy"}) :split {:train 0.9 :held 0.1})
        (objective (batch) (metric "seen" (sum (:x batch)) :reduce :sum)
          (sum (* (param "w" [] :init ones-init) (slice (:x batch) 1 0 3))))
        (run r :data d :batch 4 :microbatches 4 :steps 3 :optimizer (sgd :lr 1.0))""",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, "-c", LIMITED], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "done/status.json").read_text(encoding="utf-8"))["step"] == 3


# Names, paths, damaged files.


def test_arrays_are_named_by_columns_and_dtype(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.ones(2), y=np.ones(2))
    assert list(load("npz", "d.npz", str(tmp_path), SPAN, columns=["y", "x"])) == ["y", "x"]
    error = refused("006", "npz", "d.npz", tmp_path, columns=["z"])
    assert error.message.endswith("d.npz has no z; it has x, y")
    refused("006", "npz", "d.npz", tmp_path, dtype={"z": "f64"})
    refused("006", "npz", "d.npz", tmp_path, columns=["x"], dtype={"y": "f64"})
    for dtype in ("bf16", "f99", "float32"):
        assert f"{dtype} is no type" in refused("005", "npz", "d.npz", tmp_path, dtype={"x": dtype}).message


def test_npy_takes_a_type_for_each_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(2))
    np.save(tmp_path / "y.npy", np.ones(2))
    loaded = load("npy", {"x": "x.npy", "y": "y.npy"}, str(tmp_path), SPAN, dtype={"y": "f64"})
    assert [str(column.type) for column in loaded.values() if isinstance(column, Column)] == ["f32[2]", "f64[2]"]
    refused("006", "npy", {"x": "x.npy"}, tmp_path, dtype={"y": "f64"})
    assert list(load("npy", {"x": "x.npy", "y": "no.npy"}, str(tmp_path), SPAN, columns=["x"])) == ["x"]


KINDS = ["npz", "npy", "csv", "safetensors", "text"]


def files_of(kind: str, name: str) -> str | dict[str, str]:
    return {"x": name} if kind == "npy" else name


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_file(tmp_path: Path, kind: str) -> None:
    error = refused("001", kind, files_of(kind, "no.file"), tmp_path)
    assert error.message == f"there is no file {tmp_path / 'no.file'}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_where_a_file_should_be(tmp_path: Path, kind: str) -> None:
    (tmp_path / "folder").mkdir()
    assert "Is a directory" in refused("002", kind, files_of(kind, "folder"), tmp_path).message
    write(tmp_path / "file", "x\n1\n")
    refused("002", kind, files_of(kind, "file/below"), tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_an_absolute_path_is_not_joined(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "no.file")
    assert refused("001", kind, files_of(kind, path), Path("/elsewhere")).message.endswith(path)


def whole_files(folder: Path) -> dict[str, Path]:
    x = np.arange(400, dtype="f4").reshape(100, 4)
    np.savez_compressed(folder / "d.npz", x=x)
    np.save(folder / "x.npy", x)
    save_file({"x": x}, folder / "d.safetensors")
    return {"npz": folder / "d.npz", "npy": folder / "x.npy", "safetensors": folder / "d.safetensors"}


@pytest.mark.parametrize("kind", ["npz", "npy", "safetensors"])
def test_a_damaged_file_is_read_or_refused(tmp_path: Path, kind: str) -> None:
    path = whole_files(tmp_path)[kind]
    whole = path.read_bytes()
    files = files_of(kind, path.name)
    for length in [0, 1, 5, 9, 20, 64, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        refused("003", kind, files, tmp_path)
    rng = np.random.default_rng(0)
    outcomes = set()
    for _ in range(300):
        flipped = bytearray(whole)
        for at in rng.integers(0, min(len(whole), 300), 3):
            flipped[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        try:
            read_all(kind, files, tmp_path)
            outcomes.add("read")
        except SxiError as error:
            outcomes.add(error.family)
    assert "RUN" in outcomes
    assert outcomes <= {"RUN", "read"}


def test_no_pickle_is_loaded(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (os.mkdir, (str(tmp_path / "sprung"),))

    trap = np.array([Trap()], object)
    np.savez(tmp_path / "d.npz", x=trap)
    np.save(tmp_path / "x.npy", trap, allow_pickle=True)
    (tmp_path / "bare").write_bytes(pickle.dumps(Trap()))
    refused("004", "npz", "d.npz", tmp_path)
    refused("004", "npy", {"x": "x.npy"}, tmp_path)
    refused("003", "npz", "bare", tmp_path)
    refused("003", "npy", {"x": "bare"}, tmp_path)
    assert not (tmp_path / "sprung").exists()


def test_an_archive_with_other_members(tmp_path: Path) -> None:
    np.savez(tmp_path / "d.npz", x=np.ones(2))
    with zipfile.ZipFile(tmp_path / "d.npz", "a") as archive:
        archive.writestr("readme.txt", "words")
    assert "readme.txt is no array" in refused("003", "npz", "d.npz", tmp_path).message
    assert list(load("npz", "d.npz", str(tmp_path), SPAN, columns=["x"])) == ["x"]


def test_loading_prints_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    whole_files(tmp_path)
    load("npz", "d.npz", str(tmp_path), SPAN)
    refused("001", "npz", "no.npz", tmp_path)
    assert capfd.readouterr() == ("", "")


# safetensors.


def test_safetensors(tmp_path: Path) -> None:
    arrays = {"w": np.array([[1.5, 2.0]]), "b": np.array([1, 2], "u1"), "m": np.array([True]), "s": np.array(3, "i8")}
    save_file(arrays, tmp_path / "d.safetensors")
    loaded = load("safetensors", "d.safetensors", str(tmp_path), SPAN)
    types = {name: str(column.type) for name, column in loaded.items() if isinstance(column, Column)}
    assert types == {"w": "f32[1 2]", "b": "i32[2]", "m": "bool[1]", "s": "i64[]"}


def test_safetensors_of_bf16_are_widened(tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}).encode()
    content = struct.pack("<Q", len(header)) + header + struct.pack("<3H", 0x3F80, 0xC000, 0x7F80)
    (tmp_path / "d.safetensors").write_bytes(content)
    w = load("safetensors", "d.safetensors", str(tmp_path), SPAN)["w"]
    assert isinstance(w, Column)
    assert w.whole().tolist() == [1.0, -2.0, float("inf")]
    odd = json.dumps({"w": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]}}).encode()
    (tmp_path / "d.safetensors").write_bytes(struct.pack("<Q", len(odd)) + odd + b"\0\0")
    assert "F8_E4M3" in refused("003", "safetensors", "d.safetensors", tmp_path).message


# csv.


def numbers(loaded: dict[str, Column | int]) -> dict[str, tuple[str, list[float]]]:
    return {name: (str(c.type), c.whole().tolist()) for name, c in loaded.items() if isinstance(c, Column)}


def test_csv(tmp_path: Path) -> None:
    write(tmp_path / "d.csv", '\ufeffa, b,c,"d,e"\r\n1,2.5,3000000000,-1\r\n\r\n -2,nan,4,"+7"\r\n')
    assert str(numbers(load("csv", "d.csv", str(tmp_path), SPAN))) == str(
        {
            "a": ("i32[2]", [1, -2]),
            "b": ("f32[2]", [2.5, float("nan")]),
            "c": ("i64[2]", [3000000000, 4]),
            "d,e": ("i32[2]", [-1, 7]),
        }
    )


def test_csv_types_that_are_given(tmp_path: Path) -> None:
    write(tmp_path / "d.csv", f"a,b,c\n1,0.1,{2**80}\n")
    loaded = load("csv", "d.csv", str(tmp_path), SPAN, dtype={"a": "f64", "b": "f64", "c": "f64"})
    assert numbers(loaded) == {"a": ("f64[1]", [1.0]), "b": ("f64[1]", [0.1]), "c": ("f64[1]", [2.0**80])}
    assert str(2**80) in refused("007", "csv", "d.csv", tmp_path).message
    refused("007", "csv", "d.csv", tmp_path, columns=["b"], dtype={"b": "i32"})


@pytest.mark.parametrize(
    ("code", "text", "said"),
    [
        ("008", "", "it is empty"),
        ("008", "\n1,2\n", "it is empty"),
        ("008", "1,2.5\n3,4\n", "it holds numbers"),
        ("008", "a,,b\n1,2,3\n", "column 2 has no name"),
        ("008", "a,b,a\n1,2,3\n", "a is there twice"),
        ("009", "a,b\n1,2\n3\n", "line 3 of"),
        ("009", 'a,b\n"1\n",2\n3,4,5\n', "line 4 of"),
        ("009", "a,b\n1,2,\n", "has 3 fields, and its header has 2"),
        ("010", "a,b\n1,x\n", "column b of"),
        ("010", "a,b\n1,2\n1,\n", 'holds "" on line 3'),
        ("010", "a\n1_000\n", '"1_000"'),
        ("010", "a\n0x10\n", '"0x10"'),
        ("010", "a\n１２\n", '"１２"'),
        ("010", "a\ntrue\n", '"true"'),
        ("003", 'a\n"1', "unexpected end of data"),
        ("003", 'a\n"1"2\n', "line 2"),
    ],
)  # fmt: skip - a table
def test_csv_that_is_refused(tmp_path: Path, code: str, text: str, said: str) -> None:
    write(tmp_path / "d.csv", text)
    assert said in refused(code, "csv", "d.csv", tmp_path).message


def test_csv_text_columns_may_be_left_out(tmp_path: Path) -> None:
    write(tmp_path / "d.csv", "name,x\nann,1\nbob,2\n")
    assert numbers(load("csv", "d.csv", str(tmp_path), SPAN, columns=["x"])) == {"x": ("i32[2]", [1, 2])}


def test_csv_without_rows(tmp_path: Path) -> None:
    write(tmp_path / "d.csv", "a,b\n")
    assert numbers(load("csv", "d.csv", str(tmp_path), SPAN)) == {"a": ("f32[0]", []), "b": ("f32[0]", [])}


def test_csv_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes(b"a\n\xff\n")
    assert "0xff is not UTF-8" in refused("003", "csv", "d.csv", tmp_path).message


# text.


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
def test_text_is_numbered_by_its_sorted_characters(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    text = text.removeprefix("\ufeff")
    folder = tmp_path_factory.mktemp("text")
    write(folder / "t.txt", text)
    loaded = load("text", "t.txt", str(folder), SPAN)
    tokens = loaded["tokens"]
    assert isinstance(tokens, Column)
    characters = sorted(set(text))
    assert loaded["vocabulary"] == len(characters)
    assert tokens.whole().tolist() == [characters.index(c) for c in text]
    assert tokens.type.dtype == "i32"


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"abc\xff")
    assert "byte 3 is not UTF-8" in refused("003", "text", "t.txt", tmp_path).message
    refused("006", "text", "t.txt", write(tmp_path / "t.txt", "abc").parent, dtype={"x": "i64"})


# Splits.


@given(st.integers(3, 300), st.floats(0.2, 0.8))
def test_splits_divide_the_rows(n: int, fraction: float) -> None:
    parts = split(n, {"train": fraction, "held-out": 1 - fraction})
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(n))
    assert len(parts["train"]) == round(n * fraction)
    for rows in parts.values():
        assert (np.diff(rows) > 0).all()


def test_splits_never_change() -> None:
    parts = split(1000, {"train": 0.7, "valid": 0.2, "test": 0.1})
    assert [len(rows) for rows in parts.values()] == [700, 200, 100]
    joined = b"".join(rows.astype("<i8").tobytes() for rows in parts.values())
    # A change here gives every saved run other examples than it was trained on.
    assert hashlib.blake2b(joined, digest_size=8).hexdigest() == "81c1fe326ae50448"


@pytest.mark.parametrize(
    "fractions",
    [{}, {"a": 0.5}, {"a": 0.5, "b": 0.6}, {"a": 1.5, "b": -0.5}, {"a": 1.0, "b": 0.0}, {"a": float("nan")}],
)
def test_fractions_that_are_refused(fractions: dict[str, float]) -> None:
    with pytest.raises(SxiError) as caught:
        split(10, fractions, SPAN)
    assert (caught.value.code, caught.value.span) == ("E-RUN-011", SPAN)


@pytest.mark.parametrize(("n", "fractions"), [(3, {"a": 0.9, "b": 0.1}), (0, {"a": 1.0}), (2, {"a": 0.1, "b": 0.9})])
def test_an_empty_split_is_refused(n: int, fractions: dict[str, float]) -> None:
    with pytest.raises(SxiError) as caught:
        split(n, fractions, SPAN)
    assert caught.value.code == "E-RUN-012"


def test_rounded_sizes_never_exceed_the_rows() -> None:
    parts = split(7, {"a": 0.36, "b": 0.36, "c": 0.28})
    assert [len(rows) for rows in parts.values()] == [3, 3, 1]


# The order of examples.


@given(st.integers(1, 40), st.integers(1, 100), st.integers(0, 3))
def test_epochs_are_laid_end_to_end(n: int, batch: int, seed: int) -> None:
    examples = np.arange(n) * 10 + 3
    order = Order(examples, seed)
    steps = 3 * n // batch + 1
    laid = np.concatenate([order.rows(step * batch, batch) for step in range(steps)])
    assert len(laid) == steps * batch
    for start in range(0, len(laid) - n + 1, n):
        assert sorted(laid[start : start + n]) == examples.tolist()
    for step in (steps, 1):  # any step alone, as after a resume
        at = (step - 1) * batch
        assert Order(examples, seed).rows(at, batch).tolist() == laid[at : at + batch].tolist()


def test_epochs_and_seeds_differ() -> None:
    epochs = {tuple(Order(np.arange(50), seed).rows(at, 50)) for seed in (0, 1) for at in (0, 50, 100)}
    assert len(epochs) == 6


def test_the_order_of_the_file() -> None:
    order = Order(np.array([2, 5, 7]), 0, shuffle=False)
    assert [order.rows(at, 2).tolist() for at in (0, 2, 4, 6)] == [[2, 5], [7, 2], [5, 7], [2, 5]]
    assert order.rows(1, 7).tolist() == [5, 7, 2, 5, 7, 2, 5]


def test_the_order_never_changes() -> None:
    rows = Order(np.arange(1000), 7).rows(700, 700)
    assert hashlib.blake2b(rows.astype("<i8").tobytes(), digest_size=8).hexdigest() == "7743f409b0e489b3"


def test_no_examples_are_refused() -> None:
    with pytest.raises(SxiError) as caught:
        Order(np.arange(0), 0, span=SPAN)
    assert (caught.value.code, caught.value.span) == ("E-RUN-013", SPAN)


def test_chunks_are_the_batch_in_order() -> None:
    rows = np.arange(12) + 5
    assert [chunk(rows, 3, i).tolist() for i in range(3)] == [[5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16]]


@given(st.integers(0, 100), st.integers(1, 30))
def test_pass_batches_cover_the_split_in_order(n: int, batch: int) -> None:
    batches = pass_batches(n, batch)
    assert [row for part in batches for row in range(n)[part]] == list(range(n))
    assert all(part.stop - part.start == batch for part in batches[:-1])


def test_every_type_of_the_language_but_bf16_is_a_type_for_data() -> None:
    assert set(data.DTYPES) == {"f16", "f32", "f64", "i32", "i64", "bool"}
