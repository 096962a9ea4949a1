"""The numbers of a card, computed from its tables of decisions alone.

`compute` is called for a new card and by `jbias card --verify`, so that both have the same numbers.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jbias import errors
from jbias.answers import letter_answers, stimulus_names
from jbias.cards import claims, tables
from jbias.data.sets import geirhos
from jbias.evals import measured
from jbias.measures import (
    accuracy,
    critical_band,
    cue_conflict,
    decisions,
    human,
    human_answers,
    spectral_bias,
)

WILSON = "Wilson, 95 %"
BOOTSTRAP = "bootstrap over images, 95 %"
PEOPLE = "people"  # Key of a table's options: the digest of people's answers.
SPECTRAL, BAND = "spectral", "critical_band"  # Measures that change the images.
_PEOPLE_GROUP = "people"  # Of the rows of the standing table.
_CONDITION = "0"  # Of people's trials with cue conflicts, as published.


class Share(NamedTuple):
    """A number of images, and the number of images that it is out of."""

    count: int
    n: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Number:
    """A number of a card, with all that is needed to read it.

    name: a key of evals.measured.HEADLINES. value, lower, upper: None if undefined. count: None
    unless the number is the share count / n. neither: answers for neither cue, of the images whose
    cues conflict; None for sets without cues. unanswered: images without an answer, which are not in
    `neither`; for the shape bias, of the images whose cues conflict. seed: of the
    bootstrap; None without one. file: the table of decisions.
    """

    name: str
    label: str
    dataset: str
    value: float | None
    lower: float | None
    upper: float | None
    interval: str
    count: int | None
    n: int
    unit: str
    neither: Share | None
    unanswered: Share
    seed: int | None
    file: str

    def to_json(self) -> dict[str, Any]:
        """Return the number's entry in card.json."""
        entry = dataclasses.asdict(self)
        entry["set"] = entry.pop("dataset")
        for key in ("neither", "unanswered"):
            share = getattr(self, key)
            entry[key] = share and share._asdict()
        return entry


def compute(card_tables: Sequence[tables.Table]) -> list[Number]:
    """Return the numbers of all tables, in the order of evals.measured.HEADLINES, then of tables.

    ValueError for a table whose numbers cannot be computed.
    """
    computed = []
    for table in card_tables:
        try:
            computed += _of_table(table)
        except (ValueError, KeyError) as error:
            must = "have decisions from which its numbers can be computed"
            raise ValueError(f"{table.file}: must {must}; {error}") from None
    order = list(measured.HEADLINES)
    return sorted(computed, key=lambda number: order.index(number.name))


def _of_table(table: tables.Table) -> list[Number]:
    """Return the numbers of one table."""
    if table.measure == SPECTRAL:
        return _spectral(table)
    if table.measure == BAND:
        return _band(table)
    if table.measure:
        errors.check_known(table.file, table.measure, (SPECTRAL, BAND), "measure")
    return _accuracy(table) if table.texture is None else _cues(table)


def _number(
    table: tables.Table,
    name: str,
    by_metric: Mapping[str, decisions.Number],
    *,
    neither: Share | None = None,
    seed: int | None = None,
) -> Number:
    """Return a headline with its interval, Wilson's for a share, else its recorded ends.

    by_metric: numbers without a condition, by metric. seed: of the bootstrap.
    """
    headline = measured.HEADLINES[name]
    number = by_metric[headline.metric]
    if number.count is not None:
        lower, upper = decisions.wilson_interval(number.count, number.n)
    else:
        ends = (f"{headline.metric}_lower", f"{headline.metric}_upper")
        lower, upper = (by_metric[end].value for end in ends)
    unanswered = sum(
        decided.is_unanswered for decided in table.by_condition.values()
    ).astype(bool)
    if neither is not None and name == "shape_bias":
        decided = table.by_condition[""]
        unanswered = unanswered[_is_conflict(decided)]
    return Number(
        name=name,
        label=headline.label,
        dataset=table.dataset,
        value=number.value,
        lower=lower,
        upper=upper,
        interval=WILSON if number.count is not None else BOOTSTRAP,
        count=number.count,
        n=number.n,
        unit=headline.unit,
        neither=neither,
        unanswered=Share(int(unanswered.sum()), len(unanswered)),
        seed=seed,
        file=table.file,
    )


def _is_conflict(decided: decisions.Decisions) -> Any:
    """Return True for each image whose cues have different classes."""
    _, shape, texture = cue_conflict.answer_and_cues(decided)
    return cue_conflict.find_conflicts(shape, texture)


def _by_metric(numbers: Sequence[decisions.Number]) -> dict[str, decisions.Number]:
    """Return the numbers without a condition by metric; None replaces values that are not finite."""
    return {
        number.metric: number._replace(value=_finite(number.value))
        for number in numbers
        if not number.condition
    }


def _finite(value: float | None) -> float | None:
    """Return a number, or None if it is not finite."""
    return value if value is not None and math.isfinite(value) else None


def _accuracy(table: tables.Table) -> list[Number]:
    """Return the accuracy on a set without cues."""
    decided = table.by_condition[""]
    return [_number(table, "accuracy", _by_metric(accuracy.accuracy(decided)))]


def _cues(table: tables.Table) -> list[Number]:
    """Return the numbers of cue conflicts; error consistency if people are to be compared."""
    by_metric = _by_metric(cue_conflict.numbers(table.by_condition))
    fraction = by_metric["fraction_neither"]
    neither = Share(fraction.count, fraction.n)
    names = ("shape_bias", "accuracy_shape", "accuracy_texture")
    computed = [_number(table, name, by_metric, neither=neither) for name in names]
    if PEOPLE in table.options:
        known = dataclasses.replace(table, **_known_rows(table))
        compared = _by_metric(_compare(known))
        computed.append(
            _number(known, "error_consistency", compared, neither=neither, seed=0)
        )
    return computed


def _known_rows(table: tables.Table) -> dict[str, Any]:
    """Return the columns of a table for the images of the model's classes."""
    rows = [i for i, name in enumerate(table.label) if name]

    def select(column: Sequence[str]) -> tuple[str, ...]:
        """Return the chosen rows of a column."""
        return tuple(column[i] for i in rows)

    return {
        "images": select(table.images),
        "label": select(table.label),
        "texture": select(table.texture),
        "decided": {"": select(table.decided[""])},
    }


def people(images: Sequence[str]) -> tuple[human_answers.Trials, ...]:
    """Return people's published answers to cue conflicts, from the standing table.

    images: published names. ValueError for an image without an answer of each person.
    """
    rows = letter_answers.read(str(letter_answers.ANSWERS))
    persons = [row for row in rows if row["group"] == _PEOPLE_GROUP]
    return tuple(
        human_answers.Trials(
            subject=person.name,
            image=person.images,
            response=person.decision,
            category=person.label,
            condition=(_CONDITION,) * len(person.images),
        ).select(images)
        for person in letter_answers.to_observers(persons)
    )


def people_digest(images: Sequence[str]) -> str:
    """Return a hash of people's answers to images."""
    return human_answers.digest(people(images))


def _compare(table: tables.Table) -> decisions.Numbers:
    """Return error consistency with people; ValueError if people's answers have changed."""
    persons = people(table.images)
    digest = people_digest(table.images)
    expected = table.options[PEOPLE]
    must = "be compared with the same answers of people"
    errors.check(digest == expected, table.file, must, f"{digest}, not {expected}")
    ids = {name: number for number, name in enumerate(geirhos.CLASSES)}
    response = [ids.get(name, -1) for name in table.decided[""]]
    network = dataclasses.replace(
        persons[0], subject="network", response=np.array(response)
    )
    return human.compare(network, persons, stimulus_names.CUE_CONFLICT)


def _spectral(table: tables.Table) -> list[Number]:
    """Return the biases towards low and high frequencies."""
    options = table.options
    by_metric = _by_metric(
        spectral_bias.numbers(
            table.by_condition, draws=options["draws"], seed=options["seed"]
        )
    )
    names = ("low_frequency_bias", "high_frequency_bias")
    return [
        _number(table, name, by_metric, seed=options["seed"])
        for name in names
        if measured.HEADLINES[name].metric in by_metric
    ]


def _band(table: tables.Table) -> list[Number]:
    """Return the width of the critical band."""
    options = table.options
    by_metric = _by_metric(
        critical_band.bvg_numbers(
            table.by_condition,
            side=options["side"],
            draws=options["draws"],
            seed=options["seed"],
            continuous=False,
        )
    )
    name = "critical_band_bandwidth"
    return [_number(table, name, by_metric, seed=options["seed"])]


def doubts(card_tables: Sequence[tables.Table]) -> list[str]:
    """Return lines on sets where decisions are no better than guesses, all the same, or few.

    With k classes, random decisions are for either cue on a share 2 / k of the answered cue
    conflicts: there is a line if the lower end of Wilson's 95 % interval of that share is at most
    2 / k, with k > 2. There is a line, too, if most cue conflicts have no answer.
    """
    lines = []
    for table in card_tables:
        if table.measure:
            continue
        decided = table.by_condition[""]
        answered = decided.prediction[~decided.is_unanswered]
        if table.texture is not None:
            lines += _conflict_doubts(table, decided)
        is_constant = len(answered) > 1 and len({*answered.tolist()}) == 1
        if is_constant and len({*table.label}) > 1:
            name = table.classes[int(answered[0])]
            lines.append(f"every answered image of {table.dataset} is called {name!r}")
    return lines


def _conflict_doubts(table: tables.Table, decided: decisions.Decisions) -> list[str]:
    """Return the lines on guesses and on missing answers of a set of cue conflicts."""
    lines = []
    conflict = _is_conflict(decided)
    n = int(conflict.sum())
    num_answered = int((conflict & ~decided.is_unanswered).sum())
    num_options = _num_options(table)
    if num_options > 2:
        bias = cue_conflict.shape_bias(*cue_conflict.answer_and_cues(decided))
        either = bias.n_shape + bias.n_texture
        lower, _ = decisions.wilson_interval(either, num_answered)
        if lower <= 2 / num_options:
            lines.append(
                f"{claims.guess_start(table.dataset)} (2 of {num_options} classes), so no claim "
                "follows from shape bias"
            )
    if 2 * num_answered < n:
        lines.append(
            f"{n - num_answered:,} of {n:,} conflicts on {table.dataset} have no answer, so the "
            "numbers are of a selection of images"
        )
    return lines


def _num_options(table: tables.Table) -> int:
    """Return the number of classes that a guess chooses among.

    For published cue conflicts, that of the card, which is checked there; for other sets, the number
    of classes that occur, since nothing else proves more.
    """
    is_published = table.dataset == stimulus_names.CUE_CONFLICT
    return table.num_classes if is_published else len(table.classes)


def is_close(first: float | None, second: float | None) -> bool:
    """Return True for numbers that differ by rounding alone, and for two undefined numbers."""
    if first is None or second is None:
        return first is second
    return math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-12)
