"""What the numbers of a comparison say, and do not say, in sentences."""

import importlib.metadata
import itertools
import math
import pathlib
import platform
import re
import textwrap
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

import jbias
from jbias.report import analysis as analysis_lib
from jbias.report import score_notes, tables
from jbias.runtime import messages
from jbias.stats import resampling

three = tables.digits(3)
_MOST = 4  # Pairs whose p is said below the answer; all are in the table.
_NAMED = 8  # Pairs that differ, above which the answer names the first.
_CHANCE = 6  # Cells at chance that are named; all are in results.json.


def p_equals(p: float) -> str:
    shown = tables.p_text(p)
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"


def p_by_permutation(exact) -> str:
    """Return the p of a permutation test; as a bound where no permutation is as extreme."""
    shown = p_equals(exact.pvalue)
    is_least = not exact.exact and exact.pvalue * (exact.permutations + 1) < 1.5
    return shown.replace("p =", "p ≤") if is_least else shown


def share(value: float) -> str:
    """Shows a share of draws."""
    if 0.005 <= value <= 0.995 or value in (0, 1):
        return f"{100 * value:.0f} %"
    return "< 1 %" if value < 0.5 else "> 99 %"


def answer(
    analysis: analysis_lib.Analysis, decided: tuple[str, str] | None = None
) -> tuple[str, str]:
    """Return the answer in one sentence and what it rests on.

    decided: both, of tests over seeds; None takes those of the tests of ranks.
    """
    headline, basis = decided or _answer(analysis)
    if not decided and _are_all_guesses(analysis):
        metric = analysis.study.options.metric.replace("_", " ")
        headline = (
            f"No claim about {metric}: decisions of all algorithms are at chance on all data "
            f"sets. (Tests of ranks: {_continued(headline)})"
        )
    reference = analysis.study.options.reference
    if analysis.study.options.selection == "oracle":
        headline = f"By the oracle, a bound and not a result: {_continued(headline)}"
    if reference and not decided:
        basis = f"{basis} {_against(analysis, reference)}"
    return headline, basis


def points(analysis: analysis_lib.Analysis) -> list[str]:
    """Return what the answer rests on as short sentences, for the list on the page.

    Empty where `answer` has no such list: where ranks differ, or tests are over seeds.
    """
    if analysis.friedman is None or analysis.by_seeds or analysis.rejects:
        return []
    result, n = analysis.friedman, len(analysis.datasets)
    f = "" if math.isinf(result.statistic) else f", F = {three(result.statistic)}"
    sentences = [
        (
            f"Test: Friedman's, over {tables.count(len(analysis.algorithms), 'algorithm')} and "
            f"{tables.count(n, 'data set')}{f}, {p_by_permutation(analysis.permutation)} by "
            "permutation."
        ),
        (
            "This does not show that the algorithms are equal: here two differ significantly only "
            f"if their mean ranks are {analysis.critical_difference:.2f} apart (α = "
            f"{analysis.alpha:g})."
        ),
    ]
    if analysis.runs is not None:
        sentences.append(
            "Nor does it say that they are equal on one data set. Choose one before you look "
            "at scores, and test it with --datasets=NAME."
        )
    if reference := analysis.study.options.reference:
        sentences.append(_against(analysis, reference))
    return sentences


def shape_biases(biases: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return a sentence for each data set that shape biases were measured on.

    biases: the shape bias in % as text, by data set and algorithm. Of many algorithms the
    first ones are named.
    """
    sentences = []
    for dataset, cells in biases.items():
        each = [f"{name} {cell}" for name, cell in cells.items()]
        more = len(each) - _NAMED
        each[_NAMED:] = [f"{more} more in the table of scores"] if more > 0 else []
        sentences.append(
            f"Shape bias in % on {dataset}: {', '.join(each)}. The tests here do not compare "
            "shape biases; --metric=shape_bias does."
        )
    return sentences


def _continued(headline: str) -> str:
    """Return the sentence as it goes after a colon; a name keeps its capital."""
    word, _, remainder = headline.partition(" ")
    is_name = word not in ("No", "Nothing", "On", "The")
    return headline if is_name else f"{word.lower()} {remainder}"


def _are_all_guesses(analysis: analysis_lib.Analysis) -> bool:
    """Return whether ranks were tested, of decisions that are all at chance."""
    cells = {*itertools.product(analysis.algorithms, analysis.datasets)}
    return analysis.friedman is not None and cells <= analysis.study.guessed


def _answer(analysis: analysis_lib.Analysis) -> tuple[str, str]:
    if analysis.friedman is None:
        return "Nothing was tested.", analysis.why_not
    n, k = analysis.means.shape
    better, _ = analysis.study.sides
    p = p_by_permutation(analysis.permutation)
    decided = f"{p}, Friedman's test by permutation over {n} data sets"
    test = _test_words(analysis)
    if not analysis.rejects:
        headline = f"No significant difference between the {k} algorithms was found ({decided})."
        rest = (
            f"That does not show that they are equal: with {n} data sets, mean ranks of two "
            f"algorithms must lie {analysis.critical_difference:.2f} apart to differ at "
            f"α = {analysis.alpha:g}."
        )
        return headline, " ".join([test, rest, *_single_datasets(analysis)])
    total, claimed = k * (k - 1) // 2, analysis.significant
    if not claimed:
        headline = (
            f"The {k} algorithms differ as a whole ({decided}), and no single pair of the "
            f"{total} differs significantly."
        )
        return (
            headline,
            f"{test} No pair passes Nemenyi's test at α = {analysis.alpha:g}.",
        )
    pairs = [f"{a} and {b}, {p_equals(p)}" for a, b, p in claimed[:_MOST]]
    if len(claimed) > _MOST:
        pairs.append("the rest in the table of pairs")
    differ = "differs" if len(claimed) == 1 else "differ"
    headline = (
        f"The {k} algorithms differ significantly ({decided}), and {len(claimed)} of {total} "
        f"pairs {differ}: {_who_is_better(claimed, better)}."
    )
    if total == 1:
        headline = f"{claimed[0][0]} ranks significantly {better} than {claimed[0][1]} ({decided})."
    rest = f"Pairs by Nemenyi's test at α = {analysis.alpha:g}: {'; '.join(pairs)}."
    return headline, f"{test} {rest}"


def _single_datasets(analysis: analysis_lib.Analysis) -> Iterator[str]:
    """Say what is known, or can be tested, of single data sets where ranks do not differ."""
    if not analysis.tests:  # Nothing is known of runs yet.
        return
    if analysis.runs is None:
        not_tested = (
            "Nor does it say anything of single data sets, which are not tested over"
        )
        yield f"{not_tested} {analysis.study.repeats}: {analysis.no_seeds}."
        return
    welch = f"Welch's t-test over {analysis.study.repeats} (Bonferroni over its pairs, not over "
    welch += "data sets)"
    if analysis.best_cells:
        bold_cells = f"bold is the best of each with what {welch} does not tell from it"
    else:
        bold_cells = f"no score is bold, as {welch} tells no best one apart"
    yield (
        f"Nor does it say that they are equal on a single data set: in the table of scores {bold_cells}; "
        "all pairs on all data sets, adjusted together, are tested by jbias.stats.compare_seeds, "
        "and a data set that was chosen before the scores were seen by --datasets=NAME."
    )


def _who_is_better(claimed: Sequence[tuple[str, str, float]], better: str) -> str:
    """Return which algorithms rank better, or higher, than which, the first of many."""
    worse: dict[str, list[str]] = {}
    for first, name, _ in claimed:
        worse.setdefault(first, []).append(name)
    parts, most = [], len(worse) if len(claimed) <= _NAMED else 1
    for first, names in [*worse.items()][:most]:
        if len(names) > 5:
            names = [*names[:4], f"{len(names) - 4} others"]
        parts.append(f"{first} ranks {better} than {tables.join(names)}")
    if len(worse) > most:
        more = len(claimed) - sum(len(names) for names in [*worse.values()][:most])
        parts.append(f"{tables.count(more, 'more pair')} in the table of pairs")
    return "; ".join(parts)


def _test_words(analysis: analysis_lib.Analysis) -> str:
    """Return Friedman's test in a sentence: by permutation, and F that approximates it."""
    result, exact = analysis.friedman, analysis.permutation
    sizes = len(analysis.algorithms), len(analysis.datasets)
    words = (
        f"Friedman's test over {tables.count(sizes[0], 'algorithm')} and "
        f"{tables.count(sizes[1], 'data set')}: "
        f"F({result.df[0]}, {result.df[1]}) = {three(result.statistic)}, "
        f"{p_by_permutation(exact)} by permutation, which decides"
    )
    if math.isinf(result.statistic):  # Its p is no p.
        return f"{words}. {INFINITE_F}"
    return (
        f"{words}; Iman and Davenport's approximation gives {p_equals(result.pvalue)}."
    )


def _against(analysis: analysis_lib.Analysis, reference: str) -> str:
    """Says which algorithms differ from the reference, among all pairs and alone."""
    if "dunn" not in analysis.tests:
        return f"{reference} is not in the tests."
    better, worse = analysis.study.sides
    pairs = [
        f"{a} ranks {better} than {b}"
        if b == reference
        else f"{b} ranks {worse} than {a}"
        for a, b, _ in analysis.significant
        if reference in (a, b)
    ]
    among = f"Among all pairs no algorithm differs significantly from {reference}."
    among = f"Among all pairs, {tables.join(pairs)}." if pairs else among
    dunn = analysis.tests["dunn"]
    each = zip(dunn.algorithms, dunn.statistics, dunn.adjusted, strict=True)
    alone = [
        f"{name} ranks {better if z > 0 else worse} ({p_equals(p)})"
        for name, z, p in each
        if p <= analysis.alpha
    ]
    return (
        f"{among} If {reference} was chosen as the control before the scores were seen, it "
        "alone is compared, by Bonferroni-Dunn: "
        f"{tables.join(alone) or 'no algorithm differs'}."
    )


def _changed(analysis: analysis_lib.Analysis, *kinds: str) -> Iterator[str]:
    """Says where the conclusion hangs on counting data sets that are alike."""
    alpha = analysis.alpha
    for by in filter(analysis.alike.__contains__, kinds):
        found, test = analysis.alike[by]
        if test.least <= alpha and (test.pvalue <= alpha) != analysis.rejects:
            weak = " That alone is weak: the more algorithms differ, the fewer such blocks."
            yield (
                "The conclusion changes where data sets that are alike count together: with "
                f"{tables.count(found.count, 'block')} by {by}, {p_equals(test.pvalue)}."
                f"{weak * (by == 'scores')}"
            )


def alike(analysis: analysis_lib.Analysis) -> Iterator[str]:
    """Says how many data sets there are if those that are alike count together."""
    if not analysis.alike:
        return
    scores, deviations = (found for found, _ in analysis.alike.values())
    n, k = analysis.means.shape
    yield (
        f"The {n} data sets amount to {scores.participation_ratio:.2f}, unrelated ones to about "
        f"{scores.unrelated:.1f}: the participation ratio of Spearman's correlations of their "
        f"mean scores over {k} algorithms. Deviations of ranks from each algorithm's mean rank "
        f"amount to {deviations.participation_ratio:.2f} and {deviations.unrelated:.1f}. Scores "
        "correlate also where algorithms differ: the more they do, the fewer are the blocks by "
        "scores, and the less a test over these finds. Blocks by deviations leave that out. Both "
        "are found in the scores that are tested; blocks named before are better: "
        "jbias.stats.friedman_blocked takes them."
    )


def _doubts(analysis: analysis_lib.Analysis) -> Iterator[str]:
    """Says which runs may be one, and from which scores no claim follows."""
    study = analysis.study
    for one, other, how in study.twins:
        ask = "is one a copy" if other.startswith("seed ") else f"did {other} ever act"
        yield f"{one} and {other} {how}: {ask}?"
    named = [{one, other} for one, other, _ in study.twins]
    alike = [x for x in analysis.twins if {*x} not in named]
    for pair in alike[:_CHANCE]:
        yield f"{' and '.join(pair)} have the same scores everywhere: are they one?"
    if alike[_CHANCE:]:
        yield f"Of equal scores everywhere there are {len(alike)} pairs in all."
    for is_of_cues in (False, True):
        cells = [
            cell
            for cell in study.at_chance
            if (cell["metric"] == analysis_lib.CUES) == is_of_cues
        ]
        if cells:
            yield _at_chance(study, cells, is_of_cues=is_of_cues)


def _at_chance(
    study: analysis_lib.BenchmarkScores, cells: Sequence[Mapping], *, is_of_cues: bool
) -> str:
    """Return how many accuracies are at chance, which level that is, and what to do."""
    total = study.count_cells(of_cues=is_of_cues)
    number = (
        f"All {total:,}" if len(cells) == total > 1 else f"{len(cells)} of {total:,}"
    )
    verb = "is" if len(cells) == 1 else "are"
    right = "two" if is_of_cues else "one"
    levels = {cell["classes"]: cell["chance"] for cell in cells}
    chance = [
        f"{100 * level:.3g} %, {right} of {classes:,} classes"
        for classes, level in sorted(levels.items())
    ]
    names = [f"{cell['algorithm']} on {cell['dataset']}" for cell in cells[:_CHANCE]]
    if len(cells) > _CHANCE:
        names.append(f"{len(cells) - _CHANCE} more")
    what = "shares of decisions for either cue" if is_of_cues else "accuracies"
    interval = "is not above" if is_of_cues else "holds"
    claim = "of shape bias " if is_of_cues else ""
    return (
        f"{number} {what} {verb} at chance ({tables.join(chance)}): {tables.join(names)}. The "
        f"95 % interval over images {interval} what guessing gives, so no claim {claim}follows "
        "there: train longer or check the order of classes, or leave out what is at chance "
        "(--datasets, --algorithms)."
    )


# Of Friedman's test where Kendall's W is 1.
INFINITE_F = (
    "F is infinite as all data sets rank the algorithms in the same order: F divides by their "
    "disagreement, which is 0."
)


def untested(analysis: analysis_lib.Analysis) -> list[str]:
    """Says what was not tested, and why."""
    left = [f"Left out of the tests: {n} ({why})." for n, why in analysis.left_out]
    return [analysis.why_not, *left] if analysis.why_not else left


def made_of(analysis: analysis_lib.Analysis) -> str:
    """Says what the numbers of the main table are made of."""
    study, sizes = analysis.study, set(analysis.cells["n"]) - {0}
    spread = f"Mean ± std (n - 1) over {tables.span(sizes)} {study.repeats}."
    spread += f" {analysis_lib.RANGED}" * bool(study.unit.name)
    if study.is_of_means:
        spread = "Means over runs, ± as in the file, which may be a standard deviation, a standard "
        spread += "error or half an interval; single runs are not in it, so no test over runs "
        spread += "is possible."
    elif sizes == {1}:
        spread = f"One score a cell; without several {study.repeats} there is no ±."
    unit = " in %" if study.unit.name else ""
    metric = study.options.metric.replace("_", " ").capitalize()
    return f"{metric}{unit}, {study.ranks_first}. {spread} Selection: {study.rule}."


def bold(analysis: analysis_lib.Analysis, *, any_is: bool) -> str:
    """Says what is bold in the main table."""
    best = analysis.study.best
    if analysis.by_seeds is not None and any_is:
        return (
            f"Bold: the {best} of a data set, and what the tests over "
            f"{analysis.study.repeats} do not tell from it."
        )
    if analysis.by_seeds is not None and analysis.by_seeds.family:
        return f"Nothing is bold: no test tells the {best} apart."
    if not analysis.tests:
        return "Nothing is bold: nothing was tested."
    if not any_is:
        single = f"; {analysis.no_seeds}" * bool(analysis.no_seeds)
        return f"Nothing is bold: no test tells the {best} apart{single}."
    if analysis.runs is None:
        return (
            "Bold: the mean ranks that Nemenyi's test does not tell from the first. No score is "
            f"bold: {analysis.no_seeds}."
        )
    return (
        f"Bold: the {best} of a data set, and what Welch's t test over {analysis.study.repeats} "
        "(Bonferroni over its pairs) does not tell from it; of mean ranks, what Nemenyi's test "
        "does not."
    )


def stability(analysis: analysis_lib.Analysis) -> Iterator[str]:
    """Says how far the conclusions depend on which seeds were drawn."""
    what = analysis.study.repeats
    if analysis.runs is None:
        yield (
            f"Nothing is said of other {what}: {analysis.no_seeds}. The tests above take the "
            "scores as if they were exact."
        )
        return
    stable, mixed = analysis.seeds["stability"], analysis.seeds["mixed"]
    best = int(np.argmax(stable.best))
    yield (
        f"With other {what} (redrawn from these), {stable.algorithms[best]} would rank first "
        f"in {share(stable.best[best])} of draws, and all algorithms would stand in the same "
        f"order in {share(stable.same_order)}."
    )
    yield (
        f"Friedman's test by F {'rejects' if stable.friedman else 'does not reject'} here, and "
        f"would decide otherwise in {share(stable.friedman_flips)} of draws; some pair of "
        f"Nemenyi's test would in {share(stable.any_flips)}."
    )
    yield (
        f"A linear mixed model in which {what} and data sets are samples gives "
        f"F({mixed.df[0]:.4g}, {mixed.df[1]:.4g}) = {tables.digits(2)(mixed.statistic)}, "
        f"{p_equals(mixed.pvalue)}, for equal means on data sets like these."
    )


def power(analysis: analysis_lib.Analysis) -> Iterator[str]:
    """Says whether finding nothing in this study means anything."""
    if analysis.runs is None:
        yield f"Power is not known: {analysis.no_seeds}."
        return
    result = analysis.seeds["power"]
    yield result.verdict
    yield f"The difference asked about is {result.difference:g}: --points sets it."


def warnings(analysis: analysis_lib.Analysis) -> list[str]:
    """Return what may make the answer wrong, and is not what the user asked for."""
    study = analysis.study
    sentences = [f"{text}." for text in study.warnings]
    sentences += _changed(analysis, "deviations")
    sentences += _doubts(analysis)
    sentences += [
        f"{name} is not in the tests: {why}."
        for name, why in analysis.left_out
        if not _was_asked_for(analysis, name)
    ]
    if analysis.friedman is not None:
        sentences += _no_pair_can_differ(analysis)
        sentences += _points_beyond_scores(analysis)
    if study.is_runs:
        sentences += _lost(study)
    return sentences


def _was_asked_for(analysis: analysis_lib.Analysis, name: str) -> bool:
    """Return whether --strict is why a data set is left out of the tests."""
    study = analysis.study
    seen = any(dataset == name for _, dataset in study.trained)
    has_scores = study.values["dataset"].astype(str).eq(name).any()
    return study.options.strict and seen and bool(has_scores)


def notes(analysis: analysis_lib.Analysis) -> list[str]:
    """Return what a reader must know of such a study beside its warnings."""
    study = analysis.study
    sentences = [f"{text}." for text in score_notes.of_constants(study.values)]
    sentences += [
        f"{name} is not in the tests: {why}."
        for name, why in analysis.left_out
        if _was_asked_for(analysis, name)
    ]
    sentences += study.notes
    if analysis.friedman is not None:
        sentences += _caveats_of_tests(analysis)
    if study.options.selection == "oracle":
        sentences.append(
            "The oracle looks at the test sets to choose epochs. Its numbers are bounds and "
            "must not be compared with selected ones."
        )
    if study.is_runs:
        sentences += _caveats_of_runs(study)
    else:
        sentences.append(
            "A table of scores does not say how models were selected, how many images were "
            "seen or whether all were evaluated alike."
        )
    return sentences


def caveats(analysis: analysis_lib.Analysis) -> list[str]:
    """Return all that a reader must know before believing: warnings, then notes."""
    return [*warnings(analysis), *notes(analysis)]


def _caveats_of_tests(analysis: analysis_lib.Analysis) -> Iterator[str]:
    alpha, (n, k) = analysis.alpha, analysis.means.shape
    yield (
        "The rank tests compare means: the spread over seeds does not enter them, and data sets "
        "count as independent even where they share images or classes."
    )
    if not analysis.study.options.strict:
        yield (
            "Every test set counts alike, those that resemble the training data too; "
            "--datasets chooses, --strict leaves out what some algorithm trained on."
        )
    yield from _changed(analysis, *({*analysis.alike} - {"deviations"}))
    size = analysis.size
    if abs(size.f - alpha) > 0.1 * alpha + 3 * size.standard_error:
        yield (
            f"With {n} data sets and {k} algorithms F is an approximation: at a nominal "
            f"{alpha:g} it rejects in {100 * size.f:.1f} % of tables in which all algorithms "
            f"are alike (χ²: {100 * size.chi2:.1f} %). The permutation test has no such error."
        )
    if analysis.fewest == 2:
        yield (
            "Two runs give no interval: redrawn, they are one, the other or both. None over "
            "redrawn runs alone is shown."
        )
    elif analysis.fewest and resampling.percentile_coverage(analysis.fewest) < 0.92:
        yield (
            f"Intervals over few runs are too narrow: with {analysis.fewest} runs, one "
            f"called 95 % holds the mean of more runs in about "
            f"{resampling.percentile_coverage(analysis.fewest):.0%} of cases if scores are "
            "normal; with two humps, one rare, 54 % with 3 and 73 % with 5 in simulations."
        )
    if analysis.units_apart:
        low, high = analysis.units_apart
        yield (
            f"The scores of {high} are over 20 times those of {low}: Quade's test, aligned "
            "ranks, Wilcoxon's test and means over data sets need one unit. Ranks do not."
        )
    least = math.exp(-(n - 1) * math.lgamma(k + 1))
    if analysis.friedman.pvalue < least:
        yield (
            f"{p_equals(analysis.friedman.pvalue)} by F is an artefact of the "
            f"approximation: {n} random rankings of {k} algorithms agree fully with "
            f"probability {tables.p_text(least)}, so no exact p is smaller."
        )


def _points_beyond_scores(analysis: analysis_lib.Analysis) -> Iterator[str]:
    if analysis.rope > analysis.reach:
        yield (
            f"--points={analysis.rope:g} is more than the scores span ({analysis.reach:.3g}): "
            "what is said of equivalence and power means nothing until it is smaller."
        )


def _no_pair_can_differ(analysis: analysis_lib.Analysis) -> Iterator[str]:
    n, k = analysis.means.shape
    difference = analysis.critical_difference
    if difference > k - 1:
        yield (
            f"The critical difference ({difference:.2f}) is larger than the largest possible "
            f"difference of mean ranks ({k - 1}): with {n} data sets no pair can differ. More "
            "data sets are needed, not more seeds."
        )


def _lost(study: analysis_lib.BenchmarkScores) -> Iterator[str]:
    """Yield which seeds are missing, and why."""
    labels = {run.name: run.label for run in study.runs}
    for row in study.diverged.itertuples():
        name = labels.get(row.run, row.run)
        yield f"Seed {row.seed} of {name} diverged at step {row.step}: it is in no mean."
    for run in study.runs:
        if run.lost_seeds:
            yield f"{run.workdir} has no record of seed {tables.join(run.lost_seeds)}."


def demonstration(study: analysis_lib.BenchmarkScores) -> str:
    """Return what the page's head says of runs that were trained on drawn shapes alone."""
    if not study.train_sets or not all(map(_is_drawn, study.train_sets)):
        return ""
    return "a demonstration on drawn shapes, not on photographs"


def _is_drawn(train_data: str) -> bool:
    """Return whether these are images of the embedded set."""
    return re.split("[/:]", train_data)[0] == "shapes"


def _caveats_of_runs(study: analysis_lib.BenchmarkScores) -> Iterator[str]:
    if few := list(study.seeds.index[study.seeds < 3]):
        yield (
            f"{tables.join(few)}: fewer than 3 seeds; the deviation over seeds is hardly "
            "known."
        )
    if any(map(_is_drawn, study.train_sets)):
        yield (
            "The models were trained on the embedded set of drawn shapes. What holds there "
            "need not hold on photographs such as ImageNet."
        )
    kinds = (("models", study.models), ("training data", study.train_sets))
    for what, names in kinds:
        if len(names) > 1:
            yield (
                f"The runs differ in {what} ({tables.join(names)}): differences between "
                "algorithms may come from there."
            )
    parts = study.selected[study.selected["metric"] == study.options.metric]
    parts = parts[parts["dataset"].isin(study.datasets)]
    whole = set(parts.loc[parts["condition"] == "", "dataset"])
    if averaged := sorted(set(parts["dataset"]) - whole):
        yield f"{tables.join(averaged)}: the mean over conditions, equally weighted."


_FILE = pathlib.Path(__file__).parent / "methods.bib"
_ENTRIES = map(str.strip, _FILE.read_text("utf-8").split("\n\n"))
_KEYED = {one[one.index("{") + 1 : one.index(",")]: one for one in _ENTRIES}
BIB: Mapping[str, str] = types.MappingProxyType(_KEYED)


class Methods(NamedTuple):
    """What a paper says of how it compared: paragraphs with citations as [key]."""

    paragraph: str  # On what the answer, the scores and their figure rest.
    others: str  # On the tests and intervals of the other sections; may be empty.
    keys: list[str]  # Of the works cited, in their order.


def methods(analysis: analysis_lib.Analysis, tests: str = "") -> Methods:
    """Return the paragraphs for a paper, with the keys of the works that they cite.

    tests: the sentences on tests over seeds, where ranks are not tested.
    """
    packages = ("numpy", "scipy", "pandas")
    packages = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    python = ", ".join([f"Python {platform.python_version()}", *packages])
    made = f"Computed with jbias {jbias.__version__} ({python})"
    compared = _compared(analysis.study)
    if not analysis.tests:
        text = f"{compared} {tests or 'No hypothesis was tested.'} {made}."
        cited = [key for key in BIB if f"[{key}" in text or f"; {key}" in text]
        return Methods(text, "", sorted(cited, key=text.index) or ["kalischek2023"])
    made = f"{made}, after BiasBed [kalischek2023]."
    text = " ".join([compared, *_deciding_tests(analysis), made])
    others = " ".join([*_other_tests(analysis), _spread(analysis)])
    both = f"{text} {others}"
    cited = [key for key in BIB if f"[{key}" in both or f"; {key}" in both]
    return Methods(text, others, sorted(cited, key=both.index))


def _compared(study: analysis_lib.BenchmarkScores) -> str:
    runs = f"{tables.span(study.seeds)} {study.repeats}"
    runs = runs.removesuffix("s") if {*study.seeds} == {1} else runs
    of_means = "means over runs, whose own scores are not known"
    runs = of_means if study.is_of_means else f"{runs} each"
    reported = f"; reported: {study.rule}" if study.is_runs else ""
    return (
        f"We compare {tables.count(len(study.algorithms), 'algorithm')} on "
        f"{tables.count(len(study.datasets), 'data set')} "
        f"by {study.options.metric.replace('_', ' ')} "
        f"({study.ranks_first}), with "
        f"{runs}{reported}."
    )


def _deciding_tests(analysis: analysis_lib.Analysis) -> Iterator[str]:
    f, exact = analysis.friedman, analysis.permutation
    n, k = analysis.means.shape
    alike = " (the ranks are the same on all data sets)" * math.isinf(f.statistic)
    how = "all" if exact.exact else f"{exact.permutations:,} random"
    scores = (
        "Means over runs"
        if analysis.study.is_of_means
        else "Scores are averaged over runs"
    )
    scores += " are ranked" if analysis.study.is_of_means else " and ranked"
    yield (
        f"{scores} on each data set. Whether all {k} "
        f"algorithms rank alike on {n} data sets is tested by Friedman's test [friedman1937], "
        "corrected for ties, in Iman and Davenport's form [iman1980; demsar2006], "
        f"F({f.df[0]}, {f.df[1]}) = {three(f.statistic)}{alike}, with p from {how} permutations within "
        f"data sets, {p_by_permutation(exact)}. If this test rejects, pairs are compared by "
        f"Nemenyi's test [nemenyi1963], both at the level {analysis.alpha:g}."
    )
    if analysis.runs is not None:
        yield (
            "The best score of a data set is told from others by Welch's t test over runs, "
            "Bonferroni for all pairs, with variances of at least the pooled one."
        )
    if left := [f"{name} ({why})" for name, why in analysis.left_out]:
        yield f"Left out of the tests: {'; '.join(left)}."


def _other_tests(analysis: analysis_lib.Analysis) -> Iterator[str]:
    yield (
        "Beside the deciding tests stand max-T by permutation [westfall1993], Conover's test "
        f"[conover1999] and the {'exact ' if analysis.tests['wilcoxon'].exact else ''}Wilcoxon "
        "signed-rank test [wilcoxon1945], the last two adjusted by Holm [holm1979], Quade's test "
        "[quade1979] and aligned ranks [hodges1962]."
    )
    terry = analysis.tests["bradley_terry"]
    yield (
        "Bayesian answers are from the signed-rank test with a region of practical "
        f"equivalence of {analysis.rope:g} [benavoli2017]"
        f"{'' if terry is None else ' and the Bradley-Terry model [wainer2023]'}."
    )
    if "dunn" in analysis.tests:
        yield (
            f"Comparisons with {analysis.tests['dunn'].control} alone are adjusted after "
            "Dunn [dunn1961] and Holm."
        )
        if analysis.runs is not None:
            yield (
                "P(A > B) is the share of seeds with which a run beats the control's "
                "[bouthillier2021], with exact intervals; the bound of almost stochastic order "
                "[dror2019] is given as a description."
            )


def _spread(analysis: analysis_lib.Analysis) -> str:
    if analysis.runs is None:
        return f"The spread over runs is not analysed: {analysis.no_seeds}."
    return (
        f"Intervals are 95 % percentile bootstrap intervals of {analysis.draws:,} draws; runs "
        "are redrawn within algorithms, for all data sets together, and for statements on "
        "other data sets the data sets too, and the interval is widened as Student's t asks "
        f"for so few data sets. Shares of draws have standard errors of at most "
        f"{50 / math.sqrt(analysis.draws):.1f} points. Interquartile means, optimality gaps and "
        "performance profiles follow [agarwal2021], on scores normalised by the worst and "
        "best run of each data set; the probability that one run beats another is Vargha and "
        "Delaney's A [vargha2000]. Where runs and data sets are samples, a linear mixed model "
        "has random effects of data sets, of data sets by algorithms and of runs. Power is by simulation from the spread of "
        "algorithms between data sets and of runs."
    )


def bib(keys: Sequence[str]) -> str:
    """Gives the BibTeX entries of these works."""
    fields = ("author = {{The jbias authors}}", "title = {jbias}")
    fields = ",\n  ".join((*fields, f"version = {{{jbias.__version__}}}"))
    entries = [*(BIB[key] for key in keys), f"@software{{jbias,\n  {fields}\n}}"]
    return "\n\n".join(entries) + "\n"


def markdown(*paragraphs: str) -> str:
    """Return paragraphs as the lines of a file; empty ones are left out."""
    wrapped = [
        textwrap.wrap(text, 100, break_on_hyphens=False) for text in paragraphs if text
    ]
    texts = ("".join(messages.printable(line) + "\n" for line in x) for x in wrapped)
    return "\n".join(texts)
