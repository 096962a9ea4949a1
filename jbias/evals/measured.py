"""What was measured of one model: its numbers, and the headlines among them by name."""

import dataclasses
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from jbias.evals import decisions


class Estimate(float):
    """A number with its interval of 95 %, its images and its set; otherwise a float.

    lower, upper: None where no interval is known. n: of what the number is a share or a
    mean: images, or for shape bias the decisions for either cue.
    """

    lower: float | None
    upper: float | None
    n: int | None
    dataset: str

    def __new__(
        cls,
        value: float,
        *,
        lower: float | None = None,
        upper: float | None = None,
        n: int | None = None,
        dataset: str = "",
    ):
        """Return the number with what is known of it."""
        number = super().__new__(cls, value)
        number.lower, number.upper = lower, upper
        number.n, number.dataset = n, dataset
        return number

    @property
    def details(self) -> str:
        """The interval and n, in words."""
        parts = []
        if self.lower is not None and self.upper is not None:
            parts.append(f"95 %: {self.lower:.3f} to {self.upper:.3f}")
        if self.n is not None:
            parts.append(f"n = {self.n:,}")
        return ", ".join(parts)

    def __repr__(self) -> str:
        value = "undefined" if math.isnan(self) else f"{float(self):.3f}"
        return f"{value} ({self.details})" if self.details else value


class Headline(NamedTuple):
    """One number that is shown first: by its label, its measure's name and its metric."""

    label: str
    measure: str  # "" for accuracy, whose records name no measure.
    metric: str


# By the name of the attribute.
HEADLINES: Mapping[str, Headline] = {
    "shape_bias": Headline("shape bias", "shape_bias", "shape_bias"),
    "accuracy_shape": Headline("accuracy by shape", "shape_bias", "accuracy_shape"),
    "accuracy_texture": Headline(
        "accuracy by texture", "shape_bias", "accuracy_texture"
    ),
    "error_consistency": Headline(
        "error consistency with people", "human", "error_consistency"
    ),
    "accuracy": Headline("accuracy", "", "accuracy"),
    "calibration_error": Headline("calibration error", "calibration", "ece"),
    "low_frequency_bias": Headline("low-frequency bias", "spectral", "low_freq_bias"),
    "high_frequency_bias": Headline(
        "high-frequency bias", "spectral", "high_freq_bias"
    ),
    "corruption_accuracy": Headline(
        "accuracy under corruptions", "imagenet_c", "corruption_accuracy"
    ),
    "critical_band_bandwidth": Headline(
        "critical band, octaves", "critical_band", "critical_band_bandwidth"
    ),
}
# Measures that pool answers to the same images, which are not independent.
_POOLED = ("imagenet_c",)
# Sets of stimuli: accuracy on them is not the accuracy that is asked for.
_CONFLICTS = ("cue-conflict", "cue_conflict")
_STIMULI = ("edge", "silhouette", *_CONFLICTS)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Measured:
    """What was measured of a model.

    folder: where its records and decisions are, which reports read. numbers: a row a
    number, as runs.results has them. left_out: what could not be measured, and why. first:
    the sets whose numbers the attributes are, the likeliest first.

    The headlines are attributes, such as `shape_bias` and `accuracy`: each an Estimate.
    AttributeError, in one line, for what was not measured.
    """

    folder: pathlib.Path
    numbers: pd.DataFrame
    left_out: tuple[str, ...] = ()
    first: tuple[str, ...] = ()

    @property
    def shape_bias(self) -> Estimate:
        """Shape decisions among those for either cue; 0 is texture, 1 is shape."""
        return self._headline("shape_bias")

    @property
    def accuracy_shape(self) -> Estimate:
        """The share of cue conflicts that are answered by their shape."""
        return self._headline("accuracy_shape")

    @property
    def accuracy_texture(self) -> Estimate:
        """The share of cue conflicts that are answered by their texture."""
        return self._headline("accuracy_texture")

    @property
    def error_consistency(self) -> Estimate:
        """Cohen's kappa of the network's errors with people's."""
        return self._headline("error_consistency")

    @property
    def accuracy(self) -> Estimate:
        """Top-1 accuracy on the first set of labelled images."""
        return self._headline("accuracy")

    @property
    def calibration_error(self) -> Estimate:
        """The expected calibration error."""
        return self._headline("calibration_error")

    @property
    def low_frequency_bias(self) -> Estimate:
        """How accuracy depends on low spatial frequencies; see docs/measures.md."""
        return self._headline("low_frequency_bias")

    @property
    def high_frequency_bias(self) -> Estimate:
        """How accuracy depends on high spatial frequencies; see docs/measures.md."""
        return self._headline("high_frequency_bias")

    @property
    def corruption_accuracy(self) -> Estimate:
        """The mean accuracy under ImageNet-C's corruptions, made here."""
        return self._headline("corruption_accuracy")

    @property
    def critical_band_bandwidth(self) -> Estimate:
        """The width of the critical band, in octaves."""
        return self._headline("critical_band_bandwidth")

    def _headline(self, name: str) -> Estimate:
        found = [estimate for key, estimate in self.headlines() if key == name]
        if name == "accuracy":
            found = [one for one in found if one.dataset not in _STIMULI]
        if not found:
            there = ", ".join(dict.fromkeys(key for key, _ in self.headlines()))
            raise AttributeError(
                f"{name}: was not measured; there are {there or 'no headlines'}, and all "
                "numbers in .numbers"
            )
        return found[0]

    def headlines(self) -> Iterator[tuple[str, Estimate]]:
        """Yield the numbers that are shown first, by attribute; sets in order of `first`."""
        rank = {name: number for number, name in enumerate(self.first)}
        for key, headline in HEADLINES.items():
            rows = self.numbers[
                self.numbers["metric"].isin([headline.metric, *_variants(headline)])
                & (self.numbers["condition"] == headline.measure)
            ]
            if key == "accuracy":  # On cue conflicts it is that by shape.
                rows = rows[~rows["dataset"].isin(_CONFLICTS)]
            estimates = [_estimate(self.numbers, row) for row in rows.itertuples()]
            estimates.sort(key=lambda x: (rank.get(x.dataset, len(rank)), x.dataset))
            for estimate in estimates:
                yield key, estimate

    def table(self) -> list[str]:
        """Return the headlines as lines of a table: measure, set, value, interval, n."""
        rows = []
        for key, estimate in self.headlines():
            value = "undefined" if math.isnan(estimate) else f"{float(estimate):.3f}"
            label = HEADLINES[key].label
            rows.append((label, estimate.dataset, value, estimate.details))
        return _align(rows)

    def __repr__(self) -> str:
        lines = [f"{self.folder.name}: measured in {self.folder}"]
        lines += [f"  {line}" for line in self.table()]
        if self.left_out:
            lines.append(f"  not measured: {len(self.left_out)}, see .left_out")
        return "\n".join(lines)


class MeasuredNetworks(tuple):
    """What was measured of several networks, such as the seeds of a run: a Measured each."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n".join(repr(network) for network in self)


def _variants(headline: Headline) -> tuple[str, ...]:
    """Return names that a metric has where a part of it could not be made."""
    is_corruptions = headline.measure == "imagenet_c"
    return (f"{headline.metric}_without_frost",) if is_corruptions else ()


def _estimate(numbers: pd.DataFrame, row) -> Estimate:
    """Return a record's number with its interval: Wilson's of a share, else the stored."""
    n = None if pd.isna(row.n) else int(row.n)
    value = math.nan if pd.isna(row.value) else float(row.value)
    lower = upper = None
    is_pooled = row.condition in _POOLED
    if not pd.isna(row.count) and n and not is_pooled:
        lower, upper = decisions.wilson_interval(int(row.count), n)
    elif not is_pooled:
        beside = numbers[
            (numbers["dataset"] == row.dataset)
            & (numbers["condition"] == row.condition)
        ]
        ends = [
            beside.loc[beside["metric"] == f"{row.metric}_{end}", "value"]
            for end in ("lower", "upper")
        ]
        if all(len(end) == 1 and not end.isna().any() for end in ends):
            lower, upper = (float(end.iloc[0]) for end in ends)
    return Estimate(value, lower=lower, upper=upper, n=n, dataset=str(row.dataset))


def _align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return rows as lines whose columns are aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
