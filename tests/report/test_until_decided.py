"""The section on looks after every seed: pairs, levels, decisions, forecasts and commands."""

import json
import math
import re
import shlex

import numpy as np
import pandas as pd
import pytest

from jbias import stats
from jbias.report import document, tables
from jbias.report import options as options_lib
from jbias.report.pages.benchmark import inputs, recorded_commands
from jbias.report.pages.benchmark import until_decided_section as section
from jbias.stats import sequential
from tests import cases
from tests.report import conftest

SETS = ("silhouette", "cue_conflict")
SEEDS = (*range(2, 16), 100)
# Accuracy on silhouettes.
MEANS = {"erm": 0.1, "padain": 0.15, "sagnet": 0.9}


def records(name, algorithm, lost=()):
    """Yield the records of an epoch; the lost seeds diverged."""
    rng = np.random.default_rng(len(name))
    for epoch in conftest.fake_records(
        name, algorithm, 0.0, SEEDS, epochs=1, sets=SETS
    ):
        for record in epoch:
            if (record.dataset, record.metric) == ("silhouette", "accuracy"):
                value = MEANS[name] + 0.1 * rng.random()
                record = record._replace(value=value, count=None)
            if record.seed not in lost:
                yield record
            elif record.dataset == "train":
                yield record._replace(metric="diverged", value=7.0, status="diverged")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with runs of three methods; seed 3 of SagNet diverged."""
    folder = tmp_path_factory.mktemp("until") / "runs"
    for name, (algorithm, _) in conftest.ALGORITHMS.items():
        lost = (3,) if name == "sagnet" else ()
        epochs = [list(records(name, algorithm, lost))]
        conftest.write_run(folder / name, conftest.fake_config(name, SEEDS), epochs)
        path = folder / name / "provenance.json"
        command = f"--config=configs/{name}.py:seeds=15,epochs=1 --config.algo.p=0.5"
        path.write_text(
            json.dumps({**json.loads(path.read_text()), "command": command})
        )
    return folder


def study_of(folder, **options):
    return inputs.from_runs([f"{folder}/*"], options_lib.Options(**options))


def results_of(study):
    return section.frame(study, list(section.find_comparisons(study)))


def scores_of(study, algorithm, dataset="silhouette"):
    """Return the accuracies by seed number."""
    rows = study.values[
        (study.values["algorithm"] == algorithm) & (study.values["dataset"] == dataset)
    ]
    numbers = rows["seed"].str.rpartition(":")[2].astype(int)
    return rows["value"].astype(float).set_axis(numbers).sort_index()


def csv_study(tmp_path, rows, **options):
    path = tmp_path / "scores.csv"
    frame = pd.DataFrame(rows, columns=["algorithm", "dataset", "run", "score"])
    frame.to_csv(path, index=False)
    return inputs.from_scores(str(path), options_lib.Options(**options))


def rows_of_csv(scale=1.0, shift=0.0, runs=12, algorithms="ab"):
    """Return scores of runs on two data sets; later algorithms have higher scores on x."""
    rng = np.random.default_rng(1)
    return [
        (name, dataset, run, shift + scale * (0.1 * rng.random() + lift))
        for place, name in enumerate(algorithms)
        for dataset in "xy"
        for run in range(runs)
        for lift in [0.8 * place / len(algorithms) * (dataset == "x")]
    ]


def test_comparisons_have_pairs_by_seed_number_and_shared_levels(folder):
    """Seed 100 is the last pair; a seed that diverged in one method is left out and counted."""
    study = study_of(folder, reference="ERM")
    frame = results_of(study)
    assert list(frame["metric"].unique()) == ["shape_bias", "accuracy"]
    assert set(zip(frame["first"], frame["second"])) == {
        ("pAdaIN", "ERM"),
        ("SagNet", "ERM"),
    }
    assert set(frame["level"]) == {0.025}  # Two comparisons per metric and data set.
    row = frame[(frame["dataset"] == "silhouette") & (frame["first"] == "SagNet")].iloc[
        0
    ]
    ours, theirs = scores_of(study, "SagNet"), scores_of(study, "ERM").drop(3)
    assert list(ours.index) == list(theirs.index) == [2, *range(4, 16), 100]
    expected = stats.compare(ours, theirs, alpha=0.025)
    assert (row["pairs"], row["left_out"]) == (14, 1)
    assert (row["decision"], expected.decision) == ("SagNet", "a")
    assert row["decided_after"] == expected.stopped_at
    assert row["difference"] == pytest.approx(100 * expected.difference.estimate[-1])
    assert row["low"] == pytest.approx(100 * expected.difference.lower[-1], abs=1e-7)
    assert row["high"] == pytest.approx(100 * expected.difference.upper[-1], abs=1e-7)
    assert row["evalue"] == pytest.approx(expected.evalues[-1])
    pairs = results_of(study_of(folder))
    assert set(pairs["level"]) == {0.05 / 3}  # All pairs of three methods.
    assert len(pairs) == 9


def test_forecasts_are_those_of_the_closest_comparisons(folder, monkeypatch):
    monkeypatch.setattr(section, "_MAX_FORECASTS", 2)
    study = study_of(folder, points=30.0)
    comparisons = list(section.find_comparisons(study))
    frame = section.frame(study, comparisons)
    known = frame[frame["further_seeds"].notna()]
    open_rows = frame[frame["decision"].isna()]
    assert len(open_rows) > 2
    assert set(known.index) == set(open_rows.nsmallest(2, "missing").index)
    for place, row in known.iterrows():
        comparison = comparisons[place]
        forecast = sequential.forecast(
            comparison.a, comparison.b, alpha=0.05 / 3, points=30.0, draws=100
        )
        assert row["further_seeds"] == forecast.pairs


def test_the_command_names_config_runs_and_settings(folder):
    frame = results_of(study_of(folder, reference="ERM", points=30.0))
    rows = frame[frame["command"].notna()]
    is_of_page = frame["metric"] == "accuracy"
    is_reachable = np.isfinite(frame["further_seeds"])
    assert set(rows.index) == set(frame.index[is_reachable & is_of_page])
    assert len(rows) and len({*rows["command"]}) == len(rows)
    for row in rows.itertuples():
        words = shlex.split(row.command)
        name = row.first.lower()
        assert words[:4] == [
            "jbias",
            "train",
            f"--config=configs/{name}.py:epochs=1",
            "--config.algo.p=0.5",
        ]
        flags = dict(word.split("=", 1) for word in words[4:])
        limit = flags.pop("--max-seeds", "30")
        needed = row.pairs + row.left_out + row.further_seeds
        assert needed <= int(limit) < max(needed + 10, 31)
        assert flags == {
            "--until-decided": str(folder / "erm"),
            "--metric": row.metric,
            "--dataset": row.dataset,
            "--points": "30",
            "--alpha": "0.025",
            "--workdir": f"runs/{name}-against-erm-{row.metric}-{row.dataset}",
        }


@cases.each(
    ("recorded", "flags"),
    [
        ("--config=configs/erm.py", ["--config=configs/erm.py"]),
        ("--config=configs/erm.py:seeds=10", ["--config=configs/erm.py"]),
        ("--config=jbias:erm:smoke,seeds=3", ["--config=jbias:erm:smoke"]),
        ("--config=jbias:erm:seeds=3,smoke", ["--config=jbias:erm:smoke"]),
        (
            "--config=a b.py:epochs=2,myseeds=3 --config.seeds=(1, 2) --config.label=A B",
            ["--config=a b.py:epochs=2,myseeds=3", "--config.label=A B"],
        ),
        (None, []),
        ("", []),
        ({}, []),
    ],
)
def test_numbers_of_seeds_are_not_part_of_the_config(recorded, flags):
    assert recorded_commands.config_flags(recorded) == flags


def test_several_workdirs_of_a_reference_are_a_glob_that_matches_them_alone(tmp_path):
    for name in ("erm-1", "erm-2", "sagnet"):
        (tmp_path / name).mkdir()
    paths = [str(tmp_path / name) for name in ("erm-1", "erm-2", "sagnet")]
    assert recorded_commands.path_pattern(paths[:1]) == paths[0]
    assert recorded_commands.path_pattern(paths[:2]) == str(tmp_path / "erm-*")
    assert recorded_commands.path_pattern([paths[0], paths[2]]) is None
    assert recorded_commands.path_pattern([paths[0], "elsewhere/erm-2"]) is None


def test_the_section_has_sentences_table_figure_and_commands(folder):
    study = study_of(folder, points=30.0)
    blocks = list(section.blocks(study))
    texts = [block.words for block in blocks if isinstance(block, document.Text)]
    table, figure, commands = blocks[len(texts) :]
    frame = results_of(study)
    decided = int(frame["decision"].notna().sum())
    assert texts[0].startswith(f"{decided} of 9 comparisons are decided: ")
    assert "SagNet is higher than ERM in accuracy on silhouette (after" in texts[0]
    assert any("seeds that diverged or have no score" in text for text in texts)
    assert isinstance(table, tables.Table) and table.in_results
    # The files are not sorted as the page is.
    assert list(table.data["first"]) == list(frame["first"])
    higher, stopped_at = table.head.index("higher"), table.head.index("decided after")
    is_decided = [row[higher] != "–" for row in table.rows]
    assert is_decided == sorted(is_decided, reverse=True)
    numbers = [int(row[stopped_at]) for row in table.rows[:decided]]
    assert numbers == sorted(numbers)
    panels = [axes for axes in figure.drawn.axes if axes.get_title(loc="left")]
    assert len(panels) == 9
    for axes in panels:
        levels = {
            line.get_ydata()[0]
            for line in axes.lines
            if list(line.get_xdata()) == [0, 1]
        }
        assert {-30, 0, 30} <= levels
    titles = [axes.get_title(loc="left") for axes in panels]
    place = titles.index("ERM − SagNet\naccuracy on silhouette")
    row = frame.iloc[place]
    marks = [line for line in panels[place].lines if line.get_marker() == "D"]
    assert list(marks[0].get_xdata()) == [row["decided_after"]]
    shown = [line for line in commands.text.splitlines() if line.startswith("jbias")]
    assert shown == list(
        frame.dropna(subset="command").sort_values("further_seeds", kind="stable")[
            "command"
        ]
    )


def test_many_comparisons_have_a_figure_of_the_closest(tmp_path):
    study = csv_study(tmp_path, rows_of_csv(algorithms="abcde"))
    *_, table, figure = section.blocks(study)
    assert len(table.data) == 20
    panels = [axes for axes in figure.drawn.axes if axes.get_title(loc="left")]
    assert len(panels) == section._MAX_PANELS
    assert "The 12 comparisons closest to a decision" in figure.caption
    assert "command" not in table.data


@cases.each(
    ("scale", "shift", "bounds"),
    [(1, 0, (0, 1)), (100, 0, (0, 100)), (1, -0.2, None), (100, 80, None)],
)
def test_scores_of_a_file_need_known_bounds(tmp_path, scale, shift, bounds):
    study = csv_study(tmp_path, rows_of_csv(scale, shift))
    if bounds is None:
        (text,) = section.blocks(study)
        assert re.match("Not known: .*no known smallest and largest value", text.words)
        return
    comparisons = list(section.find_comparisons(study))
    assert {comparison.bounds for comparison in comparisons} == {bounds}
    words = " ".join(
        block.words
        for block in section.blocks(study)
        if isinstance(block, document.Text)
    )
    assert f"no score can be outside of 0 to {bounds[1]}" in words


def test_a_margin_is_in_the_unit_of_the_page(tmp_path):
    """0.3 of scores from 0 to 1 is 30 % of the range; a margin of the whole range is none."""
    study = csv_study(tmp_path, rows_of_csv(), points=0.3)
    comparisons = list(section.find_comparisons(study))
    assert [comparison.points for comparison in comparisons] == pytest.approx([30, 30])
    study = csv_study(tmp_path, rows_of_csv(), points=1.0)
    assert {c.points for c in section.find_comparisons(study)} == {None}


def test_other_metrics_of_runs_have_no_bounds():
    values = pd.Series([0.1, 0.2])
    for metric in ("accuracy", "shape_bias", "fraction_neither", "class_accuracy"):
        assert section.bounds_of(metric, values, is_runs=True) == (0, 1)
    assert section.bounds_of("loss", values, is_runs=True) is None
    assert section.bounds_of("accuracy", 20 * values, is_runs=True) is None


def test_runs_are_in_the_order_of_the_numbers_in_their_names(tmp_path):
    """The order of the rows, which may be by score, has no influence."""
    rows = [(a, d, f"run {r}", s) for a, d, r, s in rows_of_csv(runs=11)]
    ordered = list(section.find_comparisons(csv_study(tmp_path, rows)))
    by_score = sorted(rows, key=lambda row: row[-1])
    shuffled = list(section.find_comparisons(csv_study(tmp_path, by_score)))
    expected = [score for a, d, _, score in rows if (a, d) == ("a", "x")]
    for comparisons in (ordered, shuffled):
        on_x = next(c for c in comparisons if c.dataset == "x")
        scores = {"a": on_x.a, "b": on_x.b}[("a", "b")[on_x.first != "a"]]
        assert scores.tolist() == expected


@cases.each(
    ("options", "reason"),
    [
        ({"runs": 1}, "no two algorithms have scores of two runs in common"),
        ({"algorithms": "a"}, "there is a single algorithm"),
    ],
)
def test_without_comparisons_the_reason_is_named(tmp_path, options, reason):
    (text,) = section.blocks(csv_study(tmp_path, rows_of_csv(**options)))
    assert text.words.startswith("Not known: ") and reason in text.words


def test_too_many_pairs_are_refused_before_they_are_made(tmp_path, monkeypatch):
    monkeypatch.setattr(section, "_MAX_SCORES", 100)
    rows = rows_of_csv(algorithms="abcd")
    (text,) = section.blocks(csv_study(tmp_path, rows))
    assert "6 pairs of algorithms on each data set are too many" in text.words
    assert "--reference" in text.words
    assert len(list(section.blocks(csv_study(tmp_path, rows, reference="a")))) > 1


def test_an_open_study_says_what_would_decide_it(tmp_path):
    """Equal means, few runs: no forecast is finite, and the least number of pairs is named."""
    rows = [(a, d, r, 0.5) for a in "abc" for d in "xy" for r in range(4)]
    study = csv_study(tmp_path, rows)
    words = [
        block.words
        for block in section.blocks(study)
        if isinstance(block, document.Text)
    ]
    assert words[0].startswith("0 of 6 comparisons are decided. ")
    assert "more than 500 further runs" in words[1]
    least = sequential.least_pairs(0.05 / 3)
    assert f"fewer than {least} pairs" in words[1]
    assert "--points" in words[1] and "--reference" in words[1]
    assert math.isinf(results_of(study)["further_seeds"].max())


@pytest.fixture
def pair(tmp_path):
    """Return a function that writes two methods with these seeds and returns their study."""

    def write(seeds, second_seeds, *, done=True, **options):
        for name, numbers in (("erm", seeds), ("sagnet", second_seeds)):
            epochs = conftest.fake_records(
                name, conftest.ALGORITHMS[name][0], 0.0, numbers, epochs=1, sets=SETS
            )
            conftest.write_run(
                tmp_path / name,
                conftest.fake_config(name, numbers),
                epochs,
                done=done or name == "erm",
            )
        return study_of(tmp_path, **options)

    return write


def words_of(study):
    return " ".join(
        block.words
        for block in section.blocks(study)
        if isinstance(block, document.Text)
    )


@cases.each(
    ("seeds", "second_seeds", "has_gaps"),
    [
        (range(6), range(6), False),
        (range(6), range(3), False),
        (range(3, 9), range(3, 9), False),
        (range(6), range(2, 6), True),
        (range(6), (0, 1, 4), True),
        ((0, 2, 3), (0, 2, 3), True),
    ],
)
def test_missing_seeds_before_the_last_pair_are_named(
    pair, seeds, second_seeds, has_gaps
):
    """A seed with a smaller number that is trained later would change the order of the pairs."""
    study = pair(seeds, second_seeds)
    comparisons = list(section.find_comparisons(study))
    assert {comparison.has_gaps for comparison in comparisons} == {has_gaps}
    words = words_of(study)
    assert "if only seeds with larger numbers are added later" in words
    assert ("if missing seeds are trained later" in words) == has_gaps


def test_unfinished_runs_have_no_part(pair):
    """Their selected evaluations may change, so `jbias train --until-decided` waits, too."""
    study = pair(range(4), range(4), done=False)
    (text,) = section.blocks(study)
    assert text.words.startswith(
        "Not known: no two algorithms have scores of two seeds"
    )
    assert "not finished: sagnet" in text.words


@cases.each(("level", "decision"), [(0.5, "equivalent"), (0.9, "b")])
def test_the_probable_decision_is_that_of_most_continuations(tmp_path, level, decision):
    """With a margin of 20 points, equal methods end as equivalent, and 40 points as a difference."""
    rng = np.random.default_rng(3)
    rows = [
        (name, dataset, run, mean + 0.1 * rng.random())
        for name, mean in (("a", 0.5), ("b", level))
        for dataset in "xy"
        for run in range(5)
    ]
    frame = results_of(csv_study(tmp_path, rows, points=0.2))
    assert set(frame["probable_decision"]) == {decision}
    assert frame["further_seeds"].between(1, 200).all()
    assert not frame["more_than_500_seeds"].any()


def test_a_table_in_percent_has_bounds_in_percent(tmp_path):
    """Error rates of at most 1 % are no shares of 1 if --unit says so."""
    study = csv_study(tmp_path, rows_of_csv(), unit="percent")
    assert {c.bounds for c in section.find_comparisons(study)} == {(0, 100)}
