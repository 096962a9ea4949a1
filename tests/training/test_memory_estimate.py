"""Memory of seeds on a device: their need, free memory, and the number that fits."""

import dataclasses
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import config as jc
from jbias import models, run_spec
from jbias.configs import erm
from jbias.runs import workdirs
from jbias.runtime import mesh
from jbias.training import (
    feed,
    input_pipeline,
    placement,
    prng,
    seed_axis,
    setup,
    stages,
    strategies,
)
from jbias.training.tuning import memory_estimate
from tests import cases, smoke_runs

NEED = memory_estimate.Need(state=10, work=100)


def test_the_memory_of_several_programs(monkeypatch):
    monkeypatch.setattr(seed_axis, "thread_count", lambda count: min(count, 3))
    assert NEED.times(8, strategies.STRATEGIES["looped"]) == 80 + 100
    assert NEED.times(8, strategies.STRATEGIES["threaded"]) == 80 + 300


@cases.each("room", [1000, 1009, 1010, 1039, 1079, 1080, 9999])
def test_the_largest_number_that_fits_needs_few_trials(room):
    calls = []

    def needed(count):
        calls.append(count)
        return 1000 + 10 * count

    fits = [count for count in range(1, 9) if needed(count) <= room]
    calls.clear()
    assert memory_estimate.largest_fitting(needed, 8, room) == max(fits, default=0)
    assert len(calls) <= 8


def test_remedies_name_existing_entries():
    """They are entries of every preset, and an option of the named networks."""
    preset = jc.to_dict(erm.get_config(""))
    named = re.findall(r"--config\.(\w+)\.(\w+)", memory_estimate._REMEDIES)
    assert named and all(key in preset[part] for part, key in named)
    assert "model.remat=True in a config of your own" in memory_estimate._REMEDIES
    for name in ("resnet18", "vit_small16"):
        assert models.MODELS[name](10, remat=True).remat


def test_the_free_memory_is_the_given_one_or_that_of_the_machine():
    assert memory_estimate.free_bytes(mesh.make(1), 2.0) == 2**31
    assert memory_estimate.free_bytes(mesh.make(1)) > 2**20


def machine(folder, group: dict[str, str]) -> int | None:
    """Return the free bytes of a machine with 100 KiB, in a container with these files."""
    (folder / "meminfo").write_text("MemTotal: 900 kB\nMemAvailable: 100 kB\n")
    for name, text in group.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return memory_estimate._free_host_bytes(folder / "meminfo", folder)


def test_a_containers_limit_counts_without_its_file_cache(tmp_path):
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


def make_stage(length: int, **pipelines) -> types.SimpleNamespace:
    """Return the parts of a stage that the bytes of its sets depend on."""
    return types.SimpleNamespace(
        first=0,
        last=length,
        feed=feed.Feed(pipelines, 0),
        members=range(4),
        steps_by_static={None: length},
    )


def step_shapes(stage, state: tuple[int, ...] = ()) -> stages.StepShapes:
    """Return the shapes of a step's arguments, for a state of that shape."""
    batches, rows = stage.feed.shapes()
    return stages.StepShapes(
        jax.ShapeDtypeStruct(state, jnp.float32),
        jax.eval_shape(lambda: prng.key(0)),
        batches,
        rows,
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


def test_sets_count_in_all_stages_and_windows_twice_in_theirs():
    stage = make_stage(9, train=resident(10), other=streamed(100, until=4))
    assert memory_estimate.input_bytes(stage, trained=stage) == 210
    assert memory_estimate.input_bytes(stage, trained=None) == 10
    single_window = make_stage(9, train=streamed(100, until=9))
    assert memory_estimate.input_bytes(single_window, trained=single_window) == 100


RUN = dataclasses.replace(
    run_spec.RunSpec.from_config(smoke_runs.small()).run,
    strategy="looped",
    steps_per_dispatch=3,
    devices=0,
)


def test_batches_of_all_seeds_for_two_dispatches_are_counted(monkeypatch):
    monkeypatch.setattr(
        memory_estimate, "step_need", lambda *args: memory_estimate.Need(10, 100)
    )
    stage = make_stage(9, train=streamed(0, until=99, batch=1000))
    stage.program, stage.shapes = stages.SeedProgram(*(None,) * 4), step_shapes(stage)
    for together in (0, 4):
        run = dataclasses.replace(RUN, together=together)
        fit = memory_estimate.fit([stage], stage, mesh.make(1), run, 1)
        assert fit.needed == 2 * 3 * 4 * 1000 + 4 * 10 + 100


def test_the_largest_program_of_a_stage_decides_what_fits(monkeypatch):
    """Fishr is an example: its penalty begins later, in a program of its own."""
    work = {False: 100, True: 700}
    monkeypatch.setattr(
        memory_estimate,
        "step_need",
        lambda step, strategy, shapes, devices, count: memory_estimate.Need(
            10, work[shapes.static]
        ),
    )
    stage = make_stage(9)
    stage.program, stage.shapes = stages.SeedProgram(*(None,) * 4), step_shapes(stage)
    stage.steps_by_static = {False: 3, True: 6}
    fit = memory_estimate.fit([stage], stage, mesh.make(1), RUN, 1)
    assert fit.needed == 4 * 10 + 700


def test_stacked_seeds_need_the_working_memory_of_the_stacked_program():
    """Four stacked seeds work at the same time; looped seeds share working memory."""
    stage = make_stage(9)
    stage.program = stages.SeedProgram(
        None,
        lambda state, arg, shared, static: (jnp.tanh(state @ state) @ state, ()),
        None,
        None,
    )
    stage.shapes = step_shapes(stage, (256, 256))
    size = 4 * 256 * 256

    def fit(strategy, free):
        run = dataclasses.replace(RUN, strategy=strategy)
        return memory_estimate.fit([stage], stage, mesh.make(1), run, free)

    looped = fit("looped", 10**9)
    assert 5 * size <= looped.needed < 7 * size
    stacked = fit("vmapped", 10**9)
    assert stacked.count == 4
    assert 8 * size <= stacked.needed < 13 * size
    assert fit("vmapped", stacked.needed - 1).count == 3
    assert fit("vmapped", size).count == 0


def test_the_number_of_seeds_is_a_multiple_of_the_shares():
    stage = make_stage(9)
    two = types.SimpleNamespace(shape={"seed": 2, "data": 1}, size=2)
    run = dataclasses.replace(RUN, together=3)
    assert memory_estimate.fit([stage], stage, two, run, None)[:2] == (2, 2)


def laid_out(monkeypatch, *, fitting=(), refusing=(), platform="gpu", **run):
    """Lay out eight seeds on eight devices; return shares, resident seeds, log lines.

    fitting: numbers of shares with which one seed per device fits. refusing: numbers of
    shares with which the batch cannot be divided. run: entries of config.run. The run's
    sets take 300 of 1000 bytes.
    """
    used, lines = [0], []
    device = types.SimpleNamespace(
        platform=platform,
        device_kind="Some GPU",
        memory_stats=lambda: {"bytes_limit": 1000, "bytes_in_use": used[0]},
    )

    def make_mesh(count, seeds, spread, together=0, devices=()):
        del count, seeds, together, devices
        return types.SimpleNamespace(
            shape={"seed": spread or 8},
            size=8,
            devices=np.array([device] * 8),
            local_devices=[device],
        )

    def build_stages(devices):
        used[0] = 300
        if devices.shape["seed"] in refusing:
            raise ValueError("config.train.batch: must be another")
        return [types.SimpleNamespace(members=range(8))]

    def fit(stages, stage, devices, run, free):
        assert free == 900
        spread = devices.shape["seed"]
        return memory_estimate.Fit(spread * (spread in fitting), 8, 9999, 7777)

    monkeypatch.setattr(mesh, "make", make_mesh)
    monkeypatch.setattr(memory_estimate, "fit", fit)
    monkeypatch.setattr(placement, "fit_to_devices", lambda *args, **options: options)
    run = dataclasses.replace(RUN, **run)
    placed = memory_estimate.fit_stages(build_stages, 8, run, lines.append)
    (layout,) = placed.lay_out(run.strategy, lines.append)
    return placed.devices.shape["seed"], layout["together"], " ".join(lines)


def test_fewer_shares_are_tried_before_a_run_is_refused(monkeypatch):
    shares, together, log = laid_out(monkeypatch, fitting=(2, 1), refusing=(4,))
    assert (shares, together) == (2, 2)
    assert "seeds spread over 2 shares of the devices, not 8" in log
    assert "8 seeds on 8 x Some GPU: 2 share(s)" in log
    assert laid_out(monkeypatch, fitting=(8, 4))[:2] == (8, 8)


def test_errors_about_memory_name_remedies(monkeypatch):
    with pytest.raises(ValueError, match="take --config.train.accumulate=2, "):
        laid_out(monkeypatch)
    with pytest.raises(ValueError, match="take --config.run.spread=1, --config.train"):
        laid_out(monkeypatch, fitting=(1,), spread=8)
    with pytest.raises(ValueError, match="^config.train.batch"):
        laid_out(monkeypatch, refusing=(8,))


def test_the_estimated_free_memory_of_a_cpu_refuses_nothing(monkeypatch):
    shares, together, log = laid_out(monkeypatch, platform="cpu")
    assert (shares, together) == (8, 8)
    assert "one at a time is tried" in log
    monkeypatch.setattr(memory_estimate, "free_bytes", lambda *args: 900)
    with pytest.raises(ValueError, match="memory: one seed needs"):
        laid_out(monkeypatch, platform="cpu", memory=1.0)


def test_the_provenance_has_the_layout_if_results_depend_on_it():
    stages = [
        types.SimpleNamespace(
            layout=seed_axis.SeedLayout(mesh.make(1), (2, 1), stacked)
        )
        for stacked in (False, True)
    ]
    layouts = [
        setup._describe_layout([stage], mesh.make(1), name)
        for stage, name in zip(stages, ("looped", "unrolled_convolutions"))
    ]
    assert layouts[0] == {"spread": 1, "devices": 1}
    assert layouts[1] == layouts[0] | {
        "strategy": "unrolled_convolutions",
        "waves": [(2, 1)],
    }


def test_a_resumed_run_names_a_differing_layout(tmp_path):
    def start(waves):
        layout = {
            "spread": 1,
            "devices": 1,
            "strategy": "unrolled_convolutions",
            "waves": waves,
        }
        entries = {"config": {}, "data": {}, "layout": layout}
        return workdirs.record_provenance(tmp_path, entries)

    assert start([(2, 1)]) == start([(2, 1)]) == []
    assert start([(3,)]) == ["layout.waves: [[2, 1]] != [[3]]"]
