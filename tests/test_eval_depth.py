"""Calls nest 9,000 deep through every form that evaluates a body, and without an end they are refused."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sxi.backends import open_backend
from sxi.checking import MOST_FRAMES, check_file, check_text, deep_calls
from sxi.errors import SxiError
from sxi.program import load_source
from sxi.source import Source

ROOT = Path(__file__).parents[1] / "sxi"
DEEP = 9_000

# Each defines (f n), which calls itself n times, some through another function, and gives n.
WAYS = {
    "a call": "(define (f n) (if (= n 0) 0 (+ 1 (f (- n 1)))))",
    "a helper function": "(define (g n) (+ 1 (f (- n 1)))) (define (f n) (if (= n 0) 0 (g n)))",
    "a fold": "(define (f n) (fold (a 0) (i (range (minimum n 1))) (+ 1 (f (- n 1)))))",
    "a map": "(define (f n) (if (= n 0) 0 (+ 1 (nth (map f [(- n 1)]) 0))))",
    "a map of a lambda": "(define (f n) (if (= n 0) 0 (first (map (lambda (k) (+ 1 (f k))) [(- n 1)]))))",
    "a filter": "(define (f n) (if (= n 0) 0 (+ 1 (f (- n (count (filter (lambda (k) (= k n)) [n])))))))",
    "a cond": "(define (f n) (cond ((= n 0) 0) (else (+ 1 (f (- n 1))))))",
    "when, or, and, not": "(define (f n) (or (when (= n 0) 0) (and (not (= n 0)) (+ 1 (f (- n 1))))))",
    "a let": "(define (f n) (let ((m (- n 1)) ([a b] [n m])) (if (= a 0) 0 (let ((r (f b))) (+ 1 r)))))",
    "a local function": "(define (f n) (define (g m) (f m)) (if (= n 0) 0 (+ 1 (g (- n 1)))))",
    "a list and a record": "(define (f n) (if (= n 0) 0 (+ 1 (:x {:x (nth [(f (- n 1))] 0)}))))",
    "a default of a keyword": "(define (f n :rest (if (= n 0) 0 (f (- n 1)))) (if (= n 0) 0 (+ 1 rest)))",
    "a keyword": "(define (g :n required) (f n)) (define (f n) (if (= n 0) 0 (+ 1 (g :n (- n 1)))))",
    "a thread": "(define (f n) (if (= n 0) 0 (-> n (- 1) f (+ 1))))",
    "begin": "(define (f n) (begin nil (if (= n 0) 0 (+ 1 (f (- n 1))))))",
    "a primitive with options": "(define (f n) (if (= n 0) 0 (+ 1 (clip (f (- n 1)) 0 100_000))))",
    "a builtin": "(define (f n) (if (= n 0) 0 (+ 1 (get (with {:x 0} :x (f (- n 1))) :x))))",
    "a test": "(define (f n) (if (= n 0) 0 (if (= (f (- n 1)) -1) nil n)))",
}

OF_TWO_CALLS = {"a helper function", "a map of a lambda", "a local function", "a keyword"}

WITHOUT_END = {
    "a call": "(define (f n) (+ 1 (f n)))",
    "each other": "(define (f n) (g n)) (define (g n) (f n))",
    "a fold": "(define (f n) (fold (a 0) (i [n]) (f i)))",
    "a map": "(define (f n) (map f [n]))",
    "a map of a lambda": "(define (f n) (map (lambda (k) (f k)) [n]))",
    "a filter": "(define (f n) (filter f [n]))",
    "a default": "(define (f n :k (f n)) k)",
    "a gradient": "(define (f x) ((grad f) x))",
}


def value(text: str, name: str) -> object:
    with deep_calls():
        loaded = load_source(Source("deep.sx", text))
        assert loaded.errors == []
        return loaded.evaluate(open_backend("cpu")).value(name)


@pytest.mark.parametrize("way", WAYS)
def test_calls_nest_deep_enough(way: str) -> None:
    deep = DEEP // 2 if way in OF_TWO_CALLS else DEEP
    assert value(f"{WAYS[way]} (define x (f {deep}))", "x") == deep


def test_calls_nest_deep_enough_in_a_graph() -> None:
    text = """
        (generator points (n) {:x (normal [n 3])})
        (define (f x n) (if (= n 0) x (+ 1.0 (nth (map (lambda (k) (f x k)) [(- n 1)]) 0))))
        (objective (batch)
          (f (mean (square (@ (:x batch) (param "w" [3 1] :init zeros-init)))) 4_500))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """
    assert check_text(text) == []


@pytest.mark.parametrize("way", WITHOUT_END)
def test_a_recursion_without_end_is_refused_with_the_calls_that_led_there(way: str) -> None:
    (error,) = check_text(f"{WITHOUT_END[way]}\n(define x (f 1.0))")
    assert error.code == "E-EVAL-009"
    assert error.span is not None
    assert error.span.line == 1
    assert len(error.chain) > 1_000
    assert error.chain[-1][0] == "f"
    assert error.chain[-1][1].text == "(f 1.0)"


def test_a_recursion_without_end_is_refused_in_a_graph() -> None:
    (error,) = check_text("""
        (generator points (n) {:x (normal [n 3])})
        (define (f x) (map (lambda (k) (f k)) [x]))
        (objective (batch) (f (param "w" [3 1] :init zeros-init)))
        (run r :data points :steps 2 :batch 4 :optimizer (sgd :lr 0.1))
    """)
    assert (error.code, error.chain[-1][0]) == ("E-EVAL-009", "f")


@pytest.mark.parametrize(
    "use", ["(print x)", "(define y (= x [x]))", "(setting y x)", "(define y (str x))", "(define y (shape x))"]
)
def test_a_value_that_nests_deep_ends_no_interpreter(use: str, tmp_path: Path) -> None:
    path = tmp_path / "deep.sx"
    path.write_text(f"(define x (fold (a []) (i (range 400_000)) [a])) {use}", encoding="utf-8")
    script = f"from sxi.checking import check_file; print([e.code for e in check_file({str(path)!r})])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in ("[]\n", "['E-EVAL-009']\n", "['E-EVAL-005']\n")


def test_a_text_that_nests_deep_is_checked() -> None:
    inner = 900
    assert check_text("(define x " + "(+ 1 " * inner + "1" + ")" * inner + ")") == []
    (error,) = check_text("(define x " + "(" * 5_000 + ")" * 5_000 + ")")
    assert error.code == "E-READ-006"


def test_the_room_is_given_back() -> None:
    outer = sys.getrecursionlimit()
    with deep_calls():
        assert sys.getrecursionlimit() == MOST_FRAMES
        with deep_calls():
            pass
        assert sys.getrecursionlimit() == MOST_FRAMES
    assert sys.getrecursionlimit() == outer


# What a program's calls go through must not nest on the C stack.

WALKED = [ROOT / f for f in ("eval.py", "calls.py", "builtins.py", "frames.py", "trace.py", "tracing.py")]
CALLERS_IN_C = {"map", "filter", "sum", "any", "all", "min", "max", "sorted", "list", "tuple", "dict", "reduce", "next"}


def walks_a_node(node: ast.AST) -> bool:
    """Whether a call in `node` is given a frame, as every one is that evaluates something."""
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)]
    return any(isinstance(a, ast.Name) and a.id == "frame" for c in calls for a in c.args)


def nestings(module: ast.Module) -> Iterator[str]:
    """Where a module evaluates through C: in a generator expression, a call of starred arguments, a builtin."""
    for node in ast.walk(module):
        if isinstance(node, ast.GeneratorExp) and walks_a_node(node):
            yield ast.unparse(node)
        if isinstance(node, ast.Call):
            starred = any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords)
            if starred and any(isinstance(a, ast.Name) and a.id == "frame" for a in node.args):
                yield ast.unparse(node)
            if isinstance(node.func, ast.Name) and node.func.id in CALLERS_IN_C:
                inner = [a for a in node.args if isinstance(a, ast.Lambda)]
                if any(walks_a_node(a) for a in inner):
                    yield ast.unparse(node)


@pytest.mark.parametrize("path", [*WALKED, *sorted((ROOT / "forms").glob("*.py"))], ids=lambda path: path.name)
def test_nothing_is_evaluated_through_c(path: Path) -> None:
    assert list(nestings(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "text",
    [
        "list(n(frame, env) for n in nodes)",
        "f.call(frame, *args)",
        "f.call(frame, args, **given)",
        "sum(map(lambda n: n(frame, env), nodes))",
    ],
)
def test_what_nests_in_c_is_found(text: str) -> None:
    assert list(nestings(ast.parse(text)))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    (error,) = check_file(str(tmp_path / "none.sx"))
    assert isinstance(error, SxiError)
    assert error.code == "E-READ-002"
