"""Every link of a page leads to a file that is there, and to a heading or an anchor that it has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "tutorials").glob("*.md"), *ROOT.glob("bench/*.md")]
)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose_of(text: str) -> str:
    """A page without what stands between fences."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors_of(text: str) -> set[str]:
    """What a `#` may name: the headings as hosts of Markdown write them, and the anchors put down by hand."""
    headings = re.findall(r"^#+ (.*)$", prose_of(text), re.MULTILINE)
    slugs: set[str] = set()
    for heading in headings:
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = next(n for n in range(len(headings)) if (slug if not n else f"{slug}-{n}") not in slugs)
        slugs.add(f"{slug}-{number}" if number else slug)
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


def broken(path: Path) -> list[str]:
    """The links of a page that lead nowhere in the repository."""
    links = LINK.findall(prose_of(path.read_text(encoding="utf-8")))
    return [link for link in links if not re.match(r"[a-z]+:", link) and not leads_somewhere(path, link)]


def leads_somewhere(path: Path, link: str) -> bool:
    name, _, anchor = link.partition("#")
    target = (path.parent / name).resolve() if name else path
    if not target.exists() or (name and target != ROOT and ROOT not in target.parents):
        return False
    return not anchor or (target.suffix == ".md" and anchor in anchors_of(target.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(path: Path) -> None:
    assert broken(path) == []


def test_links_are_found_and_broken_ones_noticed() -> None:
    assert sum([len(LINK.findall(path.read_text(encoding="utf-8"))) for path in PAGES]) > 300
    page = ROOT / "docs" / "language.md"
    assert {"arrays", "optimizers", "random-draws"} <= anchors_of(page.read_text(encoding="utf-8"))
    for link in ("primitives.md#name-tanh", "#arrays", "../README.md", "../tutorials/runs/digits.sx"):
        assert leads_somewhere(page, link)
    for link in ("nowhere.md", "primitives.md#name-nowhere", "#nowhere", "../..", "../README.md#nowhere"):
        assert not leads_somewhere(page, link)


def test_the_reference_is_reached_from_the_readme() -> None:
    """Every page of docs/, by links alone."""
    reached, open_pages = set(), [ROOT / "README.md"]
    while open_pages:
        path = open_pages.pop()
        reached.add(path)
        for link in LINK.findall(path.read_text(encoding="utf-8")):
            name = link.partition("#")[0]
            target = (path.parent / name).resolve()
            if name.endswith(".md") and target.exists() and target not in reached:
                open_pages.append(target)
    assert set((ROOT / "docs").glob("*.md")) <= reached
