"""SAM and ASAM: the references' numbers, a closed form, and the laws of a step."""

import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from benchmarks import collectives
from jbias import algos, run_spec
from jbias import config as jc
from jbias.algos import base, erm
from jbias.models import layers, resnet
from jbias.runtime import mesh
from jbias.training import input_pipeline, optim, stages
from jbias.training import step as train_step
from jbias.training.perturbing import sharpness as sharpness_aware
from tests import cases, smoke_runs
from tests.methods import METHODS

STORED = pathlib.Path(__file__).parents[1] / "oracles/sharpness.json"
KEY = jax.random.key(0)
IMAGE = jnp.ones((1, 1, 1, 3))


def options(**entries) -> sharpness_aware.Sharpness:
    """Return checked options of config.optim.sharpness."""
    result = sharpness_aware.from_options(entries)
    assert result is not None
    return result


class Net(nn.Module):
    """The network of tests/oracles/sharpness.py."""

    dtype: type = jnp.float32

    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        conv = nn.Conv(4, (3, 3), padding="VALID", dtype=self.dtype, name="conv")
        x = layers.BatchNorm(name="bn")(conv(image), train=train)
        return nn.Dense(3, name="fc")(nn.relu(x).mean((1, 2)))


def from_torch(state: dict) -> dict:
    """Return {"params", "stats"} of the network from a stored state dict or gradient."""
    arrays = {name: np.asarray(x, np.float32) for name, x in state.items()}
    params = {
        "conv": {"kernel": arrays["conv.weight"].transpose(2, 3, 1, 0)},
        "bn": {"scale": arrays["bn.weight"]},
        "fc": {"kernel": arrays["fc.weight"].T},
    }
    for layer, entries in params.items():
        entries["bias"] = arrays[f"{layer}.bias"]
    stats = {
        name: arrays.get(f"bn.running_{name}", np.zeros(4)) for name in ("mean", "var")
    }
    return {"params": params, "stats": {"bn": stats}}


@pytest.fixture(scope="module")
def stored() -> dict:
    return json.loads(STORED.read_text())


@cases.each("case", ["sam", "sam_of_asam", "asam", "asam_without_eta"])
def test_three_steps_are_those_of_the_references(case, stored):
    """Losses of both passes within 1e-6; gradients, weights and statistics within 1e-5."""
    algo, sgd = erm.make(Net()), stored["sgd"]
    rate = optim.constant(sgd["rate"], 1)
    txs = (optim.sgd(rate, momentum=sgd["momentum"], decay=sgd["decay"]),)
    sharpness = options(**stored["cases"][case]["options"])
    start = jax.tree.map(jnp.asarray, from_torch(stored["start"]))
    images = jnp.asarray(stored["images"])
    state = train_step.init(algo, txs, KEY, images[0][:1], start)
    step = jax.jit(train_step.make_step(algo, txs, sharpness=sharpness))
    for number, expected in enumerate(stored["cases"][case]["steps"]):
        target = jax.nn.one_hot(jnp.asarray(stored["labels"][number]), 3)
        old = state.params["net"]
        state, metrics = step(state, {"image": images[number], "target": target}, KEY)
        loss, rise = metrics["loss_class"], metrics["sharpness_class"]
        assert loss == pytest.approx(expected["loss"], abs=1e-6)
        assert loss + rise == pytest.approx(expected["perturbed_loss"], abs=1e-6)
        net = {"params": state.params["net"], "stats": state.stats["net"]}
        jax.tree.map(
            functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5),
            net,
            from_torch(expected["state"]),
        )
        if number == 0:  # Momentum is zero: w - rate (g + decay w).
            grads = jax.tree.map(
                lambda a, b: (a - b) / sgd["rate"] - sgd["decay"] * a,
                old,
                state.params["net"],
            )
            expected_grads = from_torch(expected["gradient"])["params"]
            for a, b in zip(*map(jax.tree.leaves, (grads, expected_grads))):
                np.testing.assert_allclose(a, b, atol=1e-5)
            norm = float(optax.tree.norm(expected_grads))
            assert metrics["gradient_norm_class"] == pytest.approx(norm, rel=1e-5)


class Weights(nn.Module):
    """Arrays of the given names, of ones."""

    names: tuple[str, ...] = ("kernel", "bias")

    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        return [self.param(name, nn.initializers.ones, (3,)) for name in self.names]


def linear_algorithm(loss, *updates, names=("kernel", "bias")):
    """Return an algorithm with losses {name: scalar} = loss(weights by name, batch, key)."""

    def losses(params, stats, batch, key, static=None):
        return loss(params["net"], batch, key), base.Aux(stats, {})

    return base.Algo(Weights(names), losses, updates or (base.Update("class"),))


def step_once(algo, sharpness, weights, *, batch=None, **more):
    """Return (change of each weight of the net by plain SGD at rate 1, metrics)."""
    txs = (optax.sgd(1.0),) * len(algo.updates)
    start = {name: jnp.asarray(x, jnp.float32) for name, x in weights.items()}
    state = train_step.init(algo, txs, KEY, IMAGE, {"params": start})
    step = train_step.make_step(algo, txs, sharpness=sharpness, **more)
    state, metrics = step(state, batch or {"image": IMAGE}, KEY)
    return {
        name: np.asarray(x - state.params["net"][name]) for name, x in start.items()
    }, metrics


CURVATURE = np.array([[1.0, 2.0, 0.5], [3.0, 0.2, 1.5]])
START = {"kernel": [0.4, -0.3, 0.0], "bias": [0.2, 0.0, -1.0]}


def quadratic(weights, batch, key):
    """Return 1/2 sum_i c_i w_i^2, of gradient c w, under the name "class"."""
    w = jnp.stack([weights["kernel"], weights["bias"]])
    return {"class": 0.5 * jnp.sum(CURVATURE * w * w)}


@cases.each(
    ("sizes", "entries"),
    [
        (np.ones((2, 3)), dict(radius=0.3)),
        (
            np.array([[0.45, 0.35, 0.05], [1, 1, 1]]),
            dict(radius=0.3, adaptive=True, eta=0.05),
        ),
        (
            np.array([[0.41, 0.31, 0.01], [1, 1, 1]]),
            dict(radius=0.3, adaptive=True),
        ),
    ],
)
def test_the_gradient_of_a_quadratic_has_a_closed_form(sizes, entries):
    """c (w + e), with e = radius T^2 c w / |T c w|; biases have T = 1 also in ASAM."""
    w = np.array([START["kernel"], START["bias"]])
    g = CURVATURE * w
    e = entries["radius"] * sizes**2 * g / np.linalg.norm(sizes * g)
    change, metrics = step_once(linear_algorithm(quadratic), options(**entries), START)
    np.testing.assert_allclose(
        [change["kernel"], change["bias"]], CURVATURE * (w + e), rtol=1e-5, atol=1e-6
    )
    rise = 0.5 * np.sum(CURVATURE * ((w + e) ** 2 - w**2))
    assert metrics["sharpness_class"] == pytest.approx(rise, rel=1e-5)
    assert metrics["gradient_norm_class"] == pytest.approx(
        np.linalg.norm(CURVATURE * (w + e)), rel=1e-5
    )


@cases.each(
    ("name", "is_adapted"),
    [("kernel", True), ("scale", True), ("bias", False), ("cls_token", False)],
)
def test_asam_adapts_kernels_and_scales_alone(name, is_adapted):
    """A weight of 0 with eta = 0 does not move if its step is relative to its size."""
    params, grads = {name: jnp.array([0.0, 2.0])}, {name: jnp.array([3.0, 4.0])}
    moved = sharpness_aware.perturb(
        params,
        grads,
        trained={name: True},
        sharpness=options(radius=0.5, adaptive=True, eta=0.0),
    )
    # T g = (0, 8), e = 0.5 (0, 16) / 8; without T, e = 0.5 (3, 4) / 5.
    expected = [0.0, 3.0] if is_adapted else [0.3, 2.4]
    np.testing.assert_allclose(moved[name], expected, rtol=1e-6)


def test_without_a_gradient_weights_do_not_move():
    change, metrics = step_once(
        linear_algorithm(lambda *_: {"class": jnp.zeros(())}),
        options(radius=0.1),
        START,
    )
    assert not np.any([change["kernel"], change["bias"]])
    assert metrics["sharpness_class"] == 0 == metrics["gradient_norm_class"]


def test_each_update_perturbs_the_weights_that_it_trains_for_its_loss():
    """kernel: loss k^2 b, its e is along 2 k b. bias: loss k b^2, its e is along 2 k b.

    One weight's perturbation must not reach the other update.
    """

    def losses(weights, batch, key):
        k, b = weights["kernel"], weights["bias"]
        return {"first": jnp.sum(k**2 * b), "second": jnp.sum(k * b**2)}

    algo = linear_algorithm(
        losses,
        base.Update("first", lambda path: path[-1] == "kernel"),
        base.Update("second", lambda path: path[-1] == "bias"),
    )
    k, b = np.array([1.0, 2.0, -1.0]), np.array([0.5, 1.0, 2.0])
    change, metrics = step_once(algo, options(radius=0.2), {"kernel": k, "bias": b})
    e = 0.2 * k * b / np.linalg.norm(k * b)
    np.testing.assert_allclose(change["kernel"], 2 * (k + e) * b, rtol=1e-5)
    np.testing.assert_allclose(change["bias"], 2 * k * (b + e), rtol=1e-5)
    rise = np.sum(((k + e) ** 2 - k**2) * b)
    assert metrics["sharpness_first"] == pytest.approx(rise, rel=1e-4)
    assert metrics["sharpness_second"] == pytest.approx(
        np.sum(k * ((b + e) ** 2 - b**2)), rel=1e-4
    )


def test_the_perturbation_follows_the_clipped_sum_of_both_losses():
    """An update with `plus`: e is along clip(g) + g_plus; both gradients are taken there."""

    def losses(weights, batch, key):
        k = weights["kernel"]
        return {"class": 50 * jnp.sum(k**2), "more": jnp.sum(k * jnp.arange(3.0))}

    update = base.Update("class", lambda path: path[-1] == "kernel", 1.0, "more")
    k, more = np.array([1.0, 2.0, -2.0]), np.arange(3.0)
    change, _ = step_once(
        linear_algorithm(losses, update), options(radius=0.3), {"kernel": k, "bias": k}
    )
    direction = k / 3 + more  # |k| is 3.
    above = k + 0.3 * direction / np.linalg.norm(direction)
    np.testing.assert_allclose(
        change["kernel"], above / np.linalg.norm(above) + more, rtol=1e-4
    )
    assert not change["bias"].any()


def test_both_passes_have_the_same_random_draws():
    """The loss (w - u)^2 / 2 with a random u has the gradient w - u + e at w + e."""

    def losses(weights, batch, key):
        noise = jax.random.normal(key, (3,))
        return {
            "class": 0.5 * jnp.sum((weights["kernel"] - noise) ** 2),
            "drawn": noise[0],
        }

    algo = linear_algorithm(losses, names=("kernel",))
    weights = {"kernel": [0.1, 0.2, 0.3]}
    plain, metrics = step_once(algo, None, weights)
    sharp, _ = step_once(algo, options(radius=0.25), weights)
    g = plain["kernel"]
    assert metrics["loss_drawn"] != 0
    np.testing.assert_allclose(
        sharp["kernel"], g + 0.25 * g / np.linalg.norm(g), rtol=1e-5
    )


def test_statistics_are_those_of_the_first_pass_and_both_start_alike():
    """The loss is s w, s counts passes: a second pass that continued would see s + 1."""

    def losses(params, stats, batch, key, static=None):
        w, count = params["net"]["kernel"], stats["net"]["count"]
        new = {"count": count + jnp.sum(w)}
        return {"class": jnp.sum(count * w)}, base.Aux({"net": new}, {})

    algo = base.Algo(Weights(("kernel",)), losses)
    net = {"params": {"kernel": jnp.ones(3)}, "stats": {"count": jnp.float32(2)}}
    txs = (optax.sgd(1.0),)
    state = train_step.init(algo, txs, KEY, IMAGE, net)
    step = train_step.make_step(algo, txs, sharpness=options(radius=0.5))
    state, _ = step(state, {"image": IMAGE}, KEY)
    assert state.stats["net"]["count"] == 5
    np.testing.assert_allclose(state.params["net"]["kernel"], 1 - 2)


@cases.each("place", ["first", "second"])
def test_a_gradient_that_is_not_finite_at_either_place_shows_in_the_norm(place):
    """`divergence` then freezes the seed; log(2 - w) is not finite from w = 2 on."""

    def losses(weights, batch, key):
        return {"class": -jnp.sum(jnp.log(2.0 - weights["kernel"]))}

    start = 3.0 if place == "first" else 1.9
    _, metrics = step_once(
        linear_algorithm(losses, names=("kernel",)),
        options(radius=1.0),
        {"kernel": [start] * 3},
    )
    assert np.isfinite(metrics["loss_class"]) == (place == "second")
    values = [metrics["gradient_norm_class"], metrics["loss_class"]]
    rise = metrics["sharpness_class"]
    assert not np.isfinite([*values, rise]).all()


def by_row(weights, batch, key):
    """Return the loss of a linear network with a squared error, under the name "class"."""
    x = batch["image"].reshape(-1, 3) @ weights["kernel"]
    return {"class": jnp.mean((x - batch["target"][:, 0]) ** 2)}


def test_micro_batches_share_the_perturbation_of_the_batch():
    """The step with accumulate=4 is that of the batch, so that memory alone decides."""
    rng = np.random.default_rng(0)
    batch = {
        "image": rng.normal(size=(8, 1, 1, 3)).astype(np.float32),
        "target": rng.normal(size=(8, 1)).astype(np.float32),
    }
    algo = linear_algorithm(by_row, names=("kernel",))
    weights = {"kernel": [0.3, -1.0, 2.0]}
    run = functools.partial(step_once, algo, options(radius=0.5), weights, batch=batch)
    (whole, whole_metrics), (split, split_metrics) = run(), run(accumulate=4)
    np.testing.assert_allclose(split["kernel"], whole["kernel"], rtol=1e-5)
    for name, value in whole_metrics.items():
        assert split_metrics[name] == pytest.approx(float(value), rel=1e-4), name
    plain, _ = step_once(algo, None, weights, batch=batch)
    assert np.abs(plain["kernel"] - whole["kernel"]).max() > 0.1


def smoke_config(preset: str = "erm", **sharpness) -> dict:
    """Return a small config with these options of config.optim.sharpness; {}: without it."""
    config = jc.to_dict(smoke_runs.small(preset))
    config["optim"]["sharpness"] = sharpness
    if not sharpness:
        del config["optim"]["sharpness"]
    return config


def program_text(**entries) -> str:
    """Return the jaxpr of a complete step; entries: more of config.optim."""
    program = stages.make_program(
        erm.make(Net()),
        {"name": "sgd", "rate": 0.1, "schedule": {"name": "constant"}, **entries},
        average=None,
        shape=(5, 5),
        first=0,
        total=10,
        steps_per_epoch=5,
        rollback=None,
        in_chunks=False,
        inputs=(),
        other=(),
        classes=3,
        fix={},
    )
    rows = {
        "image": jax.ShapeDtypeStruct((8, 5, 5, 3), jnp.uint8),
        "label": jax.ShapeDtypeStruct((8,), jnp.int32),
    }
    traced = collectives.trace_step(
        program.step,
        program.draw,
        {"train": jax.eval_shape(input_pipeline.flatten_images, rows)},
        4,
        None,
        mesh.make(1),
    )
    return str(traced.jaxpr)


def test_a_radius_of_zero_is_the_program_of_erm():
    """Without the entry, as in older configs, and with radius 0: equal jaxprs, equal bits."""
    plain = program_text()
    assert program_text(sharpness={"radius": 0.0, "adaptive": True}) == plain
    assert program_text(sharpness={"radius": 0.1}) != plain


def test_a_second_pass_doubles_the_operations():
    """FLOPs before XLA's optimisation: 2 of ERM's, and a few percent for e on a tiny net."""
    algo, txs = erm.make(Net()), (optax.sgd(0.1),)
    batch = {"image": jnp.ones((64, 16, 16, 3)), "target": jnp.ones((64, 3)) / 3}
    state = jax.eval_shape(lambda: train_step.init(algo, txs, KEY, batch["image"][:1]))

    def flops(radius):
        sharpness = sharpness_aware.from_options({"radius": radius})
        step = jax.jit(train_step.make_step(algo, txs, sharpness=sharpness))
        return step.lower(state, batch, KEY).cost_analysis()["flops"]

    assert flops(0.1) / flops(0.0) == pytest.approx(2, rel=0.05)


def test_a_traced_radius_gives_the_weights_of_a_number():
    """config.vary can list radii, and 0 among them, in one program."""
    algo = linear_algorithm(quadratic)

    @jax.jit
    def change(radius):
        sharpness = sharpness_aware.from_options({"radius": radius})
        txs = (optax.sgd(1.0),)
        start = {name: jnp.asarray(x) for name, x in START.items()}
        state = train_step.init(algo, txs, KEY, IMAGE, {"params": start})
        step = train_step.make_step(algo, txs, sharpness=sharpness)
        state, _ = step(state, {"image": IMAGE}, KEY)
        return {name: x - state.params["net"][name] for name, x in start.items()}

    for radius in (0.0, 0.3):
        sharpness = sharpness_aware.from_options({"radius": radius})
        expected, _ = step_once(algo, sharpness, START)
        for name, x in change(radius).items():
            np.testing.assert_allclose(x, expected[name], rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_a_radius_can_vary_in_one_program():
    config = smoke_config(radius=0.0, adaptive=False, eta=0.01)
    config["vary"] = [{"key": "optim.sharpness.radius", "values": [0.0, 0.05]}]
    stage = smoke_runs.stage(config)
    (zero, positive), _ = smoke_runs.trained(stage, (0, 2), "looped", steps=1)
    kernels = [state.params["net"]["fc"]["kernel"] for state in (zero, positive)]
    assert np.abs(kernels[0] - kernels[1]).max() > 1e-5


@pytest.mark.slow
@cases.each("strategy", ["unrolled", "vmapped"])
def test_seeds_trained_together_equal_seeds_trained_alone(strategy):
    """Exact strategies agree to the bit; others up to float32's rounding, after a step."""
    stage = smoke_runs.stage(smoke_config(radius=0.1))
    together, _ = smoke_runs.trained(stage, (0, 1), strategy, steps=1)
    for seed, state in enumerate(together):
        (alone,), _ = smoke_runs.trained(stage, (seed,), "looped", steps=1)
        limit = {} if strategy == "unrolled" else {"rtol": 1e-3, "atol": 1e-4}
        check = np.testing.assert_allclose if limit else np.testing.assert_array_equal
        jax.tree.map(functools.partial(check, **limit), state.params, alone.params)


def test_rounding_to_bfloat16_keeps_the_perturbation_on_average():
    """11 million weights of 0.02 and a radius of 0.05: changes of 1.5e-5 per weight.

    Each change is mostly below the rounding; a sample of 262,144 weights has a standard
    error of 0.6 % along e.
    """
    rng = np.random.default_rng(0)
    count = 2**18
    w = {"kernel": jnp.asarray(0.02 * rng.standard_normal(count), jnp.float32)}
    g = {"kernel": jnp.asarray(rng.standard_normal(count), jnp.float32)}
    radius = 0.05 * np.sqrt(count / 11e6)
    moved = sharpness_aware.perturb(
        w, g, trained={"kernel": True}, sharpness=options(radius=radius)
    )
    e = np.asarray(moved["kernel"] - w["kernel"])
    rounded, plain = (
        np.asarray(x["kernel"].astype(jnp.bfloat16).astype(jnp.float32))
        for x in (moved, w)
    )
    change = rounded - plain
    assert np.linalg.norm(e) == pytest.approx(radius, rel=1e-3)
    assert change @ e / (e @ e) == pytest.approx(1, abs=0.02)
    assert 0.2 < np.mean(change != 0) < 0.3


def test_convolutions_in_bfloat16_rise_as_those_in_float32(stored):
    """w + e is rounded to 8 bits: the rise and the gradient still are those of float32.

    The rise agrees within a tenth, gradients within an angle of 0.1 (cosine 0.995).
    """
    start = jax.tree.map(jnp.asarray, from_torch(stored["start"]))
    images = jnp.asarray(stored["images"][0])
    labels = jnp.asarray(stored["labels"][0])
    batch = {"image": images, "target": jax.nn.one_hot(labels, 3)}
    results = {}
    for dtype in (jnp.float32, jnp.bfloat16):
        algo, txs = erm.make(Net(dtype)), (optax.sgd(1.0),)
        state = train_step.init(algo, txs, KEY, images[:1], start)
        step = train_step.make_step(algo, txs, sharpness=options(radius=0.05))
        new_state, metrics = jax.jit(step)(state, batch, KEY)
        grads = jax.tree.map(jnp.subtract, state.params["net"], new_state.params["net"])
        assert {x.dtype for x in jax.tree.leaves(grads)} == {np.dtype("float32")}
        vector = np.concatenate([np.ravel(x) for x in jax.tree.leaves(grads)])
        results[dtype] = vector, metrics["sharpness_class"]
    (exact, exact_rise), (rounded, rise) = results.values()
    cosine = exact @ rounded / np.linalg.norm(exact) / np.linalg.norm(rounded)
    assert rise == pytest.approx(float(exact_rise), rel=0.1)
    assert cosine > 0.995


@pytest.mark.slow
@cases.each("name", algos.ALGOS)
def test_every_algorithm_trains_with_a_second_pass(name):
    """Its losses are those of the plain step; its weights differ and are finite."""
    net = resnet.ResNet(5, depths=(1, 1, 1, 1), bottleneck=False, width=4, stem="small")
    method = METHODS[name]
    algo = algos.ALGOS[name](net, **method.strong)
    txs = (optim.sgd(optim.constant(0.1, 1)),) * len(algo.updates)
    image = jax.random.uniform(KEY, (8, 16, 16, 3))
    batch = {
        "image": image,
        "target": jax.nn.one_hot(jnp.arange(8) % 5, 5),
        "attribute": jnp.arange(8) % 3,
        "domain": jnp.arange(8) // 6,
    }
    if method.views > 1:
        batch["views"] = method.views
    state = jax.jit(lambda: train_step.init(algo, txs, KEY, image[:1]))()
    changed = {}
    for radius in (0.0, 0.5):
        sharpness = sharpness_aware.from_options({"radius": radius})
        step = train_step.make_step(algo, txs, sharpness=sharpness)
        changed[radius] = jax.jit(
            lambda state, step=step: step(state, batch, KEY, algo.static(0, 10))
        )(state)
    (plain, plain_metrics), (sharp, metrics) = changed.values()
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((sharp.params, metrics)))
    for update in algo.updates:
        loss = f"loss_{update.loss}"
        assert metrics[loss] == pytest.approx(float(plain_metrics[loss]), rel=1e-4)
        assert f"sharpness_{update.loss}" in metrics
    for a, b in zip(*(jax.tree.leaves(state.stats) for state in (plain, sharp))):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    differences = jax.tree.map(
        lambda a, b: np.abs(a - b).max(), plain.params, sharp.params
    )
    assert max(jax.tree.leaves(differences)) > 1e-5


@cases.each(
    ("entries", "message"),
    [
        ({"radius": -0.1}, "config.optim.sharpness: radius must be at least 0"),
        ({"radius": 0.1, "eta": -1.0}, "config.optim.sharpness: eta must be at least"),
        ({"adaptive": True}, "must have the option 'radius'"),
        ({"radius": 0.1, "rho": 0.1}, "config.optim.sharpness: .*'rho'"),
        ({"radius": 0.1, "adaptive": "yes"}, "config.optim.sharpness.*adaptive"),
    ],
)
def test_wrong_options_are_refused(entries, message):
    with pytest.raises(ValueError, match=message):
        sharpness_aware.from_options(entries)


@cases.each(
    ("key", "value"),
    [("radius", -1.0), ("eta", -1.0), ("adaptive", 1), ("radius", "x")],
)
def test_wrong_entries_of_a_config_are_refused_by_key(key, value):
    config = smoke_config(**{"radius": 0.1, "adaptive": True, "eta": 0.0, key: value})
    with pytest.raises(ValueError, match=f"config.optim.sharpness.{key}"):
        run_spec.RunSpec.from_config(config)


def test_a_run_without_sharpness_keeps_its_name():
    """An entry that has an effect changes the name, also in a stage."""
    off, head = dict(radius=0.0, adaptive=False, eta=0.1), dict(algo=dict(name="erm"))
    old, new = smoke_config(), smoke_config(**off)
    old["stages"] = [dict(head, optim=dict(old["optim"]))]
    new["stages"] = [dict(head, optim=dict(old["optim"], sharpness=off))]
    assert jc.run_name(new) == jc.run_name(old)
    assert "sharpness" in new["optim"]
    new["optim"]["sharpness"] = dict(off, radius=0.1)
    assert jc.run_name(new) != jc.run_name(old)
    new["optim"]["sharpness"] = dict(off, adaptive=True)
    assert jc.run_name(new) != jc.run_name(old)
    new["optim"]["sharpness"] = off
    new["stages"][0]["optim"]["sharpness"] = dict(off, radius=0.1)
    assert jc.run_name(new) != jc.run_name(old)
