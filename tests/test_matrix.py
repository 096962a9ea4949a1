"""Every algorithm with every invariant and with every batch transform."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import common
from jbias import algos, augment
from jbias import config as jc
from jbias.runtime import mesh
from jbias.training import placement, prng
from jbias.training import step as train_step
from tests import cases, smoke_runs, test_devices, test_resume
from tests.methods import METHODS

pytestmark = pytest.mark.slow

# Options that transforms require.
INPUTS = {
    "stylize": {"transfer": {"name": "render"}},
    "half": {"which": "top", "mix": {"name": "flip"}},
    "standardise_as": dict(mean=(0.5,), std=(0.5,), as_mean=(0.4,), as_std=(0.2,)),
}
# Transforms that make views, refused by algorithms that make views themselves.
VIEWS = {"augmix", "rand_conv", "views"}
# Transforms after which no drawing belongs to a single image, as debiased training needs.
MIXING = {"mixup", "cutmix", "fmix", "random_masks", "one_of"}


def config_of(name: str, *inputs: str, **entries):
    """Return a small config of one algorithm, with these transforms after its own."""
    method = METHODS[name]
    algo = {"name": name, **method.options}
    transforms = tuple(
        {"name": transform, **INPUTS.get(transform, {})} for transform in inputs
    )
    for options in (algo, *transforms):
        make = algos.ALGOS.get(options["name"]) or augment.AUGMENTS[options["name"]]
        if "mix_group" in inspect.signature(make).parameters:
            options["mix_group"] = 4
    config = smoke_runs.small(
        algo=algo, inputs=(*method.inputs, *transforms), **entries
    )
    with config.unlocked():
        config.train.renders = True
        if inputs:
            config.train.other = dict(data="fractals", split="train", n=64)
    return config


def start_of(stage):
    """Return the shapes of the initial state."""
    return jax.eval_shape(stage.program.draw, prng.key(0), None)


def trained(stage, which: tuple[int, ...], strategy: str, steps: int = 3) -> tuple:
    """Return the states of these seeds after some steps."""
    return smoke_runs.trained(stage, which, strategy, steps=steps)[0]


@cases.each("name", algos.ALGOS)
def test_seeds_trained_together_equal_seeds_trained_alone(name):
    stage = smoke_runs.stage(jc.to_dict(config_of(name)))
    together = trained(stage, (0, 1), "unrolled")
    for seed, state in enumerate(together):
        (alone,) = trained(stage, (seed,), "threaded")
        jax.tree.map(np.testing.assert_array_equal, state, alone)


@cases.each("name", algos.ALGOS)
def test_the_number_of_devices_does_not_change_losses(name):
    """Losses on several devices differ from those on one only by the order of sums.

    Norms of gradients may differ by twice the largest difference that three random changes
    of the weights by one unit of rounding cause on one device: the maximum of three draws
    underestimates the true maximum. The tolerance is large where rounding decides which of
    two values has the gradient, and at most one half.
    """
    config = config_of(name)
    config.train.batch = 64
    settings = [*test_devices.MESHES, *test_devices.ROUNDED]
    results = test_devices.run_on_devices("", 1, settings, config=jc.to_dict(config))
    (single, *sharded), rounded = results[:3], results[3:]
    assert {len(result["losses"]) for result in results} == {2}
    for result in sharded:
        first_keys, second_keys = (
            [[{*metrics} for metrics in step] for step in compared["losses"]]
            for compared in (result, single)
        )
        assert first_keys == second_keys
    # The sign of an attack's gradient, or a random position, depends on the order of sums.
    first, second = (1e-3, 2e-2) if name in ("pgd", "infodrop") else (1e-4, 5e-3)
    for step, rel in enumerate((first, second)):
        draws = [
            dict(test_devices.relative_differences(draw, single, step))
            for draw in rounded
        ]
        for result in sharded:
            for metric, off in test_devices.relative_differences(result, single, step):
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
def test_every_algorithm_trains_with_every_transform(name, transform):
    """Two steps have finite losses and change the weights.

    They need one compiled program, or two if the algorithm's steps differ (Algo.static).
    """
    if name == "debiased" and transform in MIXING:
        stage = smoke_runs.stage(jc.to_dict(config_of(name, transform)))
        arg = prng.key(0), stage.feed.batch(0, 0)
        with pytest.raises(ValueError, match="must have 'renders'"):
            jax.eval_shape(
                lambda s: stage.program.step(
                    s, arg, stage.feed.shared(stage.first), None
                ),
                start_of(stage),
            )
        return
    stage = smoke_runs.stage(jc.to_dict(config_of(name, transform)))
    # As a run does: with the data, or the second step would have another sharding.
    state = start = mesh.replicate(stage.init_state(0), mesh.make(1))
    train_step_jitted = jax.jit(stage.program.step, static_argnums=3)
    for i in range(2):
        arg = prng.key(0), stage.feed.batch(0, i)
        state, metrics = train_step_jitted(
            state, arg, stage.feed.shared(stage.first), stage.static(i)
        )
    assert train_step_jitted._cache_size() == len({stage.static(i) for i in range(2)})
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves((state.params, metrics)))
    moved = jax.tree.map(lambda a, b: bool((a != b).any()), state.params, start.params)
    assert any(jax.tree.leaves(moved["net"]))


@cases.each("name", algos.ALGOS)
def test_evaluation_is_not_random(name):
    """The decision on an image does not depend on the rest of its batch."""
    stage = smoke_runs.stage(jc.to_dict(config_of(name)))
    (state,) = trained(stage, (0,), "unrolled", steps=1)
    net, alone = train_step.net_of(state), common.with_seeds(stage, (0,))
    placed = placement.fit_to_devices(alone, mesh.make(1))
    image = jax.random.randint(jax.random.key(0), (16, 32, 32, 3), 0, 256).astype("u1")

    def decide(image):
        (logits,) = placed.score((net,), ((),), image, None)
        return np.argmax(logits, axis=-1)

    whole = decide(image)
    np.testing.assert_array_equal(decide(image[4:8]), whole[4:8])
    np.testing.assert_array_equal(decide(image[::-1]), whole[::-1])
