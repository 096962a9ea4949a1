"""The device law: 1, 2 or 8 devices give the same numbers, up to the order of sums."""

import json

import jax
import pytest

from jbias import build
from jbias import config as jc
from jbias.runtime import mesh
from jbias.training import seed_axis
from tests import cases, smoke_runs

# On the seed axis alone, on both axes, and on that of the examples alone.
WAYS = (("looped", 1), ("looped", 2), ("looped", 8))
# One device again, each weight moved by a unit of rounding: three draws of their signs.
ROUNDED = tuple(("looped", 1, draw) for draw in (1, 2, 3))


def losses(preset: str, count: int, ways, change=(), **more) -> list[dict]:
    """What `tests.strategy_runs` found on eight devices of a CPU."""
    ways = [*map(list, ways)]
    asked = {"preset": preset, "seeds": count, "ways": ways, "change": dict(change)}
    asked |= more
    return smoke_runs.on_eight("tests.strategy_runs", json.dumps(asked))


def apart(one: dict, other: dict, step: int):
    """By how much each number of each seed differs, of the other."""
    for a, b in zip(one["losses"][step], other["losses"][step], strict=True):
        for name, value in b.items():
            yield name, 0 if a[name] == value else abs(a[name] / (value or 1e-9) - 1)


def check_alike(preset: str, count: int, ways, change=()) -> list[dict]:
    """The meshes of all ways, whose numbers are the first's but for the order of sums.

    That moves them by no more than a unit of rounding in the weights does, which can be much:
    where two values tie, it decides which of them has the gradient.
    """
    found = losses(preset, count, [*ways, *ROUNDED], change)
    (one, *others), rounded = found[: len(ways)], found[len(ways) :]
    for step, least in enumerate((1e-5, 1e-3)):
        bounds: dict[str, float] = {}  # Of any seed: the tie may be another's.
        for draw in rounded:
            for name, off in apart(draw, one, step):
                bounds[name] = max(bounds.get(name, least), off)
        for way, other in zip(ways[1:], others, strict=True):
            for name, off in apart(other, one, step):
                most = 1e-3 if name.startswith("loss") else 0.1  # Whatever ties.
                assert off <= min(bounds[name], most), (way, step, name)
    return [of["mesh"] for of in found[: len(ways)]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "preset", ["padain", pytest.param("sagnet", marks=pytest.mark.slow)]
)
def test_devices_give_what_one_gives(preset):
    _, *meshes = check_alike(preset, 2, WAYS)
    assert meshes == [{"seed": 2, "data": 1}, {"seed": 2, "data": 4}]


@pytest.mark.slow
@cases.each(("preset", "count"), [("erm", 1), ("erm", 4), ("padain", 4)])
def test_every_strategy_on_devices_gives_what_one_gives(preset, count):
    names = [name for name in seed_axis.STRATEGIES if name != "threaded"]
    ways = [("looped", 1), *((name, n) for name in names for n in (1, 2, 8))]
    for way, found in zip(ways, check_alike(preset, count, ways), strict=True):
        assert found["seed"] == min(count, way[1]), way


@pytest.mark.slow
def test_seeds_on_devices_of_their_own_move_nothing():
    assert losses("erm", 8, [("looped", 8)], moved=True) == []


@pytest.mark.slow
def test_a_device_holds_its_own_seed_alone():
    """Besides, the first draws them, one after the other."""
    first, *others = losses("erm", 8, [], held=True)
    assert others == [4] * 7
    assert first <= 3 * 4


@pytest.mark.slow
def test_seeds_on_two_devices_each_move_their_gradients():
    moved = losses("erm", 4, [("looped", 8)], moved=True)
    assert {kind for kind, *_ in moved} == {"all-reduce"}


def test_shares_that_do_not_divide_are_refused():
    with pytest.raises(
        ValueError, match="run.spread: must divide 1, the greatest common divisor of 3 "
    ):
        mesh.make(1, seeds=3, spread=2)


def test_fewer_seeds_together_than_shares_are_refused():
    with pytest.raises(ValueError, match="run.together: must be 0 or at least .*, 2,"):
        mesh.make(1, seeds=2, spread=2, together=1)


@pytest.mark.slow
@pytest.mark.parametrize("norm_group", [4, 16])
def test_groups_and_micro_batches_are_the_same_on_any_number(norm_group):
    """Groups of 16 span two of eight devices, and the batch is not cut then."""
    change = {
        "algo.mix_group": 4,
        "train.accumulate": 2 if norm_group == 4 else 1,
        "model.norm_group": norm_group,
    }
    assert check_alike("sagnet", 1, WAYS, change)[-1] == {"seed": 1, "data": 8}


def emulated(devices: int) -> jax.sharding.AbstractMesh:
    return jax.sharding.AbstractMesh((1, devices), ("seed", "data"))


@cases.each("norm_group", [0, 2, 4, 8, 16, 64])
def test_norm_groups_lie_in_a_share_or_span_whole_ones(norm_group):
    mesh.check_batch(64, 4, emulated(8), norm_group=norm_group)


@cases.each(
    ("norm_group", "near"), [(8, "6 or 12"), (32, "24 or 48"), (36, "24 or 48")]
)
def test_refuses_norm_groups_that_cut_a_share(norm_group, near):
    with pytest.raises(ValueError, match=f"norm_group: .*, 12, got .*; try {near}$"):
        mesh.check_batch(96, 4, emulated(8), norm_group=norm_group)


def test_a_norm_group_counts_images_whatever_the_views():
    config = jc.to_dict(smoke_runs.small())
    assert build.network(config, 5).norm_group == 0
    config["model"]["norm_group"] = 8
    assert build.network(config, 5, 3).norm_group == 24
    (made,) = build.transforms("inputs", [{"name": "augmix"}])
    assert made.views == 3
    stage = smoke_runs.stage({**config, "inputs": [{"name": "views", "views": 2}]})
    assert stage.algo.net.norm_group == 16


def test_the_norm_group_is_of_a_runs_identity():
    config = jc.to_dict(smoke_runs.small())
    grouped = {**config, "model": {**config["model"], "norm_group": 8}}
    assert jc.digest(grouped) != jc.digest(config)
    assert jc.diff(config, grouped) == ["model.norm_group: 0 != 8"]
