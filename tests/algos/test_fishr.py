"""Fishr: variances of gradients against autodiff and DomainBed, and its schedule."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.algos import base, fishr, groups
from tests import cases, domainbed

RNG = np.random.default_rng(0)
H = RNG.normal(size=(15, 5)).astype(np.float32)
KERNEL = RNG.normal(size=(5, 3)).astype(np.float32)
BIAS = RNG.normal(size=3).astype(np.float32)
TARGET = np.eye(3, dtype=np.float32)[RNG.integers(0, 3, 15)]
ENVIRONMENT = np.repeat([0, 1, 3], [4, 6, 5])  # The batch lacks environment 2.
COLUMNS = {"label": np.arange(40) % 3, "domain": np.arange(40) % 4}
KNOWN = groups.environments("x", COLUMNS, "")
BATCH = {"target": jnp.asarray(TARGET), "domain": jnp.asarray(ENVIRONMENT)}


def variances(batch, h=H):
    """Return the variances of the package for a batch with features h."""
    logits = h @ KERNEL + BIAS
    binary = batch.get("binary", False)
    arrays = {name: x for name, x in batch.items() if name != "binary"}

    @jax.jit
    def compute(logits, h, arrays):
        batch = {**arrays, "binary": binary}
        return fishr.gradient_variances(logits, h, batch, KNOWN.members(batch))

    return compute(logits, h, arrays)


def test_losses_and_gradients_are_those_of_domainbed():
    """Moving averages are carried from batch to batch."""
    sequences = list(domainbed.updates("Fishr"))
    assert [len(sequence) for sequence in sequences] == [3, 3]
    for sequence in sequences:
        options, stats = sequence[0].options, None
        algo = fishr.make(
            domainbed.Perceptron(),
            weight=options["lambda"],
            ema=options["ema"],
            columns=domainbed.COLUMNS,
        )
        late = domainbed.compiled(algo, static=True)
        early = domainbed.compiled(algo, static=False)
        for update in sequence:
            is_late = update.number >= options["penalty_anneal_iters"]
            compute = late if is_late else early
            value, grads, aux = compute(update.batch, stats)
            domainbed.assert_equal(update, value, grads)
            stats = aux.stats


@cases.each("binary", [False, True])
def test_variances_are_those_of_the_gradients_of_single_examples(binary):
    """Gradients of each example by autodiff, with NumPy's variance over n."""
    batch = {**BATCH, "binary": binary}

    def loss(kernel, bias, h, target):
        single = {"target": target[None], "binary": binary}
        return base.example_losses((h @ kernel + bias)[None], single)[0]

    example_grads = jax.vmap(jax.grad(loss, (0, 1)), (None, None, 0, 0))
    grads = jax.jit(example_grads)(KERNEL, BIAS, H, TARGET)
    result = variances(batch)
    for name, g in zip(("kernel", "bias"), grads, strict=True):
        for environment in range(4):
            rows = np.asarray(g, np.float64)[ENVIRONMENT == environment]
            expected = rows.var(0) if len(rows) else np.zeros(g.shape[1:])
            np.testing.assert_allclose(
                result[name][environment], expected, rtol=1e-4, atol=1e-7
            )


def test_rows_of_weight_0_do_not_change_the_variances():
    doubled = {k: jnp.repeat(x, 2, axis=0) for k, x in BATCH.items()}
    doubled["weight"] = 1.0 - jnp.arange(30) % 2
    h = np.repeat(H, 2, axis=0)
    h[1::2] += RNG.normal(size=H.shape)
    expected = variances(BATCH)
    for name, v in variances(doubled, h).items():
        np.testing.assert_allclose(v, expected[name], rtol=1e-5, atol=1e-7)


def test_the_penalty_is_the_variance_over_environments_in_the_batch():
    tree = {
        "kernel": RNG.normal(size=(4, 5, 3)).astype(np.float32),
        "bias": RNG.normal(size=(4, 3)).astype(np.float32),
    }
    present = jnp.asarray([1.0, 1.0, 0.0, 1.0])
    flat = np.concatenate([tree["kernel"].reshape(4, -1), tree["bias"]], axis=1)
    expected = flat[[0, 1, 3]].var(0).mean()
    assert fishr.penalty(tree, present) == pytest.approx(expected, rel=1e-5)
    alone = jnp.asarray([0.0, 1.0, 0.0, 0.0])
    assert fishr.penalty(tree, alone) == 0


def test_averages_move_for_environments_in_the_batch():
    old = {"bias": RNG.normal(size=(4, 3)).astype(np.float32)}
    new = {"bias": RNG.normal(size=(4, 3)).astype(np.float32)}
    present = jnp.asarray([1.0, 1.0, 0.0, 1.0])
    moved = fishr.updated_averages(old, new, present, ema=0.8)["bias"]
    expected = 0.8 * old["bias"] + 0.2 * new["bias"]
    is_present = np.array([True, True, False, True])
    np.testing.assert_allclose(moved[is_present], expected[is_present], rtol=1e-5)
    np.testing.assert_array_equal(moved[2], old["bias"][2])


def test_the_penalty_sets_in_after_its_share_of_the_steps():
    """Before, moving averages are updated too; the class loss is ERM's in both."""
    (sequence, *_) = domainbed.updates("Fishr")
    batch = sequence[0].batch
    algo = fishr.make(
        domainbed.Perceptron(), weight=7.0, anneal=0.2, columns=domainbed.COLUMNS
    )
    assert [algo.static(step, 501) for step in (0, 99, 100, 500)] == [
        *(False, False),
        *(True, True),
    ]
    early, _, aux = domainbed.compiled(algo, static=False)(batch)
    late, _, late_aux = domainbed.compiled(algo, static=True)(batch)
    (erm, *_), *_ = domainbed.updates("ERM")
    assert early == pytest.approx(erm.values["loss"], rel=1e-6)
    expected = erm.values["loss"] + 7 * sequence[0].values["penalty"]
    assert late == pytest.approx(expected, rel=1e-5)
    averages = jax.tree.leaves(aux.stats["variances"])
    late_averages = jax.tree.leaves(late_aux.stats["variances"])
    for a, b in zip(averages, late_averages, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.any()
    without = fishr.make(domainbed.Perceptron(), anneal=0.0, columns=domainbed.COLUMNS)
    assert without.static(0, 10) is None and without.whole_batch


@cases.each("options", [{"weight": -1.0}, {"anneal": 1.5}, {"ema": 1.0}])
def test_impossible_options_are_refused(net, options):
    with pytest.raises(ValueError, match=r"fishr: .* must be .*, got"):
        fishr.make(net, columns=domainbed.COLUMNS, **options)
