"""IRM, V-REx, CORAL and MMD: penalties against NumPy, and their schedules."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from scipy import optimize

from jbias.algos import erm, groups, invariance, mmd
from jbias.training import step as train_step
from tests import cases
from tests.methods import Columns

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
ENVIRONMENT = np.repeat([0, 1, 3], [6, 9, 5])  # One, 2, that the batch has not.
LABEL = RNG.integers(0, 3, 20)
LOGITS = RNG.normal(size=(20, 3)).astype(np.float32)
FEATURES = RNG.normal(size=(20, 4)).astype(np.float32)
TRAINING_COLUMNS = Columns(label=np.arange(40) % 3, attribute=np.arange(40) % 4)
BATCH = {"target": jnp.eye(3)[LABEL], "attribute": jnp.asarray(ENVIRONMENT)}
MEMBERS = groups.environments("x", TRAINING_COLUMNS, "").members(BATCH)
ROWS_BY_ENVIRONMENT = [ENVIRONMENT == e for e in (0, 1, 3)]


def cross_entropies(logits):
    """Return cross-entropies by NumPy."""
    z = np.asarray(logits, np.float64)
    return np.log(np.exp(z).sum(1)) - z[np.arange(20), LABEL]


def irm_penalty(logits, h):
    """Return IRM's penalty, one derivative per environment in closed form."""
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    slopes = ((p - np.eye(3)[LABEL]) * logits).sum(1)
    return np.mean([slopes[rows].mean() ** 2 for rows in ROWS_BY_ENVIRONMENT])


def vrex_penalty(logits, h):
    return np.var(
        [cross_entropies(logits)[rows].mean() for rows in ROWS_BY_ENVIRONMENT]
    )


def coral_penalty(logits, h):
    """Return CORAL's penalty pair by pair, by NumPy's covariances."""
    pairs = [
        ((h[a].mean(0) - h[b].mean(0)) ** 2).mean()
        + ((np.cov(h[a].T) - np.cov(h[b].T)) ** 2).mean()
        for a, b in itertools.combinations(ROWS_BY_ENVIRONMENT, 2)
    ]
    return np.mean(pairs)


def mmd_penalty(logits, h, rows_by_environment=ROWS_BY_ENVIRONMENT):
    """Return MMD's penalty pair by pair, by explicit differences of features."""

    def mean_kernel(a, b):
        square = ((h[a][:, None] - h[b][None]) ** 2).sum(-1)
        return sum(np.exp(-gamma * square).mean() for gamma in mmd.GAMMAS)

    pairs = [
        mean_kernel(a, a) + mean_kernel(b, b) - 2 * mean_kernel(a, b)
        for a, b in itertools.combinations(rows_by_environment, 2)
    ]
    return np.mean(pairs)


def discrepancy(logits, h, batch, members):
    return mmd.discrepancy(h, members)


CASES = {
    "irm": (invariance.irm, invariance.irm_penalty, irm_penalty),
    "vrex": (invariance.vrex, invariance.vrex_penalty, vrex_penalty),
    "coral": (invariance.coral, invariance.coral_penalty, coral_penalty),
    "mmd": (mmd.make, discrepancy, mmd_penalty),
}


@cases.each("name", CASES)
def test_the_penalty_is_the_formula(name):
    _, penalty, expected = CASES[name]
    value = penalty(jnp.asarray(LOGITS), jnp.asarray(FEATURES), BATCH, MEMBERS)
    assert value == pytest.approx(expected(LOGITS, FEATURES), rel=1e-5)


@pytest.mark.slow
@cases.each(
    "name",
    CASES,
    quick=(
        "vrex",
        "irm",
        "mmd",
    ),
)
def test_the_gradient_of_the_penalty_equals_the_formula(name):
    """The gradient along a direction equals finite differences by NumPy."""
    _, penalty, expected = CASES[name]

    def compute(z, h):
        return penalty(z, h, BATCH, MEMBERS)

    direction = [RNG.normal(size=x.shape) for x in (LOGITS, FEATURES)]
    grads = jax.grad(compute, (0, 1))(jnp.asarray(LOGITS), jnp.asarray(FEATURES))
    slope = sum(float((g * d).sum()) for g, d in zip(grads, direction))
    upper, lower = (
        expected(LOGITS + s * direction[0], FEATURES + s * direction[1])
        for s in (1e-5, -1e-5)
    )
    assert slope == pytest.approx((upper - lower) / 2e-5, rel=1e-3)


@cases.each("name", CASES)
def test_rows_of_weight_0_do_not_change_the_penalty(name):
    """Rows of weight 0, as from AugMix, do not change the penalty."""
    _, penalty, expected = CASES[name]
    doubled = {k: jnp.repeat(x, 2, axis=0) for k, x in BATCH.items()}
    doubled["weight"] = jnp.arange(40) % 2 * -1.0 + 1
    members = groups.environments("x", TRAINING_COLUMNS, "").members(doubled)
    z, h = (np.repeat(x, 2, axis=0) for x in (LOGITS, FEATURES))
    noise = RNG.normal(size=20).astype(np.float32)
    z[1::2] += noise[:, None]
    h[1::2] += noise[:, None]
    value = penalty(jnp.asarray(z), jnp.asarray(h), doubled, members)
    assert value == pytest.approx(expected(LOGITS, FEATURES), rel=1e-5)


def test_irms_penalty_is_0_for_logits_of_the_best_scale():
    """If the scale minimises the loss in every environment, the penalty is 0."""
    z = np.array(LOGITS, np.float64)
    hits = z.argmax(1) == LABEL
    z[:] = 0
    z[np.arange(20), np.where(np.arange(20) % 3 > 0, LABEL, (LABEL + 1) % 3)] = 1
    for rows in ROWS_BY_ENVIRONMENT:

        def risk(scale, rows=rows):
            return cross_entropies(scale * z)[rows].mean()

        z[rows] *= optimize.minimize_scalar(risk, bounds=(0, 20), method="bounded").x
    assert not hits.all()
    best = invariance.irm_penalty(jnp.asarray(z, jnp.float32), None, BATCH, MEMBERS)
    other = invariance.irm_penalty(jnp.asarray(2 * z), None, BATCH, MEMBERS)
    assert best < 1e-9 < other


WEIGHTS = {"weight": invariance.irm, "beta": invariance.vrex, "gamma": invariance.coral}


@cases.each(("name", "make"), WEIGHTS.items())
def test_a_negative_weight_is_refused_by_its_name(name, make, net):
    with pytest.raises(
        ValueError, match=f"{name} must be at least 0, got -1.0; change"
    ):
        make(net, **{name: -1.0})


def test_equal_environments_have_no_penalty():
    batch = {"target": jnp.eye(3)[np.tile(LABEL[:5], 4)]}
    batch["attribute"] = jnp.repeat(jnp.arange(4), 5)
    members = groups.environments("x", TRAINING_COLUMNS, "").members(batch)
    z, h = (jnp.asarray(np.tile(x[:5], (4, 1))) for x in (LOGITS, FEATURES))
    assert invariance.vrex_penalty(z, h, batch, members) < 1e-12
    assert invariance.coral_penalty(z, h, batch, members) < 1e-12
    # Squared distances of equal rows are rounding errors, times at most the sum of GAMMAS.
    rounding = 4 * np.finfo(np.float32).eps * float(jnp.sum(h**2, axis=1).max())
    assert abs(mmd.discrepancy(h, members)) < rounding * sum(mmd.GAMMAS)


@pytest.mark.slow
@cases.each("name", CASES)
@cases.each("which", [[0, 0, 0, 0], [0, 1, 2, 3], [2, 2, 3, 1]])
def test_the_penalty_is_finite_for_small_and_missing_environments(name, which):
    """Cases: a single environment, one example in each, and one environment with two."""
    _, penalty, _ = CASES[name]
    batch = {"target": jnp.eye(3)[:3][np.array([0, 1, 2, 0])]}
    batch["attribute"] = jnp.asarray(which)
    members = groups.environments("x", TRAINING_COLUMNS, "").members(batch)

    def penalty_of(z, h):
        return penalty(z, h, batch, members)

    value, grads = jax.value_and_grad(penalty_of, (0, 1))(LOGITS[:4], FEATURES[:4])
    assert all(np.isfinite(x).all() for x in (value, *grads))
    if name == "coral" or (name == "vrex" and which[0] == which[1] == which[3]):
        assert value == 0 and not any(g.any() for g in grads)


def test_mmd_counts_environments_of_one_example():
    batch = {"attribute": jnp.asarray([0, 1, 1, 2])}
    members = groups.environments("x", TRAINING_COLUMNS, "").members(batch)
    expected = mmd_penalty(None, FEATURES[:4], [[0], [1, 2], [3]])
    value = mmd.discrepancy(jnp.asarray(FEATURES[:4]), members)
    assert value == pytest.approx(expected, rel=1e-5)


class Free(nn.Module):
    """A net whose logits and features are parameters, one row per example."""

    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        h = self.param("h", nn.initializers.zeros, FEATURES.shape)
        return nn.Dense(3, name="fc")(h)


@cases.each("name", CASES)
def test_the_penalty_is_added_with_a_growing_weight(name):
    """The weight is at most 1 at first, and above 1 divides the sum, for IRM and V-REx."""
    make, _, _ = CASES[name]
    word = {"irm": "weight", "vrex": "beta", "coral": "gamma", "mmd": "weight"}[name]
    kernel = RNG.normal(size=(4, 3)).astype(np.float32)
    params = {
        "net": {"h": FEATURES, "fc": {"kernel": kernel, "bias": np.zeros(3, "f")}}
    }
    batch = {**BATCH, "image": jnp.zeros((20, 1, 1, 1))}
    for weight in (0.5, 7.0):
        algo = make(Free(), **{word: weight}, columns=TRAINING_COLUMNS)
        for static in (True, False, None):
            named, _ = algo.losses(params, {"net": {}}, batch, KEY, static)
            w = min(weight, 1) if static is False else weight
            total = named["class"] + w * named["penalty"]
            total = total / max(w, 1) if name in ("irm", "vrex") else total
            assert named[algo.updates[0].loss] == pytest.approx(float(total), rel=1e-6)
        logits = FEATURES @ kernel
        assert named["class"] == pytest.approx(cross_entropies(logits).mean(), rel=1e-5)
        expected = CASES[name][2](logits, FEATURES)
        assert named["penalty"] == pytest.approx(expected, rel=1e-4)
        assert algo.whole_batch


@pytest.mark.parametrize("make", [invariance.irm, invariance.vrex])
def test_the_weight_is_full_after_its_share_of_the_steps(make):
    algo = make(Free(), anneal=0.2, columns=TRAINING_COLUMNS)
    assert [algo.static(step, 501) for step in (0, 99, 100, 500)] == [
        *(False, False),
        *(True, True),
    ]
    assert make(Free(), anneal=0.0, columns=TRAINING_COLUMNS).static(0, 10) is None


class Linear(nn.Module):
    """A linear classifier that starts at zero."""

    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        layer = nn.Dense(2, name="fc", kernel_init=nn.initializers.zeros)
        return layer(image.reshape(len(image), -1))


def learned_log_odds(make):
    """Return the log odds of shape and colour after training on Colored MNIST.

    As in the authors' data, shape agrees with the label in 75 of 100 images, colour in 80
    in the first environment and 90 in the second. The batch has each case with a weight
    equal to its probability.
    """
    rows = np.array([*itertools.product((0, 1), repeat=4)])  # Label, two flips, domain.
    label, wrong, other, domain = rows.T
    flips = np.where(domain == 0, 0.2, 0.1)
    chance = np.where(wrong, 0.25, 0.75) * np.where(other, flips, 1 - flips) / 4
    signs = 2.0 * np.stack([label ^ wrong, label ^ other], 1) - 1
    batch = {
        "image": jnp.asarray(signs[:, None, None], jnp.float32),
        "target": jnp.eye(2)[label],
        "domain": jnp.asarray(domain),
        "weight": jnp.asarray(chance, jnp.float32),
    }
    algo, txs = make(Columns(label=label, domain=domain)), (optax.adam(0.02),)
    step = train_step.make_step(algo, txs)
    state = train_step.init(algo, txs, KEY, batch["image"][:1])
    for has_full_weight in (False, True):

        def scanned(state, _, has_full_weight=has_full_weight):
            return step(state, batch, KEY, has_full_weight)

        state, _ = jax.jit(lambda s, f=scanned: jax.lax.scan(f, s, None, 500))(state)
    kernel = np.asarray(state.params["net"]["fc"]["kernel"])
    return kernel[:, 1] - kernel[:, 0]


@pytest.mark.slow
def test_irm_and_vrex_follow_the_shape_where_erm_follows_the_colour():
    """By Bayes' rule plain log odds are ln 3 by shape and ln(0.85 / 0.15) by colour."""
    plain = learned_log_odds(lambda columns: erm.make(Linear()))
    np.testing.assert_allclose(plain, np.log([3, 0.85 / 0.15]), rtol=1e-3)
    for shape, colour in (
        learned_log_odds(
            lambda columns: invariance.irm(Linear(), weight=1e4, columns=columns)
        ),
        learned_log_odds(
            lambda columns: invariance.vrex(Linear(), beta=2e4, columns=columns)
        ),
    ):
        # Images of the reversed test are then classified by their shapes.
        assert shape > 1.5 * colour
