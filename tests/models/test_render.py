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


def turned(tree):
    return jax.tree.map(lambda x: jnp.roll(x, 1, 0), tree)


@pytest.fixture(scope="module")
def transfer():
    return models.TRANSFERS["render"]()


def test_ones_own_style_is_the_image_to_the_bit(batch, transfer):
    found = jax.jit(lambda b: transfer(b, lambda tree: tree, 1.0))(batch)
    np.testing.assert_array_equal(found, batch["image"])


def test_takes_the_partners_texture(batch, transfer):
    found = np.asarray(transfer(batch, turned, 1.0))
    for i, texture in enumerate(np.roll(batch["attribute"], 1)):
        expected = np.asarray(batch["renders"][i, texture])
        np.testing.assert_array_equal(np.rint(found[i] * 255), expected)
    assert (found != np.asarray(batch["image"])).any((1, 2, 3)).mean() > 0.7


def test_styles_may_come_from_another_set(batch, transfer):
    style = {"attribute": (batch["attribute"] + 3) % 16}
    found = transfer(batch, lambda tree: tree, 1, style)
    expected = transfer({**batch, **style}, lambda tree: tree, 1)
    np.testing.assert_array_equal(found, expected)


def test_what_has_no_render_is_no_number(batch, transfer):
    """A held-out texture gives NaN, not one of the sixteen renders."""
    style = {"attribute": batch["attribute"].at[3].set(16)}
    found = transfer(batch, lambda tree: tree, 1, style)
    assert np.isnan(found[3]).all() and not np.isnan(np.delete(found, 3, 0)).any()


@pytest.mark.parametrize("missing", ["renders", "attribute"])
def test_refuses_batches_without_renders(batch, transfer, missing):
    some = {name: x for name, x in batch.items() if name != missing}
    with pytest.raises(ValueError, match=f"must have '{missing}', .* renders=True"):
        transfer(some, turned, 1.0)


def test_refuses_to_go_half_the_way(batch, transfer):
    with pytest.raises(ValueError, match="alpha must be 1, got 0.5"):
        transfer(batch, turned, 0.5)
