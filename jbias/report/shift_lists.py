"""Tables of verdicts by candidate and kind, and of every level."""

import dataclasses
import math
from collections.abc import Iterable, Sequence

from jbias.report import (
    shift_cells,
    shift_read,
    shift_verdicts,
    tables,
)


def verdicts(found: Sequence[shift_verdicts.Candidate]) -> tables.Table | None:
    """Gives a row for each candidate, by its worst kind."""
    rows = []
    for rank, one in enumerate(found, start=1):
        row = {"rank": str(rank), **_named(one.recipe), "attribute": one.attribute}
        row |= {"verdict": one.verdict}
        if (worst := one.worst) is not None:
            row |= {"kind": worst.kind} | _numbers(worst)
        rows.append(row)
    if not found:
        return None
    tau, alpha = found[0].tau, found[0].alpha
    made = shift_cells.table(
        "verdicts",
        "Which attribute hurts which recipe, the worst first. Bug: of some kind of shift the "
        "drop at the most extreme level less that at the control is surely above "
        f"{tau:g} points: p of its being less, adjusted after Holm over all recipes, attributes "
        f"and kinds, is below {alpha:g}. Kind: that of the largest normalised drop (relative to accuracy in "
        "distribution, less the control's), among those that pass if any does; candidates are "
        "ranked by it, bugs first. Area: mean drop over the levels. p: Welch's t test over "
        f"seeds, with the variance over images. {shift_cells.INTERVAL}",
        rows,
        {
            "rank": ("Rank", str),
            **_RECIPE,
            "attribute": ("attribute", str),
            "verdict": ("verdict", str),
            "kind": ("kind", str),
            **_NUMBERS,
        },
    )
    return _emphasised(made)


def kinds(found: Sequence[shift_verdicts.Candidate]) -> tables.Table | None:
    """Gives a row for each candidate and kind."""
    rows = [
        {**_named(one.recipe), "attribute": one.attribute, "kind": kind}
        | {"verdict": _word(one, curve)}
        | _numbers(curve)
        for one in found
        for kind, curve in one.curves.items()
    ]
    made = shift_cells.table(
        "kinds",
        "The same of every kind of shift that was run. Without a control the drop itself is "
        f"tested. {shift_cells.INTERVAL}",
        rows,
        {
            **_RECIPE,
            "attribute": ("attribute", str),
            "kind": ("kind", str),
            "verdict": ("verdict", str),
            **_NUMBERS,
        },
    )
    return made and _emphasised(made)


def _word(one: shift_verdicts.Candidate, curve: shift_verdicts.Curve) -> str:
    if not curve.tested:
        return shift_verdicts.UNKNOWN
    holds = curve.holds(one.alpha)
    return shift_verdicts.BUG if holds else shift_verdicts.NONE


_RECIPE = {
    "model": ("model", str),
    "algorithm": ("algorithm", str),
    "data": ("data", str),
    "setting": ("setting", str),
}
_NUMBERS = {
    "level": ("level", str),
    "percent": ("drop %", str),
    "drop": ("drop, points", str),
    "control": ("at the control", str),
    "over": ("above it", str),
    "normalised": ("normalised %", str),
    "area": ("area, points", str),
    "seeds": ("n", str),
    "p": ("p", tables.p_text),
    "holm": ("p (Holm)", tables.p_text),
}


def _named(recipe: shift_read.Recipe) -> dict:
    found = {name: getattr(recipe, name) for name in ("model", "algorithm", "data")}
    return found | {"setting": recipe.told or None}


def _numbers(curve: shift_verdicts.Curve) -> dict:
    """Gives a curve's numbers, as they are shown and in full."""
    extreme, control = curve.extreme, curve.control
    counts = dict.fromkeys(
        len(p.cell.seeds) for p in (extreme, control) if p is not None
    )
    found = {
        "level": extreme.cell.level,
        "seeds": " and ".join(map(str, counts)),
        "p": curve.p,
        "holm": curve.holm,
    }
    parts = {"percent": extreme.percent, "drop": extreme.drop, "over": curve.over}
    parts |= {"normalised": curve.normalised, "area": curve.area}
    if control is not None:
        parts["control"] = control.drop
    for name, one in parts.items():
        found[name] = None if math.isnan(one.value) else shift_cells.sure(one)
        found |= {f"{name}_value": one.value, f"{name}_low": one.low}
        found[f"{name}_high"] = one.high
    return found


def _emphasised(table: tables.Table) -> tables.Table:
    cells = {
        (i, j)
        for i, row in enumerate(table.rows)
        for j, cell in enumerate(row[: table.texts])
        if cell == shift_verdicts.BUG
    }
    return dataclasses.replace(
        table, strong=frozenset(cells), shade=dict.fromkeys(cells, 0.5)
    )


def levels(found: Sequence[shift_verdicts.Candidate]) -> tables.Table | None:
    """Gives a row for each level: the drop curves in numbers."""
    rows = []
    for one in found:
        for point in (p for curve in one.curves.values() for p in curve.points):
            row = {**_named(one.recipe), "attribute": one.attribute}
            row |= {"level": point.cell.level, "share": point.cell.share}
            row |= {"id": shift_cells.spread(point.cell.inside)}
            row |= {"ood": shift_cells.spread(point.cell.outside)}
            row |= {"id_mean": 100 * float(point.cell.inside.mean())}
            row |= {"ood_mean": 100 * float(point.cell.outside.mean())}
            for name, value in (("drop", point.drop), ("percent", point.percent)):
                row |= {name: shift_cells.sure(value), f"{name}_value": value.value}
                row |= {f"{name}_low": value.low, f"{name}_high": value.high}
            row |= shift_cells.groups(point.cell) | {"seeds": len(point.cell.seeds)}
            row |= {"images": point.cell.images or None}
            row |= dict(zip(("n_id", "n_ood"), point.cell.tested, strict=True))
            rows.append(row)
    metrics = shift_cells.metrics(rows)
    return shift_cells.table(
        "levels",
        "Every level: accuracy in % in and out of distribution, mean ± standard deviation over n "
        "seeds (n - 1 in its denominator). Share: of a class's images, how many have the values "
        "that training prefers; 0.5 is the control. Metrics of groups are of classes with "
        f"values, by test set. {shift_cells.INTERVAL}",
        rows,
        _level_heads(metrics),
    )


def _level_heads(metrics: Iterable[str]) -> dict:
    return {
        **_RECIPE,
        "attribute": ("attribute", str),
        "level": ("level", str),
        "id": ("ID", str),
        "ood": ("OOD", str),
        "drop": ("drop, points", str),
        "percent": ("drop %", str),
        **{name: (name.replace("_", " "), str) for name in metrics},
        "share": ("share", tables.digits(3)),
        "seeds": ("n", tables.whole),
        "images": ("images trained", tables.whole),
        "n_id": ("ID images", tables.whole),
        "n_ood": ("OOD images", tables.whole),
    }
