"""The report's warnings on identical runs, scores at chance, and two seeds."""

import json
import re

import numpy as np
import pytest
import scipy.stats

from jbias.evals import decision_files
from jbias.measures import decisions
from jbias.report import options as options_lib
from jbias.report.pages.benchmark import analysis, inputs, prose
from tests.report import conftest, test_runs

SETS = ("edge", "sketch")


def make_report(folder, *args):
    """Run the report on the runs in a folder and return its results."""
    return test_runs.run(folder / "runs", folder / "out", *args)


@pytest.fixture
def runs(tmp_path):
    """Return runs of ERM, pAdaIN with the records of ERM, and SagNet, two seeds each."""
    names = ("erm", "sagnet")
    folder = conftest.make_runs(
        tmp_path / "runs", seeds=(0, 1), epochs=1, sets=SETS, names=names
    )
    new = test_runs.copy(folder, "erm", "padain", algorithm="pAdaIN")
    test_runs.configure(new, algo={"name": "padain"})
    return folder


def decide(runs, other, seeds=(0, 1)):
    """Store decisions; those of pAdaIN's seed 1 differ from ERM's on `other` images."""
    for name in ("erm", "padain"):
        for dataset in SETS:
            by_seed = {}
            for seed in seeds:
                prediction = np.arange(800) % (5 + seed)
                prediction[:other] += name == "padain" and seed
                by_seed[seed] = decisions.Decisions(prediction, {})
            decision_files.write(
                runs / name / "decisions" / dataset / "100.parquet", by_seed
            )


def lose(runs):
    test_runs.change(
        runs / "padain",
        lambda records: [
            r._replace(value=r.value + 0.1 * r.seed) if r.metric == "loss" else r
            for r in records
        ],
    )


@pytest.mark.slow
@pytest.mark.parametrize("stored", [False, True])
def test_equal_runs_have_a_warning_at_the_top_of_the_page(runs, tmp_path, stored):
    if stored:
        decide(runs, other=0)
    tree = make_report(tmp_path)
    equal_results = "have the same accuracies and losses in every evaluation"
    reason = (
        "made the same decisions on every image of every data set"
        if stored
        else equal_results
    )
    warning = f"ERM and pAdaIN {reason}: did pAdaIN have any effect?"
    assert warning in tree["caveats"] and warning in tree["warnings"]
    page = (tmp_path / "out" / "index.html").read_text()
    assert warning in page.partition("</header>")[2].partition("<section")[0]
    assert tree["twins"] == [{"names": ["ERM", "pAdaIN"], "why": reason}]
    assert not any("are they the same run" in text for text in tree["caveats"])


@pytest.mark.parametrize("stored", [False, True])
def test_runs_with_only_equal_accuracies_have_no_warning(runs, stored):
    """Runs with different losses or with one different decision are not equal."""
    if stored:
        decide(runs, other=1)
    else:
        decide(runs, other=0)
        lose(runs)
    options = options_lib.Options()
    assert inputs.from_runs([f"{runs}/*"], options).twins == ()


def test_equal_runs_are_named_if_only_some_seeds_have_decisions(runs):
    decide(runs, other=0, seeds=(0,))
    twins = inputs.from_runs([f"{runs}/*"], options_lib.Options()).twins
    reason = "have the same accuracies and losses in every evaluation"
    assert twins == (("ERM", "pAdaIN", reason),)


def write_rule(runs, rule):
    """Record a decision rule for all data sets of all runs."""
    for path in runs.glob("*/provenance.json"):
        provenance = json.loads(path.read_text())
        for dataset in provenance["data"].values():
            dataset["decision"] = rule
        path.write_text(json.dumps(provenance))


@pytest.mark.parametrize(
    ("rule", "guessed"),
    [
        ("argmax over the network's 4 classes", {"SagNet on edge"}),
        (
            "argmax of sum over 6 classes, answered by 9 of the network's 10",
            {"ERM on edge", "ERM on sketch", "pAdaIN on edge", "pAdaIN on sketch"},
        ),
        ("argmax over the network's 1,000 classes", set()),
        ("anything", set()),
    ],
)
def test_accuracies_are_at_chance_if_wilsons_interval_includes_chance(
    runs, rule, guessed
):
    write_rule(runs, rule)
    cells = inputs.from_runs([f"{runs}/*"], options_lib.Options()).at_chance
    assert {f"{cell['algorithm']} on {cell['dataset']}" for cell in cells} == guessed
    for cell in cells:
        low, high = scipy.stats.binomtest(
            round(cell["accuracy"] * 800), 800
        ).proportion_ci(method="wilson")
        assert low <= 1 / cell["classes"] <= high


def test_the_headline_makes_no_claim_if_all_accuracies_are_at_chance(tmp_path):
    folder = conftest.make_runs(tmp_path / "runs", epochs=1)
    for path in folder.glob("*/provenance.json"):
        rule = '"decision": "argmax over 4 classes", "n"'
        path.write_text(path.read_text().replace('"n"', rule))
    for name in ("erm", "sagnet", "padain"):
        test_runs.change(
            folder / name,
            lambda records: [
                test_runs.replace_value(record, 0.25)
                if record.metric == "accuracy"
                else record
                for record in records
            ],
        )
    scores = inputs.from_runs([f"{folder}/*"], options_lib.Options())
    headline, _ = prose.answer(analysis.analyse(scores))
    assert headline.startswith(
        "No claim about accuracy: decisions of all algorithms are at chance on all data "
        "sets. (Tests of ranks: no significant difference "
    )


def test_a_warning_counts_accuracies_at_chance_and_gives_advice(runs):
    write_rule(runs, "argmax of sum over 6 classes, answered by 9 of the network's 10")
    every = inputs.from_runs([f"{runs}/*"], options_lib.Options())
    two = options_lib.Options(algorithms=("ERM", "pAdaIN"))
    for study, number in (
        (every, "4 of 6 accuracies are"),
        (inputs.from_runs([f"{runs}/*"], two), "All 4 accuracies are"),
    ):
        (line,) = [
            text
            for text in prose.warnings(analysis.analyse(study))
            if "at chance" in text
        ]
        assert line.startswith(
            f"{number} at chance (16.7 %, one of 6 classes): ERM on edge, "
        )
        assert "train longer, check the order of classes, or leave out" in line


@pytest.mark.slow
def test_cells_at_chance_are_marked_and_have_a_warning(runs, tmp_path):
    write_rule(runs, "argmax over the network's 4 classes")
    tree = make_report(tmp_path)
    (cell,) = tree["at_chance"]
    assert (cell["algorithm"], cell["dataset"], cell["classes"]) == (
        "SagNet",
        "edge",
        4,
    )
    warning = (
        "1 of 6 accuracies is at chance (25 %, one of 4 classes): SagNet on edge. "
    )
    assert any(warning in line for line in tree["warnings"])
    assert any(warning in line for line in tree["caveats"])
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count(" (chance)</td>") == 1


@pytest.mark.slow
def test_two_seeds_have_no_interval(tmp_path):
    """Intervals over seeds are missing; intervals over the three data sets remain."""
    conftest.make_runs(
        tmp_path / "runs",
        seeds=(0, 1),
        epochs=1,
        sets=(*SETS, "recoloured"),
        names=("erm", "sagnet", "padain"),
    )
    tree = make_report(tmp_path)
    page = (tmp_path / "out" / "index.html").read_text()
    assert any(line.startswith("Two runs give no interval") for line in tree["caveats"])
    bare = [r[f"{name}_low"] for r in tree["stability"] for name in ("mean", "iqm")]
    bare += [r["seeds_high"] for r in tree["differences"]]
    assert set(bare) == {None}
    assert all(row["both_low"] is not None for row in tree["differences"])
    assert "no intervals (two runs give none)" in page
    assert not set(re.findall(r"\bnan\b|\[–, –\]", page))


def test_random_numbers_shared_by_seeds_have_a_note(runs):
    path = runs / "erm" / "config.json"
    config = json.loads(path.read_text()) | {"fix": {"init": 0, "order": 3}}
    path.write_text(json.dumps(config))
    notes = inputs.from_runs([f"{runs}/*"], options_lib.Options()).notes
    (shared_note,) = [note for note in notes if "config.fix" in note]
    assert shared_note.startswith(
        "All seeds of ERM have the same init and order (config.fix): ±"
    )


def test_swad_is_to_be_compared_by_its_last_evaluation(runs):
    """Earlier evaluations of SWAD are averages over a part of the training."""
    path = runs / "erm" / "config.json"
    config = json.loads(path.read_text())
    config.setdefault("optim", {})["average"] = {"name": "swad"}
    path.write_text(json.dumps(config))
    for options, is_advised in (
        (options_lib.Options(), True),
        (options_lib.Options(selection="last_n", last=1), False),
    ):
        text = " ".join(inputs.from_runs([f"{runs}/*"], options).notes)
        assert ("compare it by --selection=last_n --last=1" in text) == is_advised


def test_damaged_decisions_do_not_stop_the_report(runs):
    decide(runs, other=0)
    path = runs / "erm" / "decisions" / "edge" / "100.parquet"
    path.write_bytes(path.read_bytes()[:100])
    twins = inputs.from_runs([f"{runs}/*"], options_lib.Options()).twins
    assert [names for *names, _ in twins] == [["ERM", "pAdaIN"]]
