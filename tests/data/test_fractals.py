"""The embedded fractals: pure, documented, and of structure at many scales."""

import numpy as np
import pytest

from jbias import data
from jbias.data.embedded import fractals
from tests import cases


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "cache"))


def test_fractals_are_a_pure_function_of_the_arguments(monkeypatch, tmp_path):
    first, read = (fractals.make("train", n=9) for _ in range(2))
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "elsewhere"))
    drawn = fractals.make("train", n=9)
    assert first.fingerprint == read.fingerprint == drawn.fingerprint
    assert np.array_equal(first.images, read.images)
    assert np.array_equal(first.images, drawn.images)
    other = fractals.make("train", n=9, seed=1)
    assert not (first.images == other.images).all((1, 2, 3)).any()
    assert first.fingerprint != other.fingerprint


def test_a_smaller_set_is_the_beginning_of_a_larger():
    small, large = fractals.make("train", n=4), fractals.make("train", n=9)
    assert np.array_equal(small.images, large.images[:4])
    assert np.array_equal(small.columns["label"], large.columns["label"][:4])


def test_fractals_are_documented_with_their_limits():
    source = data.load("fractals", "train", n=6)
    assert source.classes == ("flame", "julia", "mandelbrot")
    assert list(source.columns["label"]) == [0, 1, 2, 0, 1, 2]
    assert source.images.shape == (6, 32, 32, 3)
    assert "Hendrycks" in source.cite and "not that set" in source.note
    assert "not PixMix's own set" in data.DATASETS["fractals"].about


@pytest.mark.parametrize("size", [64, 224])
def test_sizes_show_about_the_same_pictures(size):
    small = fractals.make("train", n=6).images / 255
    large = fractals.make("train", n=6, size=size).images / 255
    coarse = large.reshape(6, 32, size // 32, 32, size // 32, 3).mean((2, 4))
    distance = np.abs(small[:, None] - coarse[None]).mean((2, 3, 4))
    assert np.diag(distance).max() < 0.06
    distance_to_others = distance[~np.eye(6, dtype=bool)]
    assert distance_to_others.min() > 0.1


@pytest.mark.slow
def test_pictures_have_structure_at_many_scales():
    """Means of squares differ from those of their quarters, at sides of 2 to 16 pixels."""
    images = fractals.make("train", n=60).images / 255
    spread = []
    for side in (2, 4, 8, 16):
        n = 32 // side
        quarters = images.reshape(60, 2 * n, side // 2, 2 * n, side // 2, 3).mean(
            (2, 4)
        )
        means = quarters.reshape(60, n, 2, n, 2, 3).mean((2, 4))
        residuals = quarters.reshape(60, n, 2, n, 2, 3) - means[:, :, None, :, None]
        spread.append(np.sqrt((residuals**2).mean((1, 2, 3, 4, 5))))
    spread = np.array(spread)
    assert (np.median(spread, 1) > 0.04).all()
    assert ((spread > 0.01).sum(0) >= 3).mean() > 0.95
    # A smooth picture loses three quarters of it with each halving, and more.
    assert np.median(spread[0] / spread[2]) > 0.4


@pytest.mark.slow
def test_pictures_differ_and_use_colours():
    images = fractals.make("train", n=60).images
    assert len(np.unique(images.reshape(60, -1), axis=0)) == 60
    assert (np.ptp(images, axis=-1).mean((1, 2)) > 8).mean() > 0.9
    means = images.mean((1, 2)) / 255
    assert (means.std(0) > 0.08).all() and (abs(means.mean(0) - 0.42) < 0.12).all()


def test_escapes_are_counted_smoothly():
    """|z|^(2^n) is 32 after log2(log 32 / log|z|) steps, also for fractional n."""
    z = np.array([1.05, 1.3, 2.0, 5.0, 0.5], complex)
    count, trap = fractals._escape(z, np.zeros(5, complex), 2, 50)
    expected = np.log2(np.log(32) / np.log(abs(z[:4])))
    np.testing.assert_allclose(count[:4], expected, atol=1e-9)
    assert count[4] == 50 and trap[4] < 1e-9


def test_the_border_is_between_escape_and_rest():
    rng = np.random.default_rng(0)
    for power in (2, 3, 4):
        c = np.array([fractals._border(rng, power) for _ in range(20)])
        outside, _ = fractals._escape(np.zeros(20, complex), c, power, 2000)
        inside, _ = fractals._escape(np.zeros(20, complex), 0.8 * c, power, 2000)
        assert (outside < 2000).mean() > 0.8 and (inside == 2000).mean() > 0.7


@cases.each("k", [2, 3, 4])
def test_contractions_are_as_strong_as_anderson_and_farrells(k):
    for seed in range(20):
        linear, shift = fractals._contractions(np.random.default_rng(seed), k)
        values = np.linalg.svd(linear, compute_uv=False)
        assert shift.shape == (k, 2, 1) and values.max() < 1
        total = (values[:, 0] + 2 * values[:, 1]).sum()
        assert (5 + k) / 2 <= total <= (6 + k) / 2


@cases.each(
    ("split", "options", "message"),
    [
        ("test", {}, "split must be a known one, got 'test'; .*train"),
        ("train", {"size": 31}, "from 32 to 224, got 31"),
        ("train", {"size": 64.0}, "got 64.0"),
        ("train", {"n": 0}, "whole number >= 1, got 0"),
        ("train", {"seed": -1}, "seed must be .* got -1"),
    ],
)
def test_bad_options_are_refused_in_one_line(split, options, message):
    with pytest.raises(ValueError, match=f"^fractals: .*{message}") as caught:
        fractals.make(split, **options)
    assert "\n" not in str(caught.value)
