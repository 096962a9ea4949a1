"""What goes together with what among many models, in words, and as a file."""

import dataclasses
import math
from typing import Any

import pandas as pd

from jbias.report import relations
from jbias.stats import correlation


def headline(study: relations.Study) -> tuple[str, str]:
    """Gives the answer in one sentence and what it rests on."""
    options, family = study.options, study.families["all"]
    passed = study.significant("all")
    count = int(passed.to_numpy().sum())
    answer = (
        f"{count} of {family.family} correlations are significant at "
        f"α = {options.alpha:g} {relations.WORDS[options.adjust]}."
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
        answer += (
            f" The strongest: {x} with {y}, {relations.SIGN[options.method]} = {told}."
        )
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


def _hopeless(study: relations.Study, family: correlation.MatrixResult) -> str:
    """Says why no p of all models can be as small as the level, and what would help."""
    asked = study.options
    told = (
        f"p {relations.WORDS[asked.adjust]} is at least {study.attainable('all'):.2g}"
    )
    tests = family.family if asked.adjust == "holm" else 1
    orders = math.ceil(round(tests / asked.alpha, 6)) - 1
    more = dataclasses.replace(asked, permutations=max(orders, asked.permutations))
    if dataclasses.replace(study, options=more).attainable("all") > asked.alpha:
        return f"{told} with so few models; measure more"
    return f"{told} of so few orders; ask for --permutations={orders} or more"


def constant(frame: pd.DataFrame, options: relations.Options) -> str:
    """Says which x and y do not vary, such as "shape is constant over all models"."""
    names = dict.fromkeys([*options.x, *options.y])
    still = [name for name in names if frame[name].nunique() == 1]
    if not still:
        return f"no x and y are known of at least {correlation.MIN_MODELS} models"
    verb = "is" if len(still) == 1 else "are"
    return f"{', '.join(still)} {verb} constant over all models"


def caveats(study: relations.Study) -> list[str]:
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
            f"Not known, where a measure is constant or fewer than {correlation.MIN_MODELS} models "
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
            f"{study.options.alpha:g} {relations.WORDS[study.options.adjust]} in: "
            f"{', '.join(hopeless)}."
        )
    if len(study.influential):
        told.append(
            "Some correlations rest on single models: see the models that count most."
        )
    return told


def _still(study: relations.Study):
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


def results(study: relations.Study) -> dict[str, Any]:
    """Gives what results.json says beside the answer."""
    return {
        "source": study.source,
        "options": dataclasses.asdict(study.options),
        "attainable": {
            name: study.attainable(name)
            for name, family in study.families.items()
            if family.family
        },
        "correlations": study.pairs,
        "influential": study.influential,
        "among": [
            {
                key: getattr(one, key).to_dict("index")
                for key in ("statistic", "pvalue", "holm", "bh")
            }
            for one in study.among
        ],
        "caveats": caveats(study),
    }
