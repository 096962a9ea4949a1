"""How many seeds are on the devices at once: what they need, and what there is."""

import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import config as jc
from jbias import models
from jbias.configs import erm
from jbias.runs import workdirs
from jbias.runtime import mesh
from jbias.training import input_pipeline, memory, prng, seed_axis, setup, stages
from tests import cases

NEED = memory.Need(state=10, work=100)


def test_what_seeds_need_one_by_one(monkeypatch):
    monkeypatch.setattr(seed_axis, "thread_count", lambda count: min(count, 3))
    assert NEED.times(8, seed_axis.STRATEGIES["looped"]) == 80 + 100
    assert NEED.times(8, seed_axis.STRATEGIES["threaded"]) == 80 + 300


@cases.each("room", [1000, 1009, 1010, 1039, 1079, 1080, 9999])
def test_the_most_that_fit_are_found_with_few_guesses(room):
    asked = []

    def needed(count):
        asked.append(count)
        return 1000 + 10 * count

    fits = [count for count in range(1, 9) if needed(count) <= room]
    asked.clear()
    assert memory.largest_fitting(needed, 8, room) == max(fits, default=0)
    assert len(asked) <= 8


def test_remedies_are_there_to_be_taken():
    """Entries of every preset, and a field of the networks that are named."""
    preset = jc.to_dict(erm.get_config(""))
    named = re.findall(r"--config\.(\w+)\.(\w+)", memory._REMEDIES)
    assert named and all(key in preset[part] for part, key in named)
    assert "model.remat=True in a config of your own" in memory._REMEDIES
    for name in ("resnet18", "vit_small16"):
        assert models.MODELS[name](10, remat=True).remat


def test_a_machine_says_what_it_has_left():
    assert memory.free_bytes(mesh.make(1), 2.0) == 2**31
    assert memory.free_bytes(mesh.make(1)) > 2**20


def machine(folder, group: dict[str, str]) -> int | None:
    """What is left on a machine with 100 KiB, in a container with these files."""
    (folder / "meminfo").write_text("MemTotal: 900 kB\nMemAvailable: 100 kB\n")
    for name, text in group.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return memory._free_host_bytes(folder / "meminfo", folder)


def test_a_container_leaves_less_but_its_files_can_go(tmp_path):
    assert machine(tmp_path, {}) == 102400
    new = {
        "memory.max": "9000\n",
        "memory.current": "8000\n",
        "memory.stat": "anon 10\ninactive_file 3000\n",
    }
    assert machine(tmp_path, new) == 4000
    assert machine(tmp_path, {"memory.max": "max\n"}) == 102400
    old = {
        "memory/memory.limit_in_bytes": "9000\n",
        "memory/memory.usage_in_bytes": "7000\n",
        "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 500\n",
    }
    assert machine(tmp_path, old) == 2500
    old = {"memory/memory.limit_in_bytes": "9223372036854771712\n"}
    assert machine(tmp_path, old) == 102400


def fed(length: int, **feeds) -> types.SimpleNamespace:
    """All that is asked of a stage when its sets are counted."""
    return types.SimpleNamespace(
        first=0, last=length, pipelines=feeds, members=range(4)
    )


def given(stage, state: tuple[int, ...] = ()) -> stages.StepShapes:
    """What a step of such a stage is given, with a state of that shape."""
    fed = {name: one.shapes() for name, one in stage.pipelines.items()}
    return stages.StepShapes(
        jax.ShapeDtypeStruct(state, jnp.float32),
        jax.eval_shape(lambda: prng.key(0)),
        {name: taken for name, (taken, _) in fed.items()},
        {name: held for name, (_, held) in fed.items()},
        None,
    )


def resident(count: int) -> input_pipeline.ResidentInput:
    order = types.SimpleNamespace(batch=2)
    return input_pipeline.ResidentInput(order, {"image": np.zeros(count, np.uint8)})


def streamed(window: int, until: int, batch: int = 0) -> types.SimpleNamespace:
    shapes = (np.zeros(batch, np.uint8), np.zeros(window, np.uint8))
    return types.SimpleNamespace(
        streams=True, shapes=lambda: shapes, next_change=lambda step: until
    )


def test_sets_stay_windows_come_in_pairs():
    stage = fed(9, train=resident(10), other=streamed(100, until=4))
    assert memory.input_bytes(stage, trained=stage) == 210
    assert memory.input_bytes(stage, trained=None) == 10
    lasting = fed(9, train=streamed(100, until=9))
    assert memory.input_bytes(lasting, trained=lasting) == 100


RUN = {"together": 0, "spread": 0, "devices": 0, "memory": 0.0} | {
    "strategy": "looped",
    "steps_per_dispatch": 3,
}


def test_batches_of_all_seeds_for_two_dispatches_are_counted(monkeypatch):
    monkeypatch.setattr(memory, "step_need", lambda *args: memory.Need(10, 100))
    stage = fed(9, train=streamed(0, until=99, batch=1000))
    stage.program, stage.shapes = stages.SeedProgram(*(None,) * 4), given(stage)
    for together in (0, 4):
        run = {**RUN, "together": together}
        found = memory.fit([stage], stage, mesh.make(1), run, 1)
        assert found.needed == 2 * 3 * 4 * 1000 + 4 * 10 + 100


def test_seeds_side_by_side_are_counted_by_their_own_program():
    """Four seeds as one tree work at the same time; looped ones have one's memory."""
    stage = fed(9)
    stage.program = stages.SeedProgram(
        None,
        lambda state, arg, held, static: (jnp.tanh(state @ state) @ state, ()),
        None,
        None,
    )
    stage.shapes = given(stage, (256, 256))
    size = 4 * 256 * 256

    def found(strategy, free):
        run = {**RUN, "strategy": strategy}
        return memory.fit([stage], stage, mesh.make(1), run, free)

    looped = found("looped", 10**9)
    assert 5 * size <= looped.needed < 7 * size
    stacked = found("vmapped", 10**9)
    assert stacked.count == 4
    assert 8 * size <= stacked.needed < 13 * size
    assert found("vmapped", stacked.needed - 1).count == 3
    assert found("vmapped", size).count == 0


def test_seeds_are_asked_for_in_whole_shares():
    stage = fed(9)
    two = types.SimpleNamespace(shape={"seed": 2, "data": 1}, size=2)
    run = {**RUN, "together": 3}
    assert memory.fit([stage], stage, two, run, None)[:2] == (2, 2)


def laid_out(monkeypatch, *, fitting=(), refusing=(), platform="gpu", **run):
    """Lays eight seeds out on eight devices; returns shares, seeds at once, words.

    One seed a device fits where they are spread over `fitting` shares; the batch cannot
    be shared out where over `refusing`. The run's sets take 300 of 1000 bytes.
    """
    used, said = [0], []
    device = types.SimpleNamespace(
        platform=platform,
        device_kind="Some GPU",
        memory_stats=lambda: {"bytes_limit": 1000, "bytes_in_use": used[0]},
    )

    def on(count, seeds, spread, together=0, devices=()):
        del count, seeds, together, devices
        return types.SimpleNamespace(
            shape={"seed": spread or 8},
            size=8,
            devices=np.array([device] * 8),
            local_devices=[device],
        )

    def make(devices):
        used[0] = 300
        if devices.shape["seed"] in refusing:
            raise ValueError("config.train.batch: must be another")
        return [types.SimpleNamespace(members=range(8))]

    def fit(stages, stage, devices, run, free):
        assert free == 900
        spread = devices.shape["seed"]
        return memory.Fit(spread * (spread in fitting), 8, 9999, 7777)

    monkeypatch.setattr(mesh, "make", on)
    monkeypatch.setattr(memory, "fit", fit)
    monkeypatch.setattr(stages, "fit_to_devices", lambda *args, **options: options)
    run = {**RUN, **run}
    placed = memory.fit_stages(make, 8, run, said.append)
    (laid,) = placed.lay_out(run["strategy"], said.append)
    return placed.devices.shape["seed"], laid["together"], " ".join(said)


def test_fewer_shares_are_tried_before_a_run_is_refused(monkeypatch):
    shares, together, said = laid_out(monkeypatch, fitting=(2, 1), refusing=(4,))
    assert (shares, together) == (2, 2)
    assert "seeds spread over 2 shares of the devices, not 8" in said
    assert "8 seeds on 8 x Some GPU: 2 share(s)" in said
    assert laid_out(monkeypatch, fitting=(8, 4))[:2] == (8, 8)


def test_what_is_refused_names_remedies(monkeypatch):
    with pytest.raises(ValueError, match="take --config.train.accumulate=2, "):
        laid_out(monkeypatch)
    with pytest.raises(ValueError, match="take --config.run.spread=1, --config.train"):
        laid_out(monkeypatch, fitting=(1,), spread=8)
    with pytest.raises(ValueError, match="^config.train.batch"):
        laid_out(monkeypatch, refusing=(8,))


def test_a_guess_of_what_a_cpu_has_left_refuses_nothing(monkeypatch):
    shares, together, said = laid_out(monkeypatch, platform="cpu")
    assert (shares, together) == (8, 8)
    assert "one at a time is tried" in said
    monkeypatch.setattr(memory, "free_bytes", lambda *args: 900)
    with pytest.raises(ValueError, match="memory: one seed needs"):
        laid_out(monkeypatch, platform="cpu", memory=1.0)


def test_how_seeds_lie_is_told_where_numbers_depend_on_it():
    stages = [
        types.SimpleNamespace(
            layout=seed_axis.SeedLayout(mesh.make(1), (2, 1), stacked)
        )
        for stacked in (False, True)
    ]
    told = [
        setup._describe_layout([stage], mesh.make(1), name)
        for stage, name in zip(stages, ("looped", "unrolled_convolutions"))
    ]
    assert told[0] == {"spread": 1, "devices": 1}
    assert told[1] == told[0] | {"strategy": "unrolled_convolutions", "waves": [(2, 1)]}


def test_another_layout_is_told_when_a_run_goes_on(tmp_path):
    def begun(waves):
        layout = {
            "spread": 1,
            "devices": 1,
            "strategy": "unrolled_convolutions",
            "waves": waves,
        }
        facts = {"config": {}, "data": {}, "layout": layout}
        return workdirs.record_provenance(tmp_path, facts)

    assert begun([(2, 1)]) == begun([(2, 1)]) == []
    assert begun([(3,)]) == ["layout.waves: [[2, 1]] != [[3]]"]
