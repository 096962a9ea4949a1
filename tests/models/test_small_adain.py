"""The small style transfer: weights, shapes, and results on drawn pictures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import models
from jbias.models import style_transfer, weight_files
from jbias.prepare import style


@pytest.fixture(scope="module")
def transfer():
    return jax.jit(models.TRANSFERS["small"](), static_argnums=1)


def identity(tree):
    return tree


def shift_by_one(tree):
    return jax.tree.map(lambda x: jnp.roll(x, 1, 0), tree)


def uniform_images(colour, n=4):
    return jnp.broadcast_to(jnp.array(colour), (n, 32, 32, 3))


def test_shipped_weights_are_small():
    assert style_transfer.SHIPPED.stat().st_size < 5e6


@pytest.mark.slow
def test_sizes_are_multiples_of_four(transfer):
    for side, expected in ((32, 32), (30, 32), (64, 64)):
        image = jnp.full((2, side, side, 3), 0.5)
        assert transfer({"image": image}, identity, 1.0).shape == (
            2,
            expected,
            expected,
            3,
        )


def test_colours_follow_the_style(transfer):
    """Squares on a ground get the two colours of another picture."""
    content = np.array(uniform_images((0.2, 0.3, 0.7))).copy()
    style = np.array(uniform_images((0.8, 0.6, 0.3))).copy()
    content[:, 8:24, 8:24] = (0.5, 0.6, 0.9)
    style[:, :, 16:] = (0.6, 0.3, 0.1)
    stylised = transfer({"image": content}, identity, 1.0, {"image": style})
    np.testing.assert_allclose(stylised.mean((1, 2)), style.mean((1, 2)), atol=0.1)


@pytest.mark.slow
def test_patterns_follow_the_style(transfer):
    """A grey picture gets the stripes of another picture: it varies down, hardly across."""
    tile = style.tiles()[0][:32, :32]
    rows = np.repeat((0.3 + 0.4 * tile)[None, :, :, None], 3, -1)
    stylised = transfer(
        {"image": uniform_images((0.5,) * 3, 1)}, identity, 1.0, {"image": rows}
    )[0]
    down = jnp.abs(jnp.diff(stylised, axis=0)).mean()
    across = jnp.abs(jnp.diff(stylised, axis=1)).mean()
    assert down > 0.05 and down > 3 * across


@pytest.mark.slow
def test_alpha_interpolates_between_own_and_other_style(transfer):
    image = jnp.asarray(style.draw(np.random.default_rng(0), 8).image) / 255
    batch = {"image": image}
    own_style = transfer(batch, identity, 1.0)
    half = transfer(batch, shift_by_one, 0.5)
    other_style = transfer(batch, shift_by_one, 1.0)
    np.testing.assert_allclose(transfer(batch, shift_by_one, 0.0), own_style, atol=1e-4)
    full_distance = jnp.abs(other_style - own_style).mean()
    assert 0 < jnp.abs(half - own_style).mean() < full_distance


def test_no_gradient_passes(transfer):
    def total(image):
        return transfer({"image": image}, shift_by_one, 1.0).sum()

    assert not jax.grad(total)(uniform_images((0.4,) * 3)).any()


def test_refuses_other_weights(tmp_path):
    arrays = weight_files.read_npz(style_transfer.SHIPPED)
    arrays["decoder/tiles"] = arrays["decoder/tiles"][:40]
    weight_files.write_npz(tmp_path / "other.npz", arrays)
    with pytest.raises(
        ValueError, match=r"decoder/tiles must have shape \(48, 48, 64\)"
    ):
        style_transfer.small(weights=tmp_path / "other.npz")
    with pytest.raises(ValueError, match="none.npz: must be an .npz file"):
        style_transfer.small(weights=tmp_path / "none.npz")


@pytest.mark.slow
def test_the_decoder_sees_no_statistics_of_the_content():
    """The result does not depend on the means and deviations of the content."""
    arrays = weight_files.read_npz(style_transfer.SHIPPED)
    decode = style_transfer.SmallDecoder().apply
    weights = style_transfer.nest(arrays, "decoder")
    f = jax.random.normal(jax.random.key(0), (2, 8, 8, 128))
    style = tuple(x[1:] for x in style_transfer.statistics(3 * f + 1))
    first = style_transfer.adain(
        f[:1], style_transfer.statistics(f[:1]), style, alpha=1.0
    )
    again = 5 * f[:1] - 2
    second = style_transfer.adain(
        again, style_transfer.statistics(again), style, alpha=1.0
    )
    np.testing.assert_allclose(
        decode(weights, first), decode(weights, second), atol=2e-3
    )
