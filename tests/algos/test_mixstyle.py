"""MixStyle: the mixed statistics, its gate, its sites, and its partners."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jbias.algos import erm, mixstyle
from jbias.augment import sampling
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


def mixed(x, share=SHARE):
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
    return lambda *args: getattr(passed := tap(*args), "value", passed)


def test_output_has_the_mixed_means_and_deviations():
    """The deviation is mixed, not the variance."""
    found = stats(mix(X, ORDER, SHARE))
    for a, b in zip(found, mixed(X)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_formula_with_the_authors_epsilon():
    """On nearly flat maps epsilon dominates the divisor."""
    x = X * 1e-3
    mean, std = stats(x)
    new_mean, new_std = mixed(x)
    expected = (np.asarray(x, np.float64) - mean) / np.sqrt(std**2 + 1e-6)
    expected = expected * new_std + new_mean
    found = mix(x, ORDER, SHARE)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-7)


def test_with_the_whole_share_it_is_the_identity():
    found = mix(X, ORDER, jnp.ones((8, 1, 1, 1)))
    np.testing.assert_allclose(found, X, atol=1e-5)


def test_jacobian_is_diagonal():
    """Statistics are constants: each value's slope is its channel's new deviation."""
    x = X[:4, :3, :2, :2]
    order, share = ORDER[:1], SHARE[:4]
    found = jax.jacrev(lambda x: mix(x, order, share))(x)
    std = np.sqrt(stats(x)[1] ** 2 + 1e-6)
    slope = (np.asarray(share) * std + (1 - np.asarray(share)) * std[PARTNER[:4]]) / std
    found = np.asarray(found).reshape(x.size, x.size)
    expected = np.diag(np.broadcast_to(slope, x.shape).ravel())
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.abs(slope - 1).max() > 0.1


def test_half_precision_goes_through_float32():
    half = X.astype(jnp.bfloat16)
    found = mix(half, ORDER, SHARE)
    assert found.dtype == jnp.bfloat16
    expected = mix(half.astype(jnp.float32), ORDER, SHARE)
    np.testing.assert_array_equal(found, expected.astype(jnp.bfloat16))


@pytest.fixture(scope="module")
def shares(net):
    """shares(alpha): drawn ones, seen as means where images near 0 and 1 meet."""
    count = 4000
    ripple = jnp.array([-0.1, 0.1]).reshape(1, 1, 2, 1)
    first = np.arange(count) % 2 == 0
    x = jnp.asarray(~first, jnp.float32).reshape(-1, 1, 1, 1) + ripple

    @jax.jit
    def mean(alpha):
        tap = tap_of(net, p=1.0, alpha=alpha, stages=(1,), mix_group=2)
        return tap(x, "stage1", KEY).mean((1, 2, 3))

    order = jax.random.split(KEY, 3)[2]
    partner = sampling.permute(jnp.arange(float(count)), order, group=2)
    met = np.asarray(partner) != np.arange(count)
    return lambda alpha: np.where(first, 1 - mean(alpha), mean(alpha))[met]


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_shares_are_of_a_beta_distribution(alpha, shares):
    """One for each image; for 0.1 most are nearly 0 or 1."""
    seen = shares(alpha)
    edges = np.array([-1, 0.1, 0.5, 0.9, 2])
    counts, _ = np.histogram(seen, edges)
    expected = len(seen) * np.diff(scipy.stats.beta(alpha, alpha).cdf(edges))
    assert len(seen) > 1500
    assert scipy.stats.chisquare(counts, expected).pvalue > 0.001
    if alpha == 0.1:
        assert (counts[0] + counts[3]) / len(seen) == pytest.approx(0.8, abs=0.04)


def test_one_gate_for_the_whole_batch(net):
    """Every image changes or none does; the options may come at run time."""
    x = X[:, :2, :1, :1]

    @jax.jit
    def changed(p, alpha, keys):
        tap = tap_of(net, p=p, alpha=alpha, mix_group=4)
        found = jax.vmap(lambda key: tap(x, "stage1", key))(keys)
        # An image that meets itself keeps its values up to the last bits.
        return jnp.abs(found - x[None]).max((2, 3, 4)) > 1e-4

    keys = jax.random.split(KEY, 400)
    seen = np.asarray(changed(0.5, 1.0, keys))
    acts = seen.any(axis=1)
    # Where it acts, 3 of 4 images meet another.
    assert seen[acts].mean() == pytest.approx(0.75, abs=0.06)
    assert acts.mean() == pytest.approx(0.5, abs=0.1)
    assert not changed(0.0, 1.0, keys).any()


def test_acts_after_the_chosen_stages_only(net):
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
        shown = {"image": batch["image"], "target": batch["target"], **columns}
        named, aux = algo.losses(params, stats, shown, KEY)
        return named["class"], aux.stats

    return run


@pytest.mark.slow
def test_domains_of_the_batch_decide_who_meets(net, run, variables):
    """And without a chance to meet it is ERM, to the bit."""
    place = jnp.arange(8)

    @jax.jit
    def mixed(variables, p, domain):
        algo = mixstyle.make(
            net, p=p, alpha=1.0, stages=(1,), partners="cross_domain", mix_group=4
        )
        assert algo.mix_group == 4
        assert algo.net is net
        return run(algo, variables, domain=domain)

    domains = place % 2, 1 - place % 2, place // 2 % 2
    one, same, other = (mixed(variables, 1.0, domain)[0] for domain in domains)
    assert one == same != other
    plain = jax.jit(lambda variables: run(erm.make(net), variables))(variables)
    assert one != plain[0]
    found = mixed(variables, 0.0, domains[0])
    jax.tree.map(np.testing.assert_array_equal, found, plain)


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
def test_refuses(options, message, net):
    with pytest.raises(ValueError, match=f"mixstyle: .*{message}"):
        mixstyle.make(net, **options)
