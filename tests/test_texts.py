"""The texts against what they tell of: links, programs, and that no form, option or command is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sxi.cli import sxi
from sxi.contracts import RULES
from sxi.errors import EXIT_STATUS
from sxi.eval import USAGE
from sxi.options import OPTIONS
from sxi.primitives import PRIMITIVES
from sxi.program import DECLARATIONS

ROOT = Path(__file__).parent.parent
TEXTS = sorted(p for pattern in ("*.md", "docs/*.md", "tutorials/*.md", "bench/*.md") for p in ROOT.glob(pattern))


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def without_code(page: str) -> str:
    return re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)


def anchors(page: str) -> set[str]:
    """What a link may name in a page: its headings as GitHub makes anchors of them, and its own."""
    found = set(re.findall(r'<a id="([^"]+)">', page))
    for heading in re.findall(r"^#+ (.*)$", without_code(page), re.MULTILINE):
        kept = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(kept.replace(" ", "-"))
    return found


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(path):
    page = path.read_text(encoding="utf-8")
    lost = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if target.startswith("https://"):
            continue
        file, _, anchor = target.partition("#")
        there = path if not file else (path.parent / file).resolve()
        if not there.exists() or (anchor and anchor not in anchors(there.read_text(encoding="utf-8"))):
            lost.append(target)
    assert not lost


def test_the_texts_were_found():
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md"} <= {p.name for p in TEXTS}
    assert len(TEXTS) > 10


def test_the_program_of_the_readme_is_the_one_that_ships():
    program, _session = re.findall(r"^```sx\n(.*?)^```", text("README.md"), re.MULTILINE | re.DOTALL)
    assert program == text("tutorials/runs/silent.sx")


def test_the_guard_of_the_readme_stands_where_its_message_says():
    line, column = map(int, re.findall(r"written at tutorials/runs/silent\.sx:(\d+):(\d+)", text("README.md"))[0])
    shown = text("tutorials/runs/silent.sx").splitlines()[line - 1][column - 1 :]
    assert shown.startswith('(guard "hidden/silent"')


def test_every_form_is_told_of():
    page = text("docs/language.md")
    assert len(USAGE) > 30
    assert [name for name in sorted({*USAGE, *DECLARATIONS}) if f"({name}" not in page] == []


def test_every_option_of_a_run_is_told_of():
    page = text("docs/run.md")
    assert [name for name in OPTIONS if f"`:{name} " not in page] == []


def test_every_command_and_option_of_the_command_line_is_told_of():
    page = text("docs/run.md")
    assert [name for name in sxi.commands if f"sxi {name}" not in page] == []
    options = [o for p in sxi.commands["run"].params for o in p.opts if o.startswith("--")]
    assert len(options) > 5
    assert [o for o in options if f"`{o}" not in page and f"{o} " not in page] == []


def test_every_exit_code_of_an_error_is_told_of():
    rows = {int(code) for code in re.findall(r"^\| (\d+) \|", text("docs/run.md"), re.MULTILINE)}
    assert {0, 75, 130, *EXIT_STATUS.values()} == rows


def test_numbers_that_are_told_are_those_there_are():
    named = len([p for p in PRIMITIVES.values() if not p.internal])
    assert f"- {named} primitives " in text("CHANGELOG.md")
    assert f"- {len(RULES)} contract rules" in text("CHANGELOG.md")
    assert f"and {len(RULES)}\n  [contract rules]" in text("README.md")
