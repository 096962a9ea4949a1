"""The orderings that the data-distortion paper claims: do they hold in its numbers, and here?

A claim says that one mean is larger than another. The paper's are tested by Welch's t from
its means, deviations and five runs; ours by exchanging seeds between the two groups. Both p
are one-sided, for and against the claim, and adjusted after Holm over the claims of a table,
data set and model, which is where a reader looks for an ordering.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from jbias.report import (
    distortion_layouts,
    distortion_printed,
    distortion_read,
    distortion_values,
)
from jbias.stats import adjustment, two_groups

HOLDS, NOT, UNKNOWN = "holds", "does not hold", "cannot be told"
_ROUNDED = 0.005  # No printed deviation is known to be smaller.
MARGIN = 1.0  # Percentage points that count as no harm.
_ALL = ("basic", "MixUp", "FMix", "CutMix")
_OTHER, _WITHOUT = distortion_read.OTHER, distortion_read.WITHOUT
_CIFAR = ("CIFAR-10", "CIFAR-100")
Cell = distortion_printed.Cell


class Claim(NamedTuple):
    """That the mean of `more` is above that of `less`, or below by no more than a margin."""

    table: str
    words: str
    more: Cell
    less: Cell
    margin: float = 0.0


class Verdict(NamedTuple):
    """What the numbers of one side, the paper's or ours, say of a claim. NaN: no test."""

    more: float
    less: float
    n: tuple[int, int]
    p: float = math.nan  # That the first is not larger.
    against: float = math.nan  # That the first is not smaller.
    ranks: float = math.nan  # As `p`, by ranks.
    least: float = math.nan  # No p can be smaller.
    holm: float = math.nan  # These three adjusted.
    holm_against: float = math.nan
    holm_least: float = math.nan

    def words(self, alpha: float) -> str:
        if self.holm <= alpha:
            return HOLDS
        return NOT if self.holm_against <= alpha else UNKNOWN


def every(others: Sequence[str] = ()) -> Iterator[Claim]:
    """Gives the claims, table by table; others: data sets that they are made for, too."""
    known = [name for name in others if name != distortion_read.STACKED]
    data = list(dict.fromkeys([*distortion_layouts.DATA, *known]))
    alone = list(dict.fromkeys([distortion_printed.UNNAMED, *known]))
    for name in data:
        yield from _falling("Table 1", "di_grid", name, *_ALL)
        for method in ("FMix", "CutMix"):
            yield from _falling("Table 1", "di_grid", name, "basic", method)
    for name in data[3:]:
        yield from _falling("Table 2", "gst_shape", name, "MixUp", "basic")
        yield from _falling("Table 2", "gst_texture", name, "MixUp", "basic", "FMix")
    for name in data:
        for method in _ALL[1:]:
            yield from _falling("Table 3", "di_black", name, "basic", method)
    for name in alone:
        for method in ("CutMix", "FMix", "RM"):
            yield from _falling("Table 4", "di_other", name, "basic", method)
        order = ("FMix", "CutMix", "RM", "MixUp", "basic")
        yield from _falling("Table 4", "cut_occlusion", name, *order)
        order = ("FMix", "RM", "CutMix", "MixUp", "basic")
        yield from _falling("Table 4", "iocclusion", name, *order)
    for name in alone:
        for quantity in ("affinity", "diversity", "mix_diversity"):
            yield from _falling("Table 5", quantity, name, "MixUp", "FMix")
    for name in dict.fromkeys((*_CIFAR, *known)):
        pair = [Cell("di_anywhere", name, m, _WITHOUT) for m in ("MixUp", "FMix")]
        yield _claim("Table 6", *pair)
    for name in _CIFAR:
        for method in _ALL[1:]:
            itself, fashion = (
                Cell("accuracy", name, method, _OTHER + other)
                for other in ("itself", "FashionMNIST")
            )
            if method == "MixUp":
                yield _claim("Table 7", itself, fashion)
            else:
                words = f"{fashion.training} ≥ {itself.training} less {MARGIN:g} point"
                yield Claim("Table 7", f"{method}: {words}", fashion, itself, MARGIN)
    stacked = distortion_read.STACKED
    yield from _falling(stacked, "cifar", stacked, "FMix", "basic")
    yield from _falling(stacked, "mnist", stacked, "basic", "FMix")


def _falling(table: str, quantity: str, data: str, *methods: str) -> Iterator[Claim]:
    """Claims that each method has more than the next."""
    for more, less in itertools.pairwise(methods):
        yield _claim(table, *(Cell(quantity, data, name) for name in (more, less)))


def _claim(table: str, more: Cell, less: Cell) -> Claim:
    if more.training != less.training:
        words = f"{more.method}: {more.training} > {less.training}"
    else:
        title = distortion_values.QUANTITIES[more.quantity].title
        title = "DI" if more.quantity.startswith("di_") else title
        words = f"{title}: {more.method} > {less.method}"
    return Claim(table, words, more, less)


def of_printed(
    printed: Mapping[Cell, distortion_printed.Printed],
) -> dict[Claim, Verdict]:
    """Gives what the printed means and deviations say of each claim they are there for."""
    found = {}
    for claim in every():
        if {claim.more, claim.less} <= set(printed):
            more, less = printed[claim.more], printed[claim.less]
            n = distortion_printed.RUNS
            if math.isnan(more.std):
                found[claim] = Verdict(more.mean, less.mean, (1, 1))
                continue
            p = two_groups.welch(
                (more.mean + claim.margin, max(more.std, _ROUNDED), n),
                (less.mean, max(less.std, _ROUNDED), n),
            )
            found[claim] = Verdict(more.mean, less.mean, (n, n), *p)
    return _adjusted(found)


def of_measured(study: distortion_values.Study, model: str) -> dict[Claim, Verdict]:
    """Gives what the networks of one model say of each claim they are there for."""
    found = {}
    for claim in every(study.data):
        more, less = (
            study.value(cell.quantity, cell.key(model))
            for cell in (claim.more, claim.less)
        )
        if more is not None and less is not None:
            found[claim] = _tested(more, less, claim.margin)
    return _adjusted(found)


def _tested(more, less, margin: float) -> Verdict:
    n = len(more.runs), len(less.runs)
    alike = more.units.shape[1:] == less.units.shape[1:]  # Classes can be left out.
    if min(n) < 2 or not alike:
        return Verdict(more.mean, less.mean, n)
    one = two_groups.exchange(more.units, less.units, more.statistic, margin=margin)
    ranks = two_groups.rank_sum(more.runs + margin, less.runs)
    return Verdict(more.mean, less.mean, n, one.greater, one.less, ranks, one.least)


def _adjusted(found: Mapping[Claim, Verdict]) -> dict[Claim, Verdict]:
    """Adjusts p over the claims of a table and data set, and the least that p can be.

    Holm's p of a claim grows with every p of its family, so of the least it is the least.
    """
    told = dict(found)
    families: dict[tuple, list[Claim]] = {}
    for claim, verdict in found.items():
        if not math.isnan(verdict.p):
            families.setdefault((claim.table, claim.more.data), []).append(claim)
    for claims in families.values():
        for name, of in (("", "p"), ("_against", "against"), ("_least", "least")):
            p = [getattr(found[claim], of) for claim in claims]
            if not np.isnan(p).any():
                for claim, one in zip(
                    claims, adjustment.adjust(p, "holm"), strict=True
                ):
                    told[claim] = told[claim]._replace(**{f"holm{name}": float(one)})
    return told


def frame(
    study: distortion_values.Study,
    printed: Mapping[Cell, distortion_printed.Printed],
    *,
    alpha: float,
) -> pd.DataFrame:
    """Gives a row a claim and model, in the paper's numbers and in ours."""
    theirs = of_printed(printed)
    ours = {model: of_measured(study, model) for model in study.models}
    rows = []
    for claim in every(study.data):
        models = [model for model in ours if claim in ours[model]]
        if not models and claim in theirs:
            models = [""]
        for model in models:
            row = {"model": model, "table": claim.table, "data": claim.more.data}
            row |= {"claim": claim.words}
            row |= _told("paper", theirs.get(claim), alpha)
            rows.append(row | _told("here", ours.get(model, {}).get(claim), alpha))
    found = pd.DataFrame(rows)
    if rows:
        known = found["here_p"].notna()
        adjusted = adjustment.adjust(found.loc[known, "here_p"].to_numpy(), "holm")
        found.loc[known, "holm_all"] = adjusted
        found = found.drop(columns=["paper_ranks", "paper_least", "paper_holm_least"])
    return found


def _told(side: str, verdict: Verdict | None, alpha: float) -> dict:
    found = (verdict or Verdict(math.nan, math.nan, ()))._asdict()
    found["n"] = " and ".join(str(n) for n in dict.fromkeys(found["n"]))
    found["verdict"] = verdict.words(alpha) if verdict else ""
    return {f"{side}_{name}": value for name, value in found.items()}
