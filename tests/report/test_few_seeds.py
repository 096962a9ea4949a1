"""The section on few seeds: numbers, dashes and sentences; medians and ranges."""

import json

import numpy as np
import pandas as pd
import pytest

from jbias import report, stats
from jbias.report import options as options_lib
from jbias.report.pages.benchmark import (
    analysis,
    benchmark_scores,
    curve_section,
    few_seeds,
    inputs,
    score_section,
)
from tests import cases
from tests.report import conftest

SEEDS, SETS = range(10), ("silhouette", "edge", "cue_conflict")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Return scores of ten seeds; two seeds of each algorithm are good on silhouettes."""
    folder = tmp_path_factory.mktemp("few") / "runs"
    for name, (algorithm, lift) in conftest.ALGORITHMS.items():
        records = [
            [
                r._replace(value=0.99, count=792)
                if (r.dataset, r.seed > 7) == ("silhouette", True)
                else r._replace(value=(10 * lift + r.seed) / 800, count=None)
                if r.dataset == "silhouette"
                else r
                for r in epoch
            ]
            for epoch in conftest.fake_records(
                name, algorithm, lift, SEEDS, epochs=2, sets=SETS
            )
        ]
        config = conftest.fake_config(name, SEEDS)
        conftest.write_run(folder / name, config, records)
    return inputs.from_runs([f"{folder}/*"], options_lib.Options())


def scores_by_algorithm(study, dataset):
    values = study.values[study.values["dataset"] == dataset]
    return {
        a: 100 * x.to_numpy()
        for a, x in values.groupby("algorithm", observed=True)["value"]
    }


def test_numbers_match_the_statistic(study):
    frame = few_seeds.frame(study)
    assert list(frame["metric"].unique()) == ["shape_bias", "accuracy"]
    assert len(frame) == 4 * 4 * 3  # Measures, numbers of seeds, algorithms.
    runs = scores_by_algorithm(study, "edge")
    names = sorted(runs)
    result = stats.few_seeds(
        [runs[name] for name in names], difference=10, larger_is_better=True
    )
    edge = frame[(frame["dataset"] == "edge") & (frame["metric"] == "accuracy")]
    three = edge[edge["seeds"] == 3].set_index("algorithm").loc[names]
    assert three["apart"].to_numpy() == pytest.approx(result.apart[1])
    assert three["lead"].to_numpy() == pytest.approx(result.lead[1])
    pairs = np.nanmean(result.reversed[1], axis=1)
    assert three["reversed"].to_numpy() == pytest.approx(pairs)
    assert set(edge["needed"]) == {np.nanmedian(result.needed)}
    assert (
        edge[edge["seeds"] == 10][["apart", "lead", "reversed"]].isna().all(axis=None)
    )


def test_the_section_has_text_table_and_figure(study):
    text, table, figure = few_seeds.blocks(study)
    row = next(row for row in table.rows if row[:2] == ("accuracy", "silhouette"))
    # Two of ten seeds are good: of two drawn seeds, exactly one is good in 32 of 90 draws.
    apart = row[3].split(" / ")
    assert (apart[0], apart[3]) == ("36", "–")
    assert "Worst by accuracy on silhouette: two identical methods with 3" in text.words
    assert len(figure.drawn.axes) == 3
    ticks = figure.drawn.axes[0].get_xticks().tolist()
    assert ticks == [1, 3, 5]


@cases.each(
    ("points", "largest", "expected"), [(None, 90, 10), (None, 0.9, 0.1), (3, 90, 3)]
)
def test_the_difference_that_counts_is_set_or_derived(
    tmp_path, points, largest, expected
):
    rows = [
        (a, d, run, largest * (run + 1) / 4)
        for a in "ab"
        for d in "xy"
        for run in range(4)
    ]
    frame = pd.DataFrame(rows, columns=["algorithm", "dataset", "run", "score"])
    frame.loc[:3, "score"] *= 0.9
    frame.to_csv(tmp_path / "scores.csv", index=False)
    options = options_lib.Options(points=points)
    frame_of_file = few_seeds.frame(
        inputs.from_scores(str(tmp_path / "scores.csv"), options)
    )
    assert set(frame_of_file["difference"]) == {expected}
    assert set(frame_of_file["metric"]) == {"score"}


def test_single_seeds_have_no_table(tmp_path):
    rows = "".join(
        f"{a},{d},{len(a + d) + ord(d)}\n" for a in ("a", "bb") for d in "xyz"
    )
    (tmp_path / "scores.csv").write_text(f"algorithm,dataset,score\n{rows}")
    study = inputs.from_scores(str(tmp_path / "scores.csv"), options_lib.Options())
    (text,) = few_seeds.blocks(study)
    assert text.words == "Not known: no algorithm has several runs."


@pytest.mark.slow
def test_the_section_is_on_the_page_and_in_results(runs, tmp_path):
    assert report.main([f"--runs={runs}/*", f"--out={tmp_path / 'out'}"]) == 0
    tree = json.loads((tmp_path / "out/results.json").read_text())
    assert {row["seeds"] for row in tree["few_seeds"]} == {1, 3, 5, 10}
    assert {"median", "lowest", "highest"} < tree["table"][0].keys()
    page = (tmp_path / "out/index.html").read_text()
    assert "Results with fewer seeds" in page


def test_bimodal_scores_are_shown_by_median_and_range(study):
    """Silhouettes, with mean - std below zero, show ranges; other columns do not."""
    analysed = analysis.analyse(study)
    table = score_section.scores_table(analysed)
    names = [head.partition(" (")[0] for head in table.head]
    cells = dict(zip(names, table.rows[0], strict=True))
    silhouette = scores_by_algorithm(study, "silhouette")[table.rows[0][0]]
    median = np.median(silhouette)
    interval = f"[{silhouette.min():.1f}, {silhouette.max():.1f}]"
    assert cells["silhouette"] == f"{median:.1f} {interval}"
    assert " ± " in cells["edge"] and "[" not in cells["edge"]
    assert benchmark_scores.RANGED in table.caption
    cell = analysed.cells[(analysed.cells["dataset"] == "silhouette")].iloc[0]
    assert 100 * cell["median"] == pytest.approx(median)
    assert cell["mean"] < cell["std"]


def test_curves_of_bimodal_scores_have_one_dot_per_seed(study):
    drawn = curve_section.curve_figure(analysis.analyse(study), "accuracy").drawn
    axes = {panel.get_title(loc="left"): panel for panel in drawn.axes}
    dots = {
        name: [
            x
            for line in panel.lines
            if line.get_linestyle() == "None"
            for x in line.get_ydata()
        ]
        for name, panel in axes.items()
    }
    assert dots["edge"] == []
    assert len(dots["silhouette"]) == 3 * 2 * len(SEEDS)
    assert max(dots["silhouette"]) == pytest.approx(99)
    first = axes["silhouette"].lines[0].get_ydata()
    assert first[-1] == pytest.approx(
        np.median(scores_by_algorithm(study, "silhouette")["ERM"])
    )


def test_curves_of_bimodal_scores_with_many_seeds_have_a_range(study, monkeypatch):
    monkeypatch.setattr(curve_section, "_MAX_DOTS", 3 * 2 * len(SEEDS) - 1)
    figure = curve_section.curve_figure(analysis.analyse(study), "accuracy")
    assert "medians and ranges" in figure.caption
    axes = {panel.get_title(loc="left"): panel for panel in figure.drawn.axes}[
        "silhouette"
    ]
    assert all(line.get_linestyle() != "None" for line in axes.lines)
    ends = [band.get_paths()[0].vertices[:, 1] for band in axes.collections]
    silhouette = scores_by_algorithm(study, "silhouette")["ERM"]
    assert ends[0].min() <= silhouette.min() and ends[0].max() == pytest.approx(
        silhouette.max()
    )
