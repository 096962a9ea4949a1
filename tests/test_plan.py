"""What is planned is what would run; devices and images need not be there."""

import importlib.util
import json
import os
import re

import jax
import pytest

from jbias import config as jc
from jbias import plan, run_estimates, run_spec, train
from jbias.runs import costs
from jbias.training import (
    autotune,
    gpu_time,
    hlo,
    input_plan,
    memory,
    seed_axis,
    targets,
)
from tests import cases

TINY = "--config=jbias:erm:smoke,model=cnn,seeds=2"
NO_TPU = importlib.util.find_spec("libtpu") is None
needs_tpu = pytest.mark.skipif(NO_TPU, reason="needs the compiler for TPUs: libtpu")
NO_CUDA = importlib.util.find_spec("jax_cuda13_plugin") is None
needs_gpu_compiler = pytest.mark.skipif(
    NO_CUDA, reason="needs the compiler for GPUs: jax's CUDA plugin"
)
needs_no_gpu = pytest.mark.skipif(
    not NO_CUDA,
    reason="asks what is said where jax's CUDA plugin is missing",
)
KEYS = {
    *("target", "devices", "fits", "seeds_at_once", "memory_gib", "capacity_gib"),
    *("step_ms", "images_per_second", "epoch_s", "run_device_hours", "by_part"),
}
PARTS = {
    *("data", "inputs", "convolutions", "normalisation", "algorithm", "optimiser"),
    "guard",
}


def planned(capsys, *arguments: str, code: int = 0) -> dict:
    assert plan.main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def refused(capsys, *arguments: str) -> str:
    """The one line that it ends with."""
    try:
        code = plan.main(arguments)
    except SystemExit as ended:
        code = ended.code
    assert code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def consistent(told: dict) -> None:
    """All numbers of a plan follow from its step, its parts and its memory."""
    assert KEYS <= set(told) and PARTS <= set(told["by_part"])
    assert told["predicted"] is True and told["fits"] is True
    assert sum(told["by_part"].values()) == pytest.approx(told["step_ms"])
    parts = told["memory_by_part_gib"].values()
    assert sum(parts) == pytest.approx(told["memory_gib"])
    assert told["memory_gib"] <= told["usable_gib"] < told["capacity_gib"]
    images = 1000 * 64 * told["seeds"] / told["step_ms"]
    assert told["images_per_second"] == pytest.approx(images)
    trained = told["steps"] * told["step_ms"] / 1000
    evaluated = told["evaluations"] * told["evaluation_s"]
    assert told["run_hours"] == pytest.approx((trained + evaluated) / 3600)
    cores = len(os.sched_getaffinity(0))  # As costs.json bills a CPU.
    hours = told["run_hours"] * (cores if told["target"] == "cpu" else told["devices"])
    assert told["run_device_hours"] == pytest.approx(hours)


@pytest.mark.slow
def test_on_this_machine(capsys):
    told = planned(capsys, TINY, "--on=cpu", "--price=2")
    consistent(told)
    assert told["target"] == "cpu" and told["estimate"] == "roofline"
    assert told["seeds_at_once"] == told["seeds"] == 2
    assert told["money"] == 2 * told["run_device_hours"]


@pytest.mark.slow
def test_what_does_not_fit_says_what_it_would_need(capsys):
    small = ("--config.run.memory=0.00001", "--no-remedies")
    assert plan.main([TINY, "--on=cpu", *small]) == 1
    assert re.search(r"fits +no  ", capsys.readouterr().out)
    told = planned(capsys, TINY, "--on=cpu", *small, code=1)
    assert told["seeds_at_once"] == 0 and "remedy" not in told
    assert told["memory_gib"] > told["usable_gib"]


@pytest.mark.slow
@needs_tpu
def test_on_devices_that_are_not_here(capsys):
    told = planned(capsys, TINY, "--on=v5e:2x2", "--config.run.devices=0")
    consistent(told)
    assert (told["devices"], told["spread"], told["estimate"]) == (4, 2, "cycles")
    assert told["step_ms"] > 0 and told["by_part"]["convolutions"] > 0
    assert told["moved_bytes_per_step"] > 0  # Two devices share a seed's batch.


@pytest.mark.slow
@needs_gpu_compiler
def test_a_gpu_takes_longer_without_a_graph_of_the_whole_step(capsys, monkeypatch):
    """One launch as jbias compiles it; more with the graphs that XLA makes by itself."""
    asked = (TINY, "--on=h100", "--config.run.strategy=looped")
    whole = planned(capsys, *asked)
    consistent(whole)
    assert whole["estimate"] == "kernels" and gpu_time.MEASURED in whole["notes"]
    launching = 1000 * whole["seeds"] * gpu_time.GRAPH_SECONDS
    assert whole["by_part"]["launches"] == pytest.approx(launching)
    flags = "--xla_gpu_enable_command_buffer=+FUSION --xla_gpu_graph_min_graph_size=5"
    monkeypatch.setenv("XLA_FLAGS", flags)
    told = planned(capsys, *asked)
    # The calls of cuDNN alone: three convolutions and their gradients.
    calls = 1000 * told["seeds"] * gpu_time.CONVOLUTION_SECONDS
    assert told["by_part"]["launches"] > launching + 5 * calls
    kernels = [one["step_ms"] - one["by_part"]["launches"] for one in (whole, told)]
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
    """Nothing but the usual one is compiled."""
    compiled = []

    def compile_with(request, name, *, devices, built_stages, free):
        compiled.append(name)
        fits = [memory.Fit(2, 2, 0, 0)]
        return run_estimates.CompiledStages(
            devices, built_stages, fits, [{}], free, name
        )

    monkeypatch.setattr(run_estimates, "_compile_with", compile_with)
    monkeypatch.setattr(autotune, "_MIN_STEPS", 1)
    monkeypatch.setattr(autotune.xla, "platform", lambda: platform)
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
    made = run_estimates.compile_stages(request)
    assert len(compiled) == 1
    notes = run_estimates._note_not_compared(made)
    assert len(notes) == is_noted
    if is_noted:
        assert "--config.run.strategy=unrolled_convolutions plans that" in notes[0]


@pytest.mark.slow
@needs_tpu
def test_seeds_of_one_device_are_computed_as_costs_least(capsys, monkeypatch):
    """The looped program is compiled of one seed, the vmapped one of both."""
    monkeypatch.setattr(autotune, "_MIN_STEPS", 1)  # A run of four compares nothing.
    # With 64 images the compiler takes over half an hour.
    asked = (TINY, "--on=v5e:2x2", "--config.run.devices=1", "--config.train.batch=4")
    told = planned(capsys, *asked)
    by_name = {}
    for name in ("looped", "vmapped"):
        given = (*asked, f"--config.run.strategy={name}")
        by_name[name] = planned(capsys, *given)["step_ms"]
    assert told["strategy"] == min(by_name, key=by_name.get)
    assert told["step_ms"] == pytest.approx(min(by_name.values()))


@pytest.mark.slow
def test_images_need_not_be_there(capsys):
    config = "--config=jbias:erm:data=cifar10,root=/nowhere,model=cnn,seeds=1"
    told = planned(capsys, config, "--on=cpu")
    assert told["steps"] == 30 * (45_000 // 128)  # Nine tenths train.
    assert told["memory_by_part_gib"]["sets"] > 45_000 * 32 * 32 * 3 / 2**30
    assert any("45,000 images are assumed" in note for note in told["notes"])


def test_unknown_sets_want_to_be_described(capsys):
    config = "--config=jbias:erm:data=folder,root=/nowhere,train=a,valid=b,tests=b"
    line = refused(capsys, config, "--on=cpu")
    assert "config.train" in line and "--images=N and --classes=K" in line


def test_sets_that_are_not_known_are_as_large_as_is_said():
    options = dict(data="folder", split="train[:50%]", root="/nowhere")
    given = run_estimates.AssumedSize(1000, 7)
    found = run_estimates.open_source("config.train", options, 48, given)
    assert (len(found), len(found.classes), found.shape) == (500, 7, (48, 48))


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
    taken, held = shapes["host"]
    assert taken["image"].shape == (256, 224, 224, 3) and not held
    taken, held = shapes["device"]
    assert taken.shape == (256,) and held["image"].shape == (256, 256, 3)
    assert "aspect" in held


def test_a_device_that_is_too_small_for_the_compiler_is_no_traceback(monkeypatch):
    def full(*_):
        raise jax.errors.JaxRuntimeError(
            "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required "
            "for HLO temporaries (33.50G) exceeds available HBM (15.75G)."
        )

    monkeypatch.setattr(memory, "program_need", full)
    config = jc.to_dict(jc.load(TINY.removeprefix("--config="), flag="config"))
    told = run_estimates.plan(
        config, targets.parse("cpu"), lambda line: None, remedies=False
    )
    assert not told["fits"] or told["step_ms"] is None
    assert told["memory_by_part_gib"]["work"] == pytest.approx(33.5)
    assert told["by_part"] is None


def test_several_targets_are_a_table(capsys):
    compared = (TINY, "--compare=cpu,v5e:9x9x9")
    assert refused(capsys, *compared).endswith("got 'v5e:9x9x9'")


@needs_no_gpu
def test_a_target_without_a_compiler_says_what_brings_it(capsys):
    assert "pip install 'jbias[plan]'" in refused(capsys, TINY, "--on=h100")
    assert plan.main([TINY, "--compare=cpu,h100"]) == 0
    head, cpu, gpu, *legend = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in legend if line] == head.split()
    assert head.split()[:2] == ["target", "devices"] and cpu.split()[2] == "yes"
    assert "pip install 'jbias[plan]'" in gpu


@cases.each(
    ("arguments", "told"),
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
def test_wrong_arguments_are_one_line(capsys, arguments, told):
    assert told in refused(capsys, *arguments)


def _start(at: str, step: int, kind: str, stepping: float, **more) -> dict:
    spent = {"opening": 1.0, "compiling": 9.0, "stepping": stepping, "evaluating": 1.0}
    devices = costs.Devices(kind, 1)
    return costs.of_start(at, spent, devices, costs.DEFAULT_ENERGY, step) | more


@pytest.mark.parametrize(
    ("elsewhere", "begun_on", "strategy"),
    [
        (None, "NVIDIA H100 80GB HBM3", "unrolled_convolutions"),
        ("v5e:2x2", "NVIDIA H100 80GB HBM3", "auto"),
        (None, "cpu", "auto"),
    ],
)
def test_what_was_measured_is_of_the_last_devices(
    tmp_path, elsewhere, begun_on, strategy
):
    """Steps that compiled have no time; the strategy is that of the device."""
    config = jc.to_dict(jc.load(TINY.removeprefix("--config="), flag="config"))
    (tmp_path / "config.json").write_text(json.dumps(config))
    chosen = {"strategy": "unrolled_convolutions"}
    facts = {"device": {"kind": begun_on}, "chosen": chosen, "data": {}}
    (tmp_path / "provenance.json").write_text(json.dumps(facts))
    gpu = "NVIDIA H100 80GB HBM3"
    starts = [
        _start("a", 100, "cpu", 50.0, stepped=92),
        _start("b", 208, gpu, 2.0, stepped=92, peak_gib=3.0),
        _start("c", 316, gpu, 2.0, peak_gib=2.0),  # As before this was counted.
    ]
    (tmp_path / "costs.json").write_text(json.dumps({"starts": starts, "total": {}}))
    config, on, told = plan._measured(str(tmp_path), elsewhere)
    assert on == "h100x1" and config["run"]["strategy"] == strategy
    assert told["measured"]["steps"] == 216
    assert told["measured"]["step_ms"] == 1000 * 4 / 200
    assert told["measured"]["memory_gib"] == 3.0


def test_a_gpu_offers_what_jax_takes_of_it(monkeypatch):
    old, new = run_estimates._GPU_SHARE_VARIABLES[::-1]
    for name in (old, new):
        monkeypatch.delenv(name, raising=False)
    assert run_estimates._gpu_share() == 0.75
    monkeypatch.setenv(old, "0.9")
    assert run_estimates._gpu_share() == 0.9
    monkeypatch.setenv(old, "")
    monkeypatch.setenv(new, ".95")
    assert run_estimates._gpu_share() == 0.95
    for wrong in ("most", "nan", "1.5"):
        monkeypatch.setenv(new, wrong)
        with pytest.raises(
            ValueError, match=f"^{new}: must be a share .*, got '{wrong}'$"
        ):
            run_estimates._gpu_share()


@pytest.mark.slow
def test_a_run_is_set_beside_its_plan(capsys, tmp_path):
    config = jc.load(TINY.removeprefix("--config="), flag="config")
    train.run(config, tmp_path / "run")
    told = planned(capsys, f"--runs={tmp_path / 'run'}")
    consistent(told)
    measured = told["measured"]
    assert measured["device"] == "cpu" and measured["steps"] == told["steps"]
    assert measured["step_ms"] > 0 and measured["run_device_hours"] > 0
    assert plan.main([f"--runs={tmp_path / 'run'}"]) == 0
    assert "measured step_ms" in capsys.readouterr().out


@pytest.mark.parametrize("strategy", seed_axis.STRATEGIES)
@pytest.mark.parametrize("estimate", ["cycles", "kernels", "roofline"])
def test_every_line_of_a_plan_says_what_it_means(strategy, estimate):
    """Whatever a plan has: parts of a step, what was measured, what it would cost."""
    told = {
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
    rows = plan._page(told)
    assert {len(row) for row in rows} == {3}
    assert all(len(row[2]) > 10 and "{}" not in row[2] for row in rows)
    assert {row[0].strip() for row in rows} == plan._MEANINGS.keys()
    assert ("money", "0.0012 at 1.2 per device hour") in [row[:2] for row in rows]
    text = plan._page_text(told)
    assert text[-1] == "note: a note" and max(map(len, text)) < 145


def test_parts_of_the_step_are_those_of_programs():
    assert PARTS < set(hlo.PARTS)
