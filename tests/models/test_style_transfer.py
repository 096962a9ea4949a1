"""AdaIN: the published network against PyTorch (tests/oracles/adain.py), and laws."""

import pathlib
import runpy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.models import style_transfer

ORACLES = pathlib.Path(__file__).parents[1] / "oracles"
DRAWN = runpy.run_path(str(ORACLES / "adain_weights.py"))
RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(6, 5, 7, 4)) * RNG.uniform(1, 3, (6, 1, 1, 4)) + 1)


def shift_by_one(tree):
    """Return statistics in which each image has those of the previous image."""
    return jax.tree.map(lambda x: jnp.roll(x, 1, 0), tree)


def identity(tree):
    return tree


@pytest.fixture(scope="module")
def arrays():
    """Return the oracle's weights in our layout."""
    weights_by_name = {}
    for name, shape in style_transfer.PUBLISHED.shapes.items():
        net, number, kind = name.split("/")
        net = "vgg" if net == "encoder" else net
        if kind == "bias":
            weights_by_name[name] = DRAWN["draw"](f"{net}/{number}.bias", shape)
        else:
            h, w, i, o = shape
            value = DRAWN["draw"](f"{net}/{number}.weight", (o, i, h, w))
            weights_by_name[name] = value.transpose(2, 3, 1, 0)
    return weights_by_name


@pytest.fixture(scope="module")
def weights(arrays, tmp_path_factory):
    path = tmp_path_factory.mktemp("adain") / "vgg_adain.npz"
    np.savez(path, **arrays)
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("case", DRAWN["SIZES"])
def test_equals_pytorch(case, arrays, weights):
    """Features and images are equal; odd sides become the next multiple of 8."""
    stored = np.load(ORACLES / "adain.npz")
    image = DRAWN["images"](case)
    encoder = style_transfer.VGGStack(style_transfer.VGG_ENCODER)
    features = jax.jit(encoder.apply)(style_transfer.nest(arrays, "encoder"), image)
    transfer = style_transfer.vgg(weights=weights)
    alpha = DRAWN["ALPHA"]
    stylised = jax.jit(lambda x: transfer({"image": x}, shift_by_one, alpha))(image)
    for name, value in (("features", features[..., ::8]), ("image", stylised)):
        expected = stored[f"{case}/{name}"]
        assert value.shape == expected.shape
        # Float32 against float64; in units of how much the images differ.
        assert np.abs(value - expected).max() < 1e-4 * np.ptp(expected, axis=0).max()
    assert stylised.min() < 0 and stylised.max() > 1  # Not cut.
    assert stylised.shape[1:3] == tuple(-(-side // 8) * 8 for side in image.shape[1:3])


def test_takes_the_styles_statistics():
    content = style_transfer.statistics(X)
    moved = style_transfer.adain(X, content, shift_by_one(content), alpha=1.0)
    new_mean, new_std = style_transfer.statistics(moved)
    mean, std = shift_by_one(content)
    np.testing.assert_allclose(new_mean, mean, atol=1e-5)
    # Up to the epsilon, relative 1e-5 / var.
    np.testing.assert_allclose(new_std, std, rtol=1e-4)


def test_statistics_are_numpys_in_float32():
    half = X.astype(jnp.bfloat16)
    mean, std = style_transfer.statistics(half)
    exact = np.asarray(half, np.float64)
    assert mean.dtype == std.dtype == jnp.float32
    np.testing.assert_allclose(mean, exact.mean((1, 2), keepdims=True), atol=1e-5)
    var = exact.var((1, 2), ddof=1, keepdims=True)
    np.testing.assert_allclose(std, np.sqrt(var + 1e-5), rtol=1e-5)
    # On flat maps the epsilon is all there is.
    np.testing.assert_allclose(
        style_transfer.statistics(X * 0)[1], np.sqrt(1e-5), rtol=1e-6
    )


def test_single_pixels_are_refused():
    with pytest.raises(ValueError, match="at least 2 pixels"):
        style_transfer.statistics(X[:, :1, :1])


@pytest.fixture(scope="module")
def pixels():
    """Return a transfer whose features are the image, which is AdaIN on pixels."""
    return style_transfer.make_transfer(lambda x: x, lambda f: f)


def test_alpha_goes_from_the_content_to_the_style(pixels):
    batch = {"image": X}
    np.testing.assert_array_equal(pixels(batch, shift_by_one, 0.0), X)
    full = pixels(batch, shift_by_one, 1.0)
    half = pixels(batch, shift_by_one, 0.5)
    np.testing.assert_allclose(half, (X + full) / 2, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_the_style_of_the_image_itself_is_the_identity(pixels, alpha):
    np.testing.assert_allclose(pixels({"image": X}, identity, alpha), X, atol=1e-5)


def test_styles_may_come_from_other_images(pixels):
    """Styles from images of another size, in another order than the contents."""
    style = {"image": shift_by_one(X)}
    stylised = pixels({"image": X}, identity, 1.0, style)
    np.testing.assert_allclose(
        stylised, pixels({"image": X}, shift_by_one, 1.0), atol=1e-6
    )
    larger = {"image": jnp.tile(shift_by_one(X), (1, 3, 2, 1))}
    mean, _ = style_transfer.statistics(pixels({"image": X}, shift_by_one, 1.0, larger))
    expected, _ = shift_by_one(style_transfer.statistics(style["image"]))
    np.testing.assert_allclose(mean, expected, atol=1e-5)


def test_the_same_images_are_encoded_once():
    encoded_shapes = []

    def encode(x):
        encoded_shapes.append(x.shape)
        return x

    transfer = style_transfer.make_transfer(encode, lambda f: f)
    transfer({"image": X}, shift_by_one, 1.0)
    assert len(encoded_shapes) == 1
    transfer({"image": X}, shift_by_one, 1.0, {"image": X})
    assert len(encoded_shapes) == 3


def test_no_gradient_passes(pixels):
    grad = jax.grad(lambda x: jnp.sum(pixels({"image": x}, shift_by_one, 0.5) ** 2))(X)
    np.testing.assert_array_equal(grad, 0)
