"""Showing a network a set: what is decided, how sure it is, and what is compiled."""

import contextlib
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath

from jbias.data import labels, loader
from jbias.evals import (
    cue_conflict,
    inference,
    journals,
    prepared_sets,
    probe,
    probe_registry,
)
from jbias.runtime import mesh
from tests import cases


def network(scale):
    """Six classes, answered by the means of an image's channels and their negatives."""

    def apply(variables, image):
        means = image.mean((1, 2))
        return variables["scale"] * jnp.concatenate([means, -means], -1)

    return inference.BoundJaxNetwork(apply, {"scale": jnp.float32(scale)})


def batches(n=8):
    image = np.random.default_rng(0).integers(0, 256, (n, 4, 4, 3), np.uint8)
    index = np.arange(n, dtype=np.int32)
    return [inference.Batch(image, index, index % 2, index % 6, n)]


@cases.each("aggregate", labels.AGGREGATES)
def test_each_rule_is_as_sure_as_its_members_make_it(aggregate):
    """The decided class has the highest share, and shares of all classes sum to 1."""
    of = np.array([0, 0, 1, 2, 2, -1])  # The last is a member of none.
    matrix = (of[:, None] == np.arange(3)).astype(np.float32)
    if aggregate.startswith("mean"):
        matrix /= matrix.sum(0)
    asked, (batch,) = network(9.0), batches()
    rule = inference.DecisionRule(8, jnp.asarray(matrix), aggregate)
    shares = []
    for label in range(3):
        one = batch._replace(label=np.full(8, label, np.int32))
        found = inference.run_probe(
            asked, probe_registry.make_plain(), [one], {"": rule}
        )[""]
        shares.append(found["likelihood"])
    np.testing.assert_allclose(np.sum(shares, 0), 1, rtol=1e-6)
    assert (np.argmax(shares, 0) == found["prediction"]).all()
    np.testing.assert_array_equal(np.max(shares, 0), found["confidence"])
    logits = np.asarray(asked.apply(asked.variables, batch.image / np.float32(255)))
    p = np.exp(logits) * (of >= 0)
    p = p / p.sum(1, keepdims=True)
    groups = [np.flatnonzero(of == c) for c in range(3)]
    told = {
        "mean_prob": [p[:, g].mean(1) for g in groups],
        "sum_prob": [p[:, g].sum(1) for g in groups],
        "max_prob": [p[:, g].max(1) for g in groups],
        "mean_logit": [np.exp(logits[:, g].mean(1)) for g in groups],
    }[aggregate]
    np.testing.assert_allclose(shares, told / np.sum(told, 0), rtol=1e-4)


def test_stimuli_are_compiled_once_for_all_networks():
    traced = []

    def darker(rows, params):
        traced.append(rows)
        return params * rows.image

    made = probe.Probe({"": np.float32(0.5)}, darker, lambda found: [])
    for scale in (1.0, 2.0):
        inference.run_probe(
            network(scale), made, batches(), {"": inference.DecisionRule(8)}
        )
    assert len(traced) == 1


@cases.each("room", (0, 8 * 48 * 4, 2**20))
def test_slow_stimuli_are_made_once_for_all_networks(room):
    """Stimuli are cached as far as there is room; answers do not change."""
    made_of, store = [], inference.StimulusCache(room)

    def keep(key, make):
        return store.get(key, lambda: made_of.append(key[-1]) or make())

    def darker(rows, params):
        return params * rows.image

    shades = {"half": np.float32(0.5), "quarter": np.float32(0.25), "": np.float32(1)}
    made = probe.Probe(shades, darker, lambda found: [], slow=("half", "quarter"))
    (one,) = batches()
    for scale in (1.0, 2.0, 3.0):
        found, usual = (
            inference.run_probe(
                network(scale), made, [batch], {"": inference.DecisionRule(8)}
            )
            for batch in (one._replace(keep=keep), one)
        )
        jax.tree.map(np.testing.assert_array_equal, found, usual)
    times = {name: made_of.count(shade.tobytes()) for name, shade in shades.items()}
    kept = min(room // (8 * 48 * 4), 2)
    assert times == {"half": 3 - 2 * (kept > 0), "quarter": 3 - 2 * (kept > 1), "": 0}


def test_slow_stimuli_are_of_their_images_and_conditions_alone():
    """Whatever was shown before: other batches, sets, classes, or a probe of one `show`."""
    store = inference.StimulusCache()
    asked = types.SimpleNamespace(
        devices=mesh.make(1),
        sources={"a": None, "b": None},
        reader_options=loader.ReaderOptions(1),
        run={"batch": 3},
        stimuli=store,
    )

    def darker(rows, params):
        return params * rows.image * (1 + rows.label[:, None, None, None] % 2) / 2

    def shown(dataset, images, target, shade):
        index = np.arange(len(images), dtype=np.int32)
        columns = {"label": index}
        of = (
            dataset,
            images,
            index,
            columns,
            target,
            {"": inference.DecisionRule(8)},
            (),
        )
        batches = prepared_sets.device_batches(asked, prepared_sets.PreparedSet(*of))
        made = probe.Probe({"x": np.float32(shade)}, darker, len, slow=("x",))
        found = [
            np.asarray(inference.make_stimuli(network(1.0), made, one, "x"))[
                : one.count
            ]
            for one in batches
        ]
        right = images / 255 * shade * (1 + target[:, None, None, None] % 2) / 2
        np.testing.assert_allclose(np.concatenate(found), right, rtol=1e-6)

    (one,), (other,) = batches(), batches()
    images, others = one.image, 255 - other.image
    even, odd = np.zeros(8, np.int32), np.ones(8, np.int32)
    for _ in range(2):
        shown("a", images, even, 0.5)
        shown("a", images, even, 0.25)
        shown("a", images, odd, 0.5)
        shown("b", others, even, 0.5)


def test_what_is_compiled_is_announced():
    """Every program is traced inside, those of later conditions too; others are not."""
    inside, traced = [], []

    @contextlib.contextmanager
    def compiling():
        inside.append(len(traced))
        yield
        assert len(traced) > inside[-1]
        inside.append(None)

    def shown(rows, params, how):
        assert inside[-1] is not None
        traced.append(how)
        return params * rows.image

    def moved(rows, params, stimuli):
        assert inside[-1] is not None
        traced.append("moved")
        return stimuli + 0 * rows.logits(stimuli).mean()

    names = ("a", "b", "also b", "b moved")
    made = probe.Probe(
        dict.fromkeys(names, np.float32(0.5)),
        shown,
        lambda found: [],
        moved,
        {"b moved": 1},
        static=lambda condition: "b" in condition,
    )
    rules = {"": inference.DecisionRule(16)}
    inference.run_probe(network(3.0), made, batches() * 2, rules, compiling=compiling)
    assert traced == [False, True, "moved"] and len(inside) == 6


def test_stimuli_that_ask_the_network_are_refused():
    made = probe.Probe(
        {"": np.float32(0)}, lambda rows, _: rows.logits(rows.image), lambda found: []
    )
    with pytest.raises(ValueError, match="show must not ask the network"):
        inference.run_probe(
            network(1.0), made, batches(), {"": inference.DecisionRule(8)}
        )


def test_agreement_counts_images_and_no_padding():
    (batch,), made = batches(), probe_registry.make_plain()
    one, other = network(1.0), network(-1.0)
    (number,) = inference.agreement(one, one, made, [batch._replace(count=5)])
    assert number[1:] == (1.0, 5, 5, "")
    (number,) = inference.agreement(one, other, made, [batch])
    assert number.value == 0.0


def test_agreement_is_of_the_first_and_the_last_stimuli():
    """Networks that differ in the dark alone, in all shown so."""

    def apply(variables, image):
        means = image.mean((1, 2))
        flipped = jnp.where(image.mean() < 0.1, variables["scale"], 1)
        return flipped * jnp.concatenate([means, -means], -1)

    conditions = {"bright": np.float32(1), "": np.float32(1), "dark": np.float32(0.1)}
    made = probe.Probe(conditions, lambda rows, by: by * rows.image, lambda found: [])
    one, other = (
        inference.BoundJaxNetwork(apply, {"scale": jnp.float32(x)}) for x in (1, -1)
    )
    found = inference.agreement(one, other, made, batches())
    assert {n.condition: n[1:4] for n in found} == {
        "bright": (1.0, 8, 8),
        "dark": (0.0, 0, 8),
    }


def test_a_step_may_look_into_the_network():
    """`look` sees the clean images, and the network that is measured."""

    def at(variables, image, site):
        assert site == "middle"
        return image * variables["scale"], jnp.ones_like(image)

    def darker(rows, params, stimuli):
        x, gradient = rows.at(rows.image, "middle")
        return stimuli * 0 + x * gradient * params

    made = probe_registry.make_plain()._replace(
        conditions={"half": np.float32(0.5)}, move=darker, steps={"half": 1}
    )
    asked = network(1.0)._replace(at=at)
    (batch,) = batches()
    seen = inference.make_stimuli(asked, made, batch, "half")
    np.testing.assert_allclose(seen, batch.image / 510, rtol=1e-6)
    with pytest.raises(ValueError, match="must look into the network"):
        inference.make_stimuli(asked._replace(at=None), made, batch, "half")


def test_cues_are_ranked_among_all_logits_by_their_best_member(tmp_path):
    """Ranks equal numpy's for any rule, ties, unknown cues, and answers from a journal."""
    of = np.array([0, 0, 1, 2, 2, -1])  # The last is a member of none.
    matrix = (of[:, None] == np.arange(3)).astype(np.float32)
    image = np.random.default_rng(1).integers(0, 3, (40, 4, 4, 3), np.uint8) * 80
    image[:, 1:] = image[:, :1]  # So that means of channels tie.
    image[:, :, 1:] = image[:, :, :1]
    rows = np.arange(40, dtype=np.int32)
    cues = {"rank_shape": rows % 4 - 1, "rank_texture": (rows + 1) % 4 - 1}
    batch = inference.Batch(image, rows, rows % 3, rows % 3, 37, cues=cues)
    rules = {
        "": inference.DecisionRule(37, jnp.asarray(matrix / matrix.sum(0))),
        "sum_prob": inference.DecisionRule(37, jnp.asarray(matrix), "sum_prob"),
        "own": inference.DecisionRule(37),
    }
    path, made = epath.Path(tmp_path / "kept.npy"), cue_conflict.make()
    asked, journal = network(1.0), journals.Journal(path, "x")
    found = inference.run_probe(asked, made, [batch], rules, journal=journal)
    logits = np.asarray(asked.apply(asked.variables, image / np.float32(255)))[:37]
    groups = [np.flatnonzero(of == c) for c in range(3)]
    for name, cue in cues.items():
        for rule, members in (("", groups), ("sum_prob", groups), ("own", None)):
            ranks = cue_conflict.label_ranks(logits, cue[:37], members=members)
            np.testing.assert_array_equal(found[rule][name], ranks)
            assert len(set(ranks)) > 3
    again = inference.run_probe(
        asked, made, [], rules, journal=journals.Journal(path, "x")
    )
    for rule, columns in found.items():
        assert again[rule].keys() == columns.keys()
        for name, column in columns.items():
            np.testing.assert_array_equal(again[rule][name], column)


def test_logits_that_are_no_numbers_are_refused():
    """Nothing is larger than NaN: it would have the first rank."""
    (batch,) = batches()
    batch = batch._replace(cues={"rank_shape": np.zeros(8, np.int32)})
    with pytest.raises(probe.NotFiniteError, match="8 of the 8 images"):
        inference.run_probe(
            network(np.nan),
            cue_conflict.make(),
            [batch],
            {"": inference.DecisionRule(8)},
        )


def test_a_class_without_members_has_no_rank():
    matrix = jnp.asarray([(1, 0, 0), (0, 0, 1)], jnp.float32)
    logits, label = jnp.asarray([(2, 1)] * 4, jnp.float32), jnp.asarray([0, 1, 2, -1])
    (told,) = inference.decide_batch(
        (logits,), matrix, label, {"rank_shape": label}, aggregate="sum_prob"
    )
    assert told.ranks["rank_shape"].tolist() == [1, 0, 2, 0]
