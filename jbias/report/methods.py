"""The paragraph on methods that a paper needs, and the works it cites, as BibTeX."""

import importlib.metadata
import pathlib
import platform
import textwrap
import types
from collections.abc import Mapping

import jbias
from jbias.report import evidence as evidence_lib
from jbias.report import study as study_lib
from jbias.report import tables, words
from jbias.runtime import messages

_ENTRIES = (
    (pathlib.Path(__file__).parent / "methods.bib").read_text("utf-8").split("\n\n")
)
BIB: Mapping[str, str] = types.MappingProxyType(
    {one[one.index("{") + 1 : one.index(",")]: one.strip() for one in _ENTRIES}
)


def versions() -> str:
    """Names what computed the numbers."""
    packages = ("numpy", "scipy", "pandas")
    told = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    return f"jbias {jbias.__version__} (Python {platform.python_version()}, {told})"


def bib(keys) -> str:
    """Gives the BibTeX entries of these works."""
    entry = f"@software{{jbias,\n  author = {{{{The jbias authors}}}},\n  title = {{jbias}},\n  version = {{{jbias.__version__}}}\n}}"
    return "\n\n".join([*(BIB[key] for key in dict.fromkeys(keys)), entry]) + "\n"


def paragraph(
    study: study_lib.Study,
    analysis: study_lib.Analysis,
    evidence: evidence_lib.Evidence | None,
) -> tuple[str, list[str]]:
    """Gives the text, citations as [key], and the keys in their order."""
    told = [_compared(study)]
    if evidence is None:
        told.append(f"No hypothesis was tested. Computed with {versions()}.")
        return " ".join(told), ["kalischek2023"]
    told += [*_tests(analysis, evidence), *_seeds(evidence)]
    told.append(f"Computed with {versions()}, after BiasBed [kalischek2023].")
    text = " ".join(told)
    return text, sorted(
        (key for key in BIB if f"[{key}" in text or f"; {key}" in text),
        key=lambda key: text.index(key),
    )


def _compared(study: study_lib.Study) -> str:
    metric = study.metric.replace("_", " ")
    what = "seeds" if study.is_runs else "runs"
    counts = sorted(set(study.values.groupby("algorithm")["seed"].nunique()))
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return (
        f"We compare {len(study.algorithms)} algorithms on {len(study.datasets)} data sets "
        f"by {metric} ({'larger' if study.larger_is_better else 'smaller'} is better), with "
        f"{number} {what} each; reported is {study.rule}."
    )


def _tests(analysis: study_lib.Analysis, evidence: evidence_lib.Evidence) -> list[str]:
    f, n, k = analysis.friedman, len(analysis.datasets), len(analysis.algorithms)
    exact = analysis.permutation
    how = "all" if exact.exact else f"{exact.permutations:,} random"
    left = [f"{name} ({why})" for name, why in analysis.left_out]
    told = [
        (
            f"Scores are averaged over runs and ranked on each data set. The hypothesis that "
            f"all {k} algorithms rank alike on {n} data sets is tested by Friedman's test "
            "[friedman1937] with correction for ties, in Iman and Davenport's form "
            f"[iman1980; demsar2006], F({f.df[0]}, {f.df[1]}) = {words.f_text(f)}, "
            f"p {_p(f.pvalue)}, and, which counts, by {how} permutations within data sets, "
            f"p {_p(exact.pvalue)}."
        ),
        (
            f"Pairs are compared at the level {analysis.alpha:g} by Nemenyi's test [nemenyi1963], "
            "from the studentised range, and only if the permutation test rejects; beside it "
            "stand max-T by permutation [westfall1993], Conover's test [conover1999] and the "
            f"{'exact ' if evidence.wilcoxon.exact else ''}Wilcoxon signed-rank test "
            "[wilcoxon1945], both adjusted by Holm [holm1979], "
            "Quade's test [quade1979] and aligned ranks [hodges1962]."
        ),
        (
            "Bayesian answers are from the signed-rank test with a region of practical "
            f"equivalence of {evidence.rope:g} [benavoli2017]"
            f"{_terry(evidence)}."
        ),
    ]
    if evidence.control is not None:
        told.append(
            f"Comparisons with {evidence.control.control} alone are adjusted after Dunn "
            "[dunn1961] and Holm."
        )
    if left:
        told.append(f"Left out of the tests: {'; '.join(left)}.")
    return told


def _terry(evidence: evidence_lib.Evidence) -> str:
    if evidence.bradley_terry is None:
        return ""
    return " and the Bradley-Terry model [wainer2023]"


def _seeds(evidence: evidence_lib.Evidence) -> list[str]:
    if evidence.runs is None:
        return [f"The spread over runs is not analysed: {evidence.no_seeds}."]
    return [
        (
            f"Intervals are 95 % percentile bootstrap intervals of {evidence.draws:,} draws; "
            "runs are redrawn within "
            "algorithms, for all data sets together, and for statements on other data sets the "
            "data sets too. Interquartile means, optimality gaps and performance profiles "
            "follow [agarwal2021], on scores normalised by the worst and best run of each data "
            "set; the probability that one run beats another is Vargha and Delaney's A "
            "[vargha2000]. Where runs and data sets are samples, a linear mixed model has "
            "random effects of data sets, of data sets by algorithms and of runs. The best of a "
            "data set is told from others by Welch's t test, Bonferroni for all pairs, with "
            "variances of at least the pooled one. Power is by simulation from the spread of "
            "algorithms between data sets and of runs."
        )
    ]


def _p(p: float) -> str:
    shown = tables.p_text(p)
    return shown if shown.startswith("<") else f"= {shown}"


def markdown(text: str) -> str:
    """Wraps the paragraph for a file."""
    lines = textwrap.wrap(text, 100, break_on_hyphens=False)
    return "".join(messages.printable(line) + "\n" for line in lines)
