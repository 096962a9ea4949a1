"""1, 2 or 8 devices give the same numbers, up to the order of sums."""

import json

import jax
import pytest

from jbias import build
from jbias import config as jc
from jbias.runtime import mesh
from jbias.training import strategies
from tests import cases, smoke_runs

# Strategy and number of devices per seed: devices on the seed axis, on both, on the data axis.
MESHES = (("looped", 1), ("looped", 2), ("looped", 8))
# One device with each weight moved by a unit of rounding: three draws of the signs.
ROUNDED = tuple(("looped", 1, draw) for draw in (1, 2, 3))


def run_on_devices(preset: str, count: int, meshes, change=(), **options) -> list[dict]:
    """Return the output of `tests.strategy_runs` on eight devices of a CPU."""
    meshes = [*map(list, meshes)]
    request = {"preset": preset, "seeds": count, "ways": meshes, "change": dict(change)}
    request |= options
    return smoke_runs.on_eight("tests.strategy_runs", json.dumps(request))


def relative_differences(actual: dict, expected: dict, step: int):
    """Yield the name and relative difference of each number of each seed."""
    for a, b in zip(actual["losses"][step], expected["losses"][step], strict=True):
        for name, value in b.items():
            yield name, 0 if a[name] == value else abs(a[name] / (value or 1e-9) - 1)


def check_equal(preset: str, count: int, meshes, change=()) -> list[dict]:
    """Assert that all meshes give the numbers of the first; return the mesh shapes.

    The order of sums may change a number as much as a unit of rounding in the weights does.
    That can be much: if two values tie, rounding decides which of them has the gradient.
    """
    outputs = run_on_devices(preset, count, [*meshes, *ROUNDED], change)
    first_output, *other_outputs = outputs[: len(meshes)]
    rounded_outputs = outputs[len(meshes) :]
    for step, smallest in enumerate((1e-5, 1e-3)):
        bounds: dict[str, float] = {}  # Over all seeds: any of them may have a tie.
        for draw in rounded_outputs:
            for name, difference in relative_differences(draw, first_output, step):
                bounds[name] = max(bounds.get(name, smallest), difference)
        for mesh_setting, other in zip(meshes[1:], other_outputs, strict=True):
            for name, difference in relative_differences(other, first_output, step):
                largest = 1e-3 if name.startswith("loss") else 0.1  # Even with ties.
                assert difference <= min(bounds[name], largest), (
                    mesh_setting,
                    step,
                    name,
                )
    return [output["mesh"] for output in outputs[: len(meshes)]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "preset", ["padain", pytest.param("sagnet", marks=pytest.mark.slow)]
)
def test_several_devices_give_the_numbers_of_one(preset):
    _, *meshes = check_equal(preset, 2, MESHES)
    assert meshes == [{"seed": 2, "data": 1}, {"seed": 2, "data": 4}]


@pytest.mark.slow
@cases.each(("preset", "count"), [("erm", 1), ("erm", 4), ("padain", 4)])
def test_all_strategies_give_the_numbers_of_one_device(preset, count):
    names = [name for name in strategies.STRATEGIES if name != "threaded"]
    meshes = [("looped", 1), *((name, n) for name in names for n in (1, 2, 8))]
    for mesh_setting, mesh_shape in zip(
        meshes, check_equal(preset, count, meshes), strict=True
    ):
        assert mesh_shape["seed"] == min(count, mesh_setting[1]), mesh_setting


@pytest.mark.slow
def test_seeds_on_separate_devices_communicate_nothing():
    assert run_on_devices("erm", 8, [("looped", 8)], moved=True) == []


@pytest.mark.slow
def test_a_device_holds_only_its_own_seed():
    """The first device also draws the states of all seeds, one after the other."""
    first, *other_counts = run_on_devices("erm", 8, [], held=True)
    assert other_counts == [4] * 7
    assert first <= 3 * 4


@pytest.mark.slow
def test_seeds_on_two_devices_each_move_their_gradients():
    moved = run_on_devices("erm", 4, [("looped", 8)], moved=True)
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
    """Groups of 16 span two of eight devices; then there are no micro-batches."""
    change = {
        "algo.mix_group": 4,
        "train.accumulate": 2 if norm_group == 4 else 1,
        "model.norm_group": norm_group,
    }
    assert check_equal("sagnet", 1, MESHES, change)[-1] == {"seed": 1, "data": 8}


def emulated(devices: int) -> jax.sharding.AbstractMesh:
    return jax.sharding.AbstractMesh((1, devices), ("seed", "data"))


@cases.each("norm_group", [0, 2, 4, 8, 16, 64])
def test_norm_groups_lie_in_a_share_or_span_whole_ones(norm_group):
    mesh.check_batch(64, 4, emulated(8), norm_group=norm_group)


@cases.each(
    ("norm_group", "suggestion"), [(8, "6 or 12"), (32, "24 or 48"), (36, "24 or 48")]
)
def test_refuses_norm_groups_that_cut_a_share(norm_group, suggestion):
    with pytest.raises(
        ValueError, match=f"norm_group: .*, 12, got .*; try {suggestion}$"
    ):
        mesh.check_batch(96, 4, emulated(8), norm_group=norm_group)


def test_a_norm_group_counts_images_for_any_number_of_views():
    config = jc.to_dict(smoke_runs.small())
    assert build.network(config, 5).norm_group == 0
    config["model"]["norm_group"] = 8
    assert build.network(config, 5, 3).norm_group == 24
    (transform,) = build.transforms("inputs", [{"name": "augmix"}])
    assert transform.views == 3
    stage = smoke_runs.stage({**config, "inputs": [{"name": "views", "views": 2}]})
    assert stage.algo.net.norm_group == 16


def test_the_norm_group_is_of_a_runs_identity():
    config = jc.to_dict(smoke_runs.small())
    grouped = {**config, "model": {**config["model"], "norm_group": 8}}
    assert jc.digest(grouped) != jc.digest(config)
    assert jc.diff(config, grouped) == ["model.norm_group: 0 != 8"]
