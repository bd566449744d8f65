"""Every message, drawn at 80 and at 40 columns, is as it was read and found good: tests/golden/messages.

`pytest --update-golden` writes them anew; read the difference.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from string import Formatter

import pytest

from sxi.checking import check_text
from sxi.errors import CODES, Code, SxiError
from sxi.render import cells, frame

FOLDER = Path(__file__).parent / "golden" / "messages"
EACH_CODE = pytest.mark.parametrize("code", CODES.values(), ids=lambda code: code.code)
WIDTHS = (80, 40)
# What fills the messages that no program alone gives; test_codes.py says why.
FACTS = {
    "byte": 0xE9, "bytes": "34,359,738,368", "count": 12, "dtype": "float32", "fraction": "0.01",
    "fractions": "0.8 0.1", "given": "f32[64 10]", "guard": "geometry/off-manifold layer=3", "held": "text",
    "kind": "npz", "known": "held, test", "limit": 1000, "line": 41, "name": "net/head/w",
    "names": "net/head/bias, net/body/0/w", "out": "runs/a", "path": "runs/a", "reason": "No space left on device",
    "repair": "name one of them", "resume": "runs/b", "rows": 20, "source": "runs/lorentz.sx:41:5", "step": 4107,
    "text": "rate", "type": "f32[65536 131072]", "value": "nan", "wanted": "f32[128 10]",
    "what": "gradient of net/head/w", "where": "at step 4107",
}  # fmt: skip
# The same of one code, or of a family's codes that begin alike.
OWN = {
    "E-RUN-00": {"path": "runs/digits.npz", "name": "x", "names": "pixels, labels", "reason": "it begins with b'PK'"},
    "E-RUN-002": {"reason": "Permission denied"},
    "E-RUN-007": {"dtype": "i32"},
    "E-RUN-008": {"path": "runs/houses.csv", "reason": "the name price stands there twice"},
    "E-RUN-009": {"path": "runs/houses.csv", "given": 5, "wanted": 6},
    "E-RUN-010": {"path": "runs/houses.csv", "name": "price", "value": '"unknown"'},
    "E-RUN-012": {"name": "test"},
    "E-RUN-02": {"path": "runs/a/checkpoints/000100"},
    "E-RUN-021": {"reason": "the checksum of net/head/w differs"},
    "E-RUN-03": {"path": "runs/a/stream.jsonl"},
    "E-RUN-031": {"reason": "line 12 is no JSON object"},
    "E-RUN-040": {"what": "matmul"},
    "E-RUN-041": {"reason": "KeyError: 3"},
    "E-RUN-05": {"reason": "libcuda.so.1: cannot open shared object file"},
    "E-USE-001": {"text": '"E-SHAP-001"'},
    "E-USE-003": {"path": "runs/lorentz.sx"},
    "E-USE-004": {"reason": "expected name=value"},
    "E-USE-006": {"what": ":batch is 64 and was 32"},
    "E-USE-007": {"name": "hled"},
    "E-USE-008": {"name": "pass hled", "known": "step, update, pass held"},
    "E-USE-020": {"name": "gaurds"},
    "E-USE-021": {"name": "plot", "what": "it takes a series"},
}  # fmt: skip


def error_of(code: Code) -> SxiError:
    """The error of the code's own program, or one of the facts above without a place."""
    if code.breaks:
        (found,) = check_text(inspect.cleandoc(code.breaks) + "\n")
        return found
    fields = {name for text in (code.message, code.help) for _, name, _, _ in Formatter().parse(text) if name}
    facts = dict(FACTS)
    for start in [start for start in sorted(OWN, key=len) if code.code.startswith(start)]:
        facts |= OWN[start]
    return code.at(None, **{name: facts[name] for name in fields})


@EACH_CODE
def test_a_message_is_drawn_as_it_was_read(code: Code, request: pytest.FixtureRequest) -> None:
    error = error_of(code)
    drawn = "\n".join([f"{width} columns\n\n{frame(error, width=width)}\n" for width in WIDTHS])
    path = FOLDER / f"{code.code}.txt"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(drawn, encoding="utf-8")
    assert path.is_file(), "write it: pytest --update-golden"
    assert drawn == path.read_text(encoding="utf-8")


@EACH_CODE
@pytest.mark.parametrize("width", [*WIDTHS, 60, 200])
def test_a_message_keeps_to_its_columns(code: Code, width: int) -> None:
    for line in frame(error_of(code), width=width, unicode=False).splitlines():
        assert line.isascii() or code.code == "E-READ-008"
        assert cells(line) <= width or "/" in line


def test_there_is_no_message_of_a_code_that_is_gone() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*")) == sorted(CODES)
