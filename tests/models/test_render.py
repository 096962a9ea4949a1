"""Style transfer by renders is exact, and limited to textures with a render."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import data, models
from jbias.training import input_pipeline


@pytest.fixture(scope="module")
def batch():
    source = data.load("shapes", "test", n=32, renders=True, correlation=0.5)
    resident = {"image": source.images, **source.columns, **source.arrays}
    gather = jax.jit(lambda resident, i: input_pipeline.assemble_batch(resident, i, 16))
    return gather(resident, jnp.arange(32))


def shift_by_one(tree):
    return jax.tree.map(lambda x: jnp.roll(x, 1, 0), tree)


@pytest.fixture(scope="module")
def transfer():
    return models.TRANSFERS["render"]()


def test_an_images_own_style_gives_the_image_to_the_bit(batch, transfer):
    stylised = jax.jit(lambda b: transfer(b, lambda tree: tree, 1.0))(batch)
    np.testing.assert_array_equal(stylised, batch["image"])


def test_takes_the_partners_texture(batch, transfer):
    stylised = np.asarray(transfer(batch, shift_by_one, 1.0))
    for i, texture in enumerate(np.roll(batch["attribute"], 1)):
        expected = np.asarray(batch["renders"][i, texture])
        np.testing.assert_array_equal(np.rint(stylised[i] * 255), expected)
    assert (stylised != np.asarray(batch["image"])).any((1, 2, 3)).mean() > 0.7


def test_styles_may_come_from_another_set(batch, transfer):
    style = {"attribute": (batch["attribute"] + 3) % 16}
    stylised = transfer(batch, lambda tree: tree, 1, style)
    expected = transfer({**batch, **style}, lambda tree: tree, 1)
    np.testing.assert_array_equal(stylised, expected)


def test_a_texture_without_render_gives_nan(batch, transfer):
    """A held-out texture gives NaN, not one of the sixteen renders."""
    style = {"attribute": batch["attribute"].at[3].set(16)}
    stylised = transfer(batch, lambda tree: tree, 1, style)
    assert np.isnan(stylised[3]).all() and not np.isnan(np.delete(stylised, 3, 0)).any()


@pytest.mark.parametrize("missing", ["renders", "attribute"])
def test_refuses_batches_without_renders(batch, transfer, missing):
    incomplete = {name: x for name, x in batch.items() if name != missing}
    with pytest.raises(ValueError, match=f"must have '{missing}', .* renders=True"):
        transfer(incomplete, shift_by_one, 1.0)


def test_alpha_below_1_is_refused(batch, transfer):
    with pytest.raises(ValueError, match="alpha must be 1, got 0.5"):
        transfer(batch, shift_by_one, 0.5)
