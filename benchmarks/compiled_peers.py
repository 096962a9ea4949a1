"""ResNet-50's training step as others write it, to compile beside ours.

`flax`: as the ImageNet example of Flax describes its own, in our words: linen's modules,
batch norm with momentum 0.9, the last scale of a block zero at first, weights in float32
and computation in bfloat16, SGD with Nesterov's momentum, decay of kernels in the loss,
a cosine after a warm-up, and loss and accuracy as metrics.
(https://github.com/google/flax/tree/main/examples/imagenet)

`bare`: convolutions, batch norm, sums, one loss and plain momentum in jax alone: what no
step of this network can do without.
"""

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training import train_state
from jaxtyping import Array, PyTree

DEPTHS = (3, 4, 6, 3)
HALF = jnp.bfloat16


class Step(NamedTuple):
    """A step (state, batch) -> (state, metrics), and the shapes of what it takes."""

    step: Callable[[PyTree, PyTree], tuple[PyTree, dict[str, Array]]]
    state: PyTree
    batch: Mapping[str, jax.ShapeDtypeStruct]


def _batch(count: int, size: int) -> dict[str, jax.ShapeDtypeStruct]:
    return {
        "image": jax.ShapeDtypeStruct((count, size, size, 3), HALF),
        "label": jax.ShapeDtypeStruct((count,), jnp.int32),
    }


class _Block(nn.Module):
    features: int
    stride: int

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        conv = functools.partial(nn.Conv, use_bias=False, dtype=HALF)
        norm = functools.partial(_norm, train)
        step = (self.stride, self.stride)
        y = nn.relu(norm()(conv(self.features, (1, 1))(x)))
        y = nn.relu(norm()(conv(self.features, (3, 3), step)(y)))
        y = conv(4 * self.features, (1, 1))(y)
        y = norm(scale_init=nn.initializers.zeros)(y)
        if x.shape != y.shape:
            x = conv(4 * self.features, (1, 1), step, name="conv_proj")(x)
            x = norm(name="norm_proj")(x)
        return nn.relu(x + y)


def _norm(train: bool, **options: Any) -> nn.BatchNorm:
    return nn.BatchNorm(
        use_running_average=not train,
        momentum=0.9,
        epsilon=1e-5,
        dtype=HALF,
        **options,
    )


class _Flax(nn.Module):
    classes: int

    @nn.compact
    def __call__(self, x: Array, train: bool = True) -> Array:
        x = nn.Conv(
            *(64, (7, 7), (2, 2)),
            padding=((3, 3), (3, 3)),
            use_bias=False,
            dtype=HALF,
            name="conv_stem",
        )(x)
        x = nn.relu(_norm(train, name="norm_stem")(x))
        x = nn.max_pool(x, (3, 3), (2, 2), padding="SAME")
        for stage, depth in enumerate(DEPTHS):
            for i in range(depth):
                stride = 2 if stage and not i else 1
                name = f"stage{stage + 1}_block{i}"
                x = _Block(64 * 2**stage, stride, name=name)(x, train)
        return nn.Dense(self.classes, dtype=HALF, name="fc")(jnp.mean(x, (1, 2)))


class _State(train_state.TrainState):
    batch_stats: PyTree


def flax(classes: int, batch: int, size: int) -> Step:
    """The step of Flax's example."""
    net = _Flax(classes)
    rate = optax.warmup_cosine_decay_schedule(0.0, 0.1, 500, 10_000)

    def init() -> _State:
        image = jnp.ones((1, size, size, 3), HALF)
        variables = net.init(jax.random.key(0), image)
        return _State.create(
            apply_fn=net.apply,
            tx=optax.sgd(rate, momentum=0.9, nesterov=True),
            **variables,
        )

    def step(state: _State, batch: Mapping[str, Array]) -> tuple[_State, dict]:
        target = jax.nn.one_hot(batch["label"], classes)

        def loss(params):
            variables = {"params": params, "batch_stats": state.batch_stats}
            logits, moved = state.apply_fn(
                variables, batch["image"], mutable=["batch_stats"]
            )
            each = optax.softmax_cross_entropy(logits, target)
            kernels = [x for x in jax.tree.leaves(params) if x.ndim > 1]
            decay = 1e-4 * 0.5 * sum(jnp.sum(x**2) for x in kernels)
            return jnp.mean(each) + decay, (moved, logits)

        grads, (moved, logits) = jax.grad(loss, has_aux=True)(state.params)
        with jax.named_scope("optimiser"):
            state = state.apply_gradients(grads=grads, **moved)
        each = optax.softmax_cross_entropy(logits, target)
        right = jnp.argmax(logits, -1) == batch["label"]
        told = {"loss": jnp.mean(each), "accuracy": jnp.mean(right)}
        return state, {**told, "learning_rate": rate(state.step)}

    return Step(step, jax.eval_shape(init), _batch(batch, size))


def bare(classes: int, batch: int, size: int) -> Step:
    """The least that a step can be."""

    def step(state: tuple, batch: Mapping[str, Array]) -> tuple[tuple, dict]:
        params, stats, momentum = state

        def loss(params):
            logits, moved = _forward(params, stats, batch["image"])
            each = jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(
                logits, batch["label"][:, None], -1
            ).squeeze(-1)
            return jnp.mean(each), moved

        (value, moved), grads = jax.value_and_grad(loss, has_aux=True)(params)
        with jax.named_scope("optimiser"):
            momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
            params = jax.tree.map(lambda w, m: w - 0.1 * m, params, momentum)
        return (params, moved, momentum), {"loss": value}

    shapes = dict(_kernels(classes))
    params = {name: jax.ShapeDtypeStruct(s, jnp.float32) for name, s in shapes.items()}
    channel = {
        name: jax.ShapeDtypeStruct(s[-1:], jnp.float32)
        for name, s in shapes.items()
        if len(s) == 4
    }
    for kind in ("scale", "bias"):
        params |= {f"{name}/{kind}": one for name, one in channel.items()}
    params["fc/bias"] = jax.ShapeDtypeStruct((classes,), jnp.float32)
    stats = {name: (one, one) for name, one in channel.items()}
    return Step(step, (params, stats, params), _batch(batch, size))


def _plan():
    """Of each block: its name, inner features, stride, and channels that come in."""
    before = 64
    for stage, depth in enumerate(DEPTHS):
        for i in range(depth):
            inner = 64 * 2**stage
            yield f"stage{stage + 1}/{i}", inner, 2 if stage and not i else 1, before
            before = 4 * inner


def _kernels(classes: int):
    yield "stem", (7, 7, 3, 64)
    for name, inner, _, before in _plan():
        yield f"{name}/conv1", (1, 1, before, inner)
        yield f"{name}/conv2", (3, 3, inner, inner)
        yield f"{name}/conv3", (1, 1, inner, 4 * inner)
        if name.endswith("/0"):
            yield f"{name}/proj", (1, 1, before, 4 * inner)
    yield "fc", (2048, classes)


def _forward(params: Mapping, stats: Mapping, x: Array) -> tuple[Array, dict]:
    """Logits, and the running statistics moved."""
    moved = {}

    def layer(x: Array, name: str, stride: int = 1) -> Array:
        with jax.named_scope(name):
            kernel = params[name].astype(HALF)
            edge = kernel.shape[0] // 2
            x = jax.lax.conv_general_dilated(
                *(x, kernel, (stride, stride), ((edge, edge),) * 2),
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )
        with jax.named_scope(f"norm/{name}"):
            return norm(x, name)

    def norm(x: Array, name: str) -> Array:
        wide = x.astype(jnp.float32)
        mean = jnp.mean(wide, (0, 1, 2))
        variance = jnp.mean(wide**2, (0, 1, 2)) - mean**2
        old = stats[name]
        moved[name] = tuple(
            0.9 * a + 0.1 * b for a, b in zip(old, (mean, variance), strict=True)
        )
        scale = params[f"{name}/scale"] * jax.lax.rsqrt(variance + 1e-5)
        shift = params[f"{name}/bias"] - mean * scale
        return (wide * scale + shift).astype(HALF)

    x = nn.max_pool(jax.nn.relu(layer(x, "stem", 2)), (3, 3), (2, 2), "SAME")
    for name, _, stride, _ in _plan():
        with jax.named_scope(name.replace("/", "_")):
            y = jax.nn.relu(layer(x, f"{name}/conv1"))
            y = jax.nn.relu(layer(y, f"{name}/conv2", stride))
            y = layer(y, f"{name}/conv3")
            x = layer(x, f"{name}/proj", stride) if name.endswith("/0") else x
            x = jax.nn.relu(x + y)
    x = jnp.mean(x, (1, 2), dtype=jnp.float32)
    return x @ params["fc"] + params["fc/bias"], moved


STEPS: Mapping[str, Callable[[int, int, int], Step]] = types.MappingProxyType(
    {"flax": flax, "bare": bare}
)
