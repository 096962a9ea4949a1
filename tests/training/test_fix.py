"""Sources of randomness that all seeds share: config.fix."""

import jax
import numpy as np
import pytest

from jbias import config as jc
from jbias import run_spec
from tests import cases, smoke_runs

SOURCES = ("init", "order", "augment", "algorithm")
NUM_STEPS = 2


def config(seeds=(0, 1), **fix):
    c = smoke_runs.small("padain", seeds=seeds, fix=fix)
    c.algo.p, c.precision = 0.5, "float32"
    return jc.to_dict(c)


def weights(seed: int, **fix):
    """Return the weights of a seed after some steps, as one flat array."""
    stage = smoke_runs.stage(config((seed,), **fix))
    (state,), _ = smoke_runs.trained(stage, (seed,), "looped", steps=NUM_STEPS)
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state.params)])


@pytest.fixture(scope="module")
def plain():
    return {seed: weights(seed) for seed in (0, 5)}


@pytest.mark.slow
def test_fixing_all_sources_to_a_seed_gives_that_seed(plain):
    fixed = weights(0, **dict.fromkeys(SOURCES, 5))
    np.testing.assert_array_equal(fixed, plain[5])
    assert (fixed != plain[0]).any()


@pytest.mark.slow
@cases.each("source", SOURCES)
def test_fixing_one_source_equals_fixing_the_three_others_to_the_other_seed(
    source, plain
):
    """Seed 5 with one source of seed 0 equals seed 0 with three sources of seed 5."""
    three_sources = {name: 5 for name in SOURCES if name != source}
    fixed = weights(5, **{source: 0})
    np.testing.assert_array_equal(fixed, weights(0, **three_sources))
    assert (fixed != plain[5]).any() and (fixed != plain[0]).any()


def test_init_fixes_the_weights_and_order_the_batches():
    stage = smoke_runs.stage(config(init=3, order=4))
    first, second = stage.init_state(0), stage.init_state(1)
    jax.tree.map(np.testing.assert_array_equal, first, second)
    batch = {seed: stage.feed.batch(seed, 1)["train"] for seed in (0, 1, 4)}
    np.testing.assert_array_equal(batch[0], batch[1])
    plain = smoke_runs.stage(config())
    np.testing.assert_array_equal(batch[0], plain.feed.batch(4, 1)["train"])
    assert (plain.feed.batch(0, 1)["train"] != plain.feed.batch(1, 1)["train"]).any()


@pytest.mark.slow
def test_a_run_in_which_nothing_is_random_is_refused():
    """ERM without augmentation draws only weights and order; pAdaIN also draws gates."""
    fix = dict(init=0, order=0)
    erm = smoke_runs.small("erm", fix=fix, inputs=())
    with pytest.raises(ValueError, match="nothing random that this method draws"):
        smoke_runs.stage(jc.to_dict(erm))
    smoke_runs.stage(jc.to_dict(smoke_runs.small("erm", fix=dict(order=0), inputs=())))
    smoke_runs.stage(jc.to_dict(smoke_runs.small("padain", fix=fix, inputs=())))
    smoke_runs.stage(jc.to_dict(smoke_runs.small("erm", fix=fix)))


def test_sources_that_are_not_fixed_are_left_out_of_the_config():
    c = smoke_runs.CONFIGS["erm"].get_config("smoke")
    assert set(c.fix) == set(SOURCES) and "fix" not in jc.to_dict(c)
    c.fix.order = 3
    assert jc.to_dict(c)["fix"] == {"order": 3}


def test_only_fixed_sources_are_part_of_a_runs_identity():
    assert "fix" not in config()
    assert jc.run_name(config(init=0)) != jc.run_name(config(init=1))


@cases.each(
    ("fix", "match"),
    [
        (dict(ordre=1), "unknown source of randomness 'ordre'; did you mean 'order'"),
        (dict(order=-1), r"config\.fix\.order: must be a whole number below 2\*\*32"),
        (
            dict(order=True),
            r"config\.fix\.order: must be a whole number or None, got True",
        ),
        (dict.fromkeys(SOURCES, 0), "config.fix: leaves nothing random"),
    ],
)
def test_wrong_entries_are_refused(fix, match):
    with pytest.raises(ValueError, match=match):
        run_spec.RunSpec.from_config(config(**fix))
