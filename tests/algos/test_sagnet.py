"""SagNet: the weights that each loss trains, and the features of each head."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jbias import models
from jbias.algos import padain, sagnet
from jbias.training import prng
from jbias.training import step as train_step
from tests import cases, networks

KEY = jax.random.key(11)
UPDATES = ("style", "adv", "class")
CLIP = 0.1


def count(tree):
    return sum(math.prod(x.shape) for x in jax.tree.leaves(tree))


def changed_paths(first, second):
    """Return the paths of the leaves that differ."""
    changed = jax.tree.map(lambda a, b: bool((a != b).any()), first, second)
    leaves = jax.tree_util.tree_leaves_with_path(changed)
    return {tuple(k.key for k in path) for path, differs in leaves if differs}


def paths(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {tuple(k.key for k in path) for path, _ in leaves}


def in_trunk(path):
    return path[0] == "net" and path[1] in ("conv1", "bn1") + tuple(
        f"stage{stage}_block0" for stage in (1, 2)
    )


@pytest.fixture(scope="module")
def algo(net):
    # A large weight, so that the clip binds.
    return sagnet.make(net, w_adv=10.0, clip=CLIP, mix_group=4)


@pytest.fixture(scope="module")
def start(algo, begin):
    return begin(algo, (optax.identity(),) * 3)


@pytest.fixture(scope="module")
def pulled(algo, start, batch):
    """Return {loss: its gradient by all weights}, the losses and the new statistics."""

    @jax.jit
    def pull(params):
        losses, back, aux = jax.vjp(
            lambda p: algo.losses(p, start.stats, batch, KEY), params, has_aux=True
        )

        def gradient(name):
            cotangents = {n: jnp.float32(n == name) for n in losses}
            return back(cotangents)[0]

        return {name: gradient(name) for name in losses}, losses, aux.stats

    return pull(start.params)


@pytest.fixture(scope="module")
def step_one_update(algo, begin, batch):
    """Return stepped("adv", decay) -> the state after a step of only that update."""

    def chains(rates, decay):
        return tuple(
            optax.chain(optax.add_decayed_weights(decay), optax.scale(-rate))
            for rate in rates
        )

    state = begin(algo, chains((0.0,) * 3, 0.0))

    @jax.jit
    def step_with(rates, decay):
        return train_step.make_step(algo, chains(rates, decay))(state, batch, KEY)[0]

    def run(name, decay=0.0):
        assert tuple(update.loss for update in algo.updates) == UPDATES
        rates = jnp.array([float(name == loss) for loss in UPDATES])
        return step_with(rates, jnp.float32(decay))

    return run


def net_of(state):
    return {"params": state.params["net"], "stats": state.stats["net"]}


def test_style_loss_moves_the_style_head_only(start, step_one_update):
    changed = changed_paths(start.params, step_one_update("style").params)
    assert changed == {p for p in paths(start.params) if p[0] == "style"}


def test_adversarial_loss_moves_the_trunks_norms_only(start, step_one_update):
    changed = changed_paths(start.params, step_one_update("adv").params)
    expected = {
        path
        for path in paths(start.params)
        if in_trunk(path) and path[-1] in ("scale", "bias")
    }
    assert changed == expected
    assert len(expected) == 2 * (1 + 2 + 3)  # Stem, block, block with projection.


def test_class_loss_moves_the_net_only(start, step_one_update):
    changed = changed_paths(start.params, step_one_update("class").params)
    assert changed == {p for p in paths(start.params) if p[0] == "net"}


@pytest.mark.slow
def test_no_class_gradient_reaches_the_style_head(pulled):
    grads, _, _ = pulled
    assert all((x == 0).all() for x in jax.tree.leaves(grads["class"]["style"]))


def test_only_the_selection_of_weights_isolates_the_losses(pulled):
    """The style loss has a gradient in the trunk, through means and variances."""
    grads, _, _ = pulled
    assert jnp.abs(grads["style"]["net"]["conv1"]["kernel"]).max() > 0
    assert all((x == 0).all() for x in jax.tree.leaves(grads["style"]["net"]["fc"]))


@pytest.mark.parametrize("double_decay", [True, False])
def test_double_decay_applies_to_the_style_head(
    net, double_decay, start, step_one_update
):
    algo = sagnet.make(net, double_decay=double_decay)
    trains = algo.updates[-1].trains
    assert {p for p in paths(start.params) if trains(p)} == {
        p for p in paths(start.params) if double_decay or p[0] == "net"
    }
    # In the class update the style head has zero gradient: only decay acts.
    style = step_one_update("class", decay=0.5).params["style"]

    def assert_halved(a, b):
        np.testing.assert_allclose(a, 0.5 * b, rtol=1e-6)

    jax.tree.map(assert_halved, style, start.params["style"])


@pytest.mark.slow
@pytest.mark.quick("0.01")
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_adversarial_step_is_bounded(start, step_one_update, pulled, decay):
    """|step| <= rate (clip + decay |theta|), and the clip binds here."""
    new_params = step_one_update("adv", decay).params
    norms = changed_paths(start.params, new_params)
    assert norms
    size = float(optax.tree.norm(jax.tree.map(jnp.subtract, new_params, start.params)))
    theta = {
        path: x
        for path, x in jax.tree_util.tree_leaves_with_path(start.params)
        if tuple(k.key for k in path) in norms
    }
    bound = CLIP + decay * float(optax.tree.norm(list(theta.values())))
    assert 0 < size <= bound * (1 + 1e-5)
    if not decay:
        assert size == pytest.approx(CLIP, rel=1e-4)


@pytest.mark.slow
def test_sizes_for_resnet50():
    """Numbers of parameters equal those of the reference code at 1000 classes."""
    net = models.MODELS["resnet50"](1000)
    algo = sagnet.make(net)
    image = jax.ShapeDtypeStruct((1, 64, 64, 3), jnp.float32)
    variables = jax.eval_shape(net.init, KEY, image)
    style = jax.eval_shape(algo.parts["style"], KEY, image, variables)
    params = {"net": variables["params"], "style": style["params"]}
    assert count(params["style"]) == 24_112_104
    assert count(params) == 49_669_136
    adv = algo.updates[1]
    trained = [
        x
        for path, x in jax.tree_util.tree_leaves_with_path(params)
        if adv.trains(tuple(k.key for k in path))
    ]
    assert (adv.loss, len(trained), count(trained)) == ("adv", 48, 10_112)


@pytest.mark.slow
def test_confusion_is_least_for_equal_classes():
    least = -math.log(1 / 1000 + 1e-5)
    equal = jnp.full((1, 1000), 2.0)
    assert sagnet.confusion(equal)[0] == pytest.approx(least, rel=1e-6)
    assert least == pytest.approx(6.898, abs=1e-3)
    gradient = jax.grad(lambda z: sagnet.confusion(z)[0])(equal)
    np.testing.assert_allclose(gradient, 0, atol=1e-8)
    other_logits = (
        jax.random.normal(KEY, (100, 1000)) * jnp.logspace(-2, 2, 100)[:, None]
    )
    assert (sagnet.confusion(other_logits) > least).all()


@pytest.mark.slow
def test_losses_of_a_fresh_style_head(pulled):
    """Both losses are near the logarithm of the number of classes; "adv" times its weight."""
    _, losses, _ = pulled
    assert losses["style"] == pytest.approx(math.log(5), abs=0.5)
    assert 10 * math.log(5) - 0.01 < losses["adv"] < 10 * (math.log(5) + 0.5)


def test_without_w_adv_there_is_no_adversarial_update(net):
    updates = sagnet.make(net, w_adv=0.0).updates
    assert [update.loss for update in updates] == ["style", "class"]


@pytest.mark.slow
def test_each_norm_is_updated_once_by_its_own_features(net, start, pulled, batch):
    """Trunk: clean features; content head: random styles; style head: random contents."""
    new_stats = pulled[2]
    _, plain = jax.jit(lambda v, x: net.apply(v, x, train=True, mutable=["stats"]))(
        net_of(start), batch["image"]
    )
    for name, expected in plain["stats"].items():
        differences = jax.tree.map(
            lambda a, b: abs(a - b).max(), new_stats["net"][name], expected
        )
        if net.stage_of(name) < 3:  # Equal up to rounding.
            assert max(jax.tree.leaves(differences)) < 1e-6
        else:
            assert min(jax.tree.leaves(differences)) > 1e-4
    style_stats = new_stats["style"]
    assert changed_paths(start.stats["style"], style_stats) == paths(style_stats)


def test_the_style_head_has_its_own_random_stream(start):
    """The style head has its own random stream, and the net's structure."""
    net_params, style = start.params["net"], start.params["style"]
    head = {name: net_params[name] for name in style}
    assert jax.tree.structure(head) == jax.tree.structure(style)
    kernels = {path for path in paths(style) if path[-1] == "kernel"}
    assert kernels <= changed_paths(head, style)


def test_copy_net_copies_stages_and_draws_the_linear_layer(net, variables, image):
    init = jax.jit(sagnet.make(net, copy_net=True).parts["style"])
    style = init(KEY, image[:1], variables)
    assert set(style["params"]) == {"stage3_block0", "stage4_block0", "fc"}
    for kind in ("params", "stats"):
        for name in set(style[kind]) - {"fc"}:
            jax.tree.map(
                np.testing.assert_array_equal, style[kind][name], variables[kind][name]
            )
    linear = style["params"]["fc"]["kernel"]
    assert (linear != variables["params"]["fc"]["kernel"]).any()


@pytest.mark.slow
@cases.each("stage", [2, 4, 5])
def test_cuts_at_other_stages(net, variables, batch, stage):
    algo = sagnet.make(net, style_stage=stage, mix_group=4)
    style = jax.eval_shape(algo.parts["style"], KEY, batch["image"], variables)
    stages = {net.stage_of(name) for name in style["params"]}
    assert stages == set(range(stage, 6))
    params = {"net": variables["params"], "style": style["params"]}
    trained = [p for p in paths(params) if algo.updates[1].trains(p)]
    assert {net.stage_of(p[1]) for p in trained} == set(range(stage))
    stats = {"net": variables["stats"], "style": style.get("stats", {})}
    losses, aux = jax.eval_shape(algo.losses, params, stats, batch, KEY)
    assert set(losses) == {"class", "style", "adv"}
    assert jax.tree.structure(aux.stats) == jax.tree.structure(stats)


def test_features_of_one_pixel_are_refused(net, variables, batch):
    algo = sagnet.make(net, style_stage=5, mix_group=4)
    tiny = {**batch, "image": batch["image"][:, :8, :8]}
    style = jax.eval_shape(algo.parts["style"], KEY, tiny["image"], variables)
    params = {"net": variables["params"], "style": style["params"]}
    stats = {"net": variables["stats"], "style": {}}
    with pytest.raises(ValueError, match="at least 2 pixels"):
        jax.eval_shape(algo.losses, params, stats, tiny, KEY)


def test_permuted_adain_combines_with_the_net_only(net, variables, batch):
    """The net has taps; the style head has no taps."""
    sites = []
    tapped = padain.make(net, p=0.5, mix_group=4).net
    tap = tapped.tap

    def spy(x, site, key):
        sites.append(site)
        return tap(x, site, key)

    algo = sagnet.make(tapped.clone(tap=spy), mix_group=4)
    style = jax.eval_shape(algo.parts["style"], KEY, batch["image"], variables)
    params = {"net": variables["params"], "style": style["params"]}
    stats = {"net": variables["stats"], "style": style["stats"]}
    jax.eval_shape(algo.losses, params, stats, batch, KEY)
    assert len(sites) == len(set(sites)) == 1 + 1 + 4 * 3


@pytest.fixture(scope="module")
def released(net):
    return sagnet.make(
        net, w_adv=10.0, clip=CLIP, dropout=0.0, variant="biasbed", mix_group=4
    )


@pytest.mark.slow
def test_biasbeds_release_accumulates_gradients(released, begin, batch):
    """With losses L_s, L_a, L_c: style 2 (s + a), trunk norms 2 (clip(s + a) + c), all
    others the sum.
    """
    txs = tuple(optax.sgd(1.0) for _ in released.updates)
    state = begin(released, txs)

    @jax.jit
    def step_and_gradients(params):
        new_state, _ = train_step.make_step(released, txs)(
            state._replace(params=params), batch, KEY
        )
        # The key that the step derives from its number.
        key = jax.random.fold_in(prng.stream(KEY, "algorithm"), state.step)

        def gradient_of(name):
            def loss(p):
                return released.losses(p, state.stats, batch, key)[0][name]

            return jax.grad(loss)(params)

        return new_state.params, {name: gradient_of(name) for name in UPDATES}

    new_params, gradient = step_and_gradients(state.params)
    flat = {
        name: {
            tuple(k.key for k in path): np.asarray(g, np.float64)
            for path, g in jax.tree_util.tree_leaves_with_path(tree)
        }
        for name, tree in gradient.items()
    }
    s, a, c = (flat[name] for name in UPDATES)
    norms = {p for p in paths(state.params) if in_trunk(p) and p[-2].startswith("bn")}
    total = math.sqrt(sum(((s[p] + a[p]) ** 2).sum() for p in norms))
    clip = min(1.0, CLIP / (total + 1e-6))
    assert clip < 1
    for path, leaf in jax.tree_util.tree_leaves_with_path(state.params):
        p = tuple(k.key for k in path)
        changed_paths = np.asarray(leaf) - np.asarray(_at(new_params, p))
        expected = s[p] + a[p] + c[p]
        if p[0] == "style":
            expected = 2 * expected
        elif p in norms:
            expected = 2 * (clip * (s[p] + a[p]) + c[p])
        scale = np.abs(expected).max() + 1e-3
        np.testing.assert_allclose(changed_paths / scale, expected / scale, atol=1e-3)


def _at(tree, path):
    for name in path:
        tree = tree[name]
    return tree


@pytest.mark.slow
def test_biasbeds_style_head_is_an_ordinary_classifier(released, begin, batch):
    """Its features are not swapped, and its loss reaches the trunk's convolutions."""
    txs = tuple(optax.identity() for _ in released.updates)
    state = begin(released, txs)

    @jax.jit
    @jax.grad
    def pull(params):
        return released.losses(params, state.stats, batch, KEY)[0]["style"]

    kernel_gradient = pull(state.params)["net"]["conv1"]["kernel"]
    assert np.abs(kernel_gradient).max() > 1e-3


def test_without_double_decay_each_weight_decays_once(net):
    once = sagnet.make(net, double_decay=False, mix_group=4)
    assert [update.decay for update in once.updates] == [True, False, True]
    assert not once.updates[2].trains(("style", "fc", "kernel"))
    twice = sagnet.make(net, mix_group=4)
    assert all(update.decay for update in twice.updates)
    assert twice.updates[2].trains(("style", "fc", "kernel"))


def test_an_unknown_variant_is_refused(net):
    with pytest.raises(ValueError, match="sagnet: variant must be one of '', biasbed"):
        sagnet.make(net, variant="bisabed")


@pytest.mark.slow
def test_the_trunk_of_a_plain_net_has_norms_too():
    """Norms named "stage1_bn", in nets without blocks, belong to the trunk."""
    net = models.MODELS["cnn"](4, width=4)
    algo = sagnet.make(net, w_adv=0.1)
    (adv,) = (update for update in algo.updates if update.loss == "adv")
    params = net.init(KEY, jnp.zeros((1, 28, 28, 3)))["params"]
    trained = {path for path in paths({"net": params}) if adv.trains(path)}
    assert trained == {
        ("net", f"stage{stage}_bn", leaf)
        for stage in (1, 2)
        for leaf in ("scale", "bias")
    }


@pytest.mark.slow
@cases.each(
    ("name", "options"),
    [
        ("vgg11", {}),
        ("vgg11", {"variant": "biasbed"}),
        ("vit_small16", {}),
        ("cnn", {"style_stage": 1}),
    ],
)
def test_a_trunk_without_batch_norm_is_refused(name, options):
    """The adversary would train nothing; the reference's knows no other norms."""
    net, _ = networks.small(name)
    with pytest.raises(ValueError, match="got none; take a model .* set w_adv=0 to"):
        sagnet.make(net, **options)
    assert sagnet.make(net, w_adv=0, **options).updates
