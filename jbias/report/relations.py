"""What goes together with what among many models, in numbers and in words."""

import dataclasses
import json
import math
from collections.abc import Iterable

import pandas as pd

from jbias.stats import adjustment, correlation, pairwise, partials, sensitivity

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
        least = [correlation.least_p(n, asked.permutations) for n in sizes]
        # Adjusted p rise with p, so that of the least is the least.
        return min(adjustment.adjust(least, asked.adjust), default=math.nan)

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
        name: pairwise.matrix(part, options.x, options.y, **asked)
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
        among=tuple(pairwise.matrix(frame, m, **asked) for m in options.among),
    )


def _pair(name: str, part: pd.DataFrame, family, x: str, y: str, options) -> dict:
    """Gives one line of the long table; interval and partial rho are of Spearman's."""
    seed, part = options.seed, pairwise.known(part, x, y)
    row = {"models": name, "n": len(part), "x": x, "y": y}
    row["statistic"] = family.statistic.loc[x, y]
    for key in ("pvalue", "holm", "bh"):
        row[key] = getattr(family, key).loc[x, y]
    enough = options.method == "spearman" and len(part) >= pairwise.LEAST
    if enough:
        ends = sensitivity.interval(part[x], part[y], resamples=RESAMPLES, seed=seed)
        row |= {"low": ends.low, "high": ends.high}
    kinds = part[options.category]
    if enough and 1 < kinds.nunique() <= len(part) - 2:
        within = partials.partial(
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
            part = pairwise.known(frame, x, y)
            if len(part) < pairwise.LEAST:
                continue
            found = sensitivity.influence(part[x], part[y])
            mine = kinds[part.index]
            rows += [
                (x, y, part.index[i], mine.iloc[i], found.statistic, found.without[i])
                for i in found.flagged.nonzero()[0]
            ]
    return pd.DataFrame(rows, columns=columns)


def headline(study: Study) -> tuple[str, str]:
    """Gives the answer in one sentence and what it rests on."""
    options, family = study.options, study.families["all"]
    passed = study.significant("all")
    count = int(passed.to_numpy().sum())
    answer = (
        f"{count} of {family.family} correlations are significant at "
        f"α = {options.alpha:g} {WORDS[options.adjust]}."
    )
    if study.attainable("all") > options.alpha:
        answer += f" None could have been: {_hopeless(study, family)}."
    if not family.family:
        still = constant(study.frame, options)
        answer = f"No correlation can be tested: {still}."
    sizes = family.statistic.abs().stack().dropna()
    if len(sizes):
        x, y = sizes.idxmax()
        rho = family.statistic.loc[x, y]
        told = f"{rho:.2f}".replace("-", "−")
        answer += f" The strongest: {x} with {y}, {SIGN[options.method]} = {told}."
    kind = options.method.capitalize()
    orders = "all" if family.exact else f"{family.draws:,} random"
    pairs = study.pairs[study.pairs["models"] == "all"]
    known = pairs["statistic"].notna()
    counts = pairs.loc[known if known.any() else ~known, "n"]
    over = " to ".join(dict.fromkeys((str(counts.min()), str(counts.max()))))
    basis = (
        f"{kind}'s rank correlations over {over} models; two-sided p from "
        f"{orders} orders."
    )
    if "partial_pvalue" in study.pairs:
        all_models = study.pairs[study.pairs["models"] == "all"]
        kept = int((all_models["partial_pvalue"] <= options.alpha).sum())
        basis += (
            f" Within categories ({options.category}), {kept} of {len(all_models)} "
            "partial correlations have an unadjusted p of at most that."
        )
    return answer, basis


def _hopeless(study: Study, family: correlation.MatrixResult) -> str:
    """Says why no p of all models can be as small as the level, and what would help."""
    asked = study.options
    told = f"p {WORDS[asked.adjust]} is at least {study.attainable('all'):.2g}"
    tests = family.family if asked.adjust == "holm" else 1
    orders = math.ceil(round(tests / asked.alpha, 6)) - 1
    more = dataclasses.replace(asked, permutations=max(orders, asked.permutations))
    if dataclasses.replace(study, options=more).attainable("all") > asked.alpha:
        return f"{told} with so few models; measure more"
    return f"{told} of so few orders; ask for --permutations={orders} or more"


def constant(frame: pd.DataFrame, options: Options) -> str:
    """Says which x and y do not vary, such as "shape is constant over all models"."""
    names = dict.fromkeys([*options.x, *options.y])
    still = [name for name in names if frame[name].nunique() == 1]
    if not still:
        return f"no x and y are known of at least {pairwise.LEAST} models"
    verb = "is" if len(still) == 1 else "are"
    return f"{', '.join(still)} {verb} constant over all models"


def caveats(study: Study) -> list[str]:
    """Gives what a reader must know before believing."""
    kinds = study.frame[study.options.category].value_counts()
    within = (
        ": the partial correlations reorder within categories only"
        if "partial_pvalue" in study.pairs
        else ""
    )
    kin = (
        "p takes the models as exchangeable. Models of one category are variants of one "
        f"method and not independent{within}. The largest category here is "
        f"{kinds.index[0]} with {kinds.iloc[0]} of {len(study.frame)} models."
    )
    told = [
        "Correlations do not say what causes what.",
        kin,
        "Each choice of models is adjusted as a family of its own.",
    ]
    unknown = [f"{_unknown(one)} in {name}" for name, one in _still(study)]
    if unknown:
        told.append(
            f"Not known, where a measure is constant or fewer than {pairwise.LEAST} models "
            f"have both: {'; '.join(unknown)}."
        )
    hopeless = [
        *(
            name
            for name in study.families
            if study.attainable(name) > study.options.alpha
        ),
        *(
            f"{one.statistic.index[0]} to {one.statistic.index[-1]}"
            for one in study.among
            if study.attainable_among(one) > study.options.alpha
        ),
    ]
    if hopeless:
        told.append(
            "With so few models, or orders, no p could be as small as "
            f"{study.options.alpha:g} {WORDS[study.options.adjust]} in: "
            f"{', '.join(hopeless)}."
        )
    if len(study.influential):
        told.append(
            "Some correlations rest on single models: see the models that count most."
        )
    return told


def _still(study: Study):
    """Gives choices of models and their correlations, where some do not exist."""
    for name, family in study.families.items():
        if family.statistic.isna().to_numpy().any():
            yield name, family.statistic


def _unknown(statistic: pd.DataFrame) -> str:
    """Names measures that go with no other, and the other pairs without a correlation."""
    lacks = statistic.isna()
    rows = list(statistic.index[lacks.all(axis=1)])
    columns = [
        name for name in statistic if lacks[name].all() and len(rows) < len(lacks)
    ]
    pairs = [
        f"{x} with {y}"
        for x in statistic.index.difference(rows, sort=False)
        for y in statistic.columns.difference(columns, sort=False)
        if lacks.loc[x, y]
    ]
    return ", ".join([*rows, *columns, *pairs])


def summary(study: Study) -> str:
    """Gives results.json: strict JSON, null for what is not known."""
    options = study.options
    answer, basis = headline(study)
    tree = {
        "headline": answer,
        "basis": basis,
        "source": study.source,
        "options": dataclasses.asdict(options),
        "attainable": {
            name: study.attainable(name)
            for name, family in study.families.items()
            if family.family
        },
        "correlations": _records(study.pairs),
        "influential": _records(study.influential),
        "among": [
            {
                key: json.loads(getattr(one, key).to_json(orient="index"))
                for key in ("statistic", "pvalue", "holm", "bh")
            }
            for one in study.among
        ],
        "caveats": caveats(study),
    }
    return json.dumps(tree, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _records(frame: pd.DataFrame) -> list[dict]:
    return json.loads(frame.to_json(orient="records", double_precision=15))
