"""Networks from runs of this project, and imported networks as starts of runs."""

import json
import pathlib
import shutil

import jax
import numpy as np
import pytest
from etils import epath

from jbias import models, prepare
from jbias.models import class_names, trained
from jbias.runs import checkpoints
from jbias.training import initial_nets
from jbias.training import step as train_step
from tests import cases

OPTIONS = {"width": 2, "stem": "small"}


def net_of(number):
    """Return a network whose weights identify it."""
    net = models.MODELS["resnet18"](5, **OPTIONS)
    shapes = jax.eval_shape(net.init, jax.random.key(0), np.zeros((1, 32, 32, 3), "f4"))
    return net, jax.tree.map(lambda x: np.full(x.shape, number, np.float32), shapes)


def state(number, average=None):
    _, variables = net_of(number)
    stats = {"net": variables["stats"]}
    if average is not None:
        stats["average"] = net_of(average)[1]
    params = {"net": variables["params"]}
    return train_step.State(step=np.int32(0), params=params, stats=stats, opt=())


def number_of(variables):
    (number,) = {float(x.ravel()[0]) for x in jax.tree.leaves(variables)}
    return number


@pytest.fixture
def write_run(tmp_path):
    """Write a workdir with steps {number: (states, accuracies)}."""

    def make(steps, **config):
        config = {
            "model": {"name": "resnet18", **OPTIONS},
            "seeds": [3, 5],
            "vary": [],
            "size": 32,
            **config,
        }
        (tmp_path / "config.json").write_text(json.dumps(config))
        store = checkpoints.CheckpointStore(
            epath.Path(tmp_path / "checkpoints"), keep=9
        )
        for step, (states, valid) in steps.items():
            store.save(step, states, {"stage": 0}, valid)
            store.wait()
        store.close()
        return tmp_path

    return make


@pytest.mark.slow
def test_each_seed_has_its_own_best_step(write_run):
    workdir = write_run(
        {
            1: ((state(1), state(2)), {"0/3": 0.5, "0/5": 0.2}),
            2: ((state(11), state(12)), {"0/3": 0.4, "0/5": 0.6}),
            3: ((state(21), state(22)), {"0/3": 0.5, "0/5": 0.6}),
        }
    )
    net, variables = models.load(workdir, seed=3)
    assert net == net_of(0)[0] and number_of(variables) == 1
    assert number_of(models.load(workdir, seed=5)[1]) == 12
    assert number_of(models.load(workdir, seed=5, step="latest")[1]) == 22
    assert number_of(models.load(workdir, seed=3, step=2)[1]) == 11
    for options, match in (
        ({}, "seed must be one of"),
        ({"seed": 4}, "seed must be one of"),
        ({"seed": 3, "step": 7}, "step must be best, latest or one of"),
        ({"seed": 3, "colour": 1}, "has no option 'colour'"),
        ({"seed": 3, "model": "resnet50"}, "holds the model 'resnet18'"),
    ):
        with pytest.raises(ValueError, match=match):
            models.load(workdir, **options)
    metrics = pathlib.Path(workdir) / "checkpoints/2/metrics/metrics"
    for text in ("[" * 10**5, "[1]", '{"0/3": []}', '{"x/3": 1}', "{"):
        metrics.write_text(text)
        with pytest.raises(
            ValueError, match="the validation metrics of step 2 are damaged"
        ):
            models.load(workdir, seed=3)


@pytest.mark.slow
def test_later_stages_come_first_and_averages_are_read(write_run):
    """The best step of the last stage is read, even if an earlier stage was better."""
    workdir = write_run(
        {
            1: ((state(1, 7),), {"0/0": 0.9}),
            2: ((state(2, 8),), {"1/0": 0.3}),
        },
        seeds=[0],
    )
    assert number_of(models.load(workdir)[1]) == 8


@pytest.mark.slow
def test_branches_have_separate_states(write_run):
    vary = [{"key": "optim.rate", "values": [0.1, 0.01]}]
    workdir = write_run(
        {1: (tuple(state(n) for n in (1, 2, 3, 4)), {})},
        vary=vary,
    )
    branch = workdir / "vary" / "optim.rate=0.01"
    branch.mkdir(parents=True)
    assert number_of(models.load(branch, seed=5)[1]) == 4
    with pytest.raises(ValueError, match="must be one branch"):
        models.load(workdir, seed=5)
    with pytest.raises(ValueError, match="must be one branch"):
        trained._branch_index("x", "optim.rate=0.01", {"vary": []})
    (workdir / "vary" / "optim.rate=1").mkdir()
    with pytest.raises(ValueError, match="has no branch 'optim.rate=1'"):
        models.load(workdir / "vary" / "optim.rate=1", seed=5)


@pytest.mark.slow
def test_a_damaged_step_has_a_one_line_error(write_run):
    """A damaged step gives a one-line error in evaluation, export and initialisation."""
    workdir = write_run({1: ((state(1), state(2)), {"0/3": 0.5, "0/5": 0.2})})
    for path in (workdir / "checkpoints" / "1" / "state").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    for read in (
        lambda: models.load(workdir, seed=3),
        lambda: initial_nets.load_initial_nets(workdir, [3]),
        lambda: trained.read_nets(workdir / "checkpoints", 1),
    ):
        with pytest.raises(ValueError, match="1 cannot be read .*take another step"):
            read()


def test_refuses_folders_that_are_no_run(tmp_path):
    with pytest.raises(ValueError, match=r"must be the workdir of a run"):
        models.load(tmp_path)


def test_runs_can_start_from_an_imported_network(tmp_path):
    net, variables = net_of(4)
    models.save_run(tmp_path / "run", net, variables)
    loaded_net, loaded_variables = models.load(tmp_path / "run")
    assert loaded_net == net
    jax.tree.map(np.testing.assert_array_equal, loaded_variables, variables)
    nets = initial_nets.load_initial_nets(tmp_path / "run", [0, 1])
    assert [number_of(initial) for initial in nets] == [4, 4]
    with pytest.raises(ValueError, match="must be a new folder"):
        models.save_run(tmp_path / "run", net, variables)


@pytest.mark.slow
@pytest.mark.parametrize("out", ["x.safetensors", "workdir"])
def test_the_command_exports_files_and_folders(out, write_run, tmp_path, capsys):
    workdir = write_run({1: ((state(1), state(2)), {"0/3": 0.5, "0/5": 0.2})})
    arguments = [f"--checkpoint={workdir}", "--seed=5", f"--out={tmp_path / out}"]
    assert prepare.main(["export", *arguments]) == 0
    assert "ResNet of 5 classes" in capsys.readouterr().out
    assert number_of(models.load(tmp_path / out)[1]) == 2
    wrong = [f"--checkpoint={workdir}", f"--out={tmp_path / 'y.safetensors'}"]
    assert prepare.main(["export", *wrong]) == 2
    assert "seed must be one of [3, 5]" in capsys.readouterr().err


@cases.each("name", ["x.pth", "x.PT", "x.npz", "x.Safetensors"])
def test_unsupported_export_formats_are_refused_before_reading(name, tmp_path, capsys):
    argv = ["export", f"--checkpoint={tmp_path / 'none'}", f"--out={tmp_path / name}"]
    assert prepare.main(argv) == 2
    assert "--out must end with .safetensors, or be a folder" in capsys.readouterr().err
    assert not (tmp_path / name).exists()


@pytest.mark.slow
@pytest.mark.parametrize("out", ["x.safetensors", "workdir"])
def test_an_export_keeps_the_names_of_its_classes(out, write_run, tmp_path):
    """Class names are copied from the run, and from one export to the next."""
    workdir = write_run({1: ((state(1), state(2)), {"0/3": 0.5, "0/5": 0.2})})
    assert class_names.read(workdir) is None
    names = ["a", "b", "c", "d", "\u00e9"]
    provenance = {"data": {"train/0": {"names": names, "space": "names"}}}
    (workdir / "provenance.json").write_text(json.dumps(provenance))
    (workdir / "vary/x=1").mkdir(parents=True)
    classes = class_names.Classes(tuple(names), "names")
    assert (
        class_names.read(workdir) == class_names.read(workdir / "vary/x=1") == classes
    )
    shutil.rmtree(workdir / "vary")
    first, second = tmp_path / out, tmp_path / f"again-{out}"
    for source, export in ((workdir, first), (first, second)):
        seed = ["--seed=5"] if source == workdir else []
        argv = ["export", f"--checkpoint={source}", *seed, f"--out={export}"]
        assert prepare.main(argv) == 0
        assert class_names.read(export) == classes
        assert models.load(export)[0].classes == 5
    net, variables = net_of(1)
    with pytest.raises(ValueError, match="must name the network's 5, got 1"):
        models.save_run(tmp_path / "z", net, variables, classes._replace(names=("a",)))


@cases.each(
    "content",
    ['{"class_names": 3}', '{"class_names": ["a"]}', '{"class_names": [1]', "{"],
)
def test_class_names_that_are_none_are_refused(content, tmp_path):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match="its classes must be a list of names"):
        class_names.read(tmp_path)


@pytest.mark.slow
def test_the_command_replaces_files_only_with_overwrite(write_run, tmp_path, capsys):
    run_folder = write_run({1: ((state(1), state(2)), {"0/3": 0.5, "0/5": 0.2})})
    file, workdir = tmp_path / "x.safetensors", tmp_path / "workdir"
    workdir.mkdir()
    (workdir / "config.json").write_text("theirs")
    file.write_text("theirs")
    for out, remedy, options in (
        (file, "name another or give --overwrite\n", ()),
        (workdir, "name another\n", ()),
        (workdir, "name another\n", ("--overwrite",)),
    ):
        argv = ["export", f"--checkpoint={run_folder}", "--seed=3", f"--out={out}"]
        assert prepare.main([*argv, *options]) == 2
        refusal = capsys.readouterr().err
        assert f"--out must be new, got {out}, which is there" in refusal
        assert refusal.endswith(remedy) and refusal.count("\n") == 1
    assert file.read_text() == (workdir / "config.json").read_text() == "theirs"
    argv = ["export", f"--checkpoint={run_folder}", "--seed=3", f"--out={file}"]
    assert prepare.main([*argv, "--overwrite"]) == 0
    assert number_of(models.load(file)[1]) == 1


def test_folders_of_other_programs_are_refused(tmp_path):
    class Other(type(net_of(0)[0])):
        pass

    net, variables = net_of(1)
    other = Other(5, depths=net.depths, bottleneck=False)
    with pytest.raises(ValueError, match="Other is no network of MODELS"):
        models.save_safetensors(tmp_path / "x.safetensors", other, variables)
    with pytest.raises(ValueError, match="names must be 'published' or 'own'"):
        models.save_safetensors(tmp_path / "x.safetensors", net, variables, "mine")
