"""Tables 1 to 7 of the data-distortion paper: ours beside theirs, in its layout."""

import math
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from jbias.report import (
    distortion_gaps,
    distortion_layouts,
    distortion_printed,
    distortion_values,
    tables,
)

Printed = Mapping[distortion_printed.Cell, distortion_printed.Printed]
Cell = distortion_printed.Cell
_SPREAD = (
    "Mean ± standard deviation over seeds (n - 1 in its denominator) and, of ours, Student's "
    "interval of 95 % of the mean, no accuracy beyond 0 and 100; n is the number of seeds."
)
_INDEX = (
    "At the end the class that errors gather in. Its weight is a mean over seeds, so the "
    "deviation of the index leaves out that of the weight. Its brackets are no interval of "
    "95 % but the middle 95 % of redraws of five seeds or more: the true index is in 65 to 85 of "
    "100 such ranges of five seeds where one class gathers, and in none where no class is "
    "preferred. By chance: the index where each seed's errors are dealt out anew between "
    "plain and distorted images; it falls with n, so compare indices of as many seeds. A dash "
    f"for seeds that decide more than {100 * distortion_values.ONE_CLASS:.0f} % of the plain "
    "images for one class: it cannot grow."
)


def of(study: distortion_values.Study, printed: Printed) -> Iterator[tables.Table]:
    """Gives the tables of which there is something here; see `missing` for the others."""
    for layout in distortion_layouts.of(study.data):
        table = _table(layout, study, printed)
        if table is not None:
            yield table


def _table(
    layout: distortion_layouts.Layout, study: distortion_values.Study, printed: Printed
) -> tables.Table | None:
    rows, data, images = [], [], []
    several = len(study.models) > 1
    for words, row in distortion_layouts.cells(layout):
        theirs = [printed.get(cell) for cell in row]
        for model in study.models:
            found = [study.value(cell.quantity, cell.key(model)) for cell in row]
            if not any(found):
                continue
            sizes = {len(one.runs) + one.left_out for one in found if one is not None}
            source = f"here, {model}" if several else "here"
            source += f", n={min(sizes)}" if len(sizes) == 1 else ""
            shown = (_shown(one, len(sizes) > 1) for one in found)
            rows.append((*words, source, *shown))
            if any(one is not None and not math.isnan(one.chance) for one in found):
                chances = (number(one.chance) if one else "–" for one in found)
                rows.append((*words, f"{source} by chance", *chances))
            images += [one.images for one in found if one is not None]
            data += _full(row, found, model)
        if any(theirs):
            rows.append((*words, "paper", *map(spread, theirs)))
            data += _full(row, theirs, "paper")
    if not images:
        return None
    told = f" Ours are of {span(images)} images." + (
        f" {_INDEX}" if "DI" in layout.caption else ""
    )
    if "iOcclusion" in layout.caption:
        told += f" {distortion_gaps.RULE}"
    return tables.Table(
        name=layout.name,
        caption=f"{layout.number}. {layout.caption} {_SPREAD}{told}",
        head=(*layout.heads, "numbers", *(head for head, _ in layout.columns)),
        rows=tuple(rows),
        data=pd.DataFrame(data).astype(
            dict.fromkeys(("n", "left_out", "images"), "Int64")
        ),
        texts=len(layout.heads) + 1,
    )


def _shown(found: distortion_values.Values | None, sized: bool) -> str:
    """Shows a value with its interval, the number of seeds if asked, and the class."""
    if found is None:
        return "–"
    told = spread(found)
    if not math.isnan(found.low):
        told += f" [{number(found.low)}, {number(found.high)}]"
    if found.left_out:
        told += f" (n = {len(found.runs)} of {len(found.runs) + found.left_out})"
    elif sized:
        told += f" (n = {len(found.runs)})"
    return f"{told} {found.dominant}".strip()


def spread(one: distortion_values.Values | distortion_printed.Printed | None) -> str:
    """Shows a mean and, where it is known, a deviation."""
    if one is None:
        return "–"
    ending = "" if math.isnan(one.std) else f" ± {number(one.std)}"
    return f"{number(one.mean)}{ending}"


def number(value: float) -> str:
    return "–" if math.isnan(value) else tables.digits(2)(value)


def span(values: Sequence[int]) -> str:
    """Shows numbers that are alike as one, others as the least and the largest."""
    ends = dict.fromkeys((min(values, default=0), max(values, default=0)))
    return " to ".join(f"{value:,}" for value in ends)


def caveats(study: distortion_values.Study) -> Iterator[str]:
    """Says whose DI index is missing, and where indices are of unlike numbers of seeds."""
    for layout in distortion_layouts.of(study.data):
        for words, row in distortion_layouts.cells(layout):
            if not row[0].quantity.startswith("di_"):
                continue
            for model in study.models:
                found = {x: study.value(x.quantity, x.key(model)) for x in row}
                found = {x.method: one for x, one in found.items() if one is not None}
                whose = f"{layout.number}, {', '.join(words)} ({model})"
                sizes = {name: len(one.runs) for name, one in found.items()}
                if len(set(sizes.values())) > 1:
                    told = (f"{name} {size}" for name, size in sizes.items())
                    yield (
                        f"{whose}: seeds are {', '.join(told)}. The DI index of fewer is "
                        'larger by chance: look at the row "by chance".'
                    )
                lost = [
                    f"{one.left_out} of {x}" for x, one in found.items() if one.left_out
                ]
                if lost:
                    yield (
                        f"{whose}: no DI index of {tables.join(lost)}, which decide nearly all "
                        "plain images for one class."
                    )


def _full(row: Sequence[Cell], found: Sequence, source: str) -> Iterator[dict]:
    for cell, one in zip(row, found, strict=True):
        if one is None:
            continue
        told = {"source": source, **cell._asdict(), "mean": one.mean, "std": one.std}
        if source == "paper":
            yield told | {"n": None if math.isnan(one.std) else distortion_printed.RUNS}
            continue
        told |= {"n": len(one.runs), "left_out": one.left_out, "images": one.images}
        told |= {"low": one.low, "high": one.high, "by_chance": one.chance}
        yield told | {
            "dominant": one.dominant,
            "seeds": " ".join(map(str, one.seeds)),
            "values": " ".join(f"{value:.17g}" for value in one.runs),
        }
