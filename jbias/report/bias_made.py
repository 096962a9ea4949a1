"""How benchmarks and biases of models were measured, and which models differ in that."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

Place = tuple[str, str]  # A measure's name and its set.
Measures = Mapping[Place, Mapping[str, Any]]  # What measures/<measure>@<set>.json says.
# Options that change neither a benchmark nor a bias, or that its metric tells.
_FREE = ("names", "frost", "errors", "draws", "continuous", "classes", "low", "high")
USUAL = "as published"
_NAMED = 4  # Models that a line names of those that are alike.


class Made(NamedTuple):
    """How one number of one model was measured; None is not known."""

    dataset: str
    measure: str = ""  # Its name, "" for what has none.
    how: str = ""  # Whatever is not as published; an attack in any case.
    images: int | None = None
    fingerprint: str | None = None  # Of the set.
    rule: str | None = None  # By which answers became decisions.

    @property
    def words(self) -> str:
        return ", ".join(filter(None, (self.dataset, self.how)))


def of(
    place: Place, measures: Measures, *, how: str = "", n: int | None = None
) -> Made:
    """Gives how a place was measured; n: its images, where no file tells."""
    measure, dataset = place
    told = measures.get((measure or "accuracy", dataset), {})
    asked, about = told.get("measure", {}), told.get("dataset", {})
    sizes = [size for size in (asked.get("images"), about.get("n")) if size]
    return Made(
        dataset=dataset,
        measure=measure,
        how=how,
        images=min(sizes) if sizes else n,
        fingerprint=about.get("fingerprint"),
        rule=next(iter(asked.get("aggregates", ())), None),
    )


def unlike(told: Mapping[str, Any]) -> str:
    """Says which options of a measure are not the published ones."""
    options = told.get("measure", {}).get("options", {})
    return ", ".join(
        f"{name} {value}"
        for name, value in sorted(options.items())
        if name not in _FREE
    )


def compare(
    models: Mapping[str, Mapping[str, Made]], titles: Mapping[str, str]
) -> tuple[list[str], pd.DataFrame]:
    """Says of each column which models differ, a line each, and how it was measured.

    models: by model and column. The frame has a row for each column. Images may differ,
    and the rule by which decisions are made. ValueError where the measure itself does.
    """
    lines, rows = [], []
    for column in dict.fromkeys(name for each in models.values() for name in each):
        title = titles.get(column, column)
        made = {model: each[column] for model, each in models.items() if column in each}
        hows = _grouped(made, lambda one: one.how or USUAL)
        if len(hows) > 1:
            raise ValueError(
                f"{title}: must be measured in one way, got {_told(hows)}; measure all in"
                " one, or leave out the models of the other"
            )
        lines += _differing(title, made)
        images = [one.images for one in made.values() if one.images is not None]
        rows.append(
            {
                "column": column,
                "sets": ", ".join(_values(made, "dataset")),
                "how": next(iter(hows)),
                "rules": ", ".join(_values(made, "rule")),
                "images": min(images, default=None),
                "images_most": max(images, default=None),
                "models": len(made),
            }
        )
    return lines, pd.DataFrame(rows)


def _differing(title: str, made: Mapping[str, Made]) -> Iterable[str]:
    """Gives a line where the images or the rule are not those of all models."""
    fields = ("dataset", "images", "fingerprint", "rule")
    several = [
        field
        for field in fields
        if len({getattr(one, field) for one in made.values()}) > 1
    ]
    if several:
        groups = _grouped(made, lambda one: _words(one, several))
        yield f"{title} is not of the same images and rule for all: {_told(groups)}."


def _words(one: Made, several: Collection[str]) -> str:
    """Says in what one is not as others: these fields."""
    told = {
        "dataset": one.dataset,
        "images": f"{one.images or 'unknown'} images",
        "fingerprint": f"files {(one.fingerprint or 'unknown')[:8]}",
        "rule": f"rule {one.rule or 'unknown'}",
    }
    return ", ".join(told[field] for field in told if field in several)


def _grouped(made: Mapping[str, Made], key) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for model, one in made.items():
        found.setdefault(key(one), []).append(model)
    return found


def _told(groups: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(
        f"{words} ({', '.join(names[:_NAMED])}"
        f"{f' and {len(names) - _NAMED} more' if len(names) > _NAMED else ''})"
        for words, names in groups.items()
    )


def _values(made: Mapping[str, Made], field: str) -> list[str]:
    values = dict.fromkeys(getattr(one, field) for one in made.values())
    return [value for value in values if value is not None]
