"""The linear probe: its trained weights and its inputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.algos import linear_probe


def test_only_the_linear_layer_is_trained(train, variables):
    """The trunk and its running statistics keep their bits under weight decay."""
    _, state, _ = train("linear_probe")
    initial, trained = variables["params"], state.params["net"]
    for name in initial:
        is_equal = jax.tree.map(
            lambda a, b: bool((a == b).all()), initial[name], trained[name]
        )
        assert all(jax.tree.leaves(is_equal)) == (name != "fc")
    assert all(
        (initial["fc"][name] != trained["fc"][name]).any()
        for name in ("kernel", "bias")
    )
    equal = np.testing.assert_array_equal
    jax.tree.map(equal, state.stats["net"], variables["stats"])


def test_the_loss_uses_the_net_in_evaluation_mode(net, variables, batch):
    """The loss is that of the net in evaluation; the gradient has a closed form."""
    net = net.clone(dropout=0.5, tap=lambda x, site, key: 0 * x)
    algo = linear_probe.make(net)
    # The linear layer of a fresh net is small enough here.
    stats = {"net": variables["stats"]}

    @jax.jit
    def pull(params):
        def loss(net):
            key = jax.random.key(0)
            return algo.losses({"net": net}, stats, batch, key)[0]["class"]

        f = net.apply(variables, batch["image"], method="features", stop=5)
        logits = net.apply(variables, batch["image"])
        return *jax.value_and_grad(loss)(params), f.mean((1, 2)), logits

    loss, grads, f, logits = pull(variables["params"])
    log_p = np.asarray(jax.nn.log_softmax(logits))
    expected = -(batch["target"] * log_p).sum(1).mean()
    assert loss == pytest.approx(float(expected), rel=1e-5)
    slope = f.T @ (np.exp(log_p) - batch["target"]) / 8
    np.testing.assert_allclose(grads["fc"]["kernel"], slope, rtol=1e-4, atol=1e-6)
    trunk = {name: g for name, g in grads.items() if name != "fc"}
    assert all(not x.any() for x in jax.tree.leaves(trunk))


def test_the_loss_falls(train, batch):
    first, _, logits = train("linear_probe")
    last_loss = -(batch["target"] * jax.nn.log_softmax(logits)).sum(1).mean()
    assert last_loss < first["loss_class"]
    assert jnp.isfinite(last_loss)
