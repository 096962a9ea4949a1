"""Functions for drops of accuracy under shifts: intervals, verdicts, remedies, ranks of models.

A drop is accuracy in distribution minus accuracy out of distribution, in percentage points, or in
per cent of the accuracy in distribution (Drop% of Hu, Sang, Wang and Jiang 2021,
https://arxiv.org/abs/2111.09190). Accuracies are averaged over seeds before a drop is computed.
Results are rows of tables; keys that begin with _ hold text and cells, and are not written to
files.
"""

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jbias import stats
from jbias.data import shifts
from jbias.report import tables
from jbias.report.pages.shifts import shift_cells
from jbias.stats import bootstrap_intervals, multiple_testing, two_sample

# Verdicts. UNKNOWN: only the control level was trained.
BUG, NONE, UNKNOWN = "bug", "none found", "no level but the control"
REFERENCE = "erm"
FEWEST = 3  # Least number of models for a test of their ranks.
ShiftCell, ShiftCells = shift_cells.ShiftCell, shift_cells.ShiftCells
TableRow = dict[str, Any]
TableRows = list[TableRow]
two = tables.digits(2)


class DropEstimate(NamedTuple):
    """A number with its 95 % interval; NaN if unknown."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{two(self.value)} [{two(self.low)}, {two(self.high)}]"


class DrawnAccuracies(NamedTuple):
    """Mean accuracies in [0, 1]: first the observed accuracy, then the accuracies of b draws."""

    inside: Float[np.ndarray, "1+b"]
    outside: Float[np.ndarray, "1+b"]

    @property
    def points(self) -> Float[np.ndarray, "1+b"]:
        """Drops in percentage points."""
        return 100 * (self.inside - self.outside)

    @property
    def percent(self) -> Float[np.ndarray, "1+b"]:
        """Drops in per cent of the accuracy in distribution."""
        return percent(self.inside, self.outside)


def percent(
    inside: Float[np.ndarray, "..."], outside: Float[np.ndarray, "..."]
) -> np.ndarray:
    """Return drops in per cent of the accuracy in distribution; 0 if that accuracy is 0.

    inside, outside: accuracies in and out of distribution, numbers or arrays of one shape.
    """
    inside, outside = np.asarray(inside, np.float64), np.asarray(outside, np.float64)
    is_positive = inside > 0
    divisor = np.where(is_positive, inside, 1)
    return np.where(is_positive, 100 * (inside - outside) / divisor, 0.0)


def estimate(drawn: Float[np.ndarray, "1+b"]) -> DropEstimate:
    """Return the first number of `drawn` with the 95 % percentile interval of the other numbers.

    drawn: the observed value, then the values of the draws.
    """
    interval = bootstrap_intervals.estimate(drawn[0], drawn[1:], confidence=0.95)
    return DropEstimate(float(drawn[0]), float(interval.low), float(interval.high))


class AccuracyDraws(NamedTuple):
    """Random draws of seeds and of test images; levels with the same seeds share seed draws.

    draws: number of draws. seed: seed of the generator. Seeds of networks are drawn as weights of
    jbias.stats.two_sample; percentiles of the weighted means are t intervals. Images are drawn as
    Binomial(n, p) / n with the mean accuracy p, after adding 1 correct and 1 wrong image, so that
    draws vary even if all images are classified correctly. All seeds are tested on the same images,
    so averaging over seeds does not reduce this noise. Image draws of different levels are
    independent.
    """

    draws: int
    seed: int

    def draw(self, cell: ShiftCell) -> DrawnAccuracies:
        """Return the mean accuracies of a cell, in and out of distribution: observed, then drawn.

        In a draw, the accuracies of a seed in and out of distribution have the same weight.
        """
        rng = np.random.default_rng([self.seed, 0, *sorted(map(abs, cell.seeds))])
        weights = two_sample.t_weights(len(cell.seeds), self.draws, rng)
        name = f"{cell.recipe.label}/{cell.attribute}/{cell.level}"
        rng = np.random.default_rng([self.seed, 1, zlib.crc32(name.encode())])
        accuracies = []
        for values, p, n in _sets(cell):
            images = rng.binomial(n, p, size=self.draws) / n - p
            drawn = np.clip(weights @ values + images, 0, 1)
            accuracies.append(np.append(values.mean(), drawn))
        inside, outside = accuracies
        return DrawnAccuracies(inside, outside)


def _sets(cell: ShiftCell) -> Iterator[tuple[shift_cells.Seeds, float, int]]:
    """Yield (accuracies, p, n) for the test images in distribution, then for those out of it.

    accuracies: one per seed, (s,). n: number of test images. p: mean accuracy after adding 1
    correct and 1 wrong image.
    """
    for values, n in zip((cell.inside, cell.outside), cell.tested, strict=True):
        yield values, (float(values.mean()) * n + 1) / (n + 2), n


def area(shares: Sequence[float], drops: Float[np.ndarray, "levels ..."]) -> np.ndarray:
    """Return the mean height of the curve of drops over shares (trapezoidal rule).

    shares: one per level, increasing. drops: an array (levels,), or (levels, draws) for one area
    per draw. NaN for a single share.
    """
    if len(shares) < 2:
        return np.full(np.shape(drops)[1:], math.nan)
    return np.trapezoid(drops, shares, axis=0) / (shares[-1] - shares[0])


def p_larger(
    extreme: ShiftCell, control: ShiftCell | None = None, tau: float = 0.0
) -> float:
    """Return p of H0: the drop at `extreme` exceeds the drop at `control` by at most tau points.

    t = (d - tau) / sqrt(v + w), where d is the difference of the drops in percentage points, v the
    variance over seeds and w the variance over test images (jbias.stats.two_sample). v is separate
    for each level as in Welch's test, since recipes vary most where a shift lowers accuracy.
    Without a control, the drop is compared with 0. With single seeds v is unknown, and the test
    covers images only.
    """
    excess = -tau
    images = 0.0
    over_seeds = []
    for sign, cell in ((1, extreme), (-1, control)):
        if cell is not None:
            drops = 100 * (cell.inside - cell.outside)
            s = len(cell.seeds)
            excess += sign * float(drops.mean())
            images += sum(100**2 * p * (1 - p) / n for _, p, n in _sets(cell))
            over_seeds += [(float(drops.var(ddof=1)) / s, s - 1)] if s > 1 else []
    total = sum(variance for variance, _ in over_seeds)
    divisor = sum(variance**2 / freedom for variance, freedom in over_seeds)
    between = (total, total**2 / divisor) if total else (0.0, 0)
    return two_sample.mean_exceeds(excess, between, images)


def interval_columns(name: str, drawn: Float[np.ndarray, "1+b"]) -> TableRow:
    """Return the columns `name`, `name`_low and `name`_high of a table: value and 95 % interval.

    drawn: the observed value, then the values of the draws.
    """
    result = estimate(drawn)
    return {
        name: result.value,
        f"{name}_low": result.low,
        f"{name}_high": result.high,
    }


def spread(values: shift_cells.Seeds) -> str:
    """Return the accuracies of seeds in % as text: mean ± standard deviation.

    For one seed, the text is the mean alone. values: accuracies from 0 to 1.
    """
    mean = two(100 * float(np.mean(values)))
    if len(values) < 2:
        return mean
    return f"{mean} ± {two(100 * float(np.std(values, ddof=1)))}"


def _accuracy_columns(cell: ShiftCell) -> TableRow:
    """Return the columns id and ood: accuracies in and out of distribution in %, as text."""
    return {"id": spread(cell.inside), "ood": spread(cell.outside)}


def _recipe_columns(recipe: shift_cells.Recipe) -> TableRow:
    """Return the columns model, algorithm, data and setting of a recipe; setting may be None."""
    return {
        "model": recipe.model,
        "algorithm": recipe.algorithm,
        "data": recipe.data,
        "setting": recipe.details or None,
    }


def _group_columns(cell: ShiftCell) -> TableRow:
    """Return the number of seeds and the metrics of groups, as columns of a table.

    Keys: seeds, <metric>@<test set> (mean in %) and _<metric>@<test set> (mean ± deviation, text).
    """
    columns = {}
    for (name, metric), values in cell.groups.items():
        columns[f"_{metric}@{name}"] = spread(values)
        columns[f"{metric}@{name}"] = 100 * float(np.mean(values))
    return columns | {"seeds": len(cell.seeds)}


def verdicts(
    cells: ShiftCells, draws: AccuracyDraws, *, tau: float = 5.0, alpha: float = 0.05
) -> tuple[TableRows, TableRows]:
    """Return (ranking of recipes and attributes, rows of all their kinds of shift).

    A candidate is a recipe with an attribute; its row in the ranking is the row of its worst kind
    with the column rank ("1", "2", ...). For the columns of a row see `_curve`. Bugs come first;
    within bugs and within other candidates, the order is by normalised drop of the worst kind.
    Candidates trained at the control level only are last, with the verdict `UNKNOWN` and no
    numbers. Levels that train on a single value of the attribute are left out.

    A candidate is a bug if, for some kind, the drop at the most extreme level minus the drop at the
    control is larger than tau percentage points. The test's p must be below alpha after Holm's
    adjustment over all candidates and kinds.
    """
    order = list(shifts.LEVELS)
    groups: dict[tuple, list[ShiftCell]] = {}
    kinds = (cell for cell in cells if cell.kind)
    for cell in sorted(kinds, key=lambda cell: order.index(cell.level)):
        groups.setdefault((cell.recipe, cell.attribute, cell.kind), []).append(cell)
    shifted = [key for key in groups if groups[key][-1].share > shift_cells.CONTROL]
    p = {key: p_larger(*_ends(groups[key]), tau=tau) for key in shifted}
    holm = dict(zip(p, multiple_testing.adjust(list(p.values()), "holm"), strict=True))
    candidates: dict[tuple, TableRows] = {}
    for key, curve in groups.items():
        tested = {"verdict": UNKNOWN, "p": math.nan, "holm": math.nan}
        if key in p:
            verdict = BUG if holm[key] < alpha else NONE
            tested = {"verdict": verdict, "p": p[key], "holm": float(holm[key])}
        candidates.setdefault(key[:2], []).append(_curve(curve, draws, tested))

    ranked = sorted(candidates, key=lambda key: (_rank(candidates[key]), key))
    names = ("_recipe", "model", "algorithm", "data", "setting", "attribute", "verdict")
    rows = []
    for i, key in enumerate(ranked, start=1):
        first = {name: candidates[key][0][name] for name in names}
        rows.append({"rank": str(i), **first, **(_worst(candidates[key]) or {})})
    return rows, [row for key in ranked for row in candidates[key]]


def _worst(kinds: TableRows) -> TableRow | None:
    """Return the row of the kind with the largest normalised drop, among bugs if there are any.

    kinds: rows of the kinds of shift of one candidate. None if no kind was tested.
    """
    tested = [row for row in kinds if row["verdict"] != UNKNOWN]
    bugs = [row for row in tested if row["verdict"] == BUG]
    return max(bugs or tested, key=lambda row: row["normalised"], default=None)


def _rank(kinds: TableRows) -> tuple[bool, float]:
    """Return a sort key of candidates: bugs first, then by decreasing normalised drop.

    kinds: rows of the kinds of shift of one candidate.
    """
    worst = _worst(kinds)
    if worst is None:
        return True, math.inf
    return worst["verdict"] != BUG, -worst["normalised"]


def _ends(cells: ShiftCells) -> list[ShiftCell]:
    """Return [cell at the most extreme level] or, if the control was trained, [that cell, control].

    cells: levels of one kind of shift, by increasing share.
    """
    return [cells[-1], *cells[: cells[0].share == shift_cells.CONTROL]]


def _curve(cells: ShiftCells, draws: AccuracyDraws, tested: TableRow) -> TableRow:
    """Return the row of one kind of shift; "_levels" has one row per level.

    Columns: the columns of the recipe, attribute, kind, verdict, level (the most extreme), seeds
    (text), p and holm. Columns with intervals: drop (points) and percent at the most extreme level,
    control (drop at the control, NaN if not trained), over and normalised (drop and percent minus
    their values at the control), and area.

    cells: levels of the kind, by increasing share. tested: dict with the kind's verdict, p and
    holm.
    """
    last, *control = _ends(cells)
    drawn = [draws.draw(cell) for cell in cells]
    points = np.stack([accuracies.points for accuracies in drawn])
    relative = np.stack([accuracies.percent for accuracies in drawn])
    names = {**_recipe_columns(last.recipe), "attribute": last.attribute}
    levels = []
    for cell, absolute, share in zip(cells, points, relative, strict=True):
        row = {**names, "level": cell.level, "share": cell.share} | _accuracy_columns(
            cell
        )
        row |= {"id_mean": 100 * float(cell.inside.mean())}
        row |= {"ood_mean": 100 * float(cell.outside.mean())}
        row |= interval_columns("drop", absolute) | interval_columns("percent", share)
        row |= _group_columns(cell) | {"images": cell.images or None}
        n_id, n_ood = cell.tested
        levels.append(row | {"n_id": n_id, "n_ood": n_ood})
    counts = dict.fromkeys(str(len(cell.seeds)) for cell in (last, *control))
    row = {**names, "kind": last.kind, "verdict": tested["verdict"]}
    row |= {"level": last.level, "seeds": " and ".join(counts), **tested}
    row |= interval_columns("percent", relative[-1]) | interval_columns(
        "drop", points[-1]
    )
    row |= interval_columns("over", points[-1] - bool(control) * points[0])
    row |= interval_columns("normalised", relative[-1] - bool(control) * relative[0])
    row |= interval_columns("area", area([cell.share for cell in cells], points))
    row |= interval_columns("control", points[0] if control else points[0] * math.nan)
    return row | {"_recipe": last.recipe, "_levels": levels}


def _extremes(
    cells: ShiftCells, key: Callable, fit: Callable
) -> Iterator[list[ShiftCell]]:
    """Yield, for each value of `key`, the cells at the most extreme level that can be used.

    Control levels, and values without a level that can be used, are left out. key: function of a
    cell; cells with equal values are compared with each other. fit: function of the cells of one
    level that is true if the level can be used.
    """
    groups: dict[tuple, dict[float, list[ShiftCell]]] = {}
    for cell in cells:
        if cell.share > shift_cells.CONTROL:
            groups.setdefault(key(cell), {}).setdefault(cell.share, []).append(cell)
    for levels in groups.values():
        fitting = [share for share, peers in levels.items() if fit(peers)]
        if fitting:
            yield levels[max(fitting)]


def remedies(
    cells: ShiftCells, draws: AccuracyDraws, reference: str = REFERENCE
) -> list[TableRow]:
    """Return rows that compare recipes with the reference recipe at the most extreme common level.

    reference: algorithm of the reference recipe. One row per recipe, the reference recipe first.
    Columns: data, attribute, level, columns of the recipe, pairs ("plain" for the reference recipe,
    "yes" if the seeds equal the seeds of the reference recipe, else "no"), id and ood (accuracies
    as text), and with intervals drop, gain, id_cost and closed. gain and id_cost are points gained
    out of distribution and lost in distribution. closed is 1 - drop / drop of the reference recipe,
    or NaN unless the interval of the reference drop is above 0. gain, id_cost and closed of the
    reference recipe are NaN. Recipes without a reference recipe to compare with are left out.
    Raises ValueError if no recipe has the algorithm `reference`, unless `reference` is "erm".
    """
    known = sorted({cell.recipe.algorithm for cell in cells})
    if reference not in (*known, REFERENCE):
        raise ValueError(
            f"--reference: must be an algorithm of the runs, got {reference!r}; choose from "
            f"{', '.join(known)}"
        )
    rows = []

    def comparison_key(cell: ShiftCell) -> tuple:
        return (
            cell.recipe.model,
            cell.recipe.data,
            cell.attribute,
            cell.images,
            cell.kind or cell.level,
            *sorted(cell.options.items()),
        )

    def find_plain(peers: ShiftCells) -> list[ShiftCell]:
        plain = [cell for cell in peers if cell.recipe.algorithm == reference]
        return sorted(plain, key=_plainness) if len(peers) > 1 else []

    for peers in _extremes(cells, comparison_key, find_plain):
        plain = find_plain(peers)[0]
        remedied = [cell for cell in peers if cell is not plain]
        rows += [_compare(cell, plain, draws) for cell in (plain, *remedied)]
    return rows


def _plainness(cell: ShiftCell) -> tuple:
    """Return a sort key of reference recipes: the shortest setting `inputs` comes first."""
    return len(cell.settings.get("inputs", "[]")), cell.recipe


def _compare(cell: ShiftCell, plain: ShiftCell, draws: AccuracyDraws) -> TableRow:
    """Return the row of `remedies` that compares one recipe with the reference recipe.

    The row also has the columns of `_group_columns`, and `cell` under the key "_cell". For the
    reference recipe, `cell` is `plain`.
    """
    paired = "yes" if cell.seeds == plain.seeds else "no"
    row = {"data": cell.recipe.data, "attribute": cell.attribute, "level": cell.level}
    row |= {
        **_recipe_columns(cell.recipe),
        "pairs": "plain" if cell is plain else paired,
    }
    row |= _accuracy_columns(cell)
    drawn, drawn_plain = draws.draw(cell), draws.draw(plain)
    # In draws without a drop of the reference recipe, `closed` is set to -inf.
    plain_drop = np.where(drawn_plain.points > 0, drawn_plain.points, math.nan)
    closed = np.nan_to_num(1 - drawn.points / plain_drop, nan=-math.inf)
    has_drop = estimate(drawn_plain.points).low > 0
    compared = {
        "gain": 100 * (drawn.outside - drawn_plain.outside),
        "id_cost": 100 * (drawn_plain.inside - drawn.inside),
        "closed": closed if has_drop else closed * math.nan,
    }
    row |= interval_columns("drop", drawn.points)
    for name, values in compared.items():
        row |= interval_columns(name, values * math.nan if cell is plain else values)
    return row | _group_columns(cell) | {"_cell": cell}


def ranks(cells: ShiftCells, draws: AccuracyDraws) -> Iterator[TableRow]:
    """Yield rows of `agreement` for the most extreme level that at least 3 models share.

    One row per algorithm, data, attribute, settings of the split into parts, and kind of shift.
    Combinations without such a level are left out; models with several settings count separately.
    """

    def comparison_key(cell: ShiftCell) -> tuple:
        recipe = cell.recipe
        kind = shifts.KINDS.index(cell.kind)
        return recipe.algorithm, recipe.data, cell.attribute, recipe.dealt, kind

    kinds = [cell for cell in cells if cell.kind]
    extremes = _extremes(kinds, comparison_key, lambda peers: len(peers) >= FEWEST)
    for peers in sorted(extremes, key=lambda peers: comparison_key(peers[0])):
        algorithm, data, attribute, *_ = comparison_key(peers[0])
        drawn = [draws.draw(cell) for cell in peers]
        stacked = DrawnAccuracies(
            inside=np.stack([accuracies.inside for accuracies in drawn]),
            outside=np.stack([accuracies.outside for accuracies in drawn]),
        )
        names = ("here", algorithm, data, attribute, peers[0].kind)
        yield agreement(names, [cell.recipe.network for cell in peers], stacked)


def agreement(
    named: Sequence[str], models: Sequence[str], drawn: DrawnAccuracies
) -> TableRow:
    """Return a row with the agreement of models' ranks in and out of distribution.

    named: values of the first columns: whose ("here" or "paper"), algorithm, data, attribute, kind.
    models: names of k models. drawn: arrays (k, 1 + b); b is 0 for numbers without draws.

    Further columns: models, tau and tau_p (Kendall), low and high (interval of tau, NaN without
    draws), rho and rho_p (Spearman), discordant (number of pairs in opposite order), pairs, n
    (number of models), and interval and crossed as text.
    """
    inside, outside = drawn
    tau = stats.kendall(inside[:, 0], outside[:, 0])
    rho = stats.spearman(inside[:, 0], outside[:, 0])
    first, second = np.triu_indices(len(inside), 1)
    signs_inside, signs_outside = (
        np.sign(x[first] - x[second]) for x in (inside, outside)
    )
    scale = np.sqrt(
        np.abs(signs_inside).sum(axis=0) * np.abs(signs_outside).sum(axis=0)
    )
    # tau-b of the observed values and the draws, 0 if all are tied.
    taus = (signs_inside * signs_outside).sum(axis=0) / np.where(scale > 0, scale, 1)
    _, low, high = estimate(taus) if len(taus) > 1 else [math.nan] * 3
    crossed = int((signs_inside[:, 0] * signs_outside[:, 0] < 0).sum())
    pairs = len(first)
    keys = ("whose", "algorithm", "data", "attribute", "kind")
    row = dict(zip(keys, named, strict=True)) | {"models": ", ".join(models)}
    return row | {
        "tau": tau.statistic,
        "tau_p": tau.pvalue,
        "low": low,
        "high": high,
        "rho": rho.statistic,
        "rho_p": rho.pvalue,
        "discordant": crossed,
        "pairs": pairs,
        "n": len(inside),
        "interval": None if math.isnan(low) else f"[{two(low)}, {two(high)}]",
        "crossed": f"{crossed} of {pairs}",
    }
