"""What is said of a name, and the reference pages of primitives and of the library, from where each is declared.

`python -m sxi.reference` writes docs/primitives.md and docs/library.md.  A new primitive, builtin or
library definition is in them with the next call; a new module of primitives gets its title in GROUPS.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sxi.backends import open_backend
from sxi.builtins import BUILTINS
from sxi.eval import FORMS, USAGE, usage_of
from sxi.options import OPTIONS
from sxi.primitives import PRIMITIVES
from sxi.primitives.declare import Primitive
from sxi.program import Program, load_source
from sxi.source import Source
from sxi.values import Builtin, Definition, Function, kind_of


def documentation(name: str, program: Program) -> list[str] | None:
    """How a name is written and what is said of it, a line each; None where there is no such name.

    name:     of a form, `:name` of an option of a run, or a name that has a value in `program`
    """
    if name in USAGE:
        form = FORMS.get(name)
        told = form.__doc__ if form is not None and form.__name__ != "refuse_declaration" else ""
        return [USAGE[name], *paragraph(told or "")]
    if name.startswith(":") and name[1:] in OPTIONS:
        return [f"(run NAME {name} …)", f"an option of run: {OPTIONS[name[1:]][0] or 'see the reference'}"]
    settings = program.declared.settings
    if name in settings:
        return [f"(setting {name} …)", f"it is {kind_of(program.value(name))}", *paragraph(settings[name].doc)]
    if program.module.lookup(name) is None:
        return None
    value = program.value(name)
    return [usage_of(value), *paragraph(doc_of(value)), *_defined_at(value)]


def doc_of(value: Any) -> str:
    """The documentation of a value, or ""."""
    if isinstance(value, Function):
        return value.body.doc
    if isinstance(value, Definition):
        return value.function.body.doc
    if isinstance(value, Builtin | Primitive):
        return value.doc
    return ""


def _defined_at(value: Any) -> list[str]:
    body = value.body if isinstance(value, Function) else value.function.body if isinstance(value, Definition) else None
    return [f"defined at {body.span}"] if body is not None else []


def paragraph(text: str) -> list[str]:
    """The lines of a text as they print."""
    return [line.rstrip() for line in text.strip("\n").splitlines()]


# The module that declares a primitive -> the heading it stands under; the order of the page.
GROUPS = {
    "elementwise": "Arithmetic, element by element",
    "transcendental": "Roots, exponentials, trigonometric and hyperbolic functions",
    "special": "Activations and special functions",
    "compare": "Comparing, choosing, converting",
    "reduce": "Reducing",
    "count": "Counting and testing masks",
    "order": "Order along an axis",
    "linalg": "Products of vectors and matrices",
    "einsum": "Contraction by subscripts",
    "factor": "Factorisations",
    "shape": "Shape",
    "join": "Joining and cutting",
    "index": "Indexing",
    "make": "Making arrays",
    "neural": "Neural networks",
    "convolution": "Convolution and pooling",
    "random": "Random draws",
}

_PRIMITIVES_HEAD = """\
# The primitives

<!-- Written by `python -m sxi.reference` from the primitives' own entries: change them there. -->

Every operation on arrays, by kind. How types promote and shapes broadcast is told in
[the language](language.md#arrays); layers and optimizers are in [the library](library.md).

In a usage `a …` stands for one or more arrays, `[x …]` for a list of arrays, `step?` for an operand
that may be left out, and a keyword is followed by its default. In a type `*n` stands for any number
of axes, a letter for the length of one. What follows `; =>` is the value, and it is tested.
"""
_HOST_HEAD = """\
## Functions of host values

They work on lists, records, strings and shapes, which are known before a step is taken.

| usage | gives | for example |
| --- | --- | --- |
"""
_LIBRARY_HEAD = """\
# The library

<!-- Written by `python -m sxi.reference` from the texts in `sxi/library`: change them there. -->

These definitions are written in the language itself and are in scope of every file. They hold no
guard and no metric: what must stay zero is for the program to say. Most end in a guard or a metric
worth having. A keyword written `:lr required` has no default.
"""

_FIELD = re.compile(r"[\w?* -]+:\s{2,}")
_TOLD_BEFORE = re.compile(r"(?P<prose>[^\n]*): (?P<code>\(.*\))", re.DOTALL)


def _usage_of_definition(value: Function | Definition) -> str:
    """How a definition of the library is called; an optimizer's and an initializer's call has keywords only."""
    body = value.function.body if isinstance(value, Definition) else value.body
    words = body.parameters
    if isinstance(value, Definition):
        words = " ".join(words.split()[body.arity :])
    return f"({body.name} {words})" if words else f"({body.name})"


def _anchor(name: str) -> str:
    """A name as the target of a link; of its odd characters their numbers stand."""
    return "name-" + "".join([c if c.isascii() and (c.isalnum() or c == "-") else f"x{ord(c):x}" for c in name])


def _link(name: str) -> str:
    return f"[`{name}`](#{_anchor(name)})"


def _escaped(prose: str) -> str:
    """Prose of a docstring as Markdown: what is not between backticks stands as it is."""
    parts = prose.split("`")
    parts[::2] = [re.sub(r"([*_<\[\]])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def _fenced(text: str, language: str) -> str:
    return f"```{language}\n{text}\n```"


def rendered(doc: str) -> str:
    """A docstring as Markdown: prose as prose, what is aligned or code between fences."""
    out: list[str] = []
    for paragraph in re.split(r"\n\s*\n", doc.strip()):
        told = _TOLD_BEFORE.fullmatch(paragraph)
        if _FIELD.match(paragraph):
            out.append(_fenced(paragraph, "text"))
        elif paragraph.startswith("("):
            out.append(_fenced(paragraph, "scheme"))
        elif told:
            out.append(_escaped(told["prose"]) + ":")
            out.append(_fenced(told["code"], "scheme"))
        else:
            out.append(_escaped(paragraph))
    return "\n\n".join(out)


def _entry(name: str, call: str, doc: str) -> str:
    return f'<a id="{_anchor(name)}"></a>\n\n### `{call}`\n\n{rendered(doc)}\n'


def _contents(groups: Sequence[tuple[str, Iterable[str]]]) -> str:
    rows = [f"| {title} | {' '.join(map(_link, names))} |\n" for title, names in groups]
    return "| group | names |\n| --- | --- |\n" + "".join(rows)


def page_of_primitives() -> str:
    """Every primitive that has a name in the language, and the builtins, as one Markdown page."""
    groups: dict[str, list[Primitive]] = {module: [] for module in GROUPS}
    for p in PRIMITIVES.values():
        if not p.internal:
            function = p.forward or p.expand
            groups[function.__module__.rpartition(".")[2]].append(p)
    parts = [_PRIMITIVES_HEAD, _contents([(GROUPS[m], [p.name for p in ps]) for m, ps in groups.items()])]
    for module, primitives in groups.items():
        parts.append(f"## {GROUPS[module]}\n")
        parts += [_entry(p.name, p.usage, p.doc) for p in primitives]
    parts.append(_HOST_HEAD + "".join([_row(b) for b in BUILTINS.values()]))
    return "\n".join(parts)


def _row(builtin: Builtin) -> str:
    """A function of host values as a row: how it is called, what it gives, an example with its value."""
    told, _, _ = builtin.doc.partition("\n\n")
    shown = "<br>".join([f"`{expression}` gives `{value}`" for expression, value in builtin.examples])
    return f"| `{builtin.usage}` | {_escaped(' '.join(told.split()))} | {shown} |\n"


def library() -> dict[str, list[Any]]:
    """The definitions of the library by the path of their file, in the order of the files."""
    loaded = load_source(Source("nothing.sx", ""))
    program = loaded.evaluate(open_backend("cpu"))
    groups: dict[str, list[Any]] = {}
    for index, span in loaded.module.imported.values():
        groups.setdefault(span.source.path, []).append((span.source, program.globals[index]))
    return groups


def _file_heading(source: Source) -> str:
    """The heading of a file's definitions, and what its first comment says."""
    lines = []
    for line in source.text.splitlines():
        if not line.startswith(";"):
            break
        lines.append(line.removeprefix(";").removeprefix(" "))
    told = _escaped(lines[0]) if len(lines) == 1 else _fenced("\n".join(lines), "text")
    return f"## {Path(source.path).stem.capitalize()}\n\n{told}\n"


def page_of_library() -> str:
    """Every definition of the library, as one Markdown page."""
    groups = library()
    names = [(Path(path).stem, [value.name for _, value in found]) for path, found in groups.items()]
    parts = [_LIBRARY_HEAD, _contents(names)]
    for found in groups.values():
        parts.append(_file_heading(found[0][0]))
        for _, value in found:
            body = value.function.body if isinstance(value, Definition) else value.body
            parts.append(_entry(value.name, _usage_of_definition(value), _unindented(body.doc)))
    return "\n".join(parts)


def _unindented(doc: str) -> str:
    """A docstring without the two columns that its lines after the first are indented by."""
    return re.sub(r"^  ", "", doc, flags=re.MULTILINE)


if __name__ == "__main__":
    Path("docs/primitives.md").write_text(page_of_primitives(), encoding="utf-8")
    Path("docs/library.md").write_text(page_of_library(), encoding="utf-8")
