"""The answer for one or two data sets: tests over the seeds of each, and what they rest on.

Ranks over data sets tell nothing apart there, so the answer, the table, the figure and the
paragraph on methods are of `jbias.stats.compare_seeds`.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from jbias.report import analysis as analysis_lib
from jbias.report import document, plots, prose, tables
from jbias.stats import seed_tests

Analysis = analysis_lib.Analysis
_CLAIMS = 4  # Of a data set that the answer names; all are in the table.
_BARS = 40  # Pairs of the figure; all are in the table.


def answer(analysis: Analysis) -> tuple[str, str] | None:
    """Return the answer and what it rests on; None where there is no test over seeds."""
    result = analysis.by_seeds
    if result is None:
        return None
    what = analysis.study.repeats
    if not result.family:
        single = what.removesuffix("s")
        where = f"on {_quoted(*result.datasets)}"
        headline = (
            f"Nothing was tested: {where} {_who_is_single(result)} a single {single}, so how far "
            f"{what} differ is not known."
        )
        if analysis.study.is_of_means:
            headline = f"Nothing was tested {where}: {analysis_lib.MEANS_ALONE}."
        needed = f"A test needs the scores of at least 2 {what} of both algorithms, and 5 or more "
        needed += "are advisable."
        basis = [*_differences(analysis), needed, *_left_out(analysis)]
        return headline, " ".join(basis)
    parts = [_of_dataset(analysis, dataset) for dataset in result.datasets]
    if len(result.datasets) == 1:
        scope = f"This is about {_quoted(*result.datasets)} alone, not about other data sets."
    else:
        scope = f"This is about {_quoted(*result.datasets)}, each by itself, not about "
        scope += "other data sets."
    return " ".join([*parts, scope]), " ".join(_basis(analysis))


def _quoted(*datasets: str) -> str:
    """Return names of data sets in quotes: a file may be called one.csv."""
    return tables.join([f"'{name}'" for name in datasets])


def oriented(result: seed_tests.SeedTestsResult) -> list[seed_tests.SeedTest]:
    """Return the tests with the better algorithm first; equal ones stay as they are."""
    return [_turned(test) if test.difference < 0 else test for test in result.tests]


def _turned(test: seed_tests.SeedTest) -> seed_tests.SeedTest:
    """Return the same test, second algorithm first."""
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


def _made(analysis: Analysis, dataset: str) -> list[seed_tests.SeedTest]:
    """Return the tests that were made on a data set, the smallest p first."""
    tests = [test for test in oriented(analysis.by_seeds) if test.dataset == dataset]
    made = [test for test in tests if not test.why_not]
    return sorted(made, key=lambda test: (test.adjusted, test.pvalue, -test.difference))


def _of_dataset(analysis: Analysis, dataset: str) -> str:
    """Return the sentence on one data set; first that no claim follows, where none does."""
    tests = _made(analysis, dataset)
    void = [test for test in tests if _guessing(analysis.study, test)]
    if not void:
        return _tested(analysis, dataset, tests)
    valid = [test for test in tests if test not in void]
    names = sorted({name for test in void for name in _guessing(analysis.study, test)})
    metric = analysis.study.options.metric.replace("_", " ")
    named = tables.join(names) if len(names) <= _CLAIMS else tables.few(names)
    whose = f" of {named}" if valid else ""
    headline = (
        f"No claim about {metric}{whose} on {_quoted(dataset)}: decisions of "
        f"{named} are at chance."
    )
    if valid:
        return f"{headline} {_tested(analysis, dataset, valid)}"
    sentence = _tested(analysis, dataset, tests)
    in_brackets = f"{sentence[0].lower()}{sentence[1:]}"
    return f"{headline} (Tests over {analysis.study.repeats}: {in_brackets})"


def _guessing(
    study: analysis_lib.BenchmarkScores, test: seed_tests.SeedTest
) -> list[str]:
    """Return the names at chance of a pair of which no claim follows; empty if one may.

    A shape bias of guesses means nothing, also beside one of decisions. An accuracy at
    chance may be below another's; of two at chance neither is.
    """
    pair = test.first, test.second
    names = [name for name in pair if (name, test.dataset) in study.guessed]
    needed = 1 if study.options.metric == "shape_bias" else 2
    return names if len(names) >= needed else []


def _tested(analysis: Analysis, dataset: str, tests: list[seed_tests.SeedTest]) -> str:
    """Return the sentence on tests of one data set, the smallest p first."""
    alpha = analysis.alpha
    counts = {count for test in tests for count in test.runs}
    what = analysis.study.repeats
    where = f"On {_quoted(dataset)}, {tables.span(counts)} {what} each"
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
    words = _p_words if len(claims) == 1 else _holm_words
    said = [
        f"{_advantage(analysis, x)} ({words(analysis, x)})" for x in claims[:_CLAIMS]
    ]
    rest = len(claims) - _CLAIMS
    said += [f"and {rest} more in the table"] if rest > 0 else []
    verb = "differs" if len(claims) == 1 else "differ"
    count = f"{len(claims)} of {len(tests)} pairs {verb} significantly at α = {alpha:g}"
    return f"{where}: {count}: {'; '.join(said)}."


def _holm_words(analysis: Analysis, test: seed_tests.SeedTest) -> str:
    """Return the p that decides, as "Holm p = 0.033"."""
    return f"Holm {prose.p_equals(test.adjusted)}"


def _advantage(analysis: Analysis, test: seed_tests.SeedTest) -> str:
    """Return "A is better than B by 4.1 [1.2, 7.0]", in the unit shown.

    Of a bias, "A has more shape bias than B by ...".
    """
    if test.difference == 0:
        return f"{test.first} and {test.second} have the same mean"
    unit = analysis.study.unit
    show = tables.interval(tables.digits(_digits(analysis, test)))
    shown = show(test.difference, test.low, test.high)
    name = " percentage points" if unit.name else ""
    return f"{test.first} {analysis.study.winner_phrase} {test.second} by {shown}{name}"


def _digits(analysis: Analysis, test: seed_tests.SeedTest) -> int:
    """Return the digits that scores have, or more where a difference would be shown as 0."""
    digits = analysis.study.unit.digits
    small = abs(test.difference)
    if not 0 < small < 10.0**-digits:
        return digits
    return min(1 - math.floor(math.log10(small)), 12)


def _p_words(analysis: Analysis, test: seed_tests.SeedTest) -> str:
    """Return all p of a test, as "Welch p = 0.011, permutation p = 0.016"."""
    result = analysis.by_seeds
    name = "paired t-test" if result.paired else "Welch"
    said = [f"{name} {prose.p_equals(test.t_pvalue)}"]
    if math.isnan(test.t_pvalue):
        said = []
    said.append(f"permutation {prose.p_equals(test.permutation_pvalue)}")
    if result.family > 1:
        pairs = "pairs" if len(result.datasets) == 1 else "tests"
        said.append(
            f"Holm over {result.family} {pairs}: {prose.p_equals(test.adjusted)}"
        )
    return ", ".join(said)


def _basis(analysis: Analysis) -> Iterator[str]:
    """Return the sentences on what the answer rests on, and what limits it."""
    result, what = analysis.by_seeds, analysis.study.repeats
    single = what.removesuffix("s")
    if result.paired:
        yield (
            f"Student's t-test of the differences of equal {what} (--paired-seeds) decides at "
            f"α = {result.alpha:g}; the permutation test beside it flips their signs."
        )
    else:
        yield (
            f"Welch's t-test over {what} decides at α = {result.alpha:g}, unpaired; the "
            "permutation test beside it is of the same t. (--paired-seeds compares equal "
            f"{what} as pairs, for designs in which they share something, such as the split.)"
        )
    adjusted = ", not adjusted, while Holm's p is" if result.family > 1 else ""
    yield f"Intervals are {_kind_of_interval(analysis)}s of a pair alone{adjusted}{_cut(analysis)}."
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
            f"That is right if {result.reference} was chosen as the control before the scores "
            "were seen."
        )
    yield from _limits_of_permutation(analysis)
    yield from _uneven(analysis)
    yield from _disagreements(analysis)
    yield from _power(analysis)
    yield from _without_spread(analysis, single)
    yield from _left_out(analysis)


def _limits_of_permutation(analysis: Analysis) -> Iterator[str]:
    """Say where so few runs can give no small p by permutation."""
    result, what = analysis.by_seeds, analysis.study.repeats
    made = [test for test in result.tests if not test.why_not]
    never = [test for test in made if test.least_permutation_pvalue > result.alpha]
    if never:
        counts = tables.span({n for test in never for n in test.runs})
        least = min(test.least_permutation_pvalue for test in never)
        kind = f"{counts} pairs" if result.paired else f"{counts} {what} each"
        yield (
            f"With {kind} the permutation test cannot give a p below {least:.2g}, so it can "
            "never be significant: a difference rests on the t-test alone, which assumes "
            f"normal scores, and with so few {what} that cannot be checked."
        )
        return
    exact = [test.least_permutation_pvalue for test in made if test.permutation_exact]
    least = max(exact, default=0)
    if result.family * least > result.alpha:
        yield (
            f"By permutation p cannot be below {least:.2g} with these {what}, or "
            f"{min(result.family * least, 1):.2g} once adjusted for {result.family} tests: "
            "adjusted, only the t-test can be significant."
        )


def _uneven(analysis: Analysis) -> Iterator[str]:
    """Warn of two runs against more, where Welch's test is too liberal."""
    result, what = analysis.by_seeds, analysis.study.repeats
    counts = _counts(result)
    two = [
        name
        for name, count in counts.items()
        if count == 2 and not result.paired and max(counts.values()) > 2
    ]
    if two:
        verb = "has" if len(two) == 1 else "have"
        yield (
            f"{tables.few(two)} {verb} 2 {what}: against more, Welch's test claims too much "
            "(up to 11 % instead of 5 % where nothing differs, in simulations of 2 against 10)."
        )


def _disagreements(analysis: Analysis) -> Iterator[str]:
    """Name the claims for which the permutation test has a p above alpha."""
    result = analysis.by_seeds
    doubtful = [
        f"{test.first} and {test.second} on {_quoted(test.dataset)}"
        for test in oriented(result)
        if test.adjusted <= result.alpha < test.permutation_pvalue
        and test.least_permutation_pvalue <= result.alpha
    ]
    if doubtful:
        yield (
            "The permutation test alone would not call these different: "
            f"{tables.few(doubtful)}. Take them as open."
        )


def _power(analysis: Analysis) -> Iterator[str]:
    """Say what difference would have been found, where one was not."""
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
        "No significant difference does not show that algorithms are equal: with these "
        f"{analysis.study.repeats} and their spread, a true difference of {' to '.join(ends)} "
        f"would have been found with probability {result.target:g} at {level}."
    )


def _without_spread(analysis: Analysis, single: str) -> Iterator[str]:
    """Name the pairs of which no run differs from others of its algorithm."""
    pairs = [
        f"{test.first} and {test.second} on {_quoted(test.dataset)}"
        for test in oriented(analysis.by_seeds)
        if not test.why_not and math.isnan(test.t_pvalue)
    ]
    if pairs:
        spread = "every difference" if analysis.by_seeds.paired else f"every {single}"
        yield (
            f"For {tables.few(pairs)}, {spread} has the same score, so there is no t and the "
            f"permutation test decides. It is right only if the {analysis.study.repeats} are "
            "no copies of each other."
        )


def _left_out(analysis: Analysis) -> Iterator[str]:
    """Name the algorithms and runs that are in no test, and why."""
    result, study = analysis.by_seeds, analysis.study
    what, single = study.repeats, study.repeats.removesuffix("s")
    alone = _singles(result)
    if alone and result.family:
        yield f"Not tested, for a single {single}: {tables.few(alone, 8)}."
    used = _counts(result)
    fewer = [
        f"{name} ({study.seeds.get(name, 0) - used.get(name, 0)})"
        for name in analysis.algorithms
        if used.get(name, 0) < study.seeds.get(name, 0)
    ]
    if fewer:
        yield (
            f"In no test are {what} without a score on every data set: "
            f"{tables.few(fewer, 8)}."
        )


def _counts(result: seed_tests.SeedTestsResult) -> dict[str, int]:
    """Return the runs of each algorithm in the tests."""
    counts: dict[str, int] = {}
    for test in result.tests:
        counts |= zip((test.first, test.second), test.runs, strict=True)
    return counts


def _singles(result: seed_tests.SeedTestsResult) -> list[str]:
    return [name for name, count in _counts(result).items() if count < 2]


def _who_is_single(result: seed_tests.SeedTestsResult) -> str:
    """Return the subject and verb of "... a single run"."""
    counts, alone = _counts(result), _singles(result)
    if len(alone) == len(counts):
        return "each algorithm has"
    verb = "has" if len(alone) == 1 else "have"
    return f"{tables.few(alone)} {verb}"


def _differences(analysis: Analysis) -> Iterator[str]:
    """Give the largest difference of each data set in words, where nothing was tested."""
    for dataset in analysis.by_seeds.datasets:
        tests = [x for x in oriented(analysis.by_seeds) if x.dataset == dataset]
        largest = max(tests, key=lambda test: test.difference)
        yield f"On {_quoted(dataset)}, {_advantage(analysis, largest)}; that may be chance."


def blocks(analysis: Analysis) -> Iterator[document.Block | None]:
    """Yield the table and the figure of the tests over seeds; nothing where there are none."""
    if analysis.by_seeds is not None and analysis.by_seeds.family:
        yield table(analysis)
        yield figure(analysis)


def frame(analysis: Analysis) -> pd.DataFrame:
    """Return one row a test, the better algorithm first, by data set and p."""
    result = analysis.by_seeds
    place = {name: i for i, name in enumerate(result.datasets)}
    ordered = sorted(
        oriented(result),
        key=lambda test: (place[test.dataset], bool(test.why_not), test.pvalue),
    )
    turned = dataclasses.replace(result, tests=tuple(ordered))
    names = {"first": "better", "second": "worse"}
    for key in ("runs", "mean"):
        names |= {f"first_{key}": f"better_{key}", f"second_{key}": f"worse_{key}"}
    return turned.to_frame().rename(columns=names)


def _heads(study: analysis_lib.BenchmarkScores) -> tuple[str, str, str]:
    """Return the heads of the difference, of the pair's first and of its second algorithm."""
    if study.has_better_side:
        return "advantage", *study.rank_words
    first, second = study.rank_words
    is_larger = study.options.larger_is_better
    return "difference", *((first, second) if is_larger else (second, first))


def table(analysis: Analysis) -> tables.Table | None:
    """Return the table of all tests over seeds."""
    result, study = analysis.by_seeds, analysis.study
    what, first, second = _heads(study)
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
    columns["difference"] = what, advantage, "low", "high"
    signed = tables.interval(tables.digits(2, plus=True))
    columns["hedges_g"] = "Hedges' g", signed, "hedges_g_low", "hedges_g_high"
    columns["detectable"] = f"found with {result.target:g}", number
    data = frame(analysis)
    shown = data.assign(
        _runs=[
            tables.span({a, b}, "–")
            for a, b in zip(data["better_runs"], data["worse_runs"], strict=True)
        ],
    )
    drawn = data["permutation_error"].max()
    how = (
        f"drawn, standard error up to {drawn:.2g}" if drawn > 0 else "all permutations"
    )
    caption = (
        f"Tests over the {study.repeats} of each data set, for these data sets alone. {what.capitalize()}: "
        f"how much {first} the first is, "
        f"in {study.unit.of_differences}, with the {_kind_of_interval(analysis)} of the pair "
        f"alone{_unadjusted(result)}{_cut(analysis)}. p of the "
        "t-test, by permutation "
        f"({how}), and of the t-test adjusted by Holm for {_tests_in_words(result)}, in bold where "
        f"≤ {result.alpha:g}. Hedges' g: the difference in deviations over {study.repeats}. Found "
        f"with {result.target:g}: the true difference that the t-test at α / {result.family} "
        "finds with this probability, if deviations are as here."
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
    return "1 test" if result.family == 1 else f"all {result.family} tests"


def _unadjusted(result: seed_tests.SeedTestsResult) -> str:
    """Return what to add of an interval where p is adjusted, or ""."""
    count = f", not adjusted for the {result.family} tests"
    return count if result.family > 1 else ""


def _kind_of_interval(analysis: Analysis) -> str:
    """Return "95% t interval"."""
    return f"{100 * (1 - analysis.alpha):g}% t interval"


def _cut(analysis: Analysis) -> str:
    """Return what to add where an interval is cut at the largest possible difference."""
    scale = analysis.study.unit.scale
    ends = [
        abs(end) for test in analysis.by_seeds.tests for end in (test.low, test.high)
    ]
    is_cut = bool(analysis.study.unit.name) and scale in ends
    return f", cut at ±{scale:g}, as no difference is larger" if is_cut else ""


def _reading_of_intervals(result: seed_tests.SeedTestsResult) -> str:
    """Return the sentence on what an interval that holds 0, or does not, says of its pair."""
    if result.family == 1:
        return "Where it holds 0, the pair is not told apart."
    return (
        "Where it holds 0, the pair is not told apart; where it does not, the p that Holm's "
        "method adjusts, in the table, decides."
    )


def figure(analysis: Analysis) -> document.Figure:
    """Return the advantage of every pair with its interval."""
    result, several = analysis.by_seeds, len(analysis.by_seeds.datasets) > 1
    what, first, _ = _heads(analysis.study)
    tests = [x for name in result.datasets for x in _made(analysis, name)][:_BARS]
    names = [
        f"{test.first} − {test.second}{f', {test.dataset}' if several else ''}"
        for test in tests
    ]
    point, low, high = (
        np.array([getattr(test, key) for test in tests])
        for key in ("difference", "low", "high")
    )
    drawn = plots.intervals(
        names,
        point,
        low,
        high,
        label=f"{what} in {analysis.study.unit.of_differences}",
        digits=analysis.study.unit.digits,
    )
    drawn.axes[0].axvline(0, color=plots.INK, linewidth=0.8)
    total = result.family
    more = f" Drawn are {_BARS} of {total}." if total > _BARS else ""
    caption = (
        f"{what.capitalize()} of the {first} of each pair, with the {_kind_of_interval(analysis)} "
        f"of that pair alone{_unadjusted(result)}{_cut(analysis)}. "
        f"{_reading_of_intervals(result)}{more}"
    )
    return document.Figure("seed_tests", caption, drawn)


def results(analysis: Analysis) -> Mapping[str, Any] | None:
    """Return what results.json says of the tests over seeds; None where there are none."""
    result = analysis.by_seeds
    if result is None:
        return None
    data = frame(analysis)
    is_claimed = data["adjusted"] <= result.alpha
    claimed = data.loc[is_claimed, ["dataset", "better", "worse", "adjusted"]]
    return {
        "datasets": result.datasets,
        "algorithms": result.algorithms,
        "reference": result.reference,
        "paired": result.paired,
        "family": result.family,
        "target": result.target,
        "tests": data,
        "significant": claimed.rename(columns={"adjusted": "p"}),
    }


def methods(analysis: Analysis) -> str:
    """Return the sentences of a paper's paragraph; "" where there is no test over seeds."""
    result, what = analysis.by_seeds, analysis.study.repeats
    if result is None or not result.family:
        return ""
    if result.reference:
        pairs = f"Each algorithm is compared with {result.reference}"
    else:
        pairs = "All pairs of algorithms are compared"
    if result.paired:
        tests = "Student's t-test [student1908] of the differences of equal seeds, two-sided, "
        tests += "and beside it a permutation test that flips their signs"
    else:
        tests = f"Welch's t-test [welch1947] over {what}, two-sided, and beside it a permutation "
        tests += "test [pitman1937] of the same statistic [janssen1997]"
    drawn = not all(x.permutation_exact for x in result.tests if not x.why_not)
    how = "drawn at random" if drawn else "enumerated"
    held = f"{100 * (1 - result.alpha):g} %"
    return (
        f"{pairs} on each data set by {tests}, permutations {how}. p-values of the t-test are "
        f"adjusted by Holm's method [holm1979] for {_tests_in_words(result)} at the level "
        f"{result.alpha:g}; intervals of differences are {held} intervals of the t-test, not "
        f"adjusted. Effects are Hedges' g [hedges1981]. The results hold for these data sets; no "
        "statement is made on others."
    )
