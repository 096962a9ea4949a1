"""Logits, features and gradients that are NaN or infinite never give a number."""

import json
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jbias
from jbias import data, errors, evaluate, models
from jbias.evals import decision_files, heatmaps, inference, plain, registry
from jbias.evals.activations import features, receptive_field
from jbias.measures import decisions
from jbias.runtime import processes
from jbias.stimuli import grad_cam, shown
from jbias.training import evaluator, stopping
from tests import cases

SUITE = """
import ml_collections

def get_config(text=""):
    c = ml_collections.ConfigDict(dict(size=32, run=dict(batch=16)))
    c.sets = dict(edge=dict(data="shapes", split="edge", n=48, correlation=0.99))
    c.measures = dict(
        accuracy=dict(probe="plain", sets=("edge",)),
        few=dict(probe="plain", sets=("edge",), images=8),
    )
    return c
"""
CLASSES = data.load("shapes", "edge", size=32, n=48, correlation=0.99).classes


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    path = tmp_path_factory.mktemp("suite") / "suite.py"
    path.write_text(SUITE)
    return path


@pytest.fixture(scope="module")
def network():
    net = models.MODELS["cnn"](16, width=4)
    return net, net.init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)))


def break_weights(variables, value=np.nan):
    """Return the variables with one number of the first convolution's kernel replaced."""
    leaves, tree = jax.tree.flatten(variables)
    first = next(i for i, leaf in enumerate(leaves) if leaf.ndim == 4)
    leaves[first] = leaves[first].at[0, 0, 0, 0].set(value)
    return jax.tree.unflatten(tree, leaves)


def measure(folder, suite, network, value):
    net, variables = network
    models.save_safetensors(
        folder / "net.safetensors", net, break_weights(variables, value), names="own"
    )
    (folder / "names.txt").write_text("\n".join(CLASSES))
    return evaluate.main(
        [
            f"--checkpoint={folder / 'net.safetensors'}",
            f"--classes={folder / 'names.txt'}",
            f"--suite={suite}",
            f"--out={folder / 'out'}",
        ]
    )


@cases.each("value", [np.nan, np.inf])
def test_a_file_with_broken_weights_is_left_out_by_name(
    suite, network, tmp_path, capsys, value
):
    assert measure(tmp_path, suite, network, value) == 2
    err = capsys.readouterr().err
    assert "not measured: net: weights must be finite, NaN or infinite are 1 of " in err
    assert "0.0625" not in err and "Traceback" not in err
    assert not list((tmp_path / "out").rglob("*.jsonl"))
    assert not list((tmp_path / "out").rglob("*.parquet"))


def test_one_image_without_a_finite_answer_refuses_only_its_measure(
    suite, tmp_path, capsys
):
    """The reason has the number of such images; a later call resumes at the failed batch."""
    batch_sizes, broken_batches = [], [1]

    def model(images):
        batch_sizes.append(len(images))
        logits = images.reshape(len(images), 16, -1).mean(-1)
        if (
            len(batch_sizes) > 1
            and len(images) == 16
            and len(batch_sizes) - 2 in broken_batches
        ):
            logits[3, 2] = np.nan
        return logits

    options = dict(classes=CLASSES, name="mine", out=tmp_path)
    measurement = jbias.measure(model, str(suite), **options)
    (reason,) = measurement.left_out
    assert reason.startswith("accuracy@edge: ") and "got nan for 1 of them" in reason
    assert set(measurement.numbers["condition"]) == {"few"}
    broken_batches.clear()
    count = len(batch_sizes)
    resumed = jbias.measure(model, str(suite), **options)
    assert (
        not resumed.left_out and len(batch_sizes) == count + 1 + 2
    )  # Trial, and two batches.


def test_equal_logits_are_measured_with_a_warning(suite, tmp_path, capsys):
    constant = lambda images: np.zeros((len(images), 16))
    options = dict(classes=CLASSES, name="constant", out=tmp_path, only=["accuracy"])
    measurement = jbias.measure(constant, str(suite), **options)
    assert (
        not measurement.left_out and (measurement.numbers["metric"] == "accuracy").any()
    )
    assert "answers all 48 images alike" in capsys.readouterr().err


def stimuli(images=8):
    image = np.random.default_rng(0).integers(0, 256, (images, 32, 32, 3), np.uint8)
    number = np.arange(images, dtype=np.int32)
    return inference.Batch(
        image=jnp.asarray(image),
        index=number,
        label=number,
        target=number,
        count=images - 2,
        dataset="edge",
    )


def bound(network, variables):
    net, _ = network
    return inference.BoundJaxNetwork(net.apply, variables, net=net)


def test_padding_of_a_batch_may_be_infinite(network):
    """The last rows are padding; a broken row before them is named by its index."""

    def apply(variables, image):
        return jnp.where(jnp.arange(8)[:, None] == variables, jnp.nan, jnp.ones((8, 3)))

    rules = {"": inference.DecisionRule(6)}
    for row, is_refused in ((6, False), (2, True)):
        network = inference.BoundJaxNetwork(apply, jnp.int32(row))
        unchanged, batches = shown.unchanged(plain.make()), [stimuli()]
        if not is_refused:
            columns = inference.run_probe(network, unchanged, batches, rules)[""]
            assert len(columns["prediction"]) == 6
            continue
        with pytest.raises(
            errors.NotFiniteError, match="1 of the 6 .* image number 2 of"
        ):
            inference.run_probe(network, unchanged, batches, rules)


def test_logits_of_another_number_of_classes_are_refused(network):
    net, unchanged = bound(network, network[1]), shown.unchanged(plain.make())
    rules = {"": inference.DecisionRule(6)}
    inference.run_probe(net, unchanged, [stimuli()], rules, classes=16)
    with pytest.raises(ValueError, match="gives 16 logits for each image and has 10"):
        inference.run_probe(net, unchanged, [stimuli()], rules, classes=10)


def test_attacks_with_gradients_that_are_not_finite_are_refused():
    """The square root of 0 has an infinite slope, though all logits are finite."""

    def apply(variables, image):
        mean = image.mean((1, 2, 3))[:, None] * jnp.arange(3.0)[None]
        return mean + 0 * jnp.sqrt(jnp.zeros(()) * image.sum())

    attack = registry.PROBES["fgsm"].load()()
    net = inference.BoundJaxNetwork(apply, ())
    with pytest.raises(errors.NotFiniteError, match="finite"):
        inference.run_probe(net, attack, [stimuli()], {"": inference.DecisionRule(6)})


def test_features_that_are_not_finite_are_refused(network):
    net, variables = network
    image = np.asarray(stimuli().image)
    broken_variables = break_weights(variables)
    with pytest.raises(errors.NotFiniteError, match=r"decoding: features at .* 8 of 8"):
        features.read(net, broken_variables, image, batch=8)
    with pytest.raises(errors.NotFiniteError, match="receptive_field: gradients of"):
        receptive_field.fields(net, broken_variables, image, batch=8)


def test_maps_of_activations_that_are_not_finite_are_nan():
    activations = np.ones((2, 4, 4, 3), np.float32)
    activations[1, 0, 0, 0] = np.nan
    maps = np.asarray(grad_cam.maps(activations, np.ones_like(activations), 8, 8))
    assert np.isfinite(maps[0]).all() and np.isnan(maps[1]).any()
    network = types.SimpleNamespace(
        at=lambda *_: (jnp.asarray(activations), activations), variables=()
    )
    batch = stimuli(4)._replace(image=jnp.zeros((2, 8, 8, 3), jnp.uint8), count=2)
    with pytest.raises(errors.NotFiniteError, match="for 1 of 2 images of edge"):
        list(heatmaps.batch_maps(network, [batch], "here"))


def test_a_seed_in_training_has_no_number_on_a_set_with_undecided_images():
    """Its records on that set are those of a diverged seed, and a line is logged."""
    lines, label = [], np.zeros(3, np.int64)
    test = lambda name: types.SimpleNamespace(
        name=name, measures=("accuracy",), columns={"label": label}
    )
    tests = [test("valid"), test("edge")]
    stage = types.SimpleNamespace(
        number=0, first=0, last=4, order=types.SimpleNamespace(steps_per_epoch=2)
    )
    entry = types.SimpleNamespace(
        name="1",
        seed=1,
        branch=types.SimpleNamespace(fields=dict(run="r", algorithm="a")),
    )
    fields = dict(run="r", algorithm="a", variant="", model="m", train_data="d")
    entry.branch.fields = fields
    monitor = types.SimpleNamespace(diverged={}, rolled_back={}, means=lambda name: {})
    spec = types.SimpleNamespace(run=None, members=[entry])
    own_evaluator = evaluator.Evaluator(
        spec,
        tests,
        devices=None,
        group=processes.ALONE,
        stop=stopping.AgreedStop(),
        monitor=monitor,
        epochs=[1.0],
        say=lines.append,
    )
    all_decided, one_undecided = (
        np.zeros(3, np.int32),
        np.array([0, inference.UNDECIDED, 0], np.int32),
    )
    decisions_of_sets = [
        decisions.Decisions(x, {"label": label}) for x in (all_decided, one_undecided)
    ]
    records = list(
        own_evaluator._records(
            stage, step=2, member=entry, decisions_by_set=decisions_of_sets
        )
    )
    rows = {
        r.dataset: (r.value, r.count, r.status)
        for r in records
        if r.metric == "accuracy"
    }
    assert rows == {"valid": (1.0, 3, "ok"), "edge": (None, None, "diverged")}
    valid, edge = decisions_of_sets
    own_evaluator._report_undecided({"valid": [valid], "edge": [edge]}, 2)
    (line,) = lines
    assert "seed 1: no numbers on edge" in line and "for 1 of 3 images" in line


@cases.each(
    "fault", [MemoryError(), jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: x")]
)
def test_the_error_of_full_memory_in_an_evaluation_names_the_remedy(fault):
    message = r"evaluation at step 3: .*config\.run\.eval_batch"
    with pytest.raises(ValueError, match=message), evaluator._refusing_full_memory(3):
        raise fault


def test_other_device_errors_in_an_evaluation_do_not_change():
    fault, refusing = (
        jax.errors.JaxRuntimeError("INTERNAL"),
        evaluator._refusing_full_memory,
    )
    with pytest.raises(type(fault), match="INTERNAL"), refusing(3):
        raise fault


def test_undecided_images_are_stored_as_no_class(tmp_path):
    """The stored decision is -1, which is right for no image; it is not class 0."""
    undecided = np.array([inference.UNDECIDED] * 3, np.int32)
    decided = decisions.Decisions(undecided, {"label": np.zeros(3, np.int32)})
    decision_files.write(tmp_path / "x.parquet", {0: decided})
    (decisions_read,) = decision_files.read(tmp_path / "x.parquet").values()
    assert (decisions_read.prediction == -1).all() and not decisions_read.right.any()
    assert json.dumps(decisions_read.prediction.tolist()) == "[-1, -1, -1]"
