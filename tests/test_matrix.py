"""Every algorithm under every law, and with every batch transform: the whole table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import common
from jbias import algos, augment
from jbias import config as jc
from jbias.runtime import mesh
from jbias.training import prng, stages
from jbias.training import step as train_step
from tests import cases, smoke_runs, test_devices, test_resume
from tests.methods import METHODS

pytestmark = pytest.mark.slow

# What transforms need; the others take their defaults.
INPUTS = {
    "stylize": {"transfer": {"name": "render"}},
    "half": {"which": "top", "mix": {"name": "flip"}},
    "standardise_as": dict(mean=(0.5,), std=(0.5,), as_mean=(0.4,), as_std=(0.2,)),
}
# They make views of their own, which what wants views itself refuses.
VIEWS = {"augmix", "rand_conv", "views"}
# After them no drawing is of the image alone, which a style of the drawing's refuses.
MIXING = {"mixup", "cutmix", "fmix", "random_masks", "one_of"}


def config_of(name: str, *inputs: str, **entries):
    """A small run of one algorithm, with these transforms after its own."""
    method = METHODS[name]
    algo = {"name": name, **method.options}
    more = tuple({"name": one, **INPUTS.get(one, {})} for one in inputs)
    for options in (algo, *more):
        make = algos.ALGOS.get(options["name"]) or augment.AUGMENTS[options["name"]]
        if "mix_group" in (make.__kwdefaults__ or {}):
            options["mix_group"] = 4
    config = smoke_runs.small(algo=algo, inputs=(*method.inputs, *more), **entries)
    with config.unlocked():
        config.train.renders = True
        if inputs:
            config.train.other = dict(data="fractals", split="train", n=64)
    return config


def start_of(stage):
    """The shapes of a first state."""
    return jax.eval_shape(stage.program.draw, prng.key(0), None)


def trained(stage, which: tuple[int, ...], strategy: str, steps: int = 3) -> tuple:
    """The states of these seeds after some steps."""
    return smoke_runs.trained(stage, which, strategy, steps=steps)[0]


@cases.each("name", algos.ALGOS)
def test_seeds_in_company_are_seeds_alone(name):
    stage = smoke_runs.stage(jc.to_dict(config_of(name)))
    together = trained(stage, (0, 1), "unrolled")
    for seed, state in enumerate(together):
        (alone,) = trained(stage, (seed,), "threaded")
        jax.tree.map(np.testing.assert_array_equal, state, alone)


@cases.each("name", algos.ALGOS)
def test_devices_change_no_number(name):
    """But for the order of sums.

    Norms of gradients may differ by twice what a unit of rounding in the weights makes of
    them on one device, for of three draws the largest is rarely the largest there is. That is
    much where rounding decides which of two values has the gradient; never half.
    """
    config = config_of(name)
    config.train.batch = 64
    ways = [*test_devices.MESHES, *test_devices.ROUNDED]
    found = test_devices.run_on_devices("", 1, ways, config=jc.to_dict(config))
    (one, *others), rounded = found[:3], found[3:]
    assert {len(of["losses"]) for of in found} == {2}
    for of in others:
        keys = ([[{*x} for x in step] for step in way["losses"]] for way in (of, one))
        assert next(keys) == next(keys)
    # A sign of an attack's gradient, or a place that is drawn, turns on the order of sums.
    first, second = (1e-3, 2e-2) if name in ("pgd", "infodrop") else (1e-4, 5e-3)
    for step, rel in enumerate((first, second)):
        draws = [
            dict(test_devices.relative_differences(draw, one, step)) for draw in rounded
        ]
        for other in others:
            for metric, off in test_devices.relative_differences(other, one, step):
                ties = min(2 * max(draw[metric] for draw in draws), 0.5)
                most = max(rel, ties) if metric.startswith("gradient_norm") else rel
                assert off <= most, (metric, step)


@cases.each("name", algos.ALGOS)
def test_killed_and_resumed_ends_the_same(name, tmp_path):
    config = config_of(name, epochs=2.0, save_every="3 steps")
    test_resume.finish(config, tmp_path / "whole")
    killed = smoke_runs.start(config, tmp_path / "killed", "step", "5")
    killed.communicate(timeout=600)
    assert killed.returncode == -9
    test_resume.finish(config, tmp_path / "killed")
    test_resume.assert_same_end(tmp_path / "whole", tmp_path / "killed")


@cases.each(
    ("name", "transform"),
    [
        (name, transform)
        for name in algos.ALGOS
        for transform in augment.AUGMENTS
        if METHODS[name].views == 1 or transform not in VIEWS  # Else of its own.
    ],
)
def test_joins_every_transform(name, transform):
    """Two steps, one program: finite losses and weights, and weights that moved."""
    if name == "debiased" and transform in MIXING:
        stage = smoke_runs.stage(jc.to_dict(config_of(name, transform)))
        arg = prng.key(0), stage.batch(0, 0)
        with pytest.raises(ValueError, match="must have 'renders'"):
            jax.eval_shape(
                lambda s: stage.program.step(s, arg, stage.shared(stage.first), None),
                start_of(stage),
            )
        return
    stage = smoke_runs.stage(jc.to_dict(config_of(name, transform)))
    # As a run does: with the data, or the second step would have another sharding.
    state = start = mesh.replicate(stage.init_state(0), mesh.make(1))
    one = jax.jit(stage.program.step, static_argnums=3)
    for i in range(2):
        arg = prng.key(0), stage.batch(0, i)
        state, metrics = one(state, arg, stage.shared(stage.first), stage.static(i))
    assert one._cache_size() == 1
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves((state.params, metrics)))
    moved = jax.tree.map(lambda a, b: bool((a != b).any()), state.params, start.params)
    assert any(jax.tree.leaves(moved["net"]))


@cases.each("name", algos.ALGOS)
def test_evaluation_is_not_random(name):
    """An image is decided about by itself, whatever comes with it and where."""
    stage = smoke_runs.stage(jc.to_dict(config_of(name)))
    (state,) = trained(stage, (0,), "unrolled", steps=1)
    net, alone = train_step.net_of(state), common.with_seeds(stage, (0,))
    laid = stages.fit_to_devices(alone, mesh.make(1))
    image = jax.random.randint(jax.random.key(0), (16, 32, 32, 3), 0, 256).astype("u1")

    def decide(image):
        (logits,) = laid.score((net,), ((),), image, None)
        return np.argmax(logits, axis=-1)

    whole = decide(image)
    np.testing.assert_array_equal(decide(image[4:8]), whole[4:8])
    np.testing.assert_array_equal(decide(image[::-1]), whole[::-1])
