"""Measuring networks by a suite: the numbers, what stands after a stop, what is refused."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from configs.suites import biases
from jbias import data, evaluate, measuring, results, subjects, suite, train
from jbias.evals import decisions
from tests import runs

SUITE = """
import ml_collections

def get_config(text=""):
    c = ml_collections.ConfigDict()
    c.size = 32
    c.run = dict(batch=100)
    common = dict(data="shapes", correlation=0.99)
    c.sets = dict(
        edge=dict(split="edge", n=48, **common),
        cue_conflict=dict(split="cue_conflict", n=240, **common),
        photos=dict(data="geirhos", split="edge", root="nowhere"),
    )
    both = ("edge", "cue_conflict")
    c.measures = dict(
        accuracy=dict(probe="plain", sets=(*both, "photos")),
        few=dict(probe="plain", sets=("edge",), images=16),
        classes=dict(sets=("edge",)),
    )
    return c
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "erm"
    train.run(
        runs.small(epochs=2.0, eval_every="1 epoch", save_every="1 epoch"), workdir
    )
    return workdir


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("suites") / "mine.py"
    path.write_text(SUITE)
    return path


def measure(*args, out):
    return evaluate.main([*map(str, args), f"--out={out}"])


@pytest.fixture(scope="module")
def measured(run, file, tmp_path_factory):
    out = tmp_path_factory.mktemp("measured")
    code = measure(f"--checkpoint={run}", f"--suite={file}", "--step=latest", out=out)
    assert code == 0
    return out


def test_numbers_are_those_of_the_run_itself(run, measured):
    keys = ["run", "stage", "seed", "step", "dataset", "condition", "metric"]
    own = results.read(run).merge(
        results.read(f"{measured}/*"), on=keys, suffixes=("", "_measured")
    )
    own = own[own["metric"].isin(["accuracy", "shape_bias"])]
    assert set(own["dataset"]) == {"edge", "cue_conflict"}
    assert set(own["seed"]) == {0, 1}
    assert (own["count"] == own["count_measured"]).all()
    assert (own["epoch"] == own["epoch_measured"]).all()


def test_numbers_are_functions_of_the_decisions_kept(measured):
    folder = next(measured.glob("*-seed0-*"))
    found = decisions.read_conditions(
        folder / "decisions/cue_conflict/accuracy.parquet"
    )
    decided = found[""]
    frame = results.read(folder)
    count = frame[
        (frame["dataset"] == "cue_conflict") & (frame["metric"] == "accuracy")
    ]
    right = decided.prediction == decided.columns["label"]
    assert right.sum() == count["count"].item()
    assert (
        decided.columns["likelihood"][right] == decided.columns["confidence"][right]
    ).all()
    assert (
        (decided.columns["confidence"] >= 1 / 16) & (decided.columns["confidence"] <= 1)
    ).all()


def test_some_images_are_evenly_spaced(measured):
    few = results.read(f"{measured}/*")
    few = few[few["dataset"] == "edge"]
    assert set(few["n"][few["condition"] == "few"]) == {16}
    assert set(few["n"][few["condition"] == ""]) == {48}


def test_classes_have_their_names(measured):
    """Those that the network decides among: in records, and beside the decisions."""
    names = data.load("shapes", "edge", n=48).classes
    found = results.read(f"{measured}/*")
    each = found[found["metric"] == "class_accuracy"]
    assert set(each["condition"]) == {f"classes/class={name}" for name in names}
    told = next(measured.glob("*-seed0-*")) / "measures/classes@edge.json"
    assert tuple(json.loads(told.read_text())["classes"]) == names


def test_a_set_that_is_absent_is_told_and_the_rest_measured(
    measured, capsys, run, file
):
    measure(f"--checkpoint={run}", f"--suite={file}", "--step=latest", out=measured)
    err = capsys.readouterr().err
    assert "not here, so not measured: suite.sets.photos" in err
    assert "'nowhere'" in err
    assert "4 measures are there already" in err


def test_goes_on_where_it_was_stopped(run, file, measured, tmp_path):
    """Only what is missing is measured again, and comes to the same."""
    out = tmp_path / "again"
    shutil.copytree(measured, out)
    folder = next(out.glob("*-seed0-*"))
    lost, kept = folder / "evals/accuracy@edge.jsonl", folder / "evals/few@edge.jsonl"
    before, stamp = lost.read_text(), kept.stat().st_mtime_ns
    lost.unlink()
    assert (
        measure(f"--checkpoint={run}", f"--suite={file}", "--step=latest", out=out) == 0
    )
    assert lost.read_text() == before
    assert kept.stat().st_mtime_ns == stamp


def test_other_options_under_the_same_name_are_refused(run, file, measured, capsys):
    args = (f"--checkpoint={run}", f"--suite={file}", "--step=latest")
    assert measure(*args, "--suite.measures.few.images=8", out=measured) == 2
    err = capsys.readouterr().err
    assert "few@edge was measured otherwise" in err
    assert "measure.images: 16 != 8" in err


def test_other_weights_of_the_same_name_are_refused(run, file, measured, tmp_path):
    out = tmp_path / "other"
    shutil.copytree(measured, out)
    held = next(out.glob("*-seed0-*")) / "config.json"
    held.write_text(
        held.read_text().replace(json.loads(held.read_text())["run"]["digest"], "0")
    )
    assert (
        measure(f"--checkpoint={run}", f"--suite={file}", "--step=latest", out=out) == 1
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("--suite.measures.few.probe='plane'", "did you mean 'plain'?"),
        ("--suite.measures.few.imags=3", "unknown option 'imags'"),
        ("--suite.run.bach=3", "did you mean 'batch'?"),
        ("--suite.sets.edge.split='egde'", "did you mean 'edge'?"),
        ("--suite.measures.few.sets=('edgy',)", "did you mean 'edge'?"),
        ("--only=fex", "did you mean 'few'?"),
        ("--suite.nothing.here=3", "no such entry"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_measured(
    run, file, tmp_path, capsys, change, said
):
    out = tmp_path / "none"
    assert measure(f"--checkpoint={run}", f"--suite={file}", change, out=out) == 2
    err = capsys.readouterr().err.strip().splitlines()[-1]
    assert err.startswith("jbias: ") and said in err
    assert not out.exists()


def test_attacks_on_classes_that_several_answer_for_are_refused(
    run, file, tmp_path, capsys
):
    """Nobody would know which of the network's classes to lead away from."""
    source = data.load("shapes", "edge", n=48)
    first, second, *_ = source.classes
    lines = [f"{name},{first if name == second else name}" for name in source.classes]
    mapping = tmp_path / "mapping.csv"
    mapping.write_text("\n".join(["train_class,test_class", *lines]))
    text = file.read_text()
    text = text.replace(
        'split="edge", n=48', f'split="edge", n=48, mapping="{mapping}"'
    )
    text = text.replace("few=dict(", 'pgd=dict(sets=("edge",), steps=1), few=dict(')
    (tmp_path / "suite.py").write_text(text)
    args = f"--suite={tmp_path / 'suite.py'}", "--step=latest", "--only=pgd,few"
    assert measure(f"--checkpoint={run}", *args, out=tmp_path / "out") == 1
    err = capsys.readouterr().err
    assert "pgd@edge: attacks must know each image's class" in err
    assert "3 of 45 have several" in err
    assert set(results.read(f"{tmp_path}/out/*")["condition"]) == {"few"}


def test_a_file_that_is_no_network_is_named_and_the_run_measured(
    run, file, tmp_path, capsys
):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "broken.safetensors").write_bytes(b"\xff" * 100)
    shutil.copytree(run, folder / "erm")
    out = tmp_path / "out"
    assert measure(f"--checkpoint={folder}", f"--suite={file}", out=out) == 1
    assert "not measured" in (err := capsys.readouterr().err)
    assert "broken.safetensors" in err
    assert len(list(out.glob("*/done"))) == 2


def test_following_measures_each_step_once(run, file, tmp_path):
    out = tmp_path / "out"
    assert measure(f"--follow={run}", "--once", f"--suite={file}", out=out) == 0
    steps = set(results.read(f"{out}/*")["step"])
    assert steps == {int(p.name) for p in (run / "checkpoints").iterdir()}


def test_the_best_step_is_the_first_best_by_validation(run):
    frame = results.read(run)
    valid = frame[(frame["dataset"] == "valid") & (frame["metric"] == "accuracy")]
    for subject in subjects.from_run(str(run)):
        mine = valid[valid["seed"] == subject.fields["seed"]].sort_values("step")
        assert subject.fields["step"] == mine.loc[mine["value"].idxmax(), "step"]


def test_the_suite_of_biases_is_there_without_any_data():
    """All its sets on the embedded data, and options that its probes take."""
    opened = suite.open(biases.get_config("smoke"), lambda line: None)
    assert not opened.missing


def test_people_are_compared_by_degree_of_distortion(tmp_path):
    """The 17 sets are asked for; of one by degrees, degrees survive the kept decisions."""
    config = biases.get_config(f"data=imagenet,root=no,others={tmp_path},humans=people")
    config.measures = dict(human=config.measures.human.to_dict())
    assert len(config.measures.human.sets) == 14
    folder = tmp_path / "contrast/dnn/session-1"
    folder.mkdir(parents=True)
    rows = ["subj,session,trial,rt,object_response,category,condition,imagename"]
    for i, degree in enumerate(("c100", "c10", "c10", "c10")):
        name = f"000{i}_cop_dnn_{degree}_cat_10_n02123045_{i}.png"
        Image.new("RGB", (224, 224)).save(folder / name)
        answer = "cat" if i % 2 else "dog"
        rows.append(f"p1,1,{i},0.5,{answer},cat,{degree},{name.replace('dnn', 'p01')}")
    people = tmp_path / "people/contrast"
    people.mkdir(parents=True)
    (people / "contrast_subject-01_session_1.csv").write_text("\n".join(rows))
    config.measures.human.root = str(tmp_path / "people")
    told = []
    opened = suite.open(config, told.append)
    assert sum("not here" in line for line in told) == 14  # ImageNet, and 13 of these.
    source = opened.sources["contrast"]
    label = source.columns["label"]
    decided = decisions.Decisions(
        np.where(np.arange(4) < 3, label, 0), dict(source.columns, index=np.arange(4))
    )
    path = tmp_path / "human.parquet"
    decisions.write_conditions(path, {"": decided})
    back = decisions.read_conditions(path)[""]
    (measure,) = opened.measures
    for one in (decided, back):
        numbers = opened.made(measure, "contrast").numbers({"": one})
        by = {(n.metric, n.condition): n for n in numbers}
        assert by["ood_accuracy", ""][1:4] == (2 / 3, 2, 3)  # c100 does not count.
        assert by["human_accuracy", "c10"].value == 2 / 3
        assert ("error_consistency", "c100") in by
    np.testing.assert_array_equal(
        back.columns["condition"], source.columns["condition"]
    )


def test_suites_are_changed_by_key(file):
    c = measuring.load(str(file), ["--suite.run.batch=7", "--suite.sets.edge.n=32"])
    assert (c.run.batch, c.sets.edge.n) == (7, 32)
