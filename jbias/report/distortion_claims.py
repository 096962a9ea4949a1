"""The orderings that the data-distortion paper claims: do they hold in its numbers, and here?

A claim says that one mean is larger than another. Its text makes some; others were read off
its tables, so those numbers cannot test them. Of the printed numbers this is Welch's t, from
means, deviations and five runs, but not of the DI index, whose runs share a weight. Ours are
tested by exchanging seeds between the two groups. p is one-sided, for and against the claim,
each at half the level, and adjusted after Holm over a family: the claims of a measure and
data set, those of the text and those of tables apart.
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
from jbias.stats import multiple_testing, two_sample

HOLDS, NOT, UNKNOWN = "holds", "does not hold", "cannot be told"
UNTESTED = "no test"
AS_CLAIMED, EQUAL, OPPOSITE = "as claimed", "equal", "opposite"
TEXT, TABLE = "text", "table"  # What a claim was taken from.
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
    whose: str = TABLE
    margin: float = 0.0

    def order(self, more: float, less: float) -> str:
        """Says how two means stand, "" where one is not known."""
        if math.isnan(more) or math.isnan(less):
            return ""
        if math.isclose(more + self.margin, less, rel_tol=1e-9, abs_tol=1e-9):
            return AS_CLAIMED if self.margin else EQUAL
        return AS_CLAIMED if more + self.margin > less else OPPOSITE


class Verdict(NamedTuple):
    """What the numbers of one side, the paper's or ours, say of a claim. NaN: no test."""

    more: float
    less: float
    n: tuple[int, int]
    order: str = ""  # How the means stand.
    p: float = math.nan  # That the first is not larger.
    against: float = math.nan  # That the first is not smaller.
    ranks: float = math.nan  # As `p`, by ranks.
    least: float = math.nan  # No p can be smaller.
    holm: float = math.nan  # These three adjusted.
    holm_against: float = math.nan
    holm_least: float = math.nan

    def words(self, alpha: float) -> str:
        """Says what is told at alpha, half of it on each side."""
        if math.isnan(self.p):
            return UNTESTED
        if self.holm <= alpha / 2:
            return HOLDS
        return NOT if self.holm_against <= alpha / 2 else UNKNOWN


def every(others: Sequence[str] = ()) -> Iterator[Claim]:
    """Gives the claims, table by table; others: data sets that they are made for, too."""
    known = [name for name in others if name != distortion_read.STACKED]
    data = list(dict.fromkeys([*distortion_layouts.DATA, *known]))
    alone = list(dict.fromkeys([distortion_printed.UNNAMED, *known]))
    for name in data:
        for method in ("FMix", "CutMix"):
            yield _pair("Table 1", "di_grid", name, "basic", method, TEXT)
        yield from _falling("Table 1", "di_grid", name, *_ALL)
    for name in data[3:]:
        yield from _falling("Table 2", "gst_shape", name, "MixUp", "basic")
        yield from _falling("Table 2", "gst_texture", name, "MixUp", "basic", "FMix")
    for name in data:
        for method in _ALL[1:]:
            whose = TABLE if method == "MixUp" else TEXT
            yield _pair("Table 3", "di_black", name, "basic", method, whose)
    for name in alone:
        for method in ("CutMix", "FMix", "RM"):
            yield _pair("Table 4", "di_other", name, "basic", method, TEXT)
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
                pair = fashion, itself
                yield Claim("Table 7", f"{method}: {words}", *pair, TEXT, MARGIN)
    stacked = distortion_read.STACKED
    yield _pair(stacked, "cifar", stacked, "FMix", "basic", TEXT)
    yield _pair(stacked, "mnist", stacked, "basic", "FMix", TEXT)


def _falling(table: str, quantity: str, data: str, *methods: str) -> Iterator[Claim]:
    """Claims that each method has more than the next, as a table has them."""
    for more, less in itertools.pairwise(methods):
        yield _pair(table, quantity, data, more, less, TABLE)


def _pair(table: str, quantity: str, data: str, more: str, less: str, whose: str):
    return _claim(table, *(Cell(quantity, data, name) for name in (more, less)), whose)


def _claim(table: str, more: Cell, less: Cell, whose: str = TABLE) -> Claim:
    if more.training != less.training:
        words = f"{more.method}: {more.training} > {less.training}"
    else:
        title = distortion_values.QUANTITIES[more.quantity].title
        title = "DI" if more.quantity.startswith("di_") else title
        words = f"{title}: {more.method} > {less.method}"
    return Claim(table, words, more, less, whose)


def of_printed(
    printed: Mapping[Cell, distortion_printed.Printed],
) -> dict[Claim, Verdict]:
    """Gives what the printed means and deviations say of each claim they are there for."""
    found = {}
    for claim in every():
        if {claim.more, claim.less} <= set(printed):
            more, less = printed[claim.more], printed[claim.less]
            n = 1 if math.isnan(more.std) else distortion_printed.RUNS
            order = claim.order(more.mean, less.mean)
            one = Verdict(more.mean, less.mean, (n, n), order)
            shared = claim.more.quantity.startswith("di_")
            if n > 1 and claim.whose == TEXT and not shared:
                p, against = two_sample.welch(
                    (more.mean + claim.margin, max(more.std, _ROUNDED), n),
                    (less.mean, max(less.std, _ROUNDED), n),
                )
                one = one._replace(p=p, against=against)
            found[claim] = one
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
            found[claim] = _tested(more, less, claim)
    return _adjusted(found)


def _tested(
    more: distortion_values.Values, less: distortion_values.Values, claim: Claim
) -> Verdict:
    means, n = (more.tested, less.tested), (len(more.units), len(less.units))
    found = Verdict(*means, n, claim.order(*means))
    if min(n) < 2:
        return found
    one = two_sample.exchange(
        more.units, less.units, more.statistic, margin=claim.margin
    )
    found = found._replace(p=one.greater, against=one.less, least=one.least)
    if more.units.ndim > 1:  # Of a group together: seeds have no values to rank.
        return found
    return found._replace(
        ranks=two_sample.rank_sum(more.runs + claim.margin, less.runs)
    )


def _adjusted(found: Mapping[Claim, Verdict]) -> dict[Claim, Verdict]:
    """Adjusts p over the claims of a family, and the least that p can be.

    Holm's p of a claim grows with every p of its family, so of the least it is the least.
    """
    told = dict(found)
    families: dict[tuple, list[Claim]] = {}
    for claim, verdict in found.items():
        if not math.isnan(verdict.p):
            families.setdefault(family(claim), []).append(claim)
    for claims in families.values():
        for name, of in (("", "p"), ("_against", "against"), ("_least", "least")):
            p = [getattr(found[claim], of) for claim in claims]
            if not np.isnan(p).any():
                for claim, one in zip(
                    claims, multiple_testing.adjust(p, "holm"), strict=True
                ):
                    told[claim] = told[claim]._replace(**{f"holm{name}": float(one)})
    return told


def family(claim: Claim) -> tuple[str, ...]:
    """Says which claims are adjusted together."""
    return claim.table, claim.more.quantity, claim.more.data, claim.whose


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
            row |= {"claim": claim.words, "whose": claim.whose}
            row |= {"family": " ".join((model, *family(claim)))}
            row |= _told("paper", theirs.get(claim), alpha)
            rows.append(row | _told("here", ours.get(model, {}).get(claim), alpha))
    found = pd.DataFrame(rows)
    if rows:
        known = found["here_p"].notna()
        both = found.loc[known, ["here_p", "here_against"]].min(axis=1) * 2
        adjusted = multiple_testing.adjust(both.clip(upper=1).to_numpy(), "bh")
        found.loc[known, "fdr"] = adjusted
        found = found.drop(columns=["paper_ranks", "paper_least", "paper_holm_least"])
    return found


def _told(side: str, verdict: Verdict | None, alpha: float) -> dict:
    found = (verdict or Verdict(math.nan, math.nan, ()))._asdict()
    found["n"] = " and ".join(str(n) for n in dict.fromkeys(found["n"]))
    found["verdict"] = verdict.words(alpha) if verdict else ""
    return {f"{side}_{name}": value for name, value in found.items()}
