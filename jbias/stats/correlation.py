"""Do two measures of the same models go together? Rank correlations with permutation tests.

Sources: Spearman 1904; Kendall 1938 and 1945 (ties), https://doi.org/10.1093/biomet/33.3.239.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import pandas as pd
import scipy.stats
from jaxtyping import Float

from jbias.stats import orders
from jbias.stats.adjustment import adjust

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


def matrix(
    frame: pd.DataFrame,
    x: Sequence[str] = (),
    y: Sequence[str] = (),
    *,
    method: Literal["spearman", "kendall"] = "spearman",
    permutations: int = 9_999,
    seed: int = 0,
) -> MatrixResult:
    """Correlates the columns x of a frame of models with its columns y, and adjusts p.

    () for x is all columns, () for y the pairs within x. One draw reorders all of y at once, so a
    cell is what `spearman` or `kendall` gives with the same seed. Pairs with a constant
    measure are NaN and no part of the family. Raises ValueError as `spearman`, for
    columns that are unknown or doubled, and for a measure on both sides.
    """
    if method not in _METHODS:
        known = ", ".join(_METHODS)
        raise ValueError(f"method: must be one of {known}, got {method!r}")
    x = tuple(x) or tuple(frame.columns)
    _check_names(frame, x, y)
    within = not y
    left = measures(frame, x)
    right = left if within else measures(frame, y)
    statistic, pvalue, draws, exact = _test(
        _METHODS[method], left, right, permutations, seed
    )
    if within:
        # The draws of (i, j) and (j, i) are not the same orders.
        upper = np.triu(np.ones(statistic.shape, bool), 1)
        pvalue = np.where(upper, pvalue, pvalue.T)
        np.fill_diagonal(pvalue, math.nan)
        family = upper & np.isfinite(pvalue)
    else:
        family = np.isfinite(pvalue)
    names = dict(index=list(x), columns=list(x if within else y))
    adjusted = {}
    for name in ("holm", "bh"):
        values = np.full(pvalue.shape, math.nan)
        values[family] = adjust(pvalue[family], name)
        if within:
            values = np.where(family.T, values.T, values)
        adjusted[name] = pd.DataFrame(values, **names)
    return MatrixResult(
        statistic=pd.DataFrame(statistic, **names),
        pvalue=pd.DataFrame(pvalue, **names),
        n=len(left),
        family=int(family.sum()),
        draws=draws,
        exact=exact,
        **adjusted,
    )


def measures(frame: pd.DataFrame, names: Sequence[str]) -> Float[np.ndarray, "n k"]:
    """Gives columns as numbers; refuses, by model and measure, what is not finite."""
    values = frame[list(names)].apply(pd.to_numeric, errors="coerce")
    values = values.to_numpy(np.float64)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        i, j = bad[0]
        more = f" ({len(bad)} such cells)" if len(bad) > 1 else ""
        raise ValueError(
            f"{names[j]}: must be a finite number for every model, got "
            f"{frame[names[j]].iloc[i]!r} for {frame.index[i]}{more}; fill the cell or "
            "leave the model or the measure out"
        )
    if len(values) < 3:
        raise ValueError(
            f"models: must be at least 3, got {len(values)}; two always go together"
        )
    return values


def unit(values: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
    """Centres columns and gives them length 1; constant ones become NaN."""
    centred = values - values.mean(axis=0)
    length = np.linalg.norm(centred, axis=0)
    scale = np.linalg.norm(values, axis=0)
    return centred / np.where(length > 1e-12 * scale, length, math.nan)


def _check_names(frame: pd.DataFrame, x: Sequence[str], y: Sequence[str]) -> None:
    named = [*x, *y]
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
    if not y and len(x) < 2:
        raise ValueError(f"measures: must be at least 2 to correlate, got {len(x)}")


def _spearman(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, Callable, int]:
    """Gives the statistics, a function from orders to theirs (b p q), and its cells."""
    x, y = (unit(scipy.stats.rankdata(values, axis=0)) for values in (x, y))

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
    draws, exact, batches = orders.orders(one, permutations, seed, cells)
    hits = np.zeros(statistic.shape)
    for order in batches:
        hits += (np.abs(under(order)) >= np.abs(statistic) - SLACK).sum(axis=0)
    pvalue = np.where(np.isnan(statistic), math.nan, orders.p_of(hits, draws, exact))
    return np.clip(statistic, -1, 1), pvalue, draws, exact


def _pair(kind: Callable, x, y, permutations: int, seed: int) -> CorrelationResult:
    x, y = columns(x=x, y=y)
    statistic, pvalue, draws, exact = _test(
        kind, x[:, None], y[:, None], permutations, seed
    )
    return CorrelationResult(
        float(statistic[0, 0]), float(pvalue[0, 0]), len(x), draws, exact
    )


def columns(**named: Values) -> list[Float[np.ndarray, "n"]]:
    """Gives measures of the same models as arrays; refuses what does not fit together."""
    arrays = {name: np.asarray(values) for name, values in named.items()}
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) > 1 or len(next(iter(shapes))) != 1:
        told = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(
            f"measures: must be lists of one length, a number each model, got {told}"
        )
    values = measures(pd.DataFrame(arrays), tuple(arrays))
    return [values[:, j] for j in range(len(arrays))]
