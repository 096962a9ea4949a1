"""Error consistency: do two decision makers err on the same images, and how surely?

Sources: Geirhos, Meding and Wichmann, NeurIPS 2020, https://arxiv.org/abs/2006.16736
(kappa); Klein, Meyen, Brendel, Wichmann and Meding 2025, https://arxiv.org/abs/2507.06645
(tests, copy model). Reference code: https://github.com/wichmann-lab/error_consistency at
e5a777c. Deviations: kappa is 1 where both are always right, or both always wrong (there
NaN); draws count as (1 + hits) / (1 + draws) with ties among the hits, so that a network
does not differ from itself; and the copy model puts the more accurate one first itself.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from jbias.stats import score_table

Right = Bool[np.ndarray, "n"]  # Whether one is right about each image.
Marks = Bool[np.ndarray, "d n"]  # Whether each decision maker is right.
Pairs = Sequence[tuple[int, int]]  # Of decision makers.
_SLACK = 1e-12  # Sums of floats in another order differ by less.


@dataclasses.dataclass(frozen=True)
class Consistency:
    """How two decision makers agree on which images are hard."""

    kappa: float  # 1: they err on the same images; 0: as by chance.
    observed: float  # Share of images on which both are right or both wrong.
    expected: float  # That share, were their errors independent.


def error_consistency(a_correct: Right, b_correct: Right) -> Consistency:
    """Cohen's kappa of being right, of two decision makers on the same images.

    kappa = (observed - expected) / (1 - expected), expected = p_a p_b + (1 - p_a)
    (1 - p_b); 1 where they always agree. ValueError where the lengths differ, or
    there is no image.
    """
    both = _marks(a_correct, b_correct)
    once = np.ones((1, both.shape[1]))
    return Consistency(*(float(x[0, 0]) for x in _kappas(both, ((0, 1),), once)))


def _marks(a_correct, b_correct) -> Marks:
    a, b = np.asarray(a_correct), np.asarray(b_correct)
    if a.shape != b.shape or a.ndim != 1 or not a.size:
        raise ValueError(
            "error_consistency: both must say of the same images whether they were "
            f"answered right, got {(a.shape, b.shape)!r}"
        )
    both = np.stack([a, b])
    if not np.isin(both, (False, True)).all():
        raise ValueError(
            "error_consistency: both must be true where an answer is right, by comparing "
            f"it with the label, got {(a.dtype, b.dtype)!r}"
        )
    return both.astype(bool)


def _kappas(correct: Marks, pairs: Pairs, counts: np.ndarray) -> tuple[np.ndarray, ...]:
    """kappa, observed and expected, each (w, pairs), with images counted so often.

    counts: (w, n).
    """
    one, other = np.transpose(pairs)
    n = counts.sum(1, keepdims=True)
    p = counts @ correct.T / n
    observed = counts @ (correct[one] == correct[other]).T / n
    expected = _expected(p[:, one], p[:, other])
    return _kappa(observed, expected), observed, expected


def _expected(a, b):
    return a * b + (1 - a) * (1 - b)


def _kappa(observed, expected) -> np.ndarray:
    # Both are always right, or both always wrong, only where they always agree.
    always = observed == 1
    chance = np.where(always, 0, expected)
    return np.where(always, 1.0, (observed - chance) / (1 - chance))


def mean_kappa(
    correct: Marks, pairs: Pairs, condition=None, *, draws: int = 2000, seed: int = 0
) -> tuple[float, float, float]:
    """Mean kappa of pairs of decision makers, with 95 % of a bootstrap over images.

    kappa is taken in each condition and averaged over conditions, then over pairs.
    Images are drawn within their condition, the same for all decision makers, who stay
    the ones there are. condition: of each image, by name; None: all have the same.
    Returns value, low and high, of percentiles.
    """
    score_table.check_count("draws", draws)
    random = np.random.default_rng(seed)
    condition = np.zeros(correct.shape[1]) if condition is None else condition
    condition = np.asarray(condition)
    kappa = []
    for name in np.unique(condition):
        part = correct[:, condition == name]
        once = np.ones((1, part.shape[1]))
        weights = np.concatenate([once, _draw(part, draws, random)])
        kappa.append(_kappas(part, pairs, weights)[0].mean(1))
    means = np.mean(kappa, axis=0)
    return float(means[0]), *np.quantile(means[1:], _ends(0.95)).tolist()


def _draw(correct: Marks, draws: int, random) -> Int[np.ndarray, "draws n"]:
    """How often each image is drawn, with replacement."""
    n = correct.shape[1]
    return random.multinomial(n, np.full(n, 1 / n), size=draws)


def _ends(confidence: float) -> tuple[float, float]:
    score_table.check_share("confidence", confidence)
    return (1 - confidence) / 2, (1 + confidence) / 2


def kappa_bounds(first: float, second: float) -> tuple[float, float]:
    """The smallest and the largest kappa that two accuracies, in (0, 1), allow."""
    a, b = (score_table.check_share("accuracy", p) for p in (first, second))
    observed = abs(a + b - 1), 1 - abs(a - b)
    low, high = ((o - _expected(a, b)) / (1 - _expected(a, b)) for o in observed)
    return low, high


def independence_test(
    a_correct: Right, b_correct: Right, *, draws: int = 9_999, seed: int = 0
) -> float:
    """Two-sided p of: errors are independent, kappa is 0.

    In each draw the accuracies come from their posteriors, Beta(k + 1/2, n - k + 1/2) where
    k of n images are right, and all answers are independent given these. p counts draws
    whose |kappa| is at least as large. ValueError as `error_consistency`.
    """
    score_table.check_count("draws", draws)
    both, random = _marks(a_correct, b_correct), np.random.default_rng(seed)
    n, right = both.shape[1], both.sum(axis=1)
    rates = (random.beta(k + 0.5, n - k + 0.5, draws) for k in right)
    a, b = (random.binomial(n, rate) for rate in rates)
    same = n - a - b + 2 * random.hypergeometric(a, n - a, b)
    drawn = np.abs(_kappa(same / n, _expected(a / n, b / n)))
    seen = abs(error_consistency(*both).kappa)
    return float(1 + (drawn >= seen - _SLACK).sum()) / (1 + draws)


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
    """Who is right on the images of one experiment, which all have answered."""

    networks: Bool[np.ndarray, "2 n"]
    people: Bool[np.ndarray, "p n"]
    condition: Sequence | None = None  # Of each image; None: all have the same.


@dataclasses.dataclass(frozen=True)
class ComparisonResult:
    """Which of two networks errs more like people."""

    kappas: tuple[float, float]  # Of either network with people.
    difference: float  # First less second.
    low: float
    high: float
    pvalue: float  # Two-sided.


def compare_networks(
    experiments: Sequence[Experiment],
    *,
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> ComparisonResult:
    """Tests whether one network's error consistency with people is another's.

    kappa is averaged over people, then over the conditions of an experiment, then over
    experiments. The interval is of a bootstrap over images, within conditions, the same for
    all. p exchanges the two networks' answers to each drawn image with chance 1/2, the
    same for all people, and counts differences at least as large. ValueError where an
    experiment has not two networks, nobody, no image, or another number of conditions.
    """
    score_table.check_count("draws", draws)
    score_table.check_count("experiments", len(experiments))
    random, means = np.random.default_rng(seed), []
    for one in experiments:
        networks, people, condition = _checked(one)
        parts = []
        for name in np.unique(condition):
            here = condition == name
            answers = networks[:, here], people[:, here]
            drawn = _draw(answers[0], draws, random)
            once, swapped = np.ones((1, drawn.shape[1])), random.binomial(drawn, 0.5)
            plans = (once, 0 * once), (drawn, 0 * drawn), (drawn - swapped, swapped)
            parts.append(np.concatenate([_with_people(*answers, *x) for x in plans]))
        means.append(np.mean(parts, axis=0))
    kappas = np.mean(means, axis=0)
    seen, resampled, exchanged = np.split(kappas[:, 0] - kappas[:, 1], [1, 1 + draws])
    hits = (np.abs(exchanged) >= abs(seen) - _SLACK).sum()
    low, high = np.quantile(resampled, _ends(confidence)).tolist()
    first, second = kappas[0].tolist()
    p = float(1 + hits) / (1 + draws)
    return ComparisonResult((first, second), first - second, low, high, p)


def _checked(one: Experiment) -> tuple[Marks, Marks, np.ndarray]:
    networks, people = np.asarray(one.networks), np.asarray(one.people)
    n = networks.shape[-1]
    condition = np.zeros(n) if one.condition is None else np.asarray(one.condition)
    shapes = networks.shape, people.shape, condition.shape
    if shapes != ((2, n), (len(people), n), (n,)) or not people.size:
        raise ValueError(
            "compare_networks: an experiment must have answers of two networks (2 n) and "
            f"of people (p n), and conditions (n), to the same images, got {shapes}"
        )
    if networks.dtype != bool or people.dtype != bool:
        raise ValueError(
            "compare_networks: answers must be true where they are right, as bool, got "
            f"{networks.dtype} and {people.dtype}; compare them with the labels"
        )
    return networks, people, condition


def _with_people(
    networks: Marks, people: Marks, own: np.ndarray, swapped: np.ndarray
) -> Float[np.ndarray, "b 2"]:
    """Mean kappa with people of either network.

    own, swapped: (b n), how often each image counts with the networks' own answers, and
    how often with each other's.
    """
    every = own + swapped
    n = every.sum(axis=1, keepdims=True)
    theirs, found = every @ people.T / n, []
    for mine, other in (networks, networks[::-1]):
        right = (own @ mine + swapped @ other)[:, None] / n
        same = (own @ (mine == people).T + swapped @ (other == people).T) / n
        found.append(_kappa(same, _expected(right, theirs)).mean(axis=1))
    return np.stack(found, axis=1)


@dataclasses.dataclass(frozen=True)
class CopyModel:
    """One who copies a share of another's answers, and decides the others independently."""

    accuracy: float  # Of the more accurate one, who is copied.
    copied: float  # Share; where negative, right is copied as wrong and wrong as right.
    latent: float  # Accuracy of the other one where nothing is copied.

    def kappas(self, n: int, draws: int, random) -> Float[np.ndarray, "draws"]:
        """kappa of two such decision makers on n images, round(|copied| n) copied."""
        a, u, inverted = self.accuracy, self.latent, self.copied < 0
        m = round(abs(self.copied) * n)
        source = random.binomial(m, a, draws)
        chances = a * u, a * (1 - u), (1 - a) * u, (1 - a) * (1 - u)
        both, one, other, none = random.multinomial(n - m, chances, draws).T
        copies, alike = (m - source, 0) if inverted else (source, m)
        right = (source + both + one) / n, (copies + both + other) / n
        return _kappa((alike + both + none) / n, _expected(*right))


def copy_model(kappa: float, first: float, second: float) -> CopyModel:
    """The copy model of two accuracies, in (0, 1), and an error consistency.

    copied = kappa (1 - e_ab) / (1 - e_aa), e_ab = a b + (1 - a) (1 - b), a the larger
    accuracy; latent = (b - |copied| c) / (1 - |copied|), c = a, or 1 - a where copied is
    negative. ValueError for a kappa that the accuracies do not allow.
    """
    low, high = kappa_bounds(first, second)
    if not low - _SLACK <= kappa <= high + _SLACK:
        raise ValueError(
            f"copy_model: accuracies of {first:g} and {second:g} allow kappa from "
            f"{low:.6g} to {high:.6g}, got {kappa:g}; choose one of these"
        )
    a, b = max(first, second), min(first, second)
    copied = kappa * (1 - _expected(a, b)) / (1 - _expected(a, a))
    rest = 1 - abs(copied)
    source = a if copied >= 0 else 1 - a
    # Where all is copied there is nothing else to be right about.
    latent = (b - abs(copied) * source) / rest if rest > _SLACK else b
    return CopyModel(a, copied, min(max(latent, 0.0), 1.0))


def trials_needed(
    width: float,
    *,
    kappa: float,
    accuracies: tuple[float, float],
    confidence: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> int:
    """The least images on which kappa varies no more than `width`.

    The width is that of the middle `confidence` of kappa, over data of the copy model. It is
    simulated, and so the number is right to some percent. ValueError as `copy_model`.
    """
    score_table.check_count("draws", draws)
    if not 0.001 <= width < 2:
        raise ValueError(f"trials_needed: width must lie in [0.001, 2), got {width}")
    model, ends = copy_model(kappa, *accuracies), _ends(confidence)

    def too_wide(n: int) -> bool:
        drawn = model.kappas(n, draws, np.random.default_rng(seed))
        low, high = np.quantile(drawn, ends)
        return bool(high - low > width)

    # Fewer rarely hold an error, or a right answer, and vary little for want of them.
    enough = math.ceil(5 / min(min(p, 1 - p) for p in accuracies))
    while too_wide(enough):
        enough *= 2
    few = enough // 2
    while few > 1 and not too_wide(few):
        few, enough = few // 2, few
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (middle, enough) if too_wide(middle) else (few, middle)
    return enough
