"""The architecture, as a test: a module imports only what stands below it, and few import what is not sxi's."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SXI = Path(__file__).parents[1] / "sxi"
FILES = sorted(SXI.rglob("*.py"))
EACH_FILE = pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SXI)))

# Bottom first: a module or a package may import those of the lines above its own, never its own line's.
LAYERS = [
    # text, and what needs nothing else
    "source arraytype suggest lexemes random progress library threads kept",
    "errors lexer",
    "render codes",
    "contracts tokens streams",
    "reader guards primitives stream explain data",
    # an array module, and values
    "backends checkpoint history status values series",
    "emit ranks state folder panel show explain_layout",
    "graph names",
    "grad plan arithmetic",
    "calls",
    # the walk
    "eval frames evidence",
    "builtins trace",
    "eager layout",
    "forms",
    # a program, its check and its run
    "options program",
    "tracing reference",
    "compiled",
    "stages start",
    "beginning checking explain_program",
    "run",
    "replay",
    "job live workspace",
    "saved",
    # what a user meets
    "commands",
    "prompt_commands",
    "session",
    "completion",
    "repl",
    "prompt cli",
    "__main__",
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names.split()}
# What is not sxi's, and who may import it.
ALLOWED = {
    "numpy": {"backends", "checkpoint", "data", "evidence", "primitives", "random", "run", "stream"},
    "cupy": {"backends"},
    "mpi4py": {"ranks"},
    "safetensors": {"checkpoint", "data"},
    "click": {"cli"},
    "prompt_toolkit": {"repl"},
    "pygments": {"lexer"},
}
# A package's own opener may import the part that it opens, where it is asked for it.
OPENERS = {("backends", "backends/numpy"), ("backends", "backends/cupy"), ("backends", "backends/strict")}
LONGEST_FUNCTION, LONGEST_FILE = 60, 600


def module_of(path: Path) -> str:
    """`backends/numpy` for sxi/backends/numpy.py, `backends` for its __init__."""
    return path.relative_to(SXI).with_suffix("").as_posix().removesuffix("/__init__")


MODULES = {module_of(path) for path in FILES}


def unit(module: str) -> str:
    """What the layers speak of: a module of the top level or a whole package."""
    return module.partition("/")[0]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def performed(node: ast.AST) -> Iterator[ast.AST]:
    """A node and those in it, but for what stands under `if TYPE_CHECKING`."""
    yield node
    if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
        for inner in ast.iter_child_nodes(node):
            yield from performed(inner)


@cache
def imports(path: Path) -> list[tuple[str, int]]:
    """The dotted names that a file imports, within functions too, and where; what is for types alone is left out."""
    found = []
    for node in performed(tree(path)):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports by a relative name"
            found += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return found


def own_imports(path: Path) -> Iterator[tuple[str, int]]:
    """The modules of sxi that a file imports."""
    for name, line in imports(path):
        package, *parts = name.split(".")
        while package == "sxi" and parts:
            if "/".join(parts) in MODULES:
                yield "/".join(parts), line
                break
            parts.pop()


@EACH_FILE
def test_a_module_imports_only_from_below(path: Path) -> None:
    me = unit(module_of(path))
    if me == "__init__":
        assert not list(own_imports(path))
        return
    assert me in LEVEL, f"{me} is in no layer: say where it stands"
    above = [
        f"{name}, line {at}" for name, at in own_imports(path) if unit(name) != me and LEVEL[unit(name)] >= LEVEL[me]
    ]
    assert not above, f"{me} imports {above}"


def test_each_layer_is_of_modules_that_are_there() -> None:
    assert sorted(LEVEL) == sorted({unit(m) for m in MODULES} - {"__init__"})


def test_no_module_imports_itself_through_another() -> None:
    below = {module_of(p): {name for name, _ in own_imports(p) if (module_of(p), name) not in OPENERS} for p in FILES}
    done: set[str] = set()

    def visit(module: str, open: tuple[str, ...]) -> None:
        assert module not in open, f"a cycle: {' → '.join([*open[open.index(module) :], module])}"
        if module not in done:
            for name in below[module] - {module}:
                visit(name, (*open, module))
            done.add(module)

    for module in sorted(below):
        visit(module, ())


@EACH_FILE
def test_few_import_what_is_not_sxis(path: Path) -> None:
    me = unit(module_of(path))
    for name, line in imports(path):
        top = name.split(".")[0]
        if top == "sxi" or top in sys.stdlib_module_names:
            continue
        assert top in ALLOWED, f"{me} imports {name}, line {line}: say who may"
        assert me in ALLOWED[top], f"{me} imports {name}, line {line}"


@EACH_FILE
def test_functions_and_files_are_short(path: Path) -> None:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            assert length <= LONGEST_FUNCTION, f"{node.name} has {length} lines"
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE


PROGRAM = """(generator points (n) {:x (normal [n 3])})
(objective (batch) (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))))
(run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
"""


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["--help"], {"numpy", "cupy", "prompt_toolkit", "pygments", "safetensors"}),
        (["--version"], {"numpy", "cupy", "prompt_toolkit", "pygments", "safetensors"}),
        (["run", "--help"], {"numpy", "cupy", "prompt_toolkit", "pygments"}),
        (["check", "program.sx"], {"cupy", "prompt_toolkit", "pygments", "mpi4py"}),
        (["run", "program.sx", "--device", "cpu", "--out", "out"], {"cupy", "prompt_toolkit", "pygments", "mpi4py"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_imports_no_more_than_it_needs(arguments: list[str], absent: set[str], tmp_path: Path) -> None:
    (tmp_path / "program.sx").write_text(PROGRAM)
    code = "import json, sys; from sxi.cli import main; status = main(sys.argv[1:]); "
    code += "print(json.dumps([status, sorted({name.split('.')[0] for name in sys.modules})]))"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    status, imported = json.loads(done.stdout.splitlines()[-1])
    assert status == 0
    assert "click" in imported
    assert not absent & set(imported)
