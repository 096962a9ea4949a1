"""Pairs of pictures of the same tiles: exactly the same, and each nearest to its own
shape.
"""

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
    """Return the bytes of the sixteen tiles of an image, cut by plain slices."""
    side = len(image) // 4
    cuts = [slice(i * side, (i + 1) * side) for i in range(4)]
    return [image[rows, columns].tobytes() for rows in cuts for columns in cuts]


def test_both_pictures_of_a_pair_hold_the_same_tiles_in_another_order(source):
    for first, second in source.images.reshape(-1, 2, 32, 32, 3):
        assert collections.Counter(tiles(first)) == collections.Counter(tiles(second))
        assert not np.array_equal(first, second)


def test_all_pairs_of_shapes_are_equally_frequent(source):
    label, pair = source.columns["label"], source.columns["pair"]
    assert pair.tolist() == [i // 2 for i in range(N)]
    pair_counts = collections.Counter(map(frozenset, label.reshape(-1, 2).tolist()))
    assert len(pair_counts) == 120 and {*pair_counts.values()} == {1} == {
        len(x) - 1 for x in pair_counts
    }
    assert {*np.bincount(label)} == {N // 16}


def test_nearest_silhouettes_classify_both_pictures_of_a_pair(source):
    """Silhouettes of new poses and a plain nearest neighbour classify over 90 % of pairs;
    chance is 1/256.
    """
    poses = shape_scenes.draw(np.random.default_rng(5), 128)
    rows, shape = np.tile(np.arange(128), 16), np.repeat(np.arange(16), 128)
    silhouettes = shape_scenes.silhouette(poses[rows], shape, 32)[..., 0].reshape(
        -1, 1024
    )
    pictures = source.images[..., 0].reshape(N, -1) / 255
    distance = (silhouettes**2).sum(1) - 2 * pictures @ silhouettes.T
    is_correct = (shape[distance.argmin(1)] == source.columns["label"]).reshape(-1, 2)
    assert is_correct.all(1).mean() > 0.9


def test_pixels_are_black_white_or_the_mean_of_both_shapes(source):
    """Less than a quarter of the pixels are grey; a third of those are at borders."""
    grey = (source.images > 20) & (source.images < 235)
    assert grey.mean() < 0.25
    assert (source.images[..., :1] == source.images).all()


@pytest.mark.slow
def test_a_larger_picture_is_the_same(source):
    large = data.load("anagrams", "test", n=N, size=64).images / 255
    coarse = large.reshape(N, 32, 2, 32, 2, 3).mean((2, 4))
    assert np.abs(coarse - source.images / 255).mean() < 0.02


def test_anagrams_are_a_pure_function_and_documented(source, monkeypatch, tmp_path):
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path))
    again = anagrams.make("test", n=N)
    assert again.fingerprint == source.fingerprint
    assert again.classes == shapes.CLASSES and "Doshi" in again.cite
    assert "not the authors' own" in data.DATASETS["anagrams"].about


@cases.each(
    ("options", "message"),
    [
        (dict(n=100), "n must be a multiple of 240, got 100; try 240"),
        (dict(size=33), "size must be a multiple of 4, got 33; try 32"),
        (dict(n=0), "n must be a whole number >= 1, got 0"),
        (dict(size=16), "size must be a whole number from 32 to 224"),
    ],
)
def test_arguments_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        anagrams.make("test", **options)
