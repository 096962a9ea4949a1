"""Laws of every algorithm."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import algos
from tests import cases
from tests.methods import METHODS


def test_every_algorithm_is_tested():
    assert set(METHODS) == set(algos.ALGOS)


# Trained in every run of the tests; what trains is shared by those of a file.
QUICK = ("padain", "mixstyle")
NULLS = [(name, null) for name, method in METHODS.items() for null in method.nulls]


def strong_options(name):
    """Return the algorithm on the tiny net, with its strongest options."""
    return METHODS[name].strong


@cases.each("name", algos.ALGOS, quick=QUICK)
def test_initialisation_and_evaluation_equal_those_of_the_plain_net(name, net, image):
    """Initialisation and evaluation have the same programs as the plain net."""
    algo = algos.ALGOS[name](net, **strong_options(name))
    key = jax.random.key(3)
    variables = jax.eval_shape(net.init, key, image)

    def programs(net):
        init = jax.make_jaxpr(net.init)(key, image)
        return init, jax.make_jaxpr(net.apply)(variables, image)

    assert str(programs(algo.net)) == str(programs(net))


@pytest.mark.slow
@cases.each("name", algos.ALGOS)
def test_the_first_loss_is_near_the_logarithm_of_the_classes(name, train):
    losses, _, _ = train(name, **strong_options(name))
    if METHODS[name].loss != "class":
        assert "loss_class" not in losses
        return
    # Logits of a fresh net are small, not zero.
    assert losses["loss_class"] == pytest.approx(np.log(5), abs=METHODS[name].start)


@cases.each(
    "name",
    algos.ALGOS,
    quick=QUICK,
)
def test_training_changes_the_right_weights_and_is_finite(name, net, train, variables):
    _, state, logits = train(name, **strong_options(name))
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves((state, logits)))
    moved = jax.tree.map(
        lambda a, b: bool((a != b).any()), state.params["net"], variables["params"]
    )
    for path, differs in jax.tree_util.tree_leaves_with_path(moved):
        names = tuple(entry.key for entry in path)
        assert differs == METHODS[name].moves(names), names


@cases.each("name", algos.ALGOS, quick=QUICK)
def test_updates_follow_losses_that_exist(name, net, train):
    losses, state, _ = train(name, **strong_options(name))
    algo = algos.ALGOS[name](net, **strong_options(name))
    assert {f"loss_{update.loss}" for update in algo.updates} <= set(losses)
    assert set(state.params) == {"net", *algo.parts}
    assert set(state.stats) >= {"net", *algo.parts}


@cases.each("name", sorted(set(METHODS) - {"erm"}), quick=QUICK)
def test_trained_networks_differ_from_erm(name, train):
    _, _, logits = train(name, **strong_options(name))
    assert jnp.abs(logits - train("erm")[2]).max() > 1e-3


@cases.each(
    ("name", "options"),
    NULLS,
    quick=QUICK,
)
def test_null_setting_is_erm_to_the_bit(name, options, train):
    """Weights, statistics, outputs and loss are equal after four steps."""
    first, state, logits = train(name, **options)
    erm_first, erm_state, erm_logits = train("erm")
    equal = np.testing.assert_array_equal
    jax.tree.map(equal, state.params["net"], erm_state.params["net"])
    jax.tree.map(equal, state.stats["net"], erm_state.stats["net"])
    equal(logits, erm_logits)
    equal(first["loss_class"], erm_first["loss_class"])


@pytest.mark.slow
@cases.each("name", [k for k, v in METHODS.items() if "mix_group" in v.strong])
def test_refuses_batches_that_groups_do_not_divide(name, net, variables, batch):
    algo = algos.ALGOS[name](net, **{**strong_options(name), "mix_group": 3})
    assert algo.mix_group == 3
    key = jax.random.key(0)
    part_shapes = {
        name: jax.eval_shape(init, key, batch["image"], variables)
        for name, init in algo.parts.items()
    }
    params = {"net": variables["params"]} | {
        k: v["params"] for k, v in part_shapes.items()
    }
    stats = {"net": variables["stats"]} | {
        k: v["stats"] for k, v in part_shapes.items()
    }
    with pytest.raises(ValueError, match="multiple of mix_group=3, got 8"):
        jax.eval_shape(algo.losses, params, stats, batch, key)
