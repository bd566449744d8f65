"""One near candidate for a misspelled word, or the word of this language for one of another."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

# What other Lisps, NumPy, PyTorch and JAX call it -> what it is called here.
ELSEWHERE = {
    "def": "define", "defun": "define", "defn": "define", "defvar": "define", "defparameter": "define", "let*": "let",
    "letrec": "let", "fn": "lambda", "progn": "begin", "do": "begin", "case": "cond", "unless": "when",
    "reduce": "fold", "foldl": "fold", "for": "fold", "loop": "fold", "dotimes": "fold", "scan": "fold",
    "mapcar": "map", "vmap": "map", "car": "first", "cdr": "rest", "cons": "append", "list-ref": "nth", "elt": "nth",
    "len": "count", "length": "count", "string-append": "str", "require": "import", "include": "import",
    "otherwise": "else", "none": "nil", "null": "nil", "True": "true", "#t": "true", "False": "false", "#f": "false",
    "==": "=", "eq?": "=", "equal": "=", "!=": "/=", "!": "not", "&&": "and", "||": "or", "%": "mod",
    "remainder": "mod", "floordiv": "quotient", "**": "pow", "power": "pow", "expt": "pow",
    "matmul": "@", "mm": "@", "bmm": "@", "cat": "concat", "concatenate": "concat", "hstack": "concat",
    "view": "reshape", "unsqueeze": "expand", "expand-dims": "expand", "permute": "transpose", "index-select": "take",
    "astype": "cast", "clamp": "clip", "select": "where", "amax": "max", "amin": "min", "stdev": "std",
    "variance": "var", "average": "mean", "randn": "normal", "rand": "uniform", "randint": "integers",
    "randperm": "permutation", "identity": "eye", "tensor": "array", "numel": "size", "shape-of": "shape",
    "swish": "silu", "isnan": "nan?", "isinf": "inf?", "isfinite": "finite?", "detach": "stop-gradient",
    "no-grad": "frozen", "get-variable": "param", "parameter": "param", "register-buffer": "state", "dense": "linear",
    "not-equal": "/=", "equals": "=", "assert": "guard", "check": "guard", "log-metric": "metric",
    "dim": "axis", "axes": "axis", "keepdim": "keep", "keepdims": "keep", "learning-rate": "lr",
    "weight-decay": "decay", "wd": "decay", "beta1": "b1", "beta2": "b2", "epsilon": "eps", "max-steps": "steps",
    "batch-size": "batch", "dataset": "data", "initializer": "init", "type": "dtype",
    "float32": "f32", "float": "f32", "float64": "f64", "double": "f64", "float16": "f16", "half": "f16",
    "gpu": "cuda", "bfloat16": "bf16", "int32": "i32", "int": "i32", "int64": "i64", "long": "i64", "boolean": "bool",
}  # fmt: skip
# What has no word here, or none of its own -> what to do instead.
INSTEAD = {
    **dict.fromkeys(("set!", "setq", "setf", "var"), "a name is bound once: bind a new one, (let ((name e)) …)"),
    **dict.fromkeys(("while", "until"), "a graph has no loop without a known end: (fold (acc e) (i (range n)) body …)"),
    "stage": 'it stands in a curriculum: (curriculum (stage "name" :until test) …)',
    **dict.fromkeys(("npz", "npy", "csv", "safetensors"), 'it stands in a data source: (data NAME (npz "f.npz"))'),
    "return": "a function gives its last value",
    **dict.fromkeys(("#", "--"), "a comment begins with ;"),
    "//": "a comment begins with ;, and a whole-number division is (quotient a b)",
    "else": "(if test a b), or (cond (test a) (else b))",
    **dict.fromkeys(("help", "?"), "commands of the prompt begin with a comma: ,help"),
    **dict.fromkeys(("quit", "exit"), "commands of the prompt begin with a comma: ,quit"),
}
# How many names a message lists.
_MOST_NAMES = 8
# A folder of more files is not looked through for a near name.
_MOST_FILES = 10_000


def suggest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `word` was meant to be, or None where none is near.

    A candidate that another language calls so, or the one whose last part it is; else the one at the
    least edit distance, which is at most a third of the word's length, and 1 for short words.  Of equals
    the one with the same first letter is taken, then the first in alphabetical order.  A word of one
    letter is near to none.
    """
    candidates = list(candidates)
    plain = word.rsplit(".", 1)[-1].replace("_", "-")
    for meant in (ELSEWHERE.get(word), plain, plain.lower(), ELSEWHERE.get(plain.lower())):
        if meant is not None and meant != word and meant in candidates:
            return meant
    ends = [c for c in candidates if c.endswith(f"/{word}")]
    if len(ends) == 1:
        return ends[0]
    if len(word) == 1:
        return None
    limit = max(1, len(word) // 3)
    best: tuple[int, bool, str] | None = None
    for candidate in candidates:
        if candidate == word or abs(len(candidate) - len(word)) > limit:
            continue
        distance = edit_distance(word, candidate, limit)
        if distance > limit or distance >= max(len(word), len(candidate)):
            continue
        rank = distance, candidate[:1] != word[:1], candidate
        best = min(best, rank) if best else rank
        limit = best[0]
    return best[2] if best else None


def did_you_mean(word: str, candidates: Iterable[str], written: str = "{}") -> str:
    """The repair that names what `word` was meant to be, as `written` with `{}` for it; "" where none is near."""
    near = suggest(word, candidates)
    return f"did you mean {written.format(near)}?" if near is not None else ""


def suggest_glob(glob: str, names: Sequence[str]) -> str | None:
    """The glob or the name near to `glob` that matches one of `names`, which `/` divides into parts."""
    globs = set(names)
    for name in names:
        parts = name.split("/")
        globs |= {"/".join([*parts[:i], "*"]) for i in range(1, len(parts))}
        globs |= {"/".join(["*", *parts[i:]]) for i in range(1, len(parts))}
    return suggest(glob, globs)


def some_of(names: Iterable[str], written: str = "{}") -> str:
    """The first of the names that there are, in a line: `a, b, …`; `none` where there are none."""
    names = list(names)
    more = ["…"] if len(names) > _MOST_NAMES else []
    return ", ".join([*[written.format(name) for name in names[:_MOST_NAMES]], *more]) or "none"


def suggest_file(path: str) -> str | None:
    """The file beside the missing one of `path` whose name is near, as a path from the same place."""
    folder, name = os.path.split(path)
    try:
        with os.scandir(folder or ".") as entries:
            found = [entry.name for _, entry in zip(range(_MOST_FILES), entries, strict=False)]
    except (OSError, ValueError):
        return None
    near = suggest(name, found)
    return os.path.join(folder, near) if near is not None else None


def edit_distance(left: str, right: str, limit: int) -> int:
    """How many letters to insert, delete, replace, or swap with their neighbour make `left` into `right`.

    Any number above `limit` may stand for a distance above it.
    Source: optimal string alignment, the restricted Damerau-Levenshtein distance.
    """
    before: list[int] = []
    above = list(range(len(right) + 1))
    for row, letter in enumerate(left, 1):
        here = [row] + [limit + 1] * len(right)
        # Cells further than `limit` from the diagonal cannot be on a path that is near enough.
        for column in range(max(1, row - limit), min(len(right), row + limit) + 1):
            other = right[column - 1]
            cost = min(above[column] + 1, here[column - 1] + 1, above[column - 1] + (letter != other))
            if row > 1 and column > 1 and letter == right[column - 2] and other == left[row - 2]:
                cost = min(cost, before[column - 2] + 1)
            here[column] = cost
        if min(here) > limit:
            return limit + 1
        before, above = above, here
    return above[-1]
