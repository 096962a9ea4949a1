"""Rank correlations between measures of the same models, with permutation tests.

Spearman's rho and Kendall's tau-b, of a pair or of whole tables (`pairwise_matrix`, where
each pair counts the models that have both); `partial`, with
a category or other measures controlled for; `influence` of single models on a correlation,
and `bootstrap_interval` over models, of plain and of partial correlations.

Sources:
correlations: Spearman 1904; Kendall 1938 and 1945 (ties),
  https://doi.org/10.1093/biomet/33.3.239.
p-values: Phipson and Smyth 2010, https://doi.org/10.2202/1544-6115.1585, for the 1 in
  (1 + hits) / (1 + draws). Gavrikov and Keuper (CVPR 2024,
  https://arxiv.org/abs/2404.01509) give the ratio of draws without that 1.
partial: Kendall 1942, https://doi.org/10.1093/biomet/32.3-4.277 (partial rank correlation);
  Freedman and Lane 1983, https://doi.org/10.1080/07350015.1983.10509354, and Anderson and
  Robinson 2001, https://doi.org/10.1111/1467-842X.00156 (permutation of residuals).
influence: Devlin, Gnanadesikan and Kettenring 1975,
  https://doi.org/10.1093/biomet/62.3.531 (one observation); Belsley, Kuh and Welsch 1980,
  section 2.1 (DFBETAS and their cut at 2 / sqrt(n)).
bootstrap_interval: Efron and Tibshirani 1993, chapter 13 (percentile interval).
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Literal

import numpy as np
import pandas as pd
import scipy.stats
from jaxtyping import Bool, Float, Int

from jbias.stats import score_table
from jbias.stats.multiple_testing import adjust

Names = Sequence[str]
_CELLS = 2**21  # Numbers that a batch of draws, or of resamples, may hold.


def draw_orders(
    groups: Int[np.ndarray, "n"], permutations: int, seed: int, cells: int
) -> tuple[int, bool, Iterator[Int[np.ndarray, "b n"]]]:
    """Gives number, whether they are all, and batches of orders that stay within groups.

    All where there are no more than `permutations`, else that many random ones.
    A batch has about 2^21 / `cells` of them; the draws do not depend on that.
    """
    score_table.check_count("permutations", permutations)
    members = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    total = math.prod(math.factorial(len(one)) for one in members)
    size = max(1, _CELLS // cells)
    if total <= permutations:
        return total, True, _all_orders(members, len(groups), size)
    rng = np.random.default_rng(seed)
    return permutations, False, _random_orders(members, permutations, rng, size)


def _all_orders(members, n: int, size: int) -> Iterator[np.ndarray]:
    every = itertools.product(*map(itertools.permutations, members))
    places = np.concatenate(members)
    while some := list(itertools.islice(every, size)):
        batch = np.empty((len(some), n), np.intp)
        batch[:, places] = [list(itertools.chain(*one)) for one in some]
        yield batch


def _random_orders(members, count: int, rng, size: int) -> Iterator[np.ndarray]:
    n = sum(map(len, members))
    generators = rng.spawn(len(members))
    for start in range(0, count, size):
        batch = np.empty((min(size, count - start), n), np.intp)
        for one, generator in zip(members, generators, strict=True):
            batch[:, one] = generator.permuted(np.tile(one, (len(batch), 1)), axis=1)
        yield batch


def permutation_pvalue(hits, draws: int, exact: bool):
    """Gives p from how many draws reach the observed; all orders hold that itself."""
    return hits / draws if exact else (1 + hits) / (1 + draws)


def smallest_pvalue(n: int, permutations: int) -> float:
    """Gives the smallest p that two measures of n models can have, ties or none.

    Of all n! orders the one that was observed and its reverse reach the largest
    correlation, and with ties others, too; of random orders none but that itself need do.
    """
    total = math.factorial(n)
    if total <= permutations:
        return 2 / total
    return permutation_pvalue(0, permutations, exact=False)


Values = Sequence[float] | Float[np.ndarray, "n"] | pd.Series
# Sums of floats in another order must not turn a tie with the observed one into less.
SLACK = 1e-12


@dataclasses.dataclass(frozen=True)
class CorrelationResult:
    """One correlation; both numbers are NaN where a measure is constant."""

    statistic: float  # -1 to 1.
    pvalue: float  # Two-sided.
    n: int  # Models.
    draws: int  # Orders that were tried.
    exact: bool  # They were all that there are.


@dataclasses.dataclass(frozen=True, eq=False)
class MatrixResult:
    """Correlations of a family of pairs: one frame each, measures x by measures y.

    Without y the pairs are those of different x; the diagonal has no test and NaN.
    """

    statistic: pd.DataFrame
    pvalue: pd.DataFrame
    holm: pd.DataFrame  # pvalue adjusted over the family.
    bh: pd.DataFrame
    n: int  # Models.
    family: int  # Pairs that the adjustment counts.
    draws: int
    exact: bool


def spearman(
    x: Values, y: Values, *, permutations: int = 9_999, seed: int = 0
) -> CorrelationResult:
    """Correlates the ranks of two measures; ties share their mean rank.

    rho is Pearson's correlation of the ranks; p = (1 + #{|rho*| >= |rho| - 1e-12}) / (1 + N)
    over N random orders of y, or the share of all n! orders where those are no more
    than N. Constant measures give NaN. Raises ValueError for fewer than 3 models,
    unequal lengths and numbers that are not finite.
    """
    return _pair(_spearman, x, y, permutations, seed)


def kendall(
    x: Values, y: Values, *, permutations: int = 9_999, seed: int = 0
) -> CorrelationResult:
    """Counts how many pairs of models two measures order alike: tau-b.

    tau_b = sum_{i<j} sign(x_i - x_j) sign(y_i - y_j) / sqrt((m - ties_x) (m - ties_y)),
    m = n (n-1) / 2. p, constant measures and refusals are as of `spearman`.
    """
    return _pair(_kendall, x, y, permutations, seed)


def _adjusted(
    x: Names,
    y: Names,
    n: int,
    statistic: Float[np.ndarray, "p q"],
    pvalue: Float[np.ndarray, "p q"],
    draws: int,
    exact: bool,
) -> MatrixResult:
    """Adjusts p over the family; without y that is what lies above the diagonal.

    For the draws of (i, j) and (j, i) are not the same orders.
    """
    family = np.isfinite(pvalue) if y else np.triu(np.isfinite(pvalue), 1)
    tables = {"pvalue": np.where(family, pvalue, math.nan)}
    for how in ("holm", "bh"):
        tables[how] = np.full(pvalue.shape, math.nan)
        tables[how][family] = adjust(pvalue[family], how)
    if not y:
        tables = {how: np.where(family.T, p.T, p) for how, p in tables.items()}
    tables["statistic"] = statistic
    named = dict(index=list(x), columns=list(y or x))
    return MatrixResult(
        n=n,
        family=int(family.sum()),
        draws=draws,
        exact=exact,
        **{name: pd.DataFrame(table, **named) for name, table in tables.items()},
    )


def numeric_columns(frame: pd.DataFrame, names: Names) -> Float[np.ndarray, "n k"]:
    """Gives columns as numbers; refuses, by model and measure, what is not finite."""
    values = frame[list(names)].apply(pd.to_numeric, errors="coerce")
    values = values.to_numpy(np.float64)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        i, j = bad[0]
        more = f" ({len(bad)} such cells)" if len(bad) > 1 else ""
        raise ValueError(
            f"{names[j]}: must be a finite number for every model, got "
            f"{frame[names[j]].tolist()[i]!r} for {frame.index[i]}{more}; fill the cell or "
            "leave the model or the measure out"
        )
    told = f"{len(values)}; two always go together"
    score_table.check(len(values) > 2, "models", "be at least 3", told)
    return values


def standardize(values: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Centres columns and gives them length 1; constant ones become NaN."""
    centred = values - values.mean(axis=0)
    length = np.linalg.norm(centred, axis=0)
    scale = np.linalg.norm(values, axis=0)
    return centred / np.where(length > 1e-12 * scale, length, math.nan)


def _check_names(
    frame: pd.DataFrame, x: Names, y: Names, method: str, given: Names = ()
) -> tuple[str, ...]:
    """Gives x, or all other columns where that is (); refuses names that do not fit."""
    score_table.find_name(method, tuple(_METHODS), "method")
    if given:
        must = f"be spearman for what is left given {given[0]!r}"
        score_table.check(method == "spearman", "method", must, method)
    x = tuple(x) or tuple(name for name in frame.columns if name not in given)
    named = [*x, *y, *given]
    unknown = [name for name in named if name not in frame.columns]
    if unknown:
        raise ValueError(
            f"measures: must be columns, got {unknown[0]!r}: "
            f"{', '.join(map(str, frame.columns))}"
        )
    doubled = [name for name in named if named.count(name) > 1]
    if doubled or not frame.columns.is_unique:
        raise ValueError(
            "measures: must each be named once, on one side, got "
            f"{doubled[0] if doubled else 'columns of one name'!r} twice; name it once"
        )
    several = bool(y) or len(x) > 1
    score_table.check(several, "measures", "be at least 2 to correlate", len(x))
    return x


def _spearman(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, Callable, int]:
    """Gives the statistics, a function from orders to theirs (b p q), and its cells."""
    x, y = (standardize(scipy.stats.rankdata(values, axis=0)) for values in (x, y))

    def under(order):
        return np.moveaxis(np.tensordot(x.T, y[order], axes=(1, 1)), 0, 1)

    return x.T @ y, under, y.size


def _kendall(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, Callable, int]:
    first, second = np.triu_indices(len(x), 1)

    def signs(values):
        return np.sign(values[first] - values[second]).astype(np.float32)

    def pairs(values):
        return np.sqrt(np.count_nonzero(values, axis=0).astype(np.float64))

    left, right = signs(x), signs(y)
    scale = pairs(left)[:, None] * pairs(right)
    scale[scale == 0] = math.nan
    tables = np.sign(y[:, None] - y[None]).astype(np.float32)
    tables = tables.reshape(-1, y.shape[1])  # (n * n, q), one place a pair.

    def under(order):
        drawn = tables.take(order[:, first] * len(y) + order[:, second], axis=0)
        # Sums of -1, 0 and 1 are exact in float32 for less than 5,000 models.
        return np.moveaxis(np.tensordot(left.T, drawn, axes=(1, 1)), 0, 1) / scale

    return (left.T @ right) / scale, under, right.size


_METHODS = {"spearman": _spearman, "kendall": _kendall}


def _test(kind: Callable, x: np.ndarray, y: np.ndarray, permutations: int, seed: int):
    """Gives statistics and p-values (p q), the number of draws and whether exact."""
    statistic, under, cells = kind(x, y)
    one = np.zeros(len(x), int)
    draws, exact, batches = draw_orders(one, permutations, seed, cells)
    hits = np.zeros(statistic.shape)
    for order in batches:
        hits += (np.abs(under(order)) >= np.abs(statistic) - SLACK).sum(axis=0)
    pvalue = permutation_pvalue(hits, draws, exact)
    pvalue = np.where(np.isnan(statistic), math.nan, pvalue)
    return np.clip(statistic, -1, 1), pvalue, draws, exact


def _pair(kind: Callable, x, y, permutations: int, seed: int) -> CorrelationResult:
    x, y = as_columns(x=x, y=y)
    *found, draws, exact = _test(kind, x[:, None], y[:, None], permutations, seed)
    statistic, pvalue = (float(one[0, 0]) for one in found)
    return CorrelationResult(statistic, pvalue, len(x), draws, exact)


def as_columns(**named: Values) -> list[Float[np.ndarray, "n"]]:
    """Gives measures of the same models as arrays; refuses what does not fit together."""
    arrays = {name: _real_numbers(values) for name, values in named.items()}
    shapes = {array.shape for array in arrays.values()}
    alike = len(shapes) == 1 and len(next(iter(shapes))) == 1
    told = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
    must = "be lists of one length, a number each model"
    score_table.check(alike, "measures", must, told)
    values = numeric_columns(pd.DataFrame(arrays), tuple(arrays))
    return [values[:, j] for j in range(len(arrays))]


def _real_numbers(values: Values) -> np.ndarray:
    """Return the values as an array, NaN where masked, of kinds that are real numbers."""
    if np.ma.isMaskedArray(values):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    array = np.asarray(values)
    is_other = array.dtype.kind in "cmM" or any(
        isinstance(value, complex) for value in array.ravel() if array.dtype.kind == "O"
    )
    score_table.check(not is_other, "measures", "be real numbers", array.dtype)
    return array


MIN_MODELS = 4  # Models that a pair must share.


def complete_models(frame: pd.DataFrame, *measures: str) -> pd.DataFrame:
    """Gives the models that have all these measures."""
    return frame[frame[[*measures]].notna().all(axis=1)]


def pairwise_matrix(
    frame: pd.DataFrame,
    x: Names = (),
    y: Names = (),
    *,
    given: Names = (),
    method: Literal["spearman", "kendall"] = "spearman",
    permutations: int = 9_999,
    seed: int = 0,
) -> MatrixResult:
    """Correlates the columns x of a frame of models with its columns y, and adjusts p.

    () for x is all columns, () for y the pairs within x. A pair is tested over the models
    that have both, and NaN where fewer than 4 do; `n` is the number of all models. Its cell is
    what `spearman` or `kendall` gives of these with the same seed. Pairs with a constant
    measure are NaN and no part of the family. With measures `given` each pair is `partial` with
    these as covariates, over the models that have all, and NaN where fewer than 4, and one more
    for each given, do. Raises ValueError as `spearman`, for columns that are unknown or
    doubled, and for a measure on both sides.
    """
    x = _check_names(frame, x, y, method, given)
    asked = dict(permutations=permutations, seed=seed)
    if not given and not frame[[*x, *y]].isna().any(axis=None):
        left = numeric_columns(frame, x)
        right = numeric_columns(frame, y) if y else left
        found = _test(_METHODS[method], left, right, **asked)
        return _adjusted(x, y, len(left), *found)
    columns = list(y or x)
    shape = (len(x), len(columns))
    statistic, pvalue = np.full(shape, math.nan), np.full(shape, math.nan)
    draws, exact = 0, True
    pairs = [(i, j) for i in range(shape[0]) for j in range(shape[1]) if y or i < j]
    for i, j in pairs:
        names = (x[i], columns[j], *given)
        both = complete_models(frame, *names)
        if len(both) < MIN_MODELS + len(given):
            continue
        one, other, *rest = numeric_columns(both, names).T
        if given:
            found = partial(one, other, covariates=rest, **asked)
        else:
            found = _pair(_METHODS[method], one, other, **asked)
        statistic[i, j], pvalue[i, j] = found.statistic, found.pvalue
        draws, exact = max(draws, found.draws), exact and found.exact
    if not y:
        statistic = np.where(np.isnan(statistic), statistic.T, statistic)
        np.fill_diagonal(statistic, 1)
    return _adjusted(x, y, len(frame), statistic, pvalue, draws, exact)


def partial(
    x: Values,
    y: Values,
    *,
    groups: Sequence[Hashable] | None = None,
    covariates: Sequence[Values] = (),
    permutations: int = 9_999,
    seed: int = 0,
) -> CorrelationResult:
    """Correlates what of the ranks of x and y a category and covariates leave unexplained.

    rho = r_x . r_y / (|r_x| |r_y|), r the residuals of the ranks after least squares on a
    constant for each group and on the ranks of the covariates: for one covariate z,
    (rho_xy - rho_xz rho_yz) / sqrt((1 - rho_xz^2) (1 - rho_yz^2)). Ranks are taken over all
    models, so that a group counts by its spread. A model alone in its group says nothing.
    p reorders r_y within groups, fits the controls again, and counts as `spearman`: with
    groups alone exact under the null of no relation within groups, with covariates
    approximate. NaN where the controls explain x or y whole. Raises ValueError without
    groups and covariates, for what `spearman` refuses, and where the controls leave fewer
    than 2 degrees of freedom.
    """
    named = {f"covariate {i}": values for i, values in enumerate(covariates)}
    columns = as_columns(x=x, y=y, **named)
    n = len(columns[0])
    ranks = scipy.stats.rankdata(np.stack(columns, 1), axis=0)
    codes, basis = _controls(groups, ranks[:, 2:], n)
    left, right = _residuals(ranks[:, 0], basis), _residuals(ranks[:, 1], basis)
    statistic = float(left @ right)
    draws, exact, batches = draw_orders(codes, permutations, seed, n)
    hits = 0
    for order in batches:
        drawn = right[order]
        # Compared without division: where nothing is left after the fit, it is a hit.
        length = np.sqrt(np.clip(1 - ((drawn @ basis) ** 2).sum(axis=1), 0, 1))
        reach = np.abs(drawn @ left) - abs(statistic) * length
        hits += int((reach >= -SLACK).sum())
    unknown = math.isnan(statistic)
    pvalue = math.nan if unknown else permutation_pvalue(hits, draws, exact)
    return CorrelationResult(statistic, pvalue, n, draws, exact)


def unexplained(x: Values, covariates: Sequence[Values]) -> float:
    """Gives the share of the variance of x's ranks that covariates' ranks leave: 1 - R^2.

    1 / that is x's variance inflation factor. NaN where x is constant. Raises ValueError for
    what `partial` refuses.
    """
    named = {f"covariate {i}": values for i, values in enumerate(covariates)}
    ranks = scipy.stats.rankdata(np.stack(as_columns(x=x, **named), axis=1), axis=0)
    _, basis = _controls(None, ranks[:, 1:], len(ranks))
    (centred,) = standardize(ranks[:, :1]).T
    return float(((centred - basis @ (basis.T @ centred)) ** 2).sum())


def _controls(groups, covariates: Float[np.ndarray, "n c"], n: int):
    """Gives the code of each model's group, and an orthonormal basis of the controls."""
    if groups is None and not covariates.shape[1]:
        raise ValueError("partial: must control for groups or covariates, got neither")
    codes = np.zeros(n, int)
    if groups is not None:
        codes = pd.factorize(np.asarray(list(groups), object))[0]
    lacking = f"{codes.size} with {int((codes < 0).sum())} missing"
    told = f"{lacking}; fill them or leave the models out"
    sound, must = codes.shape == (n,), f"name one for each of {n} models"
    score_table.check(sound and codes.min() >= 0, "groups", must, told)
    design = np.column_stack([np.eye(codes.max() + 1)[codes], covariates])
    vectors, values, _ = np.linalg.svd(design, full_matrices=False)
    basis = vectors[:, values > values[0] * n * np.finfo(float).eps]
    if n - basis.shape[1] < 2:
        raise ValueError(
            f"partial: {n} models less {basis.shape[1]} controls leave "
            f"{n - basis.shape[1]} degrees of freedom, 2 are needed; control for less"
        )
    return codes, basis


def _residuals(ranks: Float[np.ndarray, "n"], basis: np.ndarray) -> np.ndarray:
    """Gives what the controls leave, of length 1; NaN where that is nothing."""
    left = ranks - basis @ (basis.T @ ranks)
    length = np.linalg.norm(left)
    return left / (length if length > 1e-10 * np.linalg.norm(ranks) else math.nan)


@dataclasses.dataclass(frozen=True, eq=False)
class InfluenceResult:
    """What each model does to a rank correlation."""

    statistic: float  # Of all models.
    without: Float[np.ndarray, "n"]  # rho of all others; NaN if theirs is constant.
    influence: Float[np.ndarray, "n"]  # statistic - without: what the model adds.
    flagged: Bool[np.ndarray, "n"]


@dataclasses.dataclass(frozen=True)
class IntervalResult:
    """A percentile bootstrap interval of a rank correlation."""

    statistic: float
    low: float
    high: float
    level: float
    resamples: int
    constant: int  # Resamples without a rho, left out of the interval.


def influence(x: Values, y: Values) -> InfluenceResult:
    """Leaves out one model after the other and flags those that rho rests on.

    influence_i = rho - rho_(i), ranks taken anew. Flagged is |influence_i| > 2 s_i / sqrt(n),
    s_i = sqrt((1 - rho_(i)^2) / (n - 3)) the standard error of rho_(i): the DFBETAS rule for
    the slope of ranks on ranks. It asks what a model does to rho, not how far out it lies:
    one far out on the common trend is an outlier by a Mahalanobis distance and none
    here. Several alike hide each other. NaN is never flagged. Raises ValueError for fewer
    than 4 models and what `correlation.spearman` refuses.
    """
    x, y = as_columns(x=x, y=y)
    n = len(x)
    score_table.check(n > 3, "models", "be at least 4 to leave one out", n)
    every = np.arange(n)[None]
    others = np.nonzero(~np.eye(n, dtype=bool))[1].reshape(n, n - 1)
    statistic, without = float(_rho(x, y, rows=every)[0]), _rho(x, y, rows=others)
    change = statistic - without
    error = np.sqrt((1 - without**2) / (n - 3))
    flagged = np.abs(change) > 2 / math.sqrt(n) * error + SLACK
    return InfluenceResult(statistic, without, change, flagged)


def bootstrap_interval(
    x: Values,
    y: Values,
    *,
    covariates: Sequence[Values] = (),
    level: float = 0.95,
    resamples: int = 9_999,
    seed: int = 0,
) -> IntervalResult:
    """Gives the range of rho, `partial` with covariates, over models drawn again.

    From the (1 - level) / 2 to the (1 + level) / 2 quantile of rho over the resamples, which
    describes other models of the same kind; with few models it is too short. Resamples in
    which a measure is constant, or covariates explain it whole, have no rho: they are counted
    and left out. NaN where none has one. Raises ValueError for a level outside of (0, 1) and
    what `correlation.spearman` and `correlation.partial` refuse.
    """
    score_table.check_share("level", level)
    score_table.check_count("resamples", resamples)
    named = {f"covariate {i}": values for i, values in enumerate(covariates)}
    columns = as_columns(x=x, y=y, **named)
    n, rng = len(columns[0]), np.random.default_rng(seed)
    if covariates:
        _controls(None, np.stack(columns[2:], axis=1), n)  # Refuses too many.
    rows, size = rng.integers(n, size=(resamples, n)), max(1, _CELLS // n)
    parts = np.split(rows, range(size, resamples, size))
    drawn = np.concatenate([_rho(*columns, rows=some) for some in parts])
    known = drawn[np.isfinite(drawn)]
    ends = [(1 - level) / 2, (1 + level) / 2]
    low, high = np.quantile(known, ends) if len(known) else (math.nan, math.nan)
    of = float(_rho(*columns, rows=np.arange(n)[None])[0]), float(low), float(high)
    return IntervalResult(*of, level, resamples, resamples - len(known))


def _rho(
    *columns: Float[np.ndarray, "n"], rows: Int[np.ndarray, "b m"]
) -> Float[np.ndarray, "b"]:
    """Gives rho of x and y, given the further columns, of every choice of models.

    NaN where x or y is constant or explained whole.
    """
    ranks = [standardize(scipy.stats.rankdata(v[rows], axis=1).T) for v in columns]
    while len(ranks) > 2:
        given = np.nan_to_num(ranks.pop())  # A constant controls for nothing.
        for k, one in enumerate(ranks):
            left = one - given * (one * given).sum(axis=0)
            length = np.linalg.norm(left, axis=0)
            ranks[k] = left / np.where(length > 1e-10, length, math.nan)
    left, right = ranks
    return np.clip((left * right).sum(axis=0), -1, 1)
