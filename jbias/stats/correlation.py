"""Rank correlations between measures of the same models, with permutation tests.

`spearman` and `kendall` (tau-b) are for one pair of measures. `pairwise_matrix` is for whole
tables, and uses for each pair the models that have both measures. `partial` correlations are
controlled for a category or other measures. `influence` is the effect of single models on a
correlation. `bootstrap_interval` is over models, for correlations and partial correlations.

Sources:
correlations: Spearman 1904; Kendall 1938 and 1945 (ties),
  https://doi.org/10.1093/biomet/33.3.239.
p-values: Phipson and Smyth 2010, https://doi.org/10.2202/1544-6115.1585, for the 1 in
  (1 + hits) / (1 + draws). Gavrikov and Keuper (CVPR 2024,
  https://arxiv.org/abs/2404.01509) use hits / draws without the 1.
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
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import scipy.stats
from jaxtyping import Bool, Float, Int

from jbias import errors
from jbias.stats import score_table
from jbias.stats.multiple_testing import adjust

Names = Sequence[str]
_BATCH_CELLS = 2**21  # Numbers that a batch of draws, or of resamples, may hold.


class Orders(NamedTuple):
    """Orders of n models, as arrays of indices in batches."""

    count: int
    exact: bool  # All possible orders, not random ones.
    batches: Iterator[Int[np.ndarray, "b n"]]


def draw_orders(
    groups: Int[np.ndarray, "n"], permutations: int, *, seed: int, cells: int
) -> Orders:
    """Return orders of n models, as indices, in which models move only within their groups.

    All such orders if there are at most `permutations`, else `permutations` random ones.
    groups: number of each model's group.
    cells: number of array elements that one order needs in memory; a batch has about 2^21 / `cells`
    orders. The random orders do not depend on `cells`. Raise ValueError for fewer than 1
    permutation.
    """
    errors.check_at_least("permutations", permutations)
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    total = math.prod(math.factorial(len(indices)) for indices in members)
    size = max(1, _BATCH_CELLS // cells)
    if total <= permutations:
        return Orders(total, True, _all_orders(members, size))
    rng = np.random.default_rng(seed)
    batches = _random_orders(members, size, count=permutations, rng=rng)
    return Orders(permutations, False, batches)


def _all_orders(
    members: Sequence[np.ndarray], size: int
) -> Iterator[Int[np.ndarray, "b n"]]:
    """Yield all orders within groups, in batches of `size`; members: indices per group."""
    orders = itertools.product(*map(itertools.permutations, members))
    places = np.concatenate(members)
    while batch := list(itertools.islice(orders, size)):
        indices = np.empty((len(batch), len(places)), np.intp)
        indices[:, places] = [list(itertools.chain(*order)) for order in batch]
        yield indices


def _random_orders(
    members: Sequence[np.ndarray], size: int, *, count: int, rng: np.random.Generator
) -> Iterator[Int[np.ndarray, "b n"]]:
    """Yield `count` random orders within groups, in batches of `size`.

    members: indices of the models of each group.
    """
    n = sum(map(len, members))
    generators = rng.spawn(len(members))
    for start in range(0, count, size):
        batch = np.empty((min(size, count - start), n), np.intp)
        for indices, generator in zip(members, generators, strict=True):
            in_place = np.tile(indices, (len(batch), 1))
            batch[:, indices] = generator.permuted(in_place, axis=1)
        yield batch


def permutation_pvalue(
    hits: int | Int[np.ndarray, "..."], draws: int, *, exact: bool
) -> float | Float[np.ndarray, "..."]:
    """Return hits / draws if `exact`, else (1 + hits) / (1 + draws).

    hits: number of draws (a number or an array) with a statistic at least as extreme as the
    observed one. exact: draws are all orders, which include the observed one.
    """
    return hits / draws if exact else (1 + hits) / (1 + draws)


def smallest_pvalue(n: int, permutations: int) -> float:
    """Return the smallest p-value that two measures of n models can have, with or without ties.

    permutations: see `spearman`.

    If all n! orders are used, the observed order and its reverse reach the largest correlation, and
    with ties also further orders. Random orders may include none of these orders.
    """
    total = math.factorial(n)
    if total <= permutations:
        return 2 / total
    return permutation_pvalue(0, permutations, exact=False)


Values = Sequence[float] | Float[np.ndarray, "n"] | pd.Series
# A tie with the observed statistic must count although its sum may have another order.
SLACK = 1e-12


@dataclasses.dataclass(frozen=True)
class CorrelationResult:
    """A correlation and its test; statistic and pvalue are NaN if a measure is constant."""

    statistic: float  # -1 to 1.
    pvalue: float  # Two-sided.
    n: int  # Models.
    draws: int  # Orders in the permutation test.
    exact: bool  # The test used all possible orders.


@dataclasses.dataclass(frozen=True, eq=False)
class MatrixResult:
    """Correlations of a family of pairs, as frames of measures x by measures y.

    Without y, the pairs are all pairs of two measures in x; p-values are NaN on the diagonal.
    """

    statistic: pd.DataFrame
    pvalue: pd.DataFrame
    holm: pd.DataFrame  # pvalue adjusted over the family by Holm's method.
    bh: pd.DataFrame  # pvalue adjusted by Benjamini and Hochberg's method.
    n: int  # Models.
    family: int  # Number of pairs in the adjustment.
    draws: int  # Orders in a permutation test; the maximum over pairs.
    exact: bool  # All tests used all possible orders.


def spearman(
    x: Values, y: Values, *, permutations: int = 9_999, seed: int = 0
) -> CorrelationResult:
    """Return Spearman's rank correlation of two measures of the same models, with its test.

    x, y: one number per model; tied numbers have their mean rank.
    rho is Pearson's correlation of the ranks; p = (1 + #{|rho*| >= |rho| - 1e-12}) / (1 + N)
    over N = permutations random orders of y, or the share of all n! orders if there are at
    most N. Constant measures give NaN. Raise ValueError for fewer than 3 models, unequal
    lengths, numbers that are not finite and fewer than 1 permutation.
    """
    return _test_pair(_spearman, x, y, permutations=permutations, seed=seed)


def kendall(
    x: Values, y: Values, *, permutations: int = 9_999, seed: int = 0
) -> CorrelationResult:
    """Return Kendall's tau-b of two measures of the same models, with its test.

    tau_b = sum_{i<j} sign(x_i - x_j) sign(y_i - y_j) / sqrt((m - ties_x) (m - ties_y)),
    m = n (n-1) / 2. Arguments, p, constant measures and errors: see `spearman`.
    """
    return _test_pair(_kendall, x, y, permutations=permutations, seed=seed)


def _adjust_family(
    tests: "_Tests", x: Names, y: Names, *, num_models: int
) -> MatrixResult:
    """Return the tests of x by y, with p-values adjusted by Holm and by Benjamini and Hochberg.

    Without y, each measure of x is correlated with each other measure of x.
    A p that is NaN is not part of the family. num_models: `n` of the result.
    Without y, the family is the pairs above the diagonal, and their p-values are copied below the
    diagonal: p of (i, j) and of (j, i) may differ, because their random orders differ.
    """
    pvalue = tests.pvalue
    is_member = np.isfinite(pvalue) if y else np.triu(np.isfinite(pvalue), 1)
    holm, bh = np.full(pvalue.shape, math.nan), np.full(pvalue.shape, math.nan)
    holm[is_member] = adjust(pvalue[is_member], "holm")
    bh[is_member] = adjust(pvalue[is_member], "bh")
    pvalue = np.where(is_member, pvalue, math.nan)

    def frame(values: Float[np.ndarray, "p q"]) -> pd.DataFrame:
        """Return values as a frame with the names x as rows and y (without y: x) as columns."""
        return pd.DataFrame(values, index=list(x), columns=list(y or x))

    def frame_of_pvalues(values: Float[np.ndarray, "p q"]) -> pd.DataFrame:
        """Return p-values as a frame; without y, p above the diagonal is copied below it."""
        return frame(values if y else np.where(is_member.T, values.T, values))

    return MatrixResult(
        statistic=frame(tests.statistic),
        pvalue=frame_of_pvalues(pvalue),
        holm=frame_of_pvalues(holm),
        bh=frame_of_pvalues(bh),
        n=num_models,
        family=int(is_member.sum()),
        draws=tests.draws,
        exact=tests.exact,
    )


def numeric_columns(frame: pd.DataFrame, names: Names) -> Float[np.ndarray, "n k"]:
    """Return columns of a frame (rows: models, columns: measures) as an array of numbers.

    names: the columns, in the order of the result. Texts of numbers are converted. Raise
    ValueError for a cell that is not a finite number, and for fewer than 3 models.
    """
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
    errors.check(
        len(values) > 2,
        "models",
        "be at least 3",
        len(values),
        "add models, as two are always perfectly correlated",
    )
    return values


def standardize(values: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Return the columns centred and scaled to Euclidean length 1; NaN for constant columns."""
    centred = values - values.mean(axis=0)
    length = np.linalg.norm(centred, axis=0)
    scale = np.linalg.norm(values, axis=0)
    return centred / np.where(length > 1e-12 * scale, length, math.nan)


def _check_names(
    frame: pd.DataFrame, x: Names, y: Names, *, method: str, given: Names
) -> tuple[str, ...]:
    """Return the names x, or if x is () all columns except `given`.

    frame: a column per measure. y: names to correlate x with, or (). given: names of covariates,
    only with the method "spearman". Raise ValueError for names that are unknown, repeated or
    both in x and y, for fewer than two measures without y, and for an unknown method.
    """
    score_table.find_name(method, tuple(_METHODS), "method")
    if given:
        errors.check(
            method == "spearman",
            "method",
            f"be spearman for partial correlations given {given[0]!r}",
            errors.Words(method),
        )
    x = tuple(x) or tuple(name for name in frame.columns if name not in given)
    names = [*x, *y, *given]
    unknown = [name for name in names if name not in frame.columns]
    if unknown:
        raise ValueError(
            f"measures: must be columns, got {unknown[0]!r}: "
            f"{', '.join(map(str, frame.columns))}"
        )
    doubled = [name for name in names if names.count(name) > 1]
    if doubled or not frame.columns.is_unique:
        raise ValueError(
            "measures: must each be named once, on one side, got "
            f"{doubled[0] if doubled else 'columns of one name'!r} twice; name it once"
        )
    errors.check(
        bool(y) or len(x) > 1, "measures", "be at least 2 to correlate", len(x)
    )
    return x


class _Statistics(NamedTuple):
    """Correlations of measures x by measures y, and of x with permuted y.

    `permuted` maps b orders, arrays of indices of the n models, to the correlations in each order.
    """

    observed: Float[np.ndarray, "p q"]
    permuted: Callable[[Int[np.ndarray, "b n"]], Float[np.ndarray, "b p q"]]
    cells: int  # Numbers that one order needs in memory.


def _spearman(x: Float[np.ndarray, "n p"], y: Float[np.ndarray, "n q"]) -> _Statistics:
    """Return Spearman's rho of each column of x with each column of y, observed and permuted.

    The field `permuted` is a function that returns rho for permuted y. A constant column has NaN.
    """
    x, y = (standardize(scipy.stats.rankdata(values, axis=0)) for values in (x, y))

    def permuted(orders):
        """Return the correlations of x with y in each order, (b, p, q).

        orders: indices of models, (b, n). x and y are variables of the enclosing call.
        """
        return np.moveaxis(np.tensordot(x.T, y[orders], axes=(1, 1)), 0, 1)

    return _Statistics(observed=x.T @ y, permuted=permuted, cells=y.size)


def _kendall(x: Float[np.ndarray, "n p"], y: Float[np.ndarray, "n q"]) -> _Statistics:
    """Return Kendall's tau-b of each column of x with each column of y, observed and permuted.

    The field `permuted` is a function that returns tau-b for permuted y. A constant column has NaN.
    """
    first, second = np.triu_indices(len(x), 1)

    def signs(values):
        """Return the sign of the difference of each pair of models, -1, 0 or 1, as float32.

        values: (n, p), a row per model; the result has a row per pair, (n (n-1) / 2, p).
        """
        return np.sign(values[first] - values[second]).astype(np.float32)

    def root_of_untied(signs_of_pairs):
        """Return the square root of the number of pairs without a tie, per column, (p,).

        signs_of_pairs: result of `signs`, (n (n-1) / 2, p).
        """
        untied = np.count_nonzero(signs_of_pairs, axis=0)
        return np.sqrt(untied.astype(np.float64))

    x_signs, y_signs = signs(x), signs(y)
    scale = root_of_untied(x_signs)[:, None] * root_of_untied(y_signs)
    scale[scale == 0] = math.nan
    sign_table = np.sign(y[:, None] - y[None]).astype(np.float32)
    sign_table = sign_table.reshape(
        -1, y.shape[1]
    )  # (n * n, q), a row per ordered pair.

    def permuted(orders):
        """Return the correlations of x with y in each order, (b, p, q).

        orders: indices of models, (b, n). x and y are variables of the enclosing call.
        """
        pairs = orders[:, first] * len(y) + orders[:, second]
        drawn = sign_table.take(pairs, axis=0)
        # Sums of -1, 0 and 1 are exact in float32 for less than 5,000 models.
        return np.moveaxis(np.tensordot(x_signs.T, drawn, axes=(1, 1)), 0, 1) / scale

    observed = (x_signs.T @ y_signs) / scale
    return _Statistics(observed=observed, permuted=permuted, cells=y_signs.size)


_METHODS = {"spearman": _spearman, "kendall": _kendall}


class _Tests(NamedTuple):
    """Permutation tests of the correlations of measures x by measures y."""

    statistic: Float[np.ndarray, "p q"]
    pvalue: Float[np.ndarray, "p q"]
    draws: int
    exact: bool


def _test(
    method: Callable[..., _Statistics],
    x: Float[np.ndarray, "n p"],
    y: Float[np.ndarray, "n q"],
    *,
    permutations: int,
    seed: int,
) -> _Tests:
    """Return the tests of each column of x with each column of y.

    method: a value of `_METHODS`. permutations: see `spearman`.
    """
    statistics = method(x, y)
    observed = statistics.observed
    single_group = np.zeros(len(x), int)
    orders = draw_orders(single_group, permutations, seed=seed, cells=statistics.cells)
    hits = np.zeros(observed.shape)
    for batch in orders.batches:
        drawn = np.abs(statistics.permuted(batch))
        hits += (drawn >= np.abs(observed) - SLACK).sum(axis=0)
    pvalue = permutation_pvalue(hits, orders.count, exact=orders.exact)
    return _Tests(
        statistic=np.clip(observed, -1, 1),
        pvalue=np.where(np.isnan(observed), math.nan, pvalue),
        draws=orders.count,
        exact=orders.exact,
    )


def _test_pair(
    method: Callable[..., _Statistics],
    x: Values,
    y: Values,
    *,
    permutations: int,
    seed: int,
) -> CorrelationResult:
    """Return the test of one pair of measures.

    method: a value of `_METHODS`. Other arguments: see `spearman`.
    """
    x, y = as_columns(x=x, y=y)
    tests = _test(method, x[:, None], y[:, None], permutations=permutations, seed=seed)
    return CorrelationResult(
        statistic=float(tests.statistic[0, 0]),
        pvalue=float(tests.pvalue[0, 0]),
        n=len(x),
        draws=tests.draws,
        exact=tests.exact,
    )


def as_columns(**measures: Values) -> list[Float[np.ndarray, "n"]]:
    """Return measures of the same models as arrays of numbers, in the order of the arguments.

    measures: the keyword of each measure is its name in messages.
    Raise ValueError for unequal lengths, fewer than 3 models, and values that are not finite
    real numbers.
    """
    arrays = {name: _real_numbers(values) for name, values in measures.items()}
    shapes = {array.shape for array in arrays.values()}
    errors.check(
        len(shapes) == 1 and len(next(iter(shapes))) == 1,
        "measures",
        "be lists of one length, a number each model",
        errors.Words(
            ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        ),
    )
    values = numeric_columns(pd.DataFrame(arrays), tuple(arrays))
    return [values[:, j] for j in range(len(arrays))]


def _real_numbers(values: Values) -> np.ndarray:
    """Return values as an array, with NaN where values are masked.

    Raise ValueError for complex numbers and times.
    """
    if np.ma.isMaskedArray(values):
        values = np.ma.filled(values.astype(np.float64), np.nan)
    array = np.asarray(values)
    is_complex_or_time = array.dtype.kind in "cmM" or any(
        isinstance(value, complex) for value in array.ravel() if array.dtype.kind == "O"
    )
    errors.check(
        not is_complex_or_time, "measures", "be real numbers", errors.Words(array.dtype)
    )
    return array


MIN_MODELS = 4  # Models that a pair must share.


def complete_models(frame: pd.DataFrame, *measures: str) -> pd.DataFrame:
    """Return the rows of the models that have all these measures; measures: columns."""
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
    """Return the correlations of columns x with columns y of a frame, with adjusted p.

    frame: a row per model, a column per measure. x, y: names of columns; x = () is all
    columns except `given`, and y = () is the pairs within x. method: "spearman" or "kendall".
    A pair is tested over the models that have both measures, with the result of `spearman` or
    `kendall` for the same seed. If cells are missing or `given` is set, a pair with fewer than 4
    models is NaN; `n` is the number of all models. Pairs with a constant measure are NaN and not
    part of the family.
    given: names of covariates, only with "spearman". Each pair is then tested by `partial`, over
    the models that have the pair and all covariates, and is NaN with fewer than 4 + len(given)
    models. Cells that are NaN or None are missing measures.
    Raise ValueError as `spearman` does, for an unknown method, for columns that are unknown or
    repeated, for a measure in both x and y, and for fewer than 2 measures without y.
    """
    x = _check_names(frame, x, y, method=method, given=given)
    if not given and not frame[[*x, *y]].isna().any(axis=None):
        x_values = numeric_columns(frame, x)
        y_values = numeric_columns(frame, y) if y else x_values
        tests = _test(
            _METHODS[method], x_values, y_values, permutations=permutations, seed=seed
        )
        return _adjust_family(tests, x, y, num_models=len(frame))
    columns = list(y or x)
    shape = (len(x), len(columns))
    statistic, pvalue = np.full(shape, math.nan), np.full(shape, math.nan)
    draws, exact = 0, True
    pairs = [(i, j) for i in range(shape[0]) for j in range(shape[1]) if y or i < j]
    for i, j in pairs:
        names = (x[i], columns[j], *given)
        models = complete_models(frame, *names)
        if len(models) < MIN_MODELS + len(given):
            continue
        first, second, *covariates = numeric_columns(models, names).T
        if given:
            result = partial(
                first,
                second,
                covariates=covariates,
                permutations=permutations,
                seed=seed,
            )
        else:
            result = _test_pair(
                _METHODS[method], first, second, permutations=permutations, seed=seed
            )
        statistic[i, j], pvalue[i, j] = result.statistic, result.pvalue
        draws, exact = max(draws, result.draws), exact and result.exact
    if not y:
        statistic = np.where(np.isnan(statistic), statistic.T, statistic)
        is_constant = [frame[name].nunique() < 2 for name in x]
        np.fill_diagonal(statistic, np.where(is_constant, math.nan, 1))
    tests = _Tests(statistic=statistic, pvalue=pvalue, draws=draws, exact=exact)
    return _adjust_family(tests, x, y, num_models=len(frame))


def partial(
    x: Values,
    y: Values,
    *,
    groups: Sequence[Hashable] | None = None,
    covariates: Sequence[Values] = (),
    permutations: int = 9_999,
    seed: int = 0,
) -> CorrelationResult:
    """Return the partial rank correlation of x and y, given groups and covariates, with its test.

    rho = r_x . r_y / (|r_x| |r_y|), r the residuals of the ranks after least squares on a
    constant for each group and on the ranks of the covariates: for one covariate z,
    (rho_xy - rho_xz rho_yz) / sqrt((1 - rho_xz^2) (1 - rho_yz^2)). Ranks are taken over all
    models, so groups with a larger spread have more influence. A group of one model has no
    influence.
    groups: the category of each model. covariates: other measures of the same models.
    permutations: see `spearman`.

    For p, r_y is permuted within groups, the controls are fitted again, and draws are counted as in
    `spearman`. Under the null of no relation within groups, p is exact without covariates, and
    approximate with covariates. NaN where the controls explain x or y completely.
    Raise ValueError as `spearman` does, without groups and covariates, for a model without a
    group, and where the controls leave fewer than 2 degrees of freedom.
    """
    named_covariates = _name_covariates(covariates)
    columns = as_columns(x=x, y=y, **named_covariates)
    n = len(columns[0])
    ranks = scipy.stats.rankdata(np.stack(columns, 1), axis=0)
    codes, basis = _controls(groups, ranks[:, 2:])
    x_residuals = _residuals(ranks[:, 0], basis)
    y_residuals = _residuals(ranks[:, 1], basis)
    statistic = float(x_residuals @ y_residuals)
    orders = draw_orders(codes, permutations, seed=seed, cells=n)
    hits = 0
    for batch in orders.batches:
        drawn = y_residuals[batch]
        # Compared without division, so that a residual of length 0 after the fit is a hit.
        length = np.sqrt(np.clip(1 - ((drawn @ basis) ** 2).sum(axis=1), 0, 1))
        excess = np.abs(drawn @ x_residuals) - abs(statistic) * length
        hits += int((excess >= -SLACK).sum())
    pvalue = math.nan
    if not math.isnan(statistic):
        pvalue = permutation_pvalue(hits, orders.count, exact=orders.exact)
    return CorrelationResult(
        statistic=statistic,
        pvalue=pvalue,
        n=n,
        draws=orders.count,
        exact=orders.exact,
    )


def unexplained(x: Values, covariates: Sequence[Values]) -> float:
    """Return 1 - R^2: the share of the variance of x's ranks that covariates do not explain.

    R^2 is from the regression of the ranks of x on the ranks of the covariates. The variance
    inflation factor of x is 1 / (1 - R^2). NaN if x is constant. Raise ValueError without
    covariates and as `partial` does.
    """
    columns = as_columns(x=x, **_name_covariates(covariates))
    ranks = scipy.stats.rankdata(np.stack(columns, axis=1), axis=0)
    _, basis = _controls(None, ranks[:, 1:])
    (centred,) = standardize(ranks[:, :1]).T
    return float(((centred - basis @ (basis.T @ centred)) ** 2).sum())


def _name_covariates(covariates: Sequence[Values]) -> dict[str, Values]:
    """Return the covariates by name, as `as_columns` needs them for its messages."""
    return {f"covariate {i}": values for i, values in enumerate(covariates)}


def _controls(
    groups: Sequence[Hashable] | None, covariates: Float[np.ndarray, "n c"]
) -> tuple[Int[np.ndarray, "n"], Float[np.ndarray, "n d"]]:
    """Return the number of each model's group, and an orthonormal basis of the controls.

    Controls are a constant per group and the covariates, given as ranks. Without `groups`, all
    models are in group 0. Raise ValueError as `partial` does for groups and controls.
    """
    n = len(covariates)
    if groups is None and not covariates.shape[1]:
        raise ValueError("partial: must control for groups or covariates, got neither")
    codes = np.zeros(n, int)
    if groups is not None:
        codes = pd.factorize(np.asarray(list(groups), object))[0]
    num_missing = int((codes < 0).sum())
    errors.check(
        codes.shape == (n,) and codes.min() >= 0,
        "groups",
        f"name one for each of {n} models",
        errors.Words(f"{codes.size} with {num_missing} missing"),
        "fill them or leave the models out",
    )
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
    """Return the residuals of ranks after projection on a basis, scaled to length 1.

    NaN if all residuals are 0.
    """
    residuals = ranks - basis @ (basis.T @ ranks)
    length = np.linalg.norm(residuals)
    is_zero = not length > 1e-10 * np.linalg.norm(ranks)
    return residuals / (math.nan if is_zero else length)


@dataclasses.dataclass(frozen=True, eq=False)
class InfluenceResult:
    """The influence of each model on a rank correlation."""

    statistic: float  # Of all models.
    without: Float[np.ndarray, "n"]  # rho of all other models; NaN if one is constant.
    influence: Float[np.ndarray, "n"]  # statistic - without.
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
    """Return the change of Spearman's rho when each model is left out, and flag large changes.

    x, y: one number per model.
    influence_i = rho - rho_(i), with ranks of the remaining models. A model is flagged if
    |influence_i| > 2 s_i / sqrt(n), s_i = sqrt((1 - rho_(i)^2) / (n - 3)) the standard error of
    rho_(i): the DFBETAS rule for the slope of ranks on ranks. Unlike a Mahalanobis distance,
    influence does not flag a model that is far out on the common trend. Similar models may
    mask each other. NaN is never flagged. Raise ValueError for fewer than 4 models; other
    errors: see `spearman`.
    """
    x, y = as_columns(x=x, y=y)
    n = len(x)
    errors.check(n > 3, "models", "be at least 4 to leave one out", n)
    all_models = np.arange(n)[None]
    other_models = np.nonzero(~np.eye(n, dtype=bool))[1].reshape(n, n - 1)
    statistic = float(_resampled_rho([x, y], all_models)[0])
    without = _resampled_rho([x, y], other_models)
    change = statistic - without
    error = np.sqrt((1 - without**2) / (n - 3))
    flagged = np.abs(change) > 2 / math.sqrt(n) * error + SLACK
    return InfluenceResult(
        statistic=statistic, without=without, influence=change, flagged=flagged
    )


def bootstrap_interval(
    x: Values,
    y: Values,
    *,
    covariates: Sequence[Values] = (),
    level: float = 0.95,
    resamples: int = 9_999,
    seed: int = 0,
) -> IntervalResult:
    """Return Spearman's rho (partial with covariates) and a bootstrap interval over models.

    x, y, covariates: see `partial`. level: confidence of the interval, a fraction.
    resamples: number of bootstrap draws.
    The interval is from the (1 - level) / 2 to the (1 + level) / 2 quantile of rho over
    resampled models. The interval describes other models of the same kind, and is too short with
    few models. Resamples in which a measure is constant, or explained completely by covariates,
    have no rho: they are counted in `constant` and left out. NaN if no resample has a rho.
    Raise ValueError for a level outside (0, 1) and as `spearman` and `partial` do.
    """
    errors.check_share("level", level)
    errors.check_at_least("resamples", resamples)
    columns = as_columns(x=x, y=y, **_name_covariates(covariates))
    n, rng = len(columns[0]), np.random.default_rng(seed)
    if covariates:
        _controls(
            None, np.stack(columns[2:], axis=1)
        )  # Raises for too many covariates.
    rows, size = rng.integers(n, size=(resamples, n)), max(1, _BATCH_CELLS // n)
    batches = np.split(rows, range(size, resamples, size))
    drawn = np.concatenate([_resampled_rho(columns, batch) for batch in batches])
    finite = drawn[np.isfinite(drawn)]
    low, high = math.nan, math.nan
    if len(finite):
        low, high = np.quantile(finite, [(1 - level) / 2, (1 + level) / 2]).tolist()
    all_models = np.arange(n)[None]
    return IntervalResult(
        statistic=float(_resampled_rho(columns, all_models)[0]),
        low=low,
        high=high,
        level=level,
        resamples=resamples,
        constant=resamples - len(finite),
    )


def _resampled_rho(
    columns: Sequence[Float[np.ndarray, "n"]], rows: Int[np.ndarray, "b m"]
) -> Float[np.ndarray, "b"]:
    """Return the correlation of x and y in each resample, controlled for the covariates.

    columns: x, y, then covariates. rows: indices of models, a row per resample. NaN where x or y
    is constant, or explained completely by the covariates.
    """
    ranks = [
        standardize(scipy.stats.rankdata(column[rows], axis=1).T) for column in columns
    ]
    while len(ranks) > 2:
        # A constant covariate (NaN) controls for nothing.
        covariate = np.nan_to_num(ranks.pop())
        for k, column in enumerate(ranks):
            residuals = column - covariate * (column * covariate).sum(axis=0)
            length = np.linalg.norm(residuals, axis=0)
            ranks[k] = residuals / np.where(length > 1e-10, length, math.nan)
    x_ranks, y_ranks = ranks
    return np.clip((x_ranks * y_ranks).sum(axis=0), -1, 1)
