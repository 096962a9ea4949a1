"""A network with folded batch norms equals the exact network up to rounding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from jbias import models
from jbias.algos import infodrop
from jbias.models import folding, layers, taps
from tests import cases, networks

# Batch norms of the small networks that stay, as no convolution is right before them: the
# first of each block of a pre-activation network but that of the stem, and what reads
# concatenated or pooled maps in a DenseNet.
UNFOLDABLE = {"preact_resnet18": 4, "densenet121": 9}


def draw_variables(net, side: int):
    """Return weights and statistics that are far from the initial ones."""
    rng = np.random.default_rng(0)
    ranges = {"var": (0.2, 3), "mean": (-0.5, 0.5), "scale": (-1.5, 1.5)}

    def draw(path, leaf):
        name = path[-1].key
        if name == "kernel":
            fan_in = np.prod(leaf.shape[:-1])
            values = rng.normal(0, np.sqrt(2 / fan_in), leaf.shape)
        else:
            values = rng.uniform(*ranges.get(name, (-0.5, 0.5)), leaf.shape)
        return values.astype(np.float32)

    shapes = jax.eval_shape(net.init, jax.random.key(0), images(side))
    collections = {name: shapes[name] for name in ("params", "stats") if name in shapes}
    return jax.tree_util.tree_map_with_path(draw, collections)


def images(side: int, count: int = 4):
    return jax.random.uniform(jax.random.key(1), (count, side, side, 3))


def norms_of(variables) -> int:
    """Return the number of batch norms of a network."""
    paths = jax.tree_util.tree_leaves_with_path(variables.get("stats", {}))
    return sum(path[-1].key == "var" for path, _ in paths)


@cases.each("name", models.MODELS, quick=("resnet50", "densenet121", "vgg11_bn"))
def test_a_folded_network_is_the_exact_one_in_float32(name):
    net, side = networks.small(name)
    variables, image = draw_variables(net, side), images(side)
    apply = functools.partial(net.apply, train=False)
    count = folding.count_foldable(apply, variables, image)
    assert count == norms_of(variables) - UNFOLDABLE.get(name, 0)
    exact = jax.jit(apply)(variables, image)
    folded = jax.jit(folding.fold_norms(apply))(variables, image)
    # Some hundred roundings of 6e-8 of what is summed, which is larger than the logits.
    np.testing.assert_allclose(folded, exact, atol=1e-4 * np.abs(exact).max())
    np.testing.assert_array_equal(folded.argmax(-1), exact.argmax(-1))
    if not count:
        np.testing.assert_array_equal(folded, exact)


class ConvolutionAndNorm(nn.Module):
    """A convolution and a batch norm, with other readers of the map between them."""

    bias: bool = False
    shared: bool = False  # The convolution is called twice.
    shortcut: bool = False  # The map between is added after batch norm.
    relu: bool = False  # Batch norm does not follow the convolution directly.
    train: bool = False
    dtype: type = jnp.float32

    @nn.compact
    def __call__(self, image):
        conv = layers.conv(3, 3, bias=self.bias, dtype=self.dtype)
        x = conv(conv(image)) if self.shared else conv(image)
        y = layers.BatchNorm(dtype=self.dtype)(
            nn.relu(x) if self.relu else x, train=self.train
        )
        return y + x if self.shortcut else y


@cases.each("bias", (False, True))
def test_a_pair_is_the_closed_form_by_numpy(bias):
    net = ConvolutionAndNorm(bias=bias)
    variables, image = draw_variables(net, 8), images(8, 2)
    folded = folding.fold_norms(net.apply)(variables, image)
    conv, norm = variables["params"]["Conv_0"], variables["params"]["BatchNorm_0"]
    stats = variables["stats"]["BatchNorm_0"]
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    rows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    x = np.einsum("bijchw,hwco->bijo", rows.astype(float), conv["kernel"].astype(float))
    x = x + conv.get("bias", 0)
    x = (x - stats["mean"]) / np.sqrt(stats["var"] + 1e-5) * norm["scale"]
    np.testing.assert_allclose(folded, x + norm["bias"], rtol=1e-4, atol=1e-5)


def test_a_folded_pair_has_no_arithmetic_on_the_map_but_one_sum():
    net = ConvolutionAndNorm()
    variables, image = draw_variables(net, 8), images(8, 2)
    jaxpr = jax.make_jaxpr(folding.fold_norms(net.apply))(variables, image).jaxpr
    on_map = [e for e in jaxpr.eqns if e.outvars[0].aval.shape == image.shape]
    names = {eqn.primitive.name for eqn in on_map} - {"broadcast_in_dim"}
    assert names == {"conv_general_dilated", "add"}


@cases.each("option", ("shared", "shortcut", "relu", "train"))
def test_maps_with_other_readers_are_not_folded(option):
    """A map with other readers, a shared kernel and a norm by batch statistics stay."""
    net = ConvolutionAndNorm(**{option: True})
    variables, image = draw_variables(net, 8), images(8, 2)
    if option == "train":
        apply = lambda variables, image: net.apply(variables, image, mutable="stats")[0]
    else:
        apply = net.apply
    assert folding.count_foldable(apply, variables, image) == 0
    folded = folding.fold_norms(apply)(variables, image)
    np.testing.assert_array_equal(folded, apply(variables, image))


def test_sites_that_are_read_keep_their_maps():
    """If a function returns the features at sites, no norm before them is folded."""
    net, side = networks.small("resnet18")
    variables, image = draw_variables(net, side), images(side)

    def at_sites(variables, image):
        return taps.read(net, variables, image)[1]

    exact, folded = at_sites(variables, image), folding.fold_norms(at_sites)
    assert folding.count_foldable(at_sites, variables, image) == 3  # The projections'.
    for site, x in folded(variables, image).items():
        np.testing.assert_allclose(x, exact[site], rtol=1e-3, atol=1e-3, err_msg=site)


def test_an_algorithm_with_its_own_prediction_is_folded():
    """InfoDrop, which calls the network twice in evaluation, is folded, too."""
    net = models.MODELS["resnet18"](5, width=8, stem="small")
    decide = infodrop.make(net, variant="biasbed").decide
    variables, image = draw_variables(net, 16), images(16)
    assert folding.count_foldable(decide, variables, image) == 20
    exact = jax.jit(decide)(variables, image)
    folded = jax.jit(folding.fold_norms(decide))(variables, image)
    np.testing.assert_allclose(folded, exact, atol=1e-4 * np.abs(exact).max())


def test_factors_are_multiplied_in_float32():
    """A bfloat16 kernel is rounded once, after it was multiplied by the factors."""
    net = ConvolutionAndNorm(dtype=jnp.bfloat16)
    variables, image = draw_variables(net, 8), images(8, 2)
    norm, stats = variables["params"]["BatchNorm_0"], variables["stats"]["BatchNorm_0"]
    slope = norm["scale"] * jax.lax.rsqrt(jnp.asarray(stats["var"]) + 1e-5)
    kernel = (variables["params"]["Conv_0"]["kernel"] * slope[None, None, None]).astype(
        jnp.bfloat16
    )
    level = (norm["bias"] - stats["mean"] * slope).astype(jnp.bfloat16)
    conv = layers.conv(3, 3, dtype=jnp.bfloat16)
    x = conv.apply({"params": {"kernel": kernel}}, image)
    folded = folding.fold_norms(net.apply)(variables, image)
    assert folded.dtype == jnp.bfloat16
    np.testing.assert_array_equal(folded, x + level[None, None, None])


def test_a_diverged_network_has_non_finite_outputs():
    net = ConvolutionAndNorm()
    variables, image = draw_variables(net, 8), images(8, 2)
    variables["stats"]["BatchNorm_0"]["var"][0] = np.nan
    folded = folding.fold_norms(net.apply)(variables, image)
    assert np.isnan(folded[..., 0]).all() and np.isfinite(folded[..., 1:]).all()
