"""What a shift costs: drops with intervals, verdicts, what remedies close, ranks of models.

A drop is accuracy in distribution less that out of it, in points, and in per cent of the
accuracy in distribution (Drop% of Hu, Sang, Wang and Jiang 2021,
https://arxiv.org/abs/2111.09190): of the means over seeds, not a mean of drops. What is found
is given as rows of tables; keys that begin with _ hold words and cells, and go into no file.
"""

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jbias import stats
from jbias.data import shifts
from jbias.report import shift_runs, tables
from jbias.stats import multiple_testing, resampling, two_sample

BUG, NONE, UNKNOWN = "bug", "none found", "no level but the control"
REFERENCE = "erm"
FEWEST = 3  # Models that can rank unlike.
Cell, Cells = shift_runs.Cell, shift_runs.Cells
Row = dict[str, Any]
Rows = list[Row]
two = tables.digits(2)


class Estimate(NamedTuple):
    """A number with its interval; NaN where it is not known."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{two(self.value)} [{two(self.low)}, {two(self.high)}]"


class Drawn(NamedTuple):
    """Mean accuracies from 0 to 1: as they were seen, and then in b draws."""

    inside: Float[np.ndarray, "1+b"]
    outside: Float[np.ndarray, "1+b"]

    @property
    def points(self) -> Float[np.ndarray, "1+b"]:
        return 100 * (self.inside - self.outside)

    @property
    def percent(self) -> Float[np.ndarray, "1+b"]:
        return percent(self.inside, self.outside)


def percent(inside, outside):
    """Gives the drop in per cent of the accuracy in distribution; of nothing it is 0."""
    inside, outside = np.asarray(inside, np.float64), np.asarray(outside, np.float64)
    known = inside > 0
    return np.where(known, 100 * (inside - outside) / np.where(known, inside, 1), 0.0)


def estimate(drawn: Float[np.ndarray, "1+b"]) -> Estimate:
    """Joins what was seen with the percentiles of the draws."""
    found = resampling.estimate(drawn[0], drawn[1:], confidence=0.95)
    return Estimate(float(drawn[0]), float(found.low), float(found.high))


class Draws(NamedTuple):
    """Draws of seeds and of test images; cells with the same seeds have the same of these.

    Seeds: jbias.stats.two_sample, whose percentiles are t intervals. Images: Binomial(n, p) / n of
    the mean accuracy p (with 1 of 2 images more, so that p = 1 varies, too); all seeds see
    the same images, so none of that noise is averaged away over seeds. Those of two
    cells are drawn apart.
    """

    draws: int
    seed: int

    def of(self, cell: Cell) -> Drawn:
        """Draws a cell's mean accuracies; a seed's two are drawn together."""
        rng = np.random.default_rng([self.seed, 0, *sorted(map(abs, cell.seeds))])
        weights = two_sample.t_weights(len(cell.seeds), self.draws, rng)
        named = f"{cell.recipe.label}/{cell.attribute}/{cell.level}"
        rng = np.random.default_rng([self.seed, 1, zlib.crc32(named.encode())])
        found = []
        for values, p, n in _sets(cell):
            images = rng.binomial(n, p, size=self.draws) / n - p
            drawn = np.clip(weights @ values + images, 0, 1)
            found.append(np.append(values.mean(), drawn))
        return Drawn(*found)


def _sets(cell: Cell) -> Iterator[tuple[shift_runs.Seeds, float, int]]:
    """Gives the accuracies in and out of distribution, with p and n of their images."""
    for values, n in zip((cell.inside, cell.outside), cell.tested, strict=True):
        yield values, (float(values.mean()) * n + 1) / (n + 2), n


def area(shares: Sequence[float], drops: Float[np.ndarray, "levels ..."]) -> np.ndarray:
    """Gives the mean height of a curve of drops over shares, by trapezoids.

    NaN for a single share.
    """
    if len(shares) < 2:
        return np.full(np.shape(drops)[1:], math.nan)
    return np.trapezoid(drops, shares, axis=0) / (shares[-1] - shares[0])


def p_larger(extreme: Cell, control: Cell | None = None, tau: float = 0.0) -> float:
    """p of: the drop at the extreme is at most tau points larger than at the control.

    t = (d - tau) / sqrt(v + w): v is the variance over seeds, each cell with one of its own
    as in Welch's test, since recipes vary most where a shift hurts; w that over test images
    (jbias.stats.two_sample). Without a control the drop is compared with 0. Of single seeds
    v is not known, and the test is of images.
    """
    excess, images, over_seeds = -tau, 0.0, []
    for sign, cell in ((1, extreme), (-1, control)):
        if cell is not None:
            drops, s = 100 * (cell.inside - cell.outside), len(cell.seeds)
            excess += sign * float(drops.mean())
            images += sum(100**2 * p * (1 - p) / n for _, p, n in _sets(cell))
            over_seeds += [(float(drops.var(ddof=1)) / s, s - 1)] if s > 1 else []
    total = sum(variance for variance, _ in over_seeds)
    parts = sum(variance**2 / free for variance, free in over_seeds)
    between = (total, total**2 / parts) if total else (0.0, 0)
    return two_sample.mean_exceeds(excess, between, images)


def told(name: str, drawn: Float[np.ndarray, "1+b"]) -> Row:
    """Gives a number with its interval."""
    one = estimate(drawn)
    return {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}


def spread(values: shift_runs.Seeds) -> str:
    """Shows accuracies of seeds in %, as mean ± standard deviation."""
    mean = two(100 * float(np.mean(values)))
    if len(values) < 2:
        return mean
    return f"{mean} ± {two(100 * float(np.std(values, ddof=1)))}"


def _both(cell: Cell) -> Row:
    return {"id": spread(cell.inside), "ood": spread(cell.outside)}


def _named(recipe: shift_runs.Recipe) -> Row:
    found = {name: getattr(recipe, name) for name in ("model", "algorithm", "data")}
    return found | {"setting": recipe.told or None}


def _groups(cell: Cell) -> Row:
    """Gives metrics of groups, in words and in full, and the number of seeds."""
    found = {}
    for (name, metric), values in cell.groups.items():
        found[f"_{metric}@{name}"] = spread(values)
        found[f"{metric}@{name}"] = 100 * float(np.mean(values))
    return found | {"seeds": len(cell.seeds)}


def verdicts(cells: Cells, draws: Draws, *, tau=5.0, alpha=0.05) -> tuple[Rows, Rows]:
    """Gives rows of recipes and attributes, and in their order rows of all their kinds.

    Bugs are first, then it is by normalised drop, each by its worst kind. A bug: for some kind
    the drop at the most extreme level less that at the control is surely above tau points: p
    of its being tau at most, adjusted after Holm over all candidates and kinds, is below alpha.
    """
    order = list(shifts.LEVELS)
    groups: dict[tuple, list[Cell]] = {}
    kinds = (cell for cell in cells if cell.kind)
    for cell in sorted(kinds, key=lambda one: order.index(one.level)):
        groups.setdefault((cell.recipe, cell.attribute, cell.kind), []).append(cell)
    shifted = [key for key in groups if groups[key][-1].share > shift_runs.CONTROL]
    p = {key: p_larger(*_ends(groups[key]), tau=tau) for key in shifted}
    holm = dict(zip(p, multiple_testing.adjust(list(p.values()), "holm"), strict=True))
    candidates: dict[tuple, Rows] = {}
    for key, those in groups.items():
        tested = {"verdict": UNKNOWN, "p": math.nan, "holm": math.nan}
        if key in p:
            verdict = BUG if holm[key] < alpha else NONE
            tested = {"verdict": verdict, "p": p[key], "holm": float(holm[key])}
        candidates.setdefault(key[:2], []).append(_curve(those, draws, tested))

    ranked = sorted(candidates, key=lambda key: (_rank(candidates[key]), key))
    named = ("_recipe", "model", "algorithm", "data", "setting", "attribute", "verdict")
    rows = []
    for i, key in enumerate(ranked, start=1):
        first = {name: candidates[key][0][name] for name in named}
        rows.append({"rank": str(i), **first, **(_worst(candidates[key]) or {})})
    return rows, [row for key in ranked for row in candidates[key]]


def _worst(kinds: Rows) -> Row | None:
    """The kind with the largest normalised drop; of those that are bugs, if any is."""
    tested = [row for row in kinds if row["verdict"] != UNKNOWN]
    bugs = [row for row in tested if row["verdict"] == BUG]
    return max(bugs or tested, key=lambda row: row["normalised"], default=None)


def _rank(kinds: Rows) -> tuple[bool, float]:
    one = _worst(kinds)
    return (one["verdict"] != BUG, -one["normalised"]) if one else (True, math.inf)


def _ends(cells: Cells) -> list[Cell]:
    """The most extreme level of a curve, and the control if it was run."""
    return [cells[-1], *cells[: cells[0].share == shift_runs.CONTROL]]


def _curve(cells: Cells, draws: Draws, tested: Row) -> Row:
    """Gives the row of one kind of shift, whose levels are rows of their own."""
    last, *control = _ends(cells)
    drawn = [draws.of(cell) for cell in cells]
    points = np.stack([one.points for one in drawn])
    relative = np.stack([one.percent for one in drawn])
    names = {**_named(last.recipe), "attribute": last.attribute}
    levels = []
    for cell, absolute, share in zip(cells, points, relative, strict=True):
        row = {**names, "level": cell.level, "share": cell.share} | _both(cell)
        row |= {"id_mean": 100 * float(cell.inside.mean())}
        row |= {"ood_mean": 100 * float(cell.outside.mean())}
        row |= told("drop", absolute) | told("percent", share)
        row |= _groups(cell) | {"images": cell.images or None}
        levels.append(row | dict(zip(("n_id", "n_ood"), cell.tested, strict=True)))
    counts = dict.fromkeys(str(len(cell.seeds)) for cell in (last, *control))
    row = {**names, "kind": last.kind, "verdict": tested["verdict"]}
    row |= {"level": last.level, "seeds": " and ".join(counts), **tested}
    row |= told("percent", relative[-1]) | told("drop", points[-1])
    row |= told("over", points[-1] - bool(control) * points[0])
    row |= told("normalised", relative[-1] - bool(control) * relative[0])
    row |= told("area", area([cell.share for cell in cells], points))
    row |= told("control", points[0] if control else points[0] * math.nan)
    return row | {"_recipe": last.recipe, "_levels": levels}


def _extremes(cells: Cells, key: Callable, fit: Callable) -> Iterator[list[Cell]]:
    """Gives of cells with the same key those at the most extreme level at which they fit."""
    groups: dict[tuple, dict[float, list[Cell]]] = {}
    for cell in cells:
        if cell.share > shift_runs.CONTROL:
            groups.setdefault(key(cell), {}).setdefault(cell.share, []).append(cell)
    for levels in groups.values():
        if fitting := [share for share, those in levels.items() if fit(those)]:
            yield levels[max(fitting)]


def remedies(cells: Cells, draws: Draws, reference: str = REFERENCE) -> list[Row]:
    """Gives the plain recipe and those beside it, at the most extreme level they share.

    closed: 1 - drop / that of the plain recipe. Raises ValueError for a reference that no
    recipe has as its algorithm.
    """
    known = sorted({cell.recipe.algorithm for cell in cells})
    if reference not in (*known, REFERENCE):
        raise ValueError(
            f"--reference: must be an algorithm of the runs, got {reference!r}: "
            f"{', '.join(known)}"
        )
    rows = []

    def alike(cell: Cell) -> tuple:
        shift = cell.kind or cell.level, *sorted(cell.options.items())
        return cell.recipe.model, cell.recipe.data, cell.attribute, cell.images, *shift

    def plain(those: Cells) -> list[Cell]:
        found = [x for x in those if x.recipe.algorithm == reference]
        return sorted(found, key=_plainness) if len(those) > 1 else []

    for those in _extremes(cells, alike, plain):
        first = plain(those)[0]
        others = [one for one in those if one is not first]
        rows += [_beside(one, first, draws) for one in (first, *others)]
    return rows


def _plainness(cell: Cell) -> tuple:
    """Of several plain recipes the one with the fewest inputs is first."""
    return len(cell.settings.get("inputs", "[]")), cell.recipe


def _beside(cell: Cell, plain: Cell, draws: Draws) -> Row:
    paired = "yes" if cell.seeds == plain.seeds else "no"
    row = {"data": cell.recipe.data, "attribute": cell.attribute, "level": cell.level}
    row |= {**_named(cell.recipe), "pairs": "plain" if cell is plain else paired}
    row |= _both(cell)
    mine, theirs = draws.of(cell), draws.of(plain)
    # Where a draw of the plain drop is not above 0, nothing can be closed.
    whole = np.where(theirs.points > 0, theirs.points, math.nan)
    closed = np.nan_to_num(1 - mine.points / whole, nan=-math.inf)
    compared = {"gain": 100 * (mine.outside - theirs.outside)}
    compared["id_cost"] = 100 * (theirs.inside - mine.inside)
    known = estimate(theirs.points).low > 0
    compared["closed"] = closed if known else closed * math.nan
    row |= told("drop", mine.points)
    for name, drawn in compared.items():
        row |= told(name, drawn * math.nan if cell is plain else drawn)
    return row | _groups(cell) | {"_cell": cell}


def ranks(cells: Cells, draws: Draws) -> Iterator[Row]:
    """Gives the agreement at the most extreme level of each kind that models share."""

    def alike(cell: Cell) -> tuple:
        recipe, kind = cell.recipe, shifts.KINDS.index(cell.kind)
        return recipe.algorithm, recipe.data, cell.attribute, recipe.dealt, kind

    kinds = [cell for cell in cells if cell.kind]
    found = _extremes(kinds, alike, lambda those: len(those) >= FEWEST)
    for those in sorted(found, key=lambda those: alike(those[0])):
        named = "here", *alike(those[0])[:3], those[0].kind
        drawn = Drawn(*map(np.stack, zip(*map(draws.of, those), strict=True)))
        yield agreement(named, [cell.recipe.network for cell in those], drawn)


def agreement(named: Sequence[str], models: Sequence[str], drawn: Drawn) -> Row:
    """Tests whether models rank alike; b may be 0, of numbers that cannot be drawn.

    named: whose ("here" or "paper"), algorithm, data, attribute and kind. drawn: of k models,
    arrays (k, 1 + b).
    """
    inside, outside = drawn
    tau = stats.kendall(inside[:, 0], outside[:, 0])
    rho = stats.spearman(inside[:, 0], outside[:, 0])
    first, second = np.triu_indices(len(inside), 1)
    left, right = (np.sign(x[first] - x[second]) for x in (inside, outside))
    scale = np.sqrt(np.abs(left).sum(axis=0) * np.abs(right).sum(axis=0))
    # tau-b of the draws as well, 0 where all is tied.
    taus = (left * right).sum(axis=0) / np.where(scale > 0, scale, 1)
    _, low, high = estimate(taus) if len(taus) > 1 else [math.nan] * 3
    crossed, pairs = int((left[:, 0] * right[:, 0] < 0).sum()), len(first)
    words = ("whose", "algorithm", "data", "attribute", "kind")
    row = dict(zip(words, named, strict=True)) | {"models": ", ".join(models)}
    row |= {"tau": tau.statistic, "tau_p": tau.pvalue, "low": low, "high": high}
    row |= dict(rho=rho.statistic, rho_p=rho.pvalue, discordant=crossed)
    row |= dict(pairs=pairs, n=len(inside))
    row |= {"interval": None if math.isnan(low) else f"[{two(low)}, {two(high)}]"}
    return row | {"crossed": f"{crossed} of {pairs}"}
