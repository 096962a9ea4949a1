"""Plans: times and memory of a run, also for devices and images that are absent."""

import functools
import importlib.util
import json
import os
import re
import types

import jax
import numpy as np
import pytest

from jbias import config as jc
from jbias import plan, run_estimates, run_spec, train
from jbias.algos import base, dann, fishr
from jbias.runs import costs
from jbias.runtime import mesh
from jbias.training import feed, input_plan, stages, strategies
from jbias.training.averaging import averages, loss_valley
from jbias.training.tuning import (
    gpu_time,
    hlo,
    memory_estimate,
    strategy_choice,
    targets,
)
from tests import cases, domainbed

TINY = "--config=jbias:erm:smoke,model=cnn,seeds=2"
NO_TPU = importlib.util.find_spec("libtpu") is None
needs_tpu = pytest.mark.skipif(NO_TPU, reason="needs the compiler for TPUs: libtpu")
NO_CUDA = importlib.util.find_spec("jax_cuda13_plugin") is None
needs_gpu_compiler = pytest.mark.skipif(
    NO_CUDA, reason="needs the compiler for GPUs: jax's CUDA plugin"
)
needs_no_gpu = pytest.mark.skipif(
    not NO_CUDA,
    reason="needs an environment without jax's CUDA plugin",
)
KEYS = {
    "target",
    "devices",
    "fits",
    "seeds_at_once",
    "memory_gib",
    "capacity_gib",
    "step_ms",
    "images_per_second",
    "epoch_s",
    "run_device_hours",
    "by_part",
}
STEP_PARTS = {
    "data",
    "inputs",
    "convolutions",
    "normalisation",
    "algorithm",
    "optimiser",
    "guard",
}


def plan_as_json(capsys, *args: str, code: int = 0) -> dict:
    assert plan.main([*args, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def refusal_of(capsys, *args: str) -> str:
    """Return the only line that a refused plan prints."""
    try:
        code = plan.main(args)
    except SystemExit as error:
        code = error.code
    assert code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def check_plan(result: dict) -> None:
    """Assert that all numbers of a plan follow from its step, its parts and its memory."""
    assert KEYS <= set(result) and STEP_PARTS <= set(result["by_part"])
    assert result["predicted"] is True and result["fits"] is True
    assert sum(result["by_part"].values()) == pytest.approx(result["step_ms"])
    memory_parts = result["memory_by_part_gib"].values()
    assert sum(memory_parts) == pytest.approx(result["memory_gib"])
    assert result["memory_gib"] <= result["usable_gib"] < result["capacity_gib"]
    images = 1000 * 64 * result["seeds"] / result["step_ms"]
    assert result["images_per_second"] == pytest.approx(images)
    training_seconds = result["steps"] * result["step_ms"] / 1000
    evaluation_seconds = result["evaluations"] * result["evaluation_s"]
    assert result["run_hours"] == pytest.approx(
        (training_seconds + evaluation_seconds) / 3600 + result["average_hours"]
    )
    cores = len(os.sched_getaffinity(0))  # As costs.json bills a CPU.
    hours = result["run_hours"] * (
        cores if result["target"] == "cpu" else result["devices"]
    )
    assert result["run_device_hours"] == pytest.approx(hours)


@pytest.mark.slow
def test_a_plan_for_the_cpu_of_this_machine(capsys):
    result = plan_as_json(capsys, TINY, "--on=cpu", "--price=2")
    check_plan(result)
    assert result["target"] == "cpu" and result["estimate"] == "roofline"
    assert result["seeds_at_once"] == result["seeds"] == 2
    assert result["money"] == 2 * result["run_device_hours"]


@pytest.mark.slow
def test_a_plan_that_does_not_fit_has_the_needed_memory(capsys):
    small_memory = ("--config.run.memory=0.00001", "--no-remedies")
    assert plan.main([TINY, "--on=cpu", *small_memory]) == 1
    assert re.search(r"fits +no  ", capsys.readouterr().out)
    result = plan_as_json(capsys, TINY, "--on=cpu", *small_memory, code=1)
    assert result["seeds_at_once"] == 0 and "remedy" not in result
    assert result["memory_gib"] > result["usable_gib"]


@pytest.mark.slow
@needs_tpu
def test_a_plan_for_devices_that_are_not_attached(capsys):
    result = plan_as_json(capsys, TINY, "--on=v5e:2x2", "--config.run.devices=0")
    check_plan(result)
    assert (result["devices"], result["spread"], result["estimate"]) == (4, 2, "cycles")
    assert result["step_ms"] > 0 and result["by_part"]["convolutions"] > 0
    assert result["moved_bytes_per_step"] > 0  # Two devices share a seed's batch.


@pytest.mark.slow
@needs_gpu_compiler
def test_a_gpu_takes_longer_without_a_graph_of_the_whole_step(capsys, monkeypatch):
    """A step compiled by jbias has one launch; with XLA's own graphs it has more."""
    args = (TINY, "--on=h100", "--config.run.strategy=looped")
    one_graph = plan_as_json(capsys, *args)
    check_plan(one_graph)
    assert (
        one_graph["estimate"] == "kernels" and gpu_time.MEASURED in one_graph["notes"]
    )
    launching = 1000 * one_graph["seeds"] * gpu_time.GRAPH_SECONDS
    assert one_graph["by_part"]["launches"] == pytest.approx(launching)
    flags = "--xla_gpu_enable_command_buffer=+FUSION --xla_gpu_graph_min_graph_size=5"
    monkeypatch.setenv("XLA_FLAGS", flags)
    many_graphs = plan_as_json(capsys, *args)
    # cuDNN has separate calls: three convolutions and their gradients.
    calls = 1000 * many_graphs["seeds"] * gpu_time.CONVOLUTION_SECONDS
    assert many_graphs["by_part"]["launches"] > launching + 5 * calls
    kernels = [
        result["step_ms"] - result["by_part"]["launches"]
        for result in (one_graph, many_graphs)
    ]
    assert kernels[0] == pytest.approx(kernels[1])


@cases.each(
    ("platform", "strategy", "is_noted"),
    [
        ("gpu", "auto", True),
        ("gpu", "unrolled_convolutions", False),
        ("cpu", "auto", False),
    ],
)
def test_a_plan_for_a_gpu_names_the_strategy_that_a_run_would_time_too(
    platform, strategy, is_noted, monkeypatch
):
    """Only the default strategy is compiled."""
    compiled = []

    def compile_with(request, name, *, devices, built_stages, free):
        compiled.append(name)
        fits = [memory_estimate.Fit(2, 2, 0, 0)]
        return run_estimates.CompiledStages(
            devices, built_stages, fits, [{}], free, name
        )

    monkeypatch.setattr(run_estimates, "_compile_with", compile_with)
    monkeypatch.setattr(strategy_choice, "_MIN_STEPS", 1)
    monkeypatch.setattr(strategy_choice.xla, "platform", lambda: platform)
    config = jc.to_dict(jc.load("jbias:erm:smoke,model=cnn,seeds=2", flag="config"))
    config["run"]["strategy"] = strategy
    spec = run_spec.RunSpec.from_config(config)
    train_sets, tests, _ = run_estimates.open_or_assume(
        spec, run_estimates.NOTHING_ASSUMED
    )
    target = targets.parse({"gpu": "h100"}.get(platform, platform))
    request = run_estimates.PlanRequest(
        spec, target, jax.devices("cpu")[:1], train_sets, tests, print
    )
    compiled_stages = run_estimates.compile_stages(request)
    assert len(compiled) == 1
    notes = run_estimates._note_not_compared(compiled_stages)
    assert len(notes) == is_noted
    if is_noted:
        assert "--config.run.strategy=unrolled_convolutions plans that" in notes[0]


@pytest.mark.slow
@needs_tpu
def test_the_plan_has_the_fastest_strategy(capsys, monkeypatch):
    """The looped program is compiled for one seed, the vmapped program for both."""
    # By default a run of four steps does not compare strategies.
    monkeypatch.setattr(strategy_choice, "_MIN_STEPS", 1)
    # With 64 images the compiler takes over half an hour.
    args = (
        TINY,
        "--on=v5e:2x2",
        "--config.run.devices=1",
        "--config.train.batch=4",
    )
    result = plan_as_json(capsys, *args)
    step_ms_by_strategy = {}
    for name in ("looped", "vmapped"):
        strategy_arguments = (*args, f"--config.run.strategy={name}")
        step_ms_by_strategy[name] = plan_as_json(capsys, *strategy_arguments)["step_ms"]
    assert result["strategy"] == min(step_ms_by_strategy, key=step_ms_by_strategy.get)
    assert result["step_ms"] == pytest.approx(min(step_ms_by_strategy.values()))


@pytest.mark.slow
def test_a_plan_needs_no_images(capsys):
    config = "--config=jbias:erm:data=cifar10,root=/nowhere,model=cnn,seeds=1"
    result = plan_as_json(capsys, config, "--on=cpu")
    assert result["steps"] == 30 * (
        45_000 // 128
    )  # 90 % of the images are for training.
    assert result["memory_by_part_gib"]["sets"] > 45_000 * 32 * 32 * 3 / 2**30
    assert any("45,000 images are assumed" in note for note in result["notes"])


def test_unknown_sets_need_a_number_of_images_and_classes(capsys):
    config = "--config=jbias:erm:data=folder,root=/nowhere,train=a,valid=b,tests=b"
    line = refusal_of(capsys, config, "--on=cpu")
    assert "config.train" in line and "--images=N and --classes=K" in line


def test_unknown_sets_have_the_assumed_size():
    options = dict(data="folder", split="train[:50%]", root="/nowhere")
    assumed = run_estimates.AssumedSize(1000, 7)
    source = run_estimates.open_source("config.train", options, 48, assumed)
    assert (len(source), len(source.classes), source.shape) == (500, 7, (48, 48))


def test_streamed_sets_have_the_shapes_of_a_run():
    text = "jbias:erm:data=imagenet,root=/nowhere,crop={},seeds=1"
    shapes = {}
    for crop in ("host", "device"):
        config = jc.load(text.format(crop), flag="config")
        spec = run_spec.RunSpec.from_config(config)
        train, _, notes = run_estimates.open_or_assume(
            spec, run_estimates.NOTHING_ASSUMED
        )
        assert any("1,255,544 images are assumed" in note for note in notes)
        (plans,) = input_plan.plan_stages(spec.stages, train)
        shapes[crop] = run_estimates.pipeline_shapes(plans["train"]).shapes()
    batch_shapes, host_shapes = shapes["host"]
    assert batch_shapes["image"].shape == (256, 224, 224, 3) and not host_shapes
    batch_shapes, host_shapes = shapes["device"]
    assert batch_shapes.shape == (256,) and host_shapes["image"].shape == (256, 256, 3)
    assert "aspect" in host_shapes


def test_running_out_of_memory_in_the_compiler_does_not_fit(monkeypatch):
    def raise_out_of_memory(*_):
        raise jax.errors.JaxRuntimeError(
            "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required "
            "for HLO temporaries (33.50G) exceeds available HBM (15.75G)."
        )

    monkeypatch.setattr(memory_estimate, "program_need", raise_out_of_memory)
    config = jc.to_dict(jc.load(TINY.removeprefix("--config="), flag="config"))
    result = run_estimates.plan(
        config, targets.parse("cpu"), lambda line: None, remedies=False
    )
    assert not result["fits"] or result["step_ms"] is None
    assert result["memory_by_part_gib"]["work"] == pytest.approx(33.5)
    assert result["by_part"] is None


def test_an_invalid_target_among_several_is_refused(capsys):
    compared = (TINY, "--compare=cpu,v5e:9x9x9")
    assert refusal_of(capsys, *compared).endswith("got 'v5e:9x9x9'")


@needs_no_gpu
def test_a_target_without_a_compiler_names_the_missing_package(capsys):
    assert "pip install 'jbias[plan]'" in refusal_of(capsys, TINY, "--on=h100")
    assert plan.main([TINY, "--compare=cpu,h100"]) == 0
    head, cpu, gpu, *legend = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in legend if line] == head.split()
    assert head.split()[:2] == ["target", "devices"] and cpu.split()[2] == "yes"
    assert "pip install 'jbias[plan]'" in gpu


@cases.each(
    ("args", "message"),
    [
        ((), "one of --config and --runs"),
        ((TINY,), "one of --on and --compare"),
        ((TINY, "--on=v9"), "must be cpu or one of v2"),
        ((TINY, "--on=cpu", "--price=1,2"), "must be one number or 1"),
        ((TINY, "--on=cpu", "--price=0"), "a number above 0"),
        ((TINY, "--on=cpu", "--config.model.nam=x"), "nam"),
        (("--runs=nowhere",), "nowhere"),
        (("--config=jbias:ermm", "--on=cpu"), "did you mean 'erm'"),
    ],
)
def test_invalid_arguments_are_refused_in_one_line(capsys, args, message):
    assert message in refusal_of(capsys, *args)


def _start(at: str, step: int, kind: str, stepping: float, **more) -> dict:
    spent = {"opening": 1.0, "compiling": 9.0, "stepping": stepping, "evaluating": 1.0}
    devices = costs.Devices(kind, 1)
    return costs.of_start(at, spent, devices, costs.DEFAULT_ENERGY, step) | more


@pytest.mark.parametrize(
    ("other_target", "first_device", "strategy"),
    [
        (None, "NVIDIA H100 80GB HBM3", "unrolled_convolutions"),
        ("v5e:2x2", "NVIDIA H100 80GB HBM3", "auto"),
        (None, "cpu", "auto"),
    ],
)
def test_measured_times_are_those_on_the_last_device(
    tmp_path, other_target, first_device, strategy
):
    """Steps that compiled do not count; the strategy is the one chosen for the device."""
    config = jc.to_dict(jc.load(TINY.removeprefix("--config="), flag="config"))
    (tmp_path / "config.json").write_text(json.dumps(config))
    chosen = {"strategy": "unrolled_convolutions"}
    provenance = {"device": {"kind": first_device}, "chosen": chosen, "data": {}}
    (tmp_path / "provenance.json").write_text(json.dumps(provenance))
    gpu = "NVIDIA H100 80GB HBM3"
    starts = [
        _start("a", 100, "cpu", 50.0, stepped=92),
        _start("b", 208, gpu, 2.0, stepped=92, peak_gib=3.0),
        _start("c", 316, gpu, 2.0, peak_gib=2.0),  # Older files have no `stepped`.
    ]
    (tmp_path / "costs.json").write_text(json.dumps({"starts": starts, "total": {}}))
    config, target, result = plan._measured(str(tmp_path), other_target)
    assert target == "h100x1" and config["run"]["strategy"] == strategy
    assert result["measured"]["steps"] == 216
    assert result["measured"]["step_ms"] == 1000 * 4 / 200
    assert result["measured"]["memory_gib"] == 3.0


def test_the_usable_memory_of_a_gpu_is_the_share_that_jax_reserves(monkeypatch):
    old, new = run_estimates._GPU_SHARE_VARIABLES[::-1]
    for name in (old, new):
        monkeypatch.delenv(name, raising=False)
    assert run_estimates._gpu_share() == 0.75
    monkeypatch.setenv(old, "0.9")
    assert run_estimates._gpu_share() == 0.9
    monkeypatch.setenv(old, "")
    monkeypatch.setenv(new, ".95")
    assert run_estimates._gpu_share() == 0.95
    for invalid in ("most", "nan", "1.5"):
        monkeypatch.setenv(new, invalid)
        with pytest.raises(
            ValueError, match=f"^{new}: must be a share .*, got '{invalid}'$"
        ):
            run_estimates._gpu_share()


@pytest.mark.slow
def test_a_plan_of_a_run_has_its_measured_times(capsys, tmp_path):
    config = jc.load(TINY.removeprefix("--config="), flag="config")
    train.run(config, tmp_path / "run")
    result = plan_as_json(capsys, f"--runs={tmp_path / 'run'}")
    check_plan(result)
    measured = result["measured"]
    assert measured["device"] == "cpu" and measured["steps"] == result["steps"]
    assert measured["step_ms"] > 0 and measured["run_device_hours"] > 0
    assert plan.main([f"--runs={tmp_path / 'run'}"]) == 0
    assert "measured step_ms" in capsys.readouterr().out


@pytest.mark.parametrize("strategy", strategies.STRATEGIES)
@pytest.mark.parametrize("estimate", ["cycles", "kernels", "roofline"])
def test_every_line_of_a_plan_has_an_explanation(strategy, estimate):
    """This holds for the parts of a step, measured values, and costs."""
    result = {
        "run": "erm-shapes-0",
        "target": "cpu",
        "devices": 1,
        "hosts": 1,
        "fits": False,
        "strategy": strategy,
        "seeds": 3,
        "seeds_at_once": 0,
        "memory_gib": 2.0,
        "capacity_gib": 1.0,
        "usable_gib": 0.9,
        "memory_by_part_gib": dict.fromkeys(("state", "work", "sets", "batches"), 0.5),
        "estimate": estimate,
        **dict.fromkeys(run_estimates._TIMES, 1.0),
        "by_part": dict.fromkeys(
            (*hlo.PARTS, "convolutions backwards", "launches"), 1.0
        ),
        "remedy": None,
        "price": 1.2,
        "money": 0.0012,
        "measured": {
            "device": "cpu",
            "devices": 1,
            "steps": 4,
            "step_ms": 2.0,
            "run_device_hours": 0.1,
            "memory_gib": 0.1,
        },
        "notes": ["a note"],
    }
    rows = plan._page(result)
    assert {len(row) for row in rows} == {3}
    assert all(len(row[2]) > 10 and "{}" not in row[2] for row in rows)
    assert {row[0].strip() for row in rows} == plan._MEANINGS.keys()
    assert ("money", "0.0012 at 1.2 per device hour") in [row[:2] for row in rows]
    text = plan._page_text(result)
    assert text[-1] == "note: a note" and max(map(len, text)) < 145


def passes_for(average, *, eval_every: str, save_every: str):
    """Return the images by shape of the passes for an average, in two stages of 60 steps."""
    config = {
        "size": 32,
        "eval_every": eval_every,
        "save_every": save_every,
        "run": {"evaluate": "here"},
    }
    order = types.SimpleNamespace(batch=8, steps_per_epoch=10)
    stages = [
        types.SimpleNamespace(
            first=first, last=first + 60, order=order, average=average
        )
        for first in (0, 60)
    ]
    valid = Images(shape=(32, 24), count=50)
    request = types.SimpleNamespace(
        spec=types.SimpleNamespace(config=config),
        tests={"valid": valid, "test": Images(shape=(64, 64), count=7)},
    )
    compiled = types.SimpleNamespace(stages=stages)
    return dict(run_estimates._average_passes(request, compiled))


class Images:
    """A data set of which a plan needs the size only."""

    def __init__(self, *, shape: tuple[int, int], count: int):
        self.shape, self.count = shape, count

    def __len__(self):
        return self.count


def test_passes_for_averages_are_counted_at_evaluations_and_saves():
    """SWAD reads the validation set at evaluations, new statistics batches at saves, too."""
    plain = averages.uniform(first=1)
    swad = plain._replace(valley=loss_valley.Options(3, 6, 0.3))
    count = functools.partial(passes_for, eval_every="20 steps", save_every="30 steps")
    assert count(None) == count(plain) == {}
    # Evaluations of a stage after 20, 40 and 60 steps; saves after 30 and 60.
    assert count(swad) == {(32, 24): 2 * 3 * 50}
    assert count(plain._replace(batches=5)) == {(32, 32): 2 * 4 * 5 * 8}
    both = {(32, 24): 2 * 3 * 50, (32, 32): 2 * 4 * 5 * 8}
    assert count(swad._replace(batches=5)) == both


def test_images_cost_by_whole_batches_and_pixels():
    cost = run_estimates._ScoringCost(batch_seconds=3.0, batch=10, pixels=4)
    assert cost.seconds({}) == 0
    assert cost.seconds({(2, 2): 20}) == 2 * 3.0
    assert cost.seconds({(2, 2): 21, (4, 4): 10}) == 3 * 3.0 + 4 * 3.0


def planned_stage(algo: base.Algo, *, num_steps: int) -> stages.Stage:
    """Return a stage of which a plan needs its steps and their programs, for four seeds."""
    order = types.SimpleNamespace(batch=8, steps_per_epoch=10)
    pipeline = types.SimpleNamespace(
        order=order, streams=False, shapes=lambda: (np.zeros(8, np.int32), {})
    )
    config = {
        "train": {},
        "algo": {},
        "eval_every": "1 epoch",
        "save_every": "1 epoch",
        "run": {"evaluate": "elsewhere"},
    }
    return stages.Stage(
        spec=types.SimpleNamespace(number=0, config=config),
        members=range(4),
        first=0,
        last=num_steps,
        algo=algo,
        shape=(8, 8),
        feed=feed.Feed({"train": pipeline}, first=0),
        program=None,
        program_for=None,
    )


@pytest.mark.parametrize(
    ("make", "options"), [(dann.make, {"d_steps": 3}), (fishr.make, {"anneal": 0.3})]
)
def test_a_plan_adds_the_times_of_all_steps(monkeypatch, make, options):
    """Each step takes the time of its own program, of which DANN and Fishr have two."""
    num_steps = 40
    algo = make(domainbed.Perceptron(), columns=domainbed.COLUMNS, **options)
    stage = planned_stage(algo, num_steps=num_steps)
    statics = [algo.static(step, num_steps) for step in range(num_steps)]
    seconds = dict(zip(dict.fromkeys(statics), (2.0, 7.0), strict=True))
    monkeypatch.setattr(
        run_estimates,
        "program_cost",
        lambda program, *args, **options: run_estimates.ProgramCost(
            {"convolutions": 0.75 * program.flops, "guard": 0.25 * program.flops},
            bound=program.flops / 2,
            moved=3 * program.flops,
            notes=[],
        ),
    )
    need = memory_estimate.Need(1, 1)
    programs = {
        static: run_estimates.Program(object(), need, flops=x)
        for static, x in seconds.items()
    }
    fit = memory_estimate.Fit(count=4, wanted=4, needed=1, least=0)
    compiled = run_estimates.CompiledStages(
        mesh.make(1), [stage], [fit], [{1: programs}], 1, "looped"
    )
    request = types.SimpleNamespace(
        spec=types.SimpleNamespace(config=stage.spec.config, stages=[stage.spec]),
        target=types.SimpleNamespace(kind=targets.KINDS["v5e"]),
        run=types.SimpleNamespace(evaluate="elsewhere"),
        tests={},
    )
    times = run_estimates._times(request, compiled, [])
    total = 4 * sum(seconds[static] for static in statics)
    assert times["run_hours"] == pytest.approx(total / 3600)
    assert times["step_ms"] == pytest.approx(1000 * total / num_steps)
    assert times["roofline_ms"] == pytest.approx(times["step_ms"] / 2)
    assert times["moved_bytes_per_step"] == pytest.approx(3 * total / num_steps)
    assert times["epoch_s"] == pytest.approx(total / 4)
    by_part = {"convolutions": 0.75, "guard": 0.25}
    assert times["by_part"] == pytest.approx(
        {name: share * times["step_ms"] for name, share in by_part.items()}
    )
    # The strategy is chosen by the mean of a step's cycles.
    monkeypatch.setattr(
        strategy_choice, "estimated_cycles", lambda text, stage, count: cycles[text]
    )
    cycles = {program.compiled: program.flops for program in programs.values()}
    assert compiled.cycles() == pytest.approx(total / 4 / num_steps)


def test_parts_of_the_step_equal_those_of_programs():
    assert STEP_PARTS < set(hlo.PARTS)
