"""`over_seeds` equals `jax.vmap`, and its programs have no grouped convolutions."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jbias import algos
from jbias.models import resnet
from jbias.runtime import mesh
from jbias.training import convolutions, optim, prng, stages
from tests import cases
from tests.methods import METHODS

SEEDS = 3
CLASSES, SIZE, BATCH, NUM_ROWS = 3, 8, 8, 32
SMALL = {"depths": (1, 1, 1, 1), "bottleneck": False, "width": 4, "stem": "small"}
QUICKLY = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}


def vmap_over_seeds(function):
    """Return `function` mapped over seeds by `jax.vmap`, the reference."""

    def function_of_seeds(states, args, shared, static):
        mapped = jax.vmap(lambda state, arg: function(state, arg, shared, static))
        return mapped(states, args)

    return function_of_seeds


def jit_over_seeds(function, method):
    """Return `function` mapped over seeds and compiled; method: "plain" or "unrolled"."""
    over = vmap_over_seeds if method == "plain" else convolutions.over_seeds
    return jax.jit(over(function), static_argnums=3, compiler_options=QUICKLY)


def max_groups(function, method, *args) -> int:
    """Return the largest group count of the program's convolutions; 0 without any."""
    text = jit_over_seeds(function, method).lower(*args, None).as_text()
    counts = re.findall(r"(?:feature|batch)_group_count = (\d+)", text)
    return max(map(int, counts), default=0)


def assert_near(a, b, rtol=1e-5):
    """Compare the leaves by relative L2 distance, as the order of float32 sums differs."""
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.shape == y.shape
        assert x.dtype == y.dtype
        if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = (np.asarray(leaf, np.float64) for leaf in (x, y))
            assert np.linalg.norm(x - y) <= rtol * np.linalg.norm(y) + 1e-7


def draw_convolution(number: int):
    """Return ((images, kernels), parameters) of a random convolution; number: its seed."""
    rng = np.random.default_rng(number)
    n = int(rng.integers(1, 4))

    def draw_ints(low, high):
        return tuple(map(int, rng.integers(low, high, n)))

    kernel, stride = draw_ints(1, 4), draw_ints(1, 4)
    lhs_dilation, rhs_dilation = draw_ints(1, 3), draw_ints(1, 3)
    padding = tuple(zip(draw_ints(-1, 3), draw_ints(-1, 3), strict=True))
    size, channels = draw_ints(6, 9), rng.integers(1, 4, 3)
    specs = tuple(tuple(map(int, rng.permutation(n + 2))) for _ in range(3))
    images, kernels = (np.zeros(n + 2, int) for _ in range(2))
    images[list(specs[0])] = channels[0], channels[1], *size
    kernels[list(specs[1])] = channels[2], channels[1], *kernel
    arrays = (rng.normal(size=(SEEDS, *shape)) for shape in (images, kernels))
    return tuple(jnp.asarray(array, jnp.float32) for array in arrays), {
        "window_strides": stride,
        "padding": padding,
        "lhs_dilation": lhs_dilation,
        "rhs_dilation": rhs_dilation,
        "dimension_numbers": lax.ConvDimensionNumbers(*specs),
    }


def convolve_with_gradients(image, kernel, **params):
    """Return a convolution and both gradients, for a cotangent that is not constant."""

    def convolve(image, kernel):
        return lax.conv_general_dilated(image, kernel, **params)

    out, pull = jax.vjp(convolve, image, kernel)
    return out, pull(jnp.sin(3 * out))


def convolution_step(**params):
    """Return (state, arg, shared, static) -> a convolution of arg + shared by the state."""

    def step(state, arg, shared, static):
        del static
        return convolve_with_gradients(arg + shared, state, **params)

    return step


@cases.each(
    "number",
    range(8),
    quick=(
        "6",
        "5",
        "7",
    ),
)
def test_any_convolution_and_its_gradients(number):
    (images, kernels), params = draw_convolution(number)
    step = convolution_step(**params)
    args = kernels, images, jnp.float32(0.5)
    expected = jit_over_seeds(step, "plain")(*args, None)
    assert max_groups(step, "plain", *args) == SEEDS
    assert_near(jit_over_seeds(step, "unrolled")(*args, None), expected)
    assert max_groups(step, "unrolled", *args) <= 1


def test_each_seed_has_a_separate_convolution():
    step = convolution_step(
        window_strides=(2, 2),
        padding="SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    args = jnp.ones((SEEDS, 3, 3, 3, 4)), jnp.ones((SEEDS, 2, 12, 12, 3)), 0.0
    text = jit_over_seeds(step, "unrolled").lower(*args, None).as_text()
    # Forward, and the gradients of the image and of the kernel.
    assert text.count("stablehlo.convolution") == 3 * SEEDS


def test_seeds_may_be_divided_among_devices():
    """`over_seeds` works inside `jax.shard_map` with a manual axis; here of one device."""
    (images, kernels), params = draw_convolution(2)
    step = convolution_step(**params)
    by_seed, replicated = jax.P("seed"), jax.P()

    def step_of_device(states, args, shared):
        return convolutions.over_seeds(step)(states, args, shared, None)

    sharded = jax.shard_map(
        step_of_device,
        mesh=mesh.make(1),
        in_specs=(by_seed, by_seed, replicated),
        out_specs=by_seed,
        axis_names={"seed"},
    )
    args = kernels, images, jnp.float32(0.5)
    assert_near(jax.jit(sharded)(*args), jit_over_seeds(step, "plain")(*args, None))


@pytest.mark.parametrize("kind", ["feature_group_count", "batch_group_count"])
def test_a_grouped_convolution_keeps_its_groups(kind):
    image, kernel = jnp.ones((SEEDS, 4, 8, 4)), jnp.ones((SEEDS, 3, 4, 4))
    if kind == "feature_group_count":
        kernel = kernel[:, :, :2]
    step = convolution_step(
        window_strides=(1,),
        padding="SAME",
        dimension_numbers=("NHC", "HIO", "NHC"),
        **{kind: 2},
    )
    args = kernel, image, 0.5
    assert_near(
        jit_over_seeds(step, "unrolled")(*args, None),
        jit_over_seeds(step, "plain")(*args, None),
    )
    assert max_groups(step, "unrolled", *args) == 2


def test_half_precision_sums_in_float32():
    """Sums of bfloat16 would stop at 256, as 256 + 1 is 256 in bfloat16."""
    image = jnp.ones((SEEDS, 1, 4, 4, 256), jnp.bfloat16)
    kernel = jnp.ones((SEEDS, 4, 4, 256, 2), jnp.bfloat16)

    def step(state, arg, shared, static):
        del shared, static
        kinds = (None, lax.Precision.DEFAULT), (jnp.float32, lax.Precision.HIGHEST)
        return [
            lax.conv_general_dilated(
                arg,
                state,
                (1, 1),
                "VALID",
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
                preferred_element_type=kind,
                precision=precision,
            )
            for kind, precision in kinds
        ]

    half, single = jit_over_seeds(step, "unrolled")(kernel, image, None, None)
    assert (half.dtype, single.dtype) == (jnp.bfloat16, jnp.float32)
    assert np.all(np.asarray(half, float) == 4096)
    assert np.all(single == 4096)
    text = jit_over_seeds(step, "unrolled").lower(kernel, image, None, None).as_text()
    assert "HIGHEST" in text


def nested(kind, f, x, flag):
    """Return f(x), computed inside a nested jaxpr of some kind; `flag` is True."""

    @jax.custom_jvp
    def forward(x):
        return f(x)

    @jax.custom_vjp
    def reverse(x):
        return f(x)

    forward.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
    reverse.defvjp(lambda x: (f(x), None), lambda _, g: (g,))
    return {
        "jit": lambda: jax.jit(f)(x),
        "custom_jvp": lambda: forward(x),
        "custom_vjp": lambda: reverse(x),
        "remat": lambda: jax.checkpoint(f)(x),
        "cond": lambda: lax.cond(flag, f, lambda x: x, x),
        "switch": lambda: lax.switch(flag.astype(int), [jnp.sin, jax.jit(f)], x),
        "while": lambda: lax.fori_loop(0, jnp.where(flag, 2, 1), lambda _, x: f(x), x),
        "scan": lambda: lax.scan(lambda x, _: (f(x), x.sum()), x, length=2),
    }[kind]()


@pytest.mark.slow
@cases.each(
    "kind",
    ["jit", "custom_jvp", "custom_vjp", "remat", "cond", "switch", "while", "scan"],
)
def test_convolutions_in_nested_jaxprs_are_replaced(kind):
    image = jax.random.normal(jax.random.key(0), (SEEDS, 2, 6, 3))
    kernel = jax.random.normal(jax.random.key(1), (SEEDS, 3, 3, 3))
    layout = ("NHC", "HIO", "NHC")

    def step(state, arg, shared, static):
        def f(x):
            return lax.conv_general_dilated(
                x, state, (1,), "SAME", dimension_numbers=layout
            )

        return nested(kind, f, arg, shared if static == "together" else arg.sum() < 9e9)

    for static in ("together", "apart"):
        args = kernel, image, jnp.asarray(True), static
        program = jit_over_seeds(step, "unrolled").lower(*args).as_text()
        grouped = f"group_count = {SEEDS}"
        assert "stablehlo.convolution" in program and grouped not in program
        assert grouped in jit_over_seeds(step, "plain").lower(*args).as_text()
        assert_near(
            jit_over_seeds(step, "unrolled")(*args),
            jit_over_seeds(step, "plain")(*args),
        )
        if kind == "cond":
            assert ("stablehlo.case" in program) == (static == "together")


@pytest.mark.slow
def test_outputs_have_the_structure_of_vmap():
    """Random keys are allowed, and outputs that do not depend on the seed have a seed axis."""

    def step(state, arg, shared, static):
        assert static == ("any", "thing")
        out = convolve_with_gradients(
            arg["x"], state, window_strides=(1,), padding="SAME"
        )
        split = jax.random.split(arg["key"])
        noise = jax.random.normal(split[0], out[0].shape)
        return {"out": (out, None), "key": split, "n": noise, "same": shared["a"]}

    keys = jax.vmap(jax.random.key)(jnp.arange(SEEDS))
    arg = {"x": jnp.ones((SEEDS, 2, 3, 6), jnp.bfloat16), "key": keys}
    args = jnp.ones((SEEDS, 4, 3, 3), jnp.bfloat16), arg, {"a": 1.0}, ("any", "thing")
    a, b = (jit_over_seeds(step, method)(*args) for method in ("unrolled", "plain"))
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert a["same"].shape == (SEEDS,)
    assert_near(a, b, rtol=1e-2)
    assert_near(jax.random.key_data(a["key"]), jax.random.key_data(b["key"]), rtol=0)


STRONG = {"padain": {"mix_group": 4, "p": 0.5}}


@functools.cache
def step_of(name: str):
    """Return an algorithm's step, static argument, states, arguments and shared rows."""
    net = resnet.ResNet(CLASSES, **SMALL)
    algo = algos.ALGOS[name](net, **{**METHODS[name].strong, **STRONG.get(name, {})})
    sgd = optim.sgd(optim.constant(0.1, 1), momentum=0.9, decay=1e-3)
    txs = (sgd,) * len(algo.updates)
    step = stages.make_seed_step(algo, lambda _: txs, (), CLASSES)
    draw = jax.jit(
        stages.make_initialiser(algo, txs, shape=(SIZE, SIZE), first=0),
        compiler_options=QUICKLY,
    )
    states = [draw(prng.key(seed), None) for seed in range(SEEDS)]
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (NUM_ROWS, SIZE, SIZE, 3), np.uint8)
    rows = {"image": image, "label": rng.integers(0, CLASSES, NUM_ROWS, np.int32)}
    args = [
        [
            (prng.key(seed), {"train": rng.permutation(NUM_ROWS)[:BATCH]})
            for _ in range(2)
        ]
        for seed in range(SEEDS)
    ]
    return step, algo.static(0, 10), states, args, {"train": rows}


@functools.cache
def train_separately(name: str):
    """Return the state and last metrics of each seed after two steps without other seeds."""
    step, static, states, args, shared = step_of(name)
    program = jax.jit(step, static_argnums=3, compiler_options=QUICKLY)
    ends = []
    for state, steps in zip(states, args, strict=True):
        for arg in steps:
            state, metrics = program(state, arg, shared, static)
        ends.append((state, metrics))
    return ends


@pytest.mark.slow
@cases.each(
    "name",
    [
        "erm",
        "pgd",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("padain", "sagnet")),
    ],
)
def test_a_training_step_of_all_seeds_equals_steps_of_single_seeds(name):
    """After two steps; 1e-4 relative is about a hundred roundings, as for a step of vmap."""
    step, static, states, args, shared = step_of(name)
    step_of_seeds = jit_over_seeds(step, "unrolled")
    state = stack(states)
    for step_args in zip(*args, strict=True):
        state, metrics = step_of_seeds(state, stack(step_args), shared, static)
    assert_near((state, metrics), stack(train_separately(name)), rtol=1e-4)


def stack(trees):
    """Return one tree whose leaves have a leading axis over the given trees."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
