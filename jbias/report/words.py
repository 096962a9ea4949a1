"""What the numbers say, and do not say, in plain words."""

import math
import re

import numpy as np

from jbias.report import doubts, tables
from jbias.report import evidence as evidence_lib
from jbias.report import study as study_lib

_MOST = 8  # Pairs that are told in words; all are in the table.


def headline(
    study: study_lib.Study,
    analysis: study_lib.Analysis,
    reference: str | None,
    evidence: evidence_lib.Evidence | None,
) -> tuple[str, str]:
    """Gives the answer in one sentence and what it rests on."""
    answer, basis = _headline(analysis)
    if study.selection == "oracle":
        answer = (
            f"By the oracle, a bound and not a result: {answer[0].lower()}{answer[1:]}"
        )
    if reference:
        basis += f" {against_reference(analysis, reference, evidence)}"
    return answer, " ".join([basis, *doubts.words(study, evidence)])


def tests(analysis: study_lib.Analysis) -> list[str]:
    """Says what was not tested, and why."""
    told = [] if analysis.friedman is not None else [analysis.why_not]
    return told + [
        f"Left out of the tests: {name} ({why})." for name, why in analysis.left_out
    ]


def _headline(analysis: study_lib.Analysis) -> tuple[str, str]:
    result = analysis.friedman
    if result is None:
        return "Nothing was tested.", analysis.why_not
    k, n = len(analysis.algorithms), len(analysis.datasets)
    test = (
        f"Friedman's test after Iman and Davenport over {k} algorithms and {n} data sets: "
        f"F({result.df[0]}, {result.df[1]}) = {f_text(result)}, {_p_words(analysis)}."
    )
    if not analysis.rejects:
        answer = (
            f"No significant difference between the {k} algorithms was found at "
            f"α = {analysis.alpha:g}."
        )
        far = analysis.critical_difference
        rest = (
            f" That does not show that they are equal: with {n} data sets, mean ranks of two "
            f"algorithms must lie {far:.2f} apart to differ."
        )
        return answer, test + rest
    total = k * (k - 1) // 2
    claimed = analysis.significant
    if not claimed:
        answer = (
            f"The algorithms differ as a whole, and no single pair of the {total} differs "
            f"significantly at α = {analysis.alpha:g}."
        )
        return answer, f"{test} No pair passes Nemenyi's test."
    count = f"{len(claimed)} of {total} pairs {'differs' if len(claimed) == 1 else 'differ'}"
    answer = (
        f"The algorithms differ significantly, and {count} at α = {analysis.alpha:g}: "
        f"{_who_beats_whom(claimed)}."
    )
    listed = [f"{a} and {b}, {p_equals(p)}" for a, b, p in claimed[:_MOST]]
    more = "; the others in the table below" if len(claimed) > _MOST else ""
    return answer, f"{test} Pairs by Nemenyi's test: {'; '.join(listed)}{more}."


def _p_words(analysis: study_lib.Analysis) -> str:
    """p of F; the one by permutation, where F's is no p or the two decide otherwise."""
    approximate, exact = analysis.friedman.pvalue, analysis.permutation.pvalue
    if approximate == 0:
        return f"{p_equals(exact)} by permutation"
    if (approximate <= analysis.alpha) == analysis.rejects:
        return p_equals(approximate)
    return (
        f"{p_equals(approximate)}, which is an approximation; by permutation "
        f"{p_equals(exact)}, and that counts"
    )


def _who_beats_whom(claimed) -> str:
    worse: dict[str, list[str]] = {}
    for a, b, _ in claimed:
        worse.setdefault(a, []).append(b)
    told = [f"{a} ranks better than {tables.join(_few(b))}" for a, b in worse.items()]
    more = "; and others" if len(told) > _MOST else ""
    return "; ".join(told[:_MOST]) + more


def _few(names: list[str]) -> list[str]:
    return names if len(names) <= 5 else [*names[:4], f"{len(names) - 4} others"]


def against_reference(
    analysis: study_lib.Analysis,
    reference: str,
    evidence: evidence_lib.Evidence | None,
) -> str:
    """Says which algorithms differ from the reference, among all pairs and alone."""
    if evidence is None or evidence.control is None:
        return f"{reference} is not in the tests."
    dunn = evidence.control
    found = zip(dunn.algorithms, dunn.statistics, dunn.adjusted, strict=True)
    alone = [
        f"{name} ranks {'better' if z > 0 else 'worse'} ({p_equals(p)})"
        for name, z, p in found
        if p <= analysis.alpha
    ]
    return (
        f"{_among_all(analysis, reference)} If {reference} was chosen as the control before "
        f"the scores were seen, it alone is compared, by Bonferroni-Dunn: "
        f"{tables.join(alone) or 'no algorithm differs'}."
    )


def _among_all(analysis: study_lib.Analysis, reference: str) -> str:
    told = []
    for better, worse, _ in analysis.significant:
        if reference == worse:
            told.append(f"{better} ranks better than {reference}")
        elif reference == better:
            told.append(f"{worse} ranks worse than {reference}")
    if not told:
        return f"Among all pairs no algorithm differs significantly from {reference}."
    return f"Among all pairs, {tables.join(told)}."


def f_text(result) -> str:
    return "∞" if math.isinf(result.statistic) else f"{result.statistic:.3f}"


def p_equals(p: float) -> str:
    shown = tables.p_text(p)
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"


def made_of(study: study_lib.Study, analysis: study_lib.Analysis) -> str:
    """Says what the numbers of the main table are made of."""
    sizes = sorted(set(analysis.cells["n"]) - {0})
    what = "seeds" if study.is_runs else "runs"
    seeds = (
        f"{sizes[0]} to {sizes[-1]}"
        if len(sizes) > 1
        else str(sizes[0] if sizes else 0)
    )
    if len(sizes) == 1 and sizes[0] == 1:
        spread = f"One score a cell; without several {what} there is no ±."
    else:
        spread = (
            f"Mean ± standard deviation over {seeds} {what} (n - 1 in its denominator); "
            "it describes single models, not the error of the mean."
        )
    unit = " in %" if study.unit.name else ""
    better = "larger" if study.larger_is_better else "smaller"
    metric = study.metric.replace("_", " ").capitalize()
    return f"{metric}{unit}, {better} is better. {spread} Selection: {study.rule}."


def caveats(
    study: study_lib.Study,
    analysis: study_lib.Analysis,
    evidence: evidence_lib.Evidence | None,
) -> list[str]:
    """Gives what a reader must know before believing."""
    told = list(doubts.words(study, evidence))
    told += [f"{name} is not in the tests: {why}." for name, why in analysis.left_out]
    told += study.notes
    if analysis.friedman is not None:
        told += _test_caveats(analysis, evidence)
    if study.selection == "oracle":
        told.append(
            "The oracle looks at the test sets to choose epochs. Its numbers are bounds and "
            "must not be compared with selected ones."
        )
    if study.is_runs:
        told += _run_caveats(study)
    else:
        told.append(
            "A table of scores does not say how models were selected, how many images were "
            "seen or whether all were evaluated alike."
        )
    return told


def _test_caveats(
    analysis: study_lib.Analysis, evidence: evidence_lib.Evidence
) -> list[str]:
    k, n = len(analysis.algorithms), len(analysis.datasets)
    blind = (
        "The rank tests see means: the spread between seeds does not enter them (see how "
        "stable they are), and the data sets count as independent even where they share "
        "images or classes."
    )
    alike = (
        "Every test set counts alike, also those that are like the training data; "
        "--datasets chooses, --strict leaves out what some algorithm trained on."
    )
    told = [blind] if analysis.strict else [blind, alike]
    size = evidence.size
    if abs(size.f - analysis.alpha) > 0.1 * analysis.alpha + 3 * size.standard_error:
        told.append(
            f"With {n} data sets and {k} algorithms F is an approximation: at a nominal "
            f"{analysis.alpha:g} it rejects in {100 * size.f:.1f} % of tables in which all "
            f"algorithms are alike (χ²: {100 * size.chi2:.1f} %). The permutation test has "
            "no such error."
        )
    if evidence.narrow and evidence.narrow[0] == 2:
        told.append(
            "Two runs give no interval: redrawn, they are one, the other or both. None over "
            "redrawn runs alone is shown."
        )
    elif evidence.narrow:
        told.append(
            f"Intervals over few runs are too narrow: with {evidence.narrow[0]} runs, one "
            f"called 95 % holds the mean of more runs in about {evidence.narrow[1]:.0%} of "
            "cases."
        )
    if evidence.rope > evidence.reach:
        told.append(
            f"--points={evidence.rope:g} is more than the scores span ({evidence.reach:.3g}): "
            "what is said of equivalence and power means nothing until it is set."
        )
    if evidence.spread_of_units:
        low, high = evidence.spread_of_units
        told.append(
            f"The scores of {high} are over 20 times those of {low}: Quade's test, aligned "
            "ranks, Wilcoxon's test and means over data sets need one unit. Ranks do not."
        )
    least = math.exp(-(n - 1) * math.lgamma(k + 1))
    if analysis.friedman.pvalue < least:
        told.append(
            f"p = {tables.p_text(analysis.friedman.pvalue)} is an artefact of the "
            f"approximation: {n} random rankings of {k} algorithms agree fully with "
            f"probability {tables.p_text(least)}, so no exact p is smaller."
        )
    if analysis.critical_difference > k - 1:
        told.append(
            f"The critical difference ({analysis.critical_difference:.2f}) is larger than "
            f"the largest possible difference of mean ranks ({k - 1}): with {n} data sets no "
            "pair can differ. More data sets are needed, not more seeds."
        )
    return told


def _run_caveats(study: study_lib.Study) -> list[str]:
    told = []
    for row in study.diverged.itertuples():
        told.append(
            f"Seed {row.seed} of {row.run} diverged at step {row.step}: it is in no mean."
        )
    for run in study.runs:
        if lost := run.lost_seeds:
            told.append(f"{run.workdir} has no record of seed {tables.join(lost)}.")
    counts = study.values.groupby("algorithm")["seed"].nunique()
    if len(counts) and counts.min() < 3:
        told.append(
            f"{tables.join(counts.index[counts < 3])}: fewer than 3 seeds; the deviation "
            "over seeds is hardly known."
        )
    models = sorted(study.frame["model"].unique())
    trained = sorted(study.frame["train_data"].unique())
    if any(re.split("[/:]", name)[0] == "shapes" for name in trained):
        told.append(
            "The models were trained on the embedded set of drawn shapes. What holds there "
            "need not hold on photographs such as ImageNet."
        )
    for what, names in [("models", models), ("training data", trained)]:
        if len(names) > 1:
            told.append(
                f"The runs differ in {what} ({tables.join(names)}): differences between "
                "algorithms may come from there."
            )
    parts = study.selected[study.selected["metric"] == study.metric]
    parts = parts[parts["dataset"].isin(study.datasets)]
    sizes = parts.groupby("dataset")["condition"].nunique()
    whole = set(parts[parts["condition"] == ""]["dataset"])
    averaged = [d for d in sizes.index if d not in whole]
    if averaged:
        told.append(
            f"{tables.join(averaged)}: the mean over conditions, equally weighted."
        )
    return told


def seed_words(study: study_lib.Study) -> str:
    """Says how many seeds the algorithms have."""
    counts = study.values.groupby("algorithm")["seed"].nunique()
    values = np.unique(counts) if len(counts) else np.zeros(1, int)
    return str(values[0]) if len(values) == 1 else f"{values[0]}–{values[-1]}"
