"""How cells of shifts look in tables: seeds, means with deviations, intervals."""

import dataclasses
import math
import types
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float

from jbias.report import shift_drops, shift_read, tables

MEANS = (
    "Ours: mean ± standard deviation over n seeds (n - 1 in its denominator); drops are of "
    "the means over seeds, 100 (ID - OOD) / ID, with intervals of 95 % over redrawn seeds and "
    "test images."
)
INTERVAL = (
    "In brackets intervals of 95 % over redrawn seeds and test images; all seeds see the same "
    "images."
)
HEADS = types.MappingProxyType({"inside": "ID", "outside": "OOD", "drop": "Drop %"})
two = tables.digits(2)


def trained(cell: shift_read.Cell) -> str:
    """Says what a part of a table has in common but for models and kinds."""
    recipe = cell.recipe
    ending = f" [{recipe.dealt}]" if recipe.dealt else ""
    return f"{recipe.data} by {cell.attribute}, {recipe.algorithm}{ending}"


def spread(values: Float[np.ndarray, "s"]) -> str:
    """Shows accuracies of seeds in %."""
    mean = two(100 * float(np.mean(values)))
    return (
        f"{mean} ± {two(100 * float(np.std(values, ddof=1)))}"
        if len(values) > 1
        else mean
    )


def sure(one: shift_drops.Estimate) -> str:
    """Shows a number with its interval."""
    if math.isnan(one.value):
        return "–"
    if math.isnan(one.low):
        return two(one.value)
    return f"{two(one.value)} [{two(one.low)}, {two(one.high)}]"


def seeds(cells: Iterable[shift_read.Cell]) -> str:
    """Says whose a row is, and of how many seeds."""
    counts = sorted({len(cell.seeds) for cell in cells})
    return f"here, n={'–'.join(map(str, dict.fromkeys((counts[0], counts[-1]))))}"


def table(name: str, caption: str, rows: list[dict], heads) -> tables.Table | None:
    """Makes a table as `tables.from_rows`; its data holds numbers, not their words.

    Of a column x that is shown as words, the numbers are x_value, x_low and x_high.
    """
    made = tables.from_rows(name, caption, rows, heads)
    if made is None:
        return None
    words = [key for key in made.data if f"{key}_value" in made.data]
    numbers = {f"{key}_value": key for key in words}
    data = made.data.drop(columns=words).rename(columns=numbers)
    return dataclasses.replace(made, data=data)


def short(
    recipes: Iterable[shift_read.Recipe],
) -> dict[shift_read.Recipe, str]:
    """Names recipes by what is not the same of all, and by the model."""
    recipes = list(dict.fromkeys(recipes))
    parts = [name for name in ("model", "algorithm", "data") if _varies(recipes, name)]
    parts = parts if "model" in parts else ["model", *parts]
    return {
        recipe: ", ".join(getattr(recipe, part) for part in parts)
        + (f" [{recipe.told}]" if recipe.told else "")
        for recipe in recipes
    }


def _varies(recipes: list[shift_read.Recipe], name: str) -> bool:
    return len({getattr(recipe, name) for recipe in recipes}) > 1


def groups(cell: shift_read.Cell) -> dict[str, str | float]:
    """Shows metrics of groups, by name and test set, and gives their means in %."""
    found = {}
    for (name, metric), values in cell.groups.items():
        found[f"{metric}@{name}"] = spread(values)
        found[f"{metric}@{name}_value"] = 100 * float(np.mean(values))
    return found


def metrics(rows: Iterable[dict]) -> list[str]:
    """Names the metrics of groups that some row shows."""
    names = dict.fromkeys(name for row in rows for name in row if "@" in name)
    return [name for name in names if not name.endswith("_value")]


def average(
    cells: Sequence[shift_read.Cell], draws: shift_drops.Draws
) -> shift_drops.Drawn:
    """Averages accuracies over cells; a drop of it is one of averages."""
    drawn = [draws.of(cell) for cell in cells]
    names = ("inside", "outside", "insides", "outsides")
    means = [np.mean([getattr(one, name) for one in drawn], axis=0) for name in names]
    return shift_drops.Drawn(float(means[0]), float(means[1]), *means[2:])


def full(cell: shift_read.Cell, draws: shift_drops.Draws) -> dict:
    """Gives a cell's numbers in full, for files."""
    drawn = draws.of(cell)
    drop = shift_drops.estimate(*drawn.percent)
    return {
        "trained": trained(cell),
        "model": cell.recipe.network,
        "kind": cell.kind or None,
        "level": cell.level,
        "seeds": len(cell.seeds),
        "id": 100 * drawn.inside,
        "ood": 100 * drawn.outside,
        "drop_percent": drop.value,
        "low": drop.low,
        "high": drop.high,
    }
