"""Measuring networks by a suite: the numbers, resumption after a stop, and errors."""

import dataclasses
import itertools
import json
import pathlib
import re
import shutil
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import errors
from PIL import Image

from jbias import config as jc
from jbias import data, evaluate, models, train
from jbias.configs.suites import biases
from jbias.data import class_maps, loader, sources, tables
from jbias.evals import (
    decision_files,
    inference,
    networks,
    plain,
    registry,
    runner,
    set_batches,
    suites,
)
from jbias.measures import counting, cue_conflict, decisions
from jbias.models import class_names, state_dicts
from jbias.report import network_records
from jbias.report.pages.distortion import distortion_groups, distortion_page
from jbias.runs import results, workdirs
from jbias.runtime import mesh
from jbias.stimuli import mixed_images, occlusion
from tests import cases, smoke_runs
from tests.report import measure_files

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


# A zoo with one published file, whose images are not normalized.
ZOO = """
from jbias.configs import zoo

ENTRY = zoo.Entry("small.one", "Small", "baseline", (), "cnn", zoo.NONE)

def find(path):
    return ENTRY if str(path).endswith("published.safetensors") else None

def is_head(path):
    return False
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "erm"
    train.run(
        smoke_runs.small(epochs=2.0, eval_every="1 epoch", save_every="1 epoch"),
        workdir,
    )
    return workdir


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("suites") / "mine.py"
    path.write_text(SUITE)
    return path


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Return arguments: a file of sixteen classes, their names, and a zoo that lists it."""
    folder = tmp_path_factory.mktemp("published")
    net = models.MODELS["cnn"](16, width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    path = folder / "published.safetensors"
    models.save_safetensors(path, net, variables, names="own")
    names = data.load("shapes", "edge", n=48).classes
    (folder / "names.txt").write_text("\n".join(names))
    (folder / "zoo.py").write_text(ZOO)
    return (
        f"--checkpoint={path}",
        f"--classes={folder / 'names.txt'}",
        f"--zoo={folder / 'zoo.py'}",
    )


def measure(*args, out):
    return evaluate.main([*map(str, args), f"--out={out}"])


@pytest.fixture(scope="module")
def measured(run, file, tmp_path_factory):
    out = tmp_path_factory.mktemp("measured")
    code = measure(f"--checkpoint={run}", f"--suite={file}", "--step=latest", out=out)
    assert code == 0
    return out


@pytest.mark.slow
def test_a_run_that_has_not_ended_is_reported(run, tmp_path):
    copy, lines = tmp_path / "half", []
    shutil.copytree(run, copy)
    args = evaluate.parser().parse_args([f"--checkpoint={copy}"])

    def count_networks():
        opened = networks.open_networks(
            [str(copy)], args, lines.append, pytest.fail, "latest"
        )
        return len(list(opened))

    assert count_networks() == 2
    assert lines == []
    (copy / "done").unlink()
    assert count_networks() == 2
    assert lines == [f"{copy}: has not ended; its checkpoints so far are measured"]


@pytest.mark.slow
def test_numbers_equal_those_of_the_run(run, measured):
    keys = ["run", "stage", "seed", "step", "dataset", "condition", "metric"]
    records = results.read(run).merge(
        results.read(f"{measured}/*"), on=keys, suffixes=("", "_measured")
    )
    records = records[records["metric"].isin(["accuracy", "shape_bias"])]
    assert set(records["dataset"]) == {"edge", "cue_conflict"}
    assert set(records["seed"]) == {0, 1}
    assert (records["count"] == records["count_measured"]).all()
    assert (records["epoch"] == records["epoch_measured"]).all()


def test_numbers_are_functions_of_the_decisions_kept(measured):
    folder = next(measured.glob("*-seed0-*"))
    decisions_by_condition = decision_files.read_conditions(
        folder / "decisions/cue_conflict/accuracy.parquet"
    )
    kept_decisions = decisions_by_condition[""]
    records = results.read(folder)
    accuracy_record = records[
        (records["dataset"] == "cue_conflict") & (records["metric"] == "accuracy")
    ]
    is_right = kept_decisions.prediction == kept_decisions.columns["label"]
    assert is_right.sum() == accuracy_record["count"].item()
    assert (
        kept_decisions.columns["likelihood"][is_right]
        == kept_decisions.columns["confidence"][is_right]
    ).all()
    assert (
        (kept_decisions.columns["confidence"] >= 1 / 16)
        & (kept_decisions.columns["confidence"] <= 1)
    ).all()


def test_some_images_are_evenly_spaced(measured):
    edge_records = results.read(f"{measured}/*")
    edge_records = edge_records[edge_records["dataset"] == "edge"]
    assert set(edge_records["n"][edge_records["condition"] == "few"]) == {16}
    assert set(edge_records["n"][edge_records["condition"] == ""]) == {48}


def test_classes_have_their_names(measured):
    """Records and descriptions have the names of the network's decision classes."""
    names = data.load("shapes", "edge", n=48).classes
    records = results.read(f"{measured}/*")
    per_class = records[records["metric"] == "class_accuracy"]
    assert set(per_class["condition"]) == {f"classes/class={name}" for name in names}
    description = next(measured.glob("*-seed0-*")) / "measures/classes@edge.json"
    assert tuple(json.loads(description.read_text())["classes"]) == names


def test_an_absent_set_is_named_and_the_other_sets_are_measured(
    measured, capsys, run, file
):
    measure(f"--checkpoint={run}", f"--suite={file}", "--step=latest", out=measured)
    err = capsys.readouterr().err
    assert "not here, so not measured: suite.sets.photos" in err
    assert "'nowhere'" in err
    assert "4 measures are there already" in err


def test_a_resumed_evaluation_measures_only_missing_measures(
    run, file, measured, tmp_path, capsys
):
    """A second call measures only what is missing, and gets the same records."""
    out = tmp_path / "again"
    shutil.copytree(measured, out)
    folder = next(out.glob("*-seed0-*"))
    removed_file = folder / "evals/accuracy@edge.jsonl"
    kept_file = folder / "evals/few@edge.jsonl"
    removed_text, kept_time = removed_file.read_text(), kept_file.stat().st_mtime_ns
    removed_file.unlink()
    assert (
        measure(f"--checkpoint={run}", f"--suite={file}", "--step=latest", out=out) == 0
    )
    assert removed_file.read_text() == removed_text
    assert kept_file.stat().st_mtime_ns == kept_time
    assert "(48 answers, " in capsys.readouterr().err


@pytest.mark.slow
def test_other_options_under_the_same_name_are_refused(run, file, measured, capsys):
    args = (f"--checkpoint={run}", f"--suite={file}", "--step=latest")
    assert measure(*args, "--suite.measures.few.images=8", out=measured) == 2
    err = capsys.readouterr().err
    assert err.count("few@edge was measured with other settings") == 2  # Once a seed.
    assert "measure.images: 16 != 8" in err


@pytest.mark.slow
def test_an_option_at_its_default_equals_one_left_out(
    file, published, tmp_path, capsys
):
    """Descriptions are equal with and without an option at its default, also older ones."""

    args = (*published, f"--suite={file}", "--only=few")

    def measure_few(**options):
        measure_config = dict(probe="calibration", sets=("edge",), images=16, **options)
        change = f"--suite.measures.few={measure_config}"
        return measure(*args, change, out=tmp_path)

    path = tmp_path / "small.one/measures/few@edge.json"
    assert measure_few(bins=15) == 0
    description = json.loads(path.read_text())
    assert description["measure"]["options"] == {}
    for options_described in ({}, {"bins": 15}):
        description["measure"]["options"] = options_described
        path.write_text(json.dumps(description))
        for options_given in ({}, {"bins": 15}):
            assert measure_few(**options_given) == 0
            assert "1 measure is there already" in capsys.readouterr().err
        assert measure_few(bins=10) == 2


@cases.each("is_late", [False, True])
def test_other_weights_of_the_same_name_are_refused(
    run, file, measured, tmp_path, monkeypatch, is_late
):
    """Results of other weights are refused, also if another process has just written them."""
    out = tmp_path / "other"
    shutil.copytree(measured, out)
    config_file = next(out.glob("*-seed0-*")) / "config.json"
    config_text = config_file.read_text()
    other_config_text = config_text.replace(
        json.loads(config_text)["run"]["digest"], "0"
    )
    claim = workdirs.claim_evaluation

    def claim_late(folder):
        if folder == config_file.parent:
            config_file.write_text(other_config_text)
        return claim(folder)

    config_file.write_text(other_config_text)
    if is_late:
        config_file.unlink()
        monkeypatch.setattr(workdirs, "claim_evaluation", claim_late)
    args = f"--checkpoint={run}", f"--suite={file}", "--step=latest"
    assert measure(*args, out=out) == 1
    assert config_file.read_text() == other_config_text


def test_another_size_under_the_same_name_is_refused(run, file, measured, capsys):
    args = (f"--checkpoint={run}", f"--suite={file}", "--step=latest")
    assert measure(*args, "--suite.size=40", out=measured) == 2
    assert "drawn at 32 pixels' != 'drawn at 40 pixels'" in capsys.readouterr().err


@pytest.mark.slow
def test_another_mapping_of_the_same_path_is_refused(run, file, measured, tmp_path):
    classes = data.load("shapes", "edge", n=48).classes
    mapping = tmp_path / "mapping.csv"
    out, args = tmp_path / "out", (f"--checkpoint={run}", "--step=latest")
    text = file.read_text().replace(
        '"edge", n=48', f'"edge", n=48, mapping="{mapping}"'
    )
    (tmp_path / "suite.py").write_text(text)
    codes = []
    for order in (classes, classes, classes[::-1]):
        pairs = [
            f"{train_class},{test_class}"
            for train_class, test_class in zip(classes, order, strict=True)
        ]
        mapping.write_text("\n".join(["train_class,test_class", *pairs]))
        suite_file = f"--suite={tmp_path / 'suite.py'}"
        codes.append(measure(*args, suite_file, "--only=few", out=out))
    assert codes == [0, 0, 2]


@pytest.mark.slow
def test_the_same_file_of_other_classes_is_another_network(file, tmp_path, capsys):
    net = models.MODELS["resnet18"](16, width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    path, out = tmp_path / "mine.safetensors", tmp_path / "out"
    models.save_safetensors(path, net, variables)
    names, codes = data.load("shapes", "edge", n=48).classes, []
    for class_order in (names, names, names[::-1]):
        (tmp_path / "classes.txt").write_text("\n".join(class_order))
        args = f"--classes={tmp_path / 'classes.txt'}", "--only=few", f"--suite={file}"
        codes.append(measure(f"--checkpoint={path}", *args, out=out))
    assert codes == [0, 0, 2]
    assert "holds measures of another network" in capsys.readouterr().err


def test_a_class_that_is_named_twice_is_refused(tmp_path):
    """Otherwise only one of the two outputs would count for images of the class."""
    path = tmp_path / "names.txt"
    path.write_text("crane\ncat\n\ncrane \ndog\n")
    with pytest.raises(ValueError, match=r"once, got 'crane' in lines 1, 4 of .*names"):
        networks.list_classes(str(path))
    path.write_text("a\nb\na\nb")
    with pytest.raises(
        ValueError, match=r"'a' in lines 1, 3 of .* \(1 more are\); tell"
    ):
        networks.list_classes(str(path))
    path.write_text("crane\ncat\n\nCrane\n")
    assert networks.list_classes(str(path)) == ("crane", "cat", "Crane")


def test_aggregation_rules_of_a_measure_and_of_its_set_exclude_each_other(
    run, file, tmp_path, capsys
):
    """Otherwise the rule of the set would give all results, under the names of others."""
    text = file.read_text().replace(
        '"edge", n=48', '"edge", n=48, aggregate="max_prob"'
    )
    text = text.replace("images=16", 'images=16, aggregates=("mean_prob", "sum_prob")')
    (tmp_path / "suite.py").write_text(text)
    args = f"--checkpoint={run}", f"--suite={tmp_path / 'suite.py'}"
    assert measure(*args, out=tmp_path / "out") == 2
    assert "suite.sets.edge has an aggregate of its own" in capsys.readouterr().err


@cases.each(
    ("change", "message"),
    [
        ("--suite.measures.few.probe='plane'", "did you mean 'plain'?"),
        ("--suite.measures.few.imags=3", "unknown option 'imags'"),
        ("--suite.run.bach=3", "did you mean 'batch'?"),
        ("--suite.measures.few.aggregates=('mean_porb',)", "did you mean 'mean_prob'?"),
        ("--suite.measures.few.aggregates='mean_prob'", "must be one or more of"),
        ("--suite.sets.edge.split='egde'", "did you mean 'edge'?"),
        ("--suite.measures.few.sets=('edgy',)", "did you mean 'edge'?"),
        ("--suite.measures.few={'probe': 'plain'}", "few.sets: must name sets of"),
        ("--only=fex", "did you mean 'few'?"),
        ("--suite.nothing.here=3", "no such entry"),
        ("--suite.size.here=3", "size has no entries, it is 32"),
        ("--suite.size='large'", "--suite.size: "),
        ("--model=resnet5", "--model: unknown 'resnet5'; did you mean 'resnet50'?"),
        ("--classes=none.txt", "--classes: must be imagenet, geirhos16"),
        ("--checkpoint=none.pth", "nothing is at 'none.pth'"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_measured(
    run, file, tmp_path, capsys, change, message
):
    out = tmp_path / "none"
    assert measure(f"--checkpoint={run}", f"--suite={file}", change, out=out) == 2
    err = capsys.readouterr().err.strip().splitlines()[-1]
    assert err.startswith("jbias: ") and message in err
    assert not out.exists()


def test_wrong_arguments_are_refused_in_one_line_before_sets_are_opened(
    run, file, tmp_path, capsys
):
    (tmp_path / "taken").touch()
    for change in (
        "--model=resnet5",
        "--classes=none.txt",
        "--checkpoint=none.pth",
        "--zoo=none.py",
        "--step=lats",
        "--step=77",
        "--suite.run.step=first",
        "--suite.measures.few.imags=3",
        "--suite.measures.classes.names=()",
        "--suite.measures.accuracy={'probe': 'pgd', 'sets': ('edge',), 'eps': -1}",
        "--suite.measures.accuracy={'probe': 'human', 'sets': ('edge',), 'folder': 1}",
        "--suite.measures.accuracy={'probe': 'occlusion', 'sets': ('edge',), 'fill': 'blak'}",
        "--suite.measures.accuracy={'probe': 'decoding', 'sets': ('edge',), 'fold': 2}",
    ):
        args = f"--checkpoint={run}", f"--suite={file}", change
        assert measure(*args, out=tmp_path / "out") == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    for out in (tmp_path / "taken", tmp_path / "taken" / "out"):
        assert measure(f"--checkpoint={run}", f"--suite={file}", out=out) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"jbias: --out: must be a folder, got '{out}', ")
        assert line.endswith("; name another")


def test_a_suite_without_run_options_is_measured(run, file, tmp_path):
    (tmp_path / "suite.py").write_text(re.sub(r"\n +c.run = .*", "", file.read_text()))
    args = f"--checkpoint={run}", f"--suite={tmp_path / 'suite.py'}", "--only=few"
    assert measure(*args, "--devices=1", out=tmp_path / "out") == 0
    provenance = json.loads(next(tmp_path.glob("out/*/provenance.json")).read_text())
    assert provenance["suite"]["run"] == {"devices": 1}


@cases.each("argument", ["--model=cnn", "--classes=imagenet", "--mean=0.5", "--std=1"])
def test_options_of_files_are_refused_if_all_networks_are_runs(
    run, file, tmp_path, capsys, argument
):
    args = f"--checkpoint={run}", f"--suite={file}", argument
    assert measure(*args, out=tmp_path / "out") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"jbias: {argument.split('=')[0]}: has no effect on runs")


@pytest.mark.slow
def test_a_step_is_refused_if_all_networks_are_files(file, published, tmp_path, capsys):
    args = *published, f"--suite={file}", "--step=best"
    assert measure(*args, out=tmp_path / "out") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "jbias: --step: has no effect on files; leave it out"


@pytest.mark.slow
def test_a_file_at_the_path_of_a_networks_folder_is_named(run, file, tmp_path, capsys):
    args = f"--checkpoint={run}", f"--suite={file}", "--step=latest", "--only=few"
    (network,) = networks.from_run(str(run), step="latest", seeds=(1,))
    (tmp_path / network.name).touch()
    assert measure(*args, out=tmp_path) == 1
    err = capsys.readouterr().err
    message = (
        f"not measured: {network.name}: {tmp_path / network.name}: must be a folder"
    )
    assert message in err and "Errno" not in err
    assert err.splitlines()[-1].endswith(f"; 1 not ({network.name})")


@pytest.mark.slow
@cases.each("model_argument", [(), ("--model=cnn",)])
def test_the_zoos_facts_are_recorded_with_and_without_the_model_argument(
    file, published, tmp_path, model_argument
):
    args = *published, f"--suite={file}", "--only=few", *model_argument
    assert measure(*args, out=tmp_path) == 0
    config = json.loads((tmp_path / "small.one" / "config.json").read_text())
    assert config["category"] == "baseline" and config["algorithm"] == "Small"
    assert config["run"]["mean"] == [0, 0, 0] and config["run"]["std"] == [1, 1, 1]


@pytest.mark.slow
@cases.each(
    ("constant_arguments", "message", "expected_mean"),
    [
        ((), "mean 0, std 1: those of small.one; --mean and --std change it", 0),
        (("--zoo=",), "mean 0.5, std 0.5: the file's metadata; --mean", 0.5),
        (("--mean=.4,.5,.6", "--std=1"), "mean 0.4 0.5 0.6 (--mean), std 1 (--s", 0.4),
        (("--mean=.3",), "mean 0.3 (--mean), std 1 (those of small.one)", 0.3),
    ],
)
def test_normalization_constants_are_printed_and_can_be_given(
    file, published, tmp_path, capsys, constant_arguments, message, expected_mean
):
    args = *published, f"--suite={file}", "--only=few", *constant_arguments
    assert measure(*args, out=tmp_path) == 0
    assert capsys.readouterr().err.count(f": {message}") == 1
    (config,) = tmp_path.glob("*/config.json")
    assert json.loads(config.read_text())["run"]["mean"][0] == expected_mean


@pytest.mark.slow
def test_hidden_pixels_are_black_before_normalization(published):
    """The shown pixels are the same for constants from the file and from arguments."""
    rng = np.random.default_rng(0)
    images = rng.integers(1, 256, (4, 32, 32, 3), np.uint8)  # No pixel is black.
    batch = inference.Batch(jnp.asarray(images), *[jnp.arange(4)] * 3, count=4)
    path, names = (argument.partition("=")[2] for argument in published[:2])
    probe = occlusion.make(
        fill="black",
        site="stage1",
        masks=("rectangle", "grad_cam"),
        orders=("most",),
        fractions=(0.3,),
    )
    constants_of_file = dict(mean=(0.5,) * 3, std=(0.5,) * 3)
    constants_of_arguments = dict(mean=(0.4, 0.5, 0.6), std=(1.0, 1.0, 0.5))
    rectangle_stimuli = []
    for arguments in ({}, constants_of_arguments):
        network = networks.from_file(path, classes=names, **arguments)
        constants = arguments or constants_of_file
        mean, std = constants["mean"], constants["std"]
        assert (network.net.mean, network.net.std) == (mean, std)
        bound_network = network.bind(jnp.float32, mesh.make(1))
        net_without_constants = network.net.clone(mean=(0.0,) * 3, std=(1.0,) * 3)
        for condition in ("rectangle 0.3", "grad_cam most 0.3"):
            stimuli = np.asarray(
                inference.make_stimuli(bound_network, probe, batch, condition)
            )
            hidden = (stimuli == 0).all(-1)
            assert 0.2 < hidden.mean() < 0.33
            expected = np.where(hidden[..., None], 0, images.astype(np.float32) / 255)
            np.testing.assert_allclose(stimuli, expected, rtol=0, atol=1e-7)
            # The network's first layer gets -mean / std for black.
            normalized = (stimuli - np.float32(mean)) / np.float32(std)
            variables = bound_network.variables
            np.testing.assert_allclose(
                jax.jit(bound_network.apply)(variables, stimuli),
                jax.jit(net_without_constants.apply)(variables, normalized),
                rtol=1e-4,
                atol=1e-5,
            )
            if condition == "rectangle 0.3":
                rectangle_stimuli.append(stimuli)
    first, second = rectangle_stimuli
    np.testing.assert_array_equal(first, second)


@cases.each("argument", ["--mean=1,2", "--mean=x", "--std=0", "--std=1,nan,1"])
def test_invalid_constants_are_refused(argument, capsys):
    with pytest.raises(SystemExit):
        evaluate.main([argument, "--checkpoint=x", "--suite=y"])
    assert "numbers such as 0.485,0.456,0.406, or one, got" in capsys.readouterr().err


@cases.each("width", [4, 8])
def test_another_file_with_a_published_name_does_not_get_the_zoos_facts(
    file, published, tmp_path, capsys, width
):
    """A zoo entry can demand more than the name: here a width; the network's is 4."""
    zoo_text = ZOO.replace("NONE)", f"NONE, needs={{'width': {width}}})")
    (tmp_path / "zoo.py").write_text(zoo_text)
    args = *published, f"--zoo={tmp_path / 'zoo.py'}", f"--suite={file}", "--only=few"
    assert measure(*args, out=tmp_path / "out") == 0
    (folder,) = (tmp_path / "out").iterdir()
    config = json.loads((folder / "config.json").read_text())
    name, category, mean = ("small.one", "baseline", 0)
    if width == 8:
        name, category, mean = ("published", "published", 0.5)
    assert (folder.name, config["category"]) == (name, category)
    assert config["run"]["mean"] == [mean] * 3
    line = (
        "has the name of small.one and is another file; that one has width 8, got 4; "
    )
    assert (line in capsys.readouterr().err) == (width == 8)


def test_another_model_than_the_zoos_is_refused(file, published, tmp_path, capsys):
    args = *published, f"--suite={file}", "--only=few", "--model=resnet18"
    assert measure(*args, out=tmp_path) == 2
    err = capsys.readouterr().err
    assert "the name of small.one, which is cnn, got 'resnet18'; leave --model" in err
    assert measure(*args, "--zoo=", out=tmp_path) == 2
    assert "holds the model 'cnn', not 'resnet18'" in capsys.readouterr().err


@cases.each(
    ("arguments", "message"),
    [
        ((), "give one of --checkpoint, --predict, --decisions and --follow"),
        (
            ("--checkpoint=x", "--follow=y"),
            "give one of --checkpoint, --predict, --decisions and --follow",
        ),
        (("--checkpoint=x",), "--suite is missing"),
        (("--follow=y", "--suite.size=3"), "--suite is missing"),
        (("--checkpoint=x", "--seeds=3"), "unknown argument '--seeds=3'"),
        *(
            (
                (*base_arguments, argument),
                f"{argument.split('=')[0]} has no effect with {combination};",
            )
            for combination, base_arguments, arguments in (
                (
                    "--checkpoint",
                    ("--checkpoint=x", "--suite=y"),
                    ("--once", "--interval=10"),
                ),
                (
                    "--follow and --suite",
                    ("--follow=x", "--suite=y"),
                    ("--step=best", "--model=cnn", "--classes=imagenet", "--mean=0")
                    + ("--std=1", "--zoo="),
                ),
                (
                    "--follow alone",
                    ("--follow=x",),
                    ("--step=best", "--only=pgd", "--out=measured", "--model=cnn")
                    + ("--classes=imagenet", "--mean=0", "--std=1", "--zoo="),
                ),
            )
            for argument in arguments
        ),
    ],
)
def test_arguments_that_would_be_ignored_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit) as exit_info:
        evaluate.main(arguments)
    assert exit_info.value.code == 2 and message in capsys.readouterr().err


def test_help_describes_every_argument(capsys):
    with pytest.raises(SystemExit):
        evaluate.main(["--help"])
    help_text = " ".join(capsys.readouterr().out.split())
    actions = evaluate.parser()._actions
    assert all(action.help for action in actions)
    for word in (*state_dicts.SUFFIXES, "--suite.KEY=VALUE", "JBIAS_TRACEBACK", "130"):
        assert word in help_text


def test_a_network_of_which_nothing_was_measured_does_not_count(file, tmp_path, capsys):
    net = models.MODELS["cnn"](1000, width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    path = tmp_path / "net.safetensors"
    models.save_safetensors(path, net, variables, names="own")
    args = f"--checkpoint={path}", f"--suite={file}"
    assert measure(*args, out=tmp_path / "out") == 2
    assert "measured 0 networks" in capsys.readouterr().err


@cases.each(
    ("num_classes", "class_lines", "remedy"),
    [
        (1000, "", "or measure it on ImageNet by `jbias measure --imagenet=DIR`"),
        (
            3,
            "circle\nthree\nfour",
            "--classes=FILE.csv with lines train_class,test_class",
        ),
    ],
)
def test_a_network_with_unsuitable_classes_is_refused_in_one_line(
    file, tmp_path, capsys, num_classes, class_lines, remedy
):
    """One line is printed, not a line per set, if too few classes are shared or none.

    One set has a mapping from the classes of a third network.
    """
    mapping, suite_file = tmp_path / "mapping.csv", tmp_path / "suite.py"
    mapping.write_text("train_class,test_class\nbeagle,circle\n")
    set_with_mapping = f'"edge", n=48, mapping="{mapping}"'
    suite_file.write_text(file.read_text().replace('"edge", n=48', set_with_mapping))
    net = models.MODELS["cnn"](num_classes, width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    path, names = tmp_path / "net.safetensors", tmp_path / "names.txt"
    models.save_safetensors(path, net, variables, names="own")
    names.write_text(class_lines)
    class_arguments = (f"--classes={names}",) if class_lines else ()
    args = f"--checkpoint={path}", f"--suite={suite_file}", *class_arguments
    assert measure(*args, out=tmp_path / "out") == 2
    err = capsys.readouterr().err
    (line,) = (line for line in err.splitlines() if "its classes are" in line)
    assert f"net: its classes are {num_classes:,} of " in line
    assert "cue_conflict, edge want 16 of 'names' (" in line
    assert remedy in line and "--classes=FILE" in line
    assert "data.class_maps" not in err and "mapping.csv" not in err


def test_gradients_of_classes_that_several_network_classes_map_to_are_refused(
    run, file, tmp_path, capsys
):
    """The network class whose gradient is meant would be ambiguous."""
    source = data.load("shapes", "edge", n=48)
    first, second, *_ = source.classes
    lines = [f"{name},{first if name == second else name}" for name in source.classes]
    mapping = tmp_path / "mapping.csv"
    mapping.write_text("\n".join(["train_class,test_class", *lines]))
    text = file.read_text()
    text = text.replace(
        'split="edge", n=48', f'split="edge", n=48, mapping="{mapping}"'
    )
    occlusion_measure = (
        'grad=dict(probe="occlusion", masks=("rectangle", "grad_cam"), sets=("edge",))'
    )
    attack_measure = 'pgd=dict(sets=("edge",), steps=1)'
    text = text.replace(
        "few=dict(", f"{occlusion_measure}, {attack_measure}, few=dict("
    )
    (tmp_path / "suite.py").write_text(text)
    args = f"--suite={tmp_path / 'suite.py'}", "--step=latest", "--only=pgd,few,grad"
    assert measure(f"--checkpoint={run}", *args, out=tmp_path / "out") == 1
    err = capsys.readouterr().err
    lines = err.splitlines()
    for name in ("pgd@edge: pgd", "grad@edge: occlusion"):
        message = (
            f"{name} must be on the network's own classes, whose gradients it follows"
        )
        assert sum(message in line for line in lines) == 2  # Once a seed.
    assert "attack" not in err
    assert "measured 2 networks in " in lines[-1] and "2 of them in part" in lines[-1]
    assert set(results.read(f"{tmp_path}/out/*")["condition"]) == {"few"}


@pytest.mark.slow
def test_a_file_that_is_no_network_is_named_and_the_run_measured(
    run, file, tmp_path, capsys
):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "broken.safetensors").write_bytes(b"\xff" * 100)
    shutil.copytree(run, folder / "erm")
    out = tmp_path / "out"
    assert measure(f"--checkpoint={folder}", f"--suite={file}", out=out) == 1
    err = capsys.readouterr().err.splitlines()
    (line,) = (line for line in err if "must be a safetensors file" in line)
    broken = folder / "broken.safetensors"
    assert line.startswith(f"not measured: {broken}: ")
    assert err[-1] == f"measured 2 networks in {out}; 1 not ({broken})"
    assert len(list(out.glob("*/evals"))) == 2
    assert not list(out.glob("*/done"))  # The suite has a set that is not here.


@cases.each(
    ("name", "change", "message"),
    [
        ("config.json", {}, "with seeds, got none"),
        ("config.json", [], "with seeds, got none"),
        *(
            ("config.json", {key: None}, f"with {key}")
            for key in ("seeds", "vary", "precision", "variant", "train.data")
        ),
        ("config.json", {"model": None}, "with model.name"),
        ("config.json", {"algo": {}}, "with algo.name"),
        ("provenance.json", {}, "with data.train/0.space, got none"),
        ("provenance.json", {"data": None}, "with data.train/0.space"),
    ],
)
def test_a_run_without_a_needed_entry_is_refused(run, tmp_path, name, change, message):
    """The message is one line with the path of the file and the missing entry."""
    broken = tmp_path / "broken"
    shutil.copytree(run, broken)
    content = json.loads((broken / name).read_text())
    for key, value in change.items() if change else ():
        outer, _, inner = key.partition(".")
        if inner:
            del content[outer][inner]
        elif value is None:
            del content[outer]
        else:
            content[outer] = value
    (broken / name).write_text(json.dumps(content if change else change))
    with pytest.raises(
        ValueError, match=f"^{broken / name}: must be a run's, {message}"
    ):
        list(networks.from_run(str(broken), step="latest"))


def test_empty_runs_are_named_and_the_other_networks_are_measured(
    file, published, tmp_path, capsys
):
    """Holds for folders of training runs and for those that models.save_run writes."""
    for name in ("trained", "saved"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "trained/provenance.json").write_text("{}")
    run_arguments = [f"--checkpoint={tmp_path / name}" for name in ("trained", "saved")]
    args = *run_arguments, *published, f"--suite={file}", "--only=few"
    assert measure(*args, out=tmp_path / "out") == 1
    err = capsys.readouterr().err
    for name, key in (("trained", "seeds"), ("saved", "model.name")):
        message_start = (
            f"not measured: {tmp_path / name}/config.json: must be a run's, with"
        )
        assert f"{message_start} {key}, got none" in err
    assert "measured 1 network in" in err


@cases.each("fault", [MemoryError(), errors.FlaxError("shapes")])
def test_a_network_that_cannot_be_opened_is_named(
    run, file, tmp_path, capsys, monkeypatch, fault
):
    def raise_fault(*args, **options):
        raise fault

    monkeypatch.setattr(networks, "from_file", raise_fault)
    (tmp_path / "huge.pth").touch()
    args = f"--checkpoint={tmp_path}/huge.pth", f"--suite={file}"
    assert measure(*args, "--only=few", out=tmp_path / "out") == 2
    err = capsys.readouterr().err
    assert (
        f"not measured: {tmp_path}/huge.pth: {str(fault) or 'not enough memory'}" in err
    )
    monkeypatch.setattr(networks, "from_run", raise_fault)
    args = f"--follow={run}", "--once", f"--suite={file}"
    assert measure(*args, "--only=few", out=tmp_path / "out") == 2
    message = re.escape(str(fault) or "not enough memory")
    assert re.search(rf"not measured: step \d+: {message}", capsys.readouterr().err)


def test_a_network_that_fails_is_named_and_the_others_measured(
    run, file, tmp_path, capsys, monkeypatch
):
    """The second network is measured though flax refuses the shapes of the first."""
    run_suite, failed_names = runner.run_suite, []

    def fail_once(subject, *args, **options):
        if not failed_names:
            failed_names.append(subject.name)
            raise errors.ScopeParamShapeError("kernel", "/fc", (4, 16), (9, 16))
        return run_suite(subject, *args, **options)

    monkeypatch.setattr(runner, "run_suite", fail_once)
    args = f"--checkpoint={run}", f"--suite={file}", "--step=latest", "--only=few"
    assert measure(*args, out=tmp_path / "out") == 1
    assert f"not measured: {failed_names[0]}" in capsys.readouterr().err
    assert len(list((tmp_path / "out").glob("*/evals/few@edge.jsonl"))) == 1


@cases.each(
    "fault",
    [
        jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of\n memory"),
        errors.ScopeParamShapeError("kernel", "/fc", (4, 16), (9, 16)),
        MemoryError(),
    ],
)
def test_a_measure_that_fails_does_not_stop_the_other_measures(
    file, published, tmp_path, capsys, monkeypatch, fault
):
    to_decisions = inference.to_decisions

    def fail_for_few(outputs, columns):
        if len(columns["index"]) == 16:
            raise fault
        return to_decisions(outputs, columns)

    monkeypatch.setattr(inference, "to_decisions", fail_for_few)
    args = *published, f"--suite={file}", "--only=few,classes"
    assert measure(*args, out=tmp_path) == 1
    err = capsys.readouterr().err
    (line,) = (line for line in err.splitlines() if "not measured: small.one: " in line)
    assert "few@edge: " in line
    is_memory_fault = not isinstance(fault, errors.FlaxError)
    assert line.endswith("; --suite.run.batch=N with less at once") == is_memory_fault
    assert "1 of them in part (small.one)" in err
    assert set(results.read(f"{tmp_path}/*")["metric"]) == {"class_accuracy"}


def test_a_network_that_stops_in_the_middle_is_measured_in_part(
    file, published, tmp_path, capsys, monkeypatch
):
    def store_or_fail(self, task, *results, store=runner.NetworkEvaluation.store):
        if task.measure.name == "few":
            raise OSError("no space left")
        store(self, task, *results)

    monkeypatch.setattr(runner.NetworkEvaluation, "store", store_or_fail)
    args = *published, f"--suite={file}", "--only=few,classes"
    assert measure(*args, out=tmp_path) == 1
    err = capsys.readouterr().err
    assert "not measured: small.one: no space left" in err
    assert "1 of them in part (small.one)" in err


@pytest.mark.slow
def test_following_measures_each_step_once(run, file, tmp_path):
    out = tmp_path / "out"
    assert measure(f"--follow={run}", "--once", f"--suite={file}", out=out) == 0
    steps = set(results.read(f"{out}/*")["step"])
    assert steps == {int(p.name) for p in (run / "checkpoints").iterdir()}


def test_the_best_step_is_the_first_best_by_validation(run):
    frame = results.read(run)
    valid = frame[(frame["dataset"] == "valid") & (frame["metric"] == "accuracy")]
    for subject in networks.from_run(str(run)):
        seed_records = valid[valid["seed"] == subject.fields["seed"]].sort_values(
            "step"
        )
        assert (
            subject.fields["step"]
            == seed_records.loc[seed_records["value"].idxmax(), "step"]
        )


@pytest.mark.slow
@cases.each("agree", [0, 16])
def test_lower_precision_is_compared_on_the_given_number_of_images(
    run, file, tmp_path, agree
):
    """Agreement is recorded for the first and last condition of each probe."""
    text = file.read_text()
    spectral = 'spectral=dict(sets=("edge",), cutoffs=(0.3, 0.5), draws=10), few=dict('
    (tmp_path / "suite.py").write_text(text.replace("few=dict(", spectral))
    changes = "--suite.run.precision=bfloat16", f"--suite.run.agree={agree}"
    args = f"--suite={tmp_path / 'suite.py'}", "--step=latest"
    only = "--only=accuracy,spectral"
    assert measure(f"--checkpoint={run}", *args, only, *changes, out=tmp_path) == 0
    frame = results.read(f"{tmp_path}/*")
    compared = frame[frame["metric"] == "agreement"]
    assert set(compared["n"]) == ({16} if agree else set())
    ends = {"", "spectral/unfiltered", "spectral/high 0.5"}
    assert set(compared["condition"]) == (ends if agree else set())


@pytest.mark.slow
@cases.each("is_plain", [True, False], quick=("True",))
@cases.each("net_precision", ["bfloat16", "float32"])
def test_the_precision_that_was_used_is_recorded(
    file, tmp_path, is_plain, net_precision
):
    """An algorithm that computes its own answers keeps the run's precision: no agreement."""
    net = models.MODELS["cnn"](16, width=4, dtype=net_precision)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    path, lines = tmp_path / "net.safetensors", []
    models.save_safetensors(path, net, variables, names="own")
    (tmp_path / "names").write_text(
        "\n".join(data.load("shapes", "edge", n=48).classes)
    )
    network = networks.from_file(str(path), classes=str(tmp_path / "names"))
    if not is_plain:
        decide = lambda *at: net.apply(*at)
        network = dataclasses.replace(network, net=net, decide=decide)
    config = jc.load(str(file), ["--suite.run.precision=bfloat16"], flag="suite")
    suite = suites.open_suite(config, lines.append, only=("few",))
    assert not runner.run_suite(
        network, suite, tmp_path, lines.append, has_all_measures=False
    )
    description = json.loads((tmp_path / "net/measures/few@edge.json").read_text())
    assert description["precision"] == ("bfloat16" if is_plain else net_precision)
    metrics = set(results.read(f"{tmp_path}/net")["metric"])
    assert ("agreement" in metrics) == is_plain
    cannot_compare = not is_plain and net_precision == "bfloat16"
    assert description.get("agreement", "").startswith("not made: ") == cannot_compare
    assert (
        "net: answers in its own way in bfloat16" in "\n".join(lines)
    ) == cannot_compare
    assert not runner.run_suite(
        network, suite, tmp_path, lines.append, has_all_measures=False
    )
    assert "net: 1 measure is there already" in lines


def test_weight_files_are_collected_from_all_subfolders(tmp_path):
    """Files are found in the layout of hubs: a folder per model, and links into a store."""
    for name in ("a.pth", "notes.txt", "b/model.safetensors", "b/c/D.PT", ".d/e.pth"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "linked.bin").symlink_to(tmp_path / "notes.txt")
    (tmp_path / "b" / "back").symlink_to(tmp_path)
    checkpoints = [
        path.removeprefix(f"{tmp_path}/")
        for path in networks.find_checkpoints([str(tmp_path)])
    ]
    assert checkpoints == ["a.pth", "b/c/D.PT", "b/linked.bin", "b/model.safetensors"]


def test_all_spellings_of_a_path_are_one_network(run, tmp_path, monkeypatch):
    """Several paths to a run or a file count once; a link with another name is another file."""
    (tmp_path / "erm").symlink_to(run)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.pth").touch()
    (tmp_path / "a" / "resnet50_prime.pth").symlink_to("x.pth")
    monkeypatch.chdir(tmp_path)
    spellings = ["erm", f"{run}/", f"{run.parent}/../{run.parent.name}/erm", "./erm/"]
    spellings += ["a/x.pth", "a/../a/x.pth", f"{tmp_path}/a/x.pth", "a/"]
    assert networks.find_checkpoints(spellings) == [
        "erm",
        "a/x.pth",
        "a/resnet50_prime.pth",
    ]


def test_opening_another_suite_keeps_the_stimuli_of_the_first():
    """Stimuli are kept by the probe that made them, so each suite keeps its own probes."""
    config = biases.get_config("smoke")
    first = suites.open_suite(config, lambda line: None)
    task = next(iter(first.tasks()))
    probe = first.make_probe(task.measure, task.dataset)
    second = suites.open_suite(config, lambda line: None)
    assert first.make_probe(task.measure, task.dataset) is probe
    assert second.make_probe(task.measure, task.dataset) is not probe


def test_the_suite_of_biases_needs_no_data():
    """All its sets on the embedded data, and options that its probes take."""
    suite = suites.open_suite(biases.get_config("smoke"), lambda line: None)
    assert not suite.missing


@cases.each(
    ("text", "message"),
    [
        (
            "stimuli=a",
            "'stimuli' is not used with data=shapes; it is used with data=tiny_ima",
        ),
        ("root=a,subset", "'root' is not used with data=shapes; .* or data=imagenet$"),
        ("data=tiny_imagenet,root=a,more=b", "it is used with data=imagenet$"),
        ("data=imagenet,root=a,correlation=1", "it is used with data=shapes$"),
        ("data=imagenet,root=a,humans=b", "give stimuli=DIR, others=DIR or both"),
        ("stimulus=a", "unknown 'stimulus'; did you mean 'stimuli'"),
    ],
)
def test_suite_arguments_without_effect_are_refused(text, message):
    """Arguments without effect are refused, so that a forgotten data=imagenet is noticed."""
    with pytest.raises(ValueError, match=f"^suite argument: .*{message}") as error_info:
        biases.get_config(text)
    assert "\n" not in str(error_info.value)


@cases.each("data_set", ["shapes", "tiny_imagenet", "imagenet"])
def test_every_argument_of_the_suite_of_biases_changes_the_suite(data_set):
    """All documented arguments are listed, and each listed argument changes the config."""
    listed = set(re.findall(r"^:(\w+)", biases.__doc__, re.MULTILINE))
    assert listed | {"root"} == {
        *biases.SHARED_ARGUMENTS,
        *itertools.chain(*biases.ARGUMENTS.values()),
    }
    values = {name: "a" for name in biases.ARGUMENTS[data_set] if name not in ("root",)}
    values |= {"subset": "1", "correlation": "0.5"}
    values = {
        name: values[name] for name in biases.ARGUMENTS[data_set] if name in values
    }
    arguments = {"data": data_set, "root": "a", **values}
    if data_set == "shapes":
        del arguments["root"]
    text = ",".join(f"{name}={value}" for name, value in arguments.items())
    full_config = biases.get_config(text).to_json()
    for name in values:
        # Without one of stimuli and others, humans are compared on the other.
        kept_entries = [
            entry for entry in text.split(",") if entry.split("=")[0] != name
        ]
        shorter_config = biases.get_config(",".join(kept_entries)).to_json()
        assert shorter_config != full_config, name


@cases.each("sets", ["", "data=imagenet,root=no,stimuli=no,humans=no,"])
def test_images_limits_measures_of_changed_images_and_smoke_limits_all(sets):
    """Measures of unchanged images use whole sets, except in a trial, which limits all."""
    for text, num_unchanged, num_changed in (("images=9", 0, 9), ("smoke", 240, 16)):
        c = biases.get_config(f"{sets}{text}")
        for name in {*c.measures} - {"decoding"}:
            images = c.measures[name].get("images", 0)
            kind = registry.PROBES[c.measures[name].get("probe", name)].kind
            is_unchanged = kind is counting.Counting
            assert images == (num_unchanged if is_unchanged else num_changed), name


def write_contrast(tmp_path) -> tuple[pathlib.Path, list[str]]:
    """Write four contrast images and one person's answers; return their path and rows."""
    folder = tmp_path / "contrast/dnn/session-1"
    folder.mkdir(parents=True)
    rows = ["subj,session,trial,rt,object_response,category,condition,imagename"]
    for i, degree in enumerate(("c100", "c10", "c10", "c10")):
        name = f"000{i}_cop_dnn_{degree}_cat_10_n02123045_{i}.png"
        Image.new("RGB", (224, 224)).save(folder / name)
        answer = "cat" if i % 2 else "dog"
        rows.append(f"p1,1,{i},0.5,{answer},cat,{degree},{name.replace('dnn', 'p01')}")
    path = tmp_path / "people/contrast/contrast_subject-01_session_1.csv"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(rows))
    return path, rows


@cases.each("out", ["x.safetensors", "folder"])
def test_an_export_is_opened_with_the_classes_that_it_names(out, tmp_path):
    net = models.MODELS["cnn"](3, width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    path, saved_classes = tmp_path / out, class_names.Classes(("a", "b", "c"), "names")
    if out == "folder":
        models.save_run(path, net, variables, saved_classes)
    else:
        models.save_safetensors(path, net, variables, "own", saved_classes)
    network = networks.from_file(str(path))
    assert (network.classes, network.space) == saved_classes
    listed = tmp_path / "names.txt"
    listed.write_text("d\ne\nf\n")  # The argument comes before the file's own names.
    network_of_listed = networks.from_file(str(path), classes=str(listed))
    assert network_of_listed.classes == tuple("def")
    assert network.about["classes_from"] == "the file's own"
    assert network_of_listed.about["classes_from"] == f"--classes={listed}"
    with pytest.raises(ValueError, match="the network's 3 classes, got 1000 from imag"):
        networks.from_file(str(path), classes="imagenet")


@pytest.mark.slow
@cases.each(
    ("classes_argument", "expected_source"),
    [(None, "imagenet, by itself"), ("imagenet", "--classes=imagenet")],
)
def test_the_source_of_the_classes_is_recorded(
    classes_argument, expected_source, tmp_path
):
    net = models.MODELS["cnn"](1000, width=1)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    models.save_safetensors(tmp_path / "x.safetensors", net, variables, "own")
    network = networks.from_file(
        str(tmp_path / "x.safetensors"), classes=classes_argument
    )
    assert network.about["classes_from"] == expected_source and network.space == "wnid"


def test_an_absent_folder_is_named_once_and_as_it_was_typed(tmp_path):
    """Three sets in one folder give one line, which has the user's own argument."""
    config = biases.get_config(f"data=imagenet,root=no,stimuli={tmp_path}/typo")
    lines = []
    with pytest.raises(ValueError, match="none of its sets was found"):
        suites.open_suite(config, lines.append, only=("accuracy",))
    (line,) = (line for line in lines if "typo" in line)
    assert line.startswith(
        "not here, so not measured: suite.sets.cue-conflict, edge, silhouette: stimuli= "
        f"must be an existing folder, got '{tmp_path}/typo'"
    )
    assert line.count("; expected: ") == 1


def test_absent_answers_of_people_are_named_and_the_other_measures_remain(tmp_path):
    write_contrast(tmp_path)
    text = f"data=imagenet,root=no,others={tmp_path},humans={tmp_path}/nope"
    lines = []
    suite = suites.open_suite(biases.get_config(text), lines.append)
    (line,) = (line for line in lines if "nope" in line)
    assert f"suite.measures.human: humans={tmp_path}/nope: must be a folder" in line
    assert "does not exist" in line
    measure_names = {measure.name for measure, _ in suite.tasks()}
    assert "accuracy" in measure_names and "human" not in measure_names
    assert "human@contrast" in suite.missing
    with pytest.raises(ValueError, match="nothing is left to measure"):
        suites.open_suite(biases.get_config(text), lines.append, only=("human",))
    (people,) = (tmp_path / "people").rglob("*.csv")
    people.write_text("subj,trial\n")  # A wrong file inside stays an error.
    with pytest.raises(ValueError, match=":1: the header must have"):
        suites.open_suite(
            biases.get_config(text.replace("nope", "people")), lines.append
        )


@cases.each(
    ("text", "only", "message"),
    [
        (
            "data=imagenet,root=no",
            "shape_bias",
            "'shape_bias' needs stimuli=DIR or frequency=DIR in",
        ),
        ("data=imagenet,root=no", "human", "needs humans=DIR, and stimuli=DIR or oth"),
        ("", "human", "with data=imagenet or data=tiny_imagenet, in the argument"),
        ("data=imagenet,root=no", "edge", "unknown 'edge'"),  # A set is no measure.
        ("", "acuracy", "unknown 'acuracy'; did you mean 'accuracy'"),
    ],
)
def test_a_measure_without_its_suite_argument_names_the_argument(text, only, message):
    with pytest.raises(ValueError, match=f"^--only: .*{message}"):
        suites.open_suite(biases.get_config(text), print, only=(only,))


def test_people_are_compared_by_degree_of_distortion(tmp_path):
    """Numbers are per degree of distortion, also from decisions read back from a file.

    The suite asks for all sets with degrees; one of them exists.
    """
    config = biases.get_config(f"data=imagenet,root=no,others={tmp_path},humans=people")
    config.measures = dict(human=config.measures.human.to_dict())
    assert len(config.measures.human.sets) == 14
    write_contrast(tmp_path)
    config.measures.human.root = str(tmp_path / "people")
    lines = []
    suite = suites.open_suite(config, lines.append)
    assert sum("not here" in line for line in lines) == 13  # All but contrast.
    source = suite.sources["contrast"]
    label = source.columns["label"]
    model_decisions = decisions.Decisions(
        np.where(np.arange(4) < 3, label, 0), dict(source.columns, index=np.arange(4))
    )
    path = tmp_path / "human.parquet"
    decision_files.write_conditions(path, {"": model_decisions})
    decisions_read = decision_files.read_conditions(path)[""]
    (measure,) = suite.measures
    for condition_decisions in (model_decisions, decisions_read):
        numbers = suite.make_probe(measure, "contrast").numbers(
            {"": condition_decisions}
        )
        numbers_by_name = {(n.metric, n.condition): n for n in numbers}
        # Images of c100 do not count.
        assert numbers_by_name["ood_accuracy", ""][1:4] == (2 / 3, 2, 3)
        assert numbers_by_name["human_accuracy", "c10"].value == 2 / 3
        assert ("error_consistency", "c100") in numbers_by_name
    np.testing.assert_array_equal(
        decisions_read.columns["condition"], source.columns["condition"]
    )


def test_provenance_of_sets_survives_later_evaluations_of_other_sets(
    file, published, tmp_path, capsys
):
    """A report needs the name of each set, also of those that the last call did not open."""
    args = *published, f"--suite={file}"
    assert measure(*args, "--only=accuracy", out=tmp_path) == 0
    path = tmp_path / "small.one/provenance.json"
    first = json.loads(path.read_text())
    assert [*first["missing"]] == ["photos"]
    other_suite = tmp_path / "other.py"
    other_text = file.read_text().replace(
        "classes=dict(", "more=dict(probe='classes', "
    )
    other_text = other_text.replace("edge=dict(", "fresh=dict(").replace(
        '"edge"', '"fresh"'
    )
    other_suite.write_text(other_text.replace('split="fresh"', 'split="edge"'))
    assert (
        measure(*published, f"--suite={other_suite}", "--only=few", out=tmp_path) == 0
    )
    second = json.loads(path.read_text())
    assert {*second["data"]} == {"edge", "cue_conflict", "fresh"}
    assert second["data"]["edge"] == first["data"]["edge"]
    assert second["missing"] == first["missing"]
    assert {*second["suite"]["sets"]} == {*first["suite"]["sets"], "fresh"}
    # Measures left out by --only are not in the provenance.
    assert {*first["suite"]["measures"]} == {"accuracy"}
    assert {*second["suite"]["measures"]} == {"accuracy", "few"}
    (network,) = network_records.read([str(tmp_path / "small.one")])
    assert network.split("cue_conflict") == "cue_conflict"
    assert [line.partition(" ")[0] for line in network.missing_measures] == ["photos"]
    # A set that was absent and now exists is not missing any more.
    complete_suite = tmp_path / "come.py"
    photos_that_exist = 'photos=dict(data="shapes", split="edge", n=48)'
    complete_suite.write_text(
        file.read_text().replace(
            'photos=dict(data="geirhos", split="edge", root="nowhere")',
            photos_that_exist,
        )
    )
    assert (
        measure(
            *published, f"--suite={complete_suite}", "--only=accuracy", out=tmp_path
        )
        == 0
    )
    third = json.loads(path.read_text())
    assert third["missing"] == {} and "photos" in third["data"]
    assert "fresh" in third["data"]


def test_other_answers_of_people_are_refused(tmp_path, capsys):
    """Other answers and other images are refused; the same answers in another order are not."""
    path, (header, *rows) = write_contrast(tmp_path)
    (tmp_path / "suite.py").write_text(
        "import ml_collections\n"
        "def get_config(text=''):\n"
        "    c = ml_collections.ConfigDict(dict(size=32))\n"
        f"    own = dict(data='model_vs_human', split='contrast', root={str(tmp_path)!r})\n"
        "    c.sets = dict(contrast=own)\n"
        f"    people = {str(tmp_path / 'people')!r}\n"
        "    c.measures = dict(human=dict(sets=('contrast',), root=people))\n"
        "    return c\n"
    )
    net = models.MODELS["cnn"](1000, width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    file, codes = tmp_path / "net.safetensors", []
    models.save_safetensors(file, net, variables, names="own")
    changed_rows = [row.replace(",dog,", ",bear,") for row in rows]
    for lines in (rows, rows[::-1], changed_rows):
        path.write_text("\n".join([header, *lines]))
        suite_file = f"--suite={tmp_path / 'suite.py'}"
        codes.append(measure(f"--checkpoint={file}", suite_file, out=tmp_path / "out"))
    assert codes == [0, 0, 2]
    assert "human@contrast was measured with other settings (then != now): read: " in (
        capsys.readouterr().err
    )


def test_suites_are_changed_by_key(file):
    c = jc.load(
        str(file), ["--suite.run.batch=7", "--suite.sets.edge.n=32"], flag="suite"
    )
    assert (c.run.batch, c.sets.edge.n) == (7, 32)


@pytest.mark.slow
def test_measures_that_need_the_same_decisions_share_them(run, file, tmp_path):
    """The network answers the unchanged set once; both measures store the answers."""
    args = (f"--checkpoint={run}", f"--suite={file}")
    all_images = "--suite.measures.few.images=0"
    assert measure(*args, all_images, out=tmp_path) == 0
    folder = next(tmp_path.glob("*-seed0-*"))
    descriptions = [
        json.loads((folder / f"measures/{name}@edge.json").read_text())
        for name in ("accuracy", "few")
    ]
    assert descriptions[0]["seconds"] is not None and descriptions[1]["seconds"] is None
    assert descriptions[0]["cost"]["device_hours"] > 0 and "cost" not in descriptions[1]
    accuracy_decisions, few_decisions = (
        decision_files.read_conditions(folder / f"decisions/edge/{name}.parquet")[""]
        for name in ("accuracy", "few")
    )
    assert (accuracy_decisions.prediction == few_decisions.prediction).all()


def test_measures_with_different_aggregation_rules_share_the_answers(
    file, published, tmp_path, monkeypatch
):
    """The network answers once; each measure gets the results of a run alone, to the bit."""
    first, second, *_ = names = data.load("shapes", "edge", n=48).classes
    lines = [f"{name},{first if name == second else name}" for name in names]
    mapping = tmp_path / "mapping.csv"
    mapping.write_text("\n".join(["train_class,test_class", *lines]))
    text = file.read_text().replace(
        'split="cue_conflict"',
        f'split="cue_conflict", drop="{second}", mapping="{mapping}"',
    )
    rules = "aggregates=('sum_prob', 'mean_logit'), sets=('cue_conflict',)"
    text = text.replace("few=dict(", f"shape_bias=dict({rules}), few=dict(")
    (tmp_path / "suite.py").write_text(text)
    rules_asked, run_probe = [], inference.run_probe

    def note_rules(network, probe, batches, rules, **options):
        rules_asked.append([*rules])
        return run_probe(network, probe, batches, rules, **options)

    monkeypatch.setattr(inference, "run_probe", note_rules)
    args = *published, f"--suite={tmp_path / 'suite.py'}"
    two_measures = (
        "--only=accuracy,shape_bias",
        "--suite.measures.accuracy.sets=('cue_conflict',)",
    )
    assert measure(*args, *two_measures, out=tmp_path / "together") == 0
    (rules_together,) = rules_asked
    assert {*rules_together} == {"mean_prob", "sum_prob", "mean_logit"}
    for name, conditions in (("accuracy", [""]), ("shape_bias", ["", "mean_logit"])):
        one_measure = two_measures[1], f"--only={name}"
        assert measure(*args, *one_measure, out=tmp_path / "alone") == 0
        together = tmp_path / "together/small.one"
        alone = tmp_path / "alone/small.one"
        records = f"evals/{name}@cue_conflict.jsonl"
        assert (together / records).read_text() == (alone / records).read_text()
        stored = f"decisions/cue_conflict/{name}.parquet"
        together_decisions = decision_files.read_conditions(together / stored)
        alone_decisions = decision_files.read_conditions(alone / stored)
        assert [*together_decisions] == [*alone_decisions] == conditions
        for condition, expected in alone_decisions.items():
            actual = together_decisions[condition]
            np.testing.assert_array_equal(actual.prediction, expected.prediction)
            for column, values in expected.columns.items():
                np.testing.assert_array_equal(actual.columns[column], values)
    assert len(rules_asked) == 3


def test_cue_conflict_results_have_the_ranks_of_both_cues_among_the_logits(
    file, published, tmp_path, monkeypatch
):
    """The records and the page of a file of weights have the ranks of its logits."""
    batch_logits, predict = [], inference.BoundJaxNetwork.predict

    def note_logits(self, images, blocks):
        batch_logits.append(predict(self, images, blocks))
        return batch_logits[-1]

    monkeypatch.setattr(inference.BoundJaxNetwork, "predict", note_logits)
    text = file.read_text().replace(
        "few=dict(", "shape_bias=dict(sets=both[1:]), few=dict("
    )
    (tmp_path / "suite.py").write_text(text)
    args = *published, f"--suite={tmp_path / 'suite.py'}", "--only=accuracy,shape_bias"
    on_conflicts = "--suite.measures.accuracy.sets=('cue_conflict',)"  # Asks first.
    assert measure(*args, on_conflicts, out=tmp_path) == 0
    logits = np.concatenate(batch_logits)[:240]
    path = tmp_path / "small.one/decisions/cue_conflict/shape_bias.parquet"
    columns, mrr = decision_files.read_conditions(path)[""].columns, {}
    differ = columns["label"] != columns["texture"]
    for cue, name in (("label", "shape"), ("texture", "texture")):
        ranks = cue_conflict.label_ranks(logits, columns[cue])
        np.testing.assert_array_equal(columns[f"rank_{name}"], ranks)
        mrr[name] = (1 / ranks[differ]).mean()
    assert mrr["shape"] != mrr["texture"]
    measured_networks = network_records.read([f"{tmp_path}/small.one"])
    blocks = measure_files.section_blocks(measured_networks)
    tables_shown = [b for _, b in blocks if hasattr(b, "head")]
    (table,) = [table for table in tables_shown if table.name == "shape_bias"]
    for cue, value in mrr.items():
        assert table.data[f"mrr_{cue}"].tolist() == [pytest.approx(value)]
        cell = table.rows[0][table.head.index(f"MRR of {cue}")]
        assert cell == f"{value:.3f}"


@pytest.mark.slow
def test_decoding_reads_images_from_files_batch_by_batch(
    run, file, tmp_path, monkeypatch
):
    """A set that does not fit in memory gets the results of one that does."""
    decoding_measure = (
        'decoding=dict(sets=("cue_conflict",), sites=("stage1",), folds=3, width=8,'
    )
    text = file.read_text()
    text = text.replace(
        "few=dict(", f"{decoding_measure} most=200, strengths=(1e-2,)), few=dict("
    )
    (tmp_path / "suite.py").write_text(text)
    rows_read, get_images = [], loader.LazyImages.__getitem__

    def note_rows(self, rows):
        images = get_images(self, rows)
        rows_read.append(len(images))
        return images

    monkeypatch.setattr(loader.LazyImages, "__getitem__", note_rows)
    get_image = lambda self, number: self.images[number]
    monkeypatch.setattr(sources.ArraySource, "image", get_image, raising=False)
    record_lists = []
    for in_files in (False, True):
        if in_files:
            monkeypatch.setattr(loader, "load_into_memory", lambda *_, **options: {})
        args = f"--suite={tmp_path / 'suite.py'}", "--step=latest", "--only=decoding"
        out = tmp_path / f"{in_files}"
        assert measure(f"--checkpoint={run}", *args, out=out) == 0
        assert rows_read == [200, 200] * in_files  # 200 of 240 for each seed.
        frame = results.read(f"{out}/*").sort_values(["seed", "condition", "metric"])
        record_lists.append(frame[["condition", "metric", "value"]].to_numpy().tolist())
    assert record_lists[0] == record_lists[1]


def test_networks_saved_as_files_and_runs_are_measured(file, tmp_path):
    """All forms of one network give the same results; clashing names are made unique."""
    net = models.MODELS["cnn"](16, width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    for folder in ("one", "two"):
        path = tmp_path / "files" / folder / "net.safetensors"
        path.parent.mkdir(parents=True)
        models.save_safetensors(path, net, variables, names="own")
    models.save_run(tmp_path / "files" / "saved", net, variables)
    names = tmp_path / "names.txt"
    names.write_text("\n".join(data.load("shapes", "edge", n=48).classes))
    args = (f"--checkpoint={tmp_path / 'files'}", f"--suite={file}", "--only=few")
    assert measure(*args, f"--classes={names}", out=tmp_path / "out") == 0
    records = results.read(f"{tmp_path}/out/*")
    assert set(records["run"]) == {"one-net", "two-net", "saved"}
    assert records.groupby("metric", observed=True)["value"].nunique().max() == 1


def test_a_probe_gets_images_of_another_set(file, monkeypatch, tmp_path):
    """A probe gets the images of the set in `others`, or of its own set.

    The description of the measure names the other set.
    """
    partner_sets = []

    def make(*, others):
        partner_sets.append(others)
        return plain.make()

    monkeypatch.setattr(mixed_images, "make", make)
    config = jc.load(str(file), flag="suite")
    config.measures = dict(
        own=dict(probe="mixing", sets=("edge",)),
        cues=dict(probe="mixing", sets=("edge",), others="cue_conflict"),
        photos=dict(probe="mixing", sets=("edge",), others="photos"),
    )
    suite = suites.open_suite(config, print)
    tasks = [(measure.name, set_name) for measure, set_name in suite.tasks()]
    assert tasks == [("cues", "edge"), ("own", "edge")]
    # Partners without a name come from checks of the options.
    partner_sets = [partners for partners in partner_sets if partners.name]
    assert [partners.name for partners in partner_sets] == ["cue_conflict", "edge"]
    images = suite.images["cue_conflict"]
    partner_images = partner_sets[0].read()
    assert np.array_equal(partner_images, images) and len(images) == 240
    assert isinstance(partner_images.sharding, jax.sharding.NamedSharding)
    assert partner_images.is_fully_replicated
    assert partner_images.devices() == {*jax.devices()}
    network = types.SimpleNamespace(dtype=lambda precision: precision)
    evaluation = runner.NetworkEvaluation(network, suite, tmp_path, print)
    descriptions = [evaluation.describe(task) for task in suite.tasks()]
    assert "others" not in descriptions[1]["dataset"]
    fingerprint = suite.sources["cue_conflict"].fingerprint
    assert descriptions[0]["dataset"]["others"] == fingerprint
    monkeypatch.setattr(suites, "MAX_PARTNERS", 1)
    assert suite.make_partners("edge").read().shape == (1, 32, 32, 3)


def test_other_images_for_a_probe_that_shows_none_are_refused(file):
    config = jc.load(str(file), flag="suite")
    config.measures.few.others = "cue_conflict"
    with pytest.raises(ValueError, match=r"few\.others: plain shows no other images"):
        suites.open_suite(config, print)


@cases.each(
    ("args", "message"),
    [
        (["--checkpoint=x", "--suite=y", "--only="], "--only: must be different names"),
        (
            ["--checkpoint=x", "--suite=y", "--only=a,,b"],
            "--only: must be different names",
        ),
        (
            ["runs/erm", "--suite=y"],
            "write a path as --checkpoint=PATH, and a glob in quotes",
        ),
    ],
)
def test_empty_and_positional_arguments_are_refused(args, message, capsys):
    with pytest.raises(SystemExit) as exit_info:
        evaluate.main(args)
    assert exit_info.value.code == 2 and message in capsys.readouterr().err


class Answers:
    """A model from elsewhere that only answers images: no gradients, no activations."""

    name, space, digest, graded = "theirs", "names", "0", True
    apply = variables = at = net = None

    def __init__(self, classes, predict):
        self.classes, self.predict = classes, predict
        self.preprocessing, self.about = {"resize": 32}, {"category": "others"}
        self.fields = dict(
            run="theirs",
            algorithm="theirs",
            variant="",
            model="svm",
            train_data="unknown",
            stage=0,
            seed=0,
            step=0,
            epoch=0.0,
        )

    def answered(self, dataset, conditions):
        return None

    def dtype(self, precision):
        return np.float32

    def bind(self, precision, devices):
        return self


def test_a_model_that_only_answers_is_measured_except_where_more_is_needed(
    file, tmp_path
):
    """Measures that need gradients, sites or absent answers are left out with a reason."""
    added_measures = 'pgd=dict(sets=("edge",)), decoding=dict(sets=("cue_conflict",)), '
    added_measures += (
        'spectral=dict(sets=("edge",), cutoffs=(0.3, 0.5), draws=10), few=dict('
    )
    (tmp_path / "suite.py").write_text(
        file.read_text().replace("few=dict(", added_measures)
    )
    config = jc.load(str(tmp_path / "suite.py"), flag="suite")
    config.run.precision = "bfloat16"  # The model keeps its own: no agreement.
    suite = suites.open_suite(config, print)
    source = suite.sources["edge"]
    labels, keys_shown = np.asarray(source.columns["label"]), set()

    def look_up(image, shown):
        """Return decisions looked up in a table of answers to some unchanged images of the set."""
        keys_shown.add((shown.dataset, shown.condition))
        if shown.condition:
            raise ValueError(f"has no answers under {shown.condition!r}")
        right_scores = np.eye(16)[labels[np.asarray(shown.index) % 48]]
        return np.where(
            (np.asarray(shown.index) % 4 == 0)[:, None], -right_scores, right_scores
        )

    network = Answers(tuple(source.classes), look_up)
    refusals = runner.run_suite(network, suite, tmp_path, print)
    reasons = dict(line.split(": ", 1) for line in refusals)
    assert "needs a network's gradients" in reasons["pgd@edge"]
    assert "needs a network's sites inside" in reasons["decoding@cue_conflict"]
    assert reasons["spectral@edge"] == "has no answers under 'unfiltered'"
    assert len(reasons) == 3 and ("edge", "") in keys_shown
    records = results.read(tmp_path / "theirs")
    records = records[
        (records["dataset"] == "edge") & (records["metric"] == "accuracy")
    ]
    assert records.set_index("condition")["count"][""] == 36
    assert "agreement" not in set(results.read(tmp_path / "theirs")["metric"])
    config_written = json.loads((tmp_path / "theirs/config.json").read_text())
    assert (
        config_written["run"]["resize"] == 32 and config_written["category"] == "others"
    )
    assert [*runner.run_suite(network, suite, tmp_path, print)] == refusals


CONFLICTS = """
import ml_collections

def get_config(text=""):
    c = ml_collections.ConfigDict(dict(size=32))
    c.sets = dict(conflict=dict(data="geirhos", split="cue-conflict", root=text))
    c.measures = dict(
        accuracy=dict(probe="plain", sets=("conflict",)),
        shape_bias=dict(sets=("conflict",)),
    )
    return c
"""


@pytest.mark.slow
def test_images_of_classes_that_a_network_lacks_are_shown_for_their_cues(
    tmp_path, capsys
):
    """The network always answers one class; each of 16 images has its texture.

    The 16 images have one shape class each, and the network lacks two of the classes.
    """
    known = {*tables.wnids()}
    members = {
        name: next(wnid for wnid in wnids if wnid in known)
        for name, wnids in class_maps.geirhos16().items()
        if name not in ("airplane", "clock")
    }
    answered_class, *_ = members
    for i, name in enumerate(class_maps.geirhos16()):
        path = tmp_path / f"cue-conflict/{name}/{name}1-{answered_class}{i}.png"
        path.parent.mkdir(parents=True)
        Image.new("RGB", (32, 32), (i, i, i)).save(path)
    net = models.MODELS["cnn"](len(members), width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    variables = jax.tree.map(jnp.zeros_like, variables)  # The first class, always.
    network_classes = class_names.Classes(tuple(members.values()), "wnid")
    models.save_safetensors(
        tmp_path / "net.safetensors", net, variables, "own", network_classes
    )
    (tmp_path / "suite.py").write_text(CONFLICTS)
    out = tmp_path / "out"
    suite_argument = f"--suite={tmp_path / 'suite.py'}:{tmp_path}"
    path = f"--checkpoint={tmp_path / 'net.safetensors'}"
    assert measure(path, "--zoo=", suite_argument, out=out) == 0
    records = results.read(out / "net")
    records = records[~records["condition"].str.contains("class=")]
    counts = {
        record.metric: (record.count, record.n) for record in records.itertuples()
    }
    assert counts["accuracy"] == (1, 14)
    assert counts["accuracy_shape"] == (1, 16)
    assert counts["accuracy_texture"] == (16, 16)
    assert counts["fraction_texture"] == (13, 16)
    assert counts["shape_bias"] == (0, 13)
    decisions_file = out / "net/decisions/conflict/shape_bias.parquet"
    label = decision_files.read_conditions(decisions_file)[""].columns["label"]
    assert len(label) == 16 and (label < 0).sum() == 2
    # Results from before such images were shown count as other settings.
    description_file = out / "net/measures/shape_bias@conflict.json"
    description_file.write_text(
        description_file.read_text().replace('"images": 16', '"images": 14')
    )
    assert measure(path, "--zoo=", suite_argument, out=out) == 2
    assert "(then != now): images: 14 != 16" in capsys.readouterr().err


@cases.each(
    ("train_data", "shape", "message"),
    [
        ("stacked", (32, 32), "must be 2 to 1 in height to width, as those of stacked"),
        ("stacked", (64, 32), ""),
        ("cifar10", (64, 32), "must be 1 to 1 in height to width, as those of cifar10"),
        ("cifar10+cifar100", (64, 32), "got 64 x 32 pixels"),
        ("cifar10", (32, 32), ""),
        ("unknown", (64, 32), ""),
    ],
)
def test_images_of_another_aspect_ratio_than_the_training_images_are_refused(
    train_data, shape, message
):
    source = data.load("shapes", "edge", n=16)
    images = np.zeros((16, *shape, 3), np.uint8)
    source = dataclasses.replace(source, images=images)
    suite = types.SimpleNamespace(
        sources={"test": source},
        images={"test": images},
        config={"sets": {"test": {}}},
        measures=[suites.Measure("a", "plain", ("test",), 0, ("mean_prob",), {})],
    )
    network = types.SimpleNamespace(
        classes=source.classes,
        space=source.space,
        fields={"train_data": train_data},
        about={},
    )
    if not message:
        assert len(set_batches.prepare(network, suite, "test", print).index) == 16
        return
    with pytest.raises(ValueError, match=message):
        set_batches.prepare(network, suite, "test", print)


def test_costs_follow_the_assumptions_of_the_suite(file, published, tmp_path, capsys):
    args = *published, f"--suite={file}", "--only=few"
    energy_argument = "--suite.run.energy={'watts': 100, 'pue': 2.0}"
    assert measure(*args, energy_argument, out=tmp_path) == 0
    (description_file,) = tmp_path.rglob("few@edge.json")
    cost = json.loads(description_file.read_text())["cost"]
    assert (cost["watts"], cost["pue"], cost["source"]) == (100, 2.0, "given")
    assert cost["energy_kwh"] == pytest.approx(cost["device_hours"] * 0.2)
    misspelled = energy_argument.replace("pue", "pu")
    assert measure(*args, misspelled, out=tmp_path / "no") == 2
    assert "suite.run.energy: unknown 'pu'; did you mean" in capsys.readouterr().err


@pytest.mark.slow
def test_a_file_with_a_given_data_set_and_method_joins_the_study(
    published, tmp_path, capsys
):
    """An imported network appears in the tables of trained networks."""
    (tmp_path / "suite.py").write_text(
        """
import ml_collections

def get_config(text=""):
    c = ml_collections.ConfigDict(dict(size=32))
    c.sets = dict(test=dict(data="shapes", correlation=0.99, split="edge", n=48))
    c.measures = dict(
        grid_shuffle=dict(grids=(2, 4, 8), sets=("test",)),
        occlusion=dict(fractions=(0.3,), masks=("rectangle",), sets=("train",)),
    )
    c.sets.train = c.sets.test
    return c
"""
    )
    args = *published, f"--suite={tmp_path / 'suite.py'}"
    own_arguments = "--trained=cifar10", "--method=fmix"
    out = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            runner.NetworkEvaluation,
            "describe_train_difference",
            lambda _: "trained on others",
        )
        assert measure(*args, *own_arguments, out=out) == 0
    study, notes = distortion_groups.read([f"{out}/*"])
    (group,) = study.groups.values()
    assert group.key == ("cnn", "CIFAR-10", "FMix", "")
    values = distortion_page.report(study).results["tables"]["values"]
    grid = values[values["quantity"] == "di_grid"]
    assert set(grid["data"]) == {"CIFAR-10"} and set(grid["method"]) == {"FMix"}
    assert sum("trained on others" in note for note in notes) == 1
    description = json.loads(next(out.rglob("occlusion@train.json")).read_text())
    assert description["otherwise"] == "trained on others"
    assert "otherwise" not in json.loads(
        next(out.rglob("grid_shuffle@test.json")).read_text()
    )
    # All records of a network must have the same data set and method.
    assert measure(*args, "--method=basic", out=out) == 2
    assert "train.data: 'cifar10' != 'unknown'" in capsys.readouterr().err
    assert measure(*args, "--trained=cifar", out=out) == 2
    assert "--trained: unknown 'cifar'; did you mean" in capsys.readouterr().err


def test_each_network_is_recognized_by_its_own_name():
    """The name is not that of a similar network, such as resnet50 for a resnext50."""
    names = {
        name: networks._model_name(make(10)) for name, make in models.MODELS.items()
    }
    assert names == {name: name for name in models.MODELS}
