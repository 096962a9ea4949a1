"""MixStyle: the mixed statistics, its gate, its sites, and its partners."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jbias.algos import erm, mixstyle
from jbias.augment import batch_permutations
from jbias.models import taps
from tests import cases

KEY = jax.random.key(6)
RNG = np.random.default_rng(0)
# Each image's channels have their own means and deviations.
X = jnp.asarray(
    RNG.normal(size=(8, 6, 5, 4)) * RNG.uniform(1, 3, (8, 1, 1, 4))
    + RNG.normal(size=(8, 1, 1, 4)),
    jnp.float32,
)
ORDER = jnp.array([[1, 2, 3, 0], [2, 3, 1, 0]])
PARTNER = np.array([1, 2, 3, 0, 6, 7, 5, 4])
SHARE = jnp.asarray(RNG.uniform(size=(8, 1, 1, 1)), jnp.float32)


def stats(x):
    x = np.asarray(x, np.float64)
    return (
        x.mean((1, 2), keepdims=True),
        x.std((1, 2), ddof=1, keepdims=True),
    )


def mixed_statistics(x, share=SHARE):
    """Return the new statistics of images, by NumPy."""
    share = np.asarray(share, np.float64)
    mean, std = stats(x)
    std = np.sqrt(std**2 + 1e-6)
    return tuple(share * s + (1 - share) * s[PARTNER] for s in (mean, std))


def mix(x, order, share):
    return mixstyle.mix(x, jnp.array(True), lambda: (order, share)).value


def tap_of(net, **options):
    """Return the tap of an algorithm with its result rescaled."""
    tap = mixstyle.make(net, **options).net.tap

    def apply(*args):
        y = tap(*args)
        return y.value if isinstance(y, taps.Rescaled) else y

    return apply


def test_output_has_the_mixed_means_and_deviations():
    """The deviation is mixed, not the variance."""
    for a, b in zip(stats(mix(X, ORDER, SHARE)), mixed_statistics(X)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_formula_with_the_authors_epsilon():
    """On nearly flat maps epsilon dominates the divisor."""
    x = X * 1e-3
    mean, std = stats(x)
    new_mean, new_std = mixed_statistics(x)
    expected = (np.asarray(x, np.float64) - mean) / np.sqrt(std**2 + 1e-6)
    expected = expected * new_std + new_mean
    mixed_map = mix(x, ORDER, SHARE)
    np.testing.assert_allclose(mixed_map, expected, rtol=1e-3, atol=1e-7)


def test_share_1_is_the_identity():
    mixed_map = mix(X, ORDER, jnp.ones((8, 1, 1, 1)))
    np.testing.assert_allclose(mixed_map, X, atol=1e-5)


def test_jacobian_is_diagonal():
    """Statistics are constants: each value's slope is its channel's new deviation."""
    x = X[:4, :3, :2, :2]
    order, share = ORDER[:1], SHARE[:4]
    jacobian = jax.jacrev(lambda x: mix(x, order, share))(x)
    std = np.sqrt(stats(x)[1] ** 2 + 1e-6)
    slope = (np.asarray(share) * std + (1 - np.asarray(share)) * std[PARTNER[:4]]) / std
    jacobian = np.asarray(jacobian).reshape(x.size, x.size)
    expected = np.diag(np.broadcast_to(slope, x.shape).ravel())
    np.testing.assert_allclose(jacobian, expected, rtol=1e-5)
    assert np.abs(slope - 1).max() > 0.1


def test_half_precision_goes_through_float32():
    half = X.astype(jnp.bfloat16)
    mixed_map = mix(half, ORDER, SHARE)
    assert mixed_map.dtype == jnp.bfloat16
    expected = mix(half.astype(jnp.float32), ORDER, SHARE)
    np.testing.assert_array_equal(mixed_map, expected.astype(jnp.bfloat16))


@pytest.fixture(scope="module")
def shares(net):
    """Function shares(alpha) that returns drawn shares, read off as means of mixed images
    near 0 and 1.
    """
    count = 4000
    ripple = jnp.array([-0.1, 0.1]).reshape(1, 1, 2, 1)
    first = np.arange(count) % 2 == 0
    x = jnp.asarray(~first, jnp.float32).reshape(-1, 1, 1, 1) + ripple

    @jax.jit
    def mean(alpha):
        tap = tap_of(net, p=1.0, alpha=alpha, stages=(1,), mix_group=2)
        return tap(x, "stage1", KEY).mean((1, 2, 3))

    order = jax.random.split(KEY, 3)[2]
    partner = batch_permutations.permute(jnp.arange(float(count)), order, group=2)
    met = np.asarray(partner) != np.arange(count)
    return lambda alpha: np.where(first, 1 - mean(alpha), mean(alpha))[met]


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_shares_are_beta_distributed(alpha, shares):
    """Each image has its own share; for alpha = 0.1 most shares are nearly 0 or 1."""
    drawn = shares(alpha)
    edges = np.array([-1, 0.1, 0.5, 0.9, 2])
    counts, _ = np.histogram(drawn, edges)
    expected = len(drawn) * np.diff(scipy.stats.beta(alpha, alpha).cdf(edges))
    assert len(drawn) > 1500
    assert scipy.stats.chisquare(counts, expected).pvalue > 0.001
    if alpha == 0.1:
        assert (counts[0] + counts[3]) / len(drawn) == pytest.approx(0.8, abs=0.04)


def test_the_whole_batch_has_one_gate(net):
    """Either every image changes or none; the options may be traced."""
    x = X[:, :2, :1, :1]

    @jax.jit
    def changed(p, alpha, keys):
        tap = tap_of(net, p=p, alpha=alpha, mix_group=4)
        mixed_maps = jax.vmap(lambda key: tap(x, "stage1", key))(keys)
        # An image that meets itself keeps its values up to the last bits.
        return jnp.abs(mixed_maps - x[None]).max((2, 3, 4)) > 1e-4

    keys = jax.random.split(KEY, 400)
    is_changed = np.asarray(changed(0.5, 1.0, keys))
    acts = is_changed.any(axis=1)
    # Where it acts, 3 of 4 images meet another.
    assert is_changed[acts].mean() == pytest.approx(0.75, abs=0.06)
    assert acts.mean() == pytest.approx(0.5, abs=0.1)
    assert not changed(0.0, 1.0, keys).any()


def test_mixstyle_acts_after_the_chosen_stages_only(net):
    tap = tap_of(net, p=1.0, stages=(1, 3), mix_group=4)
    for site in ("stem.conv", "stem", "stage1.block0.conv1", "stage2", "stage4"):
        assert tap(X, site, KEY) is X
    for site in ("stage1", "stage3"):
        assert "cond" in str(jax.make_jaxpr(lambda k, s=site: tap(X, s, k))(KEY))


def test_single_pixels_are_refused(net):
    with pytest.raises(ValueError, match="at least 2 pixels"):
        tap_of(net, mix_group=4)(X[:, :1, :1], "stage1", KEY)


@pytest.fixture(scope="module")
def run(batch):
    """Return run(algo, variables, domain=...) -> loss and statistics."""

    def run(algo, variables, **columns):
        params, stats = ({"net": variables[kind]} for kind in ("params", "stats"))
        data = {"image": batch["image"], "target": batch["target"], **columns}
        losses, aux = algo.losses(params, stats, data, KEY)
        return losses["class"], aux.stats

    return run


@pytest.mark.slow
def test_partners_are_of_other_domains(net, run, variables):
    """Partners are of other domains; with probability 0 the algorithm is ERM, to the bit."""
    place = jnp.arange(8)

    @jax.jit
    def mixed_statistics(variables, p, domain):
        algo = mixstyle.make(
            net, p=p, alpha=1.0, stages=(1,), partners="cross_domain", mix_group=4
        )
        assert algo.mix_group == 4
        assert algo.net is net
        return run(algo, variables, domain=domain)

    domains = place % 2, 1 - place % 2, place // 2 % 2
    loss, swapped, other = (
        mixed_statistics(variables, 1.0, domain)[0] for domain in domains
    )
    assert loss == swapped != other
    plain = jax.jit(lambda variables: run(erm.make(net), variables))(variables)
    assert loss != plain[0]
    unmixed = mixed_statistics(variables, 0.0, domains[0])
    jax.tree.map(np.testing.assert_array_equal, unmixed, plain)


def test_partners_across_refuse_batches_without_domains(net, run, variables):
    message = "needs batches with a 'domain', got image, target; name further"
    with pytest.raises(ValueError, match=message):
        run(mixstyle.make(net, partners="cross_domain", mix_group=4), variables)


@cases.each(
    ("options", "message"),
    [
        ({"p": 1.5}, r"p must be in \[0, 1\], got 1.5"),
        ({"alpha": 0}, "alpha must be positive, got 0"),
        ({"stages": (0, 1)}, r"stages must be some of 1 to 4, got \(0, 1\)"),
        ({"stages": ()}, r"stages must be some of 1 to 4, got \(\)"),
        (
            {"partners": "any"},
            "partners must be one of random, cross_domain, got 'any'",
        ),
    ],
)
def test_bad_options_are_refused(options, message, net):
    with pytest.raises(ValueError, match=f"mixstyle: .*{message}"):
        mixstyle.make(net, **options)
