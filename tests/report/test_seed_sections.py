"""Report on one or two data sets: the answer comes from tests over seeds."""

import html
import json
import shutil

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from jbias import report
from jbias.report import options
from jbias.report.pages.benchmark import analysis, benchmark_page, inputs
from tests import cases
from tests.report import test_scores

SKETCH = {
    "ERM": [60.1, 62.0, 58.8, 61.1, 59.5],
    "SagNet": [64.9, 63.1, 66.2, 62.4, 64.0],
    "pAdaIN": [61.0, 60.2, 62.9, 59.1, 62.2],
}
PHOTO = {
    "ERM": [90.1, 91.0, 90.4, 90.9, 90.6],
    "SagNet": [90.3, 90.8, 90.9, 90.2, 90.7],
}


def write(folder, **tables):
    """Write scores to a CSV file with one column per run; return its path."""
    rows = [
        f"{algorithm},{dataset},{run},{score}"
        for dataset, cells in tables.items()
        for algorithm, scores in cells.items()
        for run, score in enumerate(scores)
    ]
    path = folder / "scores.csv"
    path.write_text("\n".join(["algorithm,dataset,run,score", *rows]))
    return path


def first_scores(cells, *, algorithms=3, runs=5):
    """Return the first algorithms with their first runs."""
    return {name: cells[name][:runs] for name in [*cells][:algorithms]}


def make_report(folder, tables, **settings):
    """Return the report of scores without writing its files."""
    study = inputs.from_scores(
        str(write(folder, **tables)), options.Options(**settings)
    )
    return benchmark_page.report(study)


def test_two_algorithms_on_one_data_set_match_scipy(tmp_path, capsys):
    """The answer for one CSV file has scipy's numbers and names the data set."""
    path = write(tmp_path, sketch=first_scores(SKETCH, algorithms=2))
    tree = test_scores.run(path, tmp_path / "out")
    expected = scipy.stats.ttest_ind(SKETCH["SagNet"], SKETCH["ERM"], equal_var=False)
    low, high = expected.confidence_interval()
    (test,) = tree["seed_tests"]["tests"]
    assert test["t_pvalue"] == pytest.approx(expected.pvalue)
    assert test["permutation_pvalue"] == pytest.approx(2 / 252)
    assert tree["headline"] == (
        f"On 'sketch', 5 runs each: SagNet is better than ERM by 3.8 [{low:.1f}, {high:.1f}] "
        f"(Welch p = {expected.pvalue:.3f}, permutation p = 0.008). This is about 'sketch' "
        "alone, not about other data sets."
    )
    assert tree["headline"] in capsys.readouterr().out
    page = (tmp_path / "out" / "index.html").read_text()
    assert tree["headline"] in html.unescape(page)
    assert "Ranks over data sets are not tested: there is only one data set." in page
    for name in (
        "tables/seed_tests.csv",
        "tables/seed_tests.tex",
        "figures/seed_tests.svg",
    ):
        assert (tmp_path / "out" / name).exists(), name
    assert "[welch1947]" in tree["methods"] and "3 algorithms" not in tree["methods"]
    assert "@article{welch1947" in (tmp_path / "out" / "methods.bib").read_text()


def test_three_algorithms_have_p_values_adjusted_for_three_pairs(tmp_path):
    report = make_report(tmp_path, {"sketch": SKETCH})
    headline, basis = report.answer
    result = analysis_of(tmp_path).by_seeds
    claims = [test for test in result.tests if test.adjusted <= 0.05]
    assert f"{len(claims)} of 3 pairs differ" in headline
    for test in claims:
        assert f"Holm p = {test.adjusted:.3f}" in headline, test
    assert "SagNet is better than ERM" in headline
    assert "Holm's adjustment counts 3 tests: all pairs." in basis
    significant = report.results["seed_tests"]["significant"]
    assert len(significant) == len(claims) < 3
    assert "a true difference of" in basis


def analysis_of(folder):
    """Return the analysis of the scores that `write` stored in a folder."""
    study = inputs.from_scores(str(folder / "scores.csv"), options.Options())
    return analysis.analyse(study)


def test_two_data_sets_have_separate_sentences_and_no_ranks(tmp_path):
    tables = {"sketch": first_scores(SKETCH, algorithms=2), "photo": PHOTO}
    report = make_report(tmp_path, tables)
    headline, basis = report.answer
    assert "On 'sketch', 5 runs each: SagNet is better than ERM" in headline
    assert "On 'photo', 5 runs each: no significant difference" in headline
    assert "This is about 'sketch' and 'photo', each separately" in headline
    assert "counts 2 tests: all pairs on both data sets" in basis
    assert report.results["friedman"] is None and report.results["nemenyi"] is None
    assert "with 2 data sets, no two mean ranks" in report.results["tested"]["why_not"]
    assert report.results["seed_tests"]["datasets"] == ("sketch", "photo")


def test_three_data_sets_are_ranked(tmp_path):
    tables = {name: first_scores(SKETCH, runs=2) for name in ("x", "y", "z")}
    report = make_report(tmp_path, tables)
    assert report.results["seed_tests"] is None
    assert report.results["friedman"] is not None
    assert "Friedman" in report.answer[1]


@cases.each(
    ("runs", "sentence"),
    [
        (1, "Nothing was tested: on 'sketch' each algorithm has a single run"),
        (2, "With 2 runs each the permutation test cannot give a p below 0.33"),
        (
            3,
            "With 3 runs each the permutation test cannot give a p below 0.1, so it can never",
        ),
        (
            4,
            "cannot be below 0.029 with these runs, or 0.086 after adjustment for 3 tests",
        ),
    ],
)
def test_the_answer_names_the_limits_of_few_runs(tmp_path, runs, sentence):
    report = make_report(tmp_path, {"sketch": first_scores(SKETCH, runs=runs)})
    assert sentence in " ".join(report.answer)


def test_seeds_are_paired_only_with_the_flag(tmp_path):
    """The p-values are those of scipy: paired with the flag, else of Welch's test."""
    tables = {"sketch": first_scores(SKETCH, algorithms=2)}
    sagnet, erm = SKETCH["SagNet"], SKETCH["ERM"]
    for is_paired, expected, words in [
        (
            True,
            scipy.stats.ttest_rel(sagnet, erm),
            "equal runs (--paired-seeds) decides",
        ),
        (False, scipy.stats.ttest_ind(sagnet, erm, equal_var=False), "unpaired"),
    ]:
        report = make_report(tmp_path, tables, paired_seeds=is_paired)
        assert report.results["seed_tests"]["paired"] is is_paired
        tests = report.results["seed_tests"]["tests"]
        assert tests["t_pvalue"].tolist() == pytest.approx([expected.pvalue])
        assert words in report.answer[1]


def test_refuses_incomplete_pairs_of_seeds(tmp_path, capsys):
    uneven = {"ERM": SKETCH["ERM"], "SagNet": SKETCH["SagNet"][:4]}
    path, flag = write(tmp_path, sketch=uneven), "--paired-seeds"
    message = test_scores.refused(capsys, path, tmp_path / "out", flag)
    assert (
        "--paired-seeds: ERM and SagNet must have the same runs, got none called 4"
        in message
    )
    path = write(tmp_path, **{name: first_scores(SKETCH) for name in "xyz"})
    message = test_scores.refused(capsys, path, tmp_path / "out", flag)
    assert "--paired-seeds: needs one or two data sets, got 3" in message


def test_a_reference_is_compared_with_each_algorithm(tmp_path):
    report = make_report(tmp_path, {"sketch": SKETCH}, reference="ERM")
    tests = report.results["seed_tests"]["tests"]
    assert len(tests) == report.results["seed_tests"]["family"] == 2
    assert (
        "ERM" in report.answer[0]
        and "pAdaIN is better than SagNet" not in report.answer[0]
    )
    assert "2 tests: each algorithm with ERM" in report.answer[1]
    assert "Each algorithm is compared with ERM" in report.results["methods"]


def test_smaller_may_be_better(tmp_path):
    tables = {"sketch": first_scores(SKETCH, algorithms=2)}
    report = make_report(tmp_path, tables, larger_is_better=False)
    assert "ERM is better than SagNet by 3.8" in report.answer[0]


def test_single_runs_and_constant_scores_are_named(tmp_path):
    """Algorithms with one run, two runs against five, and constant scores are named."""
    cells = {"ERM": SKETCH["ERM"], "one": [61.0], "two": [60.0, 61.5]}
    basis = make_report(tmp_path, {"sketch": cells}).answer[1]
    assert "Not tested, because of a single run: one." in basis
    assert "two has 2 runs: against more, Welch's test rejects too often" in basis
    constant = {"a": [1.0] * 4, "b": [2.0] * 4}
    headline, basis = make_report(tmp_path, {"sketch": constant}).answer
    assert "b is better than a by 1.000 (permutation p = 0.029)" in headline
    assert "every run has the same score, so t is undefined" in basis
    equal = {"a": [1.0] * 4, "b": [1.0] * 4}
    headline, _ = make_report(tmp_path, {"sketch": equal}).answer
    assert "no significant difference" in headline and "have the same mean" in headline


def test_bold_scores_are_those_not_significantly_worse_than_the_best(tmp_path):
    make_report(tmp_path, {"sketch": SKETCH})
    assert analysis_of(tmp_path).best_cells == [("SagNet", "sketch")]
    make_report(tmp_path, {"photo": PHOTO})
    assert analysis_of(tmp_path).best_cells == []


def test_records_of_runs_match_scipy(runs, tmp_path):
    """Differences are in percentage points; seeds are paired by their number."""
    flags = [f"--runs={runs}/*", f"--out={tmp_path / 'out'}", "--datasets=sketch"]
    assert report.main([*flags, "--algorithms=ERM,SagNet", "--paired-seeds"]) == 0
    tree = json.loads((tmp_path / "out" / "results.json").read_text())
    assert "percentage points" in tree["headline"] and "seeds each" in tree["headline"]
    (test,) = tree["seed_tests"]["tests"]
    frame = pd.read_csv(tmp_path / "out" / "tables" / "runs.csv")
    frame["number"] = frame["seed"].str.rpartition(":")[2]
    wide = 100 * frame.pivot(index="number", columns="algorithm", values="sketch")
    expected = scipy.stats.ttest_rel(wide["ERM"], wide["SagNet"])
    assert test["t_pvalue"] == pytest.approx(expected.pvalue)
    assert abs(test["difference"]) == pytest.approx(np.abs(wide.mean().diff().iloc[-1]))


@pytest.mark.slow
@cases.each("algorithms", [2, 3])
@cases.each("runs", [1, 3, 5, 10])
def test_every_small_table_is_written(tmp_path, algorithms, runs):
    """Reports on one and on two data sets have an answer and all tests."""
    rng = np.random.default_rng(runs)
    names = [*SKETCH][:algorithms]
    for sets in (["sketch"], ["sketch", "photo"]):
        tables = {
            name: {
                a: rng.normal(60 + 2 * i, 1, runs).tolist() for i, a in enumerate(names)
            }
            for name in sets
        }
        out = tmp_path / "out"
        tree = test_scores.run(write(tmp_path, **tables), out)
        assert all(name in tree["headline"] for name in sets)
        assert (runs == 1) == tree["headline"].startswith("Nothing was tested")
        pairs = algorithms * (algorithms - 1) // 2
        assert len(tree["seed_tests"]["tests"]) == pairs * len(sets)
        shutil.rmtree(out)


def test_a_data_set_named_after_its_file_is_quoted(tmp_path):
    """A file one.csv with scores in one column: no sentence begins "On one, ..."."""
    path = tmp_path / "one.csv"
    rows = [
        f"{name},{run},{score}"
        for name, scores in SKETCH.items()
        for run, score in enumerate(scores)
    ]
    path.write_text("\n".join(["method,seed,acc", *rows]))
    report = benchmark_page.report(inputs.from_scores(str(path), options.Options()))
    headline, basis = report.answer
    assert headline.startswith("On 'one', 5 runs each: ")
    assert headline.endswith("This is about 'one' alone, not about other data sets.")
    assert "on one" not in f"{headline} {basis}".lower()


@cases.each(("algorithms", "is_said"), [(2, False), (3, True)])
def test_captions_say_that_intervals_are_not_adjusted(tmp_path, algorithms, is_said):
    """Captions of several tests name the adjusted p; a single test has no adjustment."""
    report = make_report(
        tmp_path, {"sketch": first_scores(SKETCH, algorithms=algorithms)}
    )
    captions = [
        block.caption
        for section in report.sections
        for block in section.blocks
        if getattr(block, "name", "") == "seed_tests"
    ]
    assert len(captions) == 2
    for caption in (*captions, report.answer[1]):
        assert ("not adjusted" in caption) == is_said, caption
    assert ("p adjusted by Holm's method" in captions[1]) == is_said


@cases.each("datasets", ["sketch", "sketch photo"])
def test_without_ranks_the_table_of_scores_has_no_mean_ranks(tmp_path, datasets):
    tables = {name: first_scores(SKETCH) for name in datasets.split()}
    report = make_report(tmp_path, tables)
    (scores,) = [
        block
        for section in report.sections
        for block in section.blocks
        if getattr(block, "name", "") == "scores"
    ]
    assert scores.head == ("Algorithm", "Runs", *datasets.split())
    assert not any("–" in row for row in scores.rows)
    best = scores.rows[1]
    assert best[0] == "SagNet" and scores.marks(1, 2) == ["best"]
