"""Cue decomposition: diffusion keeps edges and areas; shuffled cells keep local texture."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import ndimage

from jbias.measures import cue_decomposition, decisions
from jbias.stimuli import edge_diffusion, shown
from tests import cases

RANDOM = np.random.default_rng(0)
diffuse = jax.jit(edge_diffusion.diffuse)


def diffuse_levels(image, steps):
    """Return the diffused image, in [0, 255]."""
    return 255 * np.asarray(diffuse(np.float32(image / 255), steps))


def step_edge():
    image = np.zeros((1, 16, 16, 3))
    image[:, :, 8:] = 200
    return image


def test_zero_steps_are_the_identity_and_constants_do_not_change():
    image = np.float32(RANDOM.random((2, 20, 17, 3)))
    np.testing.assert_array_equal(diffuse(image, 0), image)
    np.testing.assert_allclose(
        diffuse_levels(np.full((1, 9, 8, 3), 100.0), 60), 100, atol=1e-3
    )


def test_an_edge_remains_as_in_the_authors_code():
    """After 50 steps the two sides are .05 and 199.95; a Gaussian would remove the edge."""
    diffused = diffuse_levels(step_edge(), 50)[0, :, :, 0]
    np.testing.assert_allclose(diffused[:, 7], 0.05, atol=0.005)
    np.testing.assert_allclose(diffused[:, 8], 199.95, atol=0.005)
    np.testing.assert_allclose(diffused.mean(), 100, atol=1e-3)
    # For D = 1 the stencil is u_t = 2 Laplace(u): a variance of 4 t.
    blurred = ndimage.gaussian_filter1d(step_edge()[0, 0, :, 0], np.sqrt(4 * 0.2 * 50))
    assert np.diff(diffused[0]).max() > 199
    assert np.diff(blurred).max() < 20


def test_noise_is_removed_as_in_the_authors_code():
    """The deviation falls from 4.98 to .27; the mean changes only by the mirrored border."""
    noise = np.random.default_rng(0).normal(100, 5, (32, 32, 3))
    diffused = diffuse_levels(noise[None], 512)
    assert round(noise.std(), 2) == 4.98 and round(diffused.std(), 2) == 0.27
    assert abs(diffused.mean() - noise.mean()) < 0.05
    assert noise.min() < diffused.min() <= diffused.max() < noise.max()


def test_without_structure_it_is_plain_diffusion():
    """A very faint bump has D = 1 and spreads as a Gaussian with variance 4 t."""
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
def test_diffusion_commutes_with_turns_and_mirrors(turn):
    image = RANDOM.integers(0, 256, (1, 24, 24, 3)).astype(float)
    diffused = diffuse_levels(image, 20)
    turned = np.rot90(diffused, turn, (1, 2))
    np.testing.assert_allclose(
        diffuse_levels(np.rot90(image, turn, (1, 2)), 20), turned, atol=0.1
    )
    mirrored = diffuse_levels(image[:, :, ::-1], 20)
    np.testing.assert_allclose(mirrored, diffused[:, :, ::-1], atol=0.1)


@pytest.mark.slow
def test_cells_move_as_a_whole():
    """Pixels have their coordinates as values, so shifts are visible: one shift per cell."""
    h, w, points = 24, 20, 6
    grid = np.stack(np.indices((h, w)), -1).astype(np.float32)
    image = np.concatenate([grid, grid[..., :1]], -1)
    moved_shares = []
    for number in range(30):
        key = jax.random.key(number)
        shuffle = jax.jit(
            functools.partial(edge_diffusion.shuffle_cells, points=points)
        )
        shuffled = np.asarray(shuffle(image, key))
        shift = (shuffled[..., :2] - grid).reshape(-1, 2)
        cells = np.unique(shift, axis=0)
        assert len(cells) <= points
        centres = np.asarray(jax.random.uniform(jax.random.split(key)[0], (points, 2)))
        centres = centres * (h, w)
        distances = ((grid[:, :, None] + 0.5 - centres) ** 2).sum(-1)
        nearest = distances.argmin(-1).ravel()
        for cell in np.unique(nearest):
            assert len(np.unique(shift[nearest == cell], axis=0)) == 1
        moved_shares.append((shift != 0).any(1).mean())
    assert np.mean(moved_shares) > 0.8


def test_one_cell_does_not_move_and_draws_depend_on_the_image():
    image = np.float32(RANDOM.random((6, 16, 16, 3)))
    key = jax.random.key(3)
    one_cell = edge_diffusion.shuffle_cells(jnp.asarray(image[0]), key, points=1)
    np.testing.assert_array_equal(one_cell, image[0])
    cue_probe = edge_diffusion.make(points=9, steps=2)
    show = jax.jit(cue_probe.show, static_argnums=2)

    def show_stimuli(name, index):
        rows = shown.Rows(jnp.asarray(image), jnp.asarray(index), None, None)
        return np.asarray(
            show(rows, cue_probe.conditions[name], cue_probe.static(name))
        )

    np.testing.assert_array_equal(show_stimuli("", np.arange(6)), image)
    np.testing.assert_array_equal(
        show_stimuli("diffused", np.arange(6)), diffuse(image, 2)
    )
    cells = show_stimuli("cells", np.array([4, 9, 4, 0, 1, 2]))
    assert (cells[3] != show_stimuli("cells", np.arange(6))[3]).any()
    np.testing.assert_array_equal(
        cells[0], show_stimuli("cells", np.array([4, 0, 0, 0, 0, 0]))[0]
    )


@cases.each("options", [dict(steps=-1), dict(points=0), dict(draws=0)])
def test_invalid_options_are_refused(options):
    with pytest.raises(ValueError, match="cue_decomposition: .* must be at least"):
        edge_diffusion.make(**options)


def test_images_too_small_to_be_mirrored_are_refused():
    with pytest.raises(ValueError, match="sides must be of at least 3 pixels"):
        edge_diffusion.diffuse(jnp.zeros((1, 2, 9, 3)), 1)


def test_shape_part_and_robustness_equal_their_formulas():
    """By hand: s = .5 and t = .4, so the shape part of (.6, .3) is 1.2 / (1.2 + .75)."""
    diffused, cells = np.array([0.6, 0.4]), np.array([0.3, 0.5])
    shape_parts = cue_decomposition.shape_part(diffused, cells)
    np.testing.assert_allclose(shape_parts, [1.2 / 1.95, 0.8 / 2.05])
    np.testing.assert_allclose(
        cue_decomposition.shape_part(cells, diffused), 1 - shape_parts, atol=1e-12
    )
    # A network with the mean retention of both cues has the shape part 1/2.
    np.testing.assert_allclose(
        cue_decomposition.shape_part([0.2, 0.6], [0.1, 0.3]), 0.5
    )
    assert np.isnan(cue_decomposition.shape_part([0.0, 0.0], [0.1, 0.3])).all()
    assert cue_decomposition.robustness(0.8, 0.8, 0.8) == 1
    assert cue_decomposition.robustness(0.8, 0.4, 0.2) == pytest.approx(0.375)
    assert np.isnan(cue_decomposition.robustness(0.0, 0.1, 0.1))


def test_numbers_of_a_probe():
    label = np.zeros(10, int)
    decide = lambda n: decisions.Decisions((np.arange(10) >= n) * 1, {"label": label})
    cue_probe = edge_diffusion.make(draws=200)
    numbers = cue_probe.numbers(
        {"": decide(8), "diffused": decide(6), "cells": decide(2)}
    )
    numbers_by_name = {(number.metric, number.condition): number for number in numbers}
    assert [
        numbers_by_name["accuracy", name].count for name in cue_probe.conditions
    ] == [8, 6, 2]
    assert numbers_by_name["cue_robustness", ""].value == 0.5
    low, high = (
        numbers_by_name[f"cue_robustness_{end}", ""].value for end in ("lower", "upper")
    )
    assert 0.2 < low < 0.5 < high <= 1
