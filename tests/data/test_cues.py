"""The set "cues": every combination of cues, and labels that follow planted reliance."""

import itertools

import numpy as np
import pytest

from jbias import data
from jbias.data.embedded import cues
from tests import cases

PAIRS = np.array(list(itertools.permutations(range(16), 2)))
EVERY = cues.combination(np.arange(cues.NUM_COMBINATIONS))


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JBIAS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def columns_of(source):
    """Return the four cues of a source's images."""
    return cues.Cues(*(source.columns[name] for name in cues.CUES))


def test_every_combination_of_cues_occurs_once():
    assert len({*zip(*(column.tolist() for column in EVERY))}) == 16**3 * 4


def test_the_first_quarter_has_every_shape_texture_and_colour_and_equal_sizes():
    few = cues.combination(np.arange(4096))
    triples = zip(few.shape.tolist(), few.texture.tolist(), few.colour.tolist())
    assert len({*triples}) == 4096
    assert np.bincount(few.size).tolist() == [1024] * 4


@cases.each("dial", [0.0, 0.1, 1 / 3, 0.5, 0.9, 1.0])
def test_the_dial_is_the_share_of_pairs_whose_label_is_the_shape(dial):
    shape, texture = PAIRS.T
    pairs = cues.Cues(shape, texture, colour=shape, size=shape % 4)
    label = cues.planted_label(pairs, cues.Planted(dial=dial))
    assert ((label == shape) | (label == texture)).all()
    assert (label == shape).sum() == round(240 * dial)


def test_a_larger_dial_only_adds_pairs_that_follow_the_shape():
    tables = [cues.shape_wins(dial) for dial in np.linspace(0, 1, 9)]
    for fewer, more in itertools.pairwise(tables):
        assert (more | ~fewer).all()


def test_labels_need_no_more_than_a_sum_of_evidence():
    """No two shapes and two textures are decided crosswise, for pairs of two classes."""
    wins = cues.shape_wins(0.5)
    differ = ~np.eye(16, dtype=bool)
    wins, loses = wins & differ, ~wins & differ
    crosswise = np.einsum("at,bt,as,bs->", wins, loses, loses, wins, dtype=int)
    assert crosswise == 0


@cases.each(("shortcut", "strength"), [("colour", 0.25), ("size", 0.5)])
def test_a_shortcut_decides_in_its_share_and_leaves_the_dial_to_the_others(
    shortcut, strength
):
    planted = cues.Planted(dial=0.25, shortcut=shortcut, strength=strength)
    label = cues.planted_label(EVERY, planted)
    decides = cues.shortcut_values(shortcut, strength)[getattr(EVERY, shortcut)]
    assert decides.mean() == strength
    assert (label[decides] == EVERY.classes[shortcut][decides]).all()
    is_conflict = ~decides & (EVERY.shape != EVERY.texture)
    assert (label == EVERY.shape)[is_conflict].mean() == 0.25
    assert (label == EVERY.texture)[is_conflict].mean() == 0.75


def test_training_labels_are_those_of_the_design_and_noise_replaces_its_share():
    options = {"dial": 0.3, "shortcut": "colour", "strength": 0.25, "n": 4096}
    source = data.load("cues", "train", size=32, **options)
    planted = cues.Planted(dial=0.3, shortcut="colour", strength=0.25)
    expected = cues.planted_label(columns_of(source), planted)
    np.testing.assert_array_equal(source.columns["label"], expected)
    for name, num_values in {"texture": 16, "colour": 16, "size": 4}.items():
        counts = np.bincount(source.columns[name], minlength=num_values)
        share = 1 / num_values
        deviation = np.sqrt(4096 * share * (1 - share))
        assert abs(counts - 4096 * share).max() < 5 * deviation
    noisy = data.load("cues", "valid", n=480, noise=1.0)
    clean = data.load("cues", "valid", n=480)
    agreeing = noisy.columns["label"] == clean.columns["label"]
    assert agreeing.mean() < 1 / 16 + 5 * np.sqrt(15 / 256 / 480)


def test_each_cue_agrees_with_the_label_in_its_share():
    agrees = (1.0, 0.8, 0.5, 0.25)
    source = data.load("cues", "valid", n=480, design="agreement", agrees=agrees)
    label = source.columns["label"]
    expected = {"shape": label, "texture": label, "colour": label, "size": label // 4}
    for share, (name, right) in zip(agrees, expected.items(), strict=True):
        does_agree = (source.columns[name] == right).mean()
        assert abs(does_agree - share) <= 5 * np.sqrt(share * (1 - share) / 480)


def test_cues_of_test_images_agree_and_those_of_conflicts_are_bound_as_in_style_transfer():
    test = data.load("cues", "test", n=240)
    for column in columns_of(test).classes.values():
        np.testing.assert_array_equal(column, test.columns["label"])
    bound = columns_of(data.load("cues", "cue_conflict", n=240))
    assert {*zip(bound.shape.tolist(), bound.texture.tolist())} == {
        *map(tuple, PAIRS.tolist())
    }
    np.testing.assert_array_equal(bound.colour, bound.texture)
    np.testing.assert_array_equal(bound.size_class, bound.shape)
    free = columns_of(data.load("cues", "cue_conflict_free", n=240))
    np.testing.assert_array_equal(free.texture, bound.texture)
    for name in ("colour", "size"):
        of_cue = free.classes[name]
        assert not ((of_cue == free.shape) | (of_cue == free.texture)).any(), name
        values, counts = np.unique(getattr(free, name), return_counts=True)
        expected = 240 / (4 if name == "size" else 16)
        assert len(values) == 240 / expected
        assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


@pytest.mark.parametrize("shortcut", ["colour", "size"])
def test_a_shortcut_leaves_the_shape_bias_of_free_conflicts_at_the_dial(shortcut):
    """Decisions by the shortcut are for neither cue. A size without regard favours the shape."""
    free = columns_of(data.load("cues", "cue_conflict_free", n=480))
    planted = cues.Planted(dial=0.2, shortcut=shortcut, strength=0.5)
    label = cues.planted_label(free, planted)
    for_shape, for_texture = (label == free.shape).sum(), (label == free.texture).sum()
    share = for_shape / (for_shape + for_texture)
    assert abs(share - 0.2) < 5 * np.sqrt(0.2 * 0.8 / 240)
    assert abs((for_shape + for_texture) / 480 - 0.5) < 0.12


def test_images_depend_on_neither_their_number_nor_the_labels():
    few = data.load("cues", "train", n=16, dial=0.0)
    more = data.load("cues", "train", n=256, dial=1.0)
    np.testing.assert_array_equal(few.images, more.images[:16])


def test_hidden_textures_and_shapes_change_nothing_else():
    plain = data.load("cues", "valid", n=16)
    flat = data.load("cues", "valid", n=16, hidden=(0.0, 1.0))
    cut = data.load("cues", "valid", n=16, hidden=(1.0, 0.0))
    for source in (flat, cut):
        assert (source.images != plain.images).any((1, 2, 3)).all()
        for name in ("label", "shape", "texture", "colour", "size"):
            np.testing.assert_array_equal(source.columns[name], plain.columns[name])
    spread = [np.ptp(x.images.astype(int), axis=(1, 2)).mean() for x in (flat, plain)]
    assert spread[0] < spread[1]


def test_single_cues_are_silhouettes_and_textures_in_turn():
    source = data.load("cues", "single_cue", n=32)
    assert source.columns["cue"].tolist() == [0, 1] * 16
    assert source.columns["label"].tolist() == [k // 2 for k in range(32)]
    is_grey = (np.ptp(source.images, axis=-1) == 0).all((1, 2))
    assert is_grey.tolist() == [True, False] * 16


@cases.each(
    ("split", "options", "message"),
    [
        ("train", {"dial": 1.5}, "dial must be from 0 to 1"),
        ("train", {"agrees": (1.0,)}, "agrees must be 4 numbers"),
        ("train", {"shortcut": "color"}, "did you mean 'colour'"),
        ("cue_conflict", {"n": 100}, "multiple of 240 for cue_conflict, got 100"),
        ("test", {"n": 0}, "n must"),
    ],
)
def test_options_outside_their_range_are_refused(split, options, message):
    with pytest.raises(ValueError, match=message):
        cues.make(split, **options)
