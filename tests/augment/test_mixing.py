"""Laws of all transforms that mix images.

Image i of the batch is 1 in channel i and 0 in all other channels, so that the mean of a
mixed image over its pixels is the share of every original image.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jbias import augment
from jbias.algos import base
from jbias.augment import mixing
from tests import cases

KEY = jax.random.key(5)
# Compiled for one call: on CPU the optimiser takes longer than what it makes.
QUICK = {"xla_backend_optimization_level": 0}
ROWS, GROUP, SIZE = 8, 4, 12
IMAGE = jnp.broadcast_to(jnp.eye(ROWS)[:, None, None], (ROWS, SIZE, SIZE, ROWS))
BATCH = {
    "image": IMAGE,
    "target": jnp.eye(ROWS),
    "weight": jnp.arange(1.0, 9.0),
    "index": jnp.arange(ROWS),
    "once": jax.random.key(9),
}
MIXERS = {
    "mixup": ("mixup", {}),
    "cutmix": ("cutmix", {}),
    "cutmix_torchbearer": ("cutmix", {"variant": "torchbearer"}),
    "fmix": ("fmix", {}),
    "random_masks": ("random_masks", {}),
    "one_of": ("one_of", {"alphas": (1.0, 1.0)}),
}
REFORMULATED = ("mixup", "cutmix", "fmix")


def make(name, **options):
    name, defaults = MIXERS[name]
    return augment.AUGMENTS[name](**{"mix_group": GROUP, **defaults, **options})


@functools.cache
def program(name, **options):
    """Return (batch, keys) -> images and targets for each key, compiled once."""
    apply = make(name, **options)

    def mix_all(batch, keys, views):
        if views > 1:
            batch = {**batch, "views": views}

        def mix(key):
            mixed_batch = apply(batch, key)
            return mixed_batch["image"], mixed_batch["target"]

        return jax.lax.map(mix, keys)

    return jax.jit(mix_all, static_argnums=2, compiler_options=QUICK)


def mixed(name, batch=BATCH, views=1, **options):
    """Return images and targets of a batch, BATCH by default, mixed with 8 keys."""
    image, target = program(name, **options)(batch, jax.random.split(KEY, 8), views)
    return np.asarray(image), np.asarray(target)


def constant_share(share):
    """Replace the random share by a constant."""
    return lambda *args: jnp.float32(share)


@cases.each("name", MIXERS)
def test_null_options_return_the_batch_itself(name):
    assert make(name, p=0)(BATCH, KEY) is BATCH
    assert make(name, p=0.0)(BATCH, KEY) is BATCH
    if name != "one_of":
        assert make(name, alpha=0)(BATCH, KEY) is BATCH


@pytest.mark.slow
@cases.each(
    "name",
    MIXERS,
    quick=(
        "mixup",
        "cutmix",
        "one_of",
    ),
)
def test_a_share_of_1_changes_no_bit(name, monkeypatch):
    monkeypatch.setattr(mixing, "draw_lambda", constant_share(1))
    batch = {**BATCH, "image": jax.random.uniform(KEY, (ROWS, SIZE, SIZE, 3))}
    mixed_batch = jax.jit(make(name), compiler_options=QUICK)(batch, KEY)
    np.testing.assert_array_equal(mixed_batch["image"], batch["image"])
    np.testing.assert_array_equal(mixed_batch["target"], batch["target"])


@pytest.mark.slow
def test_a_share_of_batches_is_mixed():
    """One draw for the whole batch; batches that are not mixed keep every bit."""

    @jax.jit
    def is_unchanged(p):
        def mix(key):
            mixed_batch = make("mixup", p=p)(BATCH, key)
            columns = ("image", "target")
            return tuple((mixed_batch[c] == BATCH[c]).all() for c in columns)

        return jax.lax.map(mix, jax.random.split(KEY, 400))

    assert all(x.all() for x in is_unchanged(0.0))
    image, target = (np.asarray(x) for x in is_unchanged(0.3))
    # Mixing may leave a batch as it is, by partners or box, but hardly ever.
    assert abs(image.mean() - 0.7) < 4 * (0.21 / 400) ** 0.5 + 0.01
    assert target[image].all()
    assert not is_unchanged(1.0)[0].all()


@pytest.mark.slow
@cases.each(
    "name",
    MIXERS,
    quick=(
        "mixup",
        "cutmix",
        "cutmix_torchbearer",
    ),
)
def test_label_weights_are_shares_of_pixels(name):
    """The weight of a label is the share of its pixels in the image."""
    image, target = mixed(name)
    # Area's weight is exact; a mask's mean is lam in whole pixels.
    slack = {"mixup": 0, "cutmix": 0, "one_of": 0}.get(name, 1 / SIZE**2)
    pixel_shares = image.mean((2, 3))
    if name == "cutmix_torchbearer":  # Boxes cut at the border hide less than said.
        rows = np.arange(ROWS)
        assert (pixel_shares[:, rows, rows] > target[:, rows, rows] + 0.1).any()
        return
    np.testing.assert_allclose(pixel_shares, target, atol=slack + 1e-5)
    np.testing.assert_allclose(target.sum(-1), 1, atol=1e-6)
    if name != "random_masks":
        assert len(np.unique(target.round(4))) > 8


@pytest.mark.slow
@cases.each("name", MIXERS)
def test_each_image_has_one_partner_in_its_group(name):
    """Partners are a permutation inside groups, equal for images and labels."""
    image, target = mixed(name)
    np.testing.assert_allclose(target.sum(1), 1, atol=1e-6)
    across = np.kron(1 - np.eye(ROWS // GROUP), np.ones((GROUP, GROUP)))
    np.testing.assert_array_equal(target * across, 0)
    np.testing.assert_array_equal(image.max((2, 3)) * across, 0)
    np.testing.assert_array_equal((image.max((2, 3)) > 0) & (target == 0), False)
    # At most the own and one other.
    assert ((target > 0).sum(-1) <= 2).all()
    assert ((target > 0).sum(-1) == 2).any()


@pytest.mark.slow
def test_the_mean_of_the_batch_is_unchanged():
    for name in ("mixup", "cutmix", "fmix"):
        image, _ = mixed(name)
        np.testing.assert_allclose(image.mean(1), 1 / ROWS, atol=1e-6)


@cases.each("name", MIXERS)
def test_other_entries_of_the_batch_are_unchanged(name):
    def check(batch):
        mixed_batch = make(name)(batch, KEY)
        assert set(mixed_batch) == set(batch)
        for column in ("weight", "index", "once"):
            assert mixed_batch[column] is batch[column]

    jax.eval_shape(check, BATCH)


@pytest.mark.slow
@cases.each("name", ["mixup", "cutmix_torchbearer"])
def test_views_of_an_image_meet_the_same_view_of_the_partner(name):
    """With two rows per example, row 2 i + v is mixed with row 2 j + v."""
    image, target = mixed(name, views=2, mix_group=2)
    meets = (image.max((2, 3)) > 0) | (target > 0)
    expected = np.zeros((ROWS, ROWS), bool)
    for i in range(ROWS):
        expected[i, [i, i ^ 2]] = True  # The other example of its group.
    assert not (meets & ~expected).any()
    assert (meets == expected).all((1, 2)).any()
    by_view = target.reshape(8, 4, 2, 4, 2)
    np.testing.assert_array_equal(by_view[:, :, 0, :, 0], by_view[:, :, 1, :, 1])
    pixels_by_view = image.reshape(8, 4, 2, SIZE, SIZE, 4, 2)
    np.testing.assert_array_equal(
        pixels_by_view[:, :, 0, ..., 0], pixels_by_view[:, :, 1, ..., 1]
    )


@cases.each("name", MIXERS)
def test_refuses_batches_that_groups_do_not_divide(name):
    with pytest.raises(ValueError, match="multiple of mix_group=3, got 8"):
        jax.eval_shape(lambda: make(name, mix_group=3)(BATCH, KEY)["image"])


@pytest.mark.slow
@cases.each(
    "name",
    REFORMULATED,
    quick=(
        "mixup",
        "cutmix",
    ),
)
def test_the_reformulated_loss_uses_the_images_own_label_only(name):
    image, target = mixed(name, reformulated=True)
    np.testing.assert_array_equal(target, np.broadcast_to(np.eye(8), target.shape))
    assert (image.mean((2, 3)) != target).any()


def with_second_source(image, label=tuple(range(ROWS))):
    """Return BATCH with a second source."""
    return {**BATCH, "other": {"image": image, "label": jnp.array(label)}}


@pytest.mark.slow
@cases.each("name", REFORMULATED)
def test_a_second_source_s_labels_are_not_used(name):
    other = jax.random.uniform(KEY, IMAGE.shape)
    image, target = mixed(name, with_second_source(other), partner="other")
    again = mixed(name, with_second_source(other, range(8, 0, -1)), partner="other")
    np.testing.assert_array_equal(image, again[0])
    for targets in (target, again[1]):
        expected = np.broadcast_to(np.eye(8), targets.shape)
        np.testing.assert_array_equal(targets, expected)
    assert (
        image != mixed(name, with_second_source(other / 2), partner="other")[0]
    ).any()


@pytest.mark.slow
@cases.each("name", REFORMULATED)
def test_a_second_source_that_is_the_first_gives_the_reformulated_loss(name):
    """With the partners that are drawn in the batch: the same bits."""
    within, _ = mixed(name, reformulated=True)
    for i in range(8):
        shares = within[i].mean((1, 2))
        np.fill_diagonal(shares, 0)
        partner = np.where(shares.any(1), shares.argmax(1), np.arange(ROWS))
        across, _ = mixed(name, with_second_source(IMAGE[partner]), partner="other")
        np.testing.assert_array_equal(across[i], within[i])
    assert (within.mean((2, 3)) != np.eye(8)).any()


def test_refuses_a_second_source_that_is_not_there_or_of_another_size():
    apply = make("mixup", partner="other")
    with pytest.raises(ValueError, match="mixup: partner='other' must have a second"):
        apply(BATCH, KEY)
    with pytest.raises(ValueError, match=r"second source must have shape \(8, 12"):
        apply(with_second_source(IMAGE[:, 2:], jnp.arange(ROWS)), KEY)


@cases.each(
    ("options", "words"),
    [
        ({"p": 1.5}, r"p must be in \[0, 1\], got 1.5"),
        ({"p": -0.1}, r"p must be in \[0, 1\], got -0.1"),
        ({"alpha": -1.0}, r"alpha must be in \[0, inf\], got -1.0"),
        ({"partner": "self"}, "partner must be one of batch, other, got 'self'"),
    ],
)
@cases.each("name", ["mixup", "cutmix", "fmix"])
def test_refuses_options_without_meaning(name, options, words):
    with pytest.raises(ValueError, match=f"{name}: {words}"):
        make(name, **options)


@functools.cache
def sampler(alpha=None):
    """Return (keys, alpha, reformulated) -> shares, for a traced or a fixed alpha."""

    def draw_all(keys, traced_alpha, reformulated):
        def draw(key):
            used_alpha = traced_alpha if alpha is None else alpha
            return mixing.draw_lambda(key, used_alpha, reformulated)

        return jax.vmap(draw)(keys)

    return jax.jit(draw_all, static_argnums=2 if alpha else ())


@pytest.mark.slow
@cases.each(("alpha", "is_fixed"), [(0.5, False), (1.0, False), (1.0, True)])
@cases.each("reformulated", [0, 1])
def test_shares_are_beta_distributed(alpha, is_fixed, reformulated):
    """Mean 1/2 and variance 1 / (4 (2 a + 1)); reformulated, mean (a + 1) / (2 a + 1)."""
    draw = sampler(alpha) if is_fixed else sampler()
    lam = np.asarray(draw(jax.random.split(KEY, 4000), alpha, reformulated), np.float64)
    law = scipy.stats.beta(alpha + reformulated, alpha)
    assert scipy.stats.kstest(lam, law.cdf).pvalue > 0.001
    mean = (alpha + 1) / (2 * alpha + 1) if reformulated else 0.5
    assert abs(lam.mean() - mean) < 4 * law.std() / 4000**0.5
    if not reformulated:
        assert lam.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.05)


def test_soft_targets_are_the_loss_with_two_labels():
    target = mixed("mixup")[1][0]
    logits = jax.random.normal(KEY, (ROWS, ROWS))
    log_p = np.asarray(jax.nn.log_softmax(logits), np.float64)
    rows = np.arange(ROWS)
    lam = target[rows, rows]
    partner_target = target.copy()
    partner_target[rows, rows] = 0
    partner = partner_target.argmax(1)
    expected = -(lam * log_p[rows, rows] + (1 - lam) * log_p[rows, partner]).mean()
    loss = base.objective(logits, {"target": jnp.asarray(target)})
    assert float(loss) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_shares_of_two_partners_add_up_to_1(monkeypatch):
    """Swapping the images of a pair, and lam with 1 - lam, gives the same result."""
    mixed_by_share = {}
    for lam in (0.25, 0.75):
        monkeypatch.setattr(mixing, "draw_lambda", constant_share(lam))
        fresh = jax.vmap(make("mixup", mix_group=2), (None, 0))
        fresh = jax.jit(fresh, compiler_options=QUICK)
        mixed_by_share[lam] = fresh(BATCH, jax.random.split(KEY, 8))
    met = np.asarray(mixed_by_share[0.25]["target"])[:, 0, 1] > 0
    assert met.any() and not met.all()
    for column in ("image", "target"):
        a = np.asarray(mixed_by_share[0.25][column])[met]
        b = np.asarray(mixed_by_share[0.75][column])[met]
        np.testing.assert_array_equal(a[:, :2], b[:, 1::-1])
