"""Micro-batches: their examples stay on their device, and their sums equal one step."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from jbias import config as jc
from jbias.algos import base, erm
from jbias.models import layers
from jbias.runtime import mesh
from jbias.training import prng
from jbias.training import step as train_step
from tests import cases, smoke_runs
from tests.test_devices import emulated

KEY = jax.random.key(0)


class Net(nn.Module):
    """Linear layers, each with a batch norm, and a linear output layer."""

    group: int
    widths: tuple[int, ...] = (4,)

    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        x = image.reshape(len(image), -1)
        for i, width in enumerate(self.widths):
            x = nn.Dense(width, use_bias=False)(x)
            x = layers.BatchNorm(group=self.group, name=f"bn{i}")(x, train=train)
            x = nn.relu(x)
        return nn.Dense(3)(x)


def make_batch(rows: int, **entries):
    """Return a random batch of three classes with further entries."""
    rng = np.random.default_rng(0)
    target = np.eye(3, dtype=np.float32)[rng.integers(0, 3, rows)]
    image = rng.normal(size=(rows, 1, 1, 5)).astype(np.float32)
    return {"image": image, "target": target, **entries}


def take_step(algo, batch, **options):
    """Return the state and the metrics after a step of plain SGD at rate 1."""
    txs = (optax.sgd(1.0),) * len(algo.updates)
    state = train_step.init(algo, txs, KEY, batch["image"][:1])
    return jax.jit(
        lambda state: train_step.make_step(algo, txs, **options)(state, batch, KEY)
    )(state)


WEIGHT = np.random.default_rng(1).uniform(0, 1, 32).astype(np.float32)


@pytest.mark.slow
@cases.each(
    ("count", "entries"),
    [
        (4, {}),
        (2, {"weight": WEIGHT}),
        (4, {"weight": WEIGHT, "views": 2, "consistency": 3.0}),
    ],
)
@cases.each("loop", ["written out", "scan"])
def test_micro_batches_add_up_to_the_step_of_the_batch(
    count, entries, loop, monkeypatch
):
    """If no group of batch norm is divided, also with weights and with consistency."""
    if loop == "scan":  # As on accelerators.
        monkeypatch.setattr(train_step, "_unrolled_scan", jax.lax.scan)
    algo = erm.make(Net(group=4 * entries.get("views", 1)))
    batch = make_batch(32, **entries)
    expected_state, expected_metrics = take_step(algo, batch)
    state, metrics = take_step(algo, batch, accumulate=count, block=4)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
        (state.params, metrics),
        (expected_state.params, expected_metrics),
    )


@pytest.mark.slow
def test_statistics_are_updated_by_each_micro_batch_in_turn():
    algo, batch = erm.make(Net(group=0)), make_batch(12)
    state = train_step.init(algo, (optax.sgd(1.0),), KEY, batch["image"][:1])
    layer = state.params["net"]["Dense_0"]
    x = batch["image"].reshape(12, 5) @ layer["kernel"]
    mean, var = np.zeros(4), np.ones(4)
    for number in range(3):
        rows = np.asarray(x)[number::3]
        mean = 0.9 * mean + 0.1 * rows.mean(0)
        var = 0.9 * var + 0.1 * rows.var(0, ddof=1)
    new_state, _ = take_step(algo, batch, accumulate=3)
    stats = new_state.stats["net"]["bn0"]
    np.testing.assert_allclose(stats["mean"], mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(stats["var"], var, rtol=1e-5)


class FiveWeights(nn.Module):
    """A network of five weights, all 1."""

    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        return self.param("w", nn.initializers.ones, (5,))


def linear(*updates):
    """Return an algorithm whose losses have the mean image and 1 as gradients.

    The metric "drawn" is a random number by the step's key.
    """

    def losses(params, stats, batch, key, static=None):
        w = params["net"]["w"]
        image = batch["image"].reshape(-1, 5)
        named = {"class": jnp.mean(image @ w), "more": jnp.sum(w)}
        return named, base.Aux(stats, {"drawn": jax.random.uniform(key)})

    return base.Algo(FiveWeights(), losses, updates)


def test_the_averaged_gradient_is_clipped():
    batch = make_batch(2)
    batch["image"] = np.eye(5, dtype=np.float32)[:2].reshape(2, 1, 1, 5)
    algo = linear(base.Update("class", clip=0.3, plus="more"))
    state, metrics = take_step(algo, batch, accumulate=2)
    clipped = 0.3 / np.sqrt(2)  # Of (1/2, 1/2, 0, 0, 0); clipping each one: 0.15.
    moved = 1 - state.params["net"]["w"]
    np.testing.assert_allclose(moved, 1 + clipped * (np.arange(5) < 2), rtol=1e-5)
    assert metrics["loss_class"] == 1 and metrics["loss_more"] == 5


def test_every_micro_batch_has_its_own_random_key():
    algo = linear(base.Update("class"))
    _, metrics = take_step(algo, make_batch(2), accumulate=2)
    key = jax.random.fold_in(prng.stream(KEY, "algorithm"), 0)
    drawn = [jax.random.uniform(jax.random.fold_in(key, i)) for i in (0, 1)]
    assert drawn[0] != drawn[1]
    assert metrics["drawn"] == pytest.approx(np.mean(drawn), rel=1e-6)


def test_blocks_go_to_micro_batches_in_turn_and_views_stay_together():
    rows = np.arange(24)
    other = {"image": np.arange(12), "views": 1}
    batch = {"image": rows, "views": 2, "once": KEY, "binary": True, "other": other}
    micro_batches = [train_step.micro_batch(batch, number, 2, 3) for number in (0, 1)]
    np.testing.assert_array_equal(
        micro_batches[0]["image"], [*range(6), *range(12, 18)]
    )
    np.testing.assert_array_equal(
        micro_batches[1]["image"], [*range(6, 12), *range(18, 24)]
    )
    np.testing.assert_array_equal(
        micro_batches[1]["other"]["image"], [3, 4, 5, 9, 10, 11]
    )
    assert micro_batches[0]["once"] is KEY and micro_batches[0]["binary"] is True
    assert micro_batches[0]["views"] == 2 and micro_batches[0]["other"]["views"] == 1
    with pytest.raises(ValueError, match="multiple of accumulate=2 x 8 rows, got 24"):
        train_step.micro_batch(batch, 0, 2, 4)
    one_view = train_step.micro_batch({"image": np.arange(6)}, 1, 3, 1)
    np.testing.assert_array_equal(one_view["image"], [1, 4])


def test_the_examples_of_a_micro_batch_are_on_their_device():
    """On 4 devices with 12 examples each, in blocks of 2, for 3 micro-batches."""
    all_devices = [
        train_step.micro_batch({"image": np.arange(48)}, i, 3, 2) for i in range(3)
    ]
    for device in range(4):
        local = np.arange(12 * device, 12 * device + 12)
        for i in range(3):
            np.testing.assert_array_equal(
                train_step.micro_batch({"image": local}, i, 3, 2)["image"],
                all_devices[i]["image"][4 * device : 4 * device + 4],
            )


@pytest.mark.slow
def test_more_micro_batches_need_less_memory():
    algo, txs = erm.make(Net(group=0, widths=(32,) * 6)), (optax.sgd(1.0),)
    batch = make_batch(4096)
    state = jax.eval_shape(lambda: train_step.init(algo, txs, KEY, batch["image"][:1]))

    def temporary_bytes(count):
        step = jax.jit(train_step.make_step(algo, txs, accumulate=count))
        compiled = step.lower(state, batch, KEY).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    full_batch, four = temporary_bytes(1), temporary_bytes(4)
    assert four < 0.35 * full_batch, (four, full_batch)


def test_batches_that_cannot_be_divided_are_refused():
    mesh.check_batch(64, 4, emulated(8), accumulate=2, block=4)
    with pytest.raises(
        ValueError, match="8 devices x accumulate 3 x 4 .* = 96, got 64"
    ):
        mesh.check_batch(64, 4, emulated(8), accumulate=3, block=4)
    config = jc.to_dict(smoke_runs.small(algo=dict(name="simclr")))
    config["train"]["accumulate"] = 2
    with pytest.raises(ValueError, match="accumulate: must be 1 .* whole batch, got 2"):
        smoke_runs.stage(config)


def test_examples_of_a_group_stay_in_one_micro_batch():
    """Groups are those of mixing, of batch norm, and of the shares of sources."""
    config = jc.to_dict(smoke_runs.small("padain"))
    config["train"]["accumulate"], config["model"]["norm_group"] = 2, 4
    smoke_runs.stage(config)  # Blocks of 8: two per micro-batch.
    config["model"]["norm_group"] = 32
    with pytest.raises(ValueError, match="accumulate 2 x 32 examples .* = 64, got 32"):
        smoke_runs.stage(config)
    config["model"]["norm_group"] = 0
    config["train"]["also"] = [dict(config["train"], split="valid", n=64)]
    for key in ("also", "batch", "accumulate"):
        config["train"]["also"][0].pop(key, None)
    config["train"]["shares"] = [0.75, 0.25]
    stage = smoke_runs.stage(config)
    assert stage.order.period == 4
    config["train"].update(shares=[29 / 32, 3 / 32])
    with pytest.raises(ValueError, match="accumulate 2 x 32 examples"):
        smoke_runs.stage(config)
