"""DANN and CDANN: turns, environments, class balance, and who trains what."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from jbias.algos import base, dann, mmd
from jbias.training import step as train_step
from tests import cases
from tests.methods import Columns

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
CLASSES, FEATURES = 4, 5
# Of the environments 0 to 3, number 2 has no example.
DOMAIN = np.array([0, 1, 3, 0, 1, 3, 0, 0, 1, 1, 3, 0])
LABEL = np.array([0, 0, 0, 2, 2, 0, 2, 0, 0, 2, 0, 0])
COLUMNS = Columns(label=np.arange(24) % CLASSES, domain=np.tile(DOMAIN, 2))
MAKERS = {**dann.ALGOS, "mmd": mmd.make}


class Mlp(nn.Module):
    """A hidden layer and a linear layer, with outputs of any dtype."""

    dtype: type = jnp.float32

    @nn.compact
    def __call__(self, image, key=None, *, train=False):
        h = image.reshape(len(image), -1).astype(self.dtype)
        h = nn.tanh(nn.Dense(FEATURES, name="hidden", dtype=self.dtype)(h))
        return nn.Dense(CLASSES, name="fc", dtype=jnp.float32)(h)


def batch_of(rows):
    """Return a batch of these rows of the examples above."""
    image = np.random.default_rng(1).normal(size=(12, 1, 1, 6)).astype(np.float32)
    return {
        "image": jnp.asarray(image[rows]),
        "target": jnp.eye(CLASSES)[LABEL[rows]],
        "domain": jnp.asarray(DOMAIN[rows]),
    }


BATCH = batch_of(np.arange(12))


def make(name, **options):
    """Return an algorithm of three environments; a small discriminator for DANN and CDANN."""
    if name != "mmd":
        options = {"width": 7, **options}
    return MAKERS[name](options.pop("net", Mlp()), columns=COLUMNS, **options)


def draw(algo):
    """Return the initial parameters as the algorithm draws them."""
    txs = (optax.identity(),) * len(algo.updates)
    return train_step.init(algo, txs, KEY, BATCH["image"][:1]).params


def start_of(algo):
    """Return parameters drawn by NumPy, which takes no compilation."""
    rng = np.random.default_rng(2)
    shapes = jax.eval_shape(lambda: draw(algo))
    return jax.tree.map(
        lambda x: (0.5 * rng.normal(size=x.shape)).astype(np.float32), shapes
    )


def losses_of(algo, params, batch, key=KEY):
    """Return the losses, with the metrics of the step, as numbers by name."""
    named, aux = jax.jit(algo.losses)(params, {"net": {}}, batch, key)
    return {k: float(v) for k, v in {**named, **aux.metrics}.items()}


def discriminate(params, h, target, name):
    """Return the discriminator's log-probabilities of environments by NumPy."""
    weights = jax.tree.map(lambda x: np.asarray(x, np.float64), params)
    if name == "cdann":
        h = h + target @ weights["embedding"]
    for i in (1, 2, 3):
        layer = weights[f"linear{i}"]
        h = (h if i == 1 else np.maximum(h, 0)) @ layer["kernel"] + layer["bias"]
    return h - np.log(np.exp(h).sum(1, keepdims=True))


def features(params, batch):
    """Return the inputs of the linear layer."""
    x = np.asarray(batch["image"], np.float64).reshape(len(batch["image"]), -1)
    hidden = params["net"]["hidden"]
    return np.tanh(x @ np.asarray(hidden["kernel"]) + np.asarray(hidden["bias"]))


@cases.each(
    ("d_steps", "expected"),
    # Of steps 1, 2, ... of the reference: update_count % (1 + d) < d is the discriminator's.
    [(1, "NDNDNDN"), (2, "DNDDNDD"), (3, "DDNDDDN")],
)
def test_turns_are_the_references(d_steps, expected):
    algo = make("dann", d_steps=d_steps)
    turns = [algo.static(step, 7) for step in range(7)]
    assert turns == [
        {"N": dann.NETWORK, "D": dann.DISCRIMINATOR}[letter] for letter in expected
    ]
    assert [update.when for update in algo.updates] == [
        dann.NETWORK,
        dann.DISCRIMINATOR,
    ]


def test_without_turns_every_step_trains_both():
    algo = make("cdann", d_steps=0)
    assert algo.static(0, 10) is algo.static(1, 10) is None
    assert [update.when for update in algo.updates] == [None, None]


def test_each_update_trains_its_weights_with_its_options():
    algo = make("dann", d_rate=3.0, d_optim={"b1": 0.5})
    network, discriminator = algo.updates
    assert (network.loss, network.rate, dict(network.optim)) == ("adversarial", 1, {})
    assert (discriminator.loss, discriminator.rate) == ("discriminator", 3)
    assert discriminator.optim == {"b1": 0.5}
    for path, is_in_net in ((("net", "a"), True), (("discriminator", "a"), False)):
        assert network.trains(path) == is_in_net
        assert discriminator.trains(path) != is_in_net


@cases.each("name", ("dann", "cdann"))
def test_losses_are_their_formulas(name):
    """By NumPy; the discriminator's slopes by finite differences."""
    algo = make(name, weight=0.7, grad_penalty=0.3)
    params = start_of(algo)
    computed = losses_of(algo, params, BATCH)
    h, target = features(params, BATCH), np.eye(CLASSES)[LABEL]
    index = np.array([0, 1, -1, 2])[DOMAIN]

    def risks(h):
        log_p = discriminate(params["discriminator"], h, target, name)
        return -log_p[np.arange(12), index]

    steps = 1e-5 * np.eye(FEATURES)
    slopes = [(risks(h + step) - risks(h - step)) / 2e-5 for step in steps]
    penalty = 0.3 * (np.stack(slopes) ** 2).sum(0).mean()
    share = np.full(12, 1 / 12)
    if name == "cdann":  # Classes 0 and 2 of 0, 1, 2 are in the batch.
        share = 1 / (3 * np.bincount(LABEL)[LABEL])
    expected = (share * risks(h)).sum() + penalty
    assert computed["discriminator"] == pytest.approx(expected, rel=1e-4)
    assert computed["adversarial"] == pytest.approx(
        computed["class"] - 0.7 * computed["discriminator"], rel=1e-5
    )
    log_p = discriminate(params["discriminator"], h, target, name)
    assert computed["domain_accuracy"] == pytest.approx(
        np.mean(log_p.argmax(1) == index)
    )
    assert log_p.shape == (12, 3)


@cases.each("name", MAKERS)
@cases.each("case", ("order", "rows of weight 0"))
def test_the_order_and_rows_of_weight_0_do_not_change_losses(name, case):
    algo = make(name, **({} if name == "mmd" else {"grad_penalty": 0.3}))
    params = start_of(algo)
    expected = losses_of(algo, params, BATCH)
    if case == "order":
        changed = batch_of(RNG.permutation(12))
    else:
        changed = batch_of(np.repeat(np.arange(12), 2))
        noise = jnp.asarray(RNG.normal(size=changed["image"].shape), jnp.float32)
        weight = jnp.arange(24) % 2 * 1.0
        changed["weight"] = weight
        changed["image"] += noise * (1 - weight[:, None, None, None])
        changed["target"] = jnp.where(
            weight[:, None] > 0, changed["target"], jnp.eye(CLASSES)[3]
        )
    computed = losses_of(algo, params, changed)
    assert computed == pytest.approx(expected, rel=1e-4, abs=1e-6)


@cases.each("name", MAKERS)
def test_a_missing_environment_leaves_the_losses_of_the_others(name):
    """With a single environment in the batch, MMD's penalty and its gradient are 0."""
    algo = make(name, **({} if name == "mmd" else {"grad_penalty": 0.3}))
    params = start_of(algo)
    for domains in ((0, 3), (1,)):
        batch = batch_of(np.flatnonzero(np.isin(DOMAIN, domains)))

        def loss(params, batch=batch):
            named, _ = algo.losses(params, {"net": {}}, batch, KEY)
            return named["penalty" if name == "mmd" else "adversarial"]

        value, grads = jax.jit(jax.value_and_grad(loss))(params)
        assert all(jnp.isfinite(x).all() for x in jax.tree.leaves((value, grads)))
        if name == "mmd":
            sizes = [jnp.abs(x).max() for x in jax.tree.leaves(grads)]
            assert (abs(value) < 1e-5) == (max(sizes) < 1e-5) == (domains == (1,))


def test_repeating_a_class_changes_dann_and_not_cdann():
    rows = np.concatenate([np.arange(12), *[np.flatnonzero(LABEL == 2)] * 3])
    for name, is_changed in (("dann", True), ("cdann", False)):
        algo = make(name)
        params = start_of(algo)
        whole, repeated = (
            losses_of(algo, params, batch)["discriminator"]
            for batch in (BATCH, batch_of(rows))
        )
        assert (abs(whole - repeated) > 1e-3) == is_changed
        assert is_changed or whole == pytest.approx(repeated, rel=1e-5)


def test_soft_labels_have_the_mean_of_the_embeddings_of_their_classes():
    """The class of an example in the balance is its largest label."""
    algo = make("cdann")
    params = start_of(algo)
    target = 0.8 * BATCH["target"] + 0.2 * jnp.eye(CLASSES)[jnp.ones(12, int)]
    computed = losses_of(algo, params, {**BATCH, "target": target})
    h = features(params, BATCH)
    log_p = discriminate(params["discriminator"], h, np.asarray(target), "cdann")
    risks = -log_p[np.arange(12), np.array([0, 1, -1, 2])[DOMAIN]]
    expected = (risks / (3 * np.bincount(LABEL)[LABEL])).sum()
    assert computed["discriminator"] == pytest.approx(expected, rel=1e-5)


def test_the_largest_class_of_the_balance_is_among_rows_with_weight():
    values = jnp.array([1.0, 2.0, 3.0])
    target = jnp.eye(4)[np.array([1, 1, 3])]
    batch = {"target": target, "weight": jnp.array([1.0, 3.0, 0.0])}
    # Weights of class 1 sum to 4; K = 2.
    expected = (1 * 1 + 3 * 2) / (4 * 2)
    assert dann.class_balanced_mean(values, batch) == pytest.approx(expected)
    del batch["weight"]
    expected = (1 + 2) / (2 * 4) + 3 / (1 * 4)
    assert dann.class_balanced_mean(values, batch) == pytest.approx(expected)


@pytest.mark.slow
def test_initial_weights_are_torchs():
    """Linear layers are uniform within 1 / sqrt(inputs), embeddings are normal."""
    algo = make("cdann", width=300, depth=4)
    params = draw(algo)["discriminator"]
    sizes = [(FEATURES, 300), (300, 300), (300, 300), (300, 3)]
    assert set(params) == {"embedding", *(f"linear{i}" for i in (1, 2, 3, 4))}
    for i, size in enumerate(sizes, 1):
        layer = params[f"linear{i}"]
        assert layer["kernel"].shape == size
        limit = size[0] ** -0.5
        for leaf in jax.tree.leaves(layer):
            assert jnp.abs(leaf).max() <= limit
            if leaf.size >= 300:
                assert jnp.std(leaf) == pytest.approx(limit / 3**0.5, rel=0.1)
    assert params["embedding"].shape == (CLASSES, FEATURES)
    assert 0.6 < jnp.std(params["embedding"]) < 1.4
    assert "embedding" not in start_of(make("dann"))["discriminator"]


def test_dropout_of_the_discriminator_follows_the_key():
    """Dropped features have the mean 0 change; without dropout the key has no effect."""
    keys = [jax.random.key(i) for i in range(3)]
    for dropout, count in ((0.0, 1), (0.5, 3)):
        algo = make("dann", dropout=dropout)
        params = start_of(algo)
        values = [losses_of(algo, params, BATCH, key) for key in keys]
        assert len({value["discriminator"] for value in values}) == count
        assert len({value["class"] for value in values}) == 1


@pytest.mark.slow
def test_hidden_layers_have_different_dropout():
    """With equal features in all hidden layers, the layers' zeros would be equal, too."""
    module = dann.Discriminator(2, 400, 3, 0.5, conditional=False)
    h = jnp.ones((1, 400))
    params = module.init(KEY, h, h)["params"]
    eye = {"kernel": jnp.eye(400), "bias": jnp.zeros(400)}
    params = {
        **params,
        "linear1": eye,
        "linear2": eye,
        "linear3": {"kernel": jnp.ones((400, 2)), "bias": jnp.zeros(2)},
    }
    out = module.apply({"params": params}, h, h, KEY, train=True)
    # A feature passes both layers with probability 1/4, and is then 4.
    assert out[0, 0] == pytest.approx(400, abs=4 * 4 * (400 * 3 / 16) ** 0.5)
    passed = out[0, 0] / 4
    assert abs(passed - 200) > 50
    still = module.apply({"params": params}, h, h, KEY, train=False)
    assert still[0, 0] == 400


@pytest.mark.slow
@cases.each("name", MAKERS)
def test_losses_of_a_network_in_bfloat16_are_close(name):
    exact = make(name)
    rough = make(name, net=Mlp(jnp.bfloat16))
    params = start_of(exact)
    named, _ = jax.jit(rough.losses)(params, {"net": {}}, BATCH, KEY)
    expected = losses_of(exact, params, BATCH)
    for loss, value in named.items():
        assert value.dtype == jnp.float32
        assert value == pytest.approx(expected[loss], rel=0.05, abs=0.1)


@cases.each("name", MAKERS)
def test_only_losses_that_are_means_can_be_accumulated(name):
    assert make(name).whole_batch == (name != "dann")


@pytest.mark.slow
def test_accumulated_gradients_of_dann_are_those_of_the_batch():
    algo = make("dann", d_steps=0, grad_penalty=0.3)
    params = start_of(algo)
    sgd = optax.sgd(1.0)
    state = train_step.init(algo, (sgd, sgd), KEY, BATCH["image"][:1])
    state = state._replace(params=params)
    whole, divided = (
        jax.jit(train_step.make_step(algo, (sgd, sgd), accumulate=k))(
            state, BATCH, KEY
        )[0].params
        for k in (1, 3)
    )

    def assert_near(a, b):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)

    jax.tree.map(assert_near, whole, divided)


def test_training_data_of_one_environment_is_refused():
    columns = Columns(label=np.arange(6) % 3, domain=np.full(6, 2))
    with pytest.raises(ValueError, match="^cdann: must have .* 2 environments, by dom"):
        dann.make(Mlp(), conditional=True, columns=columns)


def test_unknown_options_of_the_optimiser_are_refused():
    with pytest.raises(ValueError, match=r"^dann.d_optim: unknown option 'rate'"):
        make("dann", d_optim={"rate": 0.1})


def test_only_combinations_with_examples_are_environments():
    """By class and domain there are 16 combinations, of which 12 have examples."""
    algo = make("dann", by="class+domain")
    params = start_of(algo)
    pairs = {*zip(COLUMNS["label"], COLUMNS["domain"])}
    assert params["discriminator"]["linear3"]["bias"].shape == (len(pairs),)


def test_without_a_weight_the_algorithm_is_erm():
    for name in MAKERS:
        algo = make(name, weight=0)
        assert algo.updates == (base.Update("class"),) and not algo.parts
