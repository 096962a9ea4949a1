"""Cells and tables of measured networks: shares with intervals, numbers by column."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from jbias.evals import decisions
from jbias.report import measured_read, tables

Networks = Sequence[measured_read.Network]


def beside(
    name: str,
    caption: str,
    first: str,
    networks: Networks,
    counts: Mapping[str, Mapping[str, tuple[int, int]]],
    *,
    metric: str = "accuracy",
) -> tables.Table | None:
    """Makes a table of shares with Wilson intervals: a row a name, a column a network.

    counts: by network, then by row, `count` of n.
    """
    order = list(dict.fromkeys(row for each in counts.values() for row in each))
    if not order:
        return None
    data, rows = [], []
    for row in order:
        cells = []
        for one in networks:
            if row not in counts.get(one.name, {}):
                cells.append("–")
                continue
            count, n = counts[one.name][row]
            low, high = decisions.wilson_interval(count, n)
            cells.append(tables.with_ends(count / n, low, high) if n else "–")
            values = dict(value=count / n if n else math.nan, low=low, high=high)
            data.append({first: row, "network": one.name, "metric": metric, **values})
            data[-1] |= {"count": count, "n": n}
        rows.append((row, *cells))
    return tables.Table(
        name=name,
        caption=f"{caption} In %, with Wilson intervals of 95 %.",
        head=(first.capitalize(), *(one.name for one in networks)),
        rows=tuple(rows),
        data=pd.DataFrame(data),
    )


def ends(number: decisions.Number) -> tuple[float, float]:
    """Gives Wilson's interval of a share."""
    return decisions.wilson_interval(int(number.count), number.n)


def values(one: measured_read.Network, place, metrics, condition="") -> dict:
    """Gives the values of some metrics of one measure, None where there is none."""
    found = {metric: one.number(place, metric, condition) for metric in metrics}
    return {metric: number and number.value for metric, number in found.items()}


def ended(metric: str) -> tuple[str, str, str]:
    return metric, f"{metric}_lower", f"{metric}_upper"


def places(
    networks: Networks, probe: str
) -> Iterator[tuple[str, measured_read.Place, list[measured_read.Network]]]:
    """Gives each measure of a probe and set, an ending for its figures' names, and whose
    it is.
    """
    found: dict[measured_read.Place, list] = {}
    for one in networks:
        for place in one.of(probe):
            found.setdefault(place, []).append(one)
    for place, those in found.items():
        yield ("_".join(("", *place)) if len(found) > 1 else ""), place, those


def corrupted(
    networks: Networks,
) -> Iterator[tuple[str, str, dict[str, Mapping[tuple[str, int], float]]]]:
    """Gives an ending, of which images, and accuracy by network, corruption and severity.

    Measures of one set are together, such as ImageNet-C and C-bar, unless they share a
    condition.
    """
    shared = set()
    for one in networks:
        for a, b in itertools.combinations(one.corrupted, 2):
            if a[1] == b[1] and one.corrupted[a].keys() & one.corrupted[b].keys():
                shared.add(a[1])
    found: dict[tuple[str, ...], dict[str, dict]] = {}
    for one in networks:
        for place, cells in one.corrupted.items():
            key = place if place[1] in shared else place[1:]
            found.setdefault(key, {}).setdefault(one.name, {}).update(cells)
    for key, by_network in found.items():
        ending = "_".join(("", *key)) if len(found) > 1 and any(key) else ""
        told = f"images of {key[-1]}" if key[-1] else "images as published"
        told += f" (measure {key[0]})" if len(key) > 1 else ""
        yield ending, told, by_network
