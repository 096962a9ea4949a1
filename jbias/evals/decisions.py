"""What a network decided about each image of a set; every metric is a function of it.

Also what metrics share: `share`, `quantity` and `wilson_interval`, and `each` and `by_rule`,
where several rules made decisions of the same answers.
"""

import dataclasses
import functools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from etils import epath
from jaxtyping import Bool, Float, Int, Shaped

from jbias.data import labels
from jbias.runs import checksums
from jbias.runtime import files

_SET = "set_condition"  # A set's column "condition" in a file that has the probe's.


@dataclasses.dataclass(frozen=True)
class Decisions:
    """One network on one set.

    prediction: the decided class of each image; -1 where the network's logits are NaN or
    infinite, in a seed's decisions during training. Measures are never made of these.
    columns: what is known of the images: "label", and "texture" where cues conflict,
    class ids in the space of `prediction` (-1 where it has none); and whatever else
    the set tells, such as "attribute", in the set's own numbers. Where a probe asked,
    also float32 "confidence" and "likelihood", the probabilities of the decided class
    and of the right one, and "index", the image's number in its set; where cues are
    ranked, int32 "rank_shape" and "rank_texture" (cue_conflict.label_ranks).
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
    def right(self) -> Bool[np.ndarray, "n"]:
        """Whether each image is decided as labelled; no answer, -1, is never right."""
        prediction = np.asarray(self.prediction)
        return (prediction == np.asarray(self.columns["label"])) & (prediction >= 0)

    def column(self, where: str, name: str, remedy: str) -> Shaped[np.ndarray, "n"]:
        """A column; ValueError, for the measure `where`, if there is none."""
        if name not in self.columns:
            must = f"{where}: decisions must have a column {name}"
            raise ValueError(f"{must}, got {', '.join(self.columns)}; {remedy}")
        return np.asarray(self.columns[name])


class Number(NamedTuple):
    """A measured value: `count` of `n` where it is a share."""

    metric: str
    value: float | None
    count: int | None  # pyright: ignore[reportIncompatibleMethodOverride]: a field
    n: int
    condition: str = ""


ByName = Mapping[str, Decisions]  # By condition, by rule, or by both.
Numbers = list[Number]


def write(path: epath.PathLike, by_seed: Mapping[int, Decisions]) -> list[int]:
    """Writes the decisions of all seeds on one set as one Parquet file.

    Returns what its content is known by.
    """
    number = {seed: np.arange(len(one.prediction)) for seed, one in by_seed.items()}
    frames = [_frame(by_seed[s], seed=s, image=image) for s, image in number.items()]
    return _write(path, pd.concat(frames))


def _frame(decided: Decisions, **first: Any) -> pd.DataFrame:
    return pd.DataFrame({**first, "prediction": decided.prediction, **decided.columns})


def _write(path: epath.PathLike, frame: pd.DataFrame) -> list[int]:
    path = epath.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = frame.to_parquet(index=False)
    files.write(path, content)
    return checksums.checksum(content)


def read(path: epath.PathLike) -> dict[int, Decisions]:
    """Reads the decisions of all seeds back."""
    found = _read(path, "seed", "image")
    return {int(seed): found[seed] for seed in sorted(found)}


def _read(path: epath.PathLike, key: str, *ignored: str) -> dict[Any, Decisions]:
    """Reads decisions by the values of a column, in the order of the file."""
    with epath.Path(path).open("rb") as file:
        frame = pd.read_parquet(file)
    lacking = {key, "prediction"} - set(frame.columns)
    if lacking:
        raise ValueError(f"{path}: decisions must have the column {min(lacking)!r}")
    names = frame.columns.difference(["prediction", key, *ignored])
    found = {}
    for value, rows in frame.groupby(key, sort=False, observed=True):
        columns = {name: rows[name].to_numpy() for name in names}
        if _SET in columns:
            columns["condition"] = columns.pop(_SET)
        found[value] = Decisions(rows["prediction"].to_numpy(), columns)
    return found


def write_conditions(path: epath.PathLike, found: ByName) -> None:
    """Writes one network's decisions under all conditions of a probe likewise.

    The probe's condition is the column "condition"; a set's own is "set_condition".
    """
    frames = [_frame(one) for one in found.values()]
    whole = pd.concat(frames, ignore_index=True).rename(columns={"condition": _SET})
    codes = np.repeat(np.arange(len(frames)), [len(frame) for frame in frames])
    condition = pd.Categorical.from_codes(codes, list(found))
    _write(path, whole.assign(condition=condition))


def read_conditions(path: epath.PathLike) -> dict[str, Decisions]:
    """Reads the decisions under all conditions back, in the order of the file."""
    return {str(name): one for name, one in _read(path, "condition").items()}


def wilson_interval(
    count: float, n: float, *, confidence: float = 0.95
) -> tuple[float, float]:
    """Wilson's score interval of a binomial share; (0, 1) of nothing at all.

    (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n), p = count / n.
    Source: Wilson 1927, https://doi.org/10.2307/2276774. ValueError where count is not
    in 0 ... n.
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


def each(numbers: Callable[..., Iterable[Number]]) -> Callable[..., Numbers]:
    """Counts decisions one after the other; their names begin those of conditions.

    numbers: takes one `Decisions`, and options.
    """

    @functools.wraps(numbers)
    def counted(found: ByName, **options: Any) -> Numbers:
        return _named("{0} {1}", {k: numbers(x, **options) for k, x in found.items()})

    return counted


def _named(form: str, each: Mapping[str, Iterable[Number]]) -> Numbers:
    """All numbers, each under its own condition beside the name that it is told by."""
    return [
        one._replace(condition=form.format(name, one.condition).strip())
        for name, numbers in each.items()
        for one in numbers
    ]


def by_rule(numbers: Callable[..., Iterable[Number]]) -> Callable[..., Numbers]:
    """Counts what each rule decided by itself; its name ends that of a condition.

    numbers: takes decisions by condition as the probe names it, all of one rule, and
      options. The first rule has no name.
    """

    @functools.wraps(numbers)
    def counted(found: ByName, **options: Any) -> Numbers:
        split = {}
        for name, decided in found.items():
            condition, _, last = name.rpartition(" ")
            rule = last if last in labels.AGGREGATES else ""
            split.setdefault(rule, {})[condition if rule else name] = decided
        return _named("{1} {0}", {k: numbers(x, **options) for k, x in split.items()})

    return counted


def share(metric: str, count: int, n: int, condition: str = "") -> Number:
    """A measured share, `count` of `n`; None of nothing at all."""
    count, n = int(count), int(n)
    return Number(metric, count / n if n else None, count, n, condition)


def mean(metric: str, marks: Bool[np.ndarray, "n"], condition: str = "") -> Number:
    """The share of images that are marked."""
    return share(metric, np.sum(marks), len(marks), condition)


def wilson_ends(found: Number) -> Numbers:
    """Wilson's interval of a share of independent images, as `metric`_lower and _upper."""
    metric, _, count, n, condition = found
    ends = zip(("lower", "upper"), wilson_interval(count, n), strict=True)
    return [Number(f"{metric}_{name}", end, None, n, condition) for name, end in ends]


def cross_entropy(likelihood: Float[np.ndarray, "n"]) -> float:
    """The mean of -log likelihood, in nats.

    A likelihood below the smallest normal float32, as an underflow leaves it, counts as
    that: 87.3.
    """
    return float(-np.log(np.maximum(likelihood, np.finfo(np.float32).tiny)).mean())


def ratio(part: Any, whole: Any) -> Float[np.ndarray, "..."]:
    """part / whole, entry by entry; NaN where the whole is not above 0."""
    part, whole = np.broadcast_arrays(part, whole)
    return np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0)


def quantity(metric: str, value: Any, n: int, condition: str = "") -> Number:
    """A measured value that is no share; None where it is undefined."""
    known = value is not None and np.isfinite(value)
    return Number(metric, float(value) if known else None, None, n, condition)
