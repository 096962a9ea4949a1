import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jbias import optim


def run(tx, grads, w=1.0):
    """Weights after each of the gradients."""
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


@pytest.mark.parametrize(("norm", "scale"), [(0.05, 1.0), (5.0, 0.1 / (5.0 + 1e-6))])
def test_clip_bounds_the_norm(norm, scale):
    grads = {"a": jnp.array([0.6, 0.0]) * norm, "b": jnp.array(0.8) * norm}
    assert float(optim.clip_scale(grads, 0.1)) == pytest.approx(scale, rel=1e-6)


def test_multistep_drops_when_a_milestone_is_reached():
    schedule = optim.multistep(1.0, 100, milestones=(0.3, 0.6, 0.9))
    rates = [float(schedule(step)) for step in (0, 29, 30, 59, 60, 90)]
    np.testing.assert_allclose(rates, [1, 1, 0.1, 0.1, 0.01, 0.001], rtol=1e-5)


def test_milestones_count_from_the_start_in_spite_of_a_warmup():
    main = optim.multistep(1.0, 100, 5, milestones=(0.3, 0.6, 0.9))
    schedule = optim.warmed(main, 1.0, 5)
    rates = [float(schedule(step)) for step in (0, 4, 5, 29, 30, 60)]
    np.testing.assert_allclose(rates, [0, 0.8, 1, 1, 0.1, 0.01], atol=1e-6)


def test_cosine_with_warmup_rises_then_falls_to_zero():
    schedule = optim.warmed(optim.cosine(2.0, 110, 10), 2.0, 10)
    rates = [float(schedule(step)) for step in (0, 5, 10, 60, 110)]
    np.testing.assert_allclose(rates, [0, 1, 2, 1, 0], atol=1e-6)
