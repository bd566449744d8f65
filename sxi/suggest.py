"""One near candidate for a misspelled word."""

from __future__ import annotations

from collections.abc import Iterable


def suggest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate nearest to `word`, in alphabetical order the first of equals, or None where none is near.

    Near is an edit distance of at most a third of the word's length, and 1 for short words; a word
    of one letter is near to none that shares no letter with it.
    """
    limit = max(1, len(word) // 3)
    best: tuple[int, str] | None = None
    for candidate in candidates:
        if candidate == word or abs(len(candidate) - len(word)) > limit:
            continue
        distance = edit_distance(word, candidate, limit)
        if distance > limit or distance >= max(len(word), len(candidate)):
            continue
        if best is None or (distance, candidate) < best:
            best = distance, candidate
    return best[1] if best else None


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
