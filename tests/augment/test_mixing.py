"""Laws of all transforms that mix images.

Image i of the batch is 1 in channel i and 0 in the others, so that the mean of a mixed
image over its pixels says how much it has of whom.
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
    name, own = MIXERS[name]
    return augment.AUGMENTS[name](**{"mix_group": GROUP, **own, **options})


@functools.cache
def program(name, **options):
    """Return (batch, keys) -> images and targets for each key, compiled once."""
    apply = make(name, **options)

    def many(batch, keys, views):
        def one(key):
            found = apply({**batch, **({"views": views} if views > 1 else {})}, key)
            return found["image"], found["target"]

        return jax.lax.map(one, keys)

    return jax.jit(many, static_argnums=2, compiler_options=QUICK)


def mixed(name, batch=BATCH, views=1, **options):
    """Return images and targets of a batch, BATCH by default, mixed with 8 keys."""
    found = program(name, **options)(batch, jax.random.split(KEY, 8), views)
    return tuple(np.asarray(x) for x in found)


def whole(share):
    """Replace the random share by a constant."""
    return lambda key, alpha, own: jnp.float32(share)


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
def test_a_share_of_one_leaves_every_bit(name, monkeypatch):
    monkeypatch.setattr(mixing, "draw_lambda", whole(1))
    batch = {**BATCH, "image": jax.random.uniform(KEY, (ROWS, SIZE, SIZE, 3))}
    found = jax.jit(make(name), compiler_options=QUICK)(batch, KEY)
    np.testing.assert_array_equal(found["image"], batch["image"])
    np.testing.assert_array_equal(found["target"], batch["target"])


@pytest.mark.slow
def test_a_share_of_batches_is_mixed():
    """One draw for the whole batch; batches that are not mixed keep every bit."""

    @jax.jit
    def kept(p):
        def one(key):
            found = make("mixup", p=p)(BATCH, key)
            columns = ("image", "target")
            return tuple((found[c] == BATCH[c]).all() for c in columns)

        return jax.lax.map(one, jax.random.split(KEY, 400))

    assert all(x.all() for x in kept(0.0))
    image, target = (np.asarray(x) for x in kept(0.3))
    # Mixing may leave a batch as it is, by partners or box, but hardly ever.
    assert abs(image.mean() - 0.7) < 4 * (0.21 / 400) ** 0.5 + 0.01
    assert target[image].all()
    assert not kept(1.0)[0].all()


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
def test_labels_weigh_what_is_seen(name):
    """The weight of a label is the share of its pixels in the image."""
    image, target = mixed(name)
    # Area's weight is exact; a mask's mean is lam in whole pixels.
    slack = {"mixup": 0, "cutmix": 0, "one_of": 0}.get(name, 1 / SIZE**2)
    seen = image.mean((2, 3))
    if name == "cutmix_torchbearer":  # Boxes cut at the border hide less than said.
        own = np.arange(ROWS)
        assert (seen[:, own, own] > target[:, own, own] + 0.1).any()
        return
    np.testing.assert_allclose(seen, target, atol=slack + 1e-5)
    np.testing.assert_allclose(target.sum(-1), 1, atol=1e-6)
    if name != "random_masks":
        assert len(np.unique(target.round(4))) > 8


@pytest.mark.slow
@cases.each("name", MIXERS)
def test_each_image_gives_and_takes_one_part_in_its_group(name):
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
def test_the_mean_of_the_batch_stays():
    for name in ("mixup", "cutmix", "fmix"):
        image, _ = mixed(name)
        np.testing.assert_allclose(image.mean(1), 1 / ROWS, atol=1e-6)


@cases.each("name", MIXERS)
def test_all_else_stays(name):
    def check(batch):
        found = make(name)(batch, KEY)
        assert set(found) == set(batch)
        for column in ("weight", "index", "once"):
            assert found[column] is batch[column]

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
    same = image.reshape(8, 4, 2, SIZE, SIZE, 4, 2)
    np.testing.assert_array_equal(same[:, :, 0, ..., 0], same[:, :, 1, ..., 1])


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
def test_the_reformulated_loss_has_the_own_label_only(name):
    image, target = mixed(name, reformulated=True)
    np.testing.assert_array_equal(target, np.broadcast_to(np.eye(8), target.shape))
    assert (image.mean((2, 3)) != target).any()


def apart(image, label=tuple(range(ROWS))):
    """Return BATCH with a second source."""
    return {**BATCH, "other": {"image": image, "label": jnp.array(label)}}


@pytest.mark.slow
@cases.each("name", REFORMULATED)
def test_a_second_source_s_labels_are_not_used(name):
    other = jax.random.uniform(KEY, IMAGE.shape)
    image, target = mixed(name, apart(other), partner="other")
    again = mixed(name, apart(other, range(8, 0, -1)), partner="other")
    np.testing.assert_array_equal(image, again[0])
    for one in (target, again[1]):
        np.testing.assert_array_equal(one, np.broadcast_to(np.eye(8), one.shape))
    assert (image != mixed(name, apart(other / 2), partner="other")[0]).any()


@pytest.mark.slow
@cases.each("name", REFORMULATED)
def test_a_second_source_that_is_the_first_gives_the_reformulated_loss(name):
    """With the partners that are drawn in the batch: the same bits."""
    within, _ = mixed(name, reformulated=True)
    for i in range(8):
        seen = within[i].mean((1, 2))
        np.fill_diagonal(seen, 0)
        partner = np.where(seen.any(1), seen.argmax(1), np.arange(ROWS))
        across, _ = mixed(name, apart(IMAGE[partner]), partner="other")
        np.testing.assert_array_equal(across[i], within[i])
    assert (within.mean((2, 3)) != np.eye(8)).any()


def test_refuses_a_second_source_that_is_not_there_or_of_another_size():
    apply = make("mixup", partner="other")
    with pytest.raises(ValueError, match="mixup: partner='other' must have a second"):
        apply(BATCH, KEY)
    with pytest.raises(ValueError, match=r"second source must have shape \(8, 12"):
        apply(apart(IMAGE[:, 2:], jnp.arange(ROWS)), KEY)


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
    """Return (keys, alpha, own) -> shares, for a traced alpha or a number."""

    def many(keys, given, own):
        one = lambda k: mixing.draw_lambda(k, given if alpha is None else alpha, own)
        return jax.vmap(one)(keys)

    return jax.jit(many, static_argnums=2 if alpha else ())


@pytest.mark.slow
@cases.each(("alpha", "plain"), [(0.5, False), (1.0, False), (1.0, True)])
@cases.each("own", [0, 1])
def test_shares_are_beta_distributed(alpha, plain, own):
    """Mean 1/2 and variance 1 / (4 (2 a + 1)); reformulated, mean (a + 1) / (2 a + 1)."""
    draw = sampler(alpha) if plain else sampler()
    lam = np.asarray(draw(jax.random.split(KEY, 4000), alpha, own), np.float64)
    law = scipy.stats.beta(alpha + own, alpha)
    assert scipy.stats.kstest(lam, law.cdf).pvalue > 0.001
    mean = (alpha + 1) / (2 * alpha + 1) if own else 0.5
    assert abs(lam.mean() - mean) < 4 * law.std() / 4000**0.5
    if not own:
        assert lam.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.05)


def test_soft_targets_are_the_loss_with_two_labels():
    target = mixed("mixup")[1][0]
    logits = jax.random.normal(KEY, (ROWS, ROWS))
    log_p = np.asarray(jax.nn.log_softmax(logits), np.float64)
    own = np.arange(ROWS)
    lam = target[own, own]
    rest = target.copy()
    rest[own, own] = 0
    partner = rest.argmax(1)
    expected = -(lam * log_p[own, own] + (1 - lam) * log_p[own, partner]).mean()
    found = base.objective(logits, {"target": jnp.asarray(target)})
    assert float(found) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_the_share_of_one_is_the_rest_of_the_other(monkeypatch):
    """Swapping the images of a pair, and lam with 1 - lam, gives the same result."""
    found = {}
    for lam in (0.25, 0.75):
        monkeypatch.setattr(mixing, "draw_lambda", whole(lam))
        fresh = jax.vmap(make("mixup", mix_group=2), (None, 0))
        fresh = jax.jit(fresh, compiler_options=QUICK)
        found[lam] = fresh(BATCH, jax.random.split(KEY, 8))
    met = np.asarray(found[0.25]["target"])[:, 0, 1] > 0
    assert met.any() and not met.all()
    for column in ("image", "target"):
        a, b = (np.asarray(found[lam][column])[met] for lam in (0.25, 0.75))
        np.testing.assert_array_equal(a[:, :2], b[:, 1::-1])
