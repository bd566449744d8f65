"""How long errors take: to read a megabyte, whole and broken, to find what is wrong, to draw it.

`bench.start` measures `sxi check` and `sxi --help` from the start of their process.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench import harness, programs
from bench.harness import Candidate
from sxi.checking import MOST_ERRORS, check_text
from sxi.reader import read_all
from sxi.render import frame
from sxi.source import Source
from sxi.suggest import suggest

_MEGABYTE = 1_000_000
_NAMES = 3_000


class Wrong(Exception):
    """A candidate that does not find what it is to be measured by."""


def megabyte(size: int) -> str:
    """`size` characters of the tutorials, over and over, to the end of a form."""
    text = programs.text_of("digits") + programs.text_of("lorentz")
    return text * -(-size // len(text))


def errors_in(text: str) -> int:
    """How many errors reading finds."""
    return len(read_all(Source("bench.sx", text))[1])


def candidates(size: int) -> dict[str, Candidate]:
    """What is measured.  Raises Wrong where one does not find what it must."""
    whole = megabyte(size)
    unclosed = f"(define (f x)\n{whole}"
    no_end = f'{whole}\n(print "'
    line = f"(define x [{'1 ' * (size // 2)}nowhere])"
    (long,) = check_text(line)
    names = [f"layer{i}/attention/scores" for i in range(_NAMES)]
    broken = programs.text_of("lorentz") + "\n".join([f"(define e{i} (sqare {i}))" for i in range(MOST_ERRORS)])
    found = [errors_in(text) for text in (whole, unclosed, no_end)] + [len(check_text(broken))]
    if found != [0, 1, 1, MOST_ERRORS]:
        raise Wrong(f"expected 0, 1, 1 and {MOST_ERRORS} errors, found {found}")
    return {
        "read, whole": Candidate(lambda: errors_in(whole)),
        "read, the first bracket is not closed": Candidate(lambda: errors_in(unclosed)),
        "read, the last string does not end": Candidate(lambda: errors_in(no_end)),
        f"check lorentz.sx with {MOST_ERRORS} errors": Candidate(lambda: check_text(broken)),
        "draw an error at the end of one long line": Candidate(lambda: frame(long, width=80)),
        f"a near name among {_NAMES:,}": Candidate(lambda: suggest("layer7/atention/scores", names)),
    }


def main(given: Sequence[str] | None = None) -> None:
    """Print how long each takes."""
    quick = harness.arguments(__doc__, given).quick
    measured = harness.measure(candidates(10_000 if quick else _MEGABYTE), 1 if quick else 9)
    title = "10 kB of source" if quick else "1 MB of source"
    print(harness.table(title, measured, "read, whole", faults=False))


if __name__ == "__main__":
    harness.enter_own_environment()
    main()
