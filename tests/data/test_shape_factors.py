"""Factors of the embedded set: read off the scenes, split in halves, independent of the
class.
"""

import itertools

import numpy as np
import pytest

from jbias import data
from jbias.data.embedded import shape_scenes, shapes
from tests import cases

N = 4800


@pytest.fixture(scope="module")
def large_set():
    # Texture tells nothing of the class.
    return shapes.make("train", n=N, correlation=1 / 16, factors=True)


@cases.each("split", shapes.SPLITS)
def test_factors_change_nothing_else_in_the_set(split):
    n = 240 if split == "cue_conflict" else 256
    plain = shapes.make(split, n=n)
    source = data.load("shapes", split, n=n, factors=True)
    np.testing.assert_array_equal(source.images, plain.images)
    for name, column in plain.columns.items():
        np.testing.assert_array_equal(source.columns[name], column)
    flat = "attribute" not in plain.columns
    new = tuple(name for name in source.columns if name not in plain.columns)
    assert new == (shapes.FACTOR_NAMES[:4] if flat else shapes.FACTOR_NAMES)
    assert {name: source.values[name] for name in new} == {
        name: shapes.FACTORS[name] for name in new
    }
    assert source.fingerprint != plain.fingerprint
    assert shapes.make(split, n=n).fingerprint == plain.fingerprint
    again = shapes.make(split, n=n, factors=True)
    assert again.fingerprint == source.fingerprint


def test_factors_do_not_depend_on_the_number_of_images(large_set):
    small_set = shapes.make("train", n=304, correlation=1 / 16, factors=True)
    for name in shapes.FACTOR_NAMES:
        np.testing.assert_array_equal(
            small_set.columns[name], large_set.columns[name][:304]
        )


def test_factors_have_short_names_and_two_values():
    assert len(shapes.FACTOR_NAMES) >= 12
    for name, values in shapes.FACTORS.items():
        for word in (name, *values):
            assert word.isascii() and word.isalpha() and len(word) <= 10
        assert len({*values}) == 2


@cases.each("name", shapes.FACTOR_NAMES)
def test_both_values_are_common_in_each_class(large_set, name):
    for k in range(16):
        share = large_set.columns[name][large_set.columns["label"] == k].mean()
        assert 0.2 < share < 0.8  # Of 300: 0.3 is four deviations above 0.2.
    assert 0.25 < large_set.columns[name].mean() < 0.75


@cases.each("name", shapes.FACTOR_NAMES)
def test_factors_are_independent_of_the_class(large_set, name):
    column, label = large_set.columns[name], large_set.columns["label"]
    expected = column.mean()
    class_means = np.array([column[label == k].mean() for k in range(16)])
    spread = expected * (1 - expected) / (N / 16)
    chi = ((class_means - expected) ** 2 / spread).sum()
    assert chi < 50  # Of 15 degrees of freedom: exceeded once in 80,000 draws.


def test_factors_are_independent_of_each_other(large_set):
    dependent = {"warmth": {"fill", "paper"}}
    for first, second in itertools.combinations(shapes.FACTOR_NAMES, 2):
        a, b = large_set.columns[first], large_set.columns[second]
        r = np.corrcoef(a, b)[0, 1]
        if second in dependent.get(first, ()) or first in dependent.get(second, ()):
            assert abs(r) > 0.1
        else:
            # Normal, deviation N ** -1/2: one of 134 beyond five in 10,000 draws.
            assert abs(r) < 5 / np.sqrt(N), (first, second, r)


def test_only_the_pattern_tells_the_class_where_textures_do():
    source = shapes.make("train", n=N, correlation=1.0, factors=True)
    label = source.columns["label"]
    curved = [name in shapes.CURVED for name in shape_scenes.TEXTURES]
    np.testing.assert_array_equal(
        source.columns["pattern"], np.array(curved, int)[label]
    )
    assert {*shapes.CURVED} < {*shape_scenes.TEXTURES, *shape_scenes.HELD_OUT}


def test_images_agree_with_their_factors(large_set):
    """Means over images, computed from pixels alone, differ as the factors' names say."""
    image = large_set.images.astype(float).mean(-1) / 255
    colour = large_set.images.astype(float)
    edge = np.concatenate(
        [image[:, :2].reshape(N, -1), image[:, -2:].reshape(N, -1)], 1
    )
    middle = image[:, 12:20, 12:20].reshape(N, -1)
    inside = np.abs(image - np.median(edge, 1)[:, None, None]) > 0.1
    ticks = np.arange(32) - 15.5
    mass = inside.sum((1, 2)) + 1e-9
    measured = {
        "size": mass,
        "across": (inside.sum(1) * ticks).sum(1) / mass,
        "height": -(inside.sum(2) * ticks).sum(1) / mass,
        "background": np.median(edge, 1) - middle.mean(1),
        "contrast": middle.std(1),
        "warmth": (colour[..., 2] - colour[..., 0]).mean((1, 2)),
        "fill": np.ptp(colour[:, 12:20, 12:20].mean((1, 2)), axis=1),
        "paper": np.ptp(np.median(colour[:, :2], (1, 2)), axis=1),
        "echo": edge.std(1),
        "noise": np.diff(colour[:, :2, :, :2], axis=-1).std((1, 2, 3)),
    }
    grey = large_set.columns["paper"] == 0  # Where colours differ by the noise alone.
    for name, number in measured.items():
        is_used = grey if name == "noise" else np.ones(N, bool)
        first, second = (
            number[(large_set.columns[name] == i) & is_used] for i in (0, 1)
        )
        error = np.sqrt(first.var() / len(first) + second.var() / len(second))
        assert second.mean() - first.mean() > 5 * error, name


def test_boundaries_are_those_documented():
    rng = np.random.default_rng(0)
    scenes = shape_scenes.draw(rng, 500)
    factors = shapes.scene_factors(scenes, np.zeros(500, int))
    gap = np.abs(scenes.tones[:, 2] - scenes.tones[:, 0])
    other = np.abs(scenes.tones[:, 2] - scenes.tones[:, 1])
    expected = {
        "size": scenes.scale >= 0.75,
        "margin": np.minimum(gap, other) >= 0.2,
        "contrast": np.abs(gap - other) >= 0.4,
        "grain": scenes.grain >= 1,
        "noise": scenes.sensor >= 0.015,
        "turn": np.sin(scenes.turn) >= 0,
        "tilt": np.sin(scenes.angle) >= 0,
        "fill": np.ptp(scenes.fill, axis=1) > 0,
    }
    for name, column in expected.items():
        # Differences of tones round: a value at the boundary may fall to either side.
        assert (factors[name] != column).sum() <= (name in ("contrast", "margin")), name
    assert not factors["pattern"].any()
