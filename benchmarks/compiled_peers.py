"""ResNet-50 training steps of other code, to compile for comparison with jbias.

`flax` reimplements the step of Flax's ImageNet example
(https://github.com/google/flax/tree/main/examples/imagenet): linen's modules, batch norm
with momentum 0.9, the last scale of a block initialised to zero, weights in float32 and
computation in bfloat16, SGD with Nesterov's momentum, weight decay of kernels in the loss,
a cosine schedule after a warm-up, and loss and accuracy as metrics.

`bare` is a minimal step of the same network in plain jax: convolutions, batch norm, sums,
one loss and momentum.
"""

import functools
import types
from collections.abc import Callable, Iterator, Mapping
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
    """A training step (state, batch) -> (state, metrics) with the shapes of both."""

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
        strides = (self.stride, self.stride)
        y = nn.relu(norm()(conv(self.features, (1, 1))(x)))
        y = nn.relu(norm()(conv(self.features, (3, 3), strides)(y)))
        y = conv(4 * self.features, (1, 1))(y)
        y = norm(scale_init=nn.initializers.zeros)(y)
        if x.shape != y.shape:
            x = conv(4 * self.features, (1, 1), strides, name="conv_proj")(x)
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
            64,
            kernel_size=(7, 7),
            strides=(2, 2),
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
    """Return the step of Flax's example for images of `size` pixels, `batch` at a time."""
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
            logits, new_stats = state.apply_fn(
                variables, batch["image"], mutable=["batch_stats"]
            )
            losses = optax.softmax_cross_entropy(logits, target)
            kernels = [x for x in jax.tree.leaves(params) if x.ndim > 1]
            decay = 1e-4 * 0.5 * sum(jnp.sum(x**2) for x in kernels)
            return jnp.mean(losses) + decay, (new_stats, logits)

        grads, (new_stats, logits) = jax.grad(loss, has_aux=True)(state.params)
        with jax.named_scope("optimiser"):
            state = state.apply_gradients(grads=grads, **new_stats)
        losses = optax.softmax_cross_entropy(logits, target)
        is_right = jnp.argmax(logits, -1) == batch["label"]
        metrics = {
            "loss": jnp.mean(losses),
            "accuracy": jnp.mean(is_right),
            "learning_rate": rate(state.step),
        }
        return state, metrics

    return Step(step, jax.eval_shape(init), _batch(batch, size))


def bare(classes: int, batch: int, size: int) -> Step:
    """Return a minimal step for images of `size` pixels, `batch` at a time."""

    def step(state: tuple, batch: Mapping[str, Array]) -> tuple[tuple, dict]:
        params, stats, momentum = state

        def loss(params):
            logits, new_stats = _forward(params, stats, batch["image"])
            losses = jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(
                logits, batch["label"][:, None], -1
            ).squeeze(-1)
            return jnp.mean(losses), new_stats

        (value, new_stats), grads = jax.value_and_grad(loss, has_aux=True)(params)
        with jax.named_scope("optimiser"):
            momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
            params = jax.tree.map(lambda w, m: w - 0.1 * m, params, momentum)
        return (params, new_stats, momentum), {"loss": value}

    shapes = dict(_kernels(classes))
    params = {name: jax.ShapeDtypeStruct(s, jnp.float32) for name, s in shapes.items()}
    channel = {
        name: jax.ShapeDtypeStruct(s[-1:], jnp.float32)
        for name, s in shapes.items()
        if len(s) == 4
    }
    for kind in ("scale", "bias"):
        for name, vector in channel.items():
            params[f"{name}/{kind}"] = vector
    params["fc/bias"] = jax.ShapeDtypeStruct((classes,), jnp.float32)
    stats = {name: (vector, vector) for name, vector in channel.items()}
    return Step(step, (params, stats, params), _batch(batch, size))


class _BlockPlan(NamedTuple):
    """A bottleneck block: name, inner channels, stride, and channels of its input."""

    name: str
    inner: int
    stride: int
    channels_in: int


def _block_plans() -> Iterator[_BlockPlan]:
    """Yield all blocks in order."""
    channels_in = 64
    for stage, depth in enumerate(DEPTHS):
        for i in range(depth):
            inner = 64 * 2**stage
            stride = 2 if stage and not i else 1
            yield _BlockPlan(f"stage{stage + 1}/{i}", inner, stride, channels_in)
            channels_in = 4 * inner


def _kernels(classes: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and shape of every kernel."""
    yield "stem", (7, 7, 3, 64)
    for name, inner, _, channels_in in _block_plans():
        yield f"{name}/conv1", (1, 1, channels_in, inner)
        yield f"{name}/conv2", (3, 3, inner, inner)
        yield f"{name}/conv3", (1, 1, inner, 4 * inner)
        if name.endswith("/0"):
            yield f"{name}/proj", (1, 1, channels_in, 4 * inner)
    yield "fc", (2048, classes)


def _forward(params: Mapping, stats: Mapping, x: Array) -> tuple[Array, dict]:
    """Return the logits and the updated running statistics."""
    new_stats = {}

    def layer(x: Array, name: str, stride: int = 1) -> Array:
        with jax.named_scope(name):
            kernel = params[name].astype(HALF)
            edge = kernel.shape[0] // 2
            x = jax.lax.conv_general_dilated(
                x,
                kernel,
                window_strides=(stride, stride),
                padding=((edge, edge),) * 2,
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )
        with jax.named_scope(f"norm/{name}"):
            return norm(x, name)

    def norm(x: Array, name: str) -> Array:
        wide = x.astype(jnp.float32)
        mean = jnp.mean(wide, (0, 1, 2))
        variance = jnp.mean(wide**2, (0, 1, 2)) - mean**2
        old = stats[name]
        new_stats[name] = tuple(
            0.9 * a + 0.1 * b for a, b in zip(old, (mean, variance), strict=True)
        )
        scale = params[f"{name}/scale"] * jax.lax.rsqrt(variance + 1e-5)
        shift = params[f"{name}/bias"] - mean * scale
        return (wide * scale + shift).astype(HALF)

    x = nn.max_pool(jax.nn.relu(layer(x, "stem", 2)), (3, 3), (2, 2), "SAME")
    for name, _, stride, _ in _block_plans():
        with jax.named_scope(name.replace("/", "_")):
            y = jax.nn.relu(layer(x, f"{name}/conv1"))
            y = jax.nn.relu(layer(y, f"{name}/conv2", stride))
            y = layer(y, f"{name}/conv3")
            x = layer(x, f"{name}/proj", stride) if name.endswith("/0") else x
            x = jax.nn.relu(x + y)
    x = jnp.mean(x, (1, 2), dtype=jnp.float32)
    return x @ params["fc"] + params["fc/bias"], new_stats


STEPS: Mapping[str, Callable[[int, int, int], Step]] = types.MappingProxyType(
    {"flax": flax, "bare": bare}
)
