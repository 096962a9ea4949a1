"""Removal of markup, footnote marks and citations from names of algorithms and data sets.

Marks that distinguish two names of a column, or two columns, stay.
"""

import dataclasses
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from jbias.stats.reading import score_cells, score_grid

Name = TypeVar("Name", bound=Hashable)


def without_notes(grid: score_grid.Grid) -> tuple[score_grid.Grid, dict[str, str]]:
    """Return a grid whose names have no markup, footnote marks and citations.

    The second value is a dict from each new name to the name with its footnote marks and citations,
    for names that lost such marks. The cells of a column do not change if half of its filled cells,
    or more, are scores.
    """
    heads = _shortened(grid.columns, _shorten_levels)
    old_names = {
        new: _marked(old)
        for names, short in heads.items()
        for old, new in zip(names, short, strict=True)
        if _marked(old) != new
    }
    rows = [list(row) for row in grid.cells]
    for j in range(len(grid.columns)):
        texts = [row[j] for row in rows if not score_grid.is_blank(row[j])]
        words = {text for text in dict.fromkeys(texts) if _is_name(text)}
        if 2 * sum(text in words for text in texts) <= len(texts):
            continue
        names = [text for text in dict.fromkeys(texts) if text in words]
        short_names = _shortened(names, lambda shorten, name: shorten(name))
        old_names |= {
            new: _marked(old) for old, new in short_names.items() if _marked(old) != new
        }
        for row in rows:
            if isinstance(row[j], str):
                row[j] = short_names.get(row[j], row[j])
    columns = tuple(heads[names] for names in grid.columns)
    return dataclasses.replace(grid, columns=columns, cells=rows), old_names


def _is_name(value: Any) -> bool:
    """Return True if a cell is text other than a score."""
    return isinstance(value, str) and not score_cells.is_score(value)


def _marked(name: str) -> str:
    """Return a name without markup, but with its footnote marks and citations."""
    return score_cells.plain_text(name, keep_notes=True)


def _shorten_levels(
    shorten: Callable[[str], str], names: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the names of the header lines of a column, each shortened."""
    return tuple(map(shorten, names))


def _shortened(names: Iterable[Name], apply: Callable) -> dict[Name, Name]:
    """Return, by name, the shortest form of each name such that different names stay different.

    apply: (shorten, name) -> name with the function `shorten` applied to its text, or to
    each text of a tuple.
    """
    short = {name: apply(score_cells.bare_name, name) for name in names}
    marked = {name: apply(_marked, name) for name in short}
    for fuller in (marked, {name: name for name in short}):
        groups: dict[Name, list[Name]] = {}
        for name, text in short.items():
            groups.setdefault(text, []).append(name)
        for group in groups.values():
            if len(group) > 1:
                short |= {name: fuller[name] for name in group}
    return short
