"""Functions that write the sentences of the report that compares algorithms.

A cell is an algorithm on a data set. Ranks were tested if `Analysis.friedman` is not None, and
seeds were analysed if `Analysis.runs` is not None.
"""

import importlib.metadata
import itertools
import math
import platform
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jbias
from jbias.report import tables
from jbias.report.pages.benchmark import analysis as analysis_lib
from jbias.report.pages.benchmark import (
    benchmark_scores,
    bibliography,
    recorded_comparisons,
    score_notes,
)
from jbias.runtime import messages
from jbias.stats import bootstrap_intervals

_three_digits = tables.digits(3)
_MAX_P_VALUES = 4  # Pairs with p below the answer; the table has all pairs.
_MAX_PAIRS = 8  # Significant pairs up to which the answer names all.
_MAX_CELLS = 6  # Cells at chance, or equal pairs, that a warning names.


def p_equals(p: float) -> str:
    """Return a p-value as "p = 0.016" or "p < 1e-9"."""
    text = tables.p_text(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def p_by_permutation(permutation: Any) -> str:
    """Return the p of a permutation test as text, "p ≤ ..." if no drawn value is as extreme.

    permutation: the result of `stats.friedman_permutation`.
    """
    text = p_equals(permutation.pvalue)
    num_as_extreme = permutation.pvalue * (permutation.permutations + 1)
    is_bound = not permutation.exact and num_as_extreme < 1.5
    return text.replace("p =", "p ≤") if is_bound else text


def share(value: float) -> str:
    """Return a share in [0, 1] as per cent, such as "12 %", "< 1 %" or "> 99 %"."""
    if 0.005 <= value <= 0.995 or value in (0, 1):
        return f"{100 * value:.0f} %"
    return "< 1 %" if value < 0.5 else "> 99 %"


def answer(
    analysis: analysis_lib.Analysis, seed_answer: tuple[str, str] | None = None
) -> tuple[str, str]:
    """Return (headline, sentences on the tests that support the headline).

    The headline starts with "By the oracle" if evaluations were selected by the oracle. For tests
    of ranks, the headline is "Nothing was tested." without tests, and has "No claim" first if all
    tested cells are at chance; with a reference, the sentences end with the comparison with the
    reference. Comparisons that chose the number of seeds for the metric are first. seed_answer: the result of `seed_sections.answer`; None for the tests of ranks.
    """
    headline, basis = seed_answer or _answer(analysis)
    if not seed_answer and _are_all_at_chance(analysis):
        metric = analysis.study.options.metric.replace("_", " ")
        headline = (
            f"No claim about {metric}: decisions of all algorithms are at chance on all data "
            f"sets. (Tests of ranks: {_after_colon(headline)})"
        )
    headline = _with_recorded_verdicts(analysis.study, headline)
    reference = analysis.study.options.reference
    if analysis.study.options.selection == "oracle":
        headline = f"By the oracle, a bound and not a result: {_after_colon(headline)}"
    if reference and not seed_answer:
        basis = f"{basis} {_against(analysis, reference)}"
    return headline, basis


def _with_recorded_verdicts(
    study: benchmark_scores.BenchmarkScores, headline: str
) -> str:
    """Return the headline after the verdicts of comparisons that chose the number of seeds.

    Only comparisons with the metric of the page on its data sets count.
    """
    recorded = [
        item
        for item in study.recorded
        if item.settings.metric == study.options.metric
        and item.settings.dataset in study.datasets
    ]
    if not recorded:
        return headline
    verdicts = recorded_comparisons.headline(recorded, study.guessed)
    return (
        f"{verdicts} As the number of seeds was chosen while looking, other tests over these "
        f"seeds are not valid there: {headline}"
    )


def points(analysis: analysis_lib.Analysis) -> list[str]:
    """Return the sentences on the tests of ranks as a list, for the page.

    Empty if ranks differ significantly, if ranks were not tested, or if seeds were tested.
    """
    if analysis.friedman is None or analysis.by_seeds or analysis.rejects:
        return []
    result = analysis.friedman
    n = len(analysis.datasets)
    f = ""
    if not math.isinf(result.statistic):
        f = f", F = {_three_digits(result.statistic)}"
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
            "The test compares the algorithms over all data sets. To test one data set alone, "
            "choose the data set before you see its scores and use --datasets=NAME."
        )
    reference = analysis.study.options.reference
    if reference:
        sentences.append(_against(analysis, reference))
    return sentences


def shape_biases(biases: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return one sentence per data set with the shape biases of at most 8 algorithms.

    biases: the shape bias in % as text, by data set and algorithm.
    """
    sentences = []
    for dataset, by_algorithm in biases.items():
        texts = [f"{name} {bias}" for name, bias in by_algorithm.items()]
        num_hidden = len(texts) - _MAX_PAIRS
        if num_hidden > 0:
            texts[_MAX_PAIRS:] = [f"{num_hidden} more in the table of scores"]
        sentences.append(
            f"Shape bias in % on {dataset}: {', '.join(texts)}. The tests here do not compare "
            "shape biases; --metric=shape_bias does."
        )
    return sentences


def _after_colon(headline: str) -> str:
    """Return the headline, with its first word in lower case if that word is not a name.

    The words that are not names are "No", "Nothing", "On" and "The".
    """
    word, _, remainder = headline.partition(" ")
    is_name = word not in ("No", "Nothing", "On", "The")
    return headline if is_name else f"{word.lower()} {remainder}"


def _are_all_at_chance(analysis: analysis_lib.Analysis) -> bool:
    """Return True if ranks were tested and all tested cells are at chance."""
    cells = {*itertools.product(analysis.algorithms, analysis.datasets)}
    return analysis.friedman is not None and cells <= analysis.study.guessed


def _answer(analysis: analysis_lib.Analysis) -> tuple[str, str]:
    """Return (headline, sentences on the tests) of the tests of ranks.

    The headline has p and the pairs that differ significantly, if any. The sentences have
    Friedman's test, then the p-values of pairs, or the meaning of no significant difference.
    ("Nothing was tested.", reason) if ranks were not tested.
    """
    if analysis.friedman is None:
        return "Nothing was tested.", analysis.why_not
    n, k = analysis.means.shape
    better, _ = analysis.study.rank_words
    p = p_by_permutation(analysis.permutation)
    test_in_brackets = f"{p}, Friedman's test by permutation over {n} data sets"
    test = _friedman_sentence(analysis)
    if not analysis.rejects:
        headline = (
            f"No significant difference between the {k} algorithms was found "
            f"({test_in_brackets})."
        )
        limit = (
            f"This does not show that the algorithms are equal: with {n} data sets, two "
            "algorithms differ significantly only if their mean ranks are "
            f"{analysis.critical_difference:.2f} apart (α = {analysis.alpha:g})."
        )
        return headline, " ".join([test, limit, *_single_datasets(analysis)])
    num_pairs = k * (k - 1) // 2
    significant = analysis.significant
    if not significant:
        headline = (
            f"The {k} algorithms differ as a whole ({test_in_brackets}), and no single pair of the "
            f"{num_pairs} differs significantly."
        )
        return (
            headline,
            f"{test} No pair passes Nemenyi's test at α = {analysis.alpha:g}.",
        )
    pairs = [f"{a} and {b}, {p_equals(p)}" for a, b, p in significant[:_MAX_P_VALUES]]
    if len(significant) > _MAX_P_VALUES:
        pairs.append("the rest in the table of pairs")
    differ = "differs" if len(significant) == 1 else "differ"
    headline = (
        f"The {k} algorithms differ significantly ({test_in_brackets}), and "
        f"{len(significant)} of {num_pairs} pairs {differ}: "
        f"{_list_pairs(significant, better)}."
    )
    if num_pairs == 1:
        first, second, _ = significant[0]
        headline = (
            f"{first} ranks significantly {better} than {second} ({test_in_brackets})."
        )
    pairs_sentence = (
        f"Pairs by Nemenyi's test at α = {analysis.alpha:g}: {'; '.join(pairs)}."
    )
    return headline, f"{test} {pairs_sentence}"


def _single_datasets(analysis: analysis_lib.Analysis) -> Iterator[str]:
    """Yield the sentence on tests of single data sets, or on the reason why there are none.

    Nothing is yielded for an analysis without the fields of `with_evidence`.
    """
    if analysis.tests is None:  # `with_evidence` has not added the runs yet.
        return
    repeats = analysis.study.repeats
    if analysis.runs is None:
        yield f"Single data sets are not tested over {repeats}: {analysis.no_seeds}."
        return
    welch = (
        f"Welch's t-test over {repeats} (Bonferroni over its pairs, not over data sets)"
    )
    if analysis.best_cells:
        bold_cells = (
            "bold marks the best of each data set and the algorithms that do not differ from "
            f"the best by {welch}"
        )
    else:
        bold_cells = f"no score is bold, because no best one is significant by {welch}"
    yield (
        f"On single data sets: in the table of scores, {bold_cells}; "
        "jbias.stats.compare_seeds tests all pairs on all data sets, adjusted together; "
        "--datasets=NAME tests one data set, if it was chosen before its scores were seen."
    )


def _list_pairs(significant: Sequence[tuple[str, str, float]], better: str) -> str:
    """Return the significant pairs as "A ranks better than B and C; D ranks ...".

    If there are more than 8 pairs, only the pairs of the first algorithm are named. If more than 5
    names follow "than", the text has 4 of the names and the number of the remaining names.
    significant: pairs as (better, worse, p). better: "better", or "higher" for a bias.
    """
    worse: dict[str, list[str]] = {}
    for first, name, _ in significant:
        worse.setdefault(first, []).append(name)
    num_named = len(worse) if len(significant) <= _MAX_PAIRS else 1
    clauses = []
    for first, names in [*worse.items()][:num_named]:
        if len(names) > 5:
            names = [*names[:4], f"{len(names) - 4} others"]
        clauses.append(f"{first} ranks {better} than {tables.join(names)}")
    if len(worse) > num_named:
        num_listed = sum(len(names) for names in [*worse.values()][:num_named])
        num_hidden = len(significant) - num_listed
        clauses.append(f"{tables.count(num_hidden, 'more pair')} in the table of pairs")
    return "; ".join(clauses)


def _friedman_sentence(analysis: analysis_lib.Analysis) -> str:
    """Return the sentence on Friedman's test, by permutation and by its approximation F.

    If F is infinite, the sentence has the reason instead of the p by F.
    """
    result = analysis.friedman
    sentence = (
        f"Friedman's test over {tables.count(len(analysis.algorithms), 'algorithm')} and "
        f"{tables.count(len(analysis.datasets), 'data set')}: "
        f"F({result.df[0]}, {result.df[1]}) = {_three_digits(result.statistic)}, "
        f"{p_by_permutation(analysis.permutation)} by permutation, which decides"
    )
    if math.isinf(result.statistic):  # The p of an infinite F has no meaning.
        return f"{sentence}. {INFINITE_F}"
    return (
        f"{sentence}; Iman and Davenport's approximation gives "
        f"{p_equals(result.pvalue)}."
    )


def _against(analysis: analysis_lib.Analysis, reference: str) -> str:
    """Return sentences on the algorithms that differ significantly from the reference.

    The first sentence is on Nemenyi's test of all pairs, the second on Bonferroni-Dunn's test
    against the reference only. If the reference was not tested, one sentence says so. reference:
    name of the reference algorithm.
    """
    if not analysis.has_reference:
        return f"{reference} is not in the tests."
    better, worse = analysis.study.rank_words
    pairs = [
        f"{a} ranks {better} than {b}"
        if b == reference
        else f"{b} ranks {worse} than {a}"
        for a, b, _ in analysis.significant
        if reference in (a, b)
    ]
    among_all_pairs = (
        f"Among all pairs, {tables.join(pairs)}."
        if pairs
        else f"Among all pairs no algorithm differs significantly from {reference}."
    )
    dunn = analysis.tests.dunn
    rows = zip(dunn.algorithms, dunn.statistics, dunn.adjusted, strict=True)
    significant = [
        f"{name} ranks {better if z > 0 else worse} ({p_equals(p)})"
        for name, z, p in rows
        if p <= analysis.alpha
    ]
    return (
        f"{among_all_pairs} If {reference} was chosen as the control before the scores were "
        f"seen, only comparisons with {reference} count, by Bonferroni-Dunn: "
        f"{tables.join(significant) or 'no algorithm differs'}."
    )


def _changed_conclusions(
    analysis: analysis_lib.Analysis, kinds: Sequence[str]
) -> Iterator[str]:
    """Yield a sentence for each test over blocks that contradicts the test over data sets.

    Blocks are groups of similar data sets. A test whose smallest possible p is above alpha is left
    out.

    kinds: keys of `analysis.dataset_blocks`, the values by which data sets are similar.
    """
    alpha = analysis.alpha
    for by in kinds:
        if by not in analysis.dataset_blocks:
            continue
        blocks, test = analysis.dataset_blocks[by]
        if test.least <= alpha and (test.pvalue <= alpha) != analysis.rejects:
            caution = ""
            if by == "scores":
                caution = (
                    " This alone is weak evidence: the more algorithms differ, the fewer "
                    "blocks by scores there are."
                )
            yield (
                "The conclusion changes if similar data sets are counted as one block: with "
                f"{tables.count(blocks.count, 'block')} by {by}, "
                f"{p_equals(test.pvalue)}.{caution}"
            )


def _doubts(analysis: analysis_lib.Analysis) -> Iterator[str]:
    """Yield warnings on runs that may be copies, then on accuracies and decisions at chance.

    All accuracies at chance share one sentence, and all decisions for a cue at chance share another
    sentence. Each item of `study.twins` has a sentence. Of other pairs with identical scores, 6
    have a sentence each; if there are more, a last sentence has their number.
    """
    study = analysis.study
    for first, second, reason in study.twins:
        if second.startswith("seed "):
            question = "is one a copy of the other"
        else:
            question = f"did {second} have any effect"
        yield f"{first} and {second} {reason}: {question}?"
    named = [{first, second} for first, second, _ in study.twins]
    equal_pairs = [pair for pair in analysis.twins if {*pair} not in named]
    for first, second in equal_pairs[:_MAX_CELLS]:
        yield (
            f"{first} and {second} have identical scores on all data sets: are they the same "
            "run?"
        )
    if equal_pairs[_MAX_CELLS:]:
        yield f"{len(equal_pairs)} pairs have identical scores on all data sets."
    for is_of_cues in (False, True):
        cells = [
            cell
            for cell in study.at_chance
            if (cell["metric"] == benchmark_scores.CUES) == is_of_cues
        ]
        if cells:
            yield _at_chance(study, cells, is_of_cues=is_of_cues)


def _at_chance(
    study: benchmark_scores.BenchmarkScores,
    cells: Sequence[Mapping],
    *,
    is_of_cues: bool,
) -> str:
    """Return the warning on cells at chance: their number, names, level and remedies.

    cells: items of `BenchmarkScores.at_chance`. is_of_cues: True if the cells are shares of
    decisions for a cue, False for accuracies.
    """
    total = study.count_cells(of_cues=is_of_cues)
    number = (
        f"All {total:,}" if len(cells) == total > 1 else f"{len(cells)} of {total:,}"
    )
    verb = "is" if len(cells) == 1 else "are"
    num_correct = "two" if is_of_cues else "one"
    levels = {cell["classes"]: cell["chance"] for cell in cells}
    chance = [
        f"{100 * level:.3g} %, {num_correct} of {classes:,} classes"
        for classes, level in sorted(levels.items())
    ]
    names = [f"{cell['algorithm']} on {cell['dataset']}" for cell in cells[:_MAX_CELLS]]
    if len(cells) > _MAX_CELLS:
        names.append(f"{len(cells) - _MAX_CELLS} more")
    noun = "shares of decisions for either cue" if is_of_cues else "accuracies"
    interval = "is not above" if is_of_cues else "contains"
    topic = "on shape bias " if is_of_cues else ""
    return (
        f"{number} {noun} {verb} at chance ({tables.join(chance)}): {tables.join(names)}. The "
        f"95 % interval over images {interval} the level of guessing, so no claim {topic}follows "
        "there: train longer, check the order of classes, or leave out these data sets or "
        "algorithms (--datasets, --algorithms)."
    )


# Note on Friedman's test if Kendall's W is 1.
INFINITE_F = (
    "F is infinite because all data sets rank the algorithms in the same order: F divides by "
    "their disagreement, which is 0."
)


def untested(analysis: analysis_lib.Analysis) -> list[str]:
    """Return sentences on tests that were not run, and one per data set or algorithm left out.

    [] if everything was tested.
    """
    left_out = [
        f"Left out of the tests: {name} ({reason})."
        for name, reason in analysis.left_out
    ]
    return [analysis.why_not, *left_out] if analysis.why_not else left_out


def describe_scores(analysis: analysis_lib.Analysis) -> str:
    """Return the caption of the main table: metric, unit, spread and selection."""
    study = analysis.study
    sizes = set(analysis.cells["n"]) - {0}
    if study.is_of_means:
        spread = (
            "Means over runs, ± as in the file, which may be a standard deviation, a standard "
            "error or half an interval; the file does not have the scores of each run, so no "
            "test over runs is possible."
        )
    elif sizes == {1}:
        spread = f"One score per cell; ± needs several {study.repeats}."
    else:
        spread = f"Mean ± std (n - 1) over {tables.span(sizes)} {study.repeats}."
        spread += f" {benchmark_scores.RANGED}" if study.unit.name else ""
    unit = " in %" if study.unit.name else ""
    metric = study.options.metric.replace("_", " ").capitalize()
    return f"{metric}{unit}, {study.ranks_first}. {spread} Selection: {study.rule}."


def describe_bold(analysis: analysis_lib.Analysis, *, has_bold: bool) -> str:
    """Return the sentence that explains the bold cells of the main table, or their absence.

    has_bold: True if the table has bold cells.
    """
    best = analysis.study.best
    repeats = analysis.study.repeats
    if analysis.by_seeds is not None and has_bold:
        return (
            f"Bold: the {best} of a data set, and scores that the tests over {repeats} do not "
            f"separate from the {best}."
        )
    if analysis.by_seeds is not None and analysis.by_seeds.family:
        return f"Nothing is bold: no test separates the {best} from the other scores."
    if analysis.tests is None:
        return "Nothing is bold: nothing was tested."
    if not has_bold:
        reason = f"; {analysis.no_seeds}" if analysis.no_seeds else ""
        return f"Nothing is bold: no test separates the {best} from the other scores{reason}."
    if analysis.runs is None:
        return (
            "Bold: mean ranks that Nemenyi's test does not separate from the first. No score "
            f"is bold: {analysis.no_seeds}."
        )
    return (
        f"Bold: the {best} of a data set, and scores that Welch's t test over {repeats} "
        f"(Bonferroni over its pairs) does not separate from the {best}; also mean ranks that "
        "Nemenyi's test does not separate from the first."
    )


def warnings(analysis: analysis_lib.Analysis) -> list[str]:
    """Return sentences on scores, runs and tests that may make the headline wrong.

    In this order: numbers of seeds that were chosen while looking, scores that may be mistakes, blocks of data sets that change the conclusion,
    copies and scores at chance, algorithms and data sets left out of the tests, tests that cannot
    reject, a --points that is too large, and lost seeds. Data sets that --strict leaves out are in
    `notes` instead.
    """
    study = analysis.study
    sentences = recorded_comparisons.caveats(study.recorded)
    sentences += [f"{text}." for text in study.warnings]
    sentences += _changed_conclusions(analysis, ["deviations"])
    sentences += _doubts(analysis)
    sentences += [
        f"{name} is not in the tests: {reason}."
        for name, reason in analysis.left_out
        if not _was_asked_for(analysis, name)
    ]
    if analysis.friedman is not None:
        sentences += _no_pair_can_differ(analysis)
        sentences += _points_beyond_scores(analysis)
    if study.is_runs:
        sentences += _lost_seeds(study)
    return sentences


def _was_asked_for(analysis: analysis_lib.Analysis, name: str) -> bool:
    """Return True if the data set `name` is left out of the tests because of --strict."""
    study = analysis.study
    is_trained_on = any(dataset == name for _, dataset in study.trained)
    has_scores = study.values["dataset"].astype(str).eq(name).any()
    return study.options.strict and is_trained_on and bool(has_scores)


def notes(analysis: analysis_lib.Analysis) -> list[str]:
    """Return sentences on the limits of the study, without its warnings."""
    study = analysis.study
    sentences = [f"{text}." for text in score_notes.of_constants(study.values)]
    sentences += [
        f"{name} is not in the tests: {reason}."
        for name, reason in analysis.left_out
        if _was_asked_for(analysis, name)
    ]
    sentences += study.notes
    if analysis.friedman is not None:
        sentences += _caveats_of_tests(analysis)
    if study.options.selection == "oracle":
        sentences.append(
            "The oracle looks at the test sets to choose epochs. Its scores are bounds; do not "
            "compare them with scores of another selection."
        )
    if study.is_runs:
        sentences += _caveats_of_runs(study)
    else:
        sentences.append(
            "A table of scores does not say how models were selected, how many images were "
            "used or whether all models were evaluated in the same way."
        )
    return sentences


def caveats(analysis: analysis_lib.Analysis) -> list[str]:
    """Return the sentences of `warnings`, then those of `notes`."""
    return [*warnings(analysis), *notes(analysis)]


def _caveats_of_tests(analysis: analysis_lib.Analysis) -> Iterator[str]:
    """Yield sentences on the limits of the rank tests and of intervals over runs.

    The first sentence is on the spread over seeds. The other sentences apply only in some cases:
    test sets of equal weight (without --strict), blocks of data sets that change the conclusion, an
    inexact F, few runs, units that differ, and a p by F below the smallest exact p. Ranks must have
    been tested.
    """
    alpha, (n, k) = analysis.alpha, analysis.means.shape
    yield (
        "The rank tests compare means: the spread over seeds does not enter them, and data sets "
        "count as independent even where they share images or classes."
    )
    if not analysis.study.options.strict:
        yield (
            "Every test set has the same weight, also test sets that resemble the training "
            "data; --datasets chooses test sets, --strict leaves out test sets that some "
            "algorithm trained on."
        )
    yield from _changed_conclusions(
        analysis, [*({*analysis.dataset_blocks} - {"deviations"})]
    )
    size = analysis.size
    if abs(size.f - alpha) > 0.1 * alpha + 3 * size.standard_error:
        yield (
            f"With {n} data sets and {k} algorithms F is an approximation: at a nominal "
            f"{alpha:g} it rejects in {100 * size.f:.1f} % of tables in which all algorithms "
            f"are equal (χ²: {100 * size.chi2:.1f} %). The permutation test has no such error."
        )
    if analysis.min_runs == 2:
        yield (
            "Two runs give no interval, because redrawn runs are one, the other or both: no "
            "interval over redrawn runs alone is shown."
        )
    elif (
        analysis.min_runs
        and bootstrap_intervals.percentile_coverage(analysis.min_runs) < 0.92
    ):
        yield (
            f"Intervals over few runs are too narrow: with {analysis.min_runs} runs, a 95 % "
            "interval contains the mean of more runs in about "
            f"{bootstrap_intervals.percentile_coverage(analysis.min_runs):.0%} of cases if scores are "
            "normal; if scores have two modes, one of them rare, in 54 % with 3 runs and 73 % "
            "with 5, in simulations."
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
    """Yield a warning if --points exceeds the range of the scores."""
    if analysis.rope > analysis.score_range:
        yield (
            f"--points={analysis.rope:g} is larger than the range of the scores "
            f"({analysis.score_range:.3g}), so statements on equivalence and power are "
            "meaningless; choose a smaller value."
        )


def _no_pair_can_differ(analysis: analysis_lib.Analysis) -> Iterator[str]:
    """Yield a warning if the critical difference exceeds all possible differences of ranks."""
    n, k = analysis.means.shape
    difference = analysis.critical_difference
    if difference > k - 1:
        yield (
            f"The critical difference ({difference:.2f}) is larger than the largest possible "
            f"difference of mean ranks ({k - 1}): with {n} data sets no pair can differ. More "
            "data sets are needed, not more seeds."
        )


def _lost_seeds(study: benchmark_scores.BenchmarkScores) -> Iterator[str]:
    """Yield a sentence per diverged seed, and per run without records of a seed in its settings."""
    labels = {run.name: run.label for run in study.runs}
    for row in study.diverged.itertuples():
        name = labels.get(row.run, row.run)
        yield f"Seed {row.seed} of {name} diverged at step {row.step} and is left out of all means."
    for run in study.runs:
        if run.lost_seeds:
            yield f"{run.workdir} has no record of seed {tables.join(run.lost_seeds)}."


def demonstration(study: benchmark_scores.BenchmarkScores) -> str:
    """Return the note for the page's head if all runs were trained on the set "shapes", else ""."""
    if not study.train_sets or not all(map(_is_drawn, study.train_sets)):
        return ""
    return "a demonstration on drawn shapes, not on photographs"


def _is_drawn(train_data: str) -> bool:
    """Return True if the training data is the embedded data set "shapes".

    train_data: name of the training set, as in records.
    """
    return re.split("[/:]", train_data)[0] == "shapes"


def _caveats_of_runs(study: benchmark_scores.BenchmarkScores) -> Iterator[str]:
    """Yield sentences on the limits of a study of runs, each only where it applies.

    In this order: algorithms with fewer than 3 seeds; training on the embedded data set "shapes";
    runs that differ in models, or in training data; test sets whose scores are means over
    conditions.
    """
    few_seeds = list(study.seeds.index[study.seeds < 3])
    if few_seeds:
        yield (
            f"{tables.join(few_seeds)}: fewer than 3 seeds, too few to estimate the deviation "
            "over seeds."
        )
    if any(map(_is_drawn, study.train_sets)):
        yield (
            "The models were trained on the embedded set of drawn shapes. The results need not "
            "hold for photographs such as ImageNet."
        )
    for noun, names in (
        ("models", study.models),
        ("training data", study.train_sets),
    ):
        if len(names) > 1:
            yield (
                f"The runs differ in {noun} ({tables.join(names)}), which may cause "
                "differences between algorithms."
            )
    records = study.selected[study.selected["metric"] == study.options.metric]
    records = records[records["dataset"].isin(study.datasets)]
    unconditional = set(records.loc[records["condition"] == "", "dataset"])
    averaged = sorted(set(records["dataset"]) - unconditional)
    if averaged:
        yield f"{tables.join(averaged)}: the mean over conditions, equally weighted."


class Methods(NamedTuple):
    """Paragraphs on methods for a paper, with citations as [key]."""

    paragraph: str  # On the answer, the scores and their figure.
    other_sections: (
        str  # On the tests and intervals of the other sections; may be empty.
    )
    papers: str  # On the methods and data sets of runs; may be empty.
    keys: list[str]  # Keys of the works cited, in the order of citation.


def methods(analysis: analysis_lib.Analysis, tests: str = "") -> Methods:
    """Return the paragraphs on methods for a paper, with the keys of the works cited.

    If ranks were not tested, the paragraph has the comparison, `tests` (or that no hypothesis was
    tested) and the software; `other_sections` is then empty, and without a citation the keys begin
    with "kalischek2023". tests: the sentences on tests over seeds; "" if ranks are tested.
    """
    versions = [
        f"Python {platform.python_version()}",
        *(
            f"{package} {importlib.metadata.version(package)}"
            for package in ("numpy", "scipy", "pandas")
        ),
    ]
    software = f"Computed with jbias {jbias.__version__} ({', '.join(versions)})"
    compared = _compared_algorithms(analysis.study)
    looks = recorded_comparisons.methods(analysis.study.recorded)
    compared = f"{compared} {looks}" if looks else compared
    papers = bibliography.papers(analysis.study.runs)
    if analysis.tests is None:
        text = f"{compared} {tests or 'No hypothesis was tested.'} {software}."
        return _with_keys(text, "", papers)
    software = f"{software}, after BiasBed [kalischek2023]."
    text = " ".join([compared, *_deciding_tests(analysis), software])
    other_sections = " ".join([*_other_tests(analysis), _spread(analysis)])
    return _with_keys(text, other_sections, papers)


def _with_keys(paragraph: str, other_sections: str, papers: str) -> Methods:
    """Return the paragraphs with the keys of the works that they cite.

    BiasBed is cited if no test is.
    """
    keys = bibliography.cited_keys(f"{paragraph} {other_sections}") or ["kalischek2023"]
    keys = list(dict.fromkeys([*keys, *bibliography.cited_keys(papers)]))
    return Methods(paragraph, other_sections, papers, keys)


def _compared_algorithms(study: benchmark_scores.BenchmarkScores) -> str:
    """Return the sentence on the numbers of algorithms, data sets and runs, and the metric."""
    if study.is_of_means:
        runs = "means over runs; the scores of each run are not known"
    else:
        runs = f"{tables.span(study.seeds)} {study.repeats}"
        runs = runs.removesuffix("s") if {*study.seeds} == {1} else runs
        runs = f"{runs} each"
    reported = f"; reported: {study.rule}" if study.is_runs else ""
    return (
        f"We compare {tables.count(len(study.algorithms), 'algorithm')} on "
        f"{tables.count(len(study.datasets), 'data set')} "
        f"by {study.options.metric.replace('_', ' ')} "
        f"({study.ranks_first}), with "
        f"{runs}{reported}."
    )


def _deciding_tests(analysis: analysis_lib.Analysis) -> Iterator[str]:
    """Yield the sentences for a paper on Friedman's, Nemenyi's and Welch's tests."""
    f = analysis.friedman
    permutation = analysis.permutation
    n, k = analysis.means.shape
    is_infinite = math.isinf(f.statistic)
    explanation = " (the ranks are the same on all data sets)" if is_infinite else ""
    permutations = (
        "all" if permutation.exact else f"{permutation.permutations:,} random"
    )
    ranked = (
        "Means over runs are ranked"
        if analysis.study.is_of_means
        else "Scores are averaged over runs and ranked"
    )
    yield (
        f"{ranked} on each data set. Equality of the {k} algorithms over {n} data sets is tested "
        "by Friedman's test [friedman1937], corrected for ties, in Iman and Davenport's form "
        f"[iman1980; demsar2006], F({f.df[0]}, {f.df[1]}) = "
        f"{_three_digits(f.statistic)}{explanation}, with p from {permutations} permutations "
        f"within data sets, {p_by_permutation(permutation)}. If this test rejects, pairs are "
        f"compared by Nemenyi's test [nemenyi1963], both at the level {analysis.alpha:g}."
    )
    if analysis.runs is not None:
        yield (
            "The best score of a data set is compared with the others by Welch's t test over "
            "runs, Bonferroni for all pairs, with variances of at least the pooled variance."
        )
    left_out = [f"{name} ({reason})" for name, reason in analysis.left_out]
    if left_out:
        yield f"Left out of the tests: {'; '.join(left_out)}."


def _other_tests(analysis: analysis_lib.Analysis) -> Iterator[str]:
    """Yield the sentences for a paper on the tests that do not affect the headline."""
    yield (
        "For comparison we also report max-T by permutation [westfall1993], Conover's test "
        f"[conover1999] and the {'exact ' if analysis.tests.wilcoxon.exact else ''}Wilcoxon "
        "signed-rank test [wilcoxon1945], the last two adjusted by Holm [holm1979], Quade's test "
        "[quade1979] and aligned ranks [hodges1962]."
    )
    yield (
        "Each pair is also compared on its own, without adjustment, by its mean difference, wins, "
        "ties and losses, and the signed-rank test with Pratt's treatment of zeros [pratt1959] "
        "(Multi-Comparison Matrix [ismailfawaz2023])."
    )
    bradley_terry = analysis.tests.bradley_terry
    yield (
        "Bayesian probabilities are from the signed-rank test with a region of practical "
        f"equivalence of {analysis.rope:g} [benavoli2017]"
        f"{'' if bradley_terry is None else ' and the Bradley-Terry model [wainer2023]'}."
    )
    if analysis.has_reference:
        yield (
            f"Comparisons with {analysis.tests.dunn.control} alone are adjusted by "
            "Dunn [dunn1961] and Holm."
        )
        if analysis.runs is not None:
            yield (
                "P(A > B) is the share of seeds with which a run beats the run of the control "
                "[bouthillier2021], with exact intervals; the bound of almost stochastic order "
                "[dror2019] is given as a description."
            )


def _spread(analysis: analysis_lib.Analysis) -> str:
    """Return the sentences for a paper on intervals, power and the mixed model.

    If seeds were not analysed, the only sentence has the reason.
    """
    if analysis.runs is None:
        return f"The spread over runs is not analysed: {analysis.no_seeds}."
    return (
        f"Intervals are 95 % percentile bootstrap intervals of {analysis.draws:,} draws; runs are "
        "redrawn within algorithms, for all data sets together. For statements on other data sets "
        "the data sets are redrawn, too, and the interval is widened as for Student's t with this "
        "number of data sets. Shares of draws have standard errors of at most "
        f"{50 / math.sqrt(analysis.draws):.1f} points. Interquartile means, optimality gaps and "
        "performance profiles follow [agarwal2021], on scores normalised by the worst and best "
        "run of each data set; the probability that one run beats another is Vargha and Delaney's "
        "A [vargha2000]. Where runs and data sets are samples, a linear mixed model has random "
        "effects of data sets, of data sets by algorithms and of runs. Power is by simulation "
        "from the spread of algorithms between data sets and of runs."
    )


def markdown(*paragraphs: str) -> str:
    """Return paragraphs as Markdown with lines of at most 100 characters.

    Empty paragraphs are left out.
    """
    texts = []
    for paragraph in filter(None, paragraphs):
        lines = textwrap.wrap(paragraph, 100, break_on_hyphens=False)
        texts.append("".join(messages.printable(line) + "\n" for line in lines))
    return "\n".join(texts)
