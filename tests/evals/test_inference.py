import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from jbias.data import labels, loader, tables
from jbias.evals import inference
from jbias.models import cnn
from jbias.runtime import mesh
from jbias.training import seed_axis
from tests import cases

CLASSES = 40
SIXTEEN = tuple(labels.geirhos16())


class Linear(nn.Module):
    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        assert not train
        return nn.Dense(5)(image.reshape(len(image), -1))


@pytest.fixture(scope="module")
def setting():
    images = np.random.default_rng(0).integers(0, 256, (23, 4, 4, 3), np.uint8)
    net = Linear()
    variables = [
        net.init(jax.random.key(seed), jnp.zeros((1, 4, 4, 3))) for seed in (0, 1)
    ]
    return net, tuple(variables), images


def many(apply, strategy):
    """Return a function that scores images with both networks; each is a tree by itself."""
    layout = seed_axis.SeedLayout(mesh.make(1), (2,))
    return seed_axis.map_seeds(
        inference.make_scorer(apply), seed_axis.STRATEGIES[strategy], layout
    )


def decide(setting, batch, matrix=None, strategy="unrolled", aggregate="mean_prob"):
    net, variables, images = setting
    (decided,) = inference.decide_sets(
        many(net.apply, strategy),
        variables,
        map(jnp.asarray, loader.batches([images], batch, loader.ReaderOptions(1))),
        [inference.DecisionRule(len(images), matrix, aggregate)],
    )
    return decided


@pytest.mark.slow
@cases.each("batch", [1, 7, 23, 64])
def test_each_image_is_decided_once_whatever_the_batch(setting, batch):
    net, variables, images = setting
    for one, decided in zip(variables, decide(setting, batch)):
        expected = np.argmax(net.apply(one, images / np.float32(255)), axis=-1)
        np.testing.assert_array_equal(decided, expected)


def test_classes_are_means_of_probabilities_and_empty_ones_never_win(setting):
    net, variables, images = setting
    matrix = np.zeros((5, 4), np.float32)
    matrix[[0, 1], 0] = 1 / 2
    matrix[2, 1] = 1
    matrix[[3, 4], 3] = 1 / 2
    p = jax.nn.softmax(net.apply(variables[0], images / np.float32(255)))
    p = np.asarray(p)
    expected = [
        int(np.argmax([row[:2].mean(), row[2], -1, row[3:].mean()])) for row in p
    ]
    decided, _ = decide(setting, 8, matrix)
    np.testing.assert_array_equal(decided, expected)
    assert 2 not in decided


def test_one_program_of_the_network_serves_all_rules(setting):
    """Sets differ in number, rule and classes; the network is traced once."""
    net, variables, images = setting
    traced = []

    def apply(one, image):
        traced.append(image.shape)
        return net.apply(one, image)

    asked = [
        inference.DecisionRule(23),
        inference.DecisionRule(20, np.eye(5, 3, dtype=np.float32)),
        inference.DecisionRule(1, np.eye(5, 2, dtype=np.float32), "mean_logit"),
        inference.DecisionRule(2, np.eye(5, 3, dtype=np.float32), "max_prob"),
        inference.DecisionRule(9, np.eye(5, 3, dtype=np.float32)),
    ]
    sets = [images[: rule.n] for rule in asked]
    found = inference.decide_sets(
        many(apply, "looped"),
        variables,
        map(jnp.asarray, loader.batches(sets, 8, loader.ReaderOptions(1))),
        asked,
    )
    for rule, decided in zip(asked, found, strict=True):
        alone = net, variables, images[: rule.n]
        expected = decide(alone, 23, rule.matrix, aggregate=rule.aggregate)
        np.testing.assert_array_equal(decided, expected)
    assert traced == [(8, 4, 4, 3)]


@pytest.mark.slow
@cases.each("aggregate", labels.AGGREGATES)
def test_two_programs_decide_as_one(aggregate):
    """Cutting between the network and the rule changes no decision."""
    net = cnn.CNN(CLASSES, width=4)
    images = np.random.default_rng(0).integers(0, 256, (64, 16, 16, 3), np.uint8)
    shape = jnp.zeros((1, 16, 16, 3))
    init = jax.jit(net.init)
    drawn = tuple(init(jax.random.key(seed), shape) for seed in (0, 1))
    members = np.random.default_rng(1).random((CLASSES, 9)) < 0.15
    matrix = (members / np.maximum(members.sum(0), 1)).astype(np.float32)

    @jax.jit
    def joint(one, image, matrix):
        logits = inference.make_scorer(net.apply)(one, None, image, None)
        return inference.decide_batch((logits,), matrix, aggregate=aggregate)

    (ours,) = inference.decide_sets(
        many(net.apply, "threaded"),
        drawn,
        [jnp.asarray(images)],
        [inference.DecisionRule(64, matrix, aggregate)],
    )
    for one, decided in zip(drawn, ours):
        np.testing.assert_array_equal(decided, joint(one, images, matrix)[0])
    assert len(set(ours[0])) > 1


def test_means_of_logits_are_another_rule(setting):
    """A class of many members has one sure member: its mean logit is drowned."""
    net, variables, images = setting
    matrix = np.zeros((5, 2), np.float32)
    matrix[:4, 0], matrix[4, 1] = 1 / 4, 1
    biased = jax.tree.map(lambda leaf: 0 * leaf, variables[0])
    biased["params"]["Dense_0"]["bias"] = jnp.array([9.0, -9, -9, -9, 0])
    setting = net, (biased,), images
    (by_prob,) = decide(setting, 8, matrix)
    (by_logit,) = decide(setting, 8, matrix, aggregate="mean_logit")
    assert (by_prob == 0).all()
    assert (by_logit == 1).all()


def by_logits(logits, matrix, aggregate):
    """Decides from given logits."""
    (decided,) = inference.decide_batch((logits,), matrix, aggregate=aggregate)
    return np.asarray(decided)


def naive(logits, matrix, aggregate):
    """The rules as they are told, one image and one class at a time."""
    reduce, of = {
        "mean_prob": (np.mean, np.exp),
        "sum_prob": (np.sum, np.exp),
        "max_prob": (np.max, np.exp),
        "mean_logit": (np.mean, np.asarray),
    }[aggregate]
    members = [np.flatnonzero(column) for column in matrix.T]
    scores = [
        [reduce(of(row[one])) if len(one) else -np.inf for one in members]
        for row in logits.astype(np.float64)
    ]
    return np.argmax(scores, axis=-1)


@cases.each("aggregate", labels.AGGREGATES)
def test_rules_equal_a_naive_loop(aggregate):
    pairs = labels.match(
        tables.wnids(), "wnid", SIXTEEN, "entry16", aggregate=aggregate
    )
    matrix = pairs.matrix.copy()
    matrix[:, SIXTEEN.index("cat")] = 0  # A class without a member.
    logits = np.random.default_rng(0).normal(size=(300, 1000)).astype(np.float32) * 2
    expected = naive(logits, matrix, aggregate)
    np.testing.assert_array_equal(by_logits(logits, matrix, aggregate), expected)
    others = set(labels.AGGREGATES) - {aggregate}
    for other in others:
        assert (naive(logits, matrix, other) != expected).any(), "rules that differ"
    assert len(set(expected)) > 1


def raised(aggregate, n=400):
    """Shares of right decisions where one member of the class is raised by 10."""
    mapped = labels.match(
        tables.wnids(), "wnid", SIXTEEN, "entry16", aggregate=aggregate
    )
    rng, shares = np.random.default_rng(0), {}
    for label, name in enumerate(SIXTEEN):
        logits = rng.normal(size=(n, 1000)).astype(np.float32)
        members = np.flatnonzero(mapped.matrix[:, label])
        logits[np.arange(n), rng.choice(members, n)] += 10
        shares[name] = np.mean(by_logits(logits, mapped.matrix, aggregate) == label)
    return shares


def test_one_sure_member_is_always_found_by_means_of_probabilities():
    assert raised("mean_prob") == dict.fromkeys(SIXTEEN, 1)
    assert raised("max_prob") == dict.fromkeys(SIXTEEN, 1)


def test_means_of_logits_lose_it_in_large_classes():
    """Shares as measured outside: 0.1, 0.5, 58, 66 and 79 %; n = 400."""
    shares = raised("mean_logit")
    known = {"dog": 0.001, "bird": 0.005, "truck": 0.58, "bottle": 0.66, "cat": 0.79}
    for name, share in known.items():
        error = (share * (1 - share) / 400) ** 0.5
        assert shares[name] == pytest.approx(share, abs=4 * error), name
    assert min(shares[name] for name in ("airplane", "bicycle", "car", "clock")) > 0.98


@cases.each("name", ["imagenet_a", "imagenet_r"])
@cases.each("aggregate", labels.AGGREGATES)
def test_restricted_is_argmax_over_the_columns(name, aggregate):
    subset = tables.subset(name)
    mapped = labels.match(
        *(tables.wnids(), "wnid", subset, "wnid"), aggregate=aggregate, restrict=True
    )
    columns = tables.positions(subset)
    logits = np.random.default_rng(0).normal(size=(200, 1000)).astype(np.float32)
    logits[:, 999] = 1000  # Belongs to neither subset.
    near = np.float32(0.1) + np.arange(200) * np.spacing(np.float32(0.1))
    logits[0, columns], logits[1, columns] = near[::-1], near  # Ties, were p rounded.
    got = by_logits(logits, mapped.matrix, mapped.aggregate)
    np.testing.assert_array_equal(got, logits[:, columns].argmax(1))
    assert got[:2].tolist() == [0, 199]


def test_factors_are_not_rounded_on_accelerators():
    """Else they keep 8 or 11 bits, and near classes tie."""
    matrix = np.ones((3, 2), np.float32)
    for aggregate in ("mean_prob", "mean_logit"):
        lowered = inference.decide_batch.lower(
            (np.ones((2, 3), np.float32),), matrix, aggregate=aggregate
        ).as_text()
        products = [line for line in lowered.splitlines() if "dot_general" in line]
        assert len(products) == 1
        assert "HIGHEST" in products[0]


def test_a_confident_outside_class_does_not_drown_the_members(setting):
    """A logit gap of 200 underflows every member's probability to zero."""
    net, variables, images = setting
    biased = jax.tree.map(lambda leaf: leaf, variables[0])
    biased["params"]["Dense_0"]["bias"] = jnp.array([0, 200.0, 0, 0, 0])
    matrix = np.zeros((5, 3), np.float32)
    matrix[[2, 3, 4], [0, 1, 2]] = 1
    (decided,) = decide((net, (biased,), images), 8, matrix)
    logits = np.asarray(net.apply(biased, images / np.float32(255)))
    np.testing.assert_array_equal(decided, np.argmax(logits[:, 2:], axis=-1))


def test_after_halting_no_set_comes(setting):
    net, variables, images = setting
    asked = []
    decided = inference.decide_sets(
        many(net.apply, "looped"),
        variables,
        map(jnp.asarray, loader.batches([images] * 3, 4, loader.ReaderOptions(1))),
        [inference.DecisionRule(len(images))] * 3,
        halt=lambda: asked.append(1) or len(asked) > 13,
    )
    assert len(list(decided)) == 1
    assert len(asked) == 14


@pytest.mark.parametrize("strategy", ["unrolled", "vmapped"])
def test_labels_bring_probabilities_of_each_image_whatever_the_batch(setting, strategy):
    """Probabilities equal numpy's softmax, for two sets that share batches."""
    net, variables, images = setting
    label = np.arange(23) % 5
    label[3] = -1
    found = inference.decide_sets(
        many(net.apply, strategy),
        variables,
        map(
            jnp.asarray,
            loader.batches([images[:9], images], 8, loader.ReaderOptions(1)),
        ),
        [inference.DecisionRule(9), inference.DecisionRule(23, label=label)],
    )
    plain, told = found
    for one, some, decided in zip(variables, plain, told, strict=True):
        logits = np.asarray(net.apply(one, images / np.float32(255)), np.float64)
        share = np.exp(logits - logits.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        np.testing.assert_array_equal(some, logits[:9].argmax(1))
        np.testing.assert_array_equal(decided.prediction, logits.argmax(1))
        np.testing.assert_allclose(decided.confidence, share.max(1), rtol=1e-5)
        right = np.where(label < 0, np.nan, share[np.arange(23), label])
        np.testing.assert_allclose(decided.likelihood, right, rtol=1e-5)


@pytest.mark.slow
def test_probabilities_of_coarser_classes_sum_to_one():
    """Means over two members and one: 1/2 and 1 of what these have."""
    logits = jnp.array([[1.0, 0.5, 2.0, -1.0], [0.0, 0.0, 0.0, 9.0]])
    matrix = jnp.array([[0.5, 0], [0.5, 0], [0, 1], [0, 0]])
    both = [
        inference.with_confidence(
            logits, jnp.full(2, k), matrix, "mean_prob"
        ).likelihood
        for k in (0, 1)
    ]
    np.testing.assert_allclose(sum(both), 1, rtol=1e-6)
    e = np.exp([1.0, 0.5, 2.0])
    first = (e[0] + e[1]) / 2 / ((e[0] + e[1]) / 2 + e[2])
    np.testing.assert_allclose(both[0], [first, 0.5], rtol=1e-6)


def logits_with(value, row=1, classes=3):
    found = np.arange(4.0 * classes, dtype=np.float32).reshape(4, classes)
    found[row, 0] = value
    return found


@cases.each("value", [np.nan, np.inf])
@cases.each("aggregate", ["mean_prob", "mean_logit", "max_prob"])
def test_logits_that_are_not_finite_decide_nothing(value, aggregate):
    """Neither alone nor in classes of others, and others of the batch stay as they are."""
    matrix, label = np.eye(3, dtype=np.float32), np.zeros(4, np.int32)
    for given in (None, matrix):
        of = (logits_with(value),), given
        (plain,) = inference.decide_batch(*of, aggregate=aggregate)
        (probable,) = inference.decide_batch(*of, label, {}, aggregate=aggregate)
        for decided in (plain, probable.prediction):
            assert decided.tolist() == [2, inference.UNDECIDED, 2, 2]
        assert np.isnan(probable.confidence).tolist() == [False, True, False, False]
        assert np.isnan(probable.likelihood[1])


@cases.each("aggregate", ["mean_prob", "mean_logit", "max_prob"])
def test_a_class_that_is_excluded_by_minus_infinity_is_never_decided_for(aggregate):
    matrix = np.eye(3, dtype=np.float32)
    for given in (None, matrix):
        (decided,) = inference.decide_batch(
            (logits_with(-np.inf),), given, aggregate=aggregate
        )
        assert decided.tolist() == [2, 2, 2, 2]
    nothing = np.full((1, 3), -np.inf, np.float32)
    (decided,) = inference.decide_batch((nothing,), None, aggregate=aggregate)
    assert decided.tolist() == [inference.UNDECIDED]


@cases.each("aggregate", labels.AGGREGATES)
def test_members_that_are_all_excluded_decide_nothing(aggregate):
    """A class that is no member may have the only finite logit of an image."""
    matrix = np.float32([[0, 0], [1, 0], [0, 1]])
    logits = np.float32([[1, -np.inf, -np.inf], [5, -np.inf, 1]])
    (plain,) = inference.decide_batch((logits,), matrix, aggregate=aggregate)
    label = np.zeros(2, np.int32)
    (probable,) = inference.decide_batch(
        (logits,), matrix, label, {}, aggregate=aggregate
    )
    for decided in (plain, probable.prediction):
        assert decided.tolist() == [inference.UNDECIDED, 1]
    assert np.isnan(probable.confidence).tolist() == [True, False]


def test_decisions_made_elsewhere_may_be_infinite_and_never_nan():
    for value, expected in ((np.inf, 0), (np.nan, inference.UNDECIDED)):
        (decided,) = inference.decide_batch(
            (logits_with(value),), None, aggregate="mean_prob", infinite=True
        )
        assert decided[1] == expected
