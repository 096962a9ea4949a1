"""Class for correlations between measures of many models, and the functions that compute them."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from jbias.stats import correlation, multiple_testing

Matrix = correlation.MatrixResult
RESAMPLES = 1_999
SIGN = {"spearman": "ρ", "kendall": "τ"}
TESTED = {"none": "pvalue", "holm": "holm", "bh": "bh"}
WORDS = {
    "none": "unadjusted",
    "holm": "after Holm's adjustment",
    "bh": "after Benjamini and Hochberg's adjustment",
}
# Least unexplained share of the variance of ranks: a variance inflation factor of 10.
LEAST_UNEXPLAINED = 0.1
NUMBERS = ("statistic", "pvalue", "holm", "bh")


@dataclasses.dataclass(frozen=True)
class CorrelationOptions:
    """Options of a report of correlations: the flags of `jbias report correlate`.

    x, y, among and given are names of measures; category and size are names of columns; split is
    a value of the column category. method: "spearman" or "kendall". adjust: a key of `TESTED`.
    Raises ValueError for a negative seed.
    """

    x: tuple[str, ...]
    y: tuple[str, ...]
    category: str
    among: tuple[tuple[str, ...], ...] = ()
    given: tuple[str, ...] = ()
    split: str | None = None
    size: str | None = None
    method: str = "spearman"
    adjust: str = "holm"
    alpha: float = 0.05
    permutations: int = 9_999
    seed: int = 0

    def __post_init__(self):
        if self.seed < 0:
            raise ValueError(f"--seed: must be 0 or larger, got {self.seed}")

    @property
    def measures(self) -> tuple[str, ...]:
        """All measures of x, y, among and given, without duplicates."""
        named = [*self.x, *self.y, *sum(self.among, ()), *self.given]
        return tuple(dict.fromkeys(named))


@dataclasses.dataclass(frozen=True, eq=False)
class Correlations:
    """Correlations of x with y in subsets of models, and among measures.

    pairs has the columns models (name of the subset) and those of `_pair`. influential has the
    columns x, y, model, category, statistic and without (the correlation without the model).
    """

    source: str
    options: CorrelationOptions
    frame: pd.DataFrame  # One row per model.
    families: dict[str, Matrix]  # By name of the subset of models.
    pairs: pd.DataFrame  # One row for each subset, x and y.
    influential: pd.DataFrame  # Models without which a correlation changes most.
    among: tuple[Matrix, ...]
    given: "Correlations | None" = None  # Partial correlations of the same pairs.

    def tested(self, family: Matrix) -> pd.DataFrame:
        """Return a mask of the cells that are significant at the level alpha.

        family: an item of `families` or `among`.
        """
        return getattr(family, TESTED[self.options.adjust]) <= self.options.alpha

    @property
    def attainable(self) -> dict[str, float]:
        """The smallest possible adjusted p by name of the family of tests.

        The name of a family is a key of `families`, or "a to z" for the measures a, ..., z of an
        item of `among`. Families without a test are left out. Among measures, p may be smaller if
        some models lack a measure.
        """
        tested_pairs = self.pairs[self.pairs["pvalue"].notna()]
        sizes = {}  # Number of models of each test, by family.
        for matrix in self.among:
            measures = matrix.statistic.index
            name = f"{measures[0]} to {measures[-1]}"
            sizes[name] = [matrix.n] * matrix.family
        sizes |= dict([*tested_pairs.groupby("models", sort=False)["n"]])
        smallest = {}
        for name, counts in sizes.items():
            pvalues = [
                correlation.smallest_pvalue(n, self.options.permutations)
                for n in counts
            ]
            # Adjustment keeps the order of p, so the smallest adjusted p is that of the
            # smallest p.
            adjusted = multiple_testing.adjust(pvalues, self.options.adjust)
            if len(adjusted):
                smallest[name] = min(adjusted)
        return smallest


def analyse(
    frame: pd.DataFrame, options: CorrelationOptions, *, source: str
) -> Correlations:
    """Return the correlations of the measures of a frame of models (index: names of the models).

    The subset of all models is named "all". With `split`, the models of that category and all
    other models are also correlated, as the subsets "SPLIT" and "not SPLIT"; each subset is a
    separate family of tests. A model that lacks a measure (NaN) is left out of the pairs of that
    measure; a model that lacks a measure of `given` is left out of all partial correlations.
    source: text on the origin of the frame. Raises ValueError if a subset has fewer than 4 models,
    or if `split` is not a value of the column category.
    """
    kinds = frame[options.category].astype(str)
    split = options.split
    subsets = {"all": frame}
    if split is not None:
        if split not in set(kinds):
            raise ValueError(
                f"--split: must be a value of the column {options.category}, got "
                f"{split!r}; choose from {', '.join(dict.fromkeys(kinds))}"
            )
        subsets |= {split: frame[kinds == split], f"not {split}": frame[kinds != split]}
    for name, subset in subsets.items():
        if len(subset) < correlation.MIN_MODELS:
            raise ValueError(f"{name}: must have at least 4 models, got {len(subset)}")
    pairs = itertools.product(options.x, options.y)
    influential = [row for x, y in pairs for row in _influential(frame, x, y, kinds)]
    columns = ["x", "y", "model", "category", "statistic", "without"]
    families, pairs_table = _correlate(subsets, options)
    study = Correlations(
        source=source,
        options=options,
        frame=frame,
        families=families,
        pairs=pairs_table,
        influential=pd.DataFrame(influential, columns=columns),
        among=tuple(_matrix(frame, names, options) for names in options.among),
    )
    if not options.given:
        return study
    families, pairs_table = _correlate(subsets, options, given=options.given)
    partial_study = dataclasses.replace(
        study,
        families=families,
        pairs=pairs_table,
        influential=study.influential[:0],
        among=(),
    )
    return dataclasses.replace(study, given=partial_study)


def _matrix(
    frame: pd.DataFrame,
    x: Sequence[str],
    options: CorrelationOptions,
    *,
    y: Sequence[str] = (),
    given: Sequence[str] = (),
) -> Matrix:
    """Return the matrix of correlations of x with y.

    x, y, given: names of measures. Without y, correlations among x; with `given`, partial
    correlations.
    """
    return correlation.pairwise_matrix(
        frame,
        x,
        y,
        given=given,
        method=options.method,
        permutations=options.permutations,
        seed=options.seed,
    )


def _correlate(
    subsets: Mapping[str, pd.DataFrame],
    options: CorrelationOptions,
    *,
    given: tuple[str, ...] = (),
) -> tuple[dict[str, Matrix], pd.DataFrame]:
    """Return the fields (families, pairs) of `Correlations`.

    subsets: frames of models by name of the subset. given: measures to control for; if there are
    any, the correlations are partial.
    """
    families = {
        name: _matrix(subset, options.x, options, y=options.y, given=given)
        for name, subset in subsets.items()
    }
    rows = []
    for name, subset in subsets.items():
        for x, y in itertools.product(options.x, options.y):
            row = _pair(subset, families[name], x=x, y=y, options=options, given=given)
            rows.append({"models": name, **row})
    return families, pd.DataFrame(rows)


def _pair(
    subset: pd.DataFrame,
    family: Matrix,
    *,
    x: str,
    y: str,
    options: CorrelationOptions,
    given: Sequence[str],
) -> dict[str, Any]:
    """Return one row of the table of pairs, without the name of the subset.

    Keys: n (number of models with all measures), x, y and `NUMBERS`. For Spearman's
    correlation with n >= 4 + len(given), the row also has the keys low, high (bootstrap interval),
    x_left, y_left, partial and partial_pvalue. x_left and y_left (unexplained shares of the
    variance of ranks) require `given`. low and high are left out if x_left or y_left is below
    `LEAST_UNEXPLAINED`. partial and partial_pvalue (within categories) are left out for a single
    category, and for more categories than n - 2 - number of given measures.

    subset: frame of models. family: its matrix of correlations. x, y, given: names of measures.
    """
    complete = correlation.complete_models(subset, x, y, *given)
    row = {"n": len(complete), "x": x, "y": y}
    row |= {key: getattr(family, key).loc[x, y] for key in NUMBERS}
    least = correlation.MIN_MODELS + len(given)
    if options.method != "spearman" or len(complete) < least:
        return row
    kinds = complete[options.category]
    covariates = [complete[name] for name in given]
    if given:
        row["x_left"] = correlation.unexplained(complete[x], covariates)
        row["y_left"] = correlation.unexplained(complete[y], covariates)
    if not given or min(row["x_left"], row["y_left"]) >= LEAST_UNEXPLAINED:
        interval = correlation.bootstrap_interval(
            complete[x],
            complete[y],
            resamples=RESAMPLES,
            covariates=covariates,
            seed=options.seed,
        )
        row |= {"low": interval.low, "high": interval.high}
    if 1 < kinds.nunique() <= len(complete) - 2 - len(given):
        within = correlation.partial(
            complete[x],
            complete[y],
            covariates=covariates,
            seed=options.seed,
            permutations=options.permutations,
            groups=kinds,
        )
        row |= {"partial": within.statistic, "partial_pvalue": within.pvalue}
    return row


def _influential(
    frame: pd.DataFrame, x: str, y: str, kinds: pd.Series
) -> Iterator[tuple[str, str, str, str, float, float]]:
    """Yield rows of `Correlations.influential` for one pair of measures.

    A row is (x, y, model, category of the model, correlation, correlation without the model).
    Nothing is yielded for fewer than 4 models with both measures. kinds: category of each model.
    """
    complete = correlation.complete_models(frame, x, y)
    if len(complete) >= correlation.MIN_MODELS:
        influence = correlation.influence(complete[x], complete[y])
        for i in influence.flagged.nonzero()[0]:
            model = complete.index[i]
            without = influence.without[i]
            yield x, y, model, kinds[model], influence.statistic, without
