"""Stylised inputs: the styles, the share of images, and the unchanged entries."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jbias import augment
from jbias.augment import stylize
from jbias.models import style_transfer
from tests import cases

KEY = jax.random.key(4)
RNG = np.random.default_rng(0)
# Each image names itself by its mean, over a ripple that every one shares.
RIPPLE = jnp.tile(jnp.array([-0.1, 0.1]), 8).reshape(1, 4, 4, 1)
LEVEL = jnp.linspace(0.2, 0.8, 16)
BATCH = {
    "image": LEVEL.reshape(-1, 1, 1, 1) + jnp.tile(RIPPLE, (1, 1, 1, 3)),
    "target": jnp.eye(16),
    "index": jnp.arange(16),
    "once": jax.random.key(0),
}


def pixels(*args, **kw):
    """Return a transfer that is AdaIN on the pixels."""
    return style_transfer.make_transfer(lambda x: x, lambda f: f)(*args, **kw)


def make(**options):
    return augment.AUGMENTS["stylize"](transfer=pixels, **options)


def styles(image):
    """Return which of the 16 images each image takes its level from."""
    means = np.asarray(image).mean((1, 2, 3))
    return np.abs(means[:, None] - np.asarray(LEVEL)).argmin(1)


@pytest.mark.slow
def test_labels_and_columns_are_unchanged():
    stylised = make(mix_group=8)(BATCH, KEY)
    assert set(stylised) == set(BATCH)
    for name in ("target", "index"):
        np.testing.assert_array_equal(stylised[name], BATCH[name])


def test_styles_are_exchanged_inside_groups():
    style_numbers = styles(make(mix_group=4)(BATCH, KEY)["image"])
    assert sorted(style_numbers) == list(range(16))
    np.testing.assert_array_equal(style_numbers // 4, np.arange(16) // 4)
    assert (style_numbers != np.arange(16)).any()


@pytest.mark.slow
def test_styles_are_independent_of_the_content():
    """Over many batches each image gets each style of its group equally often."""
    apply = jax.jit(jax.vmap(make(mix_group=4), (None, 0)))
    rows = {name: x for name, x in BATCH.items() if name != "once"}
    images = np.asarray(apply(rows, jax.random.split(KEY, 500))["image"])
    table = np.zeros((16, 4))
    for image in images:
        np.add.at(table, (np.arange(16), styles(image) % 4), 1)
    # Rows and columns have fixed sums in each group: 3 * 3 free cells of 4 groups.
    chi2 = ((table - 125) ** 2 / 125).sum() * 3 / 4
    assert 1e-3 < scipy.stats.chi2.sf(chi2, 36) < 1 - 1e-3


@pytest.mark.slow
@cases.each("p", [0.25, 0.5, 1.0])
def test_replaces_a_fixed_share_of_each_group(p):
    """The changed images of a group are drawn for each batch; their number is fixed."""

    def marks(batch, permute, alpha, style=None):
        return 0 * permute(batch["image"])

    apply = jax.jit(stylize.make(transfer=marks, p=p, mix_group=8))
    counts = collections.Counter()
    for key in jax.random.split(KEY, 60):
        images = apply(BATCH, key)["image"]
        is_changed = np.asarray((images == 0).all((1, 2, 3)))
        is_unchanged = np.asarray((images == BATCH["image"]).all((1, 2, 3)))
        assert (is_changed ^ is_unchanged).all()
        np.testing.assert_array_equal(is_changed.reshape(2, 8).sum(1), 8 * p)
        counts.update(np.flatnonzero(is_changed))
    share = np.array([counts[i] / 60 for i in range(16)])
    # Five deviations of a binomial share.
    assert (abs(share - p) <= 5 * (p * (1 - p) / 60) ** 0.5).all()


@pytest.mark.slow
def test_the_stylised_share_exchanges_its_styles():
    style_numbers = styles(make(p=0.5, mix_group=8)(BATCH, KEY)["image"])
    assert sorted(style_numbers) == list(range(16))
    moved = np.flatnonzero(style_numbers != np.arange(16))
    assert 2 <= len(moved) <= 8


def test_only_the_stylised_share_is_computed():
    batch_sizes = []

    def notes(batch, permute, alpha, style=None):
        batch_sizes.append(batch["image"].shape[0])
        return batch["image"]

    jax.eval_shape(stylize.make(transfer=notes, p=0.25, mix_group=8), BATCH, KEY)
    assert batch_sizes == [4]


@pytest.mark.slow
def test_styles_of_a_second_source():
    other = {"image": BATCH["image"][::-1]}
    stylised = make(styles="other", mix_group=8)({**BATCH, "other": other}, KEY)
    np.testing.assert_array_equal(styles(stylised["image"]), np.arange(16)[::-1])
    partly_stylised = make(styles="other", p=0.125, mix_group=8)(
        {**BATCH, "other": other}, KEY
    )
    style_numbers = styles(partly_stylised["image"])
    moved = style_numbers != np.arange(16)
    assert moved.sum() == 2
    np.testing.assert_array_equal(style_numbers[moved], np.arange(16)[::-1][moved])
    with pytest.raises(ValueError, match="must have a second source, got none"):
        make(styles="other", mix_group=8)(BATCH, KEY)


@pytest.mark.slow
@pytest.mark.parametrize("p", [0.5, 1.0])
def test_views_of_one_image_stay_together(p):
    """Both rows of an example get the style of the same partner."""
    two_views = jax.tree.map(
        lambda x: jnp.repeat(x, 2, axis=0) if jnp.ndim(x) else x, BATCH
    )
    stylised = make(p=p, mix_group=8)({**two_views, "views": 2}, KEY)["image"]
    single_view = make(p=p, mix_group=8)(BATCH, KEY)["image"]
    np.testing.assert_allclose(stylised[::2], single_view, atol=1e-6)
    np.testing.assert_allclose(stylised[1::2], single_view, atol=1e-6)


def test_alpha_is_passed_on():
    full = make(mix_group=8)(BATCH, KEY)["image"]
    half = make(mix_group=8, alpha=0.5)(BATCH, KEY)["image"]
    np.testing.assert_allclose(half, (full + BATCH["image"]) / 2, atol=1e-5)


def test_results_are_clipped_and_cropped():
    def large(batch, permute, alpha, style=None):
        return jnp.pad(4 * batch["image"] - 1, ((0, 0), (0, 4), (0, 4), (0, 0)))

    stylised = stylize.make(transfer=large, mix_group=8)(BATCH, KEY)["image"]
    np.testing.assert_array_equal(stylised, jnp.clip(4 * BATCH["image"] - 1, 0, 1))


def test_probability_0_changes_nothing():
    assert make(p=0.0, mix_group=8)(BATCH, KEY) is BATCH


@cases.each("p", [0.3, 0.125, 1.5])
def test_refuses_shares_that_groups_do_not_have(p):
    with pytest.raises(ValueError, match="stylize: p must"):
        make(p=p, mix_group=8)


def test_refuses_batches_that_groups_do_not_divide():
    for p in (0.5, 1.0):
        with pytest.raises(ValueError, match="multiple of mix_group=6, got 16"):
            make(p=p, mix_group=6)(BATCH, KEY)
