"""RSC: masks and losses against DomainBed and NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.algos import rsc
from tests import cases, domainbed

RNG = np.random.default_rng(0)
H = RNG.normal(size=(9, 8)).astype(np.float32)
LINEAR = {
    "kernel": RNG.normal(size=(8, 3)).astype(np.float32),
    "bias": RNG.normal(size=3).astype(np.float32),
}
LABEL = RNG.integers(0, 3, 9)
BATCH = {"target": jnp.eye(3)[LABEL]}
SHARES = dict(features=0.3, examples=0.4)


def probabilities(h):
    """Return the probabilities of the labels by NumPy."""
    z = np.exp(h @ LINEAR["kernel"] + LINEAR["bias"])
    return (z / z.sum(1, keepdims=True))[np.arange(len(h)), LABEL]


def unmuted(h, features, examples):
    """Return the mask by NumPy's percentiles, for hard labels."""
    slopes = LINEAR["kernel"].T[LABEL]
    weak = slopes < np.quantile(slopes, 1 - features, axis=1, keepdims=True)
    change = probabilities(h) - probabilities(h * weak)
    return weak | (change < np.quantile(change, 1 - examples))[:, None]


def test_losses_and_gradients_are_those_of_domainbed():
    sequences = list(domainbed.updates("RSC"))
    assert len(sequences) == 3
    for sequence in sequences:
        algo = rsc.make(
            domainbed.Perceptron(),
            features=sequence[0].options["rsc_f_drop_factor"],
            examples=sequence[0].options["rsc_b_drop_factor"],
        )
        compute = domainbed.compiled(algo)
        for update in sequence:
            value, grads, _ = compute(update.batch)
            domainbed.assert_equal(update, value, grads)


@cases.each("features", [0.01, 0.3, 0.5, 1.0])
@cases.each("examples", [0.01, 0.4, 1.0])
def test_the_mask_mutes_the_largest_gradients_of_the_most_changed_examples(
    features, examples
):
    mask = rsc.unmuted(LINEAR, H, BATCH, features=features, examples=examples)
    np.testing.assert_array_equal(mask, unmuted(H, features, examples))
    # Ties at a position that is a whole number: 1 of 9 and all of 8.
    assert np.sum(~np.asarray(mask).all(1)) == max(1, 9 - np.ceil((1 - examples) * 8))


def test_values_below_a_quantile_are_those_of_numpy():
    is_below = jax.jit(rsc.is_below_quantile)
    for n in (1, 2, 5, 12):
        x = RNG.normal(size=n).astype(np.float32)
        for share in range(n + 1):
            # Positions that are whole numbers in exact arithmetic, and others.
            for quantile in (share / n, share / max(n - 1, 1)):
                if quantile <= 1:
                    expected = (
                        x < np.sort(x)[int(np.ceil(round(quantile * (n - 1), 9)))]
                    )
                    below = is_below(x, quantile, n)
                    np.testing.assert_array_equal(below, expected)


def test_examples_of_weight_0_do_not_change_the_other_masks():
    doubled = {"target": jnp.repeat(BATCH["target"], 2, axis=0)}
    doubled["weight"] = 1.0 - jnp.arange(18) % 2
    h = np.repeat(H, 2, axis=0)
    h[1::2] += RNG.normal(size=H.shape)
    mask = rsc.unmuted(LINEAR, jnp.asarray(h), doubled, **SHARES)
    np.testing.assert_array_equal(mask[::2], unmuted(H, **SHARES))


def test_the_order_of_examples_does_not_change_their_masks():
    order = RNG.permutation(9)
    batch = {"target": BATCH["target"][order]}
    mask = rsc.unmuted(LINEAR, H[order], batch, **SHARES)
    np.testing.assert_array_equal(mask, unmuted(H, **SHARES)[order])


def test_soft_labels_weigh_the_gradients_of_the_classes():
    """Half of two labels mutes the features whose mean gradient is largest."""
    batch = {"target": (BATCH["target"] + jnp.eye(3)[(LABEL + 1) % 3]) / 2}
    mask = rsc.unmuted(LINEAR, H, batch, features=0.3, examples=1.0)
    slopes = (LINEAR["kernel"].T[LABEL] + LINEAR["kernel"].T[(LABEL + 1) % 3]) / 2
    weak = slopes < np.quantile(slopes, 0.7, axis=1, keepdims=True)
    is_example_muted = ~np.asarray(mask).all(1)
    np.testing.assert_array_equal(mask[is_example_muted], weak[is_example_muted])
    assert is_example_muted.all() and not weak.all()


def test_the_probability_of_binary_labels_is_the_mean_over_classes():
    """With one class, a yes-or-no question, it is the sigmoid of the signed logit."""
    z = jnp.asarray([[0.3], [-2.0]])
    batch = {"target": jnp.asarray([[1.0], [0.0]]), "binary": True}
    expected = 1 / (1 + np.exp([-0.3, -2.0]))
    np.testing.assert_allclose(rsc.label_probabilities(z, batch), expected, rtol=1e-6)


def test_the_metric_is_the_share_of_muted_features():
    (sequence, *_) = domainbed.updates("RSC")
    algo = rsc.make(domainbed.Perceptron(), features=0.5, examples=0.2)
    _, _, aux = domainbed.compiled(algo)(sequence[0].batch)
    # 4 of 8 features in 3 of 15 examples.
    assert aux.metrics["muted"] == pytest.approx(0.5 * 0.2, abs=1e-6)
    assert algo.whole_batch


def test_nothing_is_muted_in_the_first_share_of_the_steps():
    """The loss is then DomainBed's loss of ERM, and later that of RSC."""
    (sequence, *_) = domainbed.updates("RSC")
    (erm, *_), *_ = domainbed.updates("ERM")
    algo = rsc.make(domainbed.Perceptron(), anneal=0.2)
    assert [algo.static(step, 10) for step in (0, 1, 2, 9)] == [
        *(False, False),
        *(True, True),
    ]
    early, grads, aux = domainbed.compiled(algo, static=False)(sequence[0].batch)
    domainbed.assert_equal(erm, early, grads)
    assert aux.metrics["muted"] == 0
    late, *_ = domainbed.compiled(algo, static=True)(sequence[0].batch)
    assert late == pytest.approx(sequence[0].values["loss"], rel=1e-6)
    assert rsc.make(domainbed.Perceptron()).static(0, 10) is None


@cases.each("options", [{"features": -0.1}, {"examples": 1.1}, {"anneal": 2}])
def test_shares_outside_the_unit_interval_are_refused(net, options):
    with pytest.raises(ValueError, match=r"rsc: .* must be in \[0, 1\], got"):
        rsc.make(net, **options)
