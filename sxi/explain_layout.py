"""The facts of a checked program laid out as text, for terminals of 40 to 200 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, TypeAlias

from sxi.guards import metadata_text
from sxi.render import NARROWEST, WIDEST, cells, shown
from sxi.values import written

Facts: TypeAlias = dict[str, Any]
# Stands for a space at which a line is not broken.
_JOINED = "\x00"
# Options whose values are names.
_NAMES_OF = ("data", "split")
# More names than this are told by their number.
_MOST_NAMES = 12


def sections(facts: Facts, width: int) -> list[list[str]]:
    """The facts of a stage as lines of at most `width` columns, places whole: its run, then section by section."""
    return [_drawn(section, facts, width) for section in _SECTIONS]


def stages(facts: Sequence[Facts], width: int) -> list[str]:
    """The stages of a curriculum: what each sets, and until when it goes on."""
    return _drawn(_stages, {"stages": facts}, width)


def _drawn(section: Callable[[_Page, Facts], None], facts: Facts, width: int) -> list[str]:
    page = _Page(max(NARROWEST, min(width, WIDEST)))
    section(page, facts)
    return ["".join(map(shown, line.replace(_JOINED, " "))) for line in page.lines]


def _run(page: _Page, facts: Facts) -> None:
    page.put(0, f"run {facts['run']['name']}, {_place(facts['run']['source'])}")


def _stages(page: _Page, facts: Facts) -> None:
    page.put(0, f"Stages: {len(facts['stages']):,}")
    for stage in facts["stages"]:
        until = "to the end of the run" if stage["until"] is None else f"until {stage['until']}"
        page.put(2, f"{stage['name']}: {until}, {_place(stage['source'])}")
        for name, value in stage["set"].items():
            page.put(4, f"setting {name} {_option(value)}")


def columns(rows: Sequence[tuple[str, ...]], right: Sequence[int]) -> list[str]:
    """Rows of texts in columns as wide as their widest text, the columns `right` set right, empty ones left out."""
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    made = []
    for row in rows:
        parts = []
        for i, (text, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - cells(text))
            if width:
                parts.append(space + text if i in right else text + space)
        made.append("  ".join(parts).rstrip())
    return made


class _Page:
    """Lines of a width."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.lines: list[str] = []

    def put(self, indent: int, text: str) -> None:
        """`text` behind `indent` spaces, broken at spaces, what goes on indented by two more."""
        line, used = " " * indent, False
        for word in text.split(" "):
            longer = f"{line} {word}" if used else line + word
            if used and cells(longer) > self.width:
                self.lines.append(line)
                longer = " " * (indent + 2) + word
            line, used = longer, True
        self.lines.append(line)

    def table(self, indent: int, rows: Sequence[tuple[str, ...]], right: Sequence[int]) -> bool:
        """The rows in columns where they fit; whether they did.  The columns of numbers `right` are set right."""
        made = [" " * indent + line for line in columns(rows, right)]
        if any(cells(line) > self.width for line in made):
            return False
        self.lines += made
        return True


def _place(text: str) -> str:
    return text.replace(" ", _JOINED)


def _count(n: int, what: str) -> str:
    plural = "es" if what.endswith(("s", "ch")) else "s"
    return f"{n:,} {what}{plural if n != 1 else ''}"


def _metadata(metadata: Facts) -> str:
    """` layer=3 split=train`, or nothing."""
    return "".join([f" {k}={metadata_text(v)}" for k, v in metadata.items()])


def _names(names: Sequence[str]) -> str:
    """The names, or the first of many and how many more."""
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES:,} more"


# Guards


def _guards(page: _Page, facts: Facts) -> None:
    guards = facts["guards"]
    if not guards:
        page.put(0, "Guards: none")
        return
    page.put(0, f"Guards: {len(guards):,}")
    for _, alike in groupby(guards, key=_written_alike):
        _guard(page, list(alike), has_groups=any([g["glob"] is not None for g in facts["optimizer"]]))


def _written_alike(guard: Facts) -> Any:
    """What guards have in common that one form makes, by the turns of a loop."""
    return guard["name"], guard["form"], guard["bound"], guard["source"], list(guard["metadata"]), guard["graphs"]


def _guard(page: _Page, guards: Sequence[Facts], has_groups: bool) -> None:
    first = guards[0]
    variants = ", ".join([_metadata(g["metadata"]).strip().replace(" ", _JOINED) for g in guards])
    page.put(2, f"{first['name']} {variants}".rstrip())
    bound = f" {first['bound'][0]}{_JOINED}{written(first['bound'][1])}" if first["bound"] else ""
    page.put(4, f"{first['form']}{bound}, {_place(first['source'])}")
    for graph in first["graphs"]:
        page.put(4, f"in {graph['graph']}: {_when(graph)}")
        for group, params in graph["groups"].items():
            page.put(6, f"{f'group {group}' if has_groups else 'parameters'}: {_names(params)}")
        for call in graph["calls"]:
            page.put(6, f"by {call['call']}, called at {_place(call['source'])}")


def _when(graph: Facts) -> str:
    """How often a guard counts in a graph."""
    kind = graph["graph"].split(" ")[0]
    every = graph["sampled-every"]
    if kind == "evaluate":
        what = "every batch of the pass"
    else:
        what = "every parameter's update" if kind == "optimizer" else "every microbatch"
    return what if every is None else f"{what}, on {_sampled(every)}"


def _sampled(every: int) -> str:
    return f"steps {every:,}, {2 * every:,}, ..."


# Diagnostics and series


def _diagnostics(page: _Page, facts: Facts) -> None:
    found, options = facts["diagnostics"], facts["options"]
    if not found:
        page.put(0, "Diagnostics: none")
        return
    selected = [d for d in found if d["selected-by"] is not None]
    often = f", on {_sampled(options['sample-every'])}" if selected else ""
    page.put(0, f"Diagnostics: {len(selected):,} of {len(found):,} selected{often}")
    for d in found:
        glob = d["selected-by"]
        how = "not selected" if glob is None else f"selected by {glob}"
        if glob is not None and not d["runs"]:
            how += ", dropped in a generator"
        page.put(2, f"{d['name']}: {how}, {_place(d['source'])}")


def _series(page: _Page, facts: Facts) -> None:
    values, series = facts["values"], facts["series"]
    full, limit = values["fullest-step"], values["report-limit"]
    page.put(0, f"Series: {_count(full, 'value')} in the fullest step, :report-limit{_JOINED}{limit:,}")
    usual = [s for s in series if s["reported"] == "step" and not s["sampled"]]
    sampled = [s for s in series if s["reported"] == "step" and s["sampled"]]
    every = facts["options"]["sample-every"]
    _series_of(page, f"every step: {values['step']:,}", usual)
    if sampled:
        _series_of(page, f"{_sampled(every)}: {values['sampled-step'] - values['step']:,} more", sampled)
    for p in facts["passes"]:
        own = [s for s in series if s["reported"] == f"pass {p['name']}"]
        if own:
            _series_of(page, f"pass {p['name']}, {_every(p)}: {values['passes'][p['name']]:,}", own)


def _series_of(page: _Page, head: str, series: Iterable[Facts]) -> None:
    page.put(2, head)
    for s in series:
        kind = "guard" if s["kind"] == "guard" else f"{s['kind']}, {s['reduce']}"
        only = ", on sampled steps" if s["sampled"] and s["reported"] != "step" else ""
        page.put(4, f"{s['name']}{_metadata(s['metadata'])} ({kind}{only})")


def _every(p: Facts) -> str:
    return "after the last step" if p["every"] is None else f"every {_count(p['every'], 'step')}"


# Parameters


def _parameters(page: _Page, facts: Facts) -> None:
    params, total = facts["parameters"], facts["elements"]
    head = f"Parameters: {len(params):,}, {_count(total['parameters'], 'element')}"
    if total["optimizer"]:
        head += f", and {total['optimizer']:,} of optimizer state"
    page.put(0, head)
    rows = [("name", "type", "initializer", "group", "uses", "elements")]
    rows += [
        (p["name"], p["type"], p["initializer"], p["group"], f"{p['uses']:,}", f"{p['elements']:,}") for p in params
    ]
    if params and not page.table(2, rows, right=(4, 5)):
        for name, type, init, group, uses, count in rows[1:]:
            page.put(2, f"{name} {_place(type)}")
            page.put(4, f"{init}, group {group}, {_count(int(uses.replace(',', '')), 'use')}, {count} elements")
    for s in facts["states"]:
        page.put(2, f"state {s['name']} {_place(s['type'])} {s['initializer']}, reduced by {s['reduce']}")
    for g in facts["optimizer"]:
        which = f"group {g['group']}, {g['glob']}" if g["glob"] is not None else "optimizer"
        page.put(2, f"{which}: {g['optimizer']}")


# Passes and options


def _passes(page: _Page, facts: Facts) -> None:
    passes = facts["passes"]
    page.put(0, f"Passes: {len(passes):,}" if passes else "Passes: none")
    for p in passes:
        split = f" split {p['split']}," if p["split"] else ""
        page.put(
            2, f"{p['name']}: {p['data']},{split} {_count(p['examples'], 'example')} in {_batches(p)}, {_every(p)}"
        )
        for output in p["outputs"]:
            page.put(4, f"output {output['name']} {_place(output['type'])}")


def _batches(p: Facts) -> str:
    if p["batches"] == 1 or p["last-batch"] == p["batch"]:
        return f"{_count(p['batches'], 'batch')} of {p['last-batch']:,}"
    return f"{_count(p['batches'] - 1, 'batch')} of {p['batch']:,} and 1 of {p['last-batch']:,}"


def _options(page: _Page, facts: Facts) -> None:
    page.put(0, "Options")
    for name, value in facts["options"].items():
        page.put(2, f":{name} {value if name in _NAMES_OF and value else _option(value)}")
    for s in facts["settings"]:
        doc = f" ({s['doc']})" if s["doc"] else ""
        given = "" if s["value"] == s["default"] else f", in place of {_option(s['default'])}"
        page.put(2, f"setting {s['name']} {_option(s['value'])}{given}{doc}")


def _option(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None or value == []:
        return "none"
    return f"{value:,}" if isinstance(value, int) else written(value)


_SECTIONS = (_run, _guards, _diagnostics, _series, _parameters, _passes, _options)
