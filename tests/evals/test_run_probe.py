"""Running a probe on a set: decisions, likelihoods, caches of stimuli, and compilation."""

import contextlib
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath

from jbias import errors
from jbias.data import class_maps, loader
from jbias.evals import inference, journals, plain, set_batches
from jbias.measures import cue_conflict
from jbias.runtime import mesh
from jbias.stimuli import shown
from tests import cases

PLAIN = shown.unchanged(plain.make())
CUES = shown.unchanged(cue_conflict.make())


def network(scale):
    """Return a network of six classes: the channel means of an image and their negatives."""

    def apply(variables, image):
        means = image.mean((1, 2))
        return variables["scale"] * jnp.concatenate([means, -means], -1)

    return inference.BoundJaxNetwork(apply, {"scale": jnp.float32(scale)})


def make_batches(n=8):
    image = np.random.default_rng(0).integers(0, 256, (n, 4, 4, 3), np.uint8)
    index = np.arange(n, dtype=np.int32)
    return [inference.Batch(image, index, index % 2, index % 6, n)]


@cases.each("aggregate", class_maps.AGGREGATES)
def test_the_likelihoods_of_each_rule_follow_from_the_members_of_a_class(aggregate):
    """The decided class has the highest share, and shares of all classes sum to 1."""
    group_of_class = np.array([0, 0, 1, 2, 2, -1])  # The last class has no group.
    matrix = (group_of_class[:, None] == np.arange(3)).astype(np.float32)
    if aggregate.startswith("mean"):
        matrix /= matrix.sum(0)
    bound_network, (batch,) = network(9.0), make_batches()
    rule = inference.DecisionRule(8, jnp.asarray(matrix), aggregate)
    shares = []
    for label in range(3):
        labelled_batch = batch._replace(label=np.full(8, label, np.int32))
        decided = inference.run_probe(
            bound_network, PLAIN, [labelled_batch], {"": rule}
        )[""]
        shares.append(decided["likelihood"])
    np.testing.assert_allclose(np.sum(shares, 0), 1, rtol=1e-6)
    assert (np.argmax(shares, 0) == decided["prediction"]).all()
    np.testing.assert_array_equal(np.max(shares, 0), decided["confidence"])
    logits = np.asarray(
        bound_network.apply(bound_network.variables, batch.image / np.float32(255))
    )
    p = np.exp(logits) * (group_of_class >= 0)
    p = p / p.sum(1, keepdims=True)
    groups = [np.flatnonzero(group_of_class == c) for c in range(3)]
    expected_shares = {
        "mean_prob": [p[:, g].mean(1) for g in groups],
        "sum_prob": [p[:, g].sum(1) for g in groups],
        "max_prob": [p[:, g].max(1) for g in groups],
        "mean_logit": [np.exp(logits[:, g].mean(1)) for g in groups],
    }[aggregate]
    np.testing.assert_allclose(
        shares, expected_shares / np.sum(expected_shares, 0), rtol=1e-4
    )


def test_stimuli_are_compiled_once_for_all_networks():
    traced = []

    def darker(rows, params):
        traced.append(rows)
        return params * rows.image

    darkening = shown.Stimuli({"": np.float32(0.5)}, darker, lambda columns_by_rule: [])
    for scale in (1.0, 2.0):
        inference.run_probe(
            network(scale), darkening, make_batches(), {"": inference.DecisionRule(8)}
        )
    assert len(traced) == 1


@cases.each("cache_size", (0, 8 * 48 * 4, 2**20))
def test_slow_stimuli_are_made_once_for_all_networks(cache_size):
    """Stimuli are cached as far as they fit in the cache; answers do not change."""
    shades_made, store = [], inference.StimulusCache(cache_size)

    def keep(key, make):
        return store.get(key, lambda: shades_made.append(key[-1]) or make())

    def darker(rows, params):
        return params * rows.image

    shades = {"half": np.float32(0.5), "quarter": np.float32(0.25), "": np.float32(1)}
    darkening = shown.Stimuli(
        shades, darker, lambda cached_decisions: [], slow=("half", "quarter")
    )
    (plain_batch,) = make_batches()
    for scale in (1.0, 2.0, 3.0):
        cached_decisions, plain_decisions = (
            inference.run_probe(
                network(scale), darkening, [batch], {"": inference.DecisionRule(8)}
            )
            for batch in (plain_batch._replace(keep=keep), plain_batch)
        )
        jax.tree.map(np.testing.assert_array_equal, cached_decisions, plain_decisions)
    times = {name: shades_made.count(shade.tobytes()) for name, shade in shades.items()}
    num_cached = min(cache_size // (8 * 48 * 4), 2)
    assert times == {
        "half": 3 - 2 * (num_cached > 0),
        "quarter": 3 - 2 * (num_cached > 1),
        "": 0,
    }


def test_cached_stimuli_depend_only_on_their_images_and_conditions():
    """Earlier batches, sets, classes and probes with the same `show` do not matter."""
    store = inference.StimulusCache()
    suite = types.SimpleNamespace(
        devices=mesh.make(1),
        sources={"a": None, "b": None},
        reader_options=loader.ReaderOptions(1),
        run={"batch": 3},
        stimuli=store,
    )

    def darker(rows, params):
        return params * rows.image * (1 + rows.label[:, None, None, None] % 2) / 2

    def check_stimuli(dataset, images, target, shade):
        index = np.arange(len(images), dtype=np.int32)
        columns = {"label": index}
        prepared = set_batches.PreparedSet(
            dataset,
            images,
            index,
            columns,
            target,
            {"": inference.DecisionRule(8)},
            (),
        )
        batches = set_batches.device_batches(suite, prepared)
        darkening = shown.Stimuli({"x": np.float32(shade)}, darker, len, slow=("x",))
        stimuli = []
        for batch in batches:  # The last batch may be padded.
            padded = inference.make_stimuli(network(1.0), darkening, batch, "x")
            stimuli.append(np.asarray(padded)[: batch.count])
        expected = images / 255 * shade * (1 + target[:, None, None, None] % 2) / 2
        np.testing.assert_allclose(np.concatenate(stimuli), expected, rtol=1e-6)

    (batch,), (other_batch,) = make_batches(), make_batches()
    images, other_images = batch.image, 255 - other_batch.image
    even, odd = np.zeros(8, np.int32), np.ones(8, np.int32)
    for _ in range(2):
        check_stimuli("a", images, even, 0.5)
        check_stimuli("a", images, even, 0.25)
        check_stimuli("a", images, odd, 0.5)
        check_stimuli("b", other_images, even, 0.5)


def test_all_compilation_happens_within_the_given_context():
    """Programs of later conditions are, too; without compilation the context is not entered."""
    num_traced, traced = [], []

    @contextlib.contextmanager
    def compiling():
        num_traced.append(len(traced))
        yield
        assert len(traced) > num_traced[-1]
        num_traced.append(None)

    def show(rows, params, is_second):
        assert num_traced[-1] is not None
        traced.append(is_second)
        return params * rows.image

    def move(rows, params, stimuli):
        assert num_traced[-1] is not None
        traced.append("moved")
        return stimuli + 0 * rows.logits(stimuli).mean()

    names = ("a", "b", "also b", "b moved")
    moving_probe = shown.Stimuli(
        dict.fromkeys(names, np.float32(0.5)),
        show,
        lambda columns_by_rule: [],
        static=lambda condition: "b" in condition,
        network_steps=shown.NetworkSteps(move, {"b moved": 1}),
    )
    rules = {"": inference.DecisionRule(16)}
    inference.run_probe(
        network(3.0), moving_probe, make_batches() * 2, rules, compiling=compiling
    )
    assert traced == [False, True, "moved"] and len(num_traced) == 6


def test_stimuli_that_need_the_network_are_refused_in_show():
    asking_probe = shown.Stimuli(
        {"": np.float32(0)},
        lambda rows, _: rows.logits(rows.image),
        lambda columns_by_rule: [],
    )
    with pytest.raises(ValueError, match="show must not ask the network"):
        inference.run_probe(
            network(1.0), asking_probe, make_batches(), {"": inference.DecisionRule(8)}
        )


def test_agreement_counts_images_and_no_padding():
    (batch,), plain = make_batches(), PLAIN
    positive, negative = network(1.0), network(-1.0)
    (number,) = inference.agreement(
        positive, positive, plain, [batch._replace(count=5)]
    )
    assert number[1:] == (1.0, 5, 5, "")
    (number,) = inference.agreement(positive, negative, plain, [batch])
    assert number.value == 0.0


def test_agreement_is_computed_for_the_first_and_the_last_condition():
    """Two networks that differ only on dark images agree on bright ones."""

    def apply(variables, image):
        channel_means = image.mean((1, 2))
        flipped = jnp.where(image.mean() < 0.1, variables["scale"], 1)
        return flipped * jnp.concatenate([channel_means, -channel_means], -1)

    conditions = {"bright": np.float32(1), "": np.float32(1), "dark": np.float32(0.1)}
    darkening = shown.Stimuli(
        conditions, lambda rows, factor: factor * rows.image, lambda numbers: []
    )
    positive, negative = (
        inference.BoundJaxNetwork(apply, {"scale": jnp.float32(x)}) for x in (1, -1)
    )
    numbers = inference.agreement(positive, negative, darkening, make_batches())
    assert {n.condition: n[1:4] for n in numbers} == {
        "bright": (1.0, 8, 8),
        "dark": (0.0, 0, 8),
    }


def test_a_move_may_use_the_activations_and_gradients_of_the_network():
    """`at` gets the unchanged images and the variables of the measured network."""

    def at(variables, image, site):
        assert site == "middle"
        return image * variables["scale"], jnp.ones_like(image)

    def darker(rows, params, stimuli):
        x, gradient = rows.at(rows.image, "middle")
        return stimuli * 0 + x * gradient * params

    moving_probe = PLAIN._replace(
        conditions={"half": np.float32(0.5)},
        network_steps=shown.NetworkSteps(darker, {"half": 1}),
    )
    bound_network = network(1.0)._replace(at=at)
    (batch,) = make_batches()
    half_stimuli = inference.make_stimuli(bound_network, moving_probe, batch, "half")
    np.testing.assert_allclose(half_stimuli, batch.image / 510, rtol=1e-6)
    with pytest.raises(ValueError, match="must look into the network"):
        inference.make_stimuli(
            bound_network._replace(at=None), moving_probe, batch, "half"
        )


def test_cues_are_ranked_among_all_logits_by_their_best_member(tmp_path):
    """Ranks equal numpy's for any rule, ties, unknown cues, and answers from a journal."""
    group_of_class = np.array([0, 0, 1, 2, 2, -1])  # The last class has no group.
    matrix = (group_of_class[:, None] == np.arange(3)).astype(np.float32)
    image = np.random.default_rng(1).integers(0, 3, (40, 4, 4, 3), np.uint8) * 80
    image[:, 1:] = image[:, :1]  # This makes the means of channels tie.
    image[:, :, 1:] = image[:, :, :1]
    rows = np.arange(40, dtype=np.int32)
    cues = {"rank_shape": rows % 4 - 1, "rank_texture": (rows + 1) % 4 - 1}
    batch = inference.Batch(image, rows, rows % 3, rows % 3, 37, cues=cues)
    rules = {
        "": inference.DecisionRule(37, jnp.asarray(matrix / matrix.sum(0))),
        "sum_prob": inference.DecisionRule(37, jnp.asarray(matrix), "sum_prob"),
        "own": inference.DecisionRule(37),
    }
    path, cue_probe = epath.Path(tmp_path / "kept.npy"), CUES
    bound_network, journal = network(1.0), journals.Journal(path, "x")
    decided = inference.run_probe(
        bound_network, cue_probe, [batch], rules, journal=journal
    )
    logits = np.asarray(
        bound_network.apply(bound_network.variables, image / np.float32(255))
    )[:37]
    groups = [np.flatnonzero(group_of_class == c) for c in range(3)]
    for name, cue in cues.items():
        for rule, members in (("", groups), ("sum_prob", groups), ("own", None)):
            ranks = cue_conflict.label_ranks(logits, cue[:37], members=members)
            np.testing.assert_array_equal(decided[rule][name], ranks)
            assert len(set(ranks)) > 3
    decided_again = inference.run_probe(
        bound_network, cue_probe, [], rules, journal=journals.Journal(path, "x")
    )
    for rule, columns in decided.items():
        assert decided_again[rule].keys() == columns.keys()
        for name, column in columns.items():
            np.testing.assert_array_equal(decided_again[rule][name], column)


def test_logits_that_are_not_finite_are_refused():
    """No logit is larger than NaN, so NaN would have the first rank."""
    (batch,) = make_batches()
    batch = batch._replace(cues={"rank_shape": np.zeros(8, np.int32)})
    with pytest.raises(errors.NotFiniteError, match="8 of the 8 images"):
        inference.run_probe(
            network(np.nan),
            CUES,
            [batch],
            {"": inference.DecisionRule(8)},
        )


def test_a_class_without_members_has_no_rank():
    matrix = jnp.asarray([(1, 0, 0), (0, 0, 1)], jnp.float32)
    logits, label = jnp.asarray([(2, 1)] * 4, jnp.float32), jnp.asarray([0, 1, 2, -1])
    (decided,) = inference.decide_batch(
        (logits,), matrix, label, {"rank_shape": label}, aggregate="sum_prob"
    )
    assert decided.ranks["rank_shape"].tolist() == [1, 0, 2, 0]
