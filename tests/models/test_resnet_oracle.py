"""ResNets against an independent implementation in PyTorch (tests/oracles/resnet.py)."""

import pathlib
import runpy

import jax
import numpy as np
import optax
import pytest

from jbias import models

ORACLES = pathlib.Path(__file__).parents[1] / "oracles"
DRAWN = runpy.run_path(str(ORACLES / "resnet_weights.py"))
WORDS = {
    "kernel": "weight",
    "scale": "weight",
    "mean": "running_mean",
    "var": "running_var",
    "proj": "downsample.0",
    "bn_proj": "downsample.1",
}


def torch_name(path) -> str:
    """Return PyTorch's name: ("stage1_block0", "bn1", "mean") is
    layer1.0.bn1.running_mean.
    """
    words = [entry.key for entry in path]
    words = [WORDS.get(word, word) for word in words]
    words[0] = words[0].replace("stage", "layer").replace("_block", ".")
    return ".".join(words)


def draw_tensor(path, shape):
    """Return the oracle's tensor of a path, in our layout."""
    if len(shape) == 4:
        h, w, i, o = shape
        return DRAWN["draw"](torch_name(path), (o, i, h, w)).transpose(2, 3, 1, 0)
    return DRAWN["draw"](torch_name(path), shape[::-1]).T


def run(case: str) -> dict[str, np.ndarray]:
    """Return the oracle's quantities of a case, by its names, from our network."""
    _, bottleneck, stem, size = DRAWN["CASES"][case]
    net = models.MODELS[case](DRAWN["CLASSES"], stem=stem)
    image = DRAWN["images"](size)
    target = jax.nn.one_hot(DRAWN["labels"](), DRAWN["CLASSES"])
    shapes = jax.eval_shape(net.init, jax.random.key(0), image)
    variables = jax.tree_util.tree_map_with_path(
        lambda path, x: draw_tensor(path[1:], x.shape), shapes
    )

    def loss(params, stats):
        variables = {"params": params, "stats": stats}
        logits, new = net.apply(variables, image, train=True, mutable=["stats"])
        ce = optax.softmax_cross_entropy(logits, target).mean()
        return ce, (logits, new["stats"])

    @jax.jit
    def train_and_evaluate(params, stats):
        if bottleneck:  # The oracle holds no gradients; they take long to compile.
            grads, (_, (train, new)) = {}, loss(params, stats)
        else:
            grads, (train, new) = jax.grad(loss, has_aux=True)(params, stats)
        plain = net.apply({"params": params, "stats": stats}, image)
        return {"train": train, "eval": plain}, new, grads

    logits, stats, grads = train_and_evaluate(variables["params"], variables["stats"])
    quantities = dict(logits)
    for path, x in jax.tree_util.tree_leaves_with_path(stats):
        quantities[torch_name(path)] = x
    for path, x in jax.tree_util.tree_leaves_with_path(grads):
        x = x.transpose(3, 2, 0, 1) if x.ndim == 4 else x.T
        quantities[f"grad.{torch_name(path)}"] = x
    return {name: np.asarray(x) for name, x in quantities.items()}


@pytest.mark.slow
@pytest.mark.parametrize("case", sorted(DRAWN["CASES"]))
def test_equals_pytorch(case):
    stored = np.load(ORACLES / "resnet.npz")
    expected = {
        name.partition("/")[2]: stored[name]
        for name in stored.files
        if name.startswith(case)
    }
    # An answer that ignores the image would test nothing.
    assert np.ptp(expected["eval"], axis=0).mean() > 0.1
    quantities = run(case)
    for name, value in expected.items():
        # Float32 against float64. Gradients jump where a ReLU's input changes sign by
        # rounding, as PyTorch's own do on other images.
        bound = 0.02 * np.abs(value).max() if name.startswith("grad") else 1e-4
        difference = np.abs(quantities[name] - value).max()
        assert difference < bound, f"{name}: {difference}"
