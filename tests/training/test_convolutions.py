"""Vectorising over seeds by hand equals `jax.vmap`, with no convolution in groups."""

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
CLASSES, SIZE, BATCH, HELD = 3, 8, 8, 32
SMALL = {"depths": (1, 1, 1, 1), "bottleneck": False, "width": 4, "stem": "small"}
QUICKLY = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}


def plainly(one):
    """What is compared with: `jax.vmap` alone."""

    def many(states, args, shared, static):
        each = jax.vmap(lambda state, arg: one(state, arg, shared, static))
        return each(states, args)

    return many


def mapped(one, how):
    over = plainly if how == "plain" else convolutions.over_seeds
    return jax.jit(over(one), static_argnums=3, compiler_options=QUICKLY)


def groups(one, how, *args) -> int:
    """The most groups of any convolution of the program; 0 where there is none."""
    text = mapped(one, how).lower(*args, None).as_text()
    found = re.findall(r"(?:feature|batch)_group_count = (\d+)", text)
    return max(map(int, found), default=0)


def near(a, b, rtol=1e-5):
    """Leaf by leaf in relative L2 distance: other orders of float32 sums."""
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.shape == y.shape
        assert x.dtype == y.dtype
        if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = (np.asarray(leaf, np.float64) for leaf in (x, y))
            assert np.linalg.norm(x - y) <= rtol * np.linalg.norm(y) + 1e-7


def drawn(number: int):
    """A convolution with whatever it may have: ((images, kernels), its parameters)."""
    rng = np.random.default_rng(number)
    n = int(rng.integers(1, 4))

    def some(low, high):
        return tuple(map(int, rng.integers(low, high, n)))

    kernel, stride, near, far = some(1, 4), some(1, 4), some(1, 3), some(1, 3)
    padding = tuple(zip(some(-1, 3), some(-1, 3), strict=True))
    size, channels = some(6, 9), rng.integers(1, 4, 3)
    specs = tuple(tuple(map(int, rng.permutation(n + 2))) for _ in range(3))
    images, kernels = (np.zeros(n + 2, int) for _ in range(2))
    images[list(specs[0])] = channels[0], channels[1], *size
    kernels[list(specs[1])] = channels[2], channels[1], *kernel
    arrays = (rng.normal(size=(SEEDS, *shape)) for shape in (images, kernels))
    return tuple(jnp.asarray(array, jnp.float32) for array in arrays), {
        "window_strides": stride,
        "padding": padding,
        "lhs_dilation": near,
        "rhs_dilation": far,
        "dimension_numbers": lax.ConvDimensionNumbers(*specs),
    }


def convolved(image, kernel, **params):
    """A convolution and both its gradients, the cotangent not constant."""
    both = functools.partial(lax.conv_general_dilated, **params)
    out, pull = jax.vjp(both, image, kernel)
    return out, pull(jnp.sin(3 * out))


def of_both(state, arg, shared, static, **params):
    del static
    return convolved(arg + shared, state, **params)


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
    (images, kernels), params = drawn(number)
    one = functools.partial(of_both, **params)
    args = kernels, images, jnp.float32(0.5)
    expected = mapped(one, "plain")(*args, None)
    assert groups(one, "plain", *args) == SEEDS
    near(mapped(one, "unrolled")(*args, None), expected)
    assert groups(one, "unrolled", *args) <= 1


def test_each_seed_has_a_convolution_of_its_own():
    one = functools.partial(
        of_both,
        window_strides=(2, 2),
        padding="SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    args = jnp.ones((SEEDS, 3, 3, 3, 4)), jnp.ones((SEEDS, 2, 12, 12, 3)), 0.0
    text = mapped(one, "unrolled").lower(*args, None).as_text()
    # Forward, and the gradients of the image and of the kernel.
    assert text.count("stablehlo.convolution") == 3 * SEEDS


def test_seeds_may_be_shared_out_among_devices():
    """As a manual axis of `jax.shard_map`; here of the one device there is."""
    (images, kernels), params = drawn(2)
    one = functools.partial(of_both, **params)
    seed, whole = jax.P("seed"), jax.P()

    def part(states, args, shared):
        return convolutions.over_seeds(one)(states, args, shared, None)

    over = jax.shard_map(
        part,
        mesh=mesh.make(1),
        in_specs=(seed, seed, whole),
        out_specs=seed,
        axis_names={"seed"},
    )
    args = kernels, images, jnp.float32(0.5)
    near(jax.jit(over)(*args), mapped(one, "plain")(*args, None))


@pytest.mark.parametrize("kind", ["feature_group_count", "batch_group_count"])
def test_groups_of_its_own_stay(kind):
    image, kernel = jnp.ones((SEEDS, 4, 8, 4)), jnp.ones((SEEDS, 3, 4, 4))
    if kind == "feature_group_count":
        kernel = kernel[:, :, :2]
    one = functools.partial(
        of_both,
        window_strides=(1,),
        padding="SAME",
        dimension_numbers=("NHC", "HIO", "NHC"),
        **{kind: 2},
    )
    args = kernel, image, 0.5
    near(mapped(one, "unrolled")(*args, None), mapped(one, "plain")(*args, None))
    assert groups(one, "unrolled", *args) == 2


def test_half_precision_sums_in_float32():
    """In bfloat16, 256 + 1 is 256: a sum of 4096 ones would end there."""
    image = jnp.ones((SEEDS, 1, 4, 4, 256), jnp.bfloat16)
    kernel = jnp.ones((SEEDS, 4, 4, 256, 2), jnp.bfloat16)

    def one(state, arg, shared, static):
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

    half, whole = mapped(one, "unrolled")(kernel, image, None, None)
    assert (half.dtype, whole.dtype) == (jnp.bfloat16, jnp.float32)
    assert np.all(np.asarray(half, float) == 4096)
    assert np.all(whole == 4096)
    text = mapped(one, "unrolled").lower(kernel, image, None, None).as_text()
    assert "HIGHEST" in text


def nested(kind, f, x, flag):
    """f(x) inside a function that jax traces apart; `flag` is True."""

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
def test_convolutions_are_found_wherever_they_lie(kind):
    image = jax.random.normal(jax.random.key(0), (SEEDS, 2, 6, 3))
    kernel = jax.random.normal(jax.random.key(1), (SEEDS, 3, 3, 3))
    layout = ("NHC", "HIO", "NHC")

    def one(state, arg, shared, static):
        def f(x):
            return lax.conv_general_dilated(
                x, state, (1,), "SAME", dimension_numbers=layout
            )

        return nested(kind, f, arg, shared if static == "together" else arg.sum() < 9e9)

    for static in ("together", "apart"):
        args = kernel, image, jnp.asarray(True), static
        program = mapped(one, "unrolled").lower(*args).as_text()
        grouped = f"group_count = {SEEDS}"
        assert "stablehlo.convolution" in program and grouped not in program
        assert grouped in mapped(one, "plain").lower(*args).as_text()
        near(mapped(one, "unrolled")(*args), mapped(one, "plain")(*args))
        if kind == "cond":
            assert ("stablehlo.case" in program) == (static == "together")


@pytest.mark.slow
def test_outputs_have_the_structure_of_vmap():
    """Keys go in and out, and what no seed changes has a seed axis all the same."""

    def one(state, arg, shared, static):
        assert static == ("any", "thing")
        out = convolved(arg["x"], state, window_strides=(1,), padding="SAME")
        split = jax.random.split(arg["key"])
        noise = jax.random.normal(split[0], out[0].shape)
        return {"out": (out, None), "key": split, "n": noise, "same": shared["a"]}

    keys = jax.vmap(jax.random.key)(jnp.arange(SEEDS))
    arg = {"x": jnp.ones((SEEDS, 2, 3, 6), jnp.bfloat16), "key": keys}
    args = jnp.ones((SEEDS, 4, 3, 3), jnp.bfloat16), arg, {"a": 1.0}, ("any", "thing")
    a, b = (mapped(one, how)(*args) for how in ("unrolled", "plain"))
    assert jax.tree.structure(a) == jax.tree.structure(b)
    assert a["same"].shape == (SEEDS,)
    near(a, b, rtol=1e-2)
    near(jax.random.key_data(a["key"]), jax.random.key_data(b["key"]), rtol=0)


STRONG = {"padain": {"mix_group": 4, "p": 0.5}}


@functools.cache
def step_of(name: str):
    """A whole step of an algorithm: (one, its static, states, args, held)."""
    net = resnet.ResNet(CLASSES, **SMALL)
    algo = algos.ALGOS[name](net, **{**METHODS[name].strong, **STRONG.get(name, {})})
    sgd = optim.sgd(optim.constant(0.1, 1), momentum=0.9, decay=1e-3)
    txs = (sgd,) * len(algo.updates)
    one = stages.make_seed_step(algo, lambda _: txs, (), CLASSES)
    draw = jax.jit(
        stages.make_initialiser(algo, txs, shape=(SIZE, SIZE), first=0, average=0.0),
        compiler_options=QUICKLY,
    )
    states = [draw(prng.key(seed), None) for seed in range(SEEDS)]
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (HELD, SIZE, SIZE, 3), np.uint8)
    held = {"image": image, "label": rng.integers(0, CLASSES, HELD, np.int32)}
    args = [
        [(prng.key(seed), {"train": rng.permutation(HELD)[:BATCH]}) for _ in range(2)]
        for seed in range(SEEDS)
    ]
    return one, algo.static(0, 10), states, args, {"train": held}


@functools.cache
def alone(name: str):
    """The states and last metrics of each seed after two steps of its own."""
    one, static, states, args, held = step_of(name)
    program = jax.jit(one, static_argnums=3, compiler_options=QUICKLY)
    ends = []
    for state, steps in zip(states, args, strict=True):
        for arg in steps:
            state, metrics = program(state, arg, held, static)
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
def test_a_whole_step_equals_lone_steps(name):
    """Two steps; 1e-4 relative is some hundred roundings, as for one step of vmap."""
    one, static, states, args, held = step_of(name)
    stacked = functools.partial(jax.tree.map, lambda *leaves: jnp.stack(leaves))
    many = mapped(one, "unrolled")
    state = stacked(*states)
    for step in zip(*args, strict=True):
        state, metrics = many(state, stacked(*step), held, static)
    near((state, metrics), stacked(*alone(name)), rtol=1e-4)
