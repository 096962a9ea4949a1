"""Section on prompt and task as factors: levels of the same model, compared on the same images."""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from jbias import stats
from jbias.report import document, tables
from jbias.report.pages.decisions import decision_plots
from jbias.report.pages.decisions import standing as standing_lib
from jbias.stats import multiple_testing

Standing, Blocks = standing_lib.Standing, document.Blocks

FACTORS = ("prompt", "task")
_MEAN_DRAWS = 2_000  # Bootstrap draws of images, for mean differences over models.
# A factor matters less than the model if the differences between its levels are under this share
# of those between models, and more if they are over its inverse.
_LESS = 0.5
_SMALL_SHARE = (
    0.05  # Of the variance; below it the page explains what the share compares.
)
# Levels as the names of published files spell them.
LEVEL_WORDS = {
    "none": "None in the file's name, which is no template (in the files of Gavrikov et al., 2025, "
    "the mean of 80 templates)",
    "CLS": "the name of the class alone",
    "a_photo_of_a_CLS.": "the template “a photo of a …”, with the name of the class",
    "vqa": "a question with options (multiple choice)",
    "captioning": "a description, in which a reader finds a class",
}


class Crossed(NamedTuple):
    """Observers that are the same model at several levels of a factor."""

    factor: str  # "prompt" or "task".
    levels: tuple[str, ...]  # In alphabetical order.
    observers: Mapping[str, Mapping[str, int]]  # Numbers by model, then level.

    @property
    def complete(self) -> list[str]:
        """Models that have all levels."""
        return [
            model
            for model, by_level in self.observers.items()
            if len(by_level) == len(self.levels)
        ]


def find_crossed(standing: Standing, factor: str) -> Crossed | None:
    """Return the models with several levels of a factor; None if there is no such model.

    The other factor is the same for the levels of a model; a model at several levels of both
    factors has one entry per level of the other. Observers without the main score, and models with
    two files of one level, are left out.
    """
    (other,) = {*FACTORS} - {factor}
    numbers: dict[str, dict[str, list[int]]] = {}
    for i in standing.order:
        factors = standing.panel.observers[i].factors
        level, model = factors.get(factor), factors.get("model") or standing.names[i]
        if level and standing.main.is_known[i]:
            fixed = factors.get(other)
            key = f"{model} ({fixed})" if fixed else model
            numbers.setdefault(key, {}).setdefault(level, []).append(i)
    crossed = {
        model: {level: members[0] for level, members in by_level.items()}
        for model, by_level in numbers.items()
        if len(by_level) > 1 and all(len(members) == 1 for members in by_level.values())
    }
    levels = sorted({level for by_level in crossed.values() for level in by_level})
    return Crossed(factor, tuple(levels), crossed) if crossed else None


def factor_section(standing: Standing) -> Blocks:
    """Yield, for each factor: figure and table of levels, differences and variance components.

    Nothing is yielded for a factor without a model at several of its levels.
    """
    for factor in FACTORS:
        crossed = find_crossed(standing, factor)
        if crossed:
            yield from _factor_blocks(standing, crossed)


def _factor_blocks(standing: Standing, crossed: Crossed) -> Blocks:
    """Yield the blocks of one factor; see `factor_section`."""
    differences = difference_frame(standing, crossed)
    num_unadjusted = int((differences["pvalue"] <= standing_lib.ALPHA).sum())
    num_adjusted = int((differences["adjusted"] <= standing_lib.ALPHA).sum())
    yield document.Text(
        f"{crossed.factor.capitalize()}: {tables.count(len(crossed.observers), 'model')} with "
        f"{tables.span(map(len, crossed.observers.values()))} of "
        f"{tables.count(len(crossed.levels), 'level')} ({tables.join(crossed.levels)}). Of "
        f"{tables.count(len(differences), 'pair')} of levels of the same model, {num_unadjusted} "
        f"differ without adjustment (p ≤ {standing_lib.ALPHA:g}), {num_adjusted} after Holm's "
        "adjustment over these pairs."
    )
    yield document.Text(verdict(standing, crossed))
    yield _level_words(crossed)
    yield _range_table(standing, crossed)
    yield _level_figure(standing, crossed)
    yield _difference_table(standing, crossed.factor, differences)
    yield _mean_table(standing, crossed)
    yield _variance_table(standing, crossed)


def sizes(standing: Standing, crossed: Crossed) -> dict[str, float]:
    """Return median absolute differences of the main score, of pairs of levels and of models.

    Keys: levels (two levels of one model) and models (two models at one level; NaN without such a
    pair).
    """
    value = standing.main.value
    levels = [
        abs(
            value[crossed.observers[model][level]]
            - value[crossed.observers[model][less]]
        )
        for model, level, less in _level_pairs(crossed)
    ]
    models = [
        abs(value[first[level]] - value[second[level]])
        for first, second in itertools.combinations(crossed.observers.values(), 2)
        for level in crossed.levels
        if level in first and level in second
    ]
    return {
        "levels": float(np.median(levels)),
        "models": float(np.median(models)) if models else math.nan,
    }


def verdict(standing: Standing, crossed: Crossed) -> str:
    """Return a sentence that compares a factor with the model, by the result of `sizes`."""
    medians, factor, score = (
        sizes(standing, crossed),
        crossed.factor,
        standing.main_name,
    )
    levels, models = medians["levels"], medians["models"]
    if math.isnan(models):
        return f"Two levels of {factor} of one model differ by {levels:.3f} in {score} (median)."
    if levels < _LESS * models:
        word = "less than"
    elif levels > models / _LESS:
        word = "more than"
    else:
        word = "about as much as"
    return (
        f"For {score}, the {factor} matters {word} the model here: two levels of {factor} of one "
        f"model differ by {levels:.3f}, two models at one level by {models:.3f} (medians; “less” "
        f"is under {_LESS:.0%} of the difference between models, “more” over {1 / _LESS:.0%}). "
        "Pairs that do not differ significantly are not shown to be equal."
    )


def _level_words(crossed: Crossed) -> document.Text | None:
    """Return an explanation of levels, as the files' names spell them; None for other levels."""
    words = [
        f"{level}: {LEVEL_WORDS[level]}"
        for level in crossed.levels
        if level in LEVEL_WORDS
    ]
    if not words:
        return None
    return document.Text(
        f"Levels are those in the names of files and folders. {'; '.join(words)}."
    )


def _level_figure(standing: Standing, crossed: Crossed) -> document.Figure:
    """Return the figure of the main score by level."""
    main = standing.main
    estimates: dict[str, dict[str, tuple[float, float, float]]] = {}
    for model, by_level in crossed.observers.items():
        for level, i in by_level.items():
            numbers = (main.value[i], main.lower[i], main.upper[i])
            estimates.setdefault(level, {})[model] = numbers
    estimates = {level: estimates[level] for level in crossed.levels}
    models = [*crossed.observers]
    return document.Figure(
        f"{crossed.factor}{standing.suffix}",
        f"{standing.main_name.capitalize()} by {crossed.factor}, with {standing_lib.LEVEL} "
        "bootstrap intervals over images.",
        lambda: decision_plots.levels(models, estimates, label=standing.main_name),
    )


def range_frame(standing: Standing, crossed: Crossed) -> pd.DataFrame:
    """Return the range of the main score over the levels of each model.

    Columns: model, levels (number), lowest and highest (levels), lowest_score, highest_score, range
    (their difference) and interval (mean width of the intervals of the model's scores). Rows by
    decreasing range.
    """
    main = standing.main
    rows = []
    for model, by_level in crossed.observers.items():
        score = {level: main.value[i] for level, i in by_level.items()}
        lowest, highest = min(score, key=score.get), max(score, key=score.get)
        numbers = [*by_level.values()]
        rows.append(
            {
                "model": model,
                "levels": len(by_level),
                "lowest": lowest,
                "lowest_score": score[lowest],
                "highest": highest,
                "highest_score": score[highest],
                "range": score[highest] - score[lowest],
                "interval": float(np.mean(main.upper[numbers] - main.lower[numbers])),
            }
        )
    frame = pd.DataFrame(rows)
    return frame.sort_values(["range", "model"], ascending=[False, True])


def _range_table(standing: Standing, crossed: Crossed) -> tables.Table | None:
    """Return the table of `range_frame`."""
    factor, score, show = crossed.factor, standing.main_name, tables.digits(3)
    return tables.from_rows(
        f"{factor}_range{standing.suffix}",
        f"How much the {factor} changes {score}: the smallest and the largest {score} of each "
        f"model over its {factor}s, and their difference. Interval: mean width of the "
        f"{standing_lib.LEVEL} intervals of these numbers, which says how much chance alone moves "
        f"one number; a range over several {factor}s is larger than 0 by chance, too.",
        range_frame(standing, crossed),
        {
            "model": tables.Column("model", str),
            "levels": tables.Column(f"{factor}s", tables.whole),
            "lowest_score": tables.Column(f"smallest {score}", show),
            "lowest": tables.Column("with", str),
            "highest_score": tables.Column(f"largest {score}", show),
            "highest": tables.Column(f"with {factor}", str),
            "range": tables.Column("range", show),
            "interval": tables.Column("interval", show),
        },
    )


def _difference_table(
    standing: Standing, factor: str, differences: pd.DataFrame
) -> tables.Table | None:
    """Return the table of differences. differences: result of `difference_frame`."""
    return tables.from_rows(
        f"{factor}_differences{standing.suffix}",
        f"Differences in {standing.main_name} between levels of {factor} of the same model, on the "
        f"images that both have, with {standing_lib.LEVEL} intervals. Holm: adjusted over "
        f"the rows of this table. Bold: p ≤ {standing_lib.ALPHA:g} after Holm.",
        differences,
        _difference_columns(),
        bold=lambda row: (
            ["difference"] if row["adjusted"] <= standing_lib.ALPHA else []
        ),
    )


def _mean_table(standing: Standing, crossed: Crossed) -> tables.Table | None:
    """Return the table of mean differences over models."""
    show = tables.interval(tables.digits(3, plus=True))
    return tables.from_rows(
        f"{crossed.factor}_means{standing.suffix}",
        f"Mean differences in {standing.main_name} over models with both levels. In brackets: "
        f"{standing_lib.LEVEL} bootstrap intervals over images, for these models; models "
        "are not drawn. Above 0: number of models with a positive difference.",
        mean_differences(standing, crossed),
        {
            "level": tables.Column("level", str),
            "less": tables.Column("less", str),
            "models": tables.Column("models", tables.whole),
            "difference": tables.Column("mean difference", show, ("lower", "upper")),
            "positive": tables.Column("above 0", tables.whole),
        },
    )


def _variance_table(standing: Standing, crossed: Crossed) -> tables.Table | None:
    """Return the table of variance components; None as `variance_components`."""
    components = variance_components(standing, crossed)
    if components is None:
        return None
    num_levels, factor = len(crossed.levels), crossed.factor
    return tables.from_rows(
        f"{factor}_variance{standing.suffix}",
        f"Variance components of {standing.main_name} over {len(crossed.complete)} models at all "
        f"{num_levels} levels of {factor}: a random-effects analysis of variance of crossed "
        f"factors. The rest is the interaction of model and {factor}, and the chance of the "
        "images. A component may be below 0 by chance. With only "
        f"{num_levels} levels the component of {factor} is very uncertain: "
        f"{tables.count(num_levels - 1, 'degree')} of freedom. Deviation: square root, in the unit "
        f"of {standing.main_name}.{_share_words(standing, crossed, components)}",
        components,
        {
            "source": tables.Column("source", str),
            "levels": tables.Column("levels", tables.whole),
            "variance": tables.Column("variance", tables.digits(5)),
            "deviation": tables.Column("deviation", tables.digits(3)),
            "share": tables.Column("% of the total", tables.percent),
        },
    )


def _share_words(standing: Standing, crossed: Crossed, components: pd.DataFrame) -> str:
    """Return why a small share and a mean difference do not contradict each other.

    "" unless the share is small and the interval of a mean difference excludes 0.
    """
    share = components["share"].iloc[1]
    means = mean_differences(standing, crossed)
    means = means[(means["lower"] > 0) | (means["upper"] < 0)]
    if not share < _SMALL_SHARE or means.empty:
        return ""
    largest = means.loc[means["difference"].abs().idxmax()]
    total = components["variance"].iloc[-1]
    show = tables.digits(3, plus=True)
    return (
        f" A share of {100 * share:.1f} % does not contradict the mean difference of "
        f"{show(largest['difference'])} between {largest['level']} and {largest['less']}: its "
        "interval says that it is not 0 on such images, the share says that it is small beside "
        f"the differences between models. Half of its square, {largest['difference'] ** 2 / 2:.5f}, "
        f"is the variance of these two levels; the total is {total:.5f}."
    )


def _difference_columns() -> dict[str, tables.Column]:
    """Return the columns of the table of differences between levels."""
    show = tables.interval(tables.digits(3, plus=True))
    return {
        "model": tables.Column("model", str),
        "level": tables.Column("level", str),
        "less": tables.Column("less", str),
        "difference": tables.Column("difference", show, ("lower", "upper")),
        "num_images": tables.Column("images", tables.whole),
        "pvalue": tables.Column("p", tables.p_text),
        "adjusted": tables.Column("Holm", tables.p_text),
    }


def _level_pairs(crossed: Crossed) -> Iterator[tuple[str, str, str]]:
    """Yield (model, level, level) for each model and pair of its levels."""
    for model, by_level in crossed.observers.items():
        levels = [level for level in crossed.levels if level in by_level]
        for first, second in itertools.combinations(levels, 2):
            yield model, first, second


def difference_frame(standing: Standing, crossed: Crossed) -> pd.DataFrame:
    """Return the differences between levels of the same model, first level less second.

    Columns: model, level, less (the second level), difference, lower, upper, num_images, pvalue
    (as in the table of all pairs) and adjusted (Holm over these rows).
    """
    pairs = standing.main.pairs.set_index(["first", "second"])
    rows: list[dict[str, Any]] = []
    for model, level, less in _level_pairs(crossed):
        i, j = (crossed.observers[model][name] for name in (level, less))
        pair = pairs.loc[(min(i, j), max(i, j))]
        sign = 1 if i < j else -1
        ends = sorted((sign * pair["lower"], sign * pair["upper"]))
        rows.append(
            {
                "model": model,
                "level": level,
                "less": less,
                "difference": sign * pair["difference"],
                "lower": ends[0],
                "upper": ends[1],
                "num_images": int(pair["num_images"]),
                "pvalue": pair["pvalue"],
            }
        )
    frame = pd.DataFrame(rows)
    known = frame["pvalue"].notna()
    frame["adjusted"] = math.nan
    frame.loc[known, "adjusted"] = multiple_testing.adjust(
        frame.loc[known, "pvalue"].to_numpy(), "holm"
    )
    return frame


def mean_differences(standing: Standing, crossed: Crossed) -> pd.DataFrame:
    """Return the mean difference over models for each pair of levels.

    Columns: level, less, models (number), difference, lower, upper, and positive (number of models
    with a difference above 0). The images of a draw are the same for all models.
    """
    score = standing.main.score
    n = score.numerator.shape[1]
    rng = np.random.default_rng(standing_lib.SEED)
    weights = np.concatenate(
        [np.ones((1, n)), rng.multinomial(n, np.full(n, 1 / n), _MEAN_DRAWS)]
    )
    used = sorted({i for levels in crossed.observers.values() for i in levels.values()})
    with np.errstate(invalid="ignore"):  # A draw may have no decision for either cue.
        values = (weights @ score.numerator[used].T.astype(float)) / (
            weights @ score.denominator[used].T.astype(float)
        )
    column = {i: number for number, i in enumerate(used)}
    by_levels: dict[tuple[str, str], list[np.ndarray]] = {}
    for model, level, less in _level_pairs(crossed):
        i, j = (column[crossed.observers[model][name]] for name in (level, less))
        by_levels.setdefault((level, less), []).append(values[:, i] - values[:, j])
    tail = (1 - standing_lib.CONFIDENCE) / 2
    rows = []
    for (level, less), differences in by_levels.items():
        means = np.mean(differences, axis=0)
        lower, upper = np.nanquantile(means[1:], [tail, 1 - tail])
        rows.append(
            {
                "level": level,
                "less": less,
                "models": len(differences),
                "difference": means[0],
                "lower": lower,
                "upper": upper,
                "positive": sum(bool(values[0] > 0) for values in differences),
            }
        )
    return pd.DataFrame(rows)


def variance_components(standing: Standing, crossed: Crossed) -> pd.DataFrame | None:
    """Return the variance components of the main score; None for fewer than two complete models.

    Only models with all levels are used. Rows: between models, between levels, the rest, and the
    total. Columns: source, levels, variance, deviation and share of the total (NaN where the
    total is not above 0). Estimates: `stats.sources_of_variance` with the factors as sources.
    """
    models = crossed.complete
    if len(models) < 2:
        return None
    frame = pd.DataFrame(
        [
            {
                "model": model,
                "level": level,
                "score": standing.main.value[crossed.observers[model][level]],
            }
            for model in models
            for level in crossed.levels
        ]
    )
    result = stats.sources_of_variance(frame, sources=("model", "level"), score="score")
    total = float(result.total.value)
    between_models, between_levels = map(float, result.component)
    variances = {
        "between models": (len(models), between_models),
        f"between levels of {crossed.factor}": (len(crossed.levels), between_levels),
        "rest": (None, total - between_models - between_levels),
        "total": (None, total),
    }
    return pd.DataFrame(
        [
            {
                "source": source,
                "levels": count,
                "variance": variance,
                "deviation": math.sqrt(variance) if variance >= 0 else math.nan,
                "share": variance / total if total > 0 else math.nan,
            }
            for source, (count, variance) in variances.items()
        ]
    )


def results(standing: Standing) -> dict[str, Any]:
    """Return the numbers of the section by factor, for results.json."""
    numbers = {}
    for factor in FACTORS:
        crossed = find_crossed(standing, factor)
        if crossed:
            numbers[factor] = {
                "levels": crossed.levels,
                "sizes": sizes(standing, crossed),
                "ranges": range_frame(standing, crossed),
                "models": [*crossed.observers],
                "differences": difference_frame(standing, crossed),
                "means": mean_differences(standing, crossed),
                "variance": variance_components(standing, crossed),
            }
    return numbers
