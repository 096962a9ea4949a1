"""Adversarial training: the attacked images, and the state that attacks do not change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.algos import base, erm, pgd
from tests import cases

KEY = jax.random.key(2)


@pytest.fixture(scope="module")
def pull(variables, batch):
    """Return pull(algo)(image) -> the loss, the statistics and the gradient."""
    stats = {"net": variables["stats"]}

    def compiled(algo):
        def loss(net, image):
            data = {**batch, "image": image}
            losses, aux = algo.losses({"net": net}, stats, data, KEY)
            return losses["class"], aux.stats

        run = jax.jit(jax.value_and_grad(loss, has_aux=True))
        return lambda image: run(variables["params"], image)

    return compiled


@pytest.fixture(scope="module")
def plain(net, pull):
    return pull(erm.make(net))


@pytest.fixture
def attacked_images(net, variables, batch, monkeypatch):
    """Return seen(**options) -> the images of the training pass after such an attack."""
    make_erm, images = erm.make, []

    def recording_erm(net):
        def losses(params, stats, batch, key, static=None):
            images.append(batch["image"])
            return make_erm(net).losses(params, stats, batch, key, static)

        return base.Algo(net, losses)

    monkeypatch.setattr(pgd.erm, "make", recording_erm)

    def attack(**options):
        @jax.jit
        def run(image):
            params, stats = ({"net": variables[kind]} for kind in ("params", "stats"))
            algo = pgd.make(net, **options)
            algo.losses(params, stats, {**batch, "image": image}, KEY)
            return images.pop()

        return run(batch["image"])

    return attack


def loss_in_evaluation(net, variables, batch, image):
    logits = jax.jit(net.apply)(variables, image)
    return np.asarray(base.example_losses(logits, batch))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"norm": "linf", "eps": 8 / 255},
        {"norm": "l2", "eps": 0.5, "random_start": True},
    ],
)
def test_training_images_have_a_higher_loss_within_the_ball(
    options, attacked_images, net, variables, batch
):
    attacked = attacked_images(**options)
    change = np.asarray(attacked - batch["image"], np.float64)
    size = (
        np.abs(change).max()
        if options["norm"] == "linf"
        else np.sqrt((change**2).sum((1, 2, 3))).max()
    )
    assert 0 < size <= options["eps"] + 1e-6
    assert attacked.min() >= 0 and attacked.max() <= 1
    clean_loss = loss_in_evaluation(net, variables, batch, batch["image"])
    attacked_loss = loss_in_evaluation(net, variables, batch, attacked)
    assert attacked_loss.mean() > clean_loss.mean()
    if not options.get("random_start"):
        assert (
            attacked_loss >= clean_loss
        ).all()  # The best of the iterates, the start included.


def test_one_whole_step_is_the_fast_gradient_sign_in_evaluation(
    attacked_images, net, variables, batch
):
    """The gradient is that of the net with its running statistics."""
    attacked = attacked_images(
        norm="linf", eps=0.03, steps=1, step_size=0.03, keep_best=False
    )

    def loss(image):
        return base.example_losses(net.apply(variables, image), batch).sum()

    gradient = jax.jit(jax.grad(loss))(batch["image"])
    expected = jnp.clip(batch["image"] + 0.03 * jnp.sign(gradient), 0, 1)
    # Gradients of about zero may have either sign.
    differs = np.abs(np.asarray(attacked) - expected) > 1e-6
    assert differs.mean() < 0.01
    assert (np.abs(gradient[differs]) < 1e-6 * np.abs(gradient).max()).all()
    usual = attacked_images(norm="linf", eps=0.03, steps=1, keep_best=False)
    assert np.abs(usual - batch["image"]).max() == pytest.approx(2 / 3 * 0.03, rel=1e-4)


@pytest.mark.slow
def test_a_step_equals_erm_on_the_attacked_images(
    attacked_images, pull, net, plain, batch
):
    """The attack moves no statistics, and is a constant to the weights' gradient."""
    options = {"norm": "linf", "eps": 8 / 255}
    pulled = pull(pgd.make(net, **options))(batch["image"])

    def assert_close(a, b):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)

    jax.tree.map(assert_close, pulled, plain(attacked_images(**options)))
    (clean, _), _ = plain(batch["image"])
    assert pulled[0][0] > clean + 1e-3


def test_eps_0_is_erm_itself(net, variables, batch):
    params, stats = ({"net": variables[kind]} for kind in ("params", "stats"))

    def program(algo):
        return str(jax.make_jaxpr(algo.losses)(params, stats, batch, KEY))

    assert program(pgd.make(net, norm="l2", eps=0)) == program(erm.make(net))


@pytest.mark.slow
def test_a_traced_eps_of_0_keeps_the_images(net, plain, variables, batch):
    @jax.jit
    def loss(eps):
        algo = pgd.make(net, eps=eps)
        params, stats = ({"net": variables[kind]} for kind in ("params", "stats"))
        return algo.losses(params, stats, batch, KEY)[0]["class"]

    (expected, _), _ = plain(batch["image"])
    assert loss(0.0) == pytest.approx(float(expected), rel=1e-6)
    assert loss(0.1) > expected


def test_example_losses_average_to_the_objective(batch):
    logits = jax.random.normal(KEY, batch["target"].shape)
    example_losses = base.example_losses(
        logits, {**batch, "weight": jnp.arange(8.0), "views": 2}
    )
    assert example_losses.mean() == pytest.approx(
        float(base.objective(logits, batch)), rel=1e-6
    )
    binary = {**batch, "binary": True}
    binary_losses = base.example_losses(logits, binary)
    assert binary_losses.mean() == pytest.approx(
        float(base.objective(logits, binary)), rel=1e-6
    )
    assert (binary_losses != example_losses).all()


@cases.each(
    ("options", "message"),
    [
        ({"norm": "l1"}, "norm must be one of linf, l2, got 'l1'"),
        ({"eps": -0.1}, "eps must be at least 0, got -0.1"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"step_size": 0.0}, "step_size must be positive, got 0.0"),
    ],
)
def test_bad_options_are_refused(options, message, net):
    with pytest.raises(ValueError, match=message):
        pgd.make(net, **options)
