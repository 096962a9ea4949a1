"""Measuring networks by a suite: the numbers, what stands after a stop, what is refused."""

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
from jbias.data import labels, loader, sources, tables
from jbias.evals import (
    cue_conflict,
    decisions,
    inference,
    networks,
    occlusion,
    prepared_sets,
    probe_registry,
    runner,
    suites,
)
from jbias.models import class_names, state_dicts
from jbias.report import (
    distortion_page,
    distortion_study,
    network_records,
)
from jbias.report import networks as networks_report
from jbias.runs import results, workdirs
from jbias.runtime import mesh
from tests import cases, smoke_runs

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


# A table in which one small file is published, and divides by nothing.
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
    """A file of sixteen classes, their names, and the zoo that knows it, as arguments."""
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
def test_a_run_that_has_not_ended_is_told(run, tmp_path):
    half, said = tmp_path / "half", []
    shutil.copytree(run, half)
    args = evaluate.parser().parse_args([f"--checkpoint={half}"])
    of = [str(half)], args, said.append, pytest.fail, "latest"
    assert len(list(networks.open_networks(*of))) == 2
    assert said == []
    (half / "done").unlink()
    assert len(list(networks.open_networks(*of))) == 2
    assert said == [f"{half}: has not ended; its checkpoints so far are measured"]


@pytest.mark.slow
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
    """Records and descriptions have the names of the network's decision classes."""
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


def test_goes_on_where_it_was_stopped(run, file, measured, tmp_path, capsys):
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
    assert "(48 answers, " in capsys.readouterr().err


@pytest.mark.slow
def test_other_options_under_the_same_name_are_refused(run, file, measured, capsys):
    args = (f"--checkpoint={run}", f"--suite={file}", "--step=latest")
    assert measure(*args, "--suite.measures.few.images=8", out=measured) == 2
    err = capsys.readouterr().err
    assert err.count("few@edge was measured with other settings") == 2  # Once a seed.
    assert "measure.images: 16 != 8" in err


@pytest.mark.slow
def test_an_option_at_its_default_is_as_one_left_out(file, published, tmp_path, capsys):
    """Descriptions are equal with and without an option at its default, also older ones."""

    def again(**options):
        asked = dict(probe="calibration", sets=("edge",), images=16, **options)
        change = f"--suite.measures.few={asked}"
        return measure(
            *published, f"--suite={file}", "--only=few", change, out=tmp_path
        )

    path = tmp_path / "small.one/measures/few@edge.json"
    assert again(bins=15) == 0
    told = json.loads(path.read_text())
    assert told["measure"]["options"] == {}
    for options in ({}, {"bins": 15}):
        told["measure"]["options"] = options
        path.write_text(json.dumps(told))
        for said in ({}, {"bins": 15}):
            assert again(**said) == 0
            assert "1 measure is there already" in capsys.readouterr().err
        assert again(bins=10) == 2


@cases.each("late", [False, True])
def test_other_weights_of_the_same_name_are_refused(
    run, file, measured, tmp_path, monkeypatch, late
):
    """Results of other weights are refused, also if another process has just written them."""
    out = tmp_path / "other"
    shutil.copytree(measured, out)
    held = next(out.glob("*-seed0-*")) / "config.json"
    before = held.read_text()
    other = before.replace(json.loads(before)["run"]["digest"], "0")
    claim = workdirs.claim_evaluation

    def claim_late(folder):
        if folder == held.parent:
            held.write_text(other)
        return claim(folder)

    held.write_text(other)
    if late:
        held.unlink()
        monkeypatch.setattr(workdirs, "claim_evaluation", claim_late)
    args = f"--checkpoint={run}", f"--suite={file}", "--step=latest"
    assert measure(*args, out=out) == 1
    assert held.read_text() == other


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
        pairs = [f"{one},{other}" for one, other in zip(classes, order, strict=True)]
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
    for listed in (names, names, names[::-1]):
        (tmp_path / "classes.txt").write_text("\n".join(listed))
        args = f"--classes={tmp_path / 'classes.txt'}", "--only=few", f"--suite={file}"
        codes.append(measure(f"--checkpoint={path}", *args, out=out))
    assert codes == [0, 0, 2]
    assert "holds measures of another network" in capsys.readouterr().err


def test_a_class_that_is_named_twice_is_refused(tmp_path):
    """Images of it would be answered by one of its outputs alone."""
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


def test_rules_beside_a_sets_own_are_refused(run, file, tmp_path, capsys):
    """Its own would answer for all of them, under their names."""
    text = file.read_text().replace(
        '"edge", n=48', '"edge", n=48, aggregate="max_prob"'
    )
    text = text.replace("images=16", 'images=16, aggregates=("mean_prob", "sum_prob")')
    (tmp_path / "suite.py").write_text(text)
    args = f"--checkpoint={run}", f"--suite={tmp_path / 'suite.py'}"
    assert measure(*args, out=tmp_path / "out") == 2
    assert "suite.sets.edge has an aggregate of its own" in capsys.readouterr().err


@cases.each(
    ("change", "said"),
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
    run, file, tmp_path, capsys, change, said
):
    out = tmp_path / "none"
    assert measure(f"--checkpoint={run}", f"--suite={file}", change, out=out) == 2
    err = capsys.readouterr().err.strip().splitlines()[-1]
    assert err.startswith("jbias: ") and said in err
    assert not out.exists()


def test_wrong_arguments_are_told_before_sets_are_opened(run, file, tmp_path, capsys):
    (tmp_path / "taken").touch()
    for change in (
        *("--model=resnet5", "--classes=none.txt", "--checkpoint=none.pth"),
        *("--zoo=none.py", "--step=lats", "--step=77", "--suite.run.step=first"),
        *("--suite.measures.few.imags=3", "--suite.measures.classes.names=()"),
        "--suite.measures.accuracy={'probe': 'pgd', 'sets': ('edge',), 'eps': -1}",
        "--suite.measures.accuracy={'probe': 'human', 'sets': ('edge',), 'folder': 1}",
        "--suite.measures.accuracy={'probe': 'occlusion', 'sets': ('edge',), 'fill': 'blak'}",
        "--suite.measures.accuracy={'probe': 'decoding', 'sets': ('edge',), 'fold': 2}",
    ):
        arguments = f"--checkpoint={run}", f"--suite={file}", change
        assert measure(*arguments, out=tmp_path / "out") == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    for out in (tmp_path / "taken", tmp_path / "taken" / "out"):
        assert measure(f"--checkpoint={run}", f"--suite={file}", out=out) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"jbias: --out: must be a folder, got '{out}', ")
        assert line.endswith("; name another")


def test_a_suite_need_not_say_how_networks_are_run(run, file, tmp_path):
    (tmp_path / "suite.py").write_text(re.sub(r"\n +c.run = .*", "", file.read_text()))
    args = f"--checkpoint={run}", f"--suite={tmp_path / 'suite.py'}", "--only=few"
    assert measure(*args, "--devices=1", out=tmp_path / "out") == 0
    provenance = json.loads(next(tmp_path.glob("out/*/provenance.json")).read_text())
    assert provenance["suite"]["run"] == {"devices": 1}


@cases.each("argument", ["--model=cnn", "--classes=imagenet", "--mean=0.5", "--std=1"])
def test_what_is_said_of_files_is_refused_where_there_are_runs_alone(
    run, file, tmp_path, capsys, argument
):
    args = f"--checkpoint={run}", f"--suite={file}", argument
    assert measure(*args, out=tmp_path / "out") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"jbias: {argument.split('=')[0]}: has no effect on runs")


@pytest.mark.slow
def test_a_step_is_refused_where_there_are_files_alone(
    file, published, tmp_path, capsys
):
    args = *published, f"--suite={file}", "--step=best"
    assert measure(*args, out=tmp_path / "out") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "jbias: --step: has no effect on files; leave it out"


@pytest.mark.slow
def test_a_file_in_the_place_of_a_networks_folder(run, file, tmp_path, capsys):
    args = f"--checkpoint={run}", f"--suite={file}", "--step=latest", "--only=few"
    (one,) = (s for s in networks.from_run(str(run), step="latest", seeds=(1,)))
    (tmp_path / one.name).touch()
    assert measure(*args, out=tmp_path) == 1
    err = capsys.readouterr().err
    told = f"not measured: {one.name}: {tmp_path / one.name}: must be a folder"
    assert told in err and "Errno" not in err
    assert err.splitlines()[-1].endswith(f"; 1 not ({one.name})")


@pytest.mark.slow
@cases.each("model", [(), ("--model=cnn",)])
def test_what_the_zoo_knows_stands_whatever_is_given_beside_it(
    file, published, tmp_path, model
):
    args = *published, f"--suite={file}", "--only=few", *model
    assert measure(*args, out=tmp_path) == 0
    told = json.loads((tmp_path / "small.one" / "config.json").read_text())
    assert told["category"] == "baseline" and told["algorithm"] == "Small"
    assert told["run"]["mean"] == [0, 0, 0] and told["run"]["std"] == [1, 1, 1]


@pytest.mark.slow
@cases.each(
    ("given", "told", "mean"),
    [
        ((), "mean 0, std 1: those of small.one; --mean and --std change it", 0),
        (("--zoo=",), "mean 0.5, std 0.5: the file's metadata; --mean", 0.5),
        (("--mean=.4,.5,.6", "--std=1"), "mean 0.4 0.5 0.6 (--mean), std 1 (--s", 0.4),
        (("--mean=.3",), "mean 0.3 (--mean), std 1 (those of small.one)", 0.3),
    ],
)
def test_constants_are_told_and_can_be_given(
    file, published, tmp_path, capsys, given, told, mean
):
    args = *published, f"--suite={file}", "--only=few", *given
    assert measure(*args, out=tmp_path) == 0
    assert capsys.readouterr().err.count(f": {told}") == 1
    (config,) = tmp_path.glob("*/config.json")
    assert json.loads(config.read_text())["run"]["mean"][0] == mean


@pytest.mark.slow
def test_hidden_pixels_are_black_before_any_constants_are_taken_off(published):
    """The shown pixels are the same for constants from the file and from arguments."""
    rng = np.random.default_rng(0)
    image = rng.integers(1, 256, (4, 32, 32, 3), np.uint8)  # None of it is black.
    batch = inference.Batch(jnp.asarray(image), *[jnp.arange(4)] * 3, count=4)
    path, names = (one.partition("=")[2] for one in published[:2])
    options = dict(masks=("rectangle", "grad_cam"), orders=("most",), fractions=(0.3,))
    made = occlusion.make(fill="black", site="stage1", **options)
    own, given, shown = ((0.5,) * 3,) * 2, ((0.4, 0.5, 0.6), (1.0, 1.0, 0.5)), []
    for constants in ({}, dict(zip(("mean", "std"), given, strict=True))):
        one = networks.from_file(path, classes=names, **constants)
        mean, std = given if constants else own
        assert (one.net.mean, one.net.std) == (mean, std)
        network = one.bind(jnp.float32, mesh.make(1))
        plain = one.net.clone(mean=(0.0,) * 3, std=(1.0,) * 3)
        for condition in ("rectangle 0.3", "grad_cam most 0.3"):
            seen = np.asarray(inference.make_stimuli(network, made, batch, condition))
            hidden = (seen == 0).all(-1)
            assert 0.2 < hidden.mean() < 0.33
            whole = np.where(hidden[..., None], 0, image.astype(np.float32) / 255)
            np.testing.assert_allclose(seen, whole, rtol=0, atol=1e-7)
            # So what the network's first layer gets of black is -mean / std.
            taken = (seen - np.float32(mean)) / np.float32(std)
            np.testing.assert_allclose(
                jax.jit(network.apply)(network.variables, seen),
                jax.jit(plain.apply)(network.variables, taken),
                rtol=1e-4,
                atol=1e-5,
            )
            shown += [seen] * (condition == "rectangle 0.3")
    np.testing.assert_array_equal(*shown)


@cases.each("given", ["--mean=1,2", "--mean=x", "--std=0", "--std=1,nan,1"])
def test_constants_that_are_none_are_refused(given, capsys):
    with pytest.raises(SystemExit):
        evaluate.main([given, "--checkpoint=x", "--suite=y"])
    assert "numbers such as 0.485,0.456,0.406, or one, got" in capsys.readouterr().err


@cases.each("width", [4, 8])
def test_another_file_of_a_published_name_is_none_of_the_zoo(
    file, published, tmp_path, capsys, width
):
    """An entry says what else must hold: here a width, of a network whose width is 4."""
    needing = ZOO.replace("NONE)", f"NONE, needs={{'width': {width}}})")
    (tmp_path / "zoo.py").write_text(needing)
    args = *published, f"--zoo={tmp_path / 'zoo.py'}", f"--suite={file}", "--only=few"
    assert measure(*args, out=tmp_path / "out") == 0
    (folder,) = (tmp_path / "out").iterdir()
    told = json.loads((folder / "config.json").read_text())
    name, category, mean = ("small.one", "baseline", 0)
    if width == 8:
        name, category, mean = ("published", "published", 0.5)
    assert (folder.name, told["category"]) == (name, category)
    assert told["run"]["mean"] == [mean] * 3
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
    ("arguments", "said"),
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
                (*given, argument),
                f"{argument.split('=')[0]} has no effect with {where};",
            )
            for where, given, arguments in (
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
def test_arguments_that_would_be_ignored_are_refused(arguments, said, capsys):
    with pytest.raises(SystemExit) as ended:
        evaluate.main(arguments)
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_help_has_every_argument_with_its_words(capsys):
    with pytest.raises(SystemExit):
        evaluate.main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    actions = evaluate.parser()._actions
    assert all(action.help for action in actions)
    for word in (*state_dicts.SUFFIXES, "--suite.KEY=VALUE", "JBIAS_TRACEBACK", "130"):
        assert word in shown


def test_a_network_of_which_nothing_was_measured_does_not_count(file, tmp_path, capsys):
    net = models.MODELS["cnn"](1000, width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    path = tmp_path / "net.safetensors"
    models.save_safetensors(path, net, variables, names="own")
    arguments = f"--checkpoint={path}", f"--suite={file}"
    assert measure(*arguments, out=tmp_path / "out") == 2
    assert "measured 0 networks" in capsys.readouterr().err


@cases.each(
    ("count", "listed", "remedy"),
    [
        (1000, "", "or measure it on ImageNet by `jbias measure --imagenet=DIR`"),
        (
            3,
            "circle\nthree\nfour",
            "--classes=FILE.csv with lines train_class,test_class",
        ),
    ],
)
def test_other_classes_than_the_sets_are_told_in_one_line(
    file, tmp_path, capsys, count, listed, remedy
):
    """Whatever shares nothing with the sets, or too little; not a line a set.

    One set has a mapping, of the classes of yet another network.
    """
    mapping, suite_file = tmp_path / "mapping.csv", tmp_path / "suite.py"
    mapping.write_text("train_class,test_class\nbeagle,circle\n")
    mapped = f'"edge", n=48, mapping="{mapping}"'
    suite_file.write_text(file.read_text().replace('"edge", n=48', mapped))
    net = models.MODELS["cnn"](count, width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    path, names = tmp_path / "net.safetensors", tmp_path / "names.txt"
    models.save_safetensors(path, net, variables, names="own")
    names.write_text(listed)
    more = (f"--classes={names}",) if listed else ()
    args = f"--checkpoint={path}", f"--suite={suite_file}", *more
    assert measure(*args, out=tmp_path / "out") == 2
    err = capsys.readouterr().err
    (line,) = (line for line in err.splitlines() if "its classes are" in line)
    assert f"net: its classes are {count:,} of " in line
    assert "cue_conflict, edge want 16 of 'names' (" in line
    assert remedy in line and "--classes=FILE" in line
    assert "data.labels" not in err and "mapping.csv" not in err


def test_gradients_of_classes_that_several_answer_for_are_refused(
    run, file, tmp_path, capsys
):
    """Nobody would know which of the network's classes to follow; said of what it is."""
    source = data.load("shapes", "edge", n=48)
    first, second, *_ = source.classes
    lines = [f"{name},{first if name == second else name}" for name in source.classes]
    mapping = tmp_path / "mapping.csv"
    mapping.write_text("\n".join(["train_class,test_class", *lines]))
    text = file.read_text()
    text = text.replace(
        'split="edge", n=48', f'split="edge", n=48, mapping="{mapping}"'
    )
    salient = (
        'grad=dict(probe="occlusion", masks=("rectangle", "grad_cam"), sets=("edge",))'
    )
    attack = 'pgd=dict(sets=("edge",), steps=1)'
    text = text.replace("few=dict(", f"{salient}, {attack}, few=dict(")
    (tmp_path / "suite.py").write_text(text)
    args = f"--suite={tmp_path / 'suite.py'}", "--step=latest", "--only=pgd,few,grad"
    assert measure(f"--checkpoint={run}", *args, out=tmp_path / "out") == 1
    err = capsys.readouterr().err
    lines = err.splitlines()
    for name in ("pgd@edge: pgd", "grad@edge: occlusion"):
        told = (
            f"{name} must be on the network's own classes, whose gradients it follows"
        )
        assert sum(told in line for line in lines) == 2  # Once a seed.
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
    ("name", "left", "lacking"),
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
def test_a_run_that_lacks_what_it_was_is_refused(run, tmp_path, name, left, lacking):
    """Whatever is missing of it, in one line that says where."""
    broken = tmp_path / "broken"
    shutil.copytree(run, broken)
    held = json.loads((broken / name).read_text())
    for key, value in left.items() if left else ():
        outer, _, inner = key.partition(".")
        if inner:
            del held[outer][inner]
        elif value is None:
            del held[outer]
        else:
            held[outer] = value
    (broken / name).write_text(json.dumps(held if left else left))
    with pytest.raises(
        ValueError, match=f"^{broken / name}: must be a run's, {lacking}"
    ):
        list(networks.from_run(str(broken), step="latest"))


def test_runs_of_nothing_are_named_and_the_others_measured(
    file, published, tmp_path, capsys
):
    """With what was trained, and as models.save_run has it."""
    for name in ("trained", "saved"):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "trained/provenance.json").write_text("{}")
    more = [f"--checkpoint={tmp_path / name}" for name in ("trained", "saved")]
    args = *more, *published, f"--suite={file}", "--only=few"
    assert measure(*args, out=tmp_path / "out") == 1
    err = capsys.readouterr().err
    for name, key in (("trained", "seeds"), ("saved", "model.name")):
        where = f"not measured: {tmp_path / name}/config.json: must be a run's, with"
        assert f"{where} {key}, got none" in err
    assert "measured 1 network in" in err


@cases.each("fault", [MemoryError(), errors.FlaxError("shapes")])
def test_a_file_that_cannot_be_opened_is_named_whatever_it_is_of(
    run, file, tmp_path, capsys, monkeypatch, fault
):
    def cannot(*args, **options):
        raise fault

    monkeypatch.setattr(networks, "from_file", cannot)
    (tmp_path / "huge.pth").touch()
    args = f"--checkpoint={tmp_path}/huge.pth", f"--suite={file}"
    assert measure(*args, "--only=few", out=tmp_path / "out") == 2
    err = capsys.readouterr().err
    assert (
        f"not measured: {tmp_path}/huge.pth: {str(fault) or 'not enough memory'}" in err
    )
    monkeypatch.setattr(networks, "from_run", cannot)
    args = f"--follow={run}", "--once", f"--suite={file}"
    assert measure(*args, "--only=few", out=tmp_path / "out") == 2
    told = re.escape(str(fault) or "not enough memory")
    assert re.search(rf"not measured: step \d+: {told}", capsys.readouterr().err)


def test_a_network_that_fails_is_named_and_the_others_measured(
    run, file, tmp_path, capsys, monkeypatch
):
    """Whatever it is of: shapes that flax refuses, or memory that lacks."""
    measured, failed = runner.run_suite, []

    def once(subject, *args, **options):
        if not failed:
            failed.append(subject.name)
            raise errors.ScopeParamShapeError("kernel", "/fc", (4, 16), (9, 16))
        return measured(subject, *args, **options)

    monkeypatch.setattr(runner, "run_suite", once)
    args = f"--checkpoint={run}", f"--suite={file}", "--step=latest", "--only=few"
    assert measure(*args, out=tmp_path / "out") == 1
    assert f"not measured: {failed[0]}" in capsys.readouterr().err
    assert len(list((tmp_path / "out").glob("*/evals/few@edge.jsonl"))) == 1


@cases.each(
    "fault",
    [
        jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of\n memory"),
        errors.ScopeParamShapeError("kernel", "/fc", (4, 16), (9, 16)),
        MemoryError(),
    ],
)
def test_a_measure_that_fails_leaves_the_others(
    file, published, tmp_path, capsys, monkeypatch, fault
):
    describe = inference.to_decisions

    def refuses(found, columns):
        if len(columns["index"]) == 16:
            raise fault
        return describe(found, columns)

    monkeypatch.setattr(inference, "to_decisions", refuses)
    args = *published, f"--suite={file}", "--only=few,classes"
    assert measure(*args, out=tmp_path) == 1
    err = capsys.readouterr().err
    (line,) = (line for line in err.splitlines() if "not measured: small.one: " in line)
    assert "few@edge: " in line
    lacks_memory = not isinstance(fault, errors.FlaxError)
    assert line.endswith("; --suite.run.batch=N with less at once") == lacks_memory
    assert "1 of them in part (small.one)" in err
    assert set(results.read(f"{tmp_path}/*")["metric"]) == {"class_accuracy"}


def test_a_network_that_stops_in_the_middle_is_measured_in_part(
    file, published, tmp_path, capsys, monkeypatch
):
    def stops(self, task, *found, keep=runner.NetworkEvaluation.store):
        if task.measure.name == "few":
            raise OSError("no space left")
        keep(self, task, *found)

    monkeypatch.setattr(runner.NetworkEvaluation, "store", stops)
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
        mine = valid[valid["seed"] == subject.fields["seed"]].sort_values("step")
        assert subject.fields["step"] == mine.loc[mine["value"].idxmax(), "step"]


@pytest.mark.slow
@cases.each("agree", [0, 16])
def test_lower_precision_is_compared_on_as_many_images(run, file, tmp_path, agree):
    """Under the first and last condition of whatever shows images."""
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
@cases.each("plain", [True, False], quick=("True",))
@cases.each("own", ["bfloat16", "float32"])
def test_the_precision_that_was_used_is_told(file, tmp_path, plain, own):
    """An algorithm with answers of its own keeps its run's, and is not compared."""
    net = models.MODELS["cnn"](16, width=4, dtype=own)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    path, lines = tmp_path / "net.safetensors", []
    models.save_safetensors(path, net, variables, names="own")
    (tmp_path / "names").write_text(
        "\n".join(data.load("shapes", "edge", n=48).classes)
    )
    subject = networks.from_file(str(path), classes=str(tmp_path / "names"))
    if not plain:
        decide = lambda *at: net.apply(*at)
        subject = dataclasses.replace(subject, net=net, decide=decide)
    config = jc.load(str(file), ["--suite.run.precision=bfloat16"], flag="suite")
    asked = suites.open_suite(config, lines.append, only=("few",))
    assert not runner.run_suite(
        subject, asked, tmp_path, lines.append, has_all_measures=False
    )
    told = json.loads((tmp_path / "net/measures/few@edge.json").read_text())
    assert told["precision"] == ("bfloat16" if plain else own)
    metrics = set(results.read(f"{tmp_path}/net")["metric"])
    assert ("agreement" in metrics) == plain
    alone = not plain and own == "bfloat16"
    assert told.get("agreement", "").startswith("not made: ") == alone
    assert ("net: answers in its own way in bfloat16" in "\n".join(lines)) == alone
    assert not runner.run_suite(
        subject, asked, tmp_path, lines.append, has_all_measures=False
    )
    assert "net: 1 measure is there already" in lines


def test_files_of_weights_are_found_wherever_they_lie_below(tmp_path):
    """Files are found in the layout of hubs: a folder per model, and links into a store."""
    for name in ("a.pth", "notes.txt", "b/model.safetensors", "b/c/D.PT", ".d/e.pth"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "b" / "linked.bin").symlink_to(tmp_path / "notes.txt")
    (tmp_path / "b" / "back").symlink_to(tmp_path)
    found = [
        path.removeprefix(f"{tmp_path}/")
        for path in networks.find_checkpoints([str(tmp_path)])
    ]
    assert found == ["a.pth", "b/c/D.PT", "b/linked.bin", "b/model.safetensors"]


def test_all_spellings_of_one_network_are_one(run, tmp_path, monkeypatch):
    """Several paths to a run or a file count once; a link with another name is another file."""
    (tmp_path / "erm").symlink_to(run)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.pth").touch()
    (tmp_path / "a" / "resnet50_prime.pth").symlink_to("x.pth")
    monkeypatch.chdir(tmp_path)
    spelled = ["erm", f"{run}/", f"{run.parent}/../{run.parent.name}/erm", "./erm/"]
    spelled += ["a/x.pth", "a/../a/x.pth", f"{tmp_path}/a/x.pth", "a/"]
    assert networks.find_checkpoints(spelled) == [
        "erm",
        "a/x.pth",
        "a/resnet50_prime.pth",
    ]


def test_the_suite_of_biases_is_there_without_any_data():
    """All its sets on the embedded data, and options that its probes take."""
    opened = suites.open_suite(biases.get_config("smoke"), lambda line: None)
    assert not opened.missing


@cases.each(
    ("text", "said"),
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
def test_arguments_without_a_say_are_refused(text, said):
    """Arguments without effect are refused, so that a forgotten data=imagenet is noticed."""
    with pytest.raises(ValueError, match=f"^suite argument: .*{said}") as refused:
        biases.get_config(text)
    assert "\n" not in str(refused.value)


@cases.each("data_set", ["shapes", "tiny_imagenet", "imagenet"])
def test_every_argument_of_the_suite_of_biases_has_a_say_somewhere(data_set):
    """An argument that USED leaves out would be refused everywhere."""
    listed = set(re.findall(r"^:(\w+)", biases.__doc__, re.MULTILINE))
    assert listed | {"root"} == {
        *biases.SHARED_ARGUMENTS,
        *itertools.chain(*biases.ARGUMENTS.values()),
    }
    used = {name: "a" for name in biases.ARGUMENTS[data_set] if name not in ("root",)}
    used |= {"subset": "1", "correlation": "0.5"}
    used = {name: used[name] for name in biases.ARGUMENTS[data_set] if name in used}
    whole = {"data": data_set, "root": "a", **used}
    if data_set == "shapes":
        del whole["root"]
    text = ",".join(f"{name}={value}" for name, value in whole.items())
    found = biases.get_config(text).to_json()
    for name in used:
        # What a config without it does not have; humans are compared on either.
        less = ",".join(one for one in text.split(",") if one.split("=")[0] != name)
        assert biases.get_config(less).to_json() != found, name


@cases.each("sets", ["", "data=imagenet,root=no,stimuli=no,humans=no,"])
def test_images_bounds_what_changes_them_and_a_trial_bounds_all(sets):
    """Measures of unchanged images use whole sets, except in a trial, which limits all."""
    as_they_are = {"accuracy", "calibration", "classes", "shape_bias", "human"}
    for text, of_whole, of_changed in (("images=9", 0, 9), ("smoke", 240, 16)):
        c = biases.get_config(f"{sets}{text}")
        for name in {*c.measures} - {"decoding"}:
            images = c.measures[name].get("images", 0)
            assert images == (of_whole if name in as_they_are else of_changed), name


def contrast(tmp_path) -> tuple[pathlib.Path, list[str]]:
    """Four images of model-vs-human's contrast, and one person's answers to them."""
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
    path, said = tmp_path / out, class_names.Classes(("a", "b", "c"), "names")
    if out == "folder":
        models.save_run(path, net, variables, said)
    else:
        models.save_safetensors(path, net, variables, "own", said)
    opened = networks.from_file(str(path))
    assert (opened.classes, opened.space) == said
    listed = tmp_path / "names.txt"
    listed.write_text("d\ne\nf\n")  # Who gives names is asked first.
    other = networks.from_file(str(path), classes=str(listed))
    assert other.classes == tuple("def")
    assert opened.about["classes_from"] == "the file's own"
    assert other.about["classes_from"] == f"--classes={listed}"
    with pytest.raises(ValueError, match="the network's 3 classes, got 1000 from imag"):
        networks.from_file(str(path), classes="imagenet")


@pytest.mark.slow
@cases.each(
    ("given", "told"),
    [(None, "imagenet, by itself"), ("imagenet", "--classes=imagenet")],
)
def test_classes_that_were_given_are_told_from_those_that_were_not(
    given, told, tmp_path
):
    net = models.MODELS["cnn"](1000, width=1)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    models.save_safetensors(tmp_path / "x.safetensors", net, variables, "own")
    opened = networks.from_file(str(tmp_path / "x.safetensors"), classes=given)
    assert opened.about["classes_from"] == told and opened.space == "wnid"


def test_a_folder_that_is_not_there_is_told_once_and_as_it_was_typed(tmp_path):
    """Three sets in one folder are one line, which has the user's own argument."""
    config = biases.get_config(f"data=imagenet,root=no,stimuli={tmp_path}/typo")
    said = []
    with pytest.raises(ValueError, match="none of its sets was found"):
        suites.open_suite(config, said.append, only=("accuracy",))
    (line,) = (one for one in said if "typo" in one)
    assert line.startswith(
        "not here, so not measured: suite.sets.cue-conflict, edge, silhouette: stimuli= "
        f"must be an existing folder, got '{tmp_path}/typo'"
    )
    assert line.count("; expected: ") == 1


def test_people_whose_answers_are_not_there_are_told_and_the_rest_is_measured(tmp_path):
    contrast(tmp_path)
    text = f"data=imagenet,root=no,others={tmp_path},humans={tmp_path}/nope"
    said = []
    opened = suites.open_suite(biases.get_config(text), said.append)
    (line,) = (one for one in said if "nope" in one)
    assert f"suite.measures.human: humans={tmp_path}/nope: must be a folder" in line
    assert "does not exist" in line
    left = {one.name for one, _ in opened.tasks()}
    assert "accuracy" in left and "human" not in left
    assert "human@contrast" in opened.missing
    with pytest.raises(ValueError, match="nothing is left to measure"):
        suites.open_suite(biases.get_config(text), said.append, only=("human",))
    (people,) = (tmp_path / "people").rglob("*.csv")
    people.write_text("subj,trial\n")  # A wrong file inside stays an error.
    with pytest.raises(ValueError, match=":1: the header must have"):
        suites.open_suite(
            biases.get_config(text.replace("nope", "people")), said.append
        )


@cases.each(
    ("text", "only", "said"),
    [
        ("data=imagenet,root=no", "shape_bias", "'shape_bias' needs stimuli=DIR in"),
        ("data=imagenet,root=no", "human", "needs humans=DIR, and stimuli=DIR or oth"),
        ("", "human", "with data=imagenet or data=tiny_imagenet, in the argument"),
        ("data=imagenet,root=no", "edge", "unknown 'edge'"),  # A set is no measure.
        ("", "acuracy", "unknown 'acuracy'; did you mean 'accuracy'"),
    ],
)
def test_measures_that_need_an_argument_say_which(text, only, said):
    with pytest.raises(ValueError, match=f"^--only: .*{said}"):
        suites.open_suite(biases.get_config(text), print, only=(only,))


def test_people_are_compared_by_degree_of_distortion(tmp_path):
    """The 17 sets are asked for; of one by degrees, degrees survive the kept decisions."""
    config = biases.get_config(f"data=imagenet,root=no,others={tmp_path},humans=people")
    config.measures = dict(human=config.measures.human.to_dict())
    assert len(config.measures.human.sets) == 14
    contrast(tmp_path)
    config.measures.human.root = str(tmp_path / "people")
    told = []
    opened = suites.open_suite(config, told.append)
    assert sum("not here" in line for line in told) == 13  # All but this one.
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
        numbers = opened.make_probe(measure, "contrast").numbers({"": one})
        by = {(n.metric, n.condition): n for n in numbers}
        assert by["ood_accuracy", ""][1:4] == (2 / 3, 2, 3)  # c100 does not count.
        assert by["human_accuracy", "c10"].value == 2 / 3
        assert ("error_consistency", "c100") in by
    np.testing.assert_array_equal(
        back.columns["condition"], source.columns["condition"]
    )


def test_what_is_known_of_sets_survives_calls_for_others(
    file, published, tmp_path, capsys
):
    """A report asks for each set's name; and the latest call opens its own sets alone."""
    args = *published, f"--suite={file}"
    assert measure(*args, "--only=accuracy", out=tmp_path) == 0
    path = tmp_path / "small.one/provenance.json"
    first = json.loads(path.read_text())
    assert [*first["missing"]] == ["photos"]
    other = tmp_path / "other.py"
    text = file.read_text().replace("classes=dict(", "more=dict(probe='classes', ")
    text = text.replace("edge=dict(", "fresh=dict(").replace('"edge"', '"fresh"')
    other.write_text(text.replace('split="fresh"', 'split="edge"'))
    assert measure(*published, f"--suite={other}", "--only=few", out=tmp_path) == 0
    second = json.loads(path.read_text())
    assert {*second["data"]} == {"edge", "cue_conflict", "fresh"}
    assert second["data"]["edge"] == first["data"]["edge"]
    assert second["missing"] == first["missing"]
    assert {*second["suite"]["sets"]} == {*first["suite"]["sets"], "fresh"}
    # What --only leaves out was not asked for.
    assert {*first["suite"]["measures"]} == {"accuracy"}
    assert {*second["suite"]["measures"]} == {"accuracy", "few"}
    (read,) = network_records.read([str(tmp_path / "small.one")])
    assert read.split("cue_conflict") == "cue_conflict"
    assert [line.partition(" ")[0] for line in read.missing_measures] == ["photos"]
    # What lacked and came is not missing any more.
    come = tmp_path / "come.py"
    found = 'photos=dict(data="shapes", split="edge", n=48)'
    come.write_text(
        file.read_text().replace(
            'photos=dict(data="geirhos", split="edge", root="nowhere")', found
        )
    )
    assert measure(*published, f"--suite={come}", "--only=accuracy", out=tmp_path) == 0
    third = json.loads(path.read_text())
    assert third["missing"] == {} and "photos" in third["data"]
    assert "fresh" in third["data"]


def test_other_answers_of_people_are_refused(tmp_path, capsys):
    """Other answers and other images are refused; the same answers in another order are not."""
    path, (header, *rows) = contrast(tmp_path)
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
    changed = [row.replace(",dog,", ",bear,") for row in rows]
    for lines in (rows, rows[::-1], changed):
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
    """A network is asked once about a set as it is; both measures keep the answers."""
    args = (f"--checkpoint={run}", f"--suite={file}")
    change = "--suite.measures.few.images=0"
    assert measure(*args, change, out=tmp_path) == 0
    folder = next(tmp_path.glob("*-seed0-*"))
    told = [
        json.loads((folder / f"measures/{name}@edge.json").read_text())
        for name in ("accuracy", "few")
    ]
    assert told[0]["seconds"] is not None and told[1]["seconds"] is None
    assert told[0]["cost"]["device_hours"] > 0 and "cost" not in told[1]
    one, other = (
        decisions.read_conditions(folder / f"decisions/edge/{name}.parquet")[""]
        for name in ("accuracy", "few")
    )
    assert (one.prediction == other.prediction).all()


def test_measures_by_other_rules_share_the_answers(
    file, published, tmp_path, monkeypatch
):
    """A network is asked once; each measure gets what it gets alone, to the bit."""
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
    asked, decide = [], inference.run_probe

    def counted(network, made, batches, rules, **options):
        asked.append([*rules])
        return decide(network, made, batches, rules, **options)

    monkeypatch.setattr(inference, "run_probe", counted)
    args = *published, f"--suite={tmp_path / 'suite.py'}"
    both = (
        "--only=accuracy,shape_bias",
        "--suite.measures.accuracy.sets=('cue_conflict',)",
    )
    assert measure(*args, *both, out=tmp_path / "together") == 0
    assert len(asked) == 1 and {*asked[0]} == {"mean_prob", "sum_prob", "mean_logit"}
    for name, conditions in (("accuracy", [""]), ("shape_bias", ["", "mean_logit"])):
        alone = both[1], f"--only={name}"
        assert measure(*args, *alone, out=tmp_path / "alone") == 0
        one, other = (tmp_path / how / "small.one" for how in ("together", "alone"))
        records = f"evals/{name}@cue_conflict.jsonl"
        assert (one / records).read_text() == (other / records).read_text()
        kept = f"decisions/cue_conflict/{name}.parquet"
        found, same = (decisions.read_conditions(at / kept) for at in (one, other))
        assert [*found] == [*same] == conditions
        for key in conditions:
            np.testing.assert_array_equal(found[key].prediction, same[key].prediction)
            for column, values in same[key].columns.items():
                np.testing.assert_array_equal(found[key].columns[column], values)
    assert len(asked) == 3


def test_cues_have_ranks_among_logits(file, published, tmp_path, monkeypatch):
    """The records and the page of a file of weights have the ranks of its logits."""
    seen, ask = [], inference.BoundJaxNetwork.predict

    def kept(self, image, shown):
        seen.append(ask(self, image, shown))
        return seen[-1]

    monkeypatch.setattr(inference.BoundJaxNetwork, "predict", kept)
    text = file.read_text().replace(
        "few=dict(", "shape_bias=dict(sets=both[1:]), few=dict("
    )
    (tmp_path / "suite.py").write_text(text)
    args = *published, f"--suite={tmp_path / 'suite.py'}", "--only=accuracy,shape_bias"
    measured = "--suite.measures.accuracy.sets=('cue_conflict',)"  # Asks first.
    assert measure(*args, measured, out=tmp_path) == 0
    logits = np.concatenate(seen)[:240]
    path = tmp_path / "small.one/decisions/cue_conflict/shape_bias.parquet"
    columns, mrr = decisions.read_conditions(path)[""].columns, {}
    differ = columns["label"] != columns["texture"]
    for cue, name in (("label", "shape"), ("texture", "texture")):
        ranks = cue_conflict.label_ranks(logits, columns[cue])
        np.testing.assert_array_equal(columns[f"rank_{name}"], ranks)
        mrr[name] = (1 / ranks[differ]).mean()
    assert mrr["shape"] != mrr["texture"]
    shown = networks_report.blocks(network_records.read([f"{tmp_path}/small.one"]), [])
    tables_shown = [b for _, b in shown if hasattr(b, "head")]
    (table,) = [table for table in tables_shown if table.name == "shape_bias"]
    for cue, value in mrr.items():
        assert table.data[f"mrr_{cue}"].tolist() == [pytest.approx(value)]
        cell = table.rows[0][table.head.index(f"MRR of {cue}")]
        assert cell == f"{value:.3f}"


@pytest.mark.slow
def test_what_looks_inside_reads_files_as_it_goes(run, file, tmp_path, monkeypatch):
    """A set that does not fit in memory is told of as one that does."""
    inside = (
        'decoding=dict(sets=("cue_conflict",), sites=("stage1",), folds=3, width=8,'
    )
    text = file.read_text()
    text = text.replace(
        "few=dict(", f"{inside} most=200, strengths=(1e-2,)), few=dict("
    )
    (tmp_path / "suite.py").write_text(text)
    asked, read = [], loader.LazyImages.__getitem__

    def noted(self, rows):
        asked.append(len(found := read(self, rows)))
        return found

    monkeypatch.setattr(loader.LazyImages, "__getitem__", noted)
    one = lambda self, number: self.images[number]
    monkeypatch.setattr(sources.ArraySource, "image", one, raising=False)
    found = []
    for in_files in (False, True):
        if in_files:
            monkeypatch.setattr(loader, "load_into_memory", lambda *_, **options: {})
        args = f"--suite={tmp_path / 'suite.py'}", "--step=latest", "--only=decoding"
        out = tmp_path / f"{in_files}"
        assert measure(f"--checkpoint={run}", *args, out=out) == 0
        assert asked == [200, 200] * in_files  # Of 240, and twice: each seed.
        frame = results.read(f"{out}/*").sort_values(["seed", "condition", "metric"])
        found.append(frame[["condition", "metric", "value"]].to_numpy().tolist())
    assert found[0] == found[1]


def test_networks_saved_as_files_and_runs_are_measured(file, tmp_path):
    """A network of 32 pixels through each form it can be saved in; names that clash."""
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
    found = results.read(f"{tmp_path}/out/*")
    assert set(found["run"]) == {"one-net", "two-net", "saved"}
    assert found.groupby("metric", observed=True)["value"].nunique().max() == 1


def test_a_probe_gets_images_of_another_set(file, monkeypatch, tmp_path):
    """A probe gets the images of the named set, or of its own; another set, another measure."""
    given = []

    def make(*, others):
        given.append(others)
        return probe_registry.make_plain()

    monkeypatch.setitem(suites.MAKERS, "mixed", make)
    config = jc.load(str(file), flag="suite")
    config.measures = dict(
        own=dict(probe="mixed", sets=("edge",)),
        cues=dict(probe="mixed", sets=("edge",), others="cue_conflict"),
        photos=dict(probe="mixed", sets=("edge",), others="photos"),
    )
    asked = suites.open_suite(config, print)
    assert [(one.name, of) for one, of in asked.tasks()] == [
        ("cues", "edge"),
        ("own", "edge"),
    ]
    given = [one for one in given if one.name]  # Others try the options.
    assert [one.name for one in given] == ["cue_conflict", "edge"]
    images = asked.images["cue_conflict"]
    held = given[0].read()
    assert np.array_equal(held, images) and len(images) == 240
    assert isinstance(held.sharding, jax.sharding.NamedSharding)  # Laid out once,
    assert held.is_fully_replicated and held.devices() == {
        *jax.devices()
    }  # everywhere.
    network = types.SimpleNamespace(dtype=lambda asked: asked)
    measuring = runner.NetworkEvaluation(network, asked, tmp_path, print)
    told = [measuring.describe(task) for task in asked.tasks()]
    assert "others" not in told[1]["dataset"]
    assert told[0]["dataset"]["others"] == asked.sources["cue_conflict"].fingerprint
    monkeypatch.setattr(suites, "MAX_PARTNERS", 1)
    assert asked.make_partners("edge").read().shape == (1, 32, 32, 3)


def test_other_images_for_a_probe_that_shows_none_are_refused(file):
    config = jc.load(str(file), flag="suite")
    config.measures.few.others = "cue_conflict"
    with pytest.raises(ValueError, match=r"few\.others: plain shows no other images"):
        suites.open_suite(config, print)


@cases.each(
    ("args", "said"),
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
def test_words_that_say_nothing_are_refused(args, said, capsys):
    with pytest.raises(SystemExit) as ended:
        evaluate.main(args)
    assert ended.value.code == 2 and said in capsys.readouterr().err


class Answers:
    """A model that is no network of ours: it answers images, and no more."""

    name, space, digest, graded = "theirs", "names", "0", True
    apply = variables = at = net = None

    def __init__(self, classes, predict):
        self.classes, self.predict = classes, predict
        self.preprocessing, self.about = {"resize": 32}, {"category": "others"}
        self.fields = dict(run="theirs", algorithm="theirs", variant="", model="svm")
        self.fields |= dict(train_data="unknown", stage=0, seed=0, step=0, epoch=0.0)

    def answered(self, dataset, conditions):
        return None

    def dtype(self, asked):
        return np.float32

    def bind(self, asked, devices):
        return self


def test_any_model_that_answers_is_measured_and_what_it_has_not_is_left_out(
    file, tmp_path
):
    """By name, where a measure needs gradients or sites; and where it has no answer."""
    more = 'pgd=dict(sets=("edge",)), decoding=dict(sets=("cue_conflict",)), '
    more += 'spectral=dict(sets=("edge",), cutoffs=(0.3, 0.5), draws=10), few=dict('
    (tmp_path / "suite.py").write_text(file.read_text().replace("few=dict(", more))
    config = jc.load(str(tmp_path / "suite.py"), flag="suite")
    config.run.precision = "bfloat16"  # It keeps its own, and is not compared.
    asked = suites.open_suite(config, print)
    source = asked.sources["edge"]
    labels, seen = np.asarray(source.columns["label"]), set()

    def looked_up(image, shown):
        """Return decisions looked up in a table of answers to some unchanged images of the set."""
        seen.add((shown.dataset, shown.condition))
        if shown.condition:
            raise ValueError(f"has no answers under {shown.condition!r}")
        right = np.eye(16)[labels[np.asarray(shown.index) % 48]]
        return np.where((np.asarray(shown.index) % 4 == 0)[:, None], -right, right)

    network = Answers(tuple(source.classes), looked_up)
    refused = runner.run_suite(network, asked, tmp_path, print)
    lacking = dict(line.split(": ", 1) for line in refused)
    assert "needs a network's gradients" in lacking["pgd@edge"]
    assert "needs a network's sites inside" in lacking["decoding@cue_conflict"]
    assert lacking["spectral@edge"] == "has no answers under 'unfiltered'"
    assert len(lacking) == 3 and ("edge", "") in seen
    found = results.read(tmp_path / "theirs")
    found = found[(found["dataset"] == "edge") & (found["metric"] == "accuracy")]
    assert found.set_index("condition")["count"][""] == 36
    assert "agreement" not in set(results.read(tmp_path / "theirs")["metric"])
    held = json.loads((tmp_path / "theirs/config.json").read_text())
    assert held["run"]["resize"] == 32 and held["category"] == "others"
    assert [*runner.run_suite(network, asked, tmp_path, print)] == refused


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
    """Each of the 16 classes once, with the texture of the one that is always answered."""
    known = {*tables.wnids()}
    members = {
        name: next(wnid for wnid in wnids if wnid in known)
        for name, wnids in labels.geirhos16().items()
        if name not in ("airplane", "clock")
    }
    answered, *_ = members
    for i, name in enumerate(labels.geirhos16()):
        path = tmp_path / f"cue-conflict/{name}/{name}1-{answered}{i}.png"
        path.parent.mkdir(parents=True)
        Image.new("RGB", (32, 32), (i, i, i)).save(path)
    net = models.MODELS["cnn"](len(members), width=4)
    variables = net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    variables = jax.tree.map(jnp.zeros_like, variables)  # The first class, always.
    said = class_names.Classes(tuple(members.values()), "wnid")
    models.save_safetensors(tmp_path / "net.safetensors", net, variables, "own", said)
    (tmp_path / "suite.py").write_text(CONFLICTS)
    out = tmp_path / "out"
    suited = f"--suite={tmp_path / 'suite.py'}:{tmp_path}"
    path = f"--checkpoint={tmp_path / 'net.safetensors'}"
    assert measure(path, "--zoo=", suited, out=out) == 0
    found = results.read(out / "net")
    found = found[~found["condition"].str.contains("class=")]
    counts = {one.metric: (one.count, one.n) for one in found.itertuples()}
    assert counts["accuracy"] == (1, 14)
    assert counts["accuracy_shape"] == (1, 16)
    assert counts["accuracy_texture"] == (16, 16)
    assert counts["fraction_texture"] == (13, 16)
    assert counts["shape_bias"] == (0, 13)
    kept = out / "net/decisions/conflict/shape_bias.parquet"
    label = decisions.read_conditions(kept)[""].columns["label"]
    assert len(label) == 16 and (label < 0).sum() == 2
    # What was measured when such images were left out is another measure.
    told = out / "net/measures/shape_bias@conflict.json"
    told.write_text(told.read_text().replace('"images": 16', '"images": 14'))
    assert measure(path, "--zoo=", suited, out=out) == 2
    assert "(then != now): images: 14 != 16" in capsys.readouterr().err


@cases.each(
    ("trained", "shape", "refused"),
    [
        ("stacked", (32, 32), "must be 2 to 1 in height to width, as those of stacked"),
        ("stacked", (64, 32), ""),
        ("cifar10", (64, 32), "must be 1 to 1 in height to width, as those of cifar10"),
        ("cifar10+cifar100", (64, 32), "got 64 x 32 pixels"),
        ("cifar10", (32, 32), ""),
        ("unknown", (64, 32), ""),
    ],
)
def test_images_of_another_form_than_those_of_training_are_refused(
    trained, shape, refused
):
    source = data.load("shapes", "edge", n=16)
    images = np.zeros((16, *shape, 3), np.uint8)
    source = dataclasses.replace(source, images=images)
    asked = types.SimpleNamespace(
        sources={"test": source},
        images={"test": images},
        config={"sets": {"test": {}}},
        measures=[suites.Measure("a", "plain", ("test",), 0, ("mean_prob",), {})],
    )
    subject = types.SimpleNamespace(
        classes=source.classes,
        space=source.space,
        fields={"train_data": trained},
        about={},
    )
    if not refused:
        assert len(prepared_sets.prepare(subject, asked, "test", print).index) == 16
        return
    with pytest.raises(ValueError, match=refused):
        prepared_sets.prepare(subject, asked, "test", print)


def test_costs_take_what_the_suite_assumes(file, published, tmp_path, capsys):
    args = *published, f"--suite={file}", "--only=few"
    energy = "--suite.run.energy={'watts': 100, 'pue': 2.0}"
    assert measure(*args, energy, out=tmp_path) == 0
    (kept,) = tmp_path.rglob("few@edge.json")
    cost = json.loads(kept.read_text())["cost"]
    assert (cost["watts"], cost["pue"], cost["source"]) == (100, 2.0, "given")
    assert cost["energy_kwh"] == pytest.approx(cost["device_hours"] * 0.2)
    wrong = energy.replace("pue", "pu")
    assert measure(*args, wrong, out=tmp_path / "no") == 2
    assert "suite.run.energy: unknown 'pu'; did you mean" in capsys.readouterr().err


@pytest.mark.slow
def test_files_are_of_a_data_set_and_a_method_where_they_are_said(
    published, tmp_path, capsys
):
    """An imported network has its place in the tables of trained ones."""
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
    own = "--trained=cifar10", "--method=fmix"
    out = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            runner.NetworkEvaluation,
            "describe_train_difference",
            lambda _: "trained on others",
        )
        assert measure(*args, *own, out=out) == 0
    study, notes = distortion_study.read([f"{out}/*"])
    (group,) = study.groups.values()
    assert group.key == ("cnn", "CIFAR-10", "FMix", "")
    values = distortion_page.report(study).results["tables"]["values"]
    grid = values[values["quantity"] == "di_grid"]
    assert set(grid["data"]) == {"CIFAR-10"} and set(grid["method"]) == {"FMix"}
    assert sum("trained on others" in note for note in notes) == 1
    told = json.loads(next(out.rglob("occlusion@train.json")).read_text())
    assert told["otherwise"] == "trained on others"
    assert "otherwise" not in json.loads(
        next(out.rglob("grid_shuffle@test.json")).read_text()
    )
    # Records of one network say the same of it.
    assert measure(*args, "--method=basic", out=out) == 2
    assert "train.data: 'cifar10' != 'unknown'" in capsys.readouterr().err
    assert measure(*args, "--trained=cifar", out=out) == 2
    assert "--trained: unknown 'cifar'; did you mean" in capsys.readouterr().err


def test_a_file_of_any_network_bears_its_own_name():
    """Not that of a wider entry, as resnet50 is of a resnext50."""
    names = {
        name: networks._model_name(make(10)) for name, make in models.MODELS.items()
    }
    assert names == {name: name for name in models.MODELS}
