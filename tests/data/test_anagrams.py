"""Pairs of pictures of the same tiles: exactly the same, and each nearest to its own shape."""

import collections

import numpy as np
import pytest

from jbias import data
from jbias.data.embedded import anagrams, shape_scenes, shapes
from tests import cases

N = 240


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JBIAS_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def source():
    return data.load("anagrams", "test", n=N)


def tiles(image):
    """The sixteen tiles by plain slices."""
    side = len(image) // 4
    cuts = [slice(i * side, (i + 1) * side) for i in range(4)]
    return [image[rows, columns].tobytes() for rows in cuts for columns in cuts]


def test_both_pictures_of_a_pair_hold_the_same_tiles_in_another_order(source):
    for first, second in source.images.reshape(-1, 2, 32, 32, 3):
        assert collections.Counter(tiles(first)) == collections.Counter(tiles(second))
        assert not np.array_equal(first, second)


def test_each_two_shapes_are_a_pair_equally_often(source):
    label, pair = source.columns["label"], source.columns["pair"]
    assert pair.tolist() == [i // 2 for i in range(N)]
    each = collections.Counter(map(frozenset, label.reshape(-1, 2).tolist()))
    assert len(each) == 120 and {*each.values()} == {1} == {len(x) - 1 for x in each}
    assert {*np.bincount(label)} == {N // 16}


def test_who_compares_with_silhouettes_gets_pairs_right(source):
    """By poses that the drawing never saw, and a plain nearest neighbour; chance is 1/256."""
    poses = shape_scenes.draw(np.random.default_rng(5), 128)
    rows, shape = np.tile(np.arange(128), 16), np.repeat(np.arange(16), 128)
    known = shape_scenes.silhouette(poses[rows], shape, 32)[..., 0].reshape(-1, 1024)
    seen = source.images[..., 0].reshape(N, -1) / 255
    away = (known**2).sum(1) - 2 * seen @ known.T
    right = (shape[away.argmin(1)] == source.columns["label"]).reshape(-1, 2)
    assert right.all(1).mean() > 0.9


def test_pixels_are_black_white_or_the_mean_of_both_shapes(source):
    """A third of the grey is at borders, as everywhere."""
    grey = (source.images > 20) & (source.images < 235)
    assert grey.mean() < 0.25
    assert (source.images[..., :1] == source.images).all()


def test_a_larger_picture_is_the_same(source):
    large = data.load("anagrams", "test", n=N, size=64).images / 255
    coarse = large.reshape(N, 32, 2, 32, 2, 3).mean((2, 4))
    assert np.abs(coarse - source.images / 255).mean() < 0.02


def test_is_a_pure_function_and_documented(source, monkeypatch, tmp_path):
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path))
    again = anagrams.make("test", n=N)
    assert again.fingerprint == source.fingerprint
    assert again.classes == shapes.CLASSES and "Doshi" in again.cite
    assert "not the authors' own" in data.DATASETS["anagrams"].about


@cases.each(
    ("options", "said"),
    [
        (dict(n=100), "n must be a multiple of 240, got 100; try 240"),
        (dict(size=33), "size must be a multiple of 4, got 33; try 32"),
        (dict(n=0), "n must be a whole number >= 1, got 0"),
        (dict(size=16), "size must be a whole number from 32 to 224"),
    ],
)
def test_arguments_out_of_range_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        anagrams.make("test", **options)
