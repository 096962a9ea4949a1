"""Debiased training: labels of both halves, statistics of each norm, and the grid."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jbias.algos import base, debiased
from jbias.augment import batch_permutations, mixup
from tests import cases, methods

KEY = jax.random.key(5)
GROUP = 4


def make(net, **options):
    options = {"transfer": methods.recoloured, "mix_group": GROUP, **options}
    return debiased.make(net, **options)


@pytest.fixture(scope="module")
def run(net, variables, batch):
    """Return run(image=..., gamma=...) -> (loss, metrics, new stats, gradient)."""

    @functools.cache
    def go(transfer=methods.recoloured, batch=None, **options):
        algo = make(net, transfer=transfer, **options)
        params, stats = {"net": variables["params"]}, {"net": variables["stats"]}
        for name, part in algo.parts.items():
            drawn = part(KEY, None, variables)
            params[name], stats[name] = drawn["params"], drawn["stats"]

        def loss(params, batch):
            losses, aux = algo.losses(params, stats, batch, KEY)
            return losses["class"], aux

        grad = jax.jit(jax.value_and_grad(loss, has_aux=True))
        (value, aux), grads = grad(params, batches[batch])
        metrics = {name: float(x) for name, x in aux.metrics.items()}
        return float(value), metrics, aux.stats, grads

    def relabelled(batch):
        return {**batch, "target": jnp.roll(batch["target"], 1, axis=1)}

    batches = {None: batch, "relabelled": relabelled(batch)}
    return go


@pytest.fixture(scope="module")
def erm(net, variables):
    """Return erm(image, target) -> (mean loss, new stats, gradient) of the plain net."""

    @jax.jit
    def compute(image, target):
        def loss(params):
            logits, stats = base.forward(net, params, variables["stats"], image, KEY)
            return base.objective(logits, {"target": target}), stats

        (value, stats), grads = jax.value_and_grad(loss, has_aux=True)(
            variables["params"]
        )
        return value, stats, grads

    def run(image, target):
        loss, stats, grads = compute(image, target)
        return float(loss), stats, grads

    return run


def partner(x):
    """Return each image's partner, with the keys of the losses."""
    k_pair = jax.random.split(KEY, 4)[2]
    return batch_permutations.permute(x, k_pair, group=GROUP)


def styled(batch, alpha=0.5):
    def permute(tree):
        return jax.tree.map(partner, tree)

    return methods.recoloured(batch, permute, alpha)


def test_no_image_is_its_own_partner(batch):
    assert (partner(batch["target"]) != batch["target"]).any()


def assert_close(a, b, *, rtol=1e-7, atol=0):
    def assert_leaf_close(x, y):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)

    jax.tree.map(assert_leaf_close, a, b)


@pytest.mark.slow
def test_shape_labels_and_one_norm_are_erm_on_both_halves(run, erm, batch):
    """With gamma = 1 and no auxiliary norms the loss is the mean of two plain losses."""
    loss, metrics, _, grads = run(gamma=1.0, aux_bn=False)
    clean = erm(batch["image"], batch["target"])
    stylised = erm(styled(batch), batch["target"])
    assert loss == pytest.approx((clean[0] + stylised[0]) / 2, rel=1e-5)
    assert metrics["loss_clean"] == pytest.approx(clean[0], rel=1e-5)
    assert metrics["loss_stylised"] == pytest.approx(stylised[0], rel=1e-5)
    mean = jax.tree.map(lambda a, b: (a + b) / 2, clean[2], stylised[2])
    assert_close(grads["net"], mean, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_stylised_images_have_both_labels(run, erm, batch):
    target = 0.8 * batch["target"] + 0.2 * partner(batch["target"])
    loss, metrics, _, _ = run()
    clean = erm(batch["image"], batch["target"])[0]
    stylised = erm(styled(batch), target)[0]
    assert metrics["loss_stylised"] == pytest.approx(stylised, rel=1e-5)
    assert loss == pytest.approx((clean + stylised) / 2, rel=1e-5)


@pytest.mark.quick("0.8")
@pytest.mark.parametrize("gamma", [0.8, 0.0])
def test_clean_images_have_their_own_label_only(run, erm, batch, gamma):
    loss, metrics, _, _ = run(gamma=gamma)
    clean = erm(batch["image"], batch["target"])[0]
    assert metrics["loss_clean"] == pytest.approx(clean, rel=1e-5)
    assert loss == pytest.approx((clean + metrics["loss_stylised"]) / 2, rel=1e-5)


def noise(batch, permute, alpha):
    return jax.random.uniform(jax.random.key(9), batch["image"].shape)


def in_norm(path) -> bool:
    return path[-2].key.startswith("bn")


def norms(tree):
    return {
        jax.tree_util.keystr(path): x
        for path, x in jax.tree_util.tree_leaves_with_path(tree)
        if in_norm(path)
    }


def test_each_half_has_its_own_norms(run, erm, batch):
    """The net's norms are trained on the clean half, auxiliary norms on the stylised."""
    _, _, stats, grads = run()
    target = 0.8 * batch["target"] + 0.2 * partner(batch["target"])
    clean = erm(batch["image"], batch["target"])
    stylised = erm(styled(batch), target)

    def halved(tree):
        return jax.tree.map(lambda x: x / 2, tree)

    assert_close(norms(grads["net"]), halved(norms(clean[2])), rtol=1e-3, atol=1e-5)
    assert_close(norms(grads["aux"]), halved(norms(stylised[2])), rtol=1e-3, atol=1e-5)
    assert_close(stats["net"], clean[1], rtol=1e-5, atol=1e-6)
    assert_close(stats["aux"], stylised[1], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_main_norms_do_not_see_the_stylised_half(run):
    _, _, with_styles, _ = run()
    _, _, with_noise, _ = run(transfer=noise)
    jax.tree.map(np.testing.assert_array_equal, with_styles["net"], with_noise["net"])
    gaps = jax.tree.map(
        lambda a, b: float(jnp.abs(a - b).max()), with_styles["aux"], with_noise["aux"]
    )
    assert min(jax.tree.leaves(gaps)) > 0


@pytest.mark.slow
def test_a_single_norm_is_updated_by_both_halves_in_turn(run, erm, batch, variables):
    """New statistics are 0.9 (0.9 old + 0.1 clean) + 0.1 stylised."""
    stats = run(gamma=1.0, aux_bn=False)[2]["net"]["bn1"]["mean"]
    old = variables["stats"]["bn1"]["mean"]
    clean = erm(batch["image"], batch["target"])[1]["bn1"]["mean"]
    stylised = erm(styled(batch), batch["target"])[1]["bn1"]["mean"]
    np.testing.assert_allclose(stats, stylised + 0.9 * (clean - old), atol=1e-6)


def test_auxiliary_norms_are_the_nets_norms_and_nothing_else(net, variables):
    aux = make(net).parts["aux"](KEY, None, variables)
    params = {
        tuple(k.key for k in path)
        for path, _ in jax.tree_util.tree_leaves_with_path(aux["params"])
    }
    expected = {
        tuple(k.key for k in path)
        for path, _ in jax.tree_util.tree_leaves_with_path(variables["params"])
        if in_norm(path)
    }
    assert params == expected and len(params) > 10
    jax.tree.map(np.testing.assert_array_equal, aux["stats"], variables["stats"])
    assert not make(net, aux_bn=False).parts


def test_no_gradient_reaches_the_transfer(net, variables, batch):
    """The stylised half is a constant for any transfer."""

    def scaled(scale):
        def transfer(batch, permute, alpha):
            return scale * batch["image"]

        algo = make(net, transfer=transfer, aux_bn=False)
        params, stats = {"net": variables["params"]}, {"net": variables["stats"]}
        return algo.losses(params, stats, batch, KEY)[0]["class"]

    assert jax.jit(jax.grad(scaled))(1.0) == 0


@pytest.mark.slow
def test_biasbed_gives_every_image_both_labels(net, run, variables, batch):
    """Weights are (1 + gamma)/2 and (1 - gamma)/2 of the mean losses of all 2n images."""
    transferred = {}

    def transfer(batch, permute, alpha):
        transferred["image"] = batch["image"]
        return jnp.tanh(permute(batch["image"]))

    @jax.jit
    def compute(batch):
        algo = make(net, transfer=transfer, variant="biasbed", gamma=0.8)
        params, stats = {"net": variables["params"]}, {"net": variables["stats"]}
        part = algo.parts["aux"](KEY, None, variables)
        params["aux"], stats["aux"] = part["params"], part["stats"]
        loss = algo.losses(params, stats, batch, KEY)[0]["class"]
        mean, std = (jnp.array(v).reshape(1, 1, 1, 3) for v in (net.mean, net.std))
        normalised = (batch["image"] - mean) / std
        styled = jnp.tanh(partner(normalised))
        logits = [
            net.apply(variables, x, KEY, train=True, mutable=["stats"])[0]
            for x in (batch["image"], styled * std + mean)
        ]
        logits = jnp.concatenate(logits)
        return loss, logits, normalised - transferred["image"]

    loss, logits, difference = compute(batch)
    np.testing.assert_array_equal(difference, 0)

    def mean_loss(target):
        targets = jnp.concatenate([target, target])
        return optax.softmax_cross_entropy(logits, targets).mean()

    content = mean_loss(batch["target"])
    style = mean_loss(partner(batch["target"]))
    assert float(loss) == pytest.approx(float(0.9 * content + 0.1 * style), rel=1e-5)


@pytest.mark.slow
def test_mixing_applies_to_the_clean_half_only(run, batch):
    """At lam = 0 the stylised loss is unchanged (a large alpha would give 1/2)."""
    plain, mixed = run()[1], run(mix=mixup.make(alpha=1e6, mix_group=GROUP))[1]
    assert mixed["loss_stylised"] == pytest.approx(plain["loss_stylised"], rel=1e-6)
    assert abs(mixed["loss_clean"] - plain["loss_clean"]) > 1e-3


def image_sides(algo, steps, side=224):
    batch = {"image": jnp.zeros((1, side, side, 3))}
    shapes = {
        k: debiased._shrink(batch, k, 0)["image"].shape[1]
        for k in {algo.static(step, 1000) for step in steps}
    }
    return [shapes[algo.static(step, 1000)] for step in steps]


def test_the_grid_equals_the_authors(net):
    """Phases of 30, 30, 30 and 10 of 100: small in first halves and at even steps."""
    algo = make(net, multi_grid=True)
    assert image_sides(algo, range(4)) == [112, 158, 112, 158]
    assert image_sides(algo, (148, 149, 150, 151)) == [112, 158, 158, 224]
    assert image_sides(algo, (298, 299, 300, 301)) == [158, 224, 112, 158]
    assert image_sides(algo, (948, 949, 950, 951, 999)) == [112, 158, 158, 224, 224]
    sizes = [algo.static(step, 1000) for step in range(1000)]
    assert [sizes.count(k) for k in (0, 1, 2)] == [250, 500, 250]
    assert make(net).static(0, 10) is None


def test_smaller_images_are_subsampled_pixels():
    """Pixels are torch's nearest, floor(i old / new); renders are resized, too."""
    image = jnp.arange(224.0).reshape(1, 224, 1, 1) + jnp.zeros((1, 224, 64, 3))
    renders = jnp.zeros((1, 16, 224, 64, 3), jnp.uint8)
    small = debiased._shrink({"image": image, "renders": renders, "n": 1}, 1, 0)
    assert small["image"].shape == (1, 158, 45, 3)
    assert small["renders"].shape == (1, 16, 158, 45, 3)
    expected = np.floor(np.arange(158) * 224 / 158)
    np.testing.assert_array_equal(small["image"][0, :, 0, 0], expected)
    assert debiased._shrink({"image": image}, 2, 200)["image"].shape[1] == 200


@pytest.mark.slow
def test_small_stylised_images_are_trained_on(net, variables, batch):
    algo = make(net, multi_grid=True)
    part = algo.parts["aux"](KEY, None, variables)
    params = {"net": variables["params"], "aux": part["params"]}
    stats = {"net": variables["stats"], "aux": part["stats"]}
    shapes = []

    def transfer(batch, permute, alpha):
        shapes.append(batch["image"].shape[1])
        return batch["image"]

    algo = make(net, multi_grid=True, transfer=transfer)
    for static in (0, 1, 2):
        jax.eval_shape(
            lambda b, static=static: algo.losses(params, stats, b, KEY, static), batch
        )
    assert shapes == [16, 11, 8]


@cases.each(
    ("options", "message"),
    [
        ({"gamma": 1.2}, "gamma must be in"),
        ({"alpha": -0.1}, "alpha must be in"),
        ({"variant": "bb"}, "variant must be one of '', biasbed, got 'bb'"),
        ({"milestones": (30, 60)}, r"milestones must be in \[0, 1\], got 30"),
        ({"transfer": None}, "transfer must be set"),
        ({"variant": "biasbed", "mix": mixup.make()}, "mix must be None"),
        ({"stylised": False, "mix": mixup.make()}, "mix must be None"),
    ],
)
def test_bad_options_are_refused(net, options, message):
    with pytest.raises(ValueError, match=f"debiased: {message}"):
        make(net, **options)
