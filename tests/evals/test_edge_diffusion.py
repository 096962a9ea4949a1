"""Diffusion keeps edges and what they enclose; cells keep what is local."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage

from jbias.evals import cue_decomposition, decisions, edge_diffusion, probe
from tests import cases

RANDOM = np.random.default_rng(0)
diffuse = jax.jit(edge_diffusion.diffuse)


def levels(image, steps):
    """Diffused values in 0 ... 255."""
    return 255 * np.asarray(diffuse(np.float32(image / 255), steps))


def step_edge():
    image = np.zeros((1, 16, 16, 3))
    image[:, :, 8:] = 200
    return image


def test_no_step_is_the_identity_and_a_constant_stays():
    image = np.float32(RANDOM.random((2, 20, 17, 3)))
    np.testing.assert_array_equal(diffuse(image, 0), image)
    np.testing.assert_allclose(levels(np.full((1, 9, 8, 3), 100.0), 60), 100, atol=1e-3)


def test_an_edge_stays_as_it_does_in_the_authors_code():
    """.05 and 199.95 beside it after 50 steps; a Gaussian of that time leaves no edge."""
    found = levels(step_edge(), 50)[0, :, :, 0]
    np.testing.assert_allclose(found[:, 7], 0.05, atol=0.005)
    np.testing.assert_allclose(found[:, 8], 199.95, atol=0.005)
    np.testing.assert_allclose(found.mean(), 100, atol=1e-3)
    # u_t = 2 Laplace(u), as the stencil has it for D = 1: a variance of 4 t.
    blurred = ndimage.gaussian_filter1d(step_edge()[0, 0, :, 0], np.sqrt(4 * 0.2 * 50))
    assert np.diff(found[0]).max() > 199
    assert np.diff(blurred).max() < 20


def test_noise_goes_as_it_does_in_the_authors_code():
    """From 4.98 to .27; its mean stays, but for what passes the mirrored border."""
    noise = np.random.default_rng(0).normal(100, 5, (32, 32, 3))
    found = levels(noise[None], 512)
    assert round(noise.std(), 2) == 4.98 and round(found.std(), 2) == 0.27
    assert abs(found.mean() - noise.mean()) < 0.05
    assert noise.min() < found.min() <= found.max() < noise.max()


def test_without_structure_it_is_plain_diffusion():
    """A bump so faint that D = 1 spreads as a Gaussian with variance 4 t."""
    bump = np.zeros((1, 65, 65, 3))
    bump[0, 32, 32] = 1e-3
    kernel = np.asarray(diffuse(np.float32(bump), 60), float)[0, :, :, 0] / 1e-3
    places = np.arange(65) - 32
    np.testing.assert_allclose(kernel.sum(), 1, atol=1e-3)
    for axis in (0, 1):
        np.testing.assert_allclose(
            kernel.sum(axis) @ places**2, 4 * 0.2 * 60, rtol=0.01
        )
    exact = np.zeros((65, 65))
    exact[32, 32] = 1
    exact = ndimage.gaussian_filter(exact, np.sqrt(4 * 0.2 * 60), truncate=6)
    np.testing.assert_allclose(kernel, exact, atol=0.03 * exact.max())


@cases.each("turn", [1, 2, 3])
def test_turned_and_mirrored_images_diffuse_alike(turn):
    image = RANDOM.integers(0, 256, (1, 24, 24, 3)).astype(float)
    found = levels(image, 20)
    other = np.rot90(found, turn, (1, 2))
    np.testing.assert_allclose(
        levels(np.rot90(image, turn, (1, 2)), 20), other, atol=0.1
    )
    mirrored = levels(image[:, :, ::-1], 20)
    np.testing.assert_allclose(mirrored, found[:, :, ::-1], atol=0.1)


def test_cells_show_the_same_image_elsewhere_and_stay_connected():
    """Pixels whose values are their places tell each cell's shift: one for the whole cell."""
    h, w, points = 24, 20, 6
    grid = np.stack(np.indices((h, w)), -1).astype(np.float32)
    image = np.concatenate([grid, grid[..., :1]], -1)
    moved = []
    for number in range(30):
        key = jax.random.key(number)
        shuffle = jax.jit(
            functools.partial(edge_diffusion.shuffle_cells, points=points)
        )
        found = np.asarray(shuffle(image, key))
        shift = (found[..., :2] - grid).reshape(-1, 2)
        cells = np.unique(shift, axis=0)
        assert len(cells) <= points
        centres = np.asarray(jax.random.uniform(jax.random.split(key)[0], (points, 2)))
        centres = centres * (h, w)
        away = ((grid[:, :, None] + 0.5 - centres) ** 2).sum(-1)
        nearest = away.argmin(-1).ravel()
        for cell in np.unique(nearest):
            assert len(np.unique(shift[nearest == cell], axis=0)) == 1
        moved.append((shift != 0).any(1).mean())
    assert np.mean(moved) > 0.8


def test_one_cell_has_nowhere_to_go_and_draws_follow_the_image():
    image = np.float32(RANDOM.random((6, 16, 16, 3)))
    key = jax.random.key(3)
    alone = edge_diffusion.shuffle_cells(jnp.asarray(image[0]), key, points=1)
    np.testing.assert_array_equal(alone, image[0])
    made = edge_diffusion.make(points=9, steps=2)
    show = jax.jit(made.show, static_argnums=2)

    def shown(name, index):
        rows = probe.Rows(jnp.asarray(image), jnp.asarray(index), None, None)
        return np.asarray(show(rows, made.conditions[name], made.static(name)))

    np.testing.assert_array_equal(shown("", np.arange(6)), image)
    np.testing.assert_array_equal(shown("diffused", np.arange(6)), diffuse(image, 2))
    cells = shown("cells", np.array([4, 9, 4, 0, 1, 2]))
    assert (cells[3] != shown("cells", np.arange(6))[3]).any()
    np.testing.assert_array_equal(
        cells[0], shown("cells", np.array([4, 0, 0, 0, 0, 0]))[0]
    )


@cases.each("options", [dict(steps=-1), dict(points=0), dict(draws=0)])
def test_options_without_a_meaning_are_refused(options):
    with pytest.raises(ValueError, match="cue_decomposition: .* must be at least"):
        edge_diffusion.make(**options)


def test_images_too_small_to_be_mirrored_are_refused():
    with pytest.raises(ValueError, match="sides must be of at least 3 pixels"):
        edge_diffusion.diffuse(jnp.zeros((1, 2, 9, 3)), 1)


def test_the_parts_are_the_formulas():
    """By hand: s = .5, t = .4, so of (.6, .3) it is 1.2 / (1.2 + .75)."""
    diffused, cells = np.array([0.6, 0.4]), np.array([0.3, 0.5])
    found = cue_decomposition.shape_part(diffused, cells)
    np.testing.assert_allclose(found, [1.2 / 1.95, 0.8 / 2.05])
    np.testing.assert_allclose(
        cue_decomposition.shape_part(cells, diffused), 1 - found, atol=1e-12
    )
    # Whoever keeps as much of either as all in the mean has a half, whatever that is.
    np.testing.assert_allclose(
        cue_decomposition.shape_part([0.2, 0.6], [0.1, 0.3]), 0.5
    )
    assert np.isnan(cue_decomposition.shape_part([0.0, 0.0], [0.1, 0.3])).all()
    assert cue_decomposition.robustness(0.8, 0.8, 0.8) == 1
    assert cue_decomposition.robustness(0.8, 0.4, 0.2) == pytest.approx(0.375)
    assert np.isnan(cue_decomposition.robustness(0.0, 0.1, 0.1))


def test_numbers_of_a_probe():
    label = np.zeros(10, int)
    right = lambda n: decisions.Decisions((np.arange(10) >= n) * 1, {"label": label})
    made = edge_diffusion.make(draws=200)
    found = made.numbers({"": right(8), "diffused": right(6), "cells": right(2)})
    by = {(one.metric, one.condition): one for one in found}
    assert [by["accuracy", name].count for name in made.conditions] == [8, 6, 2]
    assert by["cue_robustness", ""].value == 0.5
    low, high = (by[f"cue_robustness_{end}", ""].value for end in ("lower", "upper"))
    assert 0.2 < low < 0.5 < high <= 1
