"""AugMix: mixed chains of operations, in a row after the image."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from PIL import Image, ImageOps

from jbias import augment
from jbias.algos import base
from jbias.augment import augmix, pillow, random_numbers
from tests import cases

KEY = jax.random.key(5)
B, SIZE = 6, 16
RNG = np.random.default_rng(0)
BYTES = RNG.integers(0, 256, (B, SIZE, SIZE, 3), np.uint8)
BATCH = {
    "image": jnp.asarray(BYTES, jnp.float32) / 255,
    "target": jax.nn.one_hot(jnp.arange(B), B),
    "index": jnp.arange(B),
    "other": {"image": jnp.asarray(BYTES[::-1], jnp.float32) / 255},
    "once": jax.random.key(1),
}


def run_augmix(batch=BATCH, key=KEY, **options):
    static = {}

    @jax.jit
    def run(batch, key):
        transformed = augment.AUGMENTS["augmix"](**options)(batch, key)
        static.update(
            {
                k: transformed.pop(k)
                for k in ("views", "consistency")
                if k in transformed
            }
        )
        return transformed

    return {**run(batch, key), **static}


@pytest.fixture(scope="module")
def augmented():
    return run_augmix()


@pytest.mark.slow
def test_the_first_view_is_the_image_and_has_all_the_weight(augmented):
    np.testing.assert_array_equal(augmented["image"][::3], BATCH["image"])
    np.testing.assert_array_equal(augmented["weight"], np.tile([1.0, 0, 0], B))
    assert augmented["views"] == 3 and augmented["consistency"] == 12.0
    for name in ("target", "index"):
        np.testing.assert_array_equal(augmented[name], np.repeat(BATCH[name], 3, 0))
    other = np.repeat(BATCH["other"]["image"], 3, 0)
    np.testing.assert_array_equal(augmented["other"]["image"], other)
    assert augmented["once"] == BATCH["once"]


@pytest.mark.slow
def test_views_are_images_and_differ(augmented):
    image = np.asarray(augmented["image"]).reshape(B, 3, -1)
    assert 0 <= image.min() and image.max() <= 1 + 1e-6
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert (image[:, i] != image[:, j]).any(1).sum() >= B - 1
    assert len(np.unique(image[:, 1:].reshape(2 * B, -1), axis=0)) == 2 * B


@pytest.mark.slow
def test_results_depend_on_the_place_in_the_batch_only(augmented):
    half = run_augmix({"image": BATCH["image"][:3]})
    np.testing.assert_allclose(half["image"], augmented["image"][:9], atol=1e-6)


@pytest.mark.slow
def test_a_mixture_with_share_0_is_the_image(monkeypatch):
    """With m = 0 the image keeps its bits."""
    draw = augmix.draw

    def without(*args, **options):
        chains, m = draw(*args, **options)
        return chains, jnp.zeros_like(m)

    monkeypatch.setattr(augmix, "draw", without)
    image = run_augmix()["image"].reshape(B, 3, SIZE, SIZE, 3)
    for view in range(3):
        np.testing.assert_array_equal(image[:, view], BATCH["image"])


@pytest.mark.slow
def test_a_chain_applies_its_operations_in_order():
    """The first two of three operations, and a chain of share 0, by Pillow."""
    names = augmix.OPERATIONS
    chain = [names.index(name) for name in ("posterize", "rotate", "equalize")]
    kind = jnp.asarray([chain, chain[::-1]])
    amount = jnp.asarray([[2.0, -7, 0], [0, 5, 1]])
    depths, shares = jnp.asarray([2, 3]), jnp.asarray([0.75, 0.25])
    chains = augmix.Chains(kind, amount, depths, shares)
    mixture = augmix.mixture(BATCH["image"][0], names, chains)
    picture = Image.fromarray(BYTES[0])
    bilinear = Image.Resampling.BILINEAR
    first = ImageOps.posterize(picture, 2).rotate(-7, bilinear)
    second = ImageOps.posterize(ImageOps.equalize(picture).rotate(5, bilinear), 1)
    expected = 0.75 * np.asarray(first, float) + 0.25 * np.asarray(second, float)
    np.testing.assert_allclose(255 * np.asarray(mixture), expected, atol=1e-3)


@cases.each("severity", [0.1, 1, 3])
def test_amounts_follow_from_their_levels(severity):
    """All operations are equally likely; amounts are in the ranges of the paper's code."""
    names, (h, w) = augmix.ALL_OPERATIONS, (224, 96)
    u = jax.random.uniform(KEY, (3, 26000))
    kind, amount = (
        np.asarray(x)
        for x in augmix.operations(u, names, severity=severity, size=(h, w))
    )
    assert scipy.stats.chisquare(np.bincount(kind, minlength=13)).pvalue > 0.001
    top = severity / 10
    ends = {
        "posterize": (4 - int(4 * top), 4),
        "rotate": (-int(30 * top), int(30 * top)),
        "solarize": (256 - int(256 * top), 254),
        "shear_x": (-0.3 * top, 0.3 * top),
        "shear_y": (-0.3 * top, 0.3 * top),
        "translate_x": (-int(w / 3 * top), int(w / 3 * top)),
        "translate_y": (-int(h / 3 * top), int(h / 3 * top)),
        **dict.fromkeys(pillow.BLENDS, (0.118, 0.1 + 1.8 * top)),
    }
    for i, name in enumerate(names):
        amounts = amount[kind == i]
        low, high = ends.get(name, (0, 0))
        slack = 0.05 * (high - low) if name in (*pillow.BLENDS, "shear_x") else 1e-5
        assert low - 1e-5 <= amounts.min() <= low + max(slack, 1)
        assert high - max(slack, 1) <= amounts.max() <= high + 1e-5
        if low == -high != 0:  # Either side with even chances: 5 deviations.
            sides = np.sign(amounts[amounts != 0])
            assert abs(sides.mean()) < 5 / np.sqrt(max(len(sides), 1))
        if name in ("posterize", "rotate", "solarize", "translate_x", "translate_y"):
            np.testing.assert_array_equal(amounts, np.round(amounts))


def draw_chains(depth=-1, alpha=1.0, width=3, count=2000):
    """Return the chains of many examples, without the axis of copies."""
    keys = random_numbers.keys(KEY, count)

    def draw(key):
        return augmix.draw(
            key,
            copies=1,
            names=augmix.OPERATIONS,
            severity=1.0,
            width=width,
            depth=depth,
            alpha=alpha,
            size=(8, 8),
        )

    chains, m = jax.jit(jax.vmap(draw))(keys)
    return [np.asarray(x)[:, 0] for x in (*chains, m)]


@pytest.mark.quick("1.0")
@pytest.mark.parametrize("alpha", [1.0, 0.5])
def test_shares_are_of_dirichlets_and_betas_distribution(alpha):
    _, _, depth, share, m = draw_chains(alpha=alpha)
    np.testing.assert_allclose(share.sum(-1), 1, rtol=1e-5)
    # A coordinate of Dirichlet(a, a, a) is Beta(a, 2 a).
    for i in range(3):
        law = scipy.stats.beta(alpha, 2 * alpha)
        assert scipy.stats.kstest(share[:, i], law.cdf).pvalue > 0.001
    assert scipy.stats.kstest(m, scipy.stats.beta(alpha, alpha).cdf).pvalue > 0.001
    for chain in depth.T:
        counts = np.bincount(chain, minlength=4)[1:]
        assert len(counts) == 3 and scipy.stats.chisquare(counts).pvalue > 0.001


def test_depth_and_width_may_be_fixed():
    kind, amount, depth, share, _ = draw_chains(depth=2, width=5, count=10)
    assert kind.shape == amount.shape == (10, 5, 2)
    assert (depth == 2).all() and share.shape == (10, 5)


def test_without_operations_nothing_is_changed():
    single_view = run_augmix(depth=0, views=1, js=0)
    assert single_view.keys() == BATCH.keys()
    np.testing.assert_array_equal(single_view["image"], BATCH["image"])
    images = run_augmix(depth=0)["image"].reshape(B, 3, SIZE, SIZE, 3)
    for view in range(3):
        np.testing.assert_array_equal(images[:, view], BATCH["image"])


@pytest.mark.slow
def test_one_view_without_consistency_replaces_the_image():
    apply = augmix.make(views=1, js=0, all_ops=True)
    transformed = jax.eval_shape(apply, BATCH, KEY)
    assert jax.tree.map(jnp.shape, transformed) == jax.tree.map(jnp.shape, BATCH)


@pytest.mark.slow
def test_without_consistency_copies_have_no_weight():
    """The loss is that of the images, for any logits of their copies."""
    batch = {**BATCH, "weight": jnp.arange(1.0, B + 1)}
    transformed = run_augmix(batch, js=0, depth=0)
    assert "consistency" not in transformed
    logits = jax.random.normal(KEY, (3 * B, B))
    expected = base.objective(logits[::3], batch)
    assert base.objective(logits, transformed) == pytest.approx(
        float(expected), rel=1e-6
    )


@pytest.mark.slow
def test_the_divergence_knows_no_label():
    transformed = run_augmix(depth=0)
    logits = jax.random.normal(KEY, (3 * B, B))
    plain = {k: v for k, v in transformed.items() if k != "consistency"}

    def divergence(target):
        total = base.objective(logits, {**transformed, "target": target})
        return total - base.objective(logits, {**plain, "target": target})

    assert float(divergence(transformed["target"])) > 0
    slope = jax.grad(divergence)(transformed["target"])
    np.testing.assert_allclose(slope, 0, atol=1e-6)


@cases.each(
    ("options", "batch", "message"),
    [
        ({"severity": 11}, {}, "severity must be in"),
        ({"severity": 0}, {}, "severity must be in"),
        ({"width": 0}, {}, "width must be in"),
        ({"views": 1}, {}, "js must be 0, got 12.0; set js=0 or views=3"),
        ({}, {"views": 2}, "must not have views already, got 2"),
    ],
)
def test_bad_options_are_refused_in_one_line(options, batch, message):
    with pytest.raises(ValueError, match=message) as caught:
        augmix.make(**options)({**BATCH, **batch}, KEY)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("augmix: ")
