"""Which attributes hurt: many candidates tested together, ranked, with a verdict each."""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from jbias.data import shifts
from jbias.evals import reliance, within
from jbias.stats import adjustment, few

TAU, ALPHA = 0.05, 0.05
_NORMAL = 1.96  # Standard errors of an interval of 95 %.


class Suspect(NamedTuple):
    """One candidate: its drops, what was found, and after which other attribute."""

    name: str
    result: reliance.Reliance
    pvalues: Mapping[str, float]  # By kind, adjusted over all candidates and kinds.
    kind: str  # Of the drop that it is ranked by; "" where it cannot be tested.
    verdict: str  # "bug", "some", "goes with", "none" or "untestable".
    other: str = ""  # The bug before it in the list that explains it, or all but.
    remains: within.Within | None = None  # The drop where `other` is held fixed.

    @property
    def drop(self) -> float:
        return self.result.kinds[self.kind].drop if self.kind else float("nan")


def rank(
    correct: Bool[np.ndarray, "s n"],
    label: Int[np.ndarray, "n"],
    candidates: Mapping[str, Int[np.ndarray, "n"]],
    found: Mapping[str, reliance.Reliance],
    *,
    against: Bool[np.ndarray, "r n"] | None = None,
    tau: float = TAU,
    alpha: float = ALPHA,
) -> list[Suspect]:
    """Ranks candidates: those that hurt, the others, each by drop; last the untestable.

    A kind of shift is hurtful where the interval of its drop lies above `tau`, as does the
    networks' own drop, whatever that of networks of reference is, and p of its being `tau`
    at most, by Holm over all candidates and kinds, is at most `alpha`. A candidate is a
    "bug" where some kind is, and the drop stays above `tau`, interval and all, within
    every bug that is ranked before it; else it "goes with" the one after which least is
    left, `other`. See `hurtful_kind` for which kind is told. "some": so it would be of these
    networks, but they differ, and so the interval is wide: by the standard error of their
    images alone the drop is above `tau`.
    """
    holm, of_images = (_adjusted(found, tau, among) for among in (True, False))
    rows = []
    for name, one in found.items():
        mine = {kind: holm[name, kind] for kind in one.kinds}
        kind, hurts = kind_of(one, mine, tau=tau, alpha=alpha)
        verdict = "untestable" if not kind else "bug" if hurts else "none"
        sure = bool(kind) and of_images[name, kind] <= alpha
        if sure and not hurts and _some(one.kinds[kind], tau):
            verdict = "some"
        rows.append(Suspect(name, one, mine, kind, verdict))
    last = {"bug": 0, "some": 1, "none": 2, "untestable": 3}
    rows.sort(key=lambda row: (last[row.verdict], -row.drop if row.kind else 0))
    hold = functools.partial(within.drop, np.atleast_2d(correct), label)
    hold, bugs, told = functools.partial(hold, against=against), [], []
    for row in rows:
        row = _beside(row, bugs, hold, candidates, tau)
        if row.verdict in ("bug", "some"):
            bugs.append(row)
        told.append(row)
    return told


def _adjusted(
    found: Mapping[str, reliance.Reliance], tau: float, among: bool
) -> dict[tuple[str, str], float]:
    """p of each drop's being `tau` at most, after Holm.

    `among` networks trained alike, by a t test of these (their images are the same to all);
    else of these networks alone, by images.
    """
    raw = {}
    for name, one in found.items():
        for kind, this in one.kinds.items():
            s, between = len(this.each), (0.0, 0)
            if among and s > 1:
                between = float(np.var(this.each, ddof=1)) / s, s - 1
            raw[name, kind] = few.exceeds(this.drop - tau, between, this.error**2)
    adjusted = adjustment.adjust([*raw.values()], "holm")
    return dict(zip(raw, adjusted.tolist(), strict=True))


def kind_of(
    found: reliance.Reliance,
    pvalues: Mapping[str, float],
    *,
    tau: float = TAU,
    alpha: float = ALPHA,
) -> tuple[str, bool]:
    """The kind of spurious correlation, and whether it hurts; ("", False) without tests.

    The kind whose drop is the larger share of the accuracy in distribution, among those
    that hurt if some do. A joint shift has something of the other two, and equals them
    where one value alone is odd: it is told only where both of them are there at all (by
    their p-values) and its drop is larger than either's, or where it alone hurts.
    """
    if not found.kinds:
        return "", False
    hurts = {
        kind: one.extreme.low > tau and one.own_drop > tau and pvalues[kind] <= alpha
        for kind, one in found.kinds.items()
    }
    there = [kind for kind in found.kinds if hurts[kind]] or [*found.kinds]
    pure = [kind for kind in there if kind != "joint"]
    best = max(pure, key=lambda kind: found.kinds[kind].relative, default="joint")
    if "joint" in there and best != "joint":
        both = all(pvalues.get(kind, 1) <= alpha for kind in shifts.KINDS[:2])
        joint, other = found.kinds["joint"], found.kinds[best]
        best = "joint" if both and joint.relative > other.relative else best
    return best, hurts[best]


def _some(one: reliance.Kind, tau: float) -> bool:
    """Whether the drop of these networks is above `tau`, as far as images tell."""
    sure = min(one.drop - _NORMAL * one.error, one.own_drop) > tau
    return len(one.each) > 1 and sure


def _beside(row: Suspect, bugs, hold, candidates, tau: float) -> Suspect:
    """Holds each bug before it fixed; keeps the one after which least is left."""
    if not bugs or not row.kind:
        return row
    left = []
    for bug in bugs:
        pair = candidates[row.name], candidates[bug.name]
        rest = hold(*pair, row.result, row.kind)
        left.append((-np.inf if rest is None else rest.low, bug.name, rest))
    low, other, rest = min(left, key=lambda one: one[:2])
    hurts = row.verdict in ("bug", "some")
    verdict = "goes with" if hurts and low <= tau else row.verdict
    return row._replace(verdict=verdict, other=other, remains=rest)
