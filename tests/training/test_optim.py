import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jbias.algos import base
from jbias.training import optim
from jbias.training import step as train_step


def run(tx, grads, w=1.0):
    """Return the weights after each of the gradients."""
    w = jnp.asarray(w)
    state, ws = tx.init(w), []
    for g in grads:
        delta, state = tx.update(jnp.asarray(g), state, w)
        w = optax.apply_updates(w, delta)
        ws.append(float(w))
    return ws


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_is_torchs(nesterov):
    """g <- grad + wd w; m <- mu m + g; w <- w - lr (g + mu m if nesterov else m)."""
    grads, lr, mu, wd = [0.3, -0.2, 0.5], 0.1, 0.9, 0.01
    w, m, expected = 1.0, 0.0, []
    for grad in grads:
        g = grad + wd * w
        m = mu * m + g
        w -= lr * (g + mu * m if nesterov else m)
        expected.append(w)
    tx = optim.sgd(lambda _: lr, momentum=mu, decay=wd, nesterov=nesterov)
    np.testing.assert_allclose(run(tx, grads), expected, rtol=1e-6)


@pytest.mark.slow
def test_lamb_is_its_formula():
    """Two steps of a kernel and a bias: clipped, a ratio for the kernel alone."""
    w, b = np.array([[0.6, -0.8]]), np.array([0.5])
    tx = optim.lamb(lambda _: 0.1, decay=0.02, clip=1.0)
    params = {"w": jnp.asarray(w), "b": jnp.asarray(b)}
    state, m, v = tx.init(params), np.zeros(3), np.zeros(3)
    for i, g in enumerate(([3.0, 0.0, 4.0], [0.1, -0.2, 0.3]), 1):
        grads = {"w": jnp.array([g[:2]]), "b": jnp.array(g[2:])}
        delta, state = tx.update(grads, state, params)
        params = optax.apply_updates(params, delta)
        g = np.array(g) / max(1.0, np.linalg.norm(g))
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        u = m / (1 - 0.9**i) / (np.sqrt(v / (1 - 0.999**i)) + 1e-6)
        step = u[:2] + 0.02 * w[0]
        w = w - 0.1 * np.linalg.norm(w) / np.linalg.norm(step) * step
        b = b - 0.1 * u[2:]
    np.testing.assert_allclose(params["w"], w, rtol=1e-4)
    np.testing.assert_allclose(params["b"], b, rtol=1e-4)


def test_lars_is_its_formula():
    """Two steps of a kernel and a bias: a share of the kernel's norm, then momentum."""
    w, b, mw, mb = np.array([[0.6, -0.8]]), np.array([0.5]), 0.0, 0.0
    tx = optim.lars(lambda _: 2.0, momentum=0.9, decay=0.1, trust=0.01)
    params = {"w": jnp.asarray(w), "b": jnp.asarray(b)}
    state = tx.init(params)
    for g in ([3.0, 0.0, 4.0], [0.1, -0.2, 0.3]):
        grads = {"w": jnp.array([g[:2]]), "b": jnp.array(g[2:])}
        delta, state = tx.update(grads, state, params)
        params = optax.apply_updates(params, delta)
        u = np.array(g[:2]) + 0.1 * w[0]
        mw = 0.9 * mw + 2.0 * 0.01 * np.linalg.norm(w) / np.linalg.norm(u) * u
        mb = 0.9 * mb + 2.0 * np.array(g[2:])
        w, b = w - mw, b - mb
    np.testing.assert_allclose(params["w"], w, rtol=1e-4)
    np.testing.assert_allclose(params["b"], b, rtol=1e-4)


@pytest.mark.parametrize(("norm", "scale"), [(0.05, 1.0), (5.0, 0.1 / (5.0 + 1e-6))])
def test_clip_bounds_the_norm(norm, scale):
    grads = {"a": jnp.array([0.6, 0.0]) * norm, "b": jnp.array(0.8) * norm}
    assert float(train_step.clip_scale(grads, 0.1)) == pytest.approx(scale, rel=1e-6)


def test_multistep_drops_when_a_milestone_is_reached():
    schedule = optim.multistep(1.0, 100, milestones=(0.3, 0.6, 0.9))
    rates = [float(schedule(step)) for step in (0, 29, 30, 59, 60, 90)]
    np.testing.assert_allclose(rates, [1, 1, 0.1, 0.1, 0.01, 0.001], rtol=1e-5)


def test_milestones_of_one_step_count_each():
    """A run of two steps passes the last two of three milestones at once."""
    schedule = optim.multistep(1.0, 2, milestones=(0.3, 0.6, 0.9))
    assert float(schedule(1)) == pytest.approx(1e-3)
    schedule = optim.multistep(1.0, 2, milestones=(0.6, 0.9))
    assert [float(schedule(0)), float(schedule(1))] == pytest.approx([1, 0.01])


def test_milestones_are_shares_and_no_epochs():
    """A milestone of 30, read as a share of the run, would never be reached."""
    with pytest.raises(ValueError, match=r"milestones: must be shares of the run"):
        optim.multistep(1.0, 100, milestones=(30, 60))


def test_milestones_count_from_the_start_in_spite_of_a_warmup():
    main = optim.multistep(1.0, 100, 5, milestones=(0.3, 0.6, 0.9))
    schedule = optim.with_warmup(main, 1.0, 5)
    rates = [float(schedule(step)) for step in (0, 4, 5, 29, 30, 60)]
    np.testing.assert_allclose(rates, [0, 0.8, 1, 1, 0.1, 0.01], atol=1e-6)


def test_cosine_with_warmup_rises_then_falls_to_zero():
    schedule = optim.with_warmup(optim.cosine(2.0, 110, 10), 2.0, 10)
    rates = [float(schedule(step)) for step in (0, 5, 10, 60, 110)]
    np.testing.assert_allclose(rates, [0, 1, 2, 1, 0], atol=1e-6)


def test_polynomial_falls_by_its_power_after_the_warmup():
    main = optim.polynomial(17.0, 110, 10, power=2, end=1.0)
    schedule = optim.with_warmup(main, 17.0, 10)
    rates = [float(schedule(step)) for step in (0, 5, 10, 60, 85, 110)]
    np.testing.assert_allclose(rates, [0, 8.5, 17, 5, 2, 1], rtol=1e-6)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_l1_rests_at_the_soft_threshold_of_kernels_alone(momentum):
    """Of |w - a|^2 / 2 + l1 |w| the least is at a, moved towards zero by l1."""
    goal = {"kernel": jnp.array([[1.0, -0.5], [0.2, -0.1]]), "bias": jnp.array([0.1])}
    tx = optim.sgd(lambda step: 0.1, momentum=momentum, decay=0.0, l1=0.3)

    def update_once(carry, _):
        w, state = carry
        grads = {name: w[name] - goal[name] for name in w}
        updates, state = tx.update(grads, state, w)
        return (optax.apply_updates(w, updates), state), None

    start = {name: jnp.zeros_like(x) for name, x in goal.items()}
    (w, _), _ = jax.lax.scan(update_once, (start, tx.init(start)), None, 1000)
    np.testing.assert_allclose(w["kernel"], [[0.7, -0.2], [0, 0]], atol=1e-5)
    assert not w["kernel"][1].any()
    np.testing.assert_allclose(w["bias"], goal["bias"], rtol=1e-5)


def test_without_l1_sgd_is_unchanged():
    w = {"kernel": jnp.ones((2, 2))}
    plain, none = optim.sgd(lambda step: 0.1), optim.sgd(lambda step: 0.1, l1=0.0)
    assert jax.tree.structure(plain.init(w)) == jax.tree.structure(none.init(w))
    shrunk = optim.sgd(lambda step: 0.1, l1=0.1)
    assert jax.tree.structure(plain.init(w)) != jax.tree.structure(shrunk.init(w))


def test_schedules_follow_the_references_one_step_later():
    """Debiased's warm-up and SagNet's cosine: schedulers that move before the step."""
    rate, warm, total = 0.2, 5, 20
    ours = optim.with_warmup(optim.constant(rate, total), rate, warm)
    theirs = [rate * (step + 1) / warm for step in range(warm)]
    rates = [float(ours(step)) for step in range(warm + 1)]
    np.testing.assert_allclose(rates, [0, *theirs], rtol=1e-6)
    ours = optim.cosine(rate, total)
    theirs = rate * (1 + np.cos(np.pi * np.arange(1, total + 1) / total)) / 2
    rates = [float(ours(step)) for step in range(total + 1)]
    np.testing.assert_allclose(rates, [rate, *theirs], rtol=1e-5, atol=1e-7)


def test_an_update_can_have_its_own_rate_and_options():
    """The optimiser is that of a config with these numbers."""
    params = {"w": jnp.arange(3.0) + 1}
    common = dict(name="adam", rate=0.1, b1=0.9, schedule={"name": "cosine"})

    def trajectory(options, **fields):
        tx = optim.from_options(
            options, base.Update("class", **fields), total=8, steps_per_epoch=4
        )
        state, w = tx.init(params), params
        for i in range(4):
            grads = jax.tree.map(lambda x: jnp.sin(x + i), w)  # noqa: B023
            delta, state = tx.update(grads, state, w)
            w = optax.apply_updates(w, delta)
        return w["w"]

    changed = {**common, "rate": 0.3, "b1": 0.5, "decay": 0.1}
    expected = trajectory(changed)
    value = trajectory(common, rate=3.0, optim={"b1": 0.5, "decay": 0.1})
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_array_equal(trajectory(common, rate=1.0), trajectory(common))
    assert (trajectory(common) != expected).all()
    no_decay = trajectory(
        common, rate=3.0, optim={"b1": 0.5, "decay": 0.1}, decay=False
    )
    np.testing.assert_allclose(no_decay, trajectory({**changed, "decay": 0.0}))
    with pytest.raises(ValueError, match="config.optim: .*'b3'"):
        trajectory(common, optim={"b3": 0.5})
