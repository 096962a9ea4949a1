"""Groups of examples: their numbers, their means, and errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.algos import (
    dann,
    eqrm,
    erm,
    fishr,
    group_dro,
    groups,
    invariance,
    mldg,
    mmd,
    reweight,
)
from tests import cases
from tests.methods import COLUMNS

RNG = np.random.default_rng(0)
LABEL, ATTRIBUTE = RNG.integers(0, 3, 20), RNG.integers(0, 4, 20)
BATCH = {"target": jnp.eye(3)[LABEL], "attribute": jnp.asarray(ATTRIBUTE)}
TRAINING_COLUMNS = {
    "label": LABEL,
    "attribute": ATTRIBUTE,
    "renders": np.zeros((20, 2)),
}


def test_every_combination_has_a_number_and_its_count():
    by_class_and_attribute = groups.from_columns("x", TRAINING_COLUMNS, "group")
    assert by_class_and_attribute.names == (
        "class",
        "attribute",
    ) and by_class_and_attribute.sizes == (3, 4)
    np.testing.assert_array_equal(
        by_class_and_attribute.number(BATCH), LABEL * 4 + ATTRIBUTE
    )
    table = [
        [((LABEL == k) & (ATTRIBUTE == a)).sum() for a in range(4)] for k in (0, 1, 2)
    ]
    np.testing.assert_array_equal(by_class_and_attribute.counts.reshape(3, 4), table)


def test_soft_targets_belong_to_their_largest_class():
    by_class = groups.from_columns("x", TRAINING_COLUMNS, "class")
    smooth = 0.9 * BATCH["target"] + 0.1 / 3
    np.testing.assert_array_equal(by_class.number({"target": smooth}), LABEL)


@pytest.mark.parametrize("weighted", [False, True])
def test_means_are_weighted_means_per_group(weighted):
    weight = RNG.uniform(0, 1, 20).astype(np.float32) if weighted else np.ones(20)
    value = RNG.normal(size=20).astype(np.float32)
    in_batch = ATTRIBUTE != 2
    batch = {name: x[in_batch] for name, x in BATCH.items()}
    if weighted:
        batch["weight"] = jnp.asarray(weight[in_batch])
    by_attribute = groups.from_columns("x", TRAINING_COLUMNS, "attribute")
    mean, present = groups.means(
        jnp.asarray(value[in_batch]), by_attribute.members(batch)
    )
    members = [(ATTRIBUTE == a) & in_batch for a in range(4)]
    expected = [
        np.average(value[rows], weights=weight[rows]) if rows.any() else 0
        for rows in members
    ]
    np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(present, [1, 1, 0, 1])
    overall = groups.mean_present(mean, present)
    expected_overall = np.mean([expected[a] for a in (0, 1, 3)])
    assert overall == pytest.approx(expected_overall, rel=1e-5)


def test_environments_are_the_sources_or_domains_else_attributes():
    assert groups.environments("x", TRAINING_COLUMNS, "").names == ("attribute",)
    assert groups.environments(
        "x", {**TRAINING_COLUMNS, "domain": LABEL}, ""
    ).names == ("domain",)
    with_domains = {**TRAINING_COLUMNS, "domain": LABEL}
    assert groups.environments("x", with_domains, "attribute").sizes == (4,)
    plain = {"label": LABEL}
    with pytest.raises(
        ValueError, match="^dann: training images must be of several"
    ) as e:
        groups.environments("dann", plain, "")
    assert "config.train.also" in str(e.value) and "this set has label" in str(e.value)
    with pytest.raises(ValueError, match="must name columns"):
        groups.environments("dann", plain, "attribute")


@cases.each(
    ("by", "got"), [("hair", "'hair'"), ("class+renders", "'renders'"), ("", "''")]
)
def test_errors_name_a_missing_column(net, by, got):
    with pytest.raises(
        ValueError, match=f"^x: must name columns .* got {got}; .*class"
    ):
        groups.from_columns("x", TRAINING_COLUMNS, by)
    with pytest.raises(ValueError, match="^group_dro: by: must name columns"):
        group_dro.make(net, by=by or "none", columns=TRAINING_COLUMNS)


@cases.each(
    ("make", "options"),
    [
        (group_dro.make, {"eta": -0.1}),
        (group_dro.make, {"adjustment": -1}),
        (reweight.make, {"power": -1}),
        (invariance.irm, {"weight": -1}),
        (invariance.irm, {"anneal": 1.5}),
        (invariance.vrex, {"beta": -1}),
        (invariance.coral, {"gamma": -1}),
        (mmd.make, {"weight": -1}),
        (mmd.make, {"gammas": ()}),
        (mmd.make, {"gammas": (1.0, 0.0)}),
        (dann.make, {"weight": -1}),
        (dann.make, {"grad_penalty": -0.1}),
        (dann.make, {"d_steps": -1}),
        (dann.make, {"d_rate": -1}),
        (dann.make, {"width": 0}),
        (dann.make, {"depth": 1}),
        (dann.make, {"dropout": 1.0}),
    ],
)
def test_impossible_options_are_refused(net, make, options):
    with pytest.raises(ValueError, match=r" must be .* got ") as refusal:
        make(net, columns=COLUMNS, **options)
    assert "\n" not in str(refusal.value)


_INVARIANT = [invariance.coral, invariance.irm, invariance.vrex]
_ALIGNED = [*dann.ALGOS.values(), mmd.make]
_OTHERS = [eqrm.make, fishr.make, mldg.make]


@cases.each("make", [group_dro.make, reweight.make, *_INVARIANT, *_ALIGNED, *_OTHERS])
def test_without_training_data_only_evaluation_works(net, batch, make):
    algo = make(net)
    assert algo.net is net and algo.decide is None
    with pytest.raises(ValueError, match="training needs the columns"):
        algo.losses({}, {}, batch, jax.random.key(0))
    assert erm.make(net).updates == algo.updates
