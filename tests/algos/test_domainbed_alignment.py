"""DANN, CDANN and MMD against steps of DomainBed's code, stored by an oracle."""

import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jbias.algos import dann, mmd
from jbias.training import optim
from jbias.training import step as train_step
from tests import cases
from tests.methods import Columns

ORACLE = pathlib.Path(__file__).parents[1] / "oracles" / "domainbed_alignment.json"
STORED = json.loads(ORACLE.read_text())
KEY = jax.random.key(0)
CLASSES, WIDTH, RATE = 4, 6, 0.02
COLUMNS = Columns(label=np.arange(12) % CLASSES, domain=np.arange(12) % 3)
# The rate of the discriminator is 0.03.
ADVERSARIAL = dict(d_rate=1.5, width=WIDTH, columns=COLUMNS)
# Of a step with this loss of the reference: the loss and the weights that it trains.
TRAINED = {
    "gen_loss": ("adversarial", "net"),
    "disc_loss": ("discriminator", "discriminator"),
    "loss": ("penalised", "net"),
}
LOSS_NAMES = {"loss": "class", "penalty": "penalty"}
REFERENCE_NAMES = {
    "linear1": "featurizer.input",
    "linear2": "featurizer.hiddens.0",
    "linear3": "featurizer.output",
    "fc": "classifier",
}


class Mlp(nn.Module):
    """The reference's network for vectors: a featuriser of three layers, and a linear layer."""

    classes: int = CLASSES

    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        h = image.reshape(len(image), -1)
        for i in (1, 2, 3):
            h = nn.Dense(WIDTH, name=f"linear{i}")(h if i == 1 else nn.relu(h))
        return nn.Dense(self.classes, name="fc")(h)


def make(name):
    """Return the algorithm of a stored case, and its optimisers."""
    options = STORED[name]["options"]
    if name == "mmd":
        algo = mmd.make(Mlp(), weight=options["mmd_gamma"], columns=COLUMNS)
    else:
        algo = dann.make(
            Mlp(),
            conditional=name == "cdann",
            weight=options["lambda"],
            grad_penalty=options["grad_penalty"],
            d_steps=options["d_steps_per_g_step"],
            **ADVERSARIAL,
        )
    common = dict(name="adam", rate=RATE, b2=0.999 if name == "mmd" else 0.9)
    common |= dict(b1=0.9 if name == "mmd" else 0.5, schedule={"name": "constant"})
    txs = tuple(
        optim.from_options(common, update, total=10, steps_per_epoch=10)
        for update in algo.updates
    )
    return algo, txs


def from_reference(named, *, is_conditional):
    """Return weights or gradients by the reference's names as a tree like a state's params.

    The reference has an embedding of classes that only its conditional algorithms use.
    """

    def layer(name):
        kernel = np.asarray(named[f"{name}.weight"], np.float32).T
        return {"kernel": kernel, "bias": np.asarray(named[f"{name}.bias"], "f")}

    params = {}
    if "classifier.weight" in named:
        params["net"] = {ours: layer(name) for ours, name in REFERENCE_NAMES.items()}
    if "discriminator.input.weight" in named:
        names = ("input", "hiddens.0", "output")
        params["discriminator"] = {
            f"linear{i}": layer(f"discriminator.{name}")
            for i, name in enumerate(names, 1)
        }
        if is_conditional:
            table = np.asarray(named["class_embeddings.weight"], np.float32)
            params["discriminator"]["embedding"] = table
    return params


def batch_of(step):
    """Return the batch of a stored step: all domains in turn."""
    y = np.concatenate(step["y"])
    domain = np.repeat(np.arange(len(step["y"])), [len(x) for x in step["y"]])
    return {
        "image": jnp.asarray(np.concatenate(step["x"]), jnp.float32)[:, None, None],
        "target": jnp.eye(CLASSES)[y],
        "domain": jnp.asarray(domain),
    }


def to_float64(tree):
    """Return a tree with arrays of float64 in place of those of float32."""

    def convert(leaf):
        is_float = leaf.dtype == np.float32
        return jnp.asarray(np.asarray(leaf, np.float64)) if is_float else leaf

    return jax.tree.map(convert, tree)


def assert_close(tree, expected, rel):
    """Check that leaves differ by at most `rel` times the largest expected value."""
    leaves, structure = jax.tree.flatten(expected)
    scale = max(np.abs(leaf).max() for leaf in leaves)
    assert jax.tree.structure(tree) == structure
    for leaf, expected_leaf in zip(jax.tree.leaves(tree), leaves):
        np.testing.assert_allclose(leaf, expected_leaf, rtol=0, atol=rel * scale)


@pytest.mark.slow
@cases.each("name", ("dann", "dann_penalty", "cdann", "mmd"))
def test_losses_gradients_and_weights_are_the_references(name):
    """Losses to 1e-6, gradients to 1e-5 of the largest, and weights after all steps of Adam.

    Losses and gradients are computed in float64, like the reference's: MMD's narrowest kernel magnifies
    the rounding of float32, to 3e-5 of the largest gradient on some CPUs.
    """
    stored = STORED[name]
    algo, txs = make(name)
    state = train_step.init(algo, txs, KEY, batch_of(stored["steps"][0])["image"][:1])
    shapes = jax.tree.map(np.shape, state.params)
    step_with = jax.jit(train_step.make_step(algo, txs), static_argnums=3)

    @functools.partial(jax.jit, static_argnums=2)
    def losses_and_gradients(params, batch, trained):
        def loss(params):
            named, _ = algo.losses(params, {"net": {}}, batch, KEY)
            return named[trained], named

        (_, named), grads = jax.value_and_grad(loss, has_aux=True)(params)
        return named, grads

    for i, step in enumerate(stored["steps"]):
        batch, static = batch_of(step), algo.static(i, 10)
        params = from_reference(step["weights"], is_conditional=name == "cdann")
        assert jax.tree.map(np.shape, params) == shapes
        state = state._replace(params=jax.tree.map(jnp.asarray, params))
        trained, part = TRAINED[next(iter(step["losses"]))]
        with jax.enable_x64(True), pytest.MonkeyPatch.context() as patch:
            patch.setattr(jnp, "float32", jnp.float64)  # Algorithms compute in float32.
            named, grads = losses_and_gradients(
                to_float64(state.params), to_float64(batch), trained
            )
        for loss, value in step["losses"].items():
            computed = named[LOSS_NAMES.get(loss, trained)]
            assert computed == pytest.approx(value, rel=1e-6, abs=1e-6)
        expected_grads = from_reference(
            step["gradients"], is_conditional=name == "cdann"
        )
        assert set(expected_grads) == {part}
        assert_close(grads[part], expected_grads[part], 1e-5)
        state, _ = step_with(state, batch, KEY, static)
        for other in set(state.params) - {part}:
            jax.tree.map(
                np.testing.assert_array_equal, state.params[other], params[other]
            )
    end = from_reference(stored["end"], is_conditional=name == "cdann")
    assert_close(state.params, end, 1e-5)


@cases.each("number", (0, 1))
def test_the_discrepancy_of_unequal_environments_is_the_references(number):
    stored = STORED["discrepancies"][number]
    sizes = [len(x) for x in stored["features"]]
    h = jnp.asarray(np.concatenate(stored["features"]), jnp.float32)
    members = jnp.eye(len(sizes) + 1)[np.repeat(np.arange(len(sizes)), sizes)]
    value, grads = jax.jit(jax.value_and_grad(mmd.discrepancy))(h, members)
    assert value == pytest.approx(stored["value"], rel=1e-6)
    assert_close(grads, np.concatenate(stored["gradient"]), 1e-5)
