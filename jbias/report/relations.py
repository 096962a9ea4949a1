"""What goes together with what among many models, in numbers and in words."""

import dataclasses
import math
from collections.abc import Iterable

import pandas as pd

from jbias.stats import correlation, multiple_testing

RESAMPLES = 1_999
SIGN = {"spearman": "ρ", "kendall": "τ"}
TESTED = {"none": "pvalue", "holm": "holm", "bh": "bh"}
WORDS = {
    "none": "unadjusted",
    "holm": "after Holm's adjustment",
    "bh": "after Benjamini and Hochberg's adjustment",
}


@dataclasses.dataclass(frozen=True)
class Options:
    """What the user asked for."""

    x: tuple[str, ...]
    y: tuple[str, ...]
    category: str
    among: tuple[tuple[str, ...], ...] = ()
    split: str | None = None
    size: str | None = None
    method: str = "spearman"
    adjust: str = "holm"
    alpha: float = 0.05
    permutations: int = 9_999
    seed: int = 0

    @property
    def measures(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys([*self.x, *self.y, *sum(self.among, ())]))


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """Correlations of x with y in each choice of models, and among measures."""

    source: str
    options: Options
    frame: pd.DataFrame  # One row a model.
    families: dict[str, correlation.MatrixResult]  # By the choice of models.
    pairs: pd.DataFrame  # One row for each choice, x and y.
    influential: pd.DataFrame  # Models that a correlation of all rests on.
    among: tuple[correlation.MatrixResult, ...]

    def significant(self, name: str) -> pd.DataFrame:
        """Which cells (x, y) of a choice of models pass the level."""
        return self.tested(self.families[name])

    def attainable(self, name: str) -> float:
        """The smallest p that a choice of models could have had, adjusted as asked."""
        pairs = self.pairs[self.pairs["models"] == name]
        return self._least(pairs.loc[pairs["pvalue"].notna(), "n"])

    def attainable_among(self, family: correlation.MatrixResult) -> float:
        """The same of measures among themselves, or less where some models lack one."""
        return self._least([family.n] * family.family)

    def _least(self, sizes: Iterable[int]) -> float:
        asked = self.options
        least = [correlation.smallest_pvalue(n, asked.permutations) for n in sizes]
        # Adjusted p rise with p, so that of the least is the least.
        return min(multiple_testing.adjust(least, asked.adjust), default=math.nan)

    def tested(self, family: correlation.MatrixResult) -> pd.DataFrame:
        table = getattr(family, TESTED[self.options.adjust])
        return table <= self.options.alpha


def analyse(frame: pd.DataFrame, options: Options, *, source: str) -> Study:
    """Correlates the measures of a frame of models (index: names).

    With `split`, a category, also within its models and within all others; each choice
    is a family of its own. A model that lacks a measure (NaN) is left out of the pairs of
    that measure. Raises ValueError where a choice has fewer than 4 models.
    """
    kinds = frame[options.category].astype(str)
    chosen = {"all": frame}
    if options.split is not None:
        if options.split not in set(kinds):
            raise ValueError(
                f"--split: must be one of {options.category}, got {options.split!r}: "
                f"{', '.join(dict.fromkeys(kinds))}"
            )
        chosen[options.split] = frame[kinds == options.split]
        chosen[f"not {options.split}"] = frame[kinds != options.split]
    for name, part in chosen.items():
        if len(part) < 4:
            raise ValueError(f"{name}: must have at least 4 models, got {len(part)}")
    asked = dict(
        method=options.method, permutations=options.permutations, seed=options.seed
    )
    families = {
        name: correlation.pairwise_matrix(part, options.x, options.y, **asked)
        for name, part in chosen.items()
    }
    rows = [
        _pair(name, chosen[name], family, x, y, options)
        for name, family in families.items()
        for x in options.x
        for y in options.y
    ]
    return Study(
        source=source,
        options=options,
        frame=frame,
        families=families,
        pairs=pd.DataFrame(rows),
        influential=_influential(frame, kinds, options),
        among=tuple(
            correlation.pairwise_matrix(frame, m, **asked) for m in options.among
        ),
    )


def _pair(name: str, part: pd.DataFrame, family, x: str, y: str, options) -> dict:
    """Gives one line of the long table; interval and partial rho are of Spearman's."""
    seed, part = options.seed, correlation.complete_models(part, x, y)
    row = {"models": name, "n": len(part), "x": x, "y": y}
    row["statistic"] = family.statistic.loc[x, y]
    for key in ("pvalue", "holm", "bh"):
        row[key] = getattr(family, key).loc[x, y]
    enough = options.method == "spearman" and len(part) >= correlation.MIN_MODELS
    if enough:
        ends = correlation.bootstrap_interval(
            part[x], part[y], resamples=RESAMPLES, seed=seed
        )
        row |= {"low": ends.low, "high": ends.high}
    kinds = part[options.category]
    if enough and 1 < kinds.nunique() <= len(part) - 2:
        within = correlation.partial(
            part[x],
            part[y],
            groups=kinds,
            permutations=options.permutations,
            seed=seed,
        )
        row |= {"partial": within.statistic, "partial_pvalue": within.pvalue}
    return row


def _influential(frame: pd.DataFrame, kinds: pd.Series, options) -> pd.DataFrame:
    columns = ["x", "y", "model", "category", "statistic", "without"]
    rows = []
    for x in options.x:
        for y in options.y:
            part = correlation.complete_models(frame, x, y)
            if len(part) < correlation.MIN_MODELS:
                continue
            found = correlation.influence(part[x], part[y])
            mine = kinds[part.index]
            rows += [
                (x, y, part.index[i], mine.iloc[i], found.statistic, found.without[i])
                for i in found.flagged.nonzero()[0]
            ]
    return pd.DataFrame(rows, columns=columns)
