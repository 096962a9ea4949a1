"""Logits, features and gradients that are NaN or infinite give no number, on no route."""

import json
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jbias
from jbias import data, evaluate, models
from jbias.evals import (
    decisions,
    features,
    grad_cam,
    inference,
    probe,
    probe_registry,
    receptive_field,
)
from jbias.training import evaluator
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


def broken(variables, value=np.nan):
    """The variables with one number of the first convolution's kernel replaced."""
    leaves, tree = jax.tree.flatten(variables)
    first = next(i for i, leaf in enumerate(leaves) if leaf.ndim == 4)
    leaves[first] = leaves[first].at[0, 0, 0, 0].set(value)
    return jax.tree.unflatten(tree, leaves)


def measure(folder, suite, network, value):
    net, variables = network
    models.save_safetensors(
        folder / "net.safetensors", net, broken(variables, value), names="own"
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


def test_one_image_without_an_answer_refuses_that_measure_alone(
    suite, tmp_path, capsys
):
    """By its name and count; the correction goes on from the batch before."""
    asked, break_at = [], [1]

    def model(images):
        asked.append(len(images))
        logits = images.reshape(len(images), 16, -1).mean(-1)
        if len(asked) > 1 and len(images) == 16 and len(asked) - 2 in break_at:
            logits[3, 2] = np.nan
        return logits

    of = dict(classes=CLASSES, name="mine", out=tmp_path)
    found = jbias.measure(model, str(suite), **of)
    (why,) = found.left_out
    assert why.startswith("accuracy@edge: ") and "got nan for 1 of them" in why
    assert set(found.numbers["condition"]) == {"few"}
    break_at.clear()
    count = len(asked)
    again = jbias.measure(model, str(suite), **of)
    assert not again.left_out and len(asked) == count + 1 + 2  # Trial, and two batches.


def test_equal_logits_are_measured_and_told(suite, tmp_path, capsys):
    constant = lambda images: np.zeros((len(images), 16))
    of = dict(classes=CLASSES, name="constant", out=tmp_path, only=["accuracy"])
    found = jbias.measure(constant, str(suite), **of)
    assert not found.left_out and (found.numbers["metric"] == "accuracy").any()
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


def test_only_images_count_not_what_fills_a_batch_up(network):
    """The last rows may be anything; a broken row before them is named by its number."""

    def apply(variables, image):
        return jnp.where(jnp.arange(8)[:, None] == variables, jnp.nan, jnp.ones((8, 3)))

    rules = {"": inference.DecisionRule(6)}
    for row, refused in ((6, False), (2, True)):
        of = (
            inference.BoundJaxNetwork(apply, jnp.int32(row)),
            probe_registry.make_plain(),
            [stimuli()],
        )
        if not refused:
            assert len(inference.run_probe(*of, rules)[""]["prediction"]) == 6
            continue
        with pytest.raises(
            probe.NotFiniteError, match="1 of the 6 .* image number 2 of"
        ):
            inference.run_probe(*of, rules)


def test_logits_of_another_number_of_classes_are_refused(network):
    of = bound(network, network[1]), probe_registry.make_plain(), [stimuli()]
    rules = {"": inference.DecisionRule(6)}
    inference.run_probe(*of, rules, classes=16)
    with pytest.raises(ValueError, match="gives 16 logits for each image and has 10"):
        inference.run_probe(*of, rules, classes=10)


def test_gradients_that_are_not_finite_are_no_attack():
    """The square root of 0 has an infinite slope, and the logits themselves are finite."""

    def apply(variables, image):
        mean = image.mean((1, 2, 3))[:, None] * jnp.arange(3.0)[None]
        return mean + 0 * jnp.sqrt(jnp.zeros(()) * image.sum())

    made = probe_registry.PROBES["fgsm"]()
    net = inference.BoundJaxNetwork(apply, ())
    with pytest.raises(probe.NotFiniteError, match="finite"):
        inference.run_probe(net, made, [stimuli()], {"": inference.DecisionRule(6)})


def test_what_looks_inside_refuses_features_that_are_not_finite(network):
    net, variables = network
    image = np.asarray(stimuli().image)
    wrong = broken(variables)
    with pytest.raises(probe.NotFiniteError, match=r"decoding: features at .* 8 of 8"):
        features.read(net, wrong, image, batch=8)
    with pytest.raises(probe.NotFiniteError, match="receptive_field: gradients of"):
        receptive_field.fields(net, wrong, image, batch=8)


def test_maps_of_what_is_not_finite_are_nan_and_not_empty():
    a = np.ones((2, 4, 4, 3), np.float32)
    a[1, 0, 0, 0] = np.nan
    maps = np.asarray(grad_cam.maps(a, np.ones_like(a), 8, 8))
    assert np.isfinite(maps[0]).all() and np.isnan(maps[1]).any()
    network = types.SimpleNamespace(at=lambda *_: (jnp.asarray(a), a), variables=())
    batch = stimuli(4)._replace(image=jnp.zeros((2, 8, 8, 3), jnp.uint8), count=2)
    with pytest.raises(probe.NotFiniteError, match="for 1 of 2 images of edge"):
        list(grad_cam.batch_maps(network, [batch], "here"))


def test_a_seed_in_training_has_no_number_where_it_decides_nothing():
    """Its records are those of a seed that diverged, on that set alone, and it is told."""
    said, label = [], np.zeros(3, np.int64)
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
    job = types.SimpleNamespace(
        tests=tests, stages=[stage], monitor=monitor, members=[entry], log=said.append
    )
    fine, broken = (
        np.zeros(3, np.int32),
        np.array([0, inference.UNDECIDED, 0], np.int32),
    )
    decided = [decisions.Decisions(x, {"label": label}) for x in (fine, broken)]
    records = list(
        evaluator._records(job, stage, step=2, member=entry, decisions_by_set=decided)
    )
    rows = {
        r.dataset: (r.value, r.count, r.status)
        for r in records
        if r.metric == "accuracy"
    }
    assert rows == {"valid": (1.0, 3, "ok"), "edge": (None, None, "diverged")}
    evaluator._report_undecided(job, {"valid": [fine], "edge": [broken]}, 2)
    (line,) = said
    assert "seed 1: no numbers on edge" in line and "for 1 of 3 images" in line


@cases.each(
    "fault", [MemoryError(), jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: x")]
)
def test_full_memory_in_an_evaluation_says_what_to_do(fault):
    said = r"evaluation at step 3: .*config\.run\.eval_batch"
    with pytest.raises(ValueError, match=said), evaluator._refusing_full_memory(3):
        raise fault


def test_other_faults_of_a_device_in_an_evaluation_stay_what_they_are():
    fault, refusing = (
        jax.errors.JaxRuntimeError("INTERNAL"),
        evaluator._refusing_full_memory,
    )
    with pytest.raises(type(fault), match="INTERNAL"), refusing(3):
        raise fault


def test_a_decision_table_of_a_broken_seed_counts_as_no_class(tmp_path):
    """The stored decision is -1, which is right for no image; it is not class 0."""
    broken = np.array([inference.UNDECIDED] * 3, np.int32)
    one = decisions.Decisions(broken, {"label": np.zeros(3, np.int32)})
    decisions.write(tmp_path / "x.parquet", {0: one})
    (back,) = decisions.read(tmp_path / "x.parquet").values()
    assert (back.prediction == -1).all() and not back.right.any()
    assert json.dumps(back.prediction.tolist()) == "[-1, -1, -1]"
