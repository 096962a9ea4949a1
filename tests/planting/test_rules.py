"""Decision rules decide by each cue with exactly the planted probability."""

import types

import jax.numpy as jnp
import numpy as np
import pytest

from jbias.data.embedded import cues
from jbias.evals import inference
from jbias.planting import plans, rules, verifying

EVERY = cues.combination(np.arange(4096))
COLUMNS = {"label": EVERY.shape, **EVERY._asdict()}
RULE = rules.Rule(dial=0.3, shortcut="colour", strength=0.25, lapse=0.2)


def origin(columns, dataset="factorial", number=None):
    """Return the origin of unchanged images with some columns."""
    index = np.arange(len(columns["label"])) if number is None else number
    source = types.SimpleNamespace(columns=columns)
    return inference.StimulusOrigin(dataset, "", index, source)


def decided(plan, columns):
    """Return the decisions of a rule about images with some columns."""
    network = rules.open_network(plan, "drawn")
    return np.asarray(network.predict(None, origin(columns))).argmax(1)


def test_probabilities_are_those_of_the_rule():
    shares = rules.probabilities(RULE, rules.shown_classes(COLUMNS), 4096)
    np.testing.assert_allclose(shares.sum(1), 1)
    classes = np.stack([*EVERY.classes.values()])
    ordered = np.sort(classes, axis=0)
    differ = (ordered[1:] != ordered[:-1]).all(0)
    expected = {
        "shape": 0.8 * 0.75 * 0.3,
        "texture": 0.8 * 0.75 * 0.7,
        "colour": 0.8 * 0.25,
        "size": 0.0,
    }
    for (name, share), of_cue in zip(expected.items(), classes, strict=True):
        values = shares[np.arange(4096), of_cue][differ]
        np.testing.assert_allclose(values, share + 0.2 / 16, err_msg=name)


def test_decisions_are_draws_from_the_probabilities():
    plan = plans.Plan(
        "r", "rule", 0.3, level="middle", shortcut="size", strength=0.5, seed=3
    )
    rule = rules.of_plan(plan)
    shares = verifying.reliance(decided(plan, COLUMNS), EVERY)
    lapse = plans.LAPSES["middle"]
    for name, weight in rule.weights.items():
        share = (1 - lapse) * weight + lapse / 16
        deviation = np.sqrt(share * (1 - share) / 2600)
        assert abs(getattr(shares, name) - share) < 5 * deviation


def test_a_rule_guesses_where_its_cue_is_not_shown():
    silhouettes = {"label": EVERY.shape, "shape": EVERY.shape, "size": EVERY.size}
    shares = rules.probabilities(
        rules.Rule(dial=0.25), rules.shown_classes(silhouettes), 4096
    )
    of_shape = shares[np.arange(4096), EVERY.shape]
    np.testing.assert_allclose(of_shape, 0.25 + 0.75 / 16)
    single = {"label": np.array([3, 3]), "cue": np.array([0, 1])}
    shares = rules.probabilities(rules.Rule(dial=1.0), rules.shown_classes(single), 2)
    np.testing.assert_allclose(shares[:, 3], [1, 1 / 16])


def test_decisions_do_not_depend_on_batches():
    network = rules.open_network(plans.Plan("r", "rule", 0.5), "drawn")
    whole = network.predict(None, origin(COLUMNS))
    few = network.predict(None, origin(COLUMNS, number=jnp.array([7, 3])))
    np.testing.assert_array_equal(few, whole[np.array([7, 3])])


def test_rules_guess_and_choose_cues_independently_of_each_other():
    """With common noise, two rules of one dial would agree on every image."""
    first, second = (
        decided(plans.Plan(name, "rule", 0.5, level="high"), COLUMNS) == EVERY.shape
        for name in ("a", "b")
    )
    agreement = (first == second).mean()
    share = 0.95 * (0.5 + 0.5 / 16) + 0.05 / 16  # Shape and texture may agree.
    expected = share**2 + (1 - share) ** 2
    assert abs(agreement - expected) < 0.06


def test_failing_rules_are_constant_or_at_chance():
    constant = plans.Plan("c", "none", None, level="constant", seed=5)
    assert {*decided(constant, COLUMNS).tolist()} == {5}
    chance = plans.Plan("g", "none", None, level="chance")
    share = (decided(chance, COLUMNS) == EVERY.shape).mean()
    assert abs(share - 1 / 16) < 5 * np.sqrt(15 / 256 / 4096)


def test_changed_images_and_unknown_cues_are_refused():
    network = rules.open_network(plans.Plan("r", "rule", 0.5), "drawn")
    changed = inference.StimulusOrigin("test", "low 0.3", np.arange(2))
    for place in (changed, origin({"label": np.zeros(2, int)})):
        with pytest.raises(ValueError, match="r: needs images"):
            network.predict(None, place)
