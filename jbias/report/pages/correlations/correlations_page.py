"""The page of rank correlations between measures of many models: sections, caveats, results."""

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from jbias.report import document, tables
from jbias.report.pages.correlations import correlation_plots, model_correlations
from jbias.stats import correlation

_INTERVALS = (
    f"95 % bootstrap interval, {model_correlations.RESAMPLES:,} resamples of models"
)
Correlations = model_correlations.Correlations
Blocks = document.Blocks


def report(study: Correlations) -> document.Report:
    """Return the page of a study of correlations."""
    x = study.options.x
    y = study.options.y
    models = len(study.frame)
    return document.Report(
        title="jbias correlations",
        heading="Correlations between measures",
        subtitle=f"{len(x)} measures against {len(y)} over {models} models, jbias report",
        answer=headline(study),
        facts={"Models": models, "Pairs": len(x) * len(y)},
        sections=document.make_sections(SECTIONS, study),
        results=results(study),
        source=f"Made from {study.source}.",
    )


def results(study: Correlations) -> dict[str, object]:
    """Return the entries of results.json by key, without headline, basis, warnings and files.

    `document.render` adds the missing entries. Keys:
      source: text on the origin of the data;
      options: a dict, the fields of `CorrelationOptions`;
      attainable: smallest possible adjusted p, by name of the subset of models;
      correlations and, only if measures are given, given (partial correlations): frames, see
        `Correlations.pairs`;
      influential: a frame, see `Correlations.influential`;
      among: for each group of measures, the matrices of `model_correlations.NUMBERS` by name, as
        {row: {column: number}};
      caveats: sentences.
    """
    return {
        "source": study.source,
        "options": dataclasses.asdict(study.options),
        "attainable": {
            name: p for name, p in study.attainable.items() if name in study.families
        },
        "correlations": study.pairs,
        **({"given": study.given.pairs} if study.given else {}),
        "influential": study.influential,
        "among": [
            {
                key: getattr(matrix, key).to_dict("index")
                for key in model_correlations.NUMBERS
            }
            for matrix in study.among
        ],
        "caveats": caveats(study),
    }


def headline(study: Correlations) -> tuple[str, str]:
    """Return (main result in one or two sentences, sentences on the data and the tests)."""
    options = study.options
    family = study.families["all"]
    pairs = study.pairs[study.pairs["models"] == "all"]
    level = f"α = {options.alpha:g} {model_correlations.WORDS[options.adjust]}"
    if family.family:
        passed = study.tested(family).to_numpy().sum()
        answer = f"{passed} of {family.family} correlations are significant at {level}."
        if study.attainable["all"] > options.alpha:
            answer += f" None could have been significant: {_limit(study)}."
    else:
        names = dict.fromkeys([*options.x, *options.y])
        constant = [name for name in names if study.frame[name].nunique() == 1]
        why = (
            f"no pair of x and y has values of at least {correlation.MIN_MODELS} models"
        )
        if constant:
            verb = "is" if len(constant) == 1 else "are"
            why = f"{', '.join(constant)} {verb} constant over all models"
        answer = f"No correlation can be tested: {why}."
    defined = pairs[pairs["statistic"].notna()]
    if len(defined):
        top = defined.loc[defined["statistic"].abs().idxmax()]
        rho = f"{model_correlations.SIGN[options.method]} = {tables.digits(2)(top['statistic'])}"
        answer += f" The strongest: {top['x']} with {top['y']}, {rho}."
    counts = (defined if len(defined) else pairs)["n"]
    orders = "all" if family.exact else f"{family.draws:,} random"
    basis = f"{options.method.capitalize()}'s rank correlations over"
    basis += f" {tables.span(counts)} models; two-sided p from {orders} orders."
    if "partial_pvalue" in pairs:
        partial = pairs["partial_pvalue"].dropna()
        significant = (partial <= options.alpha).sum()
        basis += (
            f" Within categories ({options.category}), {significant} of {len(partial)}"
        )
        basis += f" partial correlations have an unadjusted p ≤ {options.alpha:g}."
    if study.given:
        basis += f" {_headline_given(study)}"
    return answer, basis


def _headline_given(study: Correlations) -> str:
    """Return a sentence on the partial correlations over all models.

    The sentence has the number of significant partial correlations, and the number of these whose
    sign differs from the sign of the plain correlation. If no correlation can be tested, the
    sentence says so.
    """
    names = tables.join(study.options.given)
    family = study.given.families["all"]
    if not family.family:
        return f"Given {names}, no correlation can be tested."
    passed = study.tested(family)
    plain = study.families["all"].statistic
    reversed_count = (passed & (plain * family.statistic < 0)).to_numpy().sum()
    significant = f"{passed.to_numpy().sum()} of {family.family} are significant"
    return (
        f"Given {names}, {significant}, {reversed_count} of them with the other sign."
    )


def _limit(study: Correlations) -> str:
    """Return a phrase with the reason why no p over all models can reach alpha, and a remedy."""
    options = study.options
    least = study.attainable["all"]
    reason = f"p {model_correlations.WORDS[options.adjust]} is at least {least:.2g}"
    tests = study.families["all"].family if options.adjust == "holm" else 1
    orders = math.ceil(round(tests / options.alpha, 6)) - 1
    more_options = dataclasses.replace(
        options, permutations=max(orders, options.permutations)
    )
    if (
        dataclasses.replace(study, options=more_options).attainable["all"]
        > options.alpha
    ):
        return f"{reason} with so few models; measure more"
    return f"{reason} with so few orders; set --permutations={orders} or more"


def caveats(study: Correlations) -> list[str]:
    """Return the caveats of the page, one sentence or short paragraph each."""
    options = study.options
    kinds = study.frame[options.category].value_counts()
    largest = f"{kinds.index[0]} with {kinds.iloc[0]} of {len(study.frame)} models"
    dependence = "Models of one category are variants of one method and not independent"
    if "partial_pvalue" in study.pairs:
        dependence += ": the partial correlations permute only within categories"
    lines = [
        "Correlations do not show what causes what.",
        f"p assumes that models are exchangeable. {dependence}. The largest category is {largest}.",
        "p-values are adjusted separately within each subset of models.",
    ]
    if study.given:
        names = tables.join(options.given)
        lines.append(
            f"Controlling for {names} is not an experiment. If x acts on y through {names}, "
            f"that effect is removed; if x and another variable both act on {names}, the two "
            f"correlate among models with equal {names}."
        )
        lines += _fully_explained(study.given.pairs, names)
        lines += _unexplained(study.given.pairs, names)
    families = {name: matrix.statistic for name, matrix in study.families.items()}
    for name, matrix in study.given.families.items() if study.given else ():
        families[f"{name} given {tables.join(options.given)}"] = matrix.statistic
    incomplete = {
        name: matrix
        for name, matrix in families.items()
        if matrix.isna().any(axis=None)
    }
    undefined = [
        f"{_undefined_pairs(matrix)} in {name}" for name, matrix in incomplete.items()
    ]
    if undefined:
        lines.append(
            "Undefined because a measure is constant or fewer than "
            f"{correlation.MIN_MODELS} models have both: {'; '.join(undefined)}."
        )
    unattainable = [name for name, p in study.attainable.items() if p > options.alpha]
    if unattainable:
        level = f"{options.alpha:g} {model_correlations.WORDS[options.adjust]}"
        lines.append(
            f"With so few models or orders, no p could be as small as {level} in: "
            f"{', '.join(unattainable)}."
        )
    if len(study.influential):
        lines.append(
            "Some correlations depend on single models: see the table of influential models."
        )
    return lines


def _fully_explained(pairs: pd.DataFrame, names: str) -> list[str]:
    """Return [caveat on measures that the given measures explain almost fully], or [].

    pairs: partial correlations, as in `Correlations.pairs`. names: names of the given measures, as
    text.
    """
    unexplained = {}
    for side in "xy":
        known = pairs.reindex(columns=["models", side, f"{side}_left"])
        for models, name, left in known.itertuples(index=False):
            if left < model_correlations.LEAST_UNEXPLAINED:
                unexplained[f"{name} in {models}"] = left
    least = model_correlations.LEAST_UNEXPLAINED
    opening = f"Given {names}, less than {least:.0%} of the variance of ranks is left"
    shown = ", ".join(f"{name} ({left:.1%})" for name, left in unexplained.items())
    line = f"{opening}, so that few models determine the result and no interval is given: {shown}."
    return [line] if unexplained else []


def _unexplained(pairs: pd.DataFrame, names: str) -> list[str]:
    """Return [caveat on subsets of models where the given measures explain nothing], or [].

    pairs: partial correlations, as in `Correlations.pairs`. names: names of the given measures, as
    text.
    """
    left = pairs.reindex(columns=["x_left", "y_left"]).min(axis=1)
    least = left.groupby(pairs["models"], sort=False).min()
    subsets = least.index[least > 1 - 1e-9].tolist()
    if not subsets:
        return []
    return [
        (
            f"In {tables.join(subsets)}, {names} explains nothing of any measure (as if all "
            f"models had the same {names}): partial correlations equal the plain ones."
        )
    ]


def _undefined_pairs(statistic: pd.DataFrame) -> str:
    """Return the names of measures without any correlation, and of other undefined pairs, as text.

    statistic: matrix of correlations, NaN where undefined.
    """
    undefined = statistic.isna()
    rows = undefined.index[undefined.all(axis=1)]
    columns = undefined.columns[undefined.all() & (len(rows) < len(undefined))]
    remaining = undefined.drop(index=rows, columns=columns).stack()
    return ", ".join(
        [*rows, *columns, *(f"{x} with {y}" for x, y in remaining.index[remaining])]
    )


def tables_of(study: Correlations) -> Blocks:
    """Yield the tables of correlations of pairs, among measures, and of influential models.

    Names of the tables: "correlations"; "given" (partial correlations, only with measures in
    options.given); "among_1", "among_2", ... (correlations among measures); "influential". Without
    influential models, the last item is None.
    """
    options = study.options
    sign = model_correlations.SIGN[study.options.method]
    format_number = tables.digits(2)
    level = f"p ≤ {options.alpha:g} {model_correlations.WORDS[options.adjust]}"
    caption = f"Correlations; bold: {level}."
    yield _pairs_table("correlations", caption, study, options.category)
    if study.given:
        names = tables.join(options.given)
        caption = f"Partial rank correlations given {names}; bold: {level}. "
        caption += "Left: unexplained share of the variance of ranks."
        controls = f"{names} and {options.category}"
        yield _pairs_table("given", caption, study.given, controls)
    for i, matrix in enumerate(study.among, start=1):
        names = tuple(matrix.statistic)
        bold = np.argwhere(study.tested(matrix).to_numpy())
        data = matrix.statistic.set_axis(
            tables.distinct_keys(names, ("measure",)), axis=1
        )
        among = tables.Table(
            name=f"among_{i}",
            caption=f"{sign} among measures; bold: {level} over {matrix.family} pairs.",
            head=("", *names),
            rows=tuple(
                (x, *map(format_number, row))
                for x, *row in matrix.statistic.itertuples()
            ),
            data=data.reset_index(names="measure"),
            bold=frozenset((i, j + 1) for i, j in bold.tolist()),
        )
        yield among
    caption = (
        f"Influential models for {sign} over all models: without the model, Spearman's"
    )
    caption += " ρ changes by more than 2 standard errors divided by the root of n."
    columns = tables.columns(
        "x y model category statistic:.2 without:.2",
        category=options.category,
        statistic="ρ",
        without="ρ without the model",
    )
    yield tables.from_rows("influential", caption, study.influential, columns)


def _pairs_table(
    name: str, caption: str, study: Correlations, controls: str
) -> tables.Table:
    """Return a table of all pairs, one row per subset of models, x and y.

    Correlations that are significant after the chosen adjustment are bold. name, caption: name and
    caption of the table. controls: text on the variables that the last columns control for.
    """
    options = study.options
    pairs = study.pairs
    if "low" in pairs:
        caption += f" In brackets: {_INTERVALS}."
    if "partial" in pairs:
        caption += f" Partial: controlling for {controls}."
    columns = tables.columns(
        "models x y n:d statistic pvalue:p holm:p bh:p x_left:% y_left:% partial:.2 "
        "partial_pvalue:p",
        x_left="left of x, %",
        y_left="left of y, %",
        partial="partial ρ",
        partial_pvalue="partial p",
        pvalue="p",
        holm="Holm",
        bh="BH",
    )
    sign = model_correlations.SIGN[options.method]
    show = tables.interval(tables.digits(2))
    columns["statistic"] = tables.Column(sign, show, ("low", "high"))
    shown = pairs.assign(
        _bold=pairs[model_correlations.TESTED[options.adjust]] <= options.alpha
    )
    return tables.from_rows(
        name,
        caption,
        shown,
        columns,
        bold=lambda row: ["statistic"] if row["_bold"] else [],
        data=pairs,  # The files keep empty columns, too.
    )


def figures(study: Correlations) -> Iterator[document.Figure]:
    """Yield heat maps of correlations, and scatter plots of the models.

    Names: correlations; correlations_given and given (only if measures are given); among_1,
    among_2, ...; models.
    """
    options = study.options
    sign = f"{options.method.capitalize()}'s {model_correlations.SIGN[options.method]}"
    hatch_note = (
        f"Hatched: p > {options.alpha:g} {model_correlations.WORDS[options.adjust]}."
    )
    drawn = correlation_plots.heat(study, study.families)
    caption = f"{sign} of measures. {hatch_note}"
    yield document.Figure("correlations", caption, drawn)
    if study.given:
        names = tables.join(options.given)
        caption = f"Partial {sign} of measures given {names}. {hatch_note}"
        drawn = correlation_plots.heat(study, study.given.families)
        yield document.Figure("correlations_given", caption, drawn)
        caption = (
            f"Plain correlations, and partial ones given {names}; lines: {_INTERVALS}."
        )
        drawn = correlation_plots.plain_and_partial(study)
        yield document.Figure("given", caption, drawn)
    for i, matrix in enumerate(study.among, start=1):
        caption = f"{sign} among measures {i}. {hatch_note}"
        drawn = correlation_plots.heat(study, {"": matrix})
        yield document.Figure(f"among_{i}", caption, drawn)
    caption = "Models, one marker per model, coloured by category."
    if options.size:
        caption += (
            f" Markers grow with {options.size}; models without it have one size."
        )
    yield document.Figure("models", caption, correlation_plots.all_pairs(study))


SECTIONS = (
    document.SectionMaker("figures", "Figures", figures),
    document.SectionMaker("tables", "Tables", tables_of),
    document.SectionMaker(
        "caveats", "Caveats", lambda study: [document.Text(caveats(study))]
    ),
)
