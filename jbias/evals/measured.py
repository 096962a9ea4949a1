"""Results of one model: a table of all numbers, and its main numbers as attributes."""

import dataclasses
import json
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import pandas as pd

from jbias.measures import decisions
from jbias.runs import results


class Estimate(float):
    """A float with its 95 % interval, its number of images and its set.

    lower, upper: None without an interval. n: the number of units that the share or mean is
    over; None if unknown. dataset: the name of the set. unit: the name of the units, such as
    "images", or, for shape bias, "decisions for either cue". unanswered: the number of images
    without an answer and the number of images, for a table of decisions that has such images;
    None otherwise. reader: for decisions read from a model's words, "published label" or "parser"
    with its version; "" otherwise.
    """

    lower: float | None
    upper: float | None
    n: int | None
    dataset: str
    unit: str
    unanswered: tuple[int, int] | None
    reader: str

    def __new__(
        cls,
        value: float,
        *,
        lower: float | None = None,
        upper: float | None = None,
        n: int | None = None,
        dataset: str = "",
        unit: str = "",
        unanswered: tuple[int, int] | None = None,
        reader: str = "",
    ) -> Self:
        """Return the float `value` with the other arguments as attributes."""
        number = super().__new__(cls, value)
        number.lower, number.upper = lower, upper
        number.n, number.dataset, number.unit = n, dataset, unit
        number.unanswered, number.reader = unanswered, reader
        return number

    @property
    def details(self) -> str:
        """Return the interval and n as text, such as "95 %: 0.201 to 0.305, n = 240 images".

        The interval and n are left out if they are unknown. Unanswered images, if any, are added
        as "; 126 of 1,200 unanswered", and the reader of a model's words as "; read by parser 1".
        """
        words = []
        if self.lower is not None and self.upper is not None:
            words.append(f"95 %: {self.lower:.3f} to {self.upper:.3f}")
        if self.n is not None:
            words.append(f"n = {self.n:,} {self.unit}".rstrip())
        text = ", ".join(words)
        if self.unanswered is not None:
            count, num_images = self.unanswered
            text += f"; {count:,} of {num_images:,} unanswered"
        if self.reader:
            text += f"; read by {self.reader}"
        return text

    @property
    def text(self) -> str:
        """Return the number with three decimals, or "undefined" for NaN."""
        return "undefined" if math.isnan(self) else f"{float(self):.3f}"

    def __repr__(self) -> str:
        return f"{self.text} ({self.details})" if self.details else self.text


class Headline(NamedTuple):
    """A main number of a model: its label, and the measure and metric of its record.

    unit: the units that n counts, in the plural, such as "images".
    """

    label: str
    measure: str  # "" for accuracy, whose records name no measure.
    metric: str
    unit: str


# Accuracy by a cue is over all images, as published; other measures show no image whose
# class the model lacks.
_ANY_CUES = "images, also those whose cues agree"
_KNOWN = "images of the model's classes"
# By the name of the attribute.
HEADLINES: Mapping[str, Headline] = {
    "shape_bias": Headline(
        "shape bias", "shape_bias", "shape_bias", "decisions for either cue"
    ),
    "accuracy_shape": Headline(
        "accuracy by shape", "shape_bias", "accuracy_shape", _ANY_CUES
    ),
    "accuracy_texture": Headline(
        "accuracy by texture", "shape_bias", "accuracy_texture", _ANY_CUES
    ),
    "error_consistency": Headline(
        "error consistency with people", "human", "error_consistency", "images"
    ),
    "accuracy": Headline("accuracy", "", "accuracy", _KNOWN),
    "calibration_error": Headline("calibration error", "calibration", "ece", _KNOWN),
    "low_frequency_bias": Headline(
        "low-frequency bias", "spectral", "low_freq_bias", _KNOWN
    ),
    "high_frequency_bias": Headline(
        "high-frequency bias", "spectral", "high_freq_bias", _KNOWN
    ),
    "corruption_accuracy": Headline(
        "accuracy under corruptions",
        "imagenet_c",
        "corruption_accuracy",
        "answers to corrupted images",
    ),
    "critical_band_bandwidth": Headline(
        "critical band, octaves", "critical_band", "critical_band_bandwidth", _KNOWN
    ),
}
# Measures that pool several answers to one image: these are not independent.
_POOLED = ("imagenet_c",)
# Sets of stimuli: accuracy on these is not the `accuracy` of a model.
_CONFLICTS = ("cue-conflict", "cue_conflict")
_STIMULI = ("edge", "silhouette", *_CONFLICTS)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Measured:
    """The results of one model.

    folder: the folder of its records and decisions, which reports read. numbers: a table with
    one row per number and the columns of runs.results. left_out: a line, with the reason, for
    each measure that failed or was skipped. first: names of sets, in the order in which
    attributes prefer them. class_counts: the number of decision classes by (measure, set).
    constant_classes: by (measure, set), the name of the class that all unchanged images are
    decided as; without an entry if there are several classes. readers: the reader of a model's
    words by set, see `Estimate`.

    The headlines, such as `shape_bias` and `accuracy`, are attributes, each an Estimate;
    AttributeError for a headline that was not measured.
    """

    folder: pathlib.Path
    numbers: pd.DataFrame
    left_out: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    class_counts: Mapping[tuple[str, str], int] = dataclasses.field(
        default_factory=dict
    )
    constant_classes: Mapping[tuple[str, str], str] = dataclasses.field(
        default_factory=dict
    )
    readers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def shape_bias(self) -> Estimate:
        """Return the share of shape decisions among shape and texture decisions, in [0, 1]."""
        return self._headline("shape_bias")

    @property
    def accuracy_shape(self) -> Estimate:
        """Return the share of cue-conflict images that are decided as their shape's class."""
        return self._headline("accuracy_shape")

    @property
    def accuracy_texture(self) -> Estimate:
        """Return the share of cue-conflict images that are decided as their texture's class."""
        return self._headline("accuracy_texture")

    @property
    def error_consistency(self) -> Estimate:
        """Return Cohen's kappa between network and human errors, averaged over human observers."""
        return self._headline("error_consistency")

    @property
    def accuracy(self) -> Estimate:
        """Return the top-1 accuracy on the first set of photographs, in the order of `first`.

        Sets of edges, silhouettes and cue conflicts are skipped.
        """
        return self._headline("accuracy")

    @property
    def calibration_error(self) -> Estimate:
        """Return the expected calibration error, in [0, 1]."""
        return self._headline("calibration_error")

    @property
    def low_frequency_bias(self) -> Estimate:
        """Return the mean accuracy on low-pass filtered images, relative to unchanged images."""
        return self._headline("low_frequency_bias")

    @property
    def high_frequency_bias(self) -> Estimate:
        """Return the mean accuracy on high-pass filtered images, relative to unchanged images."""
        return self._headline("high_frequency_bias")

    @property
    def corruption_accuracy(self) -> Estimate:
        """Return the mean accuracy over ImageNet-C's corruptions and severities, in [0, 1]."""
        return self._headline("corruption_accuracy")

    @property
    def critical_band_bandwidth(self) -> Estimate:
        """Return the width of the critical band, in octaves."""
        return self._headline("critical_band_bandwidth")

    def _headline(self, name: str) -> Estimate:
        """Return the estimate of a headline on the first set that has it, in the order of `first`.

        name: a key of HEADLINES. Accuracy on cue conflicts, edges and silhouettes does not count.
        AttributeError if the headline was not measured.
        """
        headlines = [
            (key, estimate)
            for key, estimate in self.headlines()
            if key != "accuracy" or estimate.dataset not in _STIMULI
        ]
        for key, estimate in headlines:
            if key == name:
                return estimate
        names = ", ".join(dict.fromkeys(key for key, _ in headlines))
        raise AttributeError(
            f"{name}: was not measured; there are {names or 'no headlines'}, and all "
            "numbers in .numbers"
        )

    def headlines(self) -> Iterator[tuple[str, Estimate]]:
        """Yield (key of HEADLINES, estimate) for each headline and set with a result.

        The order is that of HEADLINES, then of sets in `first`, then of other sets' names. An
        undefined number is NaN. Accuracy on cue conflicts is left out, because it is the
        accuracy by shape; corruption_accuracy may be the mean without frost.
        """
        rank = {name: number for number, name in enumerate(self.first)}
        for key, headline in HEADLINES.items():
            rows = self.numbers[
                self.numbers["metric"].isin([headline.metric, *_variants(headline)])
                & (self.numbers["condition"] == headline.measure)
            ]
            if key == "accuracy":  # On cue conflicts it is that by shape.
                rows = rows[~rows["dataset"].isin(_CONFLICTS)]
            estimates = [
                _estimate(
                    self.numbers,
                    row,
                    headline.unit,
                    reader=self.readers.get(str(row.dataset), ""),
                )
                for row in rows.itertuples()
            ]
            estimates.sort(key=lambda x: (rank.get(x.dataset, len(rank)), x.dataset))
            for estimate in estimates:
                yield key, estimate

    def doubts(self) -> list[str]:
        """Return messages on sets where the model's decisions are no better than guesses.

        With k classes, random decisions match the shape or the texture on a share 2 / k of cue
        conflicts, and are correct on a share 1 / k of images. There is a message for
        - each set of cue conflicts, if under every rule of aggregation the lower end of
          Wilson's 95 % interval of the share that matches a cue is at most 2 / k, with k > 2;
        - the set of `accuracy`, if shape bias was measured and the lower end of the
          accuracy's interval is at most 1 / k;
        - each set whose images are all decided as one class.
        """
        lines = [*self._doubted_cues(), *self._doubted_accuracy()]
        constant: dict[str, str] = {}  # By data set, whatever measured it.
        for (_, dataset), decided in self.constant_classes.items():
            constant.setdefault(dataset, decided)
        for dataset, decided in constant.items():
            lines.append(
                f"every image of {dataset} is called {decided!r}; check weights, "
                "preprocessing and the order of classes"
            )
        return lines

    def _doubted_cues(self) -> Iterator[str]:
        """Yield messages on sets whose decisions match a cue no more often than guesses.

        See `doubts`; sets without a known number of classes, and images without an answer, are left
        out.
        """
        numbers = self.numbers
        is_of_bias = (
            numbers["condition"].astype(str).str.split("/").str[0] == "shape_bias"
        )
        is_counted = numbers["count"].notna() & (numbers["n"] > 0)
        rows = numbers[
            is_of_bias & is_counted & (numbers["metric"] == "fraction_neither")
        ]
        for dataset in rows["dataset"].unique():
            classes = self.class_counts.get(("shape_bias", dataset), 0)
            lows = [
                _lower_end_for_cues(numbers, row)
                for row in rows[rows["dataset"] == dataset].itertuples()
            ]
            if classes > 2 and max(lows) <= 2 / classes:
                yield (
                    f"decisions for either cue on {dataset} are no more than guessing "
                    f"gives (2 of {classes} classes), so no claim follows from shape bias"
                )

    def _doubted_accuracy(self) -> Iterator[str]:
        """Yield a message if shape bias was measured and `accuracy` is no better than chance.

        See `doubts`; only the first set with a known number of classes is used; cue conflicts,
        edges and silhouettes are skipped.
        """
        headlines = [*self.headlines()]
        if not any(key == "shape_bias" for key, _ in headlines):
            return
        for key, estimate in headlines:
            classes = self.class_counts.get(("accuracy", estimate.dataset), 0)
            if key != "accuracy" or estimate.dataset in _STIMULI or not classes:
                continue
            if estimate.lower is not None and estimate.lower <= 1 / classes:
                yield (
                    f"accuracy on {estimate.dataset} is no better than chance (1 of "
                    f"{classes:,} classes), so no claim follows from shape bias"
                )
            return  # The first set is the one whose accuracy is the model's.

    def table(self) -> list[str]:
        """Return the headlines as aligned lines of text: label, set, value, interval and n.

        [] without headlines.
        """
        rows = []
        for key, estimate in self.headlines():
            label = HEADLINES[key].label
            rows.append((label, estimate.dataset, estimate.text, estimate.details))
        return _align(rows)

    def __repr__(self) -> str:
        lines = [f"{self.folder.name}: measured in {self.folder}"]
        lines += [f"  {line}" for line in self.table()]
        lines += [f"  doubt: {line}" for line in self.doubts()]
        lines += [f"  not measured: {line}" for line in self.left_out]
        return "\n".join(lines)


def read(
    folder: pathlib.Path, *, left_out: Sequence[str] = (), first: Sequence[str] = ()
) -> Measured:
    """Return the results in a network's folder of records.

    Numbers are from all records in the folder, also of earlier calls. left_out: a line for each
    measure that failed or was skipped. first: names of sets, in the order in which attributes
    prefer them.
    """
    class_counts, constant_classes = {}, {}
    for path in sorted((folder / "measures").glob("*.json")):
        measure, _, dataset = path.stem.partition("@")
        options = json.loads(path.read_text("utf-8"))
        class_counts[measure, dataset] = len(options.get("classes", ()))
        if "constant" in options:
            constant_classes[measure, dataset] = options["constant"]
    return Measured(
        folder,
        results.read(folder),
        tuple(left_out),
        tuple(first),
        class_counts,
        constant_classes,
        _readers(folder),
    )


def _readers(folder: pathlib.Path) -> dict[str, str]:
    """Return the reader of a model's words by set, from the config.json of a table's results."""
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return {table["set"]: table.get("reader", "") for table in config.get("tables", ())}


class MeasuredNetworks(tuple):
    """A tuple of the results of several networks, such as the seeds of a run."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n".join(repr(network) for network in self)


def _variants(headline: Headline) -> tuple[str, ...]:
    """Return other names under which a headline's metric is recorded (means without frost)."""
    is_corruptions = headline.measure == "imagenet_c"
    return (f"{headline.metric}_without_frost",) if is_corruptions else ()


def _estimate(numbers: pd.DataFrame, row: Any, unit: str, *, reader: str) -> Estimate:
    """Return the number of a record with its interval; `lower` and `upper` are None without one.

    The interval is Wilson's for a share of at least one unit, else the records <metric>_lower and
    <metric>_upper of the same data set and condition, if both have a value. Measures of `_POOLED`
    have no interval, because they count several decisions about one image. A value of None becomes
    NaN.
    numbers: all records. row: a row of `numbers`, from itertuples. unit: see `Headline`. reader: see `Estimate`.
    """
    n = None if pd.isna(row.n) else int(row.n)
    value = math.nan if pd.isna(row.value) else float(row.value)
    lower = upper = None
    is_pooled = row.condition in _POOLED
    records = numbers[
        (numbers["dataset"] == row.dataset) & (numbers["condition"] == row.condition)
    ]
    if not pd.isna(row.count) and n and not is_pooled:
        lower, upper = decisions.wilson_interval(int(row.count), n)
    elif not is_pooled:
        ends = [
            records.loc[records["metric"] == f"{row.metric}_{end}", "value"]
            for end in ("lower", "upper")
        ]
        if all(len(end) == 1 and not end.isna().any() for end in ends):
            lower, upper = (float(end.iloc[0]) for end in ends)
    return Estimate(
        value,
        lower=lower,
        upper=upper,
        n=n,
        dataset=str(row.dataset),
        unit=unit,
        unanswered=_unanswered(numbers, row),
        reader=reader,
    )


def _lower_end_for_cues(numbers: pd.DataFrame, row: Any) -> float:
    """Return the lower end of Wilson's interval of the answers that match a cue, 0 without answers.

    numbers: all records. row: the record of fraction_neither.
    """
    num_unanswered, _ = _unanswered(numbers, row) or (0, 0)
    num_answers = int(row.n) - num_unanswered
    return decisions.wilson_interval(num_answers - int(row.count), num_answers)[0]


def _unanswered(numbers: pd.DataFrame, row: Any) -> tuple[int, int] | None:
    """Return (unanswered images, images) of a record's measure; None if all are answered.

    Of the counts on its set, that over as many images as the record is preferred, since shape bias
    counts over conflicts and accuracies over all images. Arguments: see `_estimate`.
    """
    counts = numbers[
        (numbers["metric"] == decisions.UNANSWERED)
        & (numbers["dataset"] == row.dataset)
        & (numbers["count"].notna())
    ]
    of_measure = counts[counts["condition"] == row.condition]
    if of_measure.empty:
        return None
    chosen = pd.concat([counts[counts["n"] == row.n], of_measure]).iloc[0]
    return int(chosen["count"]), int(chosen["n"])


def _align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return rows of cells as lines of text, with aligned columns two spaces apart."""
    columns = zip(*rows, strict=True)
    widths = [max(len(cell) for cell in column) for column in columns]
    return [
        "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]
