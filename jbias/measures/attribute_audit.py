"""Tests and ranking of image attributes, by the drop of accuracy under a shift of each attribute.

If two attributes are correlated in the images, both show the drop in accuracy that one of them
causes. `stratified_drop` returns the drop of one attribute with another attribute held fixed.
Within each class it fits the accuracies of the cells (a value of the first attribute with a value
of the second) by a sum of one effect per attribute, by least squares over images. The drop is
computed from the first attribute's effects.

For the page of an audit, `shift_weights` returns the weights of images in the sets of a
shift, and `flipping_pairs` returns pairs of images of one class, one classified correctly and one
wrongly.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import stats

from jbias.data import shifts
from jbias.measures import accuracy, attribute_reliance, decisions
from jbias.stats import multiple_testing, two_sample

Reliance = attribute_reliance.Reliance
Column, Marks = attribute_reliance.Column, attribute_reliance.Marks


class StratifiedDrop(NamedTuple):
    """The drop of accuracy at the extreme level with another attribute held fixed, in [-1, 1]."""

    drop: float
    low: float  # Normal interval of 95 %.
    high: float
    error: float  # Standard error.


def stratified_drop(
    correct: Marks,
    label: Column,
    value: Column,
    other: Column,
    reliance: Reliance,
    kind: str,
    against: Marks | None = None,
) -> StratifiedDrop | None:
    """Return the drop under a kind of shift of `value`, with `other` held fixed.

    correct, label, value, against: the arguments with which `attribute_reliance.measure` made
    `reliance`; correct and against must be two-dimensional here. other: by image, the values
    of the other attribute; images with a negative value are left out. kind: a key of
    reliance.kinds. None if the drop cannot be computed, because it depends on cells without
    images (for instance if both attributes are always equal).

    Each arrangement of `reliance` is used on the half of the images that it was not chosen
    on. In each class k, u_b + v_t is fitted by weighted least squares to the accuracies of the
    cells (value b, other value t); the drop is the sum over k and b of the shift's weights
    times u_b. The interval accounts for the sampling of images, not of networks.
    """
    shares = [correct.mean(0)] + ([against.mean(0)] if against is not None else [])
    sums = np.zeros((2, 2))  # By trial, the drop and its variance.
    arrangements = reliance.kinds[kind].tried
    for arrangement, half in zip(arrangements, (1, 0), strict=True):
        for row, k in zip(arrangement.contrast(), reliance.classes, strict=True):
            rows = (reliance.half == half) & (other >= 0) & (label == k)
            effect = _class_effect(
                row,
                [share[rows] for share in shares],
                value[rows],
                other[rows],
                reliance.values,
            )
            if effect is None:
                return None
            sums[1 - half] += effect
    mean, error = float(sums[:, 0].mean()), float(np.sqrt(sums[:, 1].sum()) / 2)
    margin = stats.norm.ppf(0.975) * error
    return StratifiedDrop(mean, mean - margin, mean + margin, error)


def _class_effect(
    row: Float[np.ndarray, "m"],
    shares: list[Float[np.ndarray, "n"]],
    value: Column,
    other: Column,
    values: Int[np.ndarray, "m"],
) -> tuple[float, float] | None:
    """Return (weighted sum of the values' effects in one class, its variance).

    row: the weight of each of `values`; if all are 0, the result is (0, 0). shares: one or two
    arrays, by image: the share of networks that are correct and, if there are reference networks,
    the share of reference networks that are correct. The effects of the second array are
    subtracted. value, other: both attributes of the images. None if the sum is undefined (see
    `_cell_weights`), or if the class has no image with the largest value.
    """
    if not np.any(row):
        return 0.0, 0.0
    cells = accuracy.count_cells(value, other)
    if len(cells) <= values.max():
        return None
    weight = _cell_weights(row, cells[values])
    if weight is None:
        return None
    n, effect, variance = cells[values], 0.0, 0.0
    for sign, share in zip((1, -1), shares):  # The reference's effect is subtracted.
        num_correct = accuracy.sum_cells(share, value, other, cells.shape)[values]
        mean = np.divide(num_correct, n, out=np.zeros(n.shape), where=n > 0)
        effect += sign * float((weight * mean).sum())
        terms = weight**2 * attribute_reliance.share_variance(num_correct, n)
        variance += float(terms[n > 0].sum())
    return effect, variance


def _cell_weights(
    row: Float[np.ndarray, "m"], n: Int[np.ndarray, "m t"]
) -> Float[np.ndarray, "m t"] | None:
    """Return the weights of the cell means in the weighted sum of the fitted row effects.

    With weights W, sum(W * means) is sum_b row_b u_b. The effects u_b (rows) and v_t (columns) are
    from the least-squares fit u_b + v_t to the cell means, weighted by n, the number of images by
    cell. None if the sum is undefined: it depends on cells without images.
    """
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


TAU = 0.05  # Smallest relevant drop of accuracy, in [0, 1].
ALPHA = 0.05  # Level of tests.
_NORMAL = 1.96  # Standard errors in half an interval of 95 %.


class Candidate(NamedTuple):
    """The result of one tested attribute."""

    name: str  # Name of the attribute.
    result: Reliance
    pvalues: Mapping[str, float]  # By kind, adjusted over all candidates and kinds.
    kind: str  # Kind of shift whose drop it is ranked by; "" if it cannot be tested.
    verdict: str  # "bug", "some", "goes with", "none" or "untestable".
    # The higher-ranked bug that leaves the smallest drop if it is held fixed; "": none.
    other: str = ""
    remains: StratifiedDrop | None = None  # The drop with `other` held fixed.

    @property
    def drop(self) -> float:
        """Return the drop under `kind`; NaN if the attribute cannot be tested."""
        return self.result.kinds[self.kind].drop if self.kind else float("nan")


def rank_candidates(
    correct: Marks,
    label: Column,
    candidates: Mapping[str, Column],
    reliances: Mapping[str, Reliance],
    *,
    against: Marks | None = None,
    tau: float = TAU,
    alpha: float = ALPHA,
) -> list[Candidate]:
    """Return one Candidate per attribute, sorted by verdict and then by decreasing drop.

    Verdicts are sorted as "bug", "some", "none", "untestable"; after sorting, some verdicts are
    replaced with "goes with". candidates: by name of the attribute, its value for each image.
    reliances: by name, the result of `attribute_reliance.measure`. correct, label, against:
    the arguments of that call. tau: smallest relevant drop, in [0, 1]. alpha: level of the
    tests.

    A kind of shift is harmful under three conditions: the interval of its drop is above `tau`;
    the drop of the networks, without subtracting the drop of the reference networks, is above
    `tau`; and the p-value of a drop of at most `tau`, after Holm over all candidates and kinds,
    is at most `alpha`. `harmful_kind` chooses the reported kind. The verdict on a candidate is
    "bug" if the reported kind is harmful;
    "some" if the reported kind is not harmful, because networks differ, but its drop is above
      `tau` for these networks, by a test and an interval with the standard error of images alone;
    "goes with" instead of "bug" or "some", if the interval of the drop is not above `tau` with
      the attribute of a higher-ranked "bug" or "some" held fixed; `other` is the candidate that
      leaves the smallest drop;
    "untestable" if no kind of shift can be tested; "none" otherwise.
    """
    pvalues_all = _adjusted_pvalues(reliances, tau, generalise=True)
    pvalues_these = _adjusted_pvalues(reliances, tau, generalise=False)
    rows = []
    for name, reliance in reliances.items():
        pvalues = {kind: pvalues_all[name, kind] for kind in reliance.kinds}
        kind, is_harmful = harmful_kind(reliance, pvalues, tau=tau, alpha=alpha)
        verdict = "none"
        if not kind:
            verdict = "untestable"
        elif is_harmful:
            verdict = "bug"
        elif pvalues_these[name, kind] <= alpha:
            result = reliance.kinds[kind]
            # The least drop of these networks that is compatible with the images.
            least = min(result.drop - _NORMAL * result.error, result.own_drop)
            if len(result.by_network) > 1 and least > tau:
                verdict = "some"
        rows.append(Candidate(name, reliance, pvalues, kind, verdict))
    order = {"bug": 0, "some": 1, "none": 2, "untestable": 3}
    rows.sort(key=lambda row: (order[row.verdict], -row.drop if row.kind else 0))

    def hold_fixed(row: Candidate, bug: Candidate) -> StratifiedDrop | None:
        """Return the drop of the candidate `row` with the attribute of `bug` held fixed.

        The kind of shift is row.kind. None if the drop is undefined (`stratified_drop`).
        """
        return stratified_drop(
            np.atleast_2d(correct),
            label,
            candidates[row.name],
            candidates[bug.name],
            row.result,
            row.kind,
            against=against,
        )

    ranked = []
    for row in rows:
        bugs = [other for other in ranked if other.verdict in ("bug", "some")]
        ranked.append(_explain(row, bugs, hold_fixed, tau))
    return ranked


def _adjusted_pvalues(
    reliances: Mapping[str, Reliance], tau: float, *, generalise: bool
) -> dict[tuple[str, str], float]:
    """Return Holm-adjusted p-values by (attribute, kind of shift).

    The null hypothesis is that the drop is at most `tau`, a fraction. reliances: by attribute.
    generalise: whether p-values hold for further networks that are trained in the same way, by
    a t test over the networks; else they hold for these networks alone, by a test over images.
    """
    raw = {}
    for name, reliance in reliances.items():
        for kind, result in reliance.kinds.items():
            num_networks, between = len(result.by_network), (0.0, 0)
            if generalise and num_networks > 1:
                variance = float(np.var(result.by_network, ddof=1)) / num_networks
                between = variance, num_networks - 1
            raw[name, kind] = two_sample.mean_exceeds(
                result.drop - tau, between, result.error**2
            )
    adjusted = multiple_testing.adjust([*raw.values()], "holm")
    return dict(zip(raw, adjusted.tolist(), strict=True))


def harmful_kind(
    reliance: Reliance,
    pvalues: Mapping[str, float],
    *,
    tau: float = TAU,
    alpha: float = ALPHA,
) -> tuple[str, bool]:
    """Return (kind of shift to report, whether it is harmful); ("", False) if untestable.

    pvalues: adjusted, by kind. tau, alpha: see `rank_candidates`, which also defines when a kind is
    harmful. The reported kind has the largest drop relative to the accuracy in distribution, among
    the harmful kinds if there are any. A joint shift includes the other two kinds, and equals them
    if a single value is exceptional. The joint shift is reported only if it is the only kind or the
    only harmful one, or if both other kinds have p-values of at most alpha and its relative drop is
    larger than their relative drops.
    """
    if not reliance.kinds:
        return "", False
    is_harmful = {}
    for kind, result in reliance.kinds.items():
        least = min(result.extreme.low, result.own_drop)
        is_harmful[kind] = least > tau and pvalues[kind] <= alpha
    eligible = [kind for kind in reliance.kinds if is_harmful[kind]] or [
        *reliance.kinds
    ]
    pure = [kind for kind in eligible if kind != "joint"]
    best = max(pure, key=lambda kind: reliance.kinds[kind].relative, default="joint")
    if "joint" in eligible and best != "joint":
        are_both_present = all(
            pvalues.get(kind, 1) <= alpha for kind in shifts.KINDS[:2]
        )
        joint, other = reliance.kinds["joint"], reliance.kinds[best]
        if are_both_present and joint.relative > other.relative:
            best = "joint"
    return best, is_harmful[best]


def _explain(
    row: Candidate,
    bugs: list[Candidate],
    hold_fixed: Callable[[Candidate, Candidate], StratifiedDrop | None],
    tau: float,
) -> Candidate:
    """Return the candidate `row` with its fields other, remains and verdict filled in.

    bugs: higher-ranked candidates with the verdict "bug" or "some"; `other` is the bug that
    leaves the smallest drop, by the lower end of its interval (an undefined drop counts as
    smallest, and gives remains=None). hold_fixed: (candidate, bug) -> the candidate's drop
    with the bug held fixed. A verdict "bug" or "some" becomes "goes with" if that lower end is
    at most `tau`. Without bugs, or if `row` is untestable, `row` is returned unchanged.
    """
    if not bugs or not row.kind:
        return row
    remaining = []
    for bug in bugs:
        drop = hold_fixed(row, bug)
        remaining.append((-np.inf if drop is None else drop.low, bug.name, drop))
    low, other, drop = min(remaining, key=lambda entry: entry[:2])
    is_explained = row.verdict in ("bug", "some") and low <= tau
    verdict = "goes with" if is_explained else row.verdict
    return row._replace(verdict=verdict, other=other, remains=drop)


class ChanceTest(NamedTuple):
    """The accuracy of networks, compared with decisions that ignore the images."""

    accuracy: float  # Mean over the classes of the share of correct decisions.
    chance: float  # 1 / k, of the k classes that have images.
    low: float  # Wilson's interval of 95 % for the accuracy.
    high: float
    # "guesses": the interval includes chance. "below", "above": the whole interval is below or
    # above chance. "near": above, but by less than tau.
    verdict: str


def compare_with_chance(
    correct: Marks, label: Column, *, tau: float = TAU
) -> ChanceTest:
    """Return a test of whether networks are more accurate than answers that ignore the images.

    correct: one row per network, one column per image. label: the class of each image.
    tau: the smallest relevant drop, in [0, 1].

    The accuracy is the mean of the accuracies of the k classes that have images, and chance is
    1 / k, not the share of the largest class. The reason: answers that ignore the image give
    class j with the same probability a_j for all images. Their mean accuracy is then
    sum_j a_j / k <= 1 / k, also for "always the largest class". A network with the same accuracy in
    all classes may be useful and still have an accuracy below the share of the largest class.
    The interval is Wilson's for n' images, where 1 / n' = sum_j 1 / (k^2 n_j) with n_j images
    in class j; n' is the number of images if classes are equally large. Several networks that
    differ carry more information than one: n' is then multiplied by p (1 - p) / v, with the
    mean accuracy p and the variance v, within classes, of the images' mean over networks. The
    factor is at least 1 and at most the number of networks.
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


_NUM_EXTRA = 16  # Wrong images per class that are tried beyond the number of pairs.


class Pair(NamedTuple):
    """The indices of two images of one class, one classified correctly and one wrongly."""

    agrees: int  # Correctly classified image, whose value agrees with the class.
    disagrees: int  # Wrongly classified image, whose value disagrees.
    shared: int  # Number of other attributes with the same value in both images.


def shift_weights(
    reliance: Reliance, kind: str, label: Column, value: Column
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Return (weights in distribution, weights out of distribution) of images at the extreme level.

    reliance, label, value: result and arguments of `attribute_reliance.measure`. kind: a key
    of reliance.kinds. Both weights sum to 1, and their sums over correct images are the two
    accuracies; left-out images have weight 0. On each half of the images, the arrangement is
    the one chosen on the other half.
    """
    weights = np.zeros((2, len(label)))
    row, column = _cell_of_images(reliance, label, value)
    arrangements = reliance.kinds[kind].tried
    for arrangement, half in zip(arrangements, (1, 0), strict=True):
        is_in_half = reliance.half == half
        k, a = row[is_in_half], column[is_in_half]
        count = np.zeros(reliance.count.shape)
        np.add.at(count, (k, a), 1)
        for side, table in zip(weights, arrangement.tables(1.0), strict=True):
            side[is_in_half] = (table / len(table) / count)[k, a] / 2
    return weights[0], weights[1]


def agreement(reliance: Reliance, kind: str, label: Column, value: Column) -> Column:
    """Return for each image 1 if its value agrees with its class, -1 if it disagrees, else 0.

    A value agrees if it is more frequent in training than under the shift, by the arrangement
    chosen on all images, and disagrees if it is less frequent. Left-out images have 0. Arguments:
    see `shift_weights`.
    """
    row, column = _cell_of_images(reliance, label, value)
    contrast = reliance.kinds[kind].chosen.contrast()
    sign = np.sign(np.where(np.abs(contrast) < 1e-12, 0, contrast)).astype(int)
    return np.where(reliance.half >= 0, sign[row, column], 0)


def _cell_of_images(
    reliance: Reliance, label: Column, value: Column
) -> tuple[Column, Column]:
    """Return (row, column) of each image's cell in the tables of `reliance`.

    Row and column are 0 for images that are left out.
    """
    is_used = reliance.half >= 0
    rows, columns = (
        np.searchsorted(known, np.where(is_used, ids, known[0]))
        for known, ids in ((reliance.classes, label), (reliance.values, value))
    )
    return rows, columns


def flipping_pairs(
    right: Bool[np.ndarray, "n"],
    likelihood: Float[np.ndarray, "n"],
    side: Column,
    label: Column,
    other_columns: Int[np.ndarray, "c n"],
    count: int,
    *,
    first: Int[np.ndarray, "b n"] | None = None,
) -> list[Pair]:
    """Return up to `count` pairs of a correct and a wrong decision, taking classes in turn.

    right, likelihood, label: by image, whether the decision is correct, the probability of the
    correct class, and the class. side: result of `agreement`; the correctly classified image has
    side 1, the wrongly classified image has side -1. other_columns: values of other attributes by
    image. first: values of attributes that also change decisions, to be matched first. Each image
    is in at most one pair. In each class, up to `count` + 16 wrongly classified images of the
    smallest likelihood are tried. Each is paired with the correctly classified image that shares
    the most of `first`, then the most of `other_columns`, then has the largest likelihood.

    Within a class, pairs that share the most of `first` come first; among these, pairs whose
    wrongly classified image has the smallest likelihood. The result has the first pair of every
    class, then the second pairs, and so on; classes are in the order of their first pairs by the
    same rule.
    """
    if first is None:
        first = np.zeros((0, len(label)), int)
    by_class = []
    for k in np.unique(label[side != 0]):
        wrong = np.flatnonzero((side < 0) & ~right & (label == k))
        free = np.flatnonzero((side > 0) & right & (label == k))
        ranked, order = [], np.argsort(likelihood[wrong], kind="stable")
        # Each pair uses up one of the free images.
        for image in wrong[order][: min(count + _NUM_EXTRA, len(free))]:
            shared_first = (first[:, free] == first[:, [image]]).sum(0)
            shared = (other_columns[:, free] == other_columns[:, [image]]).sum(0)
            best = np.lexsort((-likelihood[free], -shared, -shared_first))[0]
            pair = Pair(int(free[best]), int(image), int(shared[best]))
            ranked.append((-int(shared_first[best]), likelihood[image], pair))
            free = np.delete(free, best)
        by_class.append(sorted(ranked))
    by_class.sort(key=lambda ranked: ranked[0][:2] if ranked else (1, 0))
    num_turns = max(map(len, by_class), default=0)
    pairs = [
        ranked[turn][2]
        for turn in range(num_turns)
        for ranked in by_class
        if turn < len(ranked)
    ]
    return pairs[:count]
