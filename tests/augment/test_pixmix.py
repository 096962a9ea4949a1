"""PixMix: sums and products, their number, and their partners."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jbias.augment import augmix, pillow, pixmix, random_numbers
from tests import cases

KEY = jax.random.key(6)
B, SIZE = 6, 12
RNG = np.random.default_rng(0)
IMAGE = jnp.asarray(RNG.integers(0, 256, (B, SIZE, SIZE, 3)), jnp.float32) / 255
PICTURE = jnp.asarray(RNG.integers(0, 256, (B, SIZE, SIZE, 3)), jnp.float32) / 255
BATCH = {"image": IMAGE, "target": jnp.eye(B), "other": {"image": PICTURE}}


def run_pixmix(batch=BATCH, **options):
    return jax.jit(pixmix.make(**options))(batch, KEY)


@pytest.fixture(scope="module")
def mixed_batch():
    return run_pixmix()


@pytest.mark.slow
def test_results_are_images_and_other_entries_are_unchanged(mixed_batch):
    assert 0 <= mixed_batch["image"].min() and mixed_batch["image"].max() <= 1
    assert mixed_batch.keys() == BATCH.keys()
    np.testing.assert_array_equal(mixed_batch["target"], BATCH["target"])
    np.testing.assert_array_equal(mixed_batch["other"]["image"], PICTURE)
    assert (mixed_batch["image"] != IMAGE).any((1, 2, 3)).sum() >= B - 2


@pytest.mark.slow
def test_results_depend_on_the_place_in_the_batch_only(mixed_batch):
    half = run_pixmix(jax.tree.map(lambda x: x[:3], BATCH))
    np.testing.assert_allclose(half["image"], mixed_batch["image"][:3], atol=1e-5)


@pytest.mark.slow
def test_without_rounds_and_start_nothing_is_changed():
    unchanged = pixmix.make(k=0, start=0)({"image": IMAGE, "target": jnp.eye(B)}, KEY)
    np.testing.assert_array_equal(unchanged["image"], IMAGE)
    # The same drawn while it runs: to the bit, too.
    k0 = jax.jit(lambda start: pixmix.make(k=0, start=start)(BATCH, KEY)["image"])
    np.testing.assert_array_equal(k0(0.0), IMAGE)


@pytest.mark.slow
def test_starts_from_one_operation_of_augmix():
    """Without rounds, each image is the result of some operation of the list."""
    start = run_pixmix(k=0, start=1.0)["image"]
    u = jax.vmap(
        lambda k: random_numbers.uniforms(k, (3, 1), (), (), (0,), (0,), (3, 0))
    )
    u_op = u(random_numbers.keys(KEY, B))[0]
    names = augmix.ALL_OPERATIONS
    for i in range(B):
        kind, amount = augmix.operations(u_op[i], names, severity=1, size=(SIZE, SIZE))
        pixels = pillow.apply(pillow.pack(IMAGE[i]), kind[0], amount[0], names)
        np.testing.assert_array_equal(start[i], pillow.unpack(pixels))


@pytest.mark.slow
def test_the_picture_matters_in_some_rounds_only(mixed_batch):
    """The picture is unused in 0.2 (1 + 1/2 + 1/4 + 1/8 + 1/16) of the images."""
    other = {**BATCH, "other": {"image": 1 - PICTURE}}
    repeated = jax.tree.map(
        lambda x: jnp.tile(x, (200, *(1,) * (x.ndim - 1))), (BATCH, other)
    )
    small = jax.tree.map(lambda x: x[:, :4, :4] if x.ndim == 4 else x, repeated)
    mix = jax.jit(pixmix.make(all_ops=False))
    a, b = (mix(batch, KEY)["image"] for batch in small)
    share = float((a == b).all((1, 2, 3)).mean())
    assert abs(share - 0.3875) < 5 * np.sqrt(0.3875 * 0.6125 / (200 * B))


def reference_add(u, v, a, b):
    """Return the sum by the paper's code: in [-1, 1] and back."""
    return (a * (2 * u - 1) + b * (2 * v - 1) + 1) / 2


def reference_multiply(u, v, a, b):
    return (2 * u) ** a * np.clip(2 * v, 1e-37, None) ** b / 2


def test_mixes_by_the_papers_formulas():
    u = np.asarray(IMAGE[0], np.float64).ravel()
    v = np.asarray(PICTURE[0], np.float64).ravel()
    u[0], v[1], u[2], v[2] = 0, 0, 0, 0
    for a, b in ((0.7, 0.2), (1.3, -0.4), (2.0, -1.0), (0.05, 0.9)):
        args = (jnp.asarray(x, jnp.float32) for x in (u, v, a, b))
        u_, v_, a_, b_ = args
        add = pixmix.add(u_, v_, a=a_, b=b_)
        multiply = pixmix.multiply(u_, v_, a=a_, b=b_)
        np.testing.assert_allclose(add, reference_add(u, v, a, b), atol=1e-6)
        np.testing.assert_allclose(
            np.clip(multiply, 0, 1),
            np.clip(reference_multiply(u, v, a, b), 0, 1),
            rtol=2e-5,
            atol=1e-6,
        )
        assert np.isfinite(multiply).all()


def test_neutral_partners_change_nothing():
    """A sum with weight 0 is the identity; a product with grey is a power."""
    u, v = IMAGE[0], PICTURE[0]
    np.testing.assert_array_equal(pixmix.add(u, v, a=1.0, b=0.0), u)
    grey = jnp.full_like(u, 0.5)
    for a, b in ((0.7, 0.3), (1.2, -0.9)):
        expected = (2 * np.asarray(u, np.float64)) ** a / 2
        np.testing.assert_allclose(
            pixmix.multiply(u, grey, a=a, b=b), expected, rtol=1e-5
        )
    for summed in (True, False):
        extreme = pixmix.mix_two(u, v, a=2.0, b=-1.0, is_sum=summed)
        assert 0 <= extreme.min() and extreme.max() <= 1


@pytest.mark.parametrize("beta", [4.0, 3])
def test_coefficients_are_of_beta_distributions(beta):
    u = jax.random.uniform(KEY, (3, 20000))
    a, b = (np.asarray(x) for x in pixmix.coefficients(u, beta))
    convex = b > 0
    assert abs(convex.mean() - 0.5) < 5 * 0.5 / np.sqrt(20000)
    low, high = scipy.stats.beta(1, beta), scipy.stats.beta(beta, 1)
    for values, law in (
        (a[convex], high),
        (b[convex], low),
        (a[~convex] - 1, low),
        (-b[~convex], low),
    ):
        assert scipy.stats.kstest(values, law.cdf).pvalue > 0.001
    assert (a > 0).all()
    assert abs(np.corrcoef(a[convex], b[convex])[0, 1]) < 0.05


@cases.each(
    ("options", "batch", "message"),
    [
        ({"k": -1}, {}, "k must be in"),
        ({"start": 1.5}, {}, "start must be in"),
        ({"severity": 20}, {}, "severity must be in"),
        ({}, {"other": None}, "got None; set config.train.other to"),
        ({}, {"other": {"image": PICTURE[:3]}}, r"got \(3, 12, 12, 3\); set"),
    ],
)
def test_bad_options_are_refused_in_one_line(options, batch, message):
    with pytest.raises(ValueError, match=message) as caught:
        pixmix.make(**options)({**BATCH, **batch}, KEY)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("pixmix: ")
