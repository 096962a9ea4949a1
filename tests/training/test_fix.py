"""Sources of randomness that all seeds share: config.fix."""

import jax
import numpy as np
import pytest

from jbias import config as jc
from jbias import run_spec
from tests import cases, smoke_runs

SOURCES = ("init", "order", "augment", "algorithm")
FEW = 2  # Steps.


def config(seeds=(0, 1), **fix):
    made = smoke_runs.small("padain", seeds=seeds, fix=fix)
    made.algo.p, made.precision = 0.5, "float32"
    return jc.to_dict(made)


def weights(seed: int, **fix):
    """Of a seed after some steps, as one flat array."""
    stage = smoke_runs.stage(config((seed,), **fix))
    (state,), _ = smoke_runs.trained(stage, (seed,), "looped", steps=FEW)
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(state.params)])


@pytest.fixture(scope="module")
def plain():
    return {seed: weights(seed) for seed in (0, 5)}


def test_all_sources_of_a_seed_make_that_seed(plain):
    fixed = weights(0, **dict.fromkeys(SOURCES, 5))
    np.testing.assert_array_equal(fixed, plain[5])
    assert (fixed != plain[0]).any()


@pytest.mark.slow
@cases.each("source", SOURCES)
def test_one_fixed_source_is_the_others_of_the_other_seed(source, plain):
    """Seed 5 but for one source of seed 0 is seed 0 but for the three others of seed 5."""
    others = {other: 5 for other in SOURCES if other != source}
    found = weights(5, **{source: 0})
    np.testing.assert_array_equal(found, weights(0, **others))
    assert (found != plain[5]).any() and (found != plain[0]).any()


def test_init_is_of_the_weights_and_order_of_the_batches():
    stage = smoke_runs.stage(config(init=3, order=4))
    first, second = stage.init_state(0), stage.init_state(1)
    jax.tree.map(np.testing.assert_array_equal, first, second)
    batch = {seed: stage.batch(seed, 1)["train"] for seed in (0, 1, 4)}
    np.testing.assert_array_equal(batch[0], batch[1])
    plain = smoke_runs.stage(config())
    np.testing.assert_array_equal(batch[0], plain.batch(4, 1)["train"])
    assert (plain.batch(0, 1)["train"] != plain.batch(1, 1)["train"]).any()


def test_what_a_method_does_not_draw_is_not_random():
    """ERM without augmentation draws the weights and the order alone, pAdaIN its gates."""
    fix = dict(init=0, order=0)
    erm = smoke_runs.small("erm", fix=fix, inputs=())
    with pytest.raises(ValueError, match="nothing random that this method draws"):
        smoke_runs.stage(jc.to_dict(erm))
    smoke_runs.stage(jc.to_dict(smoke_runs.small("erm", fix=dict(order=0), inputs=())))
    smoke_runs.stage(jc.to_dict(smoke_runs.small("padain", fix=fix, inputs=())))
    smoke_runs.stage(jc.to_dict(smoke_runs.small("erm", fix=fix)))


def test_a_preset_has_no_trace_of_what_is_not_fixed():
    made = smoke_runs.CONFIGS["erm"].get_config("smoke")
    assert set(made.fix) == set(SOURCES) and "fix" not in jc.to_dict(made)
    made.fix.order = 3
    assert jc.to_dict(made)["fix"] == {"order": 3}


def test_nothing_fixed_is_no_part_of_a_run_and_something_is():
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
def test_what_means_nothing_is_refused(fix, match):
    with pytest.raises(ValueError, match=match):
        run_spec.RunSpec.from_config(config(**fix))
