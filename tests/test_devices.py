"""The device law: 1, 2 or 8 devices give the same numbers, up to the order of sums."""

import json
import os
import subprocess
import sys

import pytest

from jbias import mesh, seeds
from tests import runs

# On the seed axis alone, on both axes, and on that of the examples alone.
WAYS = (("looped", 1), ("looped", 2), ("looped", 8))


def losses(preset: str, count: int, ways) -> list[dict]:
    """What `tests.strategies` found on eight devices of a CPU."""
    asked = {"preset": preset, "seeds": count, "ways": ways}
    flags = "--xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "-m", "tests.strategies", json.dumps(asked)],
        cwd=runs.ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def alike(one: dict, other: dict) -> None:
    """The order of sums at first; then a step of rate 0.1 has magnified it."""
    for a, b, rel in zip(one["losses"], other["losses"], (1e-5, 1e-3), strict=True):
        for seed, found in zip(a, b, strict=True):
            assert seed == pytest.approx(found, rel=rel)


@pytest.mark.parametrize("preset", ["padain", "sagnet"])
def test_devices_give_what_one_gives(preset):
    one, *others = losses(preset, 2, WAYS)
    assert [found["mesh"] for found in others] == [
        {"seed": 2, "data": 1},
        {"seed": 2, "data": 4},
    ]
    for other in others:
        alike(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("preset", ["erm", "padain", "sagnet"])
def test_every_strategy_on_devices_gives_what_one_gives(preset, count):
    names = [name for name in seeds.STRATEGIES if name != "threaded"]
    ways = [("looped", 1), *((name, n) for name in names for n in (1, 2, 8))]
    one, *others = losses(preset, count, ways)
    for way, other in zip(ways[1:], others, strict=True):
        spread = other["mesh"]["seed"]
        assert spread == min(count, way[1]), way
        alike(one, other)


def test_shares_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="run.spread: must divide 1, as 3 seeds on 1"):
        mesh.make(1, seeds=3, spread=2)
