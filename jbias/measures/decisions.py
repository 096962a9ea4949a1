"""A network's decisions about a set, from which metrics are computed; helpers of metrics.

`share`, `mean` and `quantity` return a `Number`; `wilson_interval` returns an interval;
`per_condition` and `per_rule` apply a metric to the decisions of several conditions or rules.
"""

import dataclasses
import functools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from numpy.typing import ArrayLike

from jbias.data import class_maps


@dataclasses.dataclass(frozen=True)
class Decisions:
    """The decisions of one network about one set.

    prediction: the decided class of each image; -1 if the logits are NaN or infinite, which occurs
    only in the decisions of seeds during training, or if a table of decisions has "na" for the
    image. columns: by name, one entry per image: "label", and "texture" for cue conflicts, are
    class ids as in `prediction` (-1 without a class); other columns of the set, such as
    "attribute", have the set's own values. Decisions under a probe also have float32 "confidence"
    and "likelihood", the probabilities of the decided class and of the correct class, and "index",
    the image's number in its set; and, if cues are ranked, int32 "rank_shape" and "rank_texture",
    or "rank_label" (cue_conflict.label_ranks).
    """

    prediction: Int[np.ndarray, "n"]
    columns: Mapping[str, Shaped[np.ndarray, "n"]]

    def __post_init__(self):
        n = len(self.prediction)
        for name, column in self.columns.items():
            if len(column) != n:
                must = f"decisions: column {name} must have {n} entries"
                raise ValueError(f"{must}, got {len(column)}")

    @property
    def is_unanswered(self) -> Bool[np.ndarray, "n"]:
        """Return True for each image without a decision."""
        return np.asarray(self.prediction) < 0

    @property
    def right(self) -> Bool[np.ndarray, "n"]:
        """Return True for each image whose decision is its label; False for the label -1."""
        prediction = np.asarray(self.prediction)
        return (prediction == np.asarray(self.columns["label"])) & (prediction >= 0)

    def column(self, where: str, name: str, remedy: str) -> Shaped[np.ndarray, "n"]:
        """Return the column `name`; ValueError if it is missing.

        where, remedy: start and end of the error message.
        """
        if name not in self.columns:
            must = f"{where}: decisions must have a column {name}"
            raise ValueError(f"{must}, got {', '.join(self.columns)}; {remedy}")
        return np.asarray(self.columns[name])


class Number(NamedTuple):
    """The value of a metric under a condition; a share is `count` of `n` images."""

    metric: str
    value: float | None  # None if it is undefined.
    count: int | None  # pyright: ignore[reportIncompatibleMethodOverride]: a field
    n: int
    condition: str = ""


UNANSWERED = "unanswered"  # The metric of `unanswered`.
ByName = Mapping[str, Decisions]  # By condition, by rule, or by "condition rule".
Numbers = list[Number]


def wilson_interval(
    count: float, n: float, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Return Wilson's score interval of a binomial share as (lower, upper); (0, 1) if n is 0.

    (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n), p = count / n.
    confidence: a fraction, such as 0.95. Source: Wilson 1927,
    https://doi.org/10.2307/2276774. ValueError unless count is in 0 ... n.
    """
    if not 0 <= count <= n:
        raise ValueError(f"wilson: count must be in 0 ... {n}, got {count}")
    if n == 0:
        return 0.0, 1.0
    z2 = statistics.NormalDist().inv_cdf((1 + confidence) / 2) ** 2
    share = count / n
    centre = share + z2 / (2 * n)
    half = math.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n**2)))
    low, high = ((centre + sign * half) / (1 + z2 / n) for sign in (-1, 1))
    return max(low, 0.0) if count else 0.0, min(high, 1.0) if count < n else 1.0


def per_condition(metric: Callable[..., Iterable[Number]]) -> Callable[..., Numbers]:
    """Return a function that applies a metric to the decisions of each condition.

    metric: (Decisions, **options) -> numbers. The returned function takes (a mapping from
    condition to decisions, **options) and returns all numbers in a list; the condition of a
    number is the key of the decisions, a space, and the metric's own condition.
    """

    @functools.wraps(metric)
    def apply(by_condition: ByName, **options: Any) -> Numbers:
        named = []
        for name, decided in by_condition.items():
            for number in metric(decided, **options):
                condition = f"{name} {number.condition}".strip()
                named.append(number._replace(condition=condition))
        return named

    return apply


def per_rule(metric: Callable[..., Iterable[Number]]) -> Callable[..., Numbers]:
    """Return a function that applies a metric to the decisions of each rule separately.

    metric: (mapping from condition to decisions, **options) -> numbers. The returned function
    takes (a mapping from "condition rule" to decisions, **options), where rule is one of
    class_maps.AGGREGATES, or absent for the first rule; it returns all numbers in a list, whose
    conditions end with the name of the rule.
    """

    @functools.wraps(metric)
    def apply(by_name: ByName, **options: Any) -> Numbers:
        by_rule: dict[str, dict[str, Decisions]] = {}
        for name, decided in by_name.items():
            condition, _, last_word = name.rpartition(" ")
            rule = last_word if last_word in class_maps.AGGREGATES else ""
            by_rule.setdefault(rule, {})[condition if rule else name] = decided
        named = []
        for rule, by_condition in by_rule.items():
            for number in metric(by_condition, **options):
                condition = f"{number.condition} {rule}".strip()
                named.append(number._replace(condition=condition))
        return named

    return apply


def share(metric: str, count: int, n: int, condition: str = "") -> Number:
    """Return the share `count` / `n` as a Number, with the value None if n is 0."""
    count, n = int(count), int(n)
    return Number(metric, count / n if n else None, count, n, condition)


def mean(metric: str, marks: Bool[np.ndarray, "n"], condition: str = "") -> Number:
    """Return the share of True entries of `marks`, one per image, as a Number.

    The Number has the value None if `marks` is empty.
    """
    return share(metric, np.sum(marks), len(marks), condition)


def unanswered(marks: Bool[np.ndarray, "n"]) -> Numbers:
    """Return a list with the share of unanswered images, "unanswered"; [] if it is 0.

    marks: True for each image without an answer, which only tables of decisions have.
    """
    return [mean(UNANSWERED, marks)] if np.any(marks) else []


def wilson_ends(number: Number) -> Numbers:
    """Return the ends of a share's 95 % interval as the numbers `metric`_lower and `metric`_upper.

    number: a share, with its count; for n = 0 the ends are 0 and 1. The interval is Wilson's;
    the images must be independent.
    """
    lower, upper = wilson_interval(number.count, number.n)
    return [
        Number(f"{number.metric}_lower", lower, None, number.n, number.condition),
        Number(f"{number.metric}_upper", upper, None, number.n, number.condition),
    ]


def cross_entropy(likelihood: Float[np.ndarray, "n"]) -> float:
    """Return the mean of -log likelihood, in nats.

    likelihood: by image, the probability of the correct class. A likelihood below the smallest
    normal float32, such as after an underflow, is replaced by this smallest number, whose -log is
    87.3.
    """
    return float(-np.log(np.maximum(likelihood, np.finfo(np.float32).tiny)).mean())


def ratio(numerator: ArrayLike, denominator: ArrayLike) -> Float[np.ndarray, "..."]:
    """Return the elementwise ratio; NaN unless the denominator is above 0."""
    numerator, denominator = np.broadcast_arrays(numerator, denominator)
    return np.divide(
        numerator,
        denominator,
        out=np.full(denominator.shape, np.nan),
        where=denominator > 0,
    )


def quantity(metric: str, value: float | None, n: int, condition: str = "") -> Number:
    """Return a Number without a count, with the given value.

    value: None, NaN and infinity become None. n: the number of images that the value was computed
    from.
    """
    is_defined = value is not None and np.isfinite(value)
    return Number(metric, float(value) if is_defined else None, None, n, condition)
