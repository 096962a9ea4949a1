"""What is told of remedies, of ranks, and in one sentence of all of it."""

from collections.abc import Iterable, Sequence

from jbias.report import (
    shift_cells,
    shift_ranks,
    shift_read,
    shift_remedies,
    shift_verdicts,
    tables,
)

_two = shift_cells.two
ALWAYS = (
    "The paper gives the kinds, and no shares in numbers: levels and tables are made here.",
    "Drops are of means over seeds, averages' drops of averages, as the paper's.",
    "All seeds see the same test images, so intervals hold the noise of these in full.",
)


def headline(
    found: Sequence[shift_verdicts.Candidate], study: shift_read.Study, alpha: float
) -> tuple[str, str]:
    """Gives the answer in one sentence, and what it rests on."""
    tested = [one for one in found if one.worst is not None]
    bugs = [one for one in tested if one.verdict == shift_verdicts.BUG]
    many = len({one.recipe for one in tested}) > 1
    basis = f"Of each seed counts {study.rule}."
    if not tested:
        return "No shift beyond the control was run.", basis
    kinds = sum(curve.tested for one in tested for curve in one.curves.values())
    basis = (
        f"{len(tested)} recipes and attributes, {kinds} tests of kinds, adjusted after Holm at "
        f"{alpha:g}; a bug costs more than {tested[0].tau:g} points beyond the control. "
        f"{basis}"
    )
    if not bugs:
        return f"None of {len(tested)} candidates is found to be a bug.", basis
    first = bugs[0]
    whose = f" of {first.recipe.label}" if many else ""
    over = first.worst.over
    what = f"{first.attribute}{whose}, {first.worst.kind}"
    lost = f"{shift_cells.two(over.value)} points of accuracy are lost"
    answer = f"The one candidate is a bug, {what}: {lost}."
    if len(tested) > 1:
        are = "is a bug: it" if len(bugs) == 1 else "are bugs: the worst"
        answer = f"{len(bugs)} of {len(tested)} candidates {are} is {what}; {lost}."
    return answer, basis


def remedies(found: Sequence[shift_remedies.Remedy]) -> tables.Table | None:
    """Gives the plain recipe of each shift, and below it what remedies do."""
    rows = []
    for one in found:
        cell = one.cell
        row = {"data": cell.recipe.data, "attribute": cell.attribute}
        row |= {"level": cell.level, "model": cell.recipe.model}
        row |= {"algorithm": cell.recipe.algorithm}
        row |= {"setting": cell.recipe.told or None}
        row |= {"pairs": "plain" if one.is_plain else "yes" if one.paired else "no"}
        row |= {"id": shift_cells.spread(cell.inside)}
        row |= {"ood": shift_cells.spread(cell.outside)}
        for name in ("drop", "gain", "id_cost", "closed"):
            value = getattr(one, name)
            row |= {name: shift_cells.sure(value), f"{name}_value": value.value}
            row |= {f"{name}_low": value.low, f"{name}_high": value.high}
        rows.append(row | shift_cells.groups(cell) | {"seeds": len(cell.seeds)})
    metrics = shift_cells.metrics(rows)
    return shift_cells.table(
        "remedies",
        "What remedies close of a drop, at the most extreme level that both were trained at. "
        "Closed: 1 - drop / drop of the plain recipe, 1 is all; a dash where the plain "
        "recipe's drop is not surely above 0. Gain: accuracy out of distribution won, ID cost: "
        "accuracy in distribution lost, in points: what costs much and is near chance has no "
        "drop either, and mends nothing. Paired: both have the same seeds, which are "
        f"redrawn together. {shift_cells.INTERVAL}",
        rows,
        _remedy_heads(metrics),
    )


def _remedy_heads(metrics: Iterable[str]) -> dict:
    return {
        "data": ("Data", str),
        "attribute": ("attribute", str),
        "level": ("level", str),
        "model": ("model", str),
        "algorithm": ("algorithm", str),
        "setting": ("setting", str),
        "pairs": ("paired", str),
        "closed": ("closed", str),
        "drop": ("drop, points", str),
        "gain": ("gain", str),
        "id_cost": ("ID cost", str),
        "id": ("ID", str),
        "ood": ("OOD", str),
        **{name: (name.replace("_", " "), str) for name in metrics},
        "seeds": ("n", tables.whole),
    }


def ranks(found: Sequence[shift_ranks.Agreement]) -> tables.Table | None:
    """Gives the agreement of ranks, ours and the paper's."""
    rows = [
        {
            **one._asdict(),
            "models": ", ".join(one.models),
            "n": len(one.models),
            "interval": f"[{_two(one.low)}, {_two(one.high)}]"
            if one.low == one.low
            else None,
            "crossed": f"{one.discordant} of {one.pairs}",
        }
        for one in found
    ]
    return shift_cells.table(
        "ranks",
        "Do models rank alike in and out of distribution at the most extreme level? Kendall's "
        "tau-b and Spearman's rho of mean accuracies, with p of all orders (of 9,999 random "
        "ones for more than 7 models); discordant pairs of models; intervals of 95 % of tau "
        "over redrawn seeds and images. The paper's are computed from its Table 1, one run a "
        "model.",
        rows,
        {
            "whose": ("Numbers", str),
            "data": ("data", str),
            "attribute": ("attribute", str),
            "algorithm": ("algorithm", str),
            "kind": ("kind", str),
            "models": ("models", str),
            "crossed": ("discordant", str),
            "interval": ("interval of tau", str),
            "n": ("n", tables.whole),
            "tau": ("tau", _two),
            "tau_p": ("p", tables.p_text),
            "rho": ("rho", _two),
            "rho_p": ("p", tables.p_text),
        },
    )
