"""The seed law: a seed trained with others gives what it gives alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import build, seeds
from jbias import config as jc
from tests import runs

STEPS = 4


@pytest.fixture(scope="module", params=["erm", "padain", "sagnet"])
def stage(request):
    """A stage of that algorithm, its gates open often enough to be seen."""
    config = runs.small(request.param)
    if request.param == "padain":
        config.algo.p = 0.3
    config = jc.plain(config)
    assert config["inputs"]
    return runs.stage(config)


def train(stage, which: tuple[int, ...], strategy: str) -> tuple:
    """The states of these seeds after a few steps."""
    advance = seeds.stepper(stage.one, strategy)
    states = tuple(build.start(stage, seed) for seed in which)
    args = [
        tuple((seeds.key(s), stage.take(s, step)) for s in which)
        for step in range(STEPS)
    ]
    states, seen = advance(states, args, stage.held(stage.first), None)
    assert len(seen) == STEPS
    assert {len(metrics) for metrics in seen} == {len(which)}
    return states


@pytest.fixture(scope="module")
def together(stage):
    return train(stage, (0, 1, 2), "unrolled")


def test_three_in_company_equal_each_alone_to_the_bit(stage, together):
    for seed, state in enumerate(together):
        (alone,) = train(stage, (seed,), "unrolled")
        jax.tree.map(np.testing.assert_array_equal, state, alone)


def test_seeds_differ(together):
    a, b, c = (np.asarray(s.params["net"]["fc"]["kernel"]) for s in together)
    assert not np.allclose(a, b, atol=1e-3)
    assert not np.allclose(b, c, atol=1e-3)


@pytest.mark.parametrize("strategy", ["looped", "threaded"])
def test_one_program_dispatched_for_each_seed_is_alone(stage, together, strategy):
    """To the bit, however it is dispatched."""
    for state, other in zip(train(stage, (0, 1, 2), strategy), together, strict=True):
        jax.tree.map(np.testing.assert_array_equal, state, other)


def difference(one, many, state, args, data) -> float:
    """Largest relative L2 distance over the leaves after one step each way."""
    ((a, _),) = many((state,), (args,), data, None)
    b, _ = jax.jit(one, static_argnums=3)(state, args, data, None)
    norms = jax.tree.map(
        lambda x, y: (
            float(jnp.linalg.norm(jnp.ravel(x - y)))
            / (1e-6 + float(jnp.linalg.norm(jnp.ravel(y).astype(jnp.float32))))
        ),
        a.params,
        b.params,
    )
    return max(jax.tree.leaves(norms))


def test_vmapped_is_near_over_the_first_step(stage):
    """Other fusions of float32 sums: 1e-4 relative is some hundred roundings."""
    state = build.start(stage, 0)
    args = (seeds.key(0), stage.take(0, 0))
    many = seeds.over(stage.one, "vmapped")
    assert difference(stage.one, many, state, args, stage.held(stage.first)) < 1e-4


def test_streams_are_apart_and_of_their_name_alone():
    key = seeds.key(3)
    draws = [
        float(jax.random.uniform(seeds.stream(key, name)))
        for name in ("init", "order", "augment", "algorithm", "net", "style")
    ]
    assert len(set(draws)) == len(draws)
    again = seeds.stream(seeds.key(3), "order")
    assert float(jax.random.uniform(again)) == draws[1]


def test_unknown_strategy_is_refused():
    with pytest.raises(ValueError, match="must be one of auto, unrolled"):
        seeds.over(lambda *args: args, "magic")


def test_auto_depends_on_the_backend():
    assert seeds.strategy_for("cpu") == "threaded"
    assert seeds.strategy_for("gpu") == "looped"
