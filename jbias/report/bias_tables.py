"""Tables of the study of biases."""

import math
from collections.abc import Iterator

import pandas as pd

from jbias.report import bias_made, bias_models, bias_printed, tables

_TITLES = bias_models.TITLES
_DIGITS = {"shape": 3, "low_freq": 3, "high_freq": 4}
_DIGITS |= {"shape_lower": 3, "shape_upper": 3}
_RESTS = ("shape_lower", "shape_upper", "shape_n")  # Behind the shape bias.
_CHOICES = ("all", bias_models.AT, f"not {bias_models.AT}")


def of(models: bias_models.Models) -> Iterator[tuple[str, tables.Table]]:
    """Gives sections and tables: accuracies, their averages by training, and biases."""
    yield (
        "benchmarks",
        _models(models, [*models.benchmarks, *models.members], "accuracy"),
    )
    yield "benchmarks", _averages(models)
    bands = [f"{name}_raw" for name in models.biases if f"{name}_raw" in models.frame]
    names = [*models.biases, *bands]
    if "shape" in names:
        behind = names.index("shape") + 1
        names[behind:behind] = [name for name in _RESTS if name in models.frame]
    yield "biases", _models(models, names, "biases")
    if models.made is not None:
        yield "benchmarks", _made(models.made)


def _models(models: bias_models.Models, names: list[str], name: str) -> tables.Table:
    captions = {
        "accuracy": (
            "Accuracy in % of every model on each benchmark, and averages over benchmarks "
            f"(Table 1): {_members(models)}."
        ),
        "biases": (
            "Biases of every model (Table 2). Shape bias: share of shape decisions among "
            f"shape and texture decisions{_rests(models)}. Low- and high-frequency bias: mean ratio of "
            "accuracy on filtered to that on clean images. Bandwidth in octaves, centre "
            "frequency in nominal cycles per image. –: none."
        ),
    }
    frame = models.frame
    shown = frame.copy()
    if "cb_bw_raw" in frame:
        bands = [column for column in frame if column.endswith("_raw")]
        shown.loc[frame["cb_bw_raw"] > bias_models.DEGENERATE, bands] = math.nan
    rows = []
    for model, one in shown.iterrows():
        kind = _TITLES.get(one["training"], one["training"])
        cells = [_cell(one[column], column) for column in names]
        rows.append((str(one["name"]), str(kind), *cells))
    return tables.Table(
        name=name,
        caption=captions[name],
        head=("Model", "training", *(_TITLES.get(one, one) for one in names)),
        rows=tuple(rows),
        data=frame[["name", "training", "epsilon", *names]]
        .rename_axis("model")
        .reset_index(),
        texts=2,
    )


def _made(made: pd.DataFrame) -> tables.Table:
    """Shows how benchmarks and biases were measured, and of how many images."""
    rows = []
    for one in made.itertuples():
        ends = [f"{n:,.0f}" for n in (one.images, one.images_most) if not pd.isna(n)]
        images = " to ".join(dict.fromkeys(ends)) or "–"
        texts = (_TITLES.get(one.column, one.column), one.sets, one.how, one.rules)
        rows.append((*texts, images, str(one.models)))
    return tables.Table(
        name="measured",
        caption="How each benchmark and bias was measured: on which set, what is not as "
        "published (an attack in any case), by which rule answers of several classes count, "
        "and of how many images, each of them in every condition.",
        head=("Measure", "set", "how", "rule", "images", "models"),
        rows=tuple(rows),
        data=made,
        texts=4,
    )


def _cell(value: float, column: str) -> str:
    if column == "shape_n" and not pd.isna(value):
        return bias_models.decisions(value)
    return _told(value, _DIGITS.get(column, 2))


def _rests(models: bias_models.Models) -> str:
    """Says what stands behind the shape bias, where it is known."""
    if "shape_n" not in models.frame:
        return ""
    seeds = ", of the seed with the fewest" if "seeds" in models.frame else ""
    return (
        f", with Wilson's interval of 95 %, of so many{seeds} (*: fewer than "
        f"{bias_models.FEW}, which says next to nothing)"
    )


def _members(models: bias_models.Models) -> str:
    how = {}
    if models.made is not None:
        made = models.made.set_index("column")["how"]
        how = {
            key: f" ({told})" for key, told in made.items() if told != bias_made.USUAL
        }
    return "; ".join(
        f"{name} is the mean of "
        f"{tables.join([_TITLES.get(one, one) + how.get(one, '') for one in ones])}"
        for name, ones in models.members.items()
    )


def _averages(models: bias_models.Models) -> tables.Table:
    names = list(models.members)
    groups = models.frame.groupby("training", sort=False)
    means = groups[names].mean()
    counts = groups.size()
    return tables.Table(
        name="averages",
        caption="Means in % over the models of a category, by average of benchmarks.",
        head=("Training", "models", *names),
        rows=tuple(
            (_TITLES.get(kind, kind), str(counts[kind]), *(_told(v, 2) for v in row))
            for kind, row in zip(means.index, means.to_numpy(), strict=True)
        ),
        data=means.assign(models=counts).reset_index(),
    )


def printed(cells: pd.DataFrame, pairs: pd.DataFrame) -> Iterator[tables.Table]:
    """Gives what printed tables and correlations agree with, and every cell in CSV."""
    yield _printed_cells(cells)
    yield _printed_pairs(pairs)
    yield _printed_among(pairs)


def _printed_cells(cells: pd.DataFrame) -> tables.Table:
    rows = []
    for (table, column), part in cells.groupby(["table", "column"], sort=False):
        off = (part["ours"] - part["printed"]).abs().max()
        count = int(part["agrees"].sum())
        title = _TITLES.get(column, column)
        rows.append((title, str(table), str(len(part)), str(count), f"{off:.3g}"))
    return tables.Table(
        name="printed_tables",
        caption="Tables 1 and 2 as printed and as computed here: cells, those that agree to "
        "the last printed digit, and the largest difference. The CSV file has every cell.",
        head=("Column", "table", "cells", "agree", "largest difference"),
        rows=tuple(rows),
        data=cells,
    )


def _printed_pairs(pairs: pd.DataFrame) -> tables.Table:
    mine = pairs[~pairs["y"].isin(bias_models.BIASES)]
    rows, strong = [], set()
    for i, ((x, y), part) in enumerate(mine.groupby(["x", "y"], sort=False)):
        part, row = part.set_index("models"), [_TITLES.get(x, x), y]
        for choice in _CHOICES:
            one = part.loc[choice]
            row += [tables.digits(2)(one["ours"]), _as_printed(one["printed"])]
            if not one["agrees"]:
                strong.add((i, len(row) - 2))
        rows.append(tuple(row))
    head = ["Bias", "average"]
    for choice in _CHOICES:
        head += [_TITLES[choice], "printed"]
    return tables.Table(
        name="printed_correlations",
        caption=f"Spearman's ρ of biases and averages (figure 2), here and as printed on the "
        f"authors' poster: {int(mine['agrees'].sum())} of {len(mine)} agree. n.s.: printed as "
        f"0.00, not significant; it agrees where p here, without adjustment, is above "
        f"{bias_printed.LEVEL:g}. Bold: does not agree.",
        head=tuple(head),
        rows=tuple(rows),
        data=mine,
        strong=frozenset(strong),
        texts=2,
    )


def _printed_among(pairs: pd.DataFrame) -> tables.Table:
    mine = pairs[pairs["y"].isin(bias_models.BIASES)]
    rows = [
        (
            _TITLES.get(one.x, one.x),
            _TITLES.get(one.y, one.y),
            tables.digits(2)(one.ours),
            _as_printed(one.printed),
            "yes" if one.agrees else "no",
        )
        for one in mine.itertuples()
    ]
    return tables.Table(
        name="printed_biases",
        caption="Spearman's ρ among biases (figure 12) over all models, here and as printed.",
        head=("Bias", "bias", "ρ", "printed", "agrees"),
        rows=tuple(rows),
        data=mine,
        texts=2,
    )


def _as_printed(value: float) -> str:
    return "n.s." if value == 0 else tables.digits(2)(value)


def _told(value: float, digits: int) -> str:
    if pd.isna(value):
        return "–"
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")
