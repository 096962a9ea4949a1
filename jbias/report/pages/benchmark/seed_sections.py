"""Parts of the report on tests over seeds, for a study of one or two data sets.

The tests are those of `jbias.stats.compare_seeds`. Ranks over one or two data sets cannot separate
algorithms, so these tests replace the rank tests in the headline, the table, the figure and the
paragraph on methods.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from jbias.report import document, plots, tables
from jbias.report.pages.benchmark import analysis as analysis_lib
from jbias.report.pages.benchmark import benchmark_scores, prose
from jbias.stats import seed_tests

Analysis = analysis_lib.Analysis
_MAX_CLAIMS = (
    4  # Significant pairs per data set in the answer; the table has all pairs.
)
_MAX_BARS = 40  # Pairs in the figure; the table has all pairs.


def answer(analysis: Analysis) -> tuple[str, str] | None:
    """Return (headline, sentences on the tests over seeds); None without `analysis.by_seeds`.

    The headline has the result in one or more sentences, and starts with "Nothing was tested" if no
    pair has several runs of both algorithms. The other sentences name the tests and their limits.
    """
    result = analysis.by_seeds
    if result is None:
        return None
    if not result.family:
        return _untested(analysis)
    sentences = [_dataset_answer(analysis, dataset) for dataset in result.datasets]
    names = _quoted(result.datasets)
    if len(result.datasets) == 1:
        scope = f"This is about {names} alone, not about other data sets."
    else:
        scope = f"This is about {names}, each separately, not about other data sets."
    return " ".join([*sentences, scope]), " ".join(_basis(analysis))


def _untested(analysis: Analysis) -> tuple[str, str]:
    """Return (headline, further sentences) if no pair of algorithms has several runs.

    The headline has the reason why nothing was tested. The further sentences have the largest
    difference of means per data set, the number of runs that a test needs, and the runs that are
    left out.
    """
    result = analysis.by_seeds
    repeats = analysis.study.repeats
    where = f"on {_quoted(result.datasets)}"
    if analysis.study.is_of_means:
        headline = f"Nothing was tested {where}: {benchmark_scores.MEANS_ALONE}."
    else:
        headline = (
            f"Nothing was tested: {where} {_subject_with_single_run(result)} a single "
            f"{repeats.removesuffix('s')}, so the spread over {repeats} is unknown."
        )
    requirement = (
        f"A test needs the scores of at least 2 {repeats} of both algorithms, and 5 or more "
        "are advisable."
    )
    basis = [*_differences(analysis), requirement, *_left_out(analysis)]
    return headline, " ".join(basis)


def _quoted(datasets: Sequence[str]) -> str:
    """Return names of data sets in single quotes as text, such as "'a.csv' and 'b'"."""
    return tables.join([f"'{name}'" for name in datasets])


def oriented(result: seed_tests.SeedTestsResult) -> list[seed_tests.SeedTest]:
    """Return the tests with the better algorithm first; pairs with equal means are unchanged."""
    return [_swapped(test) if test.difference < 0 else test for test in result.tests]


def _swapped(test: seed_tests.SeedTest) -> seed_tests.SeedTest:
    """Return the test with its two algorithms exchanged, and the sign of its difference changed."""
    return dataclasses.replace(
        test,
        first=test.second,
        second=test.first,
        runs=test.runs[::-1],
        means=test.means[::-1],
        difference=-test.difference,
        low=-test.high,
        high=-test.low,
        statistic=-test.statistic,
        hedges_g=-test.hedges_g,
        hedges_g_low=-test.hedges_g_high,
        hedges_g_high=-test.hedges_g_low,
    )


def _valid_tests(analysis: Analysis, dataset: str) -> list[seed_tests.SeedTest]:
    """Return the tests on a data set that were possible, the most significant test first.

    A test is possible if its two algorithms have several runs. In each test the better algorithm is
    first (`oriented`). Tests are sorted by adjusted p, then by p, then by the difference, the
    largest difference first.
    """
    tests = [
        test
        for test in oriented(analysis.by_seeds)
        if test.dataset == dataset and not test.why_not
    ]
    return sorted(
        tests, key=lambda test: (test.adjusted, test.pvalue, -test.difference)
    )


def _dataset_answer(analysis: Analysis, dataset: str) -> str:
    """Return the sentences on one data set, from the tests of pairs with several runs.

    If decisions at chance invalidate tests, the first sentence names the algorithms at chance ("No
    claim about ..."), and the result is from the other tests; without other tests, the result of
    all tests is in brackets.
    """
    tests = _valid_tests(analysis, dataset)
    study = analysis.study
    void = [test for test in tests if _names_at_chance(study, test)]
    if not void:
        return _test_sentence(analysis, dataset, tests)
    valid = [test for test in tests if test not in void]
    names = sorted({name for test in void for name in _names_at_chance(study, test)})
    metric = study.options.metric.replace("_", " ")
    names_text = tables.join(names) if len(names) <= _MAX_CLAIMS else tables.few(names)
    whose = f" of {names_text}" if valid else ""
    headline = (
        f"No claim about {metric}{whose} on {_quoted([dataset])}: decisions of "
        f"{names_text} are at chance."
    )
    if valid:
        return f"{headline} {_test_sentence(analysis, dataset, valid)}"
    sentence = _test_sentence(analysis, dataset, tests)
    in_brackets = f"{sentence[0].lower()}{sentence[1:]}"
    return f"{headline} (Tests over {analysis.study.repeats}: {in_brackets})"


def _names_at_chance(
    study: benchmark_scores.BenchmarkScores, test: seed_tests.SeedTest
) -> list[str]:
    """Return the algorithms of a pair with decisions at chance that invalidate the test, or [].

    A test of shape biases is invalid if one algorithm is at chance. A test of accuracies is invalid
    only if both algorithms are at chance, because an accuracy at chance may be below an accuracy
    above chance.
    """
    pair = test.first, test.second
    names = [name for name in pair if (name, test.dataset) in study.guessed]
    needed = 1 if study.options.metric == "shape_bias" else 2
    return names if len(names) >= needed else []


def _test_sentence(
    analysis: Analysis, dataset: str, tests: Sequence[seed_tests.SeedTest]
) -> str:
    """Return the sentence on the pairs that differ significantly on one data set.

    At most 4 pairs are named; without a significant pair, the smallest p is given. tests: at least
    one, sorted by p, the smallest first.
    """
    alpha = analysis.alpha
    counts = {count for test in tests for count in test.runs}
    repeats = analysis.study.repeats
    where = f"On {_quoted([dataset])}, {tables.span(counts)} {repeats} each"
    claims = [test for test in tests if test.adjusted <= alpha]
    if len(tests) == 1:
        (test,) = tests
        if claims:
            return (
                f"{where}: {_advantage(analysis, test)} ({_p_words(analysis, test)})."
            )
        return (
            f"{where}: no significant difference between {test.first} and {test.second} was "
            f"found ({_advantage(analysis, test)}; {_p_words(analysis, test)})."
        )
    if not claims:
        return (
            f"{where}: none of {len(tests)} pairs differs significantly at α = {alpha:g} "
            f"(smallest {_holm_words(analysis, tests[0])})."
        )
    describe_p = _p_words if len(claims) == 1 else _holm_words
    clauses = [
        f"{_advantage(analysis, test)} ({describe_p(analysis, test)})"
        for test in claims[:_MAX_CLAIMS]
    ]
    num_hidden = len(claims) - _MAX_CLAIMS
    if num_hidden > 0:
        clauses.append(f"and {num_hidden} more in the table")
    verb = "differs" if len(claims) == 1 else "differ"
    count = f"{len(claims)} of {len(tests)} pairs {verb} significantly at α = {alpha:g}"
    return f"{where}: {count}: {'; '.join(clauses)}."


def _holm_words(analysis: Analysis, test: seed_tests.SeedTest) -> str:
    """Return the p-value of a test adjusted by Holm as text, such as "Holm p = 0.033"."""
    return f"Holm {prose.p_equals(test.adjusted)}"


def _advantage(analysis: Analysis, test: seed_tests.SeedTest) -> str:
    """Return "A is better than B by 4.1 [1.2, 7.0] percentage points", with the interval.

    For a bias the text is "A has more shape bias than B by ..."; for equal means the text is "A and
    B have the same mean". Scores that are no percentages have no unit.
    """
    if test.difference == 0:
        return f"{test.first} and {test.second} have the same mean"
    unit = analysis.study.unit
    show = tables.interval(tables.digits(_digits(analysis, test)))
    shown = show(test.difference, test.low, test.high)
    name = " percentage points" if unit.name else ""
    return f"{test.first} {analysis.study.winner_phrase} {test.second} by {shown}{name}"


def _digits(analysis: Analysis, test: seed_tests.SeedTest) -> int:
    """Return the number of digits of a difference: as for scores, or more if 0 would be shown."""
    digits = analysis.study.unit.digits
    small = abs(test.difference)
    if not 0 < small < 10.0**-digits:
        return digits
    return min(1 - math.floor(math.log10(small)), 12)


def _p_words(analysis: Analysis, test: seed_tests.SeedTest) -> str:
    """Return all p-values of a test as text, such as "Welch p = 0.011, permutation p = 0.016".

    The p of the t-test is left out if undefined; with several tests, Holm's p is last.
    """
    result = analysis.by_seeds
    p_values = []
    if not math.isnan(test.t_pvalue):
        name = "paired t-test" if result.paired else "Welch"
        p_values.append(f"{name} {prose.p_equals(test.t_pvalue)}")
    p_values.append(f"permutation {prose.p_equals(test.permutation_pvalue)}")
    if result.family > 1:
        noun = "pairs" if len(result.datasets) == 1 else "tests"
        p_values.append(
            f"Holm over {result.family} {noun}: {prose.p_equals(test.adjusted)}"
        )
    return ", ".join(p_values)


def _basis(analysis: Analysis) -> Iterator[str]:
    """Yield the sentences on the tests that support the headline, and on the tests' limits."""
    result = analysis.by_seeds
    repeats = analysis.study.repeats
    if result.paired:
        yield (
            f"Student's t-test of the differences of equal {repeats} (--paired-seeds) decides "
            f"at α = {result.alpha:g}; the permutation test flips the signs of the differences."
        )
    else:
        yield (
            f"Welch's t-test over {repeats} decides at α = {result.alpha:g}, unpaired; the "
            "permutation test uses the same t. (--paired-seeds compares equal "
            f"{repeats} as pairs, for designs in which they share a source of noise, such as "
            "the split.)"
        )
    adjusted = ", not adjusted (Holm's p is)" if result.family > 1 else ""
    yield (
        f"Intervals are {_kind_of_interval(analysis)}s of a single pair{adjusted}"
        f"{_cut(analysis)}."
    )
    if result.family > 1:
        pairs = (
            f"each algorithm with {result.reference}"
            if result.reference
            else "all pairs"
        )
        sets = " on both data sets" if len(result.datasets) > 1 else ""
        yield f"Holm's adjustment counts {result.family} tests: {pairs}{sets}."
    if result.reference:
        yield (
            f"This is valid if {result.reference} was chosen as the control before the scores "
            "were seen."
        )
    yield from _limits_of_permutation(analysis)
    yield from _uneven(analysis)
    yield from _disagreements(analysis)
    yield from _power(analysis)
    yield from _without_spread(analysis)
    yield from _left_out(analysis)


def _limits_of_permutation(analysis: Analysis) -> Iterator[str]:
    """Yield a sentence if there are too few runs for a significant p by permutation.

    If no test lacks runs, a sentence is yielded if there are too few runs for a significant p after
    adjustment.
    """
    result = analysis.by_seeds
    repeats = analysis.study.repeats
    tests = [test for test in result.tests if not test.why_not]
    never = [test for test in tests if test.least_permutation_pvalue > result.alpha]
    if never:
        counts = tables.span({count for test in never for count in test.runs})
        least = min(test.least_permutation_pvalue for test in never)
        size = f"{counts} pairs" if result.paired else f"{counts} {repeats} each"
        yield (
            f"With {size} the permutation test cannot give a p below {least:.2g}, so it can "
            "never be significant: a difference depends on the t-test alone, which assumes "
            f"normal scores, and with this number of {repeats} that cannot be checked."
        )
        return
    least_exact = [
        test.least_permutation_pvalue for test in tests if test.permutation_exact
    ]
    least = max(least_exact, default=0)
    if result.family * least > result.alpha:
        yield (
            f"By permutation p cannot be below {least:.2g} with these {repeats}, or "
            f"{min(result.family * least, 1):.2g} after adjustment for {result.family} tests: "
            "after adjustment, only the t-test can be significant."
        )


def _uneven(analysis: Analysis) -> Iterator[str]:
    """Yield a warning, for unpaired tests, if some algorithms have 2 runs and others have more.

    The warning names the algorithms with 2 runs. Welch's test rejects too often in this case.
    """
    result = analysis.by_seeds
    repeats = analysis.study.repeats
    counts = _counts(result)
    two = [
        name
        for name, count in counts.items()
        if count == 2 and not result.paired and max(counts.values()) > 2
    ]
    if two:
        verb = "has" if len(two) == 1 else "have"
        yield (
            f"{tables.few(two)} {verb} 2 {repeats}: against more, Welch's test rejects too "
            "often (up to 11 % instead of 5 % without any difference, in simulations of 2 "
            "against 10)."
        )


def _disagreements(analysis: Analysis) -> Iterator[str]:
    """Yield a sentence with the significant pairs that have a p by permutation above alpha.

    Pairs with too few runs for a p by permutation of at most alpha are left out.
    """
    result = analysis.by_seeds
    doubtful = [
        f"{test.first} and {test.second} on {_quoted([test.dataset])}"
        for test in oriented(result)
        if test.adjusted <= result.alpha < test.permutation_pvalue
        and test.least_permutation_pvalue <= result.alpha
    ]
    if doubtful:
        yield (
            "By the permutation test alone these pairs do not differ significantly: "
            f"{tables.few(doubtful)}. Treat them as undecided."
        )


def _power(analysis: Analysis) -> Iterator[str]:
    """Yield the sentence on the true difference that non-significant tests could have detected.

    Nothing is yielded if all tests are significant, or if no such difference is known. With several
    tests, the smallest and the largest difference are given.
    """
    result = analysis.by_seeds
    sizes = [
        test.detectable
        for test in result.tests
        if test.adjusted > result.alpha and math.isfinite(test.detectable)
    ]
    if not sizes:
        return
    show = tables.digits(analysis.study.unit.digits + (max(sizes) < 0.1))
    ends = dict.fromkeys(map(show, (min(sizes), max(sizes))))
    level = f"α = {result.alpha:g}"
    level += f" shared by {result.family} tests" if result.family > 1 else ""
    yield (
        "The lack of a significant difference does not show that algorithms are equal: with these "
        f"{analysis.study.repeats} and their spread, a true difference of {' to '.join(ends)} "
        f"would have been found with probability {result.target:g} at {level}."
    )


def _without_spread(analysis: Analysis) -> Iterator[str]:
    """Yield a sentence with the pairs without spread, for which t is undefined.

    In such a pair, each algorithm has equal scores in all its runs; for paired tests, all
    differences are equal.
    """
    repeats = analysis.study.repeats
    pairs = [
        f"{test.first} and {test.second} on {_quoted([test.dataset])}"
        for test in oriented(analysis.by_seeds)
        if not test.why_not and math.isnan(test.t_pvalue)
    ]
    if pairs:
        is_paired = analysis.by_seeds.paired
        noun = "difference" if is_paired else repeats.removesuffix("s")
        yield (
            f"For {tables.few(pairs)}, every {noun} has the same score, so t is undefined and "
            f"the permutation test decides. This is valid only if the {repeats} are not copies "
            "of each other."
        )


def _left_out(analysis: Analysis) -> Iterator[str]:
    """Yield sentences with the algorithms and runs that are in no test.

    The first sentence names algorithms with a single run, if other pairs were tested. The second
    sentence names algorithms with runs without a score on every data set, with the number of these
    runs.
    """
    result = analysis.by_seeds
    study = analysis.study
    repeats = study.repeats
    single = _with_single_run(result)
    if single and result.family:
        yield (
            f"Not tested, because of a single {repeats.removesuffix('s')}: "
            f"{tables.few(single, 8)}."
        )
    num_tested = _counts(result)
    incomplete = [
        f"{name} ({study.seeds.get(name, 0) - num_tested.get(name, 0)})"
        for name in analysis.algorithms
        if num_tested.get(name, 0) < study.seeds.get(name, 0)
    ]
    if incomplete:
        yield (
            f"Not tested, because of {repeats} without a score on every data set: "
            f"{tables.few(incomplete, 8)}."
        )


def _counts(result: seed_tests.SeedTestsResult) -> dict[str, int]:
    """Return the number of tested runs by algorithm."""
    counts: dict[str, int] = {}
    for test in result.tests:
        counts |= zip((test.first, test.second), test.runs, strict=True)
    return counts


def _with_single_run(result: seed_tests.SeedTestsResult) -> list[str]:
    """Return the algorithms with fewer than two tested runs."""
    return [name for name, count in _counts(result).items() if count < 2]


def _subject_with_single_run(result: seed_tests.SeedTestsResult) -> str:
    """Return the subject and verb of a sentence on algorithms with a single run.

    The text is such as "A and B have", or "each algorithm has" if all have a single run.
    """
    names = _with_single_run(result)
    if len(names) == len(_counts(result)):
        return "each algorithm has"
    verb = "has" if len(names) == 1 else "have"
    return f"{tables.few(names)} {verb}"


def _differences(analysis: Analysis) -> Iterator[str]:
    """Yield a sentence on the largest difference of means per data set, if nothing was tested."""
    for dataset in analysis.by_seeds.datasets:
        tests = [
            test for test in oriented(analysis.by_seeds) if test.dataset == dataset
        ]
        largest = max(tests, key=lambda test: test.difference)
        yield f"On {_quoted([dataset])}, {_advantage(analysis, largest)}; this may be chance."


def blocks(analysis: Analysis) -> document.Blocks:
    """Yield the table and the figure of the tests over seeds; nothing without such tests."""
    if analysis.by_seeds is not None and analysis.by_seeds.family:
        yield table(analysis)
        yield figure(analysis)


def frame(analysis: Analysis) -> pd.DataFrame:
    """Return a frame with one row per test, sorted by data set and p.

    Pairs that could not be tested are the last of their data set. Columns: as in
    `SeedTestsResult.to_frame`, but the columns of algorithms are better and worse, with
    better_runs, worse_runs, better_mean and worse_mean.
    """
    result = analysis.by_seeds
    places = {name: i for i, name in enumerate(result.datasets)}
    tests = sorted(
        oriented(result),
        key=lambda test: (places[test.dataset], bool(test.why_not), test.pvalue),
    )
    new_names = {
        "first": "better",
        "second": "worse",
        "first_runs": "better_runs",
        "second_runs": "worse_runs",
        "first_mean": "better_mean",
        "second_mean": "worse_mean",
    }
    table = dataclasses.replace(result, tests=tuple(tests)).to_frame()
    return table.rename(columns=new_names)


def _heads(study: benchmark_scores.BenchmarkScores) -> tuple[str, str, str]:
    """Return the column heads of (the difference, the first algorithm, the second algorithm).

    Such as ("advantage", "better", "worse").
    """
    if study.has_better_side:
        return "advantage", *study.rank_words
    first, second = study.rank_words
    is_larger = study.options.larger_is_better
    return "difference", *((first, second) if is_larger else (second, first))


def table(analysis: Analysis) -> tables.Table | None:
    """Return the table of all tests over seeds, one row per pair of algorithms and data set.

    The page shows data set, better and worse algorithm, number of runs, difference with interval, p
    of the t-test, p by permutation, p adjusted by Holm, Hedges' g, and the detectable difference.
    The files have the columns of `frame`. Adjusted p of at most alpha is bold.
    """
    result = analysis.by_seeds
    study = analysis.study
    difference_head, first, second = _heads(study)
    number = tables.digits(study.unit.digits)
    advantage = tables.interval(tables.digits(study.unit.digits, plus=True))
    columns = tables.columns(
        "dataset better worse _runs difference t_pvalue:p permutation_pvalue:p adjusted:p "
        "hedges_g:+.2 detectable",
        dataset="Data set",
        better=first,
        worse=second,
        _runs=study.repeats,
        t_pvalue="paired t" if result.paired else "Welch",
        permutation_pvalue="permutation",
        adjusted="Holm",
    )
    columns["difference"] = tables.Column(difference_head, advantage, ("low", "high"))
    signed = tables.interval(tables.digits(2, plus=True))
    columns["hedges_g"] = tables.Column(
        "Hedges' g", signed, ("hedges_g_low", "hedges_g_high")
    )
    columns["detectable"] = tables.Column(f"found with {result.target:g}", number)
    data = frame(analysis)
    shown = data.assign(
        _runs=[
            tables.span({a, b}, "–")
            for a, b in zip(data["better_runs"], data["worse_runs"], strict=True)
        ],
    )
    error = data["permutation_error"].max()
    permutations = "all permutations"
    if error > 0:
        permutations = f"drawn, standard error up to {error:.2g}"
    caption = (
        f"Tests over the {study.repeats} of each data set, for these data sets alone. "
        f"{difference_head.capitalize()}: difference of the means of the {first} and the {second} "
        f"algorithm, in {study.unit.of_differences}, with the {_kind_of_interval(analysis)} of "
        f"this pair{_unadjusted(result)}{_cut(analysis)}. p of the t-test, by permutation "
        f"({permutations}), and of the t-test adjusted by Holm for {_tests_in_words(result)}, in "
        f"bold where ≤ {result.alpha:g}. Hedges' g: the difference in deviations over "
        f"{study.repeats}. Found with {result.target:g}: the true difference that the t-test at α "
        f"/ {result.family} finds with this probability, given the deviations in this study."
    )
    if len(result.datasets) > 1:
        caption += (
            " The CSV file also has Holm's p within each data set, adjusted_in_dataset."
        )
    return tables.from_rows(
        "seed_tests",
        caption,
        shown,
        columns,
        bold=lambda row: ["adjusted"] if row["adjusted"] <= result.alpha else [],
        most=500,
        data=data,
    )


def _tests_in_words(result: seed_tests.SeedTestsResult) -> str:
    """Return the number of tests in words, "1 test" or "all 6 tests"."""
    return "1 test" if result.family == 1 else f"all {result.family} tests"


def _unadjusted(result: seed_tests.SeedTestsResult) -> str:
    """Return the remark that intervals are not adjusted, or "" if there is a single test."""
    count = f", not adjusted for the {result.family} tests"
    return count if result.family > 1 else ""


def _kind_of_interval(analysis: Analysis) -> str:
    """Return the name of the intervals, such as "95% t interval"."""
    return f"{100 * (1 - analysis.alpha):g}% t interval"


def _cut(analysis: Analysis) -> str:
    """Return the remark that intervals end at the largest possible difference; "" if none do."""
    scale = analysis.study.unit.scale
    ends = [
        abs(end) for test in analysis.by_seeds.tests for end in (test.low, test.high)
    ]
    is_cut = bool(analysis.study.unit.name) and scale in ends
    return f", cut at ±{scale:g}, as no difference is larger" if is_cut else ""


def _reading_of_intervals(result: seed_tests.SeedTestsResult) -> str:
    """Return the sentence on the meaning of intervals with and without 0."""
    if result.family == 1:
        return "If the interval contains 0, the pair does not differ significantly."
    return (
        "If the interval contains 0, the pair does not differ significantly; otherwise p "
        "adjusted by Holm's method, in the table, decides."
    )


def figure(analysis: Analysis) -> document.Figure:
    """Return the figure of the difference of every tested pair with its interval.

    Of more than 40 pairs, the first 40 by data set and p are drawn.
    analysis: with tests over seeds (`by_seeds`).
    """
    result = analysis.by_seeds
    has_several_sets = len(result.datasets) > 1
    difference_head, first, _ = _heads(analysis.study)
    tests = [test for name in result.datasets for test in _valid_tests(analysis, name)][
        :_MAX_BARS
    ]
    names = [
        f"{test.first} − {test.second}{f', {test.dataset}' if has_several_sets else ''}"
        for test in tests
    ]
    intervals = plots.intervals(
        names,
        np.array([test.difference for test in tests]),
        np.array([test.low for test in tests]),
        np.array([test.high for test in tests]),
        label=f"{difference_head} in {analysis.study.unit.of_differences}",
        digits=analysis.study.unit.digits,
    )
    intervals.axes[0].axvline(0, color=plots.INK, linewidth=0.8)
    hidden = ""
    if result.family > _MAX_BARS:
        hidden = f" The figure shows {_MAX_BARS} of {result.family} pairs."
    caption = (
        f"{difference_head.capitalize()} of the {first} algorithm of each pair, with the "
        f"{_kind_of_interval(analysis)} of this pair{_unadjusted(result)}{_cut(analysis)}. "
        f"{_reading_of_intervals(result)}{hidden}"
    )
    return document.Figure("seed_tests", caption, intervals)


def results(analysis: Analysis) -> Mapping[str, Any] | None:
    """Return the tests over seeds for results.json; None without `analysis.by_seeds`.

    Keys: datasets, algorithms, reference, paired, family (number of tests), target (power), and the
    frames tests (see `frame`) and significant (columns dataset, better, worse and p, adjusted by
    Holm).
    """
    result = analysis.by_seeds
    if result is None:
        return None
    data = frame(analysis)
    is_significant = data["adjusted"] <= result.alpha
    significant = data.loc[is_significant, ["dataset", "better", "worse", "adjusted"]]
    return {
        "datasets": result.datasets,
        "algorithms": result.algorithms,
        "reference": result.reference,
        "paired": result.paired,
        "family": result.family,
        "target": result.target,
        "tests": data,
        "significant": significant.rename(columns={"adjusted": "p"}),
    }


def methods(analysis: Analysis) -> str:
    """Return the sentences on methods for a paper; "" without tests over seeds."""
    result = analysis.by_seeds
    repeats = analysis.study.repeats
    if result is None or not result.family:
        return ""
    if result.reference:
        pairs = f"Each algorithm is compared with {result.reference}"
    else:
        pairs = "All pairs of algorithms are compared"
    if result.paired:
        tests = (
            "Student's t-test [student1908] of the differences of equal seeds, two-sided, and "
            "a permutation test that flips their signs"
        )
    else:
        tests = (
            f"Welch's t-test [welch1947] over {repeats}, two-sided, and a permutation test "
            "[pitman1937] of the same statistic [janssen1997]"
        )
    is_exact = all(test.permutation_exact for test in result.tests if not test.why_not)
    permutations = "enumerated" if is_exact else "drawn at random"
    confidence = f"{100 * (1 - result.alpha):g} %"
    return (
        f"{pairs} on each data set by {tests}, with permutations {permutations}. p-values of the "
        f"t-test are adjusted by Holm's method [holm1979] for {_tests_in_words(result)} at the "
        f"level {result.alpha:g}; intervals of differences are {confidence} intervals of the "
        "t-test, not adjusted. Effects are Hedges' g [hedges1981]. The results hold for these "
        "data sets only."
    )
