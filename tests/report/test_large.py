"""Tables with thousands of rows are read and shown in linear time."""

import gc
import itertools
import time

import numpy as np
import pytest

from jbias.report import options
from jbias.report.pages.benchmark import (
    analysis,
    benchmark_blocks,
    inputs,
    rank_test_section,
    score_section,
)
from jbias.stats import bayes, power


def write(path, k, n):
    rng = np.random.default_rng(0)
    cells = itertools.product(range(k), range(n))
    rows = [f"A{a},D{d},{50 + 0.1 * a + rng.normal():.2f}" for a, d in cells]
    path.write_text("\n".join(["algorithm,dataset,score", *rows]))
    return str(path)


@pytest.mark.slow
def test_the_time_of_reading_grows_no_faster_than_the_number_of_data_sets(tmp_path):
    """Ten times as many take ten times as long; comparing all pairs of names, a hundred times.

    Both are processor time of this process, so that the speed of the machine does not matter; garbage
    collection would depend on what other tests left.
    """
    seconds = {}
    for count in (1_000, 10_000):
        path = write(tmp_path / f"{count}.csv", 3, count)
        gc.collect()
        gc.disable()
        start = time.process_time()
        study = inputs.from_scores(path, options.Options())
        seconds[count] = time.process_time() - start
        gc.enable()
        assert study.warnings == ()
        assert (len(study.datasets), len(study.values)) == (count, 3 * count)
    assert seconds[10_000] < 40 * seconds[1_000]


def test_wide_tables_show_the_first_data_sets_and_files_have_all(tmp_path):
    path = write(tmp_path / "s.csv", 2, 70)
    study = inputs.from_scores(path, options.Options())
    analysed = analysis.analyse(study)
    for table in (
        score_section.scores_table(analysed),
        rank_test_section.ranks_table(analysed),
    ):
        heads = [head for head in table.head if head.startswith("D")]
        assert heads == [f"D{i}" for i in range(benchmark_blocks.MAX_COLUMNS)]
        assert "10 more data sets are in the CSV file." in table.caption
    assert set(score_section.scores_table(analysed).data["dataset"]) == set(
        study.datasets
    )
    assert (
        len([x for x in rank_test_section.ranks_table(analysed).data if x[0] == "D"])
        == 70
    )


def test_sorted_differences_match_the_matrix_of_pairs(monkeypatch):
    """The signed-rank posterior of many data sets needs no matrix; ties count half."""
    rng = np.random.default_rng(0)
    scores = np.round(50 + rng.normal(size=(60, 3)) + [0, 0.3, 0.6], 1)
    arguments = dict(rope=0.3, larger_is_better=True, draws=300)
    matrix = bayes.bayesian_signed_rank(scores, **arguments)
    monkeypatch.setattr(bayes, "_MAX_MATRIX_DATASETS", 10)
    ordered = bayes.bayesian_signed_rank(scores, **arguments)
    assert ordered.better == pytest.approx(matrix.better, abs=1e-12)
    assert ordered.rope == pytest.approx(matrix.rope, abs=1e-12)


def test_the_normal_approximation_of_the_signed_rank_limit_is_accurate(monkeypatch):
    """With 300 data sets, approximation and exact limit differ by less than 0.1 %."""
    exact = power._wilcoxon_critical(300, 0.05)
    monkeypatch.setattr(power, "_MAX_EXACT", 10)
    assert power._wilcoxon_critical(300, 0.05) == pytest.approx(exact, rel=1e-3)
