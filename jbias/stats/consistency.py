"""Error consistency: Cohen's kappa of two observers' errors on the same images, with tests.

An observer is a network or a person. Sources: Geirhos, Meding and Wichmann, NeurIPS 2020,
https://arxiv.org/abs/2006.16736 (kappa); Klein, Meyen, Brendel, Wichmann and Meding 2025,
https://arxiv.org/abs/2507.06645 (tests, copy model). Reference code:
https://github.com/wichmann-lab/error_consistency at e5a777c.

Deviations from this code: kappa is 1, not NaN, if both observers classify all images correctly, or
both classify all images wrongly. p-values are (1 + hits) / (1 + draws), and ties are hits, so that
a network does not differ from itself. `copy_model` sorts the observers by accuracy.

>>> random = np.random.default_rng(0)
>>> networks, people = random.random((2, 400)) < 0.8, random.random((5, 400)) < 0.9
>>> consistency.independence_test(networks[0], people[0])  # p of kappa = 0.
0.7518
>>> experiment = consistency.Experiment(networks, people)
>>> result = consistency.compare_networks([experiment])  # Which errs more like humans?
>>> round(result.pvalue, 2)
0.68
>>> consistency.trials_needed(0.2, kappa=0.25, accuracies=(0.75, 0.75))  # Images.
367
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jbias import errors

Right = Bool[np.ndarray, "n"]  # True where an observer is right, per image.
Marks = Bool[np.ndarray, "d n"]  # True where an observer (row) is right.
Pairs = Sequence[tuple[int, int]]  # Indices of two observers each.
_SLACK = 1e-12  # Sums of floats in another order differ by less.


@dataclasses.dataclass(frozen=True)
class Consistency:
    """The error consistency of two observers on the same images."""

    kappa: float  # 1: they err on the same images; 0: agreement as by chance.
    observed: float  # Share of images on which both are right or both wrong.
    expected: float  # The same share if their errors were independent.


def error_consistency(a_correct: Right, b_correct: Right) -> Consistency:
    """Return the error consistency of two observers on the same images: Cohen's kappa.

    a_correct, b_correct: True for images that the observer classifies correctly.
    kappa = (observed - expected) / (1 - expected), expected = p_a p_b + (1 - p_a) (1 - p_b), p the
    accuracies. kappa is 1 if the observers always agree. Raise ValueError if the lengths differ,
    there is no image, or a value is neither true nor false (0 and 1 are allowed).
    """
    both = _stack_marks(a_correct, b_correct)
    kappas = _kappas(both, ((0, 1),), counts=np.ones((1, both.shape[1])))
    return Consistency(
        kappa=float(kappas.kappa[0, 0]),
        observed=float(kappas.observed[0, 0]),
        expected=float(kappas.expected[0, 0]),
    )


def _stack_marks(a_correct: Right, b_correct: Right) -> Bool[np.ndarray, "2 n"]:
    """Return both arguments as rows of one array; raise ValueError as `error_consistency` does."""
    a, b = np.asarray(a_correct), np.asarray(b_correct)
    if a.shape != b.shape or a.ndim != 1 or not a.size:
        raise ValueError(
            "error_consistency: both must be lists of the same images, true where the "
            f"answer is right, got shapes {a.shape} and {b.shape}"
        )
    both = np.stack([a, b])
    if not np.isin(both, (False, True)).all():
        raise ValueError(
            "error_consistency: both must be true or false, true where the answer equals "
            f"the label, got {a.dtype} and {b.dtype}; compare answers with labels"
        )
    return both.astype(bool)


class _Kappas(NamedTuple):
    """Kappa of each pair of observers, for each weighting of the images."""

    kappa: Float[np.ndarray, "w pairs"]
    observed: Float[np.ndarray, "w pairs"]
    expected: Float[np.ndarray, "w pairs"]


def _kappas(correct: Marks, pairs: Pairs, *, counts: Int[np.ndarray, "w n"]) -> _Kappas:
    """Return kappa of each pair of observers, for each of w weightings of the images.

    The result also has the observed and the expected agreement, in the same shape.
    counts: weight of each image as a whole number, a row per weighting.
    """
    first, second = np.transpose(pairs)
    n = counts.sum(1, keepdims=True)
    p = counts @ correct.T / n
    observed = counts @ (correct[first] == correct[second]).T / n
    expected = _expected_agreement(p[:, first], p[:, second])
    return _Kappas(_kappa(observed, expected), observed, expected)


def _expected_agreement(
    a: Float[np.ndarray, "..."] | float, b: Float[np.ndarray, "..."] | float
) -> Float[np.ndarray, "..."] | float:
    """Return the agreement of independent observers with accuracies a and b."""
    return a * b + (1 - a) * (1 - b)


def _kappa(
    observed: Float[np.ndarray, "..."] | float,
    expected: Float[np.ndarray, "..."] | float,
) -> Float[np.ndarray, "..."]:
    """Return (observed - expected) / (1 - expected), and 1 where observed is 1."""
    # 1 - expected is 0 only where both observers are always correct, or both are always wrong.
    always_agree = observed == 1
    chance = np.where(always_agree, 0, expected)
    return np.where(always_agree, 1.0, (observed - chance) / (1 - chance))


def mean_kappa(
    correct: Marks,
    pairs: Pairs,
    condition: Sequence | None = None,
    *,
    draws: int = 2000,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Return the mean kappa of pairs of observers, and the low and high end of its 95 % interval.

    kappa is computed in each condition and averaged over conditions, then over pairs. The
    interval is the percentile interval of a bootstrap over images, which are drawn within
    their condition and are the same for all observers; observers are not drawn.
    correct: a row per observer. pairs: row indices of the two observers of each pair.
    condition: name of each image's condition; None: one condition for all images.
    draws: number of bootstrap draws. Raise ValueError for fewer than 1.
    """
    (mean,) = mean_kappas(correct, [pairs], condition, draws=draws, seed=seed)
    return mean


def mean_kappas(
    correct: Marks,
    pairs_by_group: Sequence[Pairs],
    condition: Sequence | None = None,
    *,
    draws: int = 2000,
    seed: int = 0,
) -> list[tuple[float, float, float]]:
    """Return the result of `mean_kappa` for each group of pairs of observers.

    All groups have the same draws of images, so one call is faster than several, and each result
    equals that of `mean_kappa` with the same seed. pairs_by_group: at least one pair per group.
    Other arguments and errors: see `mean_kappa`.
    """
    errors.check_at_least("draws", draws)
    rng = np.random.default_rng(seed)
    condition = np.zeros(correct.shape[1]) if condition is None else condition
    condition = np.asarray(condition)
    means: list[list[np.ndarray]] = [[] for _ in pairs_by_group]
    for name in np.unique(condition):
        marks = correct[:, condition == name]
        once = np.ones((1, marks.shape[1]))
        counts = np.concatenate([once, _draw_images(marks.shape[1], draws, rng)])
        for group_means, pairs in zip(means, pairs_by_group, strict=True):
            group_means.append(_kappas(marks, pairs, counts=counts).kappa.mean(1))
    results = []
    for group_means in means:
        kappas = np.mean(group_means, axis=0)
        low, high = np.quantile(kappas[1:], _quantiles(0.95)).tolist()
        results.append((float(kappas[0]), low, high))
    return results


def _draw_images(
    n: int, draws: int, rng: np.random.Generator
) -> Int[np.ndarray, "draws n"]:
    """Return the number of times that each image occurs in each draw.

    A draw is n of n images, with replacement. draws: number of draws.
    """
    return rng.multinomial(n, np.full(n, 1 / n), size=draws)


def _quantiles(confidence: float) -> tuple[float, float]:
    """Return the quantiles of an interval, (0.025, 0.975) for a confidence of 0.95."""
    errors.check_share("confidence", confidence)
    return (1 - confidence) / 2, (1 + confidence) / 2


def kappa_bounds(first: float, second: float) -> tuple[float, float]:
    """Return the smallest and the largest possible kappa of observers with two accuracies.

    first, second: the accuracies. Raise ValueError unless they are fractions in (0, 1).
    """
    a, b = (errors.check_share("accuracy", p) for p in (first, second))
    expected = _expected_agreement(a, b)
    low = (abs(a + b - 1) - expected) / (1 - expected)
    high = (1 - abs(a - b) - expected) / (1 - expected)
    return low, high


def independence_test(
    a_correct: Right, b_correct: Right, *, draws: int = 9_999, seed: int = 0
) -> float:
    """Return the two-sided p-value of the null hypothesis that errors are independent.

    In each draw, accuracies are drawn from their posteriors, Beta(k + 1/2, n - k + 1/2) where k of
    n images are classified correctly, and decisions are independent given the accuracies. p = (1 +
    hits) / (1 + draws), hits the number of draws whose |kappa| is at least as large as the observed
    one.
    Arguments and errors: see `error_consistency`. draws: number of random draws.
    """
    errors.check_at_least("draws", draws)
    both, rng = _stack_marks(a_correct, b_correct), np.random.default_rng(seed)
    n, num_right = both.shape[1], both.sum(axis=1)
    rates = (rng.beta(k + 0.5, n - k + 0.5, draws) for k in num_right)
    a, b = (rng.binomial(n, rate) for rate in rates)
    num_equal = n - a - b + 2 * rng.hypergeometric(a, n - a, b)
    drawn = np.abs(_kappa(num_equal / n, _expected_agreement(a / n, b / n)))
    observed = abs(error_consistency(both[0], both[1]).kappa)
    return float(1 + (drawn >= observed - _SLACK).sum()) / (1 + draws)


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
    """The marks (true: correct) of two networks and of human observers on images."""

    networks: Bool[np.ndarray, "2 n"]
    people: Bool[np.ndarray, "p n"]
    condition: Sequence | None = None  # Of each image; None: one condition.


@dataclasses.dataclass(frozen=True)
class ComparisonResult:
    """A test of the difference between two networks in error consistency with humans."""

    kappas: tuple[float, float]  # Mean kappa of each network with people.
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
    """Return a test that two networks have the same error consistency with human observers.

    kappa is averaged over human observers, then over the conditions of an experiment, then over
    experiments. The interval is from a bootstrap over images within conditions, the same
    images for all observers. For p, the two networks' answers to each drawn image are
    exchanged with probability 1/2, the same for all human observers. p = (1 + hits) / (1 + draws),
    hits the number of draws whose absolute difference is at least as large as the observed one.
    confidence: level of the interval, such as 0.95. draws: number of bootstrap draws, and of
    exchanges.
    Raise ValueError without experiments or draws, and for a confidence outside (0, 1). Each
    experiment must have exactly two networks, at least one human observer and one image, marks of
    type bool, and, if conditions are given, one per image.
    """
    errors.check_at_least("draws", draws)
    errors.check_at_least("experiments", len(experiments))
    rng, means = np.random.default_rng(seed), []
    for experiment in experiments:
        networks, people, condition = _check_experiment(experiment)
        kappas_by_condition = []
        for name in np.unique(condition):
            is_selected = condition == name
            num_images = int(is_selected.sum())
            once = np.ones((1, num_images))
            drawn = _draw_images(num_images, draws, rng)
            exchanged = rng.binomial(drawn, 0.5)
            # Rows: as observed, bootstrap draws, draws with exchanged answers.
            kappas_by_condition.append(
                _kappas_with_people(
                    networks[:, is_selected],
                    people[:, is_selected],
                    own=np.concatenate([once, drawn, drawn - exchanged]),
                    exchanged=np.concatenate([0 * once, 0 * drawn, exchanged]),
                )
            )
        means.append(np.mean(kappas_by_condition, axis=0))
    kappas = np.mean(means, axis=0)
    differences = kappas[:, 0] - kappas[:, 1]
    observed, resampled, permuted = np.split(differences, [1, 1 + draws])
    hits = (np.abs(permuted) >= abs(observed) - _SLACK).sum()
    low, high = np.quantile(resampled, _quantiles(confidence)).tolist()
    first, second = kappas[0].tolist()
    return ComparisonResult(
        kappas=(first, second),
        difference=first - second,
        low=low,
        high=high,
        pvalue=float(1 + hits) / (1 + draws),
    )


def _check_experiment(experiment: Experiment) -> tuple[Marks, Marks, np.ndarray]:
    """Return networks' marks, human observers' marks, and the condition of each image.

    All conditions are 0 if the experiment has none. Raise ValueError as `compare_networks` does.
    """
    networks, people = np.asarray(experiment.networks), np.asarray(experiment.people)
    n = networks.shape[-1]
    condition = np.zeros(n)
    if experiment.condition is not None:
        condition = np.asarray(experiment.condition)
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


def _kappas_with_people(
    networks: Bool[np.ndarray, "2 n"],
    people: Bool[np.ndarray, "p n"],
    *,
    own: Float[np.ndarray, "b n"],
    exchanged: Float[np.ndarray, "b n"],
) -> Float[np.ndarray, "b 2"]:
    """Return the mean kappa of each network with humans, for each of b weightings of the images.

    own: weight of each image with the networks' own answers. exchanged: weight of the image with
    the two networks' answers exchanged. Weights are whole numbers.
    """
    counts = own + exchanged
    n = counts.sum(axis=1, keepdims=True)
    people_accuracy = counts @ people.T / n
    kappas = []
    for network, other in (networks, networks[::-1]):
        accuracy = (own @ network + exchanged @ other)[:, None] / n
        equal = own @ (network == people).T + exchanged @ (other == people).T
        expected = _expected_agreement(accuracy, people_accuracy)
        kappas.append(_kappa(equal / n, expected).mean(axis=1))
    return np.stack(kappas, axis=1)


@dataclasses.dataclass(frozen=True)
class CopyModel:
    """A model of two observers: the second observer copies a share of the first observer's answers.

    All other answers of the second observer are independent of the first.
    """

    accuracy: float  # Of the first, more accurate observer, who is copied.
    copied: float  # Share of copied answers; negative: copied with right and wrong inverted.
    latent: float  # Accuracy of the second observer on the answers that are not copied.

    def kappas(
        self, n: int, draws: int, rng: np.random.Generator
    ) -> Float[np.ndarray, "draws"]:
        """Return kappa of the two observers on n images in each of `draws` random draws.

        round(|copied| n) answers are copied.
        """
        a, u, is_inverted = self.accuracy, self.latent, self.copied < 0
        num_copied = round(abs(self.copied) * n)
        first_right = rng.binomial(num_copied, a, draws)
        second_right, num_equal = (
            (num_copied - first_right, 0) if is_inverted else (first_right, num_copied)
        )
        probabilities = a * u, a * (1 - u), (1 - a) * u, (1 - a) * (1 - u)
        both, only_first, only_second, neither = rng.multinomial(
            n - num_copied, probabilities, draws
        ).T
        expected = _expected_agreement(
            (first_right + both + only_first) / n,
            (second_right + both + only_second) / n,
        )
        return _kappa((num_equal + both + neither) / n, expected)


def copy_model(kappa: float, first: float, second: float) -> CopyModel:
    """Return the copy model with two accuracies and an error consistency kappa.

    first, second: the accuracies of the observers, fractions in (0, 1).

    copied = kappa (1 - e_ab) / (1 - e_aa), e_ab = a b + (1 - a) (1 - b), a the larger
    accuracy; latent = (b - |copied| c) / (1 - |copied|), c = a, or 1 - a where copied is
    negative. Raise ValueError for an accuracy outside (0, 1), and for a kappa that the
    accuracies do not allow.
    """
    low, high = kappa_bounds(first, second)
    if not low - _SLACK <= kappa <= high + _SLACK:
        raise ValueError(
            f"copy_model: accuracies of {first:g} and {second:g} allow kappa from "
            f"{low:.6g} to {high:.6g}, got {kappa:g}; choose a kappa in this range"
        )
    a, b = max(first, second), min(first, second)
    copied = kappa * (1 - _expected_agreement(a, b)) / (1 - _expected_agreement(a, a))
    independent = 1 - abs(copied)
    copied_accuracy = a if copied >= 0 else 1 - a
    # If everything is copied, the latent accuracy has no effect.
    latent = b
    if independent > _SLACK:
        latent = (b - abs(copied) * copied_accuracy) / independent
    return CopyModel(accuracy=a, copied=copied, latent=min(max(latent, 0.0), 1.0))


def trials_needed(
    width: float,
    *,
    kappa: float,
    accuracies: tuple[float, float],
    confidence: float = 0.95,
    draws: int = 10_000,
    seed: int = 0,
) -> int:
    """Return the smallest number of images with which kappa's interval is at most `width` wide.

    The interval has the middle share `confidence` of kappa over simulated data of the copy model
    with this kappa and these accuracies (fractions). `draws` data sets are simulated, so the
    number is accurate to a few percent.
    Raise ValueError for a width outside [0.001, 2), a confidence outside (0, 1), fewer than 1 draw,
    and as `copy_model` does.
    """
    errors.check_at_least("draws", draws)
    if not 0.001 <= width < 2:
        raise ValueError(f"trials_needed: width must lie in [0.001, 2), got {width}")
    first, second = accuracies
    model = copy_model(kappa, first, second)
    quantiles = _quantiles(confidence)

    def is_too_wide(n: int) -> bool:
        """Return True if the interval with n images is wider than `width`."""
        drawn = model.kappas(n, draws, np.random.default_rng(seed))
        low, high = np.quantile(drawn, quantiles)
        return bool(high - low > width)

    # Smaller sets rarely have an error (or a correct answer), so kappa varies too little there.
    enough = math.ceil(5 / min(min(p, 1 - p) for p in accuracies))
    while is_too_wide(enough):
        enough *= 2
    too_few = enough // 2
    while too_few > 1 and not is_too_wide(too_few):
        too_few, enough = too_few // 2, too_few
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if is_too_wide(middle):
            too_few = middle
        else:
            enough = middle
    return enough
