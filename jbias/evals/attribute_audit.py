"""Which attributes hurt? Many candidates tested together, ranked, with a verdict each.

Attributes that go together in the images share a drop. `stratified_drop` is what is left of
one where another is held fixed: within each class the accuracies of the cells (value of
one, value of the other) are fitted by a sum of two effects, by least squares over images;
the drop is then that of the first one's effects.

For the page of an audit, images lie on either side of a shift: `shift_weights` are their
weights in its sets, and `flipping_pairs` are two of one class with different answers.
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from jbias.data import shifts
from jbias.evals import accuracy, attribute_reliance, decisions
from jbias.stats import multiple_testing, two_sample

Reliance = attribute_reliance.Reliance
Column, Marks = attribute_reliance.Column, attribute_reliance.Marks


class StratifiedDrop(NamedTuple):
    """A drop that remains at the extreme, the other attribute held fixed."""

    drop: float
    low: float
    high: float
    error: float


def stratified_drop(
    correct: Marks,
    label: Column,
    value: Column,
    other: Column,
    found: Reliance,
    kind: str,
    against: Marks | None = None,
) -> StratifiedDrop | None:
    """The drop under a kind of shift of `value`, with `other` held fixed; None if unknown.

    correct, against: as `attribute_reliance.measure` had them for `found`, whose arrangements are
    taken, each on the half of the images that it was not chosen on, whose images with another
    value of `other` than any (negative) are left out. In each class k, with n_bt images
    of the cell with values b and t, b_b + c_t is fitted to the cell means; the drop is
    the sum over k and b of the shift's weights times b_b. None where some weight needs
    images that are not there, as where both attributes always go together. The interval
    is normal, of image sampling alone.
    """
    shares = [correct.mean(0)] + ([against.mean(0)] if against is not None else [])
    sums = np.zeros((2, 2))  # Of each trial, the drop and its variance.
    for one, h in zip(found.kinds[kind].tried, (1, 0), strict=True):
        for row, k in zip(one.contrast(), found.classes, strict=True):
            here = (found.half == h) & (other >= 0) & (label == k)
            of = [share[here] for share in shares]
            part = _of_class(row, of, value[here], other[here], found.values)
            if part is None:
                return None
            sums[1 - h] += part
    mean, error = float(sums[:, 0].mean()), float(np.sqrt(sums[:, 1].sum()) / 2)
    reach = stats.norm.ppf(0.975) * error
    return StratifiedDrop(mean, mean - reach, mean + reach, error)


def _of_class(row, shares, value, other, values) -> tuple[float, float] | None:
    """Weighted effects of one class, and their variance."""
    if not np.any(row):
        return 0.0, 0.0
    cells = accuracy.count_cells(value, other)
    if len(cells) <= values.max() or (weight := _weights(row, cells[values])) is None:
        return None
    n, found, variance = cells[values], 0.0, 0.0
    for sign, share in zip((1, -1), shares):  # The reference's is taken off.
        right = accuracy.sum_cells(share, value, other, cells.shape)[values]
        mean = np.divide(right, n, out=np.zeros(n.shape), where=n > 0)
        found += sign * float((weight * mean).sum())
        each = weight**2 * attribute_reliance.share_variance(right, n)
        variance += float(each[n > 0].sum())
    return found, variance


def _weights(row: np.ndarray, n: Int[np.ndarray, "m t"]) -> np.ndarray | None:
    """What each cell's mean weighs in sum_b row_b b_b of the fit; None: no such."""
    m, t = n.shape
    design = np.zeros((m, t, m + t))
    design[np.arange(m), :, np.arange(m)] = 1
    design[:, np.arange(t), m + np.arange(t)] = 1
    design = design.reshape(m * t, m + t)
    wanted = np.concatenate([row, np.zeros(t)])
    normal = design.T @ (n.reshape(-1, 1) * design)
    effects = np.linalg.pinv(normal, rcond=1e-10, hermitian=True) @ wanted
    if not np.allclose(normal @ effects, wanted, atol=1e-8):
        return None
    return (n.ravel() * (design @ effects)).reshape(m, t)


TAU, ALPHA = 0.05, 0.05
_NORMAL = 1.96  # Standard errors of an interval of 95 %.


class Candidate(NamedTuple):
    """One candidate: its drops, what was found, and after which other attribute."""

    name: str
    result: Reliance
    pvalues: Mapping[str, float]  # By kind, adjusted over all candidates and kinds.
    kind: str  # Of the drop that it is ranked by; "" where it cannot be tested.
    verdict: str  # "bug", "some", "goes with", "none" or "untestable".
    other: str = ""  # The bug before it in the list that explains it, or all but.
    remains: StratifiedDrop | None = None  # The drop where `other` is held fixed.

    @property
    def drop(self) -> float:
        return self.result.kinds[self.kind].drop if self.kind else float("nan")


def rank_candidates(
    correct: Marks,
    label: Column,
    candidates: Mapping[str, Column],
    found: Mapping[str, Reliance],
    *,
    against: Marks | None = None,
    tau=TAU,
    alpha=ALPHA,
) -> list[Candidate]:
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
        kind, hurts = hurtful_kind(one, mine, tau=tau, alpha=alpha)
        verdict = "untestable" if not kind else "bug" if hurts else "none"
        sure = bool(kind) and of_images[name, kind] <= alpha
        if sure and not hurts:
            this = one.kinds[kind]
            # Whether the drop of these networks is above `tau`, as far as images tell.
            least = min(this.drop - _NORMAL * this.error, this.own_drop)
            verdict = "some" if len(this.each) > 1 and least > tau else verdict
        rows.append(Candidate(name, one, mine, kind, verdict))
    last = {"bug": 0, "some": 1, "none": 2, "untestable": 3}
    rows.sort(key=lambda row: (last[row.verdict], -row.drop if row.kind else 0))
    of = np.atleast_2d(correct), label
    hold, told = functools.partial(stratified_drop, *of, against=against), []
    for row in rows:
        bugs = [one for one in told if one.verdict in ("bug", "some")]
        told.append(_explained(row, bugs, hold, candidates, tau))
    return told


def _adjusted(
    found: Mapping[str, Reliance], tau: float, among: bool
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
            of = this.drop - tau, between, this.error**2
            raw[name, kind] = two_sample.mean_exceeds(*of)
    adjusted = multiple_testing.adjust([*raw.values()], "holm")
    return dict(zip(raw, adjusted.tolist(), strict=True))


def hurtful_kind(
    found: Reliance, pvalues: Mapping[str, float], *, tau=TAU, alpha=ALPHA
) -> tuple[str, bool]:
    """The kind of spurious correlation, and whether it hurts; ("", False) without tests.

    The kind whose drop is the larger share of the accuracy in distribution, among those
    that hurt if some do. A joint shift has something of the other two, and equals them
    where one value alone is odd: it is told only where both of them are there at all (by
    their p-values) and its drop is larger than either's, or where it alone hurts.
    """
    if not found.kinds:
        return "", False
    hurts = {}
    for kind, one in found.kinds.items():
        least = min(one.extreme.low, one.own_drop)
        hurts[kind] = least > tau and pvalues[kind] <= alpha
    there = [kind for kind in found.kinds if hurts[kind]] or [*found.kinds]
    pure = [kind for kind in there if kind != "joint"]
    best = max(pure, key=lambda kind: found.kinds[kind].relative, default="joint")
    if "joint" in there and best != "joint":
        both = all(pvalues.get(kind, 1) <= alpha for kind in shifts.KINDS[:2])
        joint, other = found.kinds["joint"], found.kinds[best]
        best = "joint" if both and joint.relative > other.relative else best
    return best, hurts[best]


def _explained(row: Candidate, bugs, hold, candidates, tau: float) -> Candidate:
    """Holds each bug ranked before fixed; names the one that leaves the smallest drop."""
    if not bugs or not row.kind:
        return row
    left = []
    for bug in bugs:
        pair = candidates[row.name], candidates[bug.name]
        rest = hold(*pair, row.result, row.kind)
        left.append((-np.inf if rest is None else rest.low, bug.name, rest))
    low, other, rest = min(left, key=lambda one: one[:2])
    explained = row.verdict in ("bug", "some") and low <= tau
    verdict = "goes with" if explained else row.verdict
    return row._replace(verdict=verdict, other=other, remains=rest)


class ChanceTest(NamedTuple):
    """The accuracy of networks beside that of answers that ignore the images."""

    accuracy: float  # Mean over the classes of the share of right answers.
    chance: float  # 1 / k, of the k classes that have images.
    low: float  # Wilson's interval of 95 % for the accuracy.
    high: float
    # "guesses": the interval holds chance. "below", "above": chance lies outside it.
    # "near": above, but by less than tau.
    verdict: str


def compare_with_chance(correct: Marks, label: Column, *, tau=TAU) -> ChanceTest:
    """Test whether networks are right more often than answers that ignore the images.

    correct: a row a network, a column an image. label: the class of each image.
    tau: the drop that matters, in [0, 1].

    Chance is 1 / k and not the share of the largest class, and the accuracy is the mean
    of the k classes' accuracies: answers that ignore the image give class j with some
    probability a_j whatever the image shows, so that this mean is sum_j a_j / k <= 1 / k
    for any of them, "always the largest class" among them. A network that answers all
    classes alike may know much and still be right less often than that one.
    The interval is Wilson's for n' images, where 1 / n' = sum_j 1 / (k^2 n_j) of the n_j
    images of each class, which is their number where the classes are equally large. Of s
    networks, n' is larger by p (1 - p) over the variance of the images' mean marks within
    classes, as networks that differ tell more than one.
    """
    correct = np.atleast_2d(correct)
    classes, place, count = np.unique(label, return_inverse=True, return_counts=True)
    k, marks = len(classes), correct.mean(0)
    means = np.bincount(place, marks) / count
    share, chance = float(means.mean()), 1 / k
    n = k**2 / (1 / count).sum()
    if len(correct) > 1:
        spread = float(((marks - means[place]) ** 2).mean())
        binomial = share * (1 - share)
        n *= min(max(binomial / spread, 1.0), len(correct)) if spread > 0 else 1.0
    low, high = decisions.wilson_interval(share * n, n)
    if low > chance:
        verdict = "above" if share - chance >= tau else "near"
    else:
        verdict = "guesses" if high >= chance else "below"
    return ChanceTest(share, chance, low, high, verdict)


_MORE = 16  # Wrong images of a class that are looked at beyond as many as are wanted.


class Pair(NamedTuple):
    """Two images of one class: right where the attribute agrees, wrong where not."""

    agrees: int
    disagrees: int
    shared: int  # How many other attributes are the same in both.


def shift_weights(
    found: Reliance, kind: str, label: Column, value: Column
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """What each image weighs in the sets of the extreme level, in and out of distribution.

    Both sum to 1, and the sums over right images are the accuracies of the level: each
    half of the images has the arrangement that was chosen on the other.
    """
    both = np.zeros((2, len(label)))
    row, column = _places(found, label, value)
    for one, h in zip(found.kinds[kind].tried, (1, 0), strict=True):
        mine = found.half == h
        k, a = row[mine], column[mine]
        count = np.zeros(found.count.shape)
        np.add.at(count, (k, a), 1)
        for side, table in zip(both, one.tables(1.0), strict=True):
            side[mine] = (table / len(table) / count)[k, a] / 2
    return both[0], both[1]


def agreement(found: Reliance, kind: str, label: Column, value: Column) -> Column:
    """1 where the value agrees with the class, by all images; -1 where not; 0 neither."""
    row, column = _places(found, label, value)
    contrast = found.kinds[kind].chosen.contrast()
    sign = np.sign(np.where(np.abs(contrast) < 1e-12, 0, contrast)).astype(int)
    return np.where(found.half >= 0, sign[row, column], 0)


def _places(found, label, value) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each image; 0 where it has no part."""
    mine = found.half >= 0
    places = ((found.classes, label), (found.values, value))
    return (np.searchsorted(k, np.where(mine, one, k[0])) for k, one in places)


def flipping_pairs(
    right: Bool[np.ndarray, "n"],
    likelihood: Float[np.ndarray, "n"],
    side: Column,
    label: Column,
    others: Int[np.ndarray, "c n"],
    count: int,
    *,
    first: Int[np.ndarray, "b n"] | None = None,
) -> list[Pair]:
    """Chooses pairs that flip, the classes in turn; each image is in one pair at most.

    Beside each wrong image stands the right one that shares most of `first`, then most of
    the `others`, then the likeliest. Pairs that share most of `first`, attributes that
    flip answers as well, come before others; of those alike the one whose wrong image
    gives its right class the smallest probability.
    """
    if first is None:
        first = np.zeros((0, len(label)), int)
    by_class = []
    for k in np.unique(label[side != 0]):
        wrong = np.flatnonzero((side < 0) & ~right & (label == k))
        free = np.flatnonzero((side > 0) & right & (label == k))
        found, order = [], np.argsort(likelihood[wrong], kind="stable")
        # Each takes one of those that are free.
        for image in wrong[order][: min(count + _MORE, len(free))]:
            alike = ((c[:, free] == c[:, [image]]).sum(0) for c in (first, others))
            held, shared = alike
            best = np.lexsort((-likelihood[free], -shared, -held))[0]
            pair = Pair(int(free[best]), int(image), int(shared[best]))
            found.append((-int(held[best]), likelihood[image], pair))
            free = np.delete(free, best)
        by_class.append(sorted(found))
    by_class.sort(key=lambda found: found[0][:2] if found else (1, 0))
    turns = max(map(len, by_class), default=0)
    dealt = [found[i][2] for i in range(turns) for found in by_class if i < len(found)]
    return dealt[:count]
