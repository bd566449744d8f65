"""Saved state: what comes back, and what is there after every way in which writing it can fail."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from sxi import checkpoint
from sxi.errors import SxiError
from sxi.stream import read

ARRAYS = {
    "param/net/w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "state/count": np.asarray(7, np.int64),
    "optimizer/m/net/w": np.full((2, 3), 0.5, np.float64),
}
REST = {"run_id": "a", "stage": "warm", "reported": {"loss": [1.5, math.nan, math.inf, -math.inf]}}


def error_of(call: Callable[[], object], code: str) -> SxiError:
    with pytest.raises(SxiError) as caught:
        call()
    assert caught.value.code == f"E-RUN-{code}"
    assert caught.value.help
    assert "\n" not in caught.value.message
    return caught.value


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def assert_same(got: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert got.keys() == wanted.keys()
    for name, array in wanted.items():
        assert (got[name].dtype, got[name].shape) == (array.dtype, array.shape)
        assert got[name].tobytes() == array.tobytes()  # in C order, whatever the layout


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4", "i8", "?"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (4, 5)])
def test_every_type_and_shape_comes_back(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    x = (np.random.default_rng(0).normal(size=shape) * 3).astype(dtype)
    x = np.asarray(x)
    path = checkpoint.save(tmp_path, 5, {"param/x": x}, {})
    arrays, rest = checkpoint.load(path)
    assert_same(arrays, {"param/x": x})
    assert rest == {"step": 5}


@pytest.mark.parametrize(
    "laid",
    [
        lambda x: x.T,
        lambda x: x[::-1],
        lambda x: x[:, ::2],
        np.asfortranarray,
        lambda x: np.broadcast_to(x[0], (3, 4)),
        lambda x: x.astype(">f4"),
        lambda x: x[0, 0],  # a NumPy scalar
    ],
)
def test_every_layout_comes_back(tmp_path: Path, laid: Callable[[Any], Any]) -> None:
    x = laid(np.arange(12, dtype=np.float32).reshape(3, 4))
    arrays, _ = checkpoint.load(checkpoint.save(tmp_path, 1, {"x": x}, {}))
    assert arrays["x"].dtype == np.float32
    assert arrays["x"].shape == x.shape
    assert arrays["x"].tolist() == x.tolist()


def test_bits_that_no_comparison_sees_come_back(tmp_path: Path) -> None:
    x = np.array([0x7FC12345, 0x80000000, 0x00000001, 0xFF800000], np.uint32).view(np.float32)
    arrays, _ = checkpoint.load(checkpoint.save(tmp_path, 1, {"x": x}, {}))
    assert_same(arrays, {"x": x})
    arrays["x"][0] = 1  # the arrays are the caller's


rests = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(rests)
def test_the_rest_comes_back(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    folder = tmp_path_factory.mktemp("rest")
    _, rest = checkpoint.load(checkpoint.save(folder, 3, {}, {"value": value}))
    assert repr(rest["value"]) == repr(value)  # repr tells NaN and -0.0 apart


def test_numpy_scalars_of_the_rest(tmp_path: Path) -> None:
    given = {"a": np.float32(0.5), "b": np.int64(3), "c": (np.bool_(True), np.float32("nan"))}
    _, rest = checkpoint.load(checkpoint.save(tmp_path, 3, {}, given))
    assert str(rest) == "{'step': 3, 'a': 0.5, 'b': 3, 'c': [True, nan]}"


def test_the_files_are_what_other_programs_read(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        path = checkpoint.save(tmp_path / "checkpoints", 100, ARRAYS, REST)
    finally:
        os.umask(old)
    assert path == tmp_path / "checkpoints" / "000100"
    assert names(path) == {"state.safetensors", "run.json"}
    assert names(path.parent) == {"000100"}
    for file in path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o640

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no strict JSON")

    body = json.loads((path / "run.json").read_text(), parse_constant=refuse)
    assert body["rest"]["step"] == 100
    assert body["arrays"].keys() == ARRAYS.keys()


# Damage.


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, ARRAYS, REST)
    rng = np.random.default_rng(0)
    found: list[str] = []
    for name in ("state.safetensors", "run.json"):
        whole = (path / name).read_bytes()
        for at in rng.permutation(len(whole))[:250]:
            flipped = bytearray(whole)
            flipped[at] ^= 1 << int(rng.integers(7))
            (path / name).write_bytes(flipped)
            try:
                arrays, rest = checkpoint.load(path)
            except SxiError as error:
                found.append(error.code)
            else:  # white space between the tokens, a space of the header: nothing that is read
                assert_same(arrays, ARRAYS)
                assert str(rest) == str({"step": 1, **REST})
        (path / name).write_bytes(whole)
    assert set(found) == {"E-RUN-021"}
    assert len(found) > 450
    assert_same(checkpoint.load(path)[0], ARRAYS)


@pytest.mark.parametrize("name", ["state.safetensors", "run.json"])
def test_a_file_cut_short_is_found(tmp_path: Path, name: str) -> None:
    path = checkpoint.save(tmp_path, 1, ARRAYS, REST)
    whole = (path / name).read_bytes()
    for length in (0, 1, 8, 20, len(whole) // 2, len(whole) - 2):
        (path / name).write_bytes(whole[:length])
        error_of(lambda: checkpoint.load(path), "021")
    (path / name).unlink()
    assert f"it has no {name}" in error_of(lambda: checkpoint.load(path), "021").message


def test_arrays_that_are_exchanged_are_found(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, {"a": np.zeros(2), "b": np.ones(2)}, {})
    safetensors.numpy.save_file({"a": np.ones(2), "b": np.zeros(2)}, path / "state.safetensors")
    assert "a does not match" in error_of(lambda: checkpoint.load(path), "021").message
    safetensors.numpy.save_file({"a": np.zeros(2)}, path / "state.safetensors")
    assert "b does not match" in error_of(lambda: checkpoint.load(path), "021").message


@pytest.mark.parametrize("text", ["[]", "null", "{}", '{"rest": 1, "arrays": 2, "checksum": 3}', "[" * 100_000])
def test_a_rest_that_is_something_else_is_found(tmp_path: Path, text: str) -> None:
    path = checkpoint.save(tmp_path, 1, ARRAYS, REST)
    (path / "run.json").write_text(text)
    error_of(lambda: checkpoint.load(path), "021")


def test_a_checkpoint_that_is_not_there(tmp_path: Path) -> None:
    error_of(lambda: checkpoint.load(tmp_path / "000001"), "022")
    error_of(lambda: checkpoint.parameters(tmp_path / "x.safetensors"), "022")


# Writing fails.


def fails(code: int) -> Callable[..., Any]:
    def call(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return call


@pytest.mark.parametrize("called", ["fsync", "rename"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_failing_call_leaves_the_earlier_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: str, code: int
) -> None:
    checkpoint.save(tmp_path, 1, ARRAYS, REST)
    monkeypatch.setattr(os, called, fails(code))
    error = error_of(lambda: checkpoint.save(tmp_path, 2, ARRAYS, REST), "020")
    monkeypatch.undo()
    assert os.strerror(code) in error.message
    assert names(tmp_path) == {"000001"}
    assert checkpoint.newest(tmp_path, "a") == (tmp_path / "000001", [])


@pytest.mark.parametrize("called", ["fsync", "rename", "symlink", "replace"])
def test_a_failing_call_leaves_the_earlier_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: str) -> None:
    checkpoint.save_best(tmp_path, 1, ARRAYS, REST)
    before = names(tmp_path)
    monkeypatch.setattr(os, called, fails(errno.ENOSPC))
    error_of(lambda: checkpoint.save_best(tmp_path, 2, ARRAYS, REST), "020")
    monkeypatch.undo()
    assert names(tmp_path) == before
    assert checkpoint.load(tmp_path / "best")[1]["step"] == 1


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, 1, ARRAYS, REST)
    opened = open

    def open_full(path: Path, mode: str) -> Any:
        return opened("/dev/full" if path.name == "state.safetensors" else path, mode)

    monkeypatch.setattr(checkpoint, "open", open_full, raising=False)
    error = error_of(lambda: checkpoint.save(tmp_path, 2, ARRAYS, REST), "020")
    assert os.strerror(errno.ENOSPC) in error.message
    assert names(tmp_path) == {"000001"}


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("")
    error_of(lambda: checkpoint.save(tmp_path / "checkpoints", 1, ARRAYS, REST), "020")
    error_of(lambda: checkpoint.save(tmp_path / "checkpoints" / "below", 1, ARRAYS, REST), "020")
    assert checkpoint.newest(tmp_path / "checkpoints") == (None, [])
    checkpoint.clean(tmp_path / "none")


def test_bytes_that_the_disk_changed_are_found_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = safetensors.numpy.save
    monkeypatch.setattr(safetensors.numpy, "save", lambda arrays: written(arrays)[:-1] + b"\x55")
    error = error_of(lambda: checkpoint.save(tmp_path, 1, ARRAYS, REST), "020")
    assert "does not match its checksum" in error.message
    assert names(tmp_path) == set()


def killed_at(monkeypatch: pytest.MonkeyPatch, called: str, call: Callable[[], object]) -> None:
    """Runs `call` as if the process ended in `called`: nothing is cleaned up."""

    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(os, called, kill)
        patched.setattr(checkpoint, "_remove", lambda *_: None)
        with pytest.raises(Killed):
            call()


def test_a_kill_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, 1, ARRAYS, REST)
    killed_at(monkeypatch, "rename", lambda: checkpoint.save(tmp_path, 2, ARRAYS, REST))
    assert len(names(tmp_path)) == 2
    assert checkpoint.newest(tmp_path, "a") == (tmp_path / "000001", [])
    checkpoint.clean(tmp_path)
    assert names(tmp_path) == {"000001"}


@pytest.mark.parametrize("called", ["rename", "symlink", "replace"])
def test_a_kill_while_best_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: str) -> None:
    checkpoint.save_best(tmp_path, 1, ARRAYS, REST)
    killed_at(monkeypatch, called, lambda: checkpoint.save_best(tmp_path, 2, ARRAYS, REST))
    assert checkpoint.load(tmp_path / "best")[1]["step"] == 1
    checkpoint.clean(tmp_path)
    assert names(tmp_path) == {"best", "best-000001"}
    checkpoint.save_best(tmp_path, 2, ARRAYS, REST)
    assert checkpoint.load(tmp_path / "best")[1]["step"] == 2
    assert names(tmp_path) == {"best", "best-000002"}


def test_an_interrupt_cleans_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path, 1, ARRAYS, REST)
    assert names(tmp_path) == set()


def test_a_folder_that_cannot_be_synced_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = os.fsync

    def files_only(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "no")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", files_only)
    assert checkpoint.save(tmp_path, 1, ARRAYS, REST).is_dir()


# The checkpoints of a run.


def test_the_same_step_again_replaces(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, ARRAYS, {"turn": 1})
    checkpoint.save(tmp_path, 1, ARRAYS, {"turn": 2})
    assert checkpoint.load(tmp_path / "000001")[1]["turn"] == 2
    assert names(tmp_path) == {"000001"}
    checkpoint.save_best(tmp_path, 1, ARRAYS, {"turn": 1})
    checkpoint.save_best(tmp_path, 1, ARRAYS, {"turn": 2})
    assert checkpoint.load(tmp_path / "best")[1]["turn"] == 2
    assert len(names(tmp_path)) == 3


def test_a_failed_replacement_puts_the_old_one_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, 1, ARRAYS, {"turn": 1})
    rename = os.rename

    def fail_for_new(source: Path, target: Path) -> None:
        if ".tmp-000001" in str(source):
            raise OSError(errno.EIO, "no")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail_for_new)
    error_of(lambda: checkpoint.save(tmp_path, 1, ARRAYS, {"turn": 2}), "020")
    assert checkpoint.load(tmp_path / "000001")[1]["turn"] == 1
    assert names(tmp_path) == {"000001"}


def test_a_best_whose_link_was_followed_by_a_copy(tmp_path: Path) -> None:
    checkpoint.save_best(tmp_path / "run", 1, ARRAYS, REST)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    assert not (tmp_path / "copy" / "best").is_symlink()
    assert checkpoint.load(tmp_path / "copy" / "best")[1]["step"] == 1
    checkpoint.save_best(tmp_path / "copy", 2, ARRAYS, REST)
    assert checkpoint.load(tmp_path / "copy" / "best")[1]["step"] == 2
    assert names(tmp_path / "copy") == {"best", "best-000002"}


def test_the_newest_is_by_number_and_whole_and_of_this_run(tmp_path: Path) -> None:
    assert checkpoint.newest(tmp_path) == (None, [])
    for step in (900_000, 1_000_000):
        checkpoint.save(tmp_path, step, ARRAYS, REST)
    checkpoint.save(tmp_path, 2_000_000, ARRAYS, {**REST, "run_id": "b"})
    checkpoint.save(tmp_path, 3_000_000, ARRAYS, REST)
    (tmp_path / "3000000" / "run.json").write_text("{}")
    shutil.copytree(tmp_path / "900000", tmp_path / "4000000")
    shutil.copytree(tmp_path / "900000", tmp_path / ".tmp-5000000-1")
    (tmp_path / "notes").write_text("")
    path, skipped = checkpoint.newest(tmp_path, "a")
    assert path == tmp_path / "1000000"
    assert [line.split("/")[-1] for line in skipped] == [
        "4000000 is of step 900000",
        "3000000 is damaged: run.json is not as it was written",
        "2000000 is of another run",
    ]
    assert checkpoint.newest(tmp_path)[0] == tmp_path / "2000000"


def test_the_last_are_retained(tmp_path: Path) -> None:
    for step in (8, 9, 10, 11, 100):
        checkpoint.save(tmp_path, step, {}, {})
    checkpoint.save_best(tmp_path, 8, {}, {})
    checkpoint.retain(tmp_path, 11, 2, protect={8})
    assert names(tmp_path) == {"000008", "000010", "000011", "000100", "best", "best-000008"}
    checkpoint.retain(tmp_path, 100, 1)
    assert names(tmp_path) == {"000100", "best", "best-000008"}
    checkpoint.retain(tmp_path, 100, 0)
    assert "000100" in names(tmp_path)


def test_what_an_earlier_attempt_left_does_not_push_out_the_new(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 300, {}, {})
    (tmp_path / "000300" / "run.json").write_text("{}")
    checkpoint.save(tmp_path, 200, {}, {})
    checkpoint.save(tmp_path, 250, {}, {})
    checkpoint.retain(tmp_path, 250, 1)
    assert checkpoint.newest(tmp_path)[0] == tmp_path / "000250"


def test_a_kill_while_one_is_removed_leaves_no_half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2):
        checkpoint.save(tmp_path, step, ARRAYS, REST)
    monkeypatch.setattr(shutil, "rmtree", fails(errno.EIO))
    monkeypatch.setattr(checkpoint, "_remove", lambda *_: None)
    error_of(lambda: checkpoint.retain(tmp_path, 2, 1), "020")
    monkeypatch.undo()
    assert {name for name in names(tmp_path) if not name.startswith(".")} == {"000002"}
    checkpoint.clean(tmp_path)
    assert names(tmp_path) == {"000002"}


def test_parameters_to_start_from(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, 1, ARRAYS, REST)
    safetensors.numpy.save_file({"net/w": np.ones(2, np.float32)}, tmp_path / "other.safetensors")
    wanted = {"net/w": ARRAYS["param/net/w"]}
    assert_same(checkpoint.parameters(path), wanted)
    assert_same(checkpoint.parameters(path / "state.safetensors"), wanted)
    assert_same(checkpoint.parameters(tmp_path / "other.safetensors"), {"net/w": np.ones(2, np.float32)})
    (tmp_path / "other.safetensors").write_bytes(b"no")
    error_of(lambda: checkpoint.parameters(tmp_path / "other.safetensors"), "021")


ENDLESS = """
import sys
from pathlib import Path
import numpy as np
from sxi import checkpoint
from sxi.stream import Stream
folder, stream = Path(sys.argv[1]), Stream(Path(sys.argv[1]) / "stream.jsonl")
for step in range(1, 10**6):
    stream.point(step, "x", {}, step)
    stream.flush()
    checkpoint.save(folder / "checkpoints", step, {"x": np.full(20_000, step)}, {"run_id": "a"})
    checkpoint.save_best(folder / "checkpoints", step, {"x": np.full(20_000, step)}, {"run_id": "a"})
    checkpoint.retain(folder / "checkpoints", step, 2)
    if step == 3:
        print("begun", flush=True)
"""


@pytest.mark.parametrize("wait", [0.0, 0.013, 0.041, 0.087])
def test_a_run_that_is_killed(tmp_path: Path, wait: float) -> None:
    with subprocess.Popen([sys.executable, "-c", ENDLESS, tmp_path], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(wait)
        child.kill()
    folder = tmp_path / "checkpoints"
    path, skipped = checkpoint.newest(folder, "a")
    assert path is not None
    assert skipped == []
    arrays, rest = checkpoint.load(path)
    assert rest["step"] >= 3
    assert (arrays["x"] == rest["step"]).all()
    assert checkpoint.load(folder / "best")[1]["step"] >= 2
    checkpoint.clean(folder)
    kept = names(folder)
    assert "best" in kept
    assert sum(name.isdigit() for name in kept) <= 3
    assert len(kept) <= 5
    steps = [line["step"] for line in read(tmp_path / "stream.jsonl")]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) >= rest["step"]
