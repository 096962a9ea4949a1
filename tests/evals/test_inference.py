"""Decisions of networks on sets: batches, rules of aggregation, and logits that are not finite."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jbias.data import class_maps, loader, tables
from jbias.evals import inference
from jbias.models import cnn
from jbias.runtime import mesh
from jbias.training import seed_axis, strategies
from tests import cases

CLASSES = 40
SIXTEEN = tuple(class_maps.geirhos16())


class Linear(nn.Module):
    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        assert not train
        return nn.Dense(5)(image.reshape(len(image), -1))


@pytest.fixture(scope="module")
def two_networks():
    images = np.random.default_rng(0).integers(0, 256, (23, 4, 4, 3), np.uint8)
    net = Linear()
    variables = [
        net.init(jax.random.key(seed), jnp.zeros((1, 4, 4, 3))) for seed in (0, 1)
    ]
    return net, tuple(variables), images


def score_both(apply, strategy):
    """Return a function that scores images with both networks, given as two trees."""
    layout = seed_axis.SeedLayout(mesh.make(1), (2,))
    return seed_axis.map_seeds(
        inference.make_scorer(apply), strategies.STRATEGIES[strategy], layout
    )


def decide(
    two_networks, batch, matrix=None, strategy="unrolled", aggregate="mean_prob"
):
    net, variables, images = two_networks
    (decided,) = inference.decide_sets(
        score_both(net.apply, strategy),
        variables,
        map(jnp.asarray, loader.batches([images], batch, loader.ReaderOptions(1))),
        [inference.DecisionRule(len(images), matrix, aggregate)],
    )
    return decided


@pytest.mark.slow
@cases.each("batch", [1, 7, 23, 64])
def test_each_image_is_decided_once_for_any_batch_size(two_networks, batch):
    net, variables, images = two_networks
    for network_variables, decided in zip(variables, decide(two_networks, batch)):
        expected = np.argmax(
            net.apply(network_variables, images / np.float32(255)), axis=-1
        )
        np.testing.assert_array_equal(decided, expected)


def test_classes_are_means_of_probabilities_and_empty_ones_never_win(two_networks):
    net, variables, images = two_networks
    matrix = np.zeros((5, 4), np.float32)
    matrix[[0, 1], 0] = 1 / 2
    matrix[2, 1] = 1
    matrix[[3, 4], 3] = 1 / 2
    p = jax.nn.softmax(net.apply(variables[0], images / np.float32(255)))
    p = np.asarray(p)
    expected = [
        int(np.argmax([row[:2].mean(), row[2], -1, row[3:].mean()])) for row in p
    ]
    decided, _ = decide(two_networks, 8, matrix)
    np.testing.assert_array_equal(decided, expected)
    assert 2 not in decided


def test_one_program_of_the_network_serves_all_rules(two_networks):
    """Sets differ in number, rule and classes; the network is traced once."""
    net, variables, images = two_networks
    traced = []

    def apply(network_variables, image):
        traced.append(image.shape)
        return net.apply(network_variables, image)

    rules = [
        inference.DecisionRule(23),
        inference.DecisionRule(20, np.eye(5, 3, dtype=np.float32)),
        inference.DecisionRule(1, np.eye(5, 2, dtype=np.float32), "mean_logit"),
        inference.DecisionRule(2, np.eye(5, 3, dtype=np.float32), "max_prob"),
        inference.DecisionRule(9, np.eye(5, 3, dtype=np.float32)),
    ]
    sets = [images[: rule.n] for rule in rules]
    decisions_of_sets = inference.decide_sets(
        score_both(apply, "looped"),
        variables,
        map(jnp.asarray, loader.batches(sets, 8, loader.ReaderOptions(1))),
        rules,
    )
    for rule, decided in zip(rules, decisions_of_sets, strict=True):
        one_set = net, variables, images[: rule.n]
        expected = decide(one_set, 23, rule.matrix, aggregate=rule.aggregate)
        np.testing.assert_array_equal(decided, expected)
    assert traced == [(8, 4, 4, 3)]


@pytest.mark.slow
@cases.each("aggregate", class_maps.AGGREGATES)
def test_network_and_rule_in_two_programs_decide_as_in_one(aggregate):
    """Cutting between the network and the rule changes no decision."""
    net = cnn.CNN(CLASSES, width=4)
    images = np.random.default_rng(0).integers(0, 256, (64, 16, 16, 3), np.uint8)
    shape = jnp.zeros((1, 16, 16, 3))
    init = jax.jit(net.init)
    variables = tuple(init(jax.random.key(seed), shape) for seed in (0, 1))
    members = np.random.default_rng(1).random((CLASSES, 9)) < 0.15
    matrix = (members / np.maximum(members.sum(0), 1)).astype(np.float32)

    @jax.jit
    def decide_jointly(network_variables, image, matrix):
        logits = inference.make_scorer(net.apply)(network_variables, None, image, None)
        return inference.decide_batch((logits,), matrix, aggregate=aggregate)

    (decisions_of_networks,) = inference.decide_sets(
        score_both(net.apply, "threaded"),
        variables,
        [jnp.asarray(images)],
        [inference.DecisionRule(64, matrix, aggregate)],
    )
    for network_variables, decided in zip(variables, decisions_of_networks):
        np.testing.assert_array_equal(
            decided, decide_jointly(network_variables, images, matrix)[0]
        )
    assert len(set(decisions_of_networks[0])) > 1


def test_means_of_logits_are_another_rule(two_networks):
    """One sure member among four decides by mean probability, not by mean logit."""
    net, variables, images = two_networks
    matrix = np.zeros((5, 2), np.float32)
    matrix[:4, 0], matrix[4, 1] = 1 / 4, 1
    biased = jax.tree.map(lambda leaf: 0 * leaf, variables[0])
    biased["params"]["Dense_0"]["bias"] = jnp.array([9.0, -9, -9, -9, 0])
    two_networks = net, (biased,), images
    (by_prob,) = decide(two_networks, 8, matrix)
    (by_logit,) = decide(two_networks, 8, matrix, aggregate="mean_logit")
    assert (by_prob == 0).all()
    assert (by_logit == 1).all()


def decide_logits(logits, matrix, aggregate):
    """Return the decided classes of rows of logits."""
    (decided,) = inference.decide_batch((logits,), matrix, aggregate=aggregate)
    return np.asarray(decided)


def decide_by_loop(logits, matrix, aggregate):
    """Return the decided classes by the definition of the rule, image by image."""
    reduce, transform = {
        "mean_prob": (np.mean, np.exp),
        "sum_prob": (np.sum, np.exp),
        "max_prob": (np.max, np.exp),
        "mean_logit": (np.mean, np.asarray),
    }[aggregate]
    members = [np.flatnonzero(column) for column in matrix.T]
    scores = [
        [
            reduce(transform(row[columns])) if len(columns) else -np.inf
            for columns in members
        ]
        for row in logits.astype(np.float64)
    ]
    return np.argmax(scores, axis=-1)


@cases.each("aggregate", class_maps.AGGREGATES)
def test_rules_equal_a_naive_loop(aggregate):
    pairs = class_maps.match(
        tables.wnids(), "wnid", SIXTEEN, "entry16", aggregate=aggregate
    )
    matrix = pairs.matrix.copy()
    matrix[:, SIXTEEN.index("cat")] = 0  # A class without a member.
    logits = np.random.default_rng(0).normal(size=(300, 1000)).astype(np.float32) * 2
    expected = decide_by_loop(logits, matrix, aggregate)
    np.testing.assert_array_equal(decide_logits(logits, matrix, aggregate), expected)
    other_rules = set(class_maps.AGGREGATES) - {aggregate}
    for other_rule in other_rules:
        assert (decide_by_loop(logits, matrix, other_rule) != expected).any(), (
            "rules that differ"
        )
    assert len(set(expected)) > 1


def share_with_sure_member(aggregate, n=400):
    """Return the share of right decisions by class if one member's logit is raised by 10."""
    mapped = class_maps.match(
        tables.wnids(), "wnid", SIXTEEN, "entry16", aggregate=aggregate
    )
    rng, shares = np.random.default_rng(0), {}
    for label, name in enumerate(SIXTEEN):
        logits = rng.normal(size=(n, 1000)).astype(np.float32)
        members = np.flatnonzero(mapped.matrix[:, label])
        logits[np.arange(n), rng.choice(members, n)] += 10
        shares[name] = np.mean(decide_logits(logits, mapped.matrix, aggregate) == label)
    return shares


def test_one_sure_member_decides_under_means_and_maxima_of_probabilities():
    assert share_with_sure_member("mean_prob") == dict.fromkeys(SIXTEEN, 1)
    assert share_with_sure_member("max_prob") == dict.fromkeys(SIXTEEN, 1)


def test_one_sure_member_rarely_decides_under_means_of_logits_in_large_classes():
    """Expected shares, from an independent implementation: 0.1, 0.5, 58, 66, 79 %; n = 400."""
    shares = share_with_sure_member("mean_logit")
    expected_shares = {
        "dog": 0.001,
        "bird": 0.005,
        "truck": 0.58,
        "bottle": 0.66,
        "cat": 0.79,
    }
    for name, share in expected_shares.items():
        error = (share * (1 - share) / 400) ** 0.5
        assert shares[name] == pytest.approx(share, abs=4 * error), name
    assert min(shares[name] for name in ("airplane", "bicycle", "car", "clock")) > 0.98


@cases.each("name", ["imagenet_a", "imagenet_r"])
@cases.each("aggregate", class_maps.AGGREGATES)
def test_restricted_decisions_are_the_argmax_over_the_columns(name, aggregate):
    subset = tables.subset(name)
    mapped = class_maps.match(
        tables.wnids(), "wnid", subset, "wnid", aggregate=aggregate, restrict=True
    )
    columns = tables.positions(subset)
    logits = np.random.default_rng(0).normal(size=(200, 1000)).astype(np.float32)
    logits[:, 999] = 1000  # Belongs to neither subset.
    near_values = np.float32(0.1) + np.arange(200) * np.spacing(np.float32(0.1))
    # These would tie if probabilities were rounded.
    logits[0, columns], logits[1, columns] = near_values[::-1], near_values
    decided = decide_logits(logits, mapped.matrix, mapped.aggregate)
    np.testing.assert_array_equal(decided, logits[:, columns].argmax(1))
    assert decided[:2].tolist() == [0, 199]


def test_matrix_products_have_full_precision_on_accelerators():
    """By default they would keep 8 or 11 bits, and near classes would tie."""
    matrix = np.ones((3, 2), np.float32)
    for aggregate in ("mean_prob", "mean_logit"):
        lowered = inference.decide_batch.lower(
            (np.ones((2, 3), np.float32),), matrix, aggregate=aggregate
        ).as_text()
        products = [line for line in lowered.splitlines() if "dot_general" in line]
        assert len(products) == 1
        assert "HIGHEST" in products[0]


def test_a_confident_outside_class_does_not_drown_the_members(two_networks):
    """A logit gap of 200 underflows every member's probability to zero."""
    net, variables, images = two_networks
    biased = jax.tree.map(lambda leaf: leaf, variables[0])
    biased["params"]["Dense_0"]["bias"] = jnp.array([0, 200.0, 0, 0, 0])
    matrix = np.zeros((5, 3), np.float32)
    matrix[[2, 3, 4], [0, 1, 2]] = 1
    (decided,) = decide((net, (biased,), images), 8, matrix)
    logits = np.asarray(net.apply(biased, images / np.float32(255)))
    np.testing.assert_array_equal(decided, np.argmax(logits[:, 2:], axis=-1))


def test_no_set_is_decided_after_halting(two_networks):
    net, variables, images = two_networks
    calls = []
    decided = inference.decide_sets(
        score_both(net.apply, "looped"),
        variables,
        map(jnp.asarray, loader.batches([images] * 3, 4, loader.ReaderOptions(1))),
        [inference.DecisionRule(len(images))] * 3,
        halt=lambda: calls.append(1) or len(calls) > 13,
    )
    assert len(list(decided)) == 1
    assert len(calls) == 14


@pytest.mark.parametrize("strategy", ["unrolled", "vmapped"])
def test_labels_add_confidences_and_likelihoods_for_any_batch_size(
    two_networks, strategy
):
    """Probabilities equal numpy's softmax, for two sets that share batches."""
    net, variables, images = two_networks
    label = np.arange(23) % 5
    label[3] = -1
    decisions_of_sets = inference.decide_sets(
        score_both(net.apply, strategy),
        variables,
        map(
            jnp.asarray,
            loader.batches([images[:9], images], 8, loader.ReaderOptions(1)),
        ),
        [inference.DecisionRule(9), inference.DecisionRule(23, label=label)],
    )
    plain_set, labelled_set = decisions_of_sets
    for network_variables, predictions, decided in zip(
        variables, plain_set, labelled_set, strict=True
    ):
        logits = np.asarray(
            net.apply(network_variables, images / np.float32(255)), np.float64
        )
        probabilities = np.exp(logits - logits.max(1, keepdims=True))
        probabilities /= probabilities.sum(1, keepdims=True)
        np.testing.assert_array_equal(predictions, logits[:9].argmax(1))
        np.testing.assert_array_equal(decided.prediction, logits.argmax(1))
        np.testing.assert_allclose(decided.confidence, probabilities.max(1), rtol=1e-5)
        of_labels = np.where(label < 0, np.nan, probabilities[np.arange(23), label])
        np.testing.assert_allclose(decided.likelihood, of_labels, rtol=1e-5)


@pytest.mark.slow
def test_probabilities_of_coarser_classes_sum_to_one():
    """One class has two members (the mean of both), the other has one."""
    logits = jnp.array([[1.0, 0.5, 2.0, -1.0], [0.0, 0.0, 0.0, 9.0]])
    matrix = jnp.array([[0.5, 0], [0.5, 0], [0, 1], [0, 0]])
    likelihoods = [
        inference.with_confidence(
            logits, jnp.full(2, k), matrix, "mean_prob"
        ).likelihood
        for k in (0, 1)
    ]
    np.testing.assert_allclose(sum(likelihoods), 1, rtol=1e-6)
    e = np.exp([1.0, 0.5, 2.0])
    first = (e[0] + e[1]) / 2 / ((e[0] + e[1]) / 2 + e[2])
    np.testing.assert_allclose(likelihoods[0], [first, 0.5], rtol=1e-6)


def logits_with(value, row=1, classes=3):
    """Return logits of four images with one value replaced."""
    logits = np.arange(4.0 * classes, dtype=np.float32).reshape(4, classes)
    logits[row, 0] = value
    return logits


@cases.each("value", [np.nan, np.inf])
@cases.each("aggregate", ["mean_prob", "mean_logit", "max_prob"])
def test_logits_that_are_not_finite_decide_nothing(value, aggregate):
    """This holds with and without a class matrix; other images of the batch do not change."""
    matrix, label = np.eye(3, dtype=np.float32), np.zeros(4, np.int32)
    for class_matrix in (None, matrix):
        logits = (logits_with(value),)
        (predictions,) = inference.decide_batch(
            logits, class_matrix, aggregate=aggregate
        )
        (with_label,) = inference.decide_batch(
            logits, class_matrix, label, {}, aggregate=aggregate
        )
        for decided in (predictions, with_label.prediction):
            assert decided.tolist() == [2, inference.UNDECIDED, 2, 2]
        assert np.isnan(with_label.confidence).tolist() == [False, True, False, False]
        assert np.isnan(with_label.likelihood[1])


@cases.each("aggregate", ["mean_prob", "mean_logit", "max_prob"])
def test_a_class_excluded_by_minus_infinity_is_never_the_decision(aggregate):
    matrix = np.eye(3, dtype=np.float32)
    for class_matrix in (None, matrix):
        (decided,) = inference.decide_batch(
            (logits_with(-np.inf),), class_matrix, aggregate=aggregate
        )
        assert decided.tolist() == [2, 2, 2, 2]
    all_excluded = np.full((1, 3), -np.inf, np.float32)
    (decided,) = inference.decide_batch((all_excluded,), None, aggregate=aggregate)
    assert decided.tolist() == [inference.UNDECIDED]


@cases.each("aggregate", class_maps.AGGREGATES)
def test_images_with_all_classes_excluded_are_undecided(aggregate):
    """This holds even if a class that is no member has a finite logit."""
    matrix = np.float32([[0, 0], [1, 0], [0, 1]])
    logits = np.float32([[1, -np.inf, -np.inf], [5, -np.inf, 1]])
    (predictions,) = inference.decide_batch((logits,), matrix, aggregate=aggregate)
    label = np.zeros(2, np.int32)
    (with_label,) = inference.decide_batch(
        (logits,), matrix, label, {}, aggregate=aggregate
    )
    for decided in (predictions, with_label.prediction):
        assert decided.tolist() == [inference.UNDECIDED, 1]
    assert np.isnan(with_label.confidence).tolist() == [True, False]


def test_decisions_made_elsewhere_may_be_infinite_and_never_nan():
    for value, expected in ((np.inf, 0), (np.nan, inference.UNDECIDED)):
        (decided,) = inference.decide_batch(
            (logits_with(value),), None, aggregate="mean_prob", infinite=True
        )
        assert decided[1] == expected
