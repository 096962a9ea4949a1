"""InfoDrop: the dropped positions, their number, and the remaining features."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import models
from jbias.algos import erm, infodrop
from tests import cases

KEY = jax.random.key(3)
RNG = np.random.default_rng(0)
SMALL = dict(kernel=3, stride=1, pooled=False)
LARGE = dict(kernel=7, stride=2, pooled=True)
NOISE = jnp.asarray(RNG.normal(size=(2, 32, 32, 3)), jnp.float32)
EDGE = jnp.zeros((1, 32, 32, 3)).at[:, :, 16:].set(1.0)


def naive(x, offsets, *, kernel, stride, pooled, temperature):
    """Return the shares patch by patch, in float64."""
    x, pad, radius = np.asarray(x, np.float64), kernel // 2, 3
    margin = (pad + radius, pad + radius)
    wide = np.pad(x, ((0, 0), margin, margin, (0, 0)))
    n = (x.shape[1] + 2 * pad - kernel) // stride + 1
    d = np.zeros((len(offsets), len(x), n, n))
    for k, (i, j) in enumerate(offsets):
        for row, column in np.ndindex(n, n):
            top, left = row * stride + radius, column * stride + radius
            patch = wide[:, top : top + kernel, left : left + kernel]
            other = wide[:, top + i : top + i + kernel, left + j : left + j + kernel]
            d[k, :, row, column] = ((patch - other) ** 2).sum((1, 2, 3))
    q = np.exp(-d / (2 * d.mean())).mean(0)
    if pooled:
        padded = np.pad(q, ((0, 0), (1, 1), (1, 1)), constant_values=np.inf)
        half = (n + 1) // 2
        q = np.array(
            [
                [
                    padded[:, 2 * r : 2 * r + 3, 2 * c : 2 * c + 3].min((1, 2))
                    for c in range(half)
                ]
                for r in range(half)
            ]
        ).transpose(2, 0, 1)
    w = q ** (1 / temperature)
    return w / w.sum((1, 2), keepdims=True)


@pytest.mark.parametrize("stem", [SMALL, LARGE])
def test_shares_equal_a_loop_over_patches(stem):
    offsets = np.asarray(jax.random.randint(KEY, (9, 2), -3, 4))
    shares = infodrop.drop_shares(NOISE, KEY, temperature=0.5, **stem)
    expected = naive(NOISE, offsets, temperature=0.5, **stem)
    np.testing.assert_allclose(shares, expected, rtol=2e-3, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("stem", [SMALL, LARGE])
def test_shares_sum_to_1_and_do_not_depend_on_the_images_scale(stem):
    shares = infodrop.drop_shares(NOISE, KEY, **stem)
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares.sum((1, 2)), 1, rtol=1e-5)
    scaled = infodrop.drop_shares(7 * NOISE, KEY, **stem)
    np.testing.assert_allclose(shares, scaled, rtol=1e-3, atol=1e-8)


@pytest.mark.slow
def test_edges_are_kept_and_flat_areas_dropped():
    share = infodrop.drop_shares(EDGE, KEY, **SMALL)[0, 8:24]
    assert share[:, 15:17].max() < 0.01 * share[:, 4:8].mean()


@pytest.mark.slow
def test_images_without_contrast_are_dropped_uniformly():
    share = infodrop.drop_shares(jnp.zeros((2, 8, 8, 3)), KEY, **SMALL)
    np.testing.assert_allclose(share, 1 / 64, rtol=1e-6)


def test_a_high_temperature_drops_uniformly():
    share = infodrop.drop_shares(NOISE, KEY, temperature=1e6, **SMALL)
    np.testing.assert_allclose(share, 1 / 1024, rtol=1e-4)


@pytest.mark.parametrize("sampler", infodrop.SAMPLERS)
def test_marginals_equal_those_of_draws_with_replacement(sampler):
    """P(kept) = (1 - share)^draws at each position, over many channels."""
    share = jnp.asarray(RNG.dirichlet(np.ones(20)), jnp.float32)
    channels, draws = 20_000, 30
    sample = infodrop.SAMPLERS[sampler]
    is_kept = sample(share, KEY, draws=draws, channels=channels)
    chance = (1 - np.asarray(share, np.float64)) ** draws
    spread = np.sqrt(chance * (1 - chance) / channels)
    assert (np.abs(np.asarray(is_kept).mean(1) - chance) < 4.5 * spread + 1e-6).all()


@pytest.mark.slow
def test_exact_draws_drop_at_most_one_position_each():
    """One draw hits one position; the independent sampler may hit several."""
    share = jnp.full((10,), 0.1)
    is_kept = infodrop.sample_exact(share, KEY, draws=1, channels=500)
    assert (np.asarray(is_kept).sum(0) == 9).all()
    is_kept_by_fast_sampler = infodrop.sample_fast(share, KEY, draws=1, channels=500)
    assert (np.asarray(is_kept_by_fast_sampler).sum(0) != 9).any()


@pytest.mark.slow
@pytest.mark.quick("40-60")
@pytest.mark.parametrize(("n", "draws"), [(40, 60), (3136, 4704)])
def test_uniform_drops_have_the_moments_of_the_occupancy_problem(n, draws):
    """1.5 n draws leave exp(-1.5) of n positions, with less variance than coins have."""
    mean, pairs = n * (1 - 1 / n) ** draws, n * (n - 1) * (1 - 2 / n) ** draws
    variance, channels = pairs + mean - mean**2, 2000
    is_kept = infodrop.sample_exact(
        jnp.full((n,), 1 / n), KEY, draws=draws, channels=channels
    )
    remaining = np.asarray(is_kept).sum(0)
    assert abs(remaining.mean() - mean) < 4.5 * np.sqrt(variance / channels)
    assert remaining.var() == pytest.approx(variance, rel=4.5 * np.sqrt(2 / channels))
    assert variance < 0.7 * mean * (1 - mean / n)


@pytest.mark.slow
@pytest.mark.parametrize("stem", ["small", "imagenet"])
def test_gradients_reach_kept_positions_only(stem):
    net = models.MODELS["resnet18"](5, width=4, stem=stem)
    drop = infodrop._make_drop(net, infodrop.sample_exact, rate=1.5)
    image = jnp.asarray(RNG.uniform(size=(2, 32, 32, 3)), jnp.float32)
    size = 32 if stem == "small" else 8
    f = jnp.asarray(RNG.normal(size=(2, size, size, 4)), jnp.float32)
    out, pull = jax.vjp(lambda f, image: drop(f, image, KEY), f, image)
    by_feature, by_image = pull(jnp.ones_like(out))
    mask = np.asarray(out != 0)
    np.testing.assert_array_equal(by_feature, mask)
    np.testing.assert_array_equal(np.asarray(out)[mask], np.asarray(f)[mask])
    assert (by_image == 0).all()
    assert 0.05 < mask.mean() < 0.95
    assert (mask[..., 0] != mask[..., 1]).any()


def test_with_rate_0_the_program_equals_erms(net, variables, batch):
    net = net.clone(dropout=0.5)
    params, stats = {"net": variables["params"]}, {"net": variables["stats"]}

    def program(algo):
        trace = jax.make_jaxpr(algo.losses)
        return str(trace(params, stats, batch, jax.random.key(0)))

    without_drops = program(infodrop.make(net, rate=0))
    assert without_drops == program(erm.make(net))
    assert "random_fold_in" in without_drops


@pytest.mark.slow
def test_biasbeds_variant_drops_in_evaluation_deterministically(net, variables, image):
    assert infodrop.make(net).decide is None
    biasbed = infodrop.make(net, variant="biasbed")
    plain = net.apply(variables, image)
    logits = biasbed.decide(variables, image)
    assert np.abs(logits - plain).max() > 1e-3
    np.testing.assert_array_equal(logits, biasbed.decide(variables, image))


@pytest.mark.slow
def test_biasbeds_variant_predicts_images_independently(net, variables, image):
    """A prediction does not depend on the batch or on the place in it."""
    decide = infodrop.make(net, variant="biasbed").decide
    all_logits = decide(variables, image)
    # Sums of other shapes: a unit in the last place, but no other mask.
    np.testing.assert_allclose(
        decide(variables, image[2:4]), all_logits[2:4], atol=1e-4
    )
    np.testing.assert_allclose(
        decide(variables, image[::-1]), all_logits[::-1], atol=1e-4
    )


@cases.each(
    "options", [{"rate": -1}, {"sampling": "x"}, {"variant": "x"}, {"offsets": 0}]
)
def test_bad_options_are_refused(net, options):
    with pytest.raises(ValueError, match=r"infodrop: .* got"):
        infodrop.make(net, **options)


def test_networks_with_unknown_stems_are_refused():
    with pytest.raises(ValueError, match="needs a ResNet, .* got AlexNet; take a"):
        infodrop.make(models.MODELS["alexnet"](5))
