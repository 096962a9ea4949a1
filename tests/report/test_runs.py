"""`--runs`: numbers of the report from records, and messages on missing numbers."""

import dataclasses
import json
import shutil
import types

import numpy as np
import pandas as pd
import pytest

from jbias import config as jc
from jbias import report
from jbias.report import options as options_lib
from jbias.report import workdirs
from jbias.report.pages.benchmark import (
    analysis,
    inputs,
    run_provenance_section,
    score_notes,
)
from jbias.runs import costs, results, selection
from tests import cases, test_presets
from tests.report import conftest


def run(runs, out, *args):
    assert report.main([f"--runs={runs}/*", f"--out={out}", *args]) == 0
    return json.loads((out / "results.json").read_text(), parse_constant=pytest.fail)


def replace_value(record, value):
    """Return a record with another value, rounded to a count of its n."""
    if record.count is None:
        return record._replace(value=value)
    count = round(value * record.n)
    return record._replace(value=count / record.n, count=count)


@pytest.mark.slow
def test_the_flag_of_runs_may_be_repeated(runs, tmp_path):
    names = sorted(path.name for path in runs.iterdir())[:2]
    flags = [f"--runs={runs / name}" for name in names]
    assert report.main([*flags, f"--out={tmp_path / 'out'}"]) == 0
    tree = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(tree["runs"]) == 2


def refusal(capsys, runs, out, *args):
    assert report.main([f"--runs={runs}/*", f"--out={out}", *args]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    return captured.err


def change(workdir, edit):
    """Replace the records of every file of a workdir by `edit(records)`."""
    for path in (workdir / "evals").glob("*.jsonl"):
        results.write(path, edit(results.loads(path.read_text())))


def configure(workdir, **changes):
    config = json.loads((workdir / "config.json").read_text())
    (workdir / "config.json").write_text(json.dumps(config | changes))


def copy(runs, source, target, *, seeds=0, algorithm=None):
    """Copy a run under another name and add `seeds` to its seed numbers."""
    new = runs / target
    (new / "evals").mkdir(parents=True)
    for path in (runs / source).rglob("*.json*"):
        (new / path.relative_to(runs / source)).write_bytes(path.read_bytes())
    (new / "done").write_text("")
    change(
        new,
        lambda records: [
            r._replace(
                run=target, seed=r.seed + seeds, algorithm=algorithm or r.algorithm
            )
            for r in records
        ],
    )
    return new


@pytest.mark.slow
def test_the_table_has_the_selected_records(runs, tmp_path):
    tree = run(runs, tmp_path / "out")
    selected = selection.best_validation(results.read(f"{runs}/*"))
    records = selected[
        (selected["algorithm"] == "pAdaIN") & (selected["dataset"] == "edge")
    ]
    cell = next(
        c for c in tree["table"] if (c["algorithm"], c["dataset"]) == ("pAdaIN", "edge")
    )
    assert cell["n"] == 3
    assert cell["mean"] == pytest.approx(records["value"].mean())
    assert cell["std"] == pytest.approx(np.std(records["value"], ddof=1))
    assert tree["selection"] == "best_validation"
    assert tree["algorithms"] == ["ERM", "pAdaIN", "SagNet"]
    order = ["silhouette", "edge", "sketch", "cue_conflict", "corrupted"]
    assert tree["datasets"] == order  # In the order of evaluation.
    assert tree["friedman"]["df"] == [2, 8]


@pytest.mark.slow
def test_all_tables_and_figures_are_written(runs, tmp_path):
    run(runs, tmp_path / "out")
    tables = {p.name for p in (tmp_path / "out" / "tables").iterdir()}
    names = ("scores", "validation", "omnibus", "nemenyi", "posthoc", "ranks")
    names += ("stability", "differences", "power", "shape_bias", "runs", "variability")
    names += (
        "comparison_matrix",
        "few_seeds",
        "until_decided",
    )  # Three algorithms have no blocks of data sets.
    names += ("selections", "selection_tests", "settings", "provenance", "data")
    ends = ("csv", "tex", "md", "parquet")
    assert tables == {f"{name}.{end}" for name in names for end in ends}
    figures = {p.name for p in (tmp_path / "out" / "figures").iterdir()}
    names = ("critical_difference", "comparison_matrix", "iqm", "profiles", "power")
    names += ("curves_accuracy", "curves_shape_bias", "until_decided")
    assert figures == {f"{name}.svg" for name in names}


def test_selection_by_the_worst_class(runs, tmp_path, capsys):
    """The table has the worst accuracy and its images; runs without classes are refused."""
    message = refusal(capsys, runs, tmp_path / "no", "--selection=worst_class")
    assert "worst_class: every seed needs class_accuracy" in message

    def add_class_accuracies(records):
        """Add classes: class 1 is best at the first epoch, class 0 is always good."""
        valid = [r for r in records if (r.dataset, r.metric) == ("valid", "accuracy")]
        for r in valid:
            r = r._replace(metric="class_accuracy", count=None)
            yield r._replace(condition="class=0", value=0.9, n=30)
            yield r._replace(condition="class=1", value=0.5 / r.epoch, n=20)
        yield from records

    for workdir in runs.iterdir():
        change(workdir, add_class_accuracies)
    tree = run(
        runs, tmp_path / "out", "--selection=worst_class", "--algorithms=ERM,SagNet"
    )
    assert "accuracy of the worst class" in tree["selection_rule"]
    table = pd.read_csv(tmp_path / "out/tables/validation.csv")
    assert set(table["epochs"]) == {"1 1 1"} and set(table["worst"]) == {0.5}
    assert set(table["worst_images"]) == {20}


@pytest.mark.slow
@pytest.mark.quick("oracle-oracle")
@pytest.mark.parametrize(
    ("selection", "rule"),
    [
        ("last_n", lambda frame: selection.last_n(frame, 1)),
        ("oracle", selection.oracle),
    ],
)
def test_rules_of_selection_change_the_means(runs, tmp_path, selection, rule):
    tree = run(runs, tmp_path / "out", f"--selection={selection}")
    expected = rule(results.read(f"{runs}/*"))
    expected = expected[expected["metric"] == "accuracy"]
    means = expected.groupby(["algorithm", "dataset"])["value"].mean()
    for cell in tree["table"]:
        mean = means[cell["algorithm"], cell["dataset"]]
        assert cell["mean"] == pytest.approx(mean)
    if selection == "oracle":
        assert any("oracle looks at the test sets" in text for text in tree["caveats"])
    assert ("a bound and not a result" in tree["headline"]) == (selection == "oracle")


@pytest.mark.slow
def test_tests_are_shown_under_every_selection(runs, tmp_path):
    trees = {
        rule: run(runs, tmp_path / rule, f"--selection={rule}")
        for rule in ("best_validation", "oracle")
    }
    table = pd.read_csv(tmp_path / "oracle" / "tables" / "selection_tests.csv")
    p = dict(zip(table["selection"], table["p"], strict=True))
    assert list(p) == ["best validation", "last 1", "epoch 3", "oracle"]
    assert p["oracle"] == pytest.approx(trees["oracle"]["friedman"]["p"])
    assert p["best validation"] == pytest.approx(
        trees["best_validation"]["friedman"]["p"]
    )


@pytest.mark.slow
def test_selection_at_an_epoch_or_on_another_set(runs, tmp_path):
    frame = results.read(f"{runs}/*")
    tree = run(runs, tmp_path / "epoch", "--selection=at_epoch", "--epoch=2")
    mean = selection.at_epoch(frame, 2).query("run == 'erm' and dataset == 'edge'")
    assert tree["table"][1]["mean"] == pytest.approx(mean["value"].mean())
    assert tree["selection_rule"] == "the evaluation after epoch 2 of each seed"
    tree = run(runs, tmp_path / "on", "--selection=best_on", "--best-on=edge")
    assert "edge" not in tree["datasets"]
    best = selection.best_on(frame, "edge")
    edge = best.query("dataset == 'edge' and metric == 'accuracy'")["value"]
    every = selection.evaluations(frame).query("dataset == 'edge'")
    assert sorted(edge) == sorted(every.groupby(["run", "seed"])["value"].max())
    with pytest.raises(SystemExit):
        run(runs, tmp_path / "no", "--selection=best_on")


@pytest.mark.slow
def test_algorithms_are_selected_in_the_order_of_the_flag(runs, tmp_path):
    tree = run(runs, tmp_path / "out", "--algorithms=SagNet,ERM")
    assert tree["algorithms"] == ["SagNet", "ERM"]


@pytest.mark.slow
def test_shape_bias_has_its_counts(runs, tmp_path):
    tree = run(runs, tmp_path / "out")
    selected = selection.best_validation(results.read(f"{runs}/*"))
    erm = selected[selected["run"] == "erm"]
    biases = erm[erm["metric"] == "shape_bias"]
    row = tree["shape_bias"][0]
    assert (row["algorithm"], row["dataset"], row["seeds"]) == (
        "ERM",
        "cue_conflict",
        3,
    )
    assert row["shape_decisions"] == biases["count"].sum()
    assert row["texture_decisions"] == biases["n"].sum() - biases["count"].sum()
    neither = erm[erm["metric"] == "fraction_neither"]["value"]
    assert row["fraction_neither"] == pytest.approx(neither.mean())
    assert len(neither) == 3
    assert "mrr_shape" not in row


@pytest.mark.slow
def test_shape_biases_are_on_the_first_screen(runs, tmp_path, capsys):
    """Shape biases are below the headline, in the table of scores and on the terminal."""
    tree = run(runs, tmp_path / "out")
    names = {x["algorithm"]: x for x in tree["shape_bias"]}
    cells = ", ".join(
        f"{name} {100 * x['mean']:.1f} ± {100 * x['std']:.1f}"
        for name, x in names.items()
    )
    sentence = f"Shape bias in % on cue_conflict: {cells}."
    page = (tmp_path / "out" / "index.html").read_text()
    head, first_table, *_ = page.split("<table")
    assert sentence in head.split('class="answer"')[1]
    assert "Shape bias, % (cue_conflict)" in first_table
    assert sentence in capsys.readouterr().out
    assert "Shape bias" not in (tmp_path / "out" / "tables" / "scores.tex").read_text()
    run(runs, tmp_path / "biases", "--metric=shape_bias")
    page = (tmp_path / "biases" / "index.html").read_text()
    assert "Shape bias in % on" not in page.split("<table")[0]


def test_a_single_evaluation_has_no_deviation_within_a_run(runs, tmp_path):
    """With `--last=1` the table has only deviations between runs and says so."""
    run(runs, tmp_path / "one", "--selection=last_n", "--last=1")
    single = (tmp_path / "one" / "tables" / "variability.md").read_text()
    assert single.startswith(
        "Standard deviation of scores between runs, at the last evaluation of each run."
    )
    run(runs, tmp_path / "two", "--selection=last_n", "--last=2")
    two = (tmp_path / "two" / "tables" / "variability.md").read_text()
    assert two.startswith(
        "Standard deviation of scores: within a run over its last 2 evaluations ("
    )


def test_other_metrics_and_chosen_sets(runs, tmp_path, capsys):
    tree = run(runs, tmp_path / "one", "--metric=shape_bias")
    assert (tree["datasets"], tree["friedman"]) == (["cue_conflict"], None)
    tree = run(runs, tmp_path / "two", "--datasets=sketch,edge,valid")
    assert tree["datasets"] == ["sketch", "edge", "valid"]
    assert tree["friedman"]["df"] == [2, 4]
    capsys.readouterr()
    assert "accuracy" in refusal(capsys, runs, tmp_path / "out", "--metric=f1")
    assert "no scores of blur" in refusal(
        capsys, runs, tmp_path / "out", "--datasets=blur"
    )


@pytest.mark.slow
def test_seeds_of_equal_settings_are_pooled(runs, tmp_path):
    more = copy(runs, "erm", "erm_more", seeds=3)
    configure(more, seeds=[3, 4, 5], run={"workers": 9})
    tree = run(runs, tmp_path / "out")
    assert tree["algorithms"] == ["ERM", "pAdaIN", "SagNet"]
    assert {c["n"] for c in tree["table"] if c["algorithm"] == "ERM"} == {6}


@pytest.mark.slow
def test_runs_with_different_settings_are_not_averaged(runs, tmp_path):
    configure(copy(runs, "padain", "padain_often"), algo={"name": "padain", "p": 0.1})
    tree = run(runs, tmp_path / "out")
    assert "pAdaIN [p=0.1]" in tree["algorithms"]
    assert "pAdaIN [p=default]" in tree["algorithms"]
    assert {c["n"] for c in tree["table"]} == {3}


@pytest.mark.slow
def test_runs_with_unknown_settings_are_not_averaged(runs, tmp_path):
    other = copy(runs, "erm", "erm_other", seeds=3)
    (other / "config.json").unlink()
    tree = run(runs, tmp_path / "out")
    assert {"ERM [erm]", "ERM [erm_other]"} <= set(tree["algorithms"])
    assert any(
        "its settings and training data are unknown" in text for text in tree["caveats"]
    )


def test_seeds_of_two_versions_of_user_code_are_not_pooled(runs):
    """The files have the same name and different digests."""
    configure(copy(runs, "erm", "erm_more", seeds=3), seeds=[3, 4, 5])
    for name, digest in (("erm", "0123456789abcdef"), ("erm_more", "fedcba9876543210")):
        path = runs / name / "provenance.json"
        provenance = json.loads(path.read_text())
        path.write_text(json.dumps({**provenance, "own_code": {"mine.py": digest}}))
    labels = {f"ERM [own_code=mine.py {x}]" for x in ("0123456789abcdef", digest)}
    assert labels <= {*read_study(runs).algorithms}


def test_refuses_to_count_a_seed_twice(runs, tmp_path, capsys):
    copy(runs, "erm", "erm_again")
    line = refusal(capsys, runs, tmp_path / "out")
    assert "seed 0 of ERM again" in line
    assert "erm_again" in line


def test_algorithms_have_their_paper_names_or_configured_labels(runs):
    for name, algorithm, variant in (
        ("erm", "erm", "biasbed+cae"),
        ("padain", "padain", ""),
        ("sagnet", "sagnet", "wide"),
    ):
        fields = {"algorithm": algorithm, "variant": variant}
        change(
            runs / name, lambda rs, fields=fields: [r._replace(**fields) for r in rs]
        )
    labels = ("DeepAugment (CAE) (biasbed)", "pAdaIN", "SagNet (wide)")
    assert read_study(runs).algorithms == labels
    study = read_study(runs, algorithms=("padain",), reference="padain")
    assert (study.algorithms, study.options.reference) == (("pAdaIN",), "pAdaIN")
    configure(copy(runs, "padain", "padain_often"), algo={"name": "padain", "p": 0.1})
    configure(runs / "sagnet", label="Mine")
    labels = ("pAdaIN [p=default]", "pAdaIN [p=0.1]", "Mine")
    assert read_study(runs).algorithms == ("DeepAugment (CAE) (biasbed)", *labels)
    # Names of records, with the setting that differs, select algorithms, too.
    selected = read_study(runs, algorithms=("padain [p=0.1]", "sagnet (wide)"))
    assert selected.algorithms == ("pAdaIN [p=0.1]", "Mine")
    (trained := runs / "trained.csv").write_text(
        "algorithm,dataset\npadain [p=0.1],edge\nMine,sketch\n"
    )
    study = read_study(runs, trained_on=str(trained)).trained
    assert {("pAdaIN [p=0.1]", "edge"), ("Mine", "sketch")} <= study


@pytest.mark.parametrize(
    ("variant", "name"),
    [
        ("", "ERM"),
        ("cae+edsr", "DeepAugment (CAE+EDSR)"),
        ("edsr+cae", "DeepAugment (CAE+EDSR)"),
        ("biasbed+cae+edsr", "DeepAugment (CAE+EDSR) (biasbed)"),
        ("edsr+wide", "DeepAugment (EDSR) (wide)"),
        ("wide", "ERM (wide)"),
    ],
)
def test_paper_names_match_as_much_of_the_variant_as_possible(variant, name):
    assert workdirs.paper_name(bare_run(variant=variant)) == name


@pytest.mark.parametrize(
    ("preset", "name"),
    [
        ("swad", "SWAD"),
        ("eoa", "EoA"),
        ("sam", "SAM"),
        ("asam", "ASAM"),
        ("erm_plusplus", "ERM++"),
        ("dfr", "DFR"),
        ("simclr", "SimCLR"),
    ],
)
def test_runs_of_presets_have_the_names_of_their_papers(preset, name):
    config = jc.to_dict(test_presets.load(preset))
    run = bare_run(
        algorithm=jc.algorithm_name(config),
        variant=config["variant"],
        settings=json.loads(json.dumps(config)),
    )
    assert workdirs.paper_name(run) == name
    # As records without a config.json.
    assert workdirs.paper_name(dataclasses.replace(run, settings={})) == name
    # As a network that `jbias measure` measured.
    assert workdirs.method_name(run.algorithm, run.variant, run.settings) == name


@cases.each(
    ("variant", "optim", "name"),
    [
        ("", {"average": {"name": "swad"}}, "SWAD"),
        ("", {"sharpness": {"radius": 0.05, "adaptive": False}}, "SAM"),
        ("", {"sharpness": {"radius": 0.5, "adaptive": True}}, "ASAM"),
        ("", {"sharpness": {"radius": 0.0, "adaptive": True}}, "ERM"),
        ("", {"average": {"name": "uniform"}}, "ERM"),
        ("", {"average": 0.99}, "ERM"),
        ("sam+wide", {"sharpness": {"radius": 0.05}}, "SAM (wide)"),
        ("sam", {"sharpness": {"radius": 0.0}}, "ERM (sam)"),
        ("sam", {"sharpness": {"radius": 0.5, "adaptive": True}}, "ERM (sam)"),
        ("swad", {"average": 0.0}, "ERM (swad)"),
        ("eoa", {"average": {"name": "swad"}}, "ERM (eoa)"),
    ],
)
def test_a_name_follows_the_settings_of_the_optimiser(variant, optim, name):
    """A variant that the settings contradict does not name the method."""
    run = bare_run(variant=variant, settings={"optim": optim})
    assert workdirs.paper_name(run) == name


def bare_run(**fields):
    """Return a run of ERM without settings, with some fields replaced."""
    run = workdirs.Run(
        workdir="w",
        name="n",
        algorithm="erm",
        variant="",
        seeds=(0,),
        provenance={},
        finished=True,
        settings={},
    )
    return dataclasses.replace(run, **fields)


def test_equal_labels_are_refused_and_blank_labels_ignored(runs):
    configure(copy(runs, "erm", "erm_often"), algo={"name": "erm", "x": 1})
    configure(runs / "sagnet", label="ERM [x=1]")
    with pytest.raises(ValueError, match="label must not be the name of another run"):
        read_study(runs)
    configure(runs / "sagnet", label="  ")
    assert "SagNet" in read_study(runs).algorithms


@pytest.mark.slow
def test_variants_are_separate_algorithms(runs, tmp_path):
    change(runs / "sagnet", lambda rs: [r._replace(variant="wide") for r in rs])
    assert "SagNet (wide)" in run(runs, tmp_path / "out")["algorithms"]


@pytest.mark.slow
def test_missing_cells_are_named_and_left_out_of_tests(runs, tmp_path, capsys):
    change(runs / "erm", lambda rs: [r for r in rs if r.dataset != "edge"])
    tree = run(runs, tmp_path / "out")
    reason = "missing cells: no score of ERM"
    assert tree["tested"]["left_out"] == [{"name": "edge", "reason": reason}]
    assert "edge" not in tree["tested"]["datasets"]
    assert tree["friedman"]["df"] == [2, 6]
    assert f"edge ({reason})" in (tmp_path / "out" / "index.html").read_text()
    assert f"edge ({reason})" in capsys.readouterr().out
    empty = [c for c in tree["table"] if c["mean"] is None]
    assert [(c["algorithm"], c["dataset"], c["n"]) for c in empty] == [
        ("ERM", "edge", 0)
    ]


@pytest.mark.parametrize("data", ["1", "[1]", '"x"'])
def test_damaged_provenance_is_named(runs, tmp_path, capsys, data):
    path = runs / "erm" / "provenance.json"
    path.write_text(json.dumps({"data": json.loads(data)}))
    assert report.main([f"--runs={runs}/*", f"--out={tmp_path}/out"]) == 2
    assert f"{path}: data must be a JSON object of sets" in capsys.readouterr().err


@pytest.mark.slow
def test_sets_that_differ_between_runs_are_not_tested(runs, tmp_path):
    def halve(records):
        return [
            replace_value(r._replace(n=400), r.value) if r.dataset == "sketch" else r
            for r in records
        ]

    change(runs / "erm", halve)
    path = runs / "sagnet" / "provenance.json"
    path.write_text(
        path.read_text().replace('"fingerprint": "', '"fingerprint": "f', 2)
    )
    path.write_text(
        path.read_text().replace('"data": {', '"data": {"train": {"fingerprint": "b"},')
    )
    other = runs / "erm" / "provenance.json"
    other.write_text(
        other.read_text().replace(
            '"data": {', '"data": {"train": {"fingerprint": "a"},'
        )
    )
    tree = run(runs, tmp_path / "out")
    for name in ("train", "valid"):
        note = f"The data {name!r} (fingerprint) is not the same in all runs."
        assert note in tree["caveats"]
    left_out = tree["tested"]["left_out"]
    reasons = {note["name"]: note["reason"] for note in left_out}
    assert reasons == {
        "sketch": "it has different numbers of images: [400, 800]",
        "silhouette": "its fingerprint is not the same in all runs",
    }


def diverge(records):
    diverged_records = [r for r in records if r.seed == 2]
    diverged_fields = {"status": "diverged", "value": None, "count": None}
    marker = diverged_records[0]._replace(
        **diverged_fields | {"dataset": "train", "metric": "diverged", "value": 7.0}
    )
    remaining = [r for r in records if r.seed != 2]
    diverged_records = [
        r._replace(**diverged_fields) for r in diverged_records if r.dataset != "train"
    ]
    return [*remaining, *diverged_records, marker]


@pytest.mark.slow
def test_diverged_seeds_are_counted_and_named(runs, tmp_path):
    change(runs / "sagnet", diverge)
    tree = run(runs, tmp_path / "out")
    named = [(d["run"], d["seed"], d["step"]) for d in tree["diverged"]]
    assert named == [("sagnet", 2, 7)]
    assert {c["n"] for c in tree["table"] if c["algorithm"] == "SagNet"} == {2}
    assert (
        "Seed 2 of SagNet diverged at step 7 and is left out of all means."
        in tree["caveats"]
    )


@pytest.mark.slow
def test_an_algorithm_that_always_diverged_is_named(runs, tmp_path):
    change(
        runs / "sagnet",
        lambda rs: [r for r in diverge(rs) if r.seed == 2],
    )
    tree = run(runs, tmp_path / "out")
    assert tree["tested"]["algorithms"] == ["ERM", "pAdaIN"]
    assert tree["tested"]["left_out"][0]["name"] == "SagNet"
    for name in ("erm", "padain"):
        change(runs / name, lambda rs: [r for r in diverge(rs) if r.seed == 2])
    assert report.main([f"--runs={runs}/*", f"--out={tmp_path / 'none'}"]) == 2


@pytest.mark.slow
def test_conditions_are_averaged_with_a_caveat(runs, tmp_path):
    def split(records):
        for r in records:
            if r.dataset != "corrupted":
                yield r
                continue
            yield replace_value(r._replace(condition="noise"), 0.2)
            yield replace_value(r._replace(condition="blur"), 0.6)

    for name in ("erm", "padain", "sagnet"):
        change(runs / name, lambda rs: list(split(rs)))
    tree = run(runs, tmp_path / "out")
    means = [c["mean"] for c in tree["table"] if c["dataset"] == "corrupted"]
    assert means == pytest.approx([0.4] * 3)
    assert any("mean over conditions" in text for text in tree["caveats"])
    change(runs / "erm", lambda rs: [r for r in rs if r.condition != "blur"])
    tree = run(runs, tmp_path / "again")
    assert tree["tested"]["left_out"][0]["name"] == "corrupted"


@pytest.mark.slow
def test_a_single_run_is_reported(runs, tmp_path):
    assert report.main([f"--runs={runs}/erm", f"--out={tmp_path / 'out'}"]) == 0
    tree = json.loads((tmp_path / "out" / "results.json").read_text())
    assert tree["friedman"] is None
    assert "1 algorithm" in tree["basis"]
    assert len(tree["table"]) == 5
    assert (tmp_path / "out" / "figures" / "curves_accuracy.svg").exists()


@pytest.mark.slow
def test_unfinished_runs_and_lost_seeds_are_named(runs, tmp_path):
    (runs / "erm" / "done").unlink()
    (runs / "started").mkdir()
    configure(runs / "padain", seeds=[0, 1, 2, 3])
    caveats = "\n".join(run(runs, tmp_path / "out")["caveats"])
    assert "erm is not finished" in caveats
    assert "started matches the pattern but has no evaluation" in caveats
    assert "padain has no record of seed 3" in caveats


@pytest.mark.slow
def test_the_embedded_set_has_a_caveat(runs, tmp_path):
    def has_caveat():
        tree = run(runs, tmp_path / "out")
        return any("embedded set" in caveat for caveat in tree["caveats"])

    assert has_caveat()
    for name in ("erm", "padain", "sagnet"):
        change(
            runs / name, lambda rs: [r._replace(train_data="pacs/photo") for r in rs]
        )
    assert not has_caveat()


def test_damaged_files_are_refused_in_one_line(runs, tmp_path, capsys):
    path = runs / "erm" / "evals" / "300.jsonl"
    whole = path.read_text()
    path.write_text(whole[:-9])
    line = refusal(capsys, runs, tmp_path / "out")
    assert f"{path}:{whole.count(chr(10))}: " in line
    path.write_text(whole)
    (runs / "erm" / "config.json").write_text("{")
    assert "config.json: must be a JSON object" in refusal(
        capsys, runs, tmp_path / "out"
    )
    message = refusal(capsys, tmp_path / "nowhere", tmp_path / "out")
    assert "no folder matches" in message


def test_a_file_as_report_folder_is_refused(runs, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as exit_info:
        report.main([f"--runs={runs}/*", f"--out={tmp_path / 'file'}"])
    assert exit_info.value.code == 2
    assert f"--out: must be a folder, got '{tmp_path / 'file'}'" in (
        capsys.readouterr().err
    )


def test_more_epochs_than_were_evaluated_are_refused(runs, tmp_path, capsys):
    args = ["--selection=last_n", "--last=30"]
    line = refusal(capsys, runs, tmp_path / "out", *args)
    assert "needs 30 evaluations, got 3" in line


@pytest.mark.slow
def test_reports_of_the_same_runs_are_identical(runs, tmp_path):
    run(runs, tmp_path / "a")
    run(runs, tmp_path / "b")
    for path in (tmp_path / "a").rglob("*.*"):
        other = tmp_path / "b" / path.relative_to(tmp_path / "a")
        assert path.read_bytes() == other.read_bytes(), path.name


def read_study(runs, **options):
    return inputs.from_runs([f"{runs}/*"], options_lib.Options(**options))


def conditions(*names):
    """Return a function that replaces the records of "corrupted" by one per condition."""

    def edit(records):
        for r in records:
            for name in names if r.dataset == "corrupted" else [r.condition]:
                yield r._replace(condition=name)

    return lambda records: list(edit(records))


def test_all_seeds_of_an_algorithm_need_the_same_conditions(runs):
    for name in ("erm", "padain", "sagnet"):
        change(runs / name, conditions("easy", "hard"))
    assert read_study(runs).unfit == ()
    reason = (("corrupted", "it was evaluated under different conditions"),)

    def drop_condition(records):
        return [r for r in records if (r.seed, r.condition) != (1, "hard")]

    change(runs / "erm", drop_condition)
    assert read_study(runs).unfit == reason
    change(runs / "erm", lambda rs: [r for r in rs if r.condition != "hard"])
    change(copy(runs, "erm", "erm_more", seeds=3), conditions("easy", "hard"))
    assert read_study(runs, algorithms=("ERM",)).unfit == reason


def test_conditions_are_ignored_if_the_set_has_an_overall_number(runs):
    change(runs / "padain", conditions("", "easy"))
    assert read_study(runs).unfit == ()
    change(runs / "sagnet", conditions("easy"))
    assert [name for name, _ in read_study(runs).unfit] == ["corrupted"]


def test_the_compared_epoch_was_evaluated_in_all_seeds(runs):
    def delete_epoch(name, epoch):
        (runs / name / "evals" / f"{100 * epoch}.jsonl").unlink()

    def selection_rule(**options):
        return read_study(runs, selection="at_epoch", **options).rule

    delete_epoch("erm", 2)
    delete_epoch("sagnet", 3)
    assert selection_rule() == "the evaluation after epoch 1 of each seed"
    with pytest.raises(ValueError, match="epoch 2, got none for run 'erm', seed 0"):
        selection_rule(epoch=2.0)
    delete_epoch("padain", 1)
    delete_epoch("padain", 3)
    with pytest.raises(ValueError, match="no epoch was evaluated in all seeds"):
        selection_rule()
    (note,) = [text for text in read_study(runs).notes if "at_epoch" in text]
    assert note.startswith("One selection is not compared: at_epoch: ")


def test_the_oracle_selects_by_the_metric_of_the_study(runs):
    def add_losses(records):
        rows = [r for r in records if r.metric == "accuracy" and r.dataset != "valid"]
        return [*records, *(r._replace(metric="loss", value=r.epoch) for r in rows)]

    for name in ("erm", "padain", "sagnet"):
        change(runs / name, add_losses)
    options = {"metric": "loss", "larger_is_better": False, "selection": "oracle"}
    assert set(read_study(runs, **options).values["value"]) == {1.0}
    selected = read_study(runs, **options).selected
    assert set(selected["epoch"]) == {1.0}
    assert set(selected["metric"]) >= {"accuracy", "loss"}
    assert results.VALID not in set(selected["dataset"])


def test_unselected_sets_do_not_limit_the_last_evaluations(many_runs, tmp_path):
    runs = shutil.copytree(many_runs, tmp_path / "runs")

    def drop_early_sketches(records):
        return [r for r in records if r.dataset != "sketch" or r.epoch == 5.0]

    for name in ("erm", "padain", "sagnet"):
        change(runs / name, drop_early_sketches)
    assert read_study(runs, selection="last_n").rule.startswith(
        "the mean of the last 1 "
    )
    study = read_study(runs, selection="last_n", datasets=("edge",))
    assert study.rule.startswith("the mean of the last 2 ")
    assert set(study.values["dataset"]) == {"edge"}
    assert "sketch" not in set(study.selected["dataset"])
    assert results.VALID in set(study.selected["dataset"])
    with pytest.raises(ValueError, match="got 1 of data set 'sketch'"):
        read_study(runs, selection="last_n", last=2)


def test_runs_without_test_sets_are_read(runs):
    for name in ("erm", "padain", "sagnet"):
        change(runs / name, lambda rs: [r for r in rs if r.dataset == "valid"])
    assert read_study(runs).datasets == ()
    assert read_study(runs, datasets=("valid",), selection="last_n").datasets == (
        "valid",
    )


def test_constant_sets_are_ranked_with_ties_and_have_a_note(runs):
    def set_to_zero(records):
        return [replace_value(r, 0.0) if r.dataset == "edge" else r for r in records]

    for name in ("erm", "padain", "sagnet"):
        change(runs / name, set_to_zero)
    study = read_study(runs)
    assert study.unfit == ()
    analysed = analysis.analyse(study)
    assert set(analysed.ranks.loc["edge"]) == {2.0}
    (note,) = score_notes.of_constants(study.values)
    assert "data set edge (0)" in note


def test_a_recorded_mean_of_data_sets_is_named(runs):
    def add_mean(records):
        records_by_step = {}
        for r in records:
            if r.dataset in ("edge", "sketch") and r.metric == "accuracy":
                records_by_step.setdefault((r.seed, r.step), []).append(r)
        means = [
            both[0]._replace(
                dataset="mean", value=sum(r.value for r in both) / 2, count=None, n=None
            )
            for both in records_by_step.values()
        ]
        return [*records, *means]

    for name in ("erm", "padain", "sagnet"):
        change(runs / name, add_mean)
    (text,) = [note.text for note in read_study(runs).derived]
    assert text.startswith("mean is the mean of edge and sketch in every run")


def test_the_set_of_selection_cannot_be_a_test_set(runs, tmp_path, capsys):
    args = ["--selection=best_on", "--best-on=edge", "--datasets=edge,sketch"]
    line = refusal(capsys, runs, tmp_path / "out", *args)
    assert "--datasets: edge is the data set of --best-on and so no test set" in line


def test_runs_with_unknown_settings_disable_the_strict_setting(runs):
    shapes = {"data": "shapes", "correlation": 0.9}
    tests = {"corrupted": {**shapes, "split": "corrupted"}}
    for name in ("erm", "padain"):
        noise = [{"name": "gaussian_noise"}]
        configure(runs / name, inputs=noise, tests=tests, train=shapes)
    configure(runs / "sagnet", tests=tests, train=shapes)
    assert {d for _, d in read_study(runs).trained} == {"corrupted"}
    (runs / "sagnet" / "config.json").unlink()
    study = read_study(runs)
    assert study.trained == set()
    assert any(
        "sagnet" in note and "training data are unknown" in note for note in study.notes
    )


SPENT = {"opening": 0.0, "compiling": 0.0, "stepping": 3600.0, "evaluating": 1800.0}


def spend(workdir, *devices):
    energy = costs.Energy(intensity=0.4)
    starts = [
        costs.of_start(str(i), SPENT, costs.Devices(kind, count), energy, 7)
        for i, (kind, count) in enumerate(devices)
    ]
    recorded = {"starts": starts, "total": costs.total(starts)}
    (workdir / "costs.json").write_text(json.dumps(recorded))


def test_each_run_with_costs_has_a_row(tmp_path):
    conftest.make_runs(tmp_path, seeds=(0,), epochs=1)
    spend(tmp_path / "erm", ("NVIDIA H200", 2), ("NVIDIA H200", 1))
    spend(tmp_path / "padain", ("TPU v9", 1))
    study = types.SimpleNamespace(runs=workdirs.load(results.read(f"{tmp_path}/*")))
    table = run_provenance_section.costs_table(study)
    assert len(table.rows) == 2, "a run without costs has no row"
    known, unknown = (dict(zip(table.head, row)) for row in table.rows)
    cells = [known[key] for key in ("device hours", "stepping", "kWh", "kg CO2e")]
    assert cells == ["4.5", "3", "3.15", "1.26"]
    for words in ("2 × NVIDIA H200, 700 W each", "1 × NVIDIA H200"):
        assert words in known["assumed"]
    assert unknown["kWh"] == unknown["kg CO2e"] == "–"
    assert "power not known" in unknown["assumed"]
    assert run_provenance_section.costs_table(types.SimpleNamespace(runs=())) is None


def test_metrics_whose_squares_overflow_are_refused_with_their_cell(runs):
    def huge_scores(records):
        return [
            r._replace(metric="score", value=3e307, count=None)
            for r in records
            if r.dataset == "edge"
        ]

    change(runs / "sagnet", lambda records: [*records, *huge_scores(records)])
    with pytest.raises(ValueError, match=r"--runs: .* for SagNet on edge; correct it"):
        read_study(runs, metric="score")
