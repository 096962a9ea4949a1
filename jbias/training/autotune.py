"""Chooses what the strategy "auto" is, by a compiler's estimate or by timing first steps."""

import contextlib
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from jbias import run_spec
from jbias.runtime import files, xla
from jbias.training import hlo, memory, seed_axis, stages

_MIN_STEPS = 500  # Steps of a run that is worth a comparison.
_STEPS, _ROUNDS = 2, 4  # Dispatched at once, and how often; the first round compiles.


def candidates(
    strategy: str, devices: jax.sharding.Mesh, count: int, steps: int
) -> tuple[str, ...]:
    """What may compute `count` seeds; the first is what it is if nothing is known.

    All processes of a run must say the same, so several compare nothing.
    """
    if strategy != "auto":
        return (strategy,)
    platform = xla.platform()
    usual = seed_axis.default_strategy(platform, devices.size)
    several = count > devices.shape["seed"] and steps >= _MIN_STEPS
    several = several and len({x.process_index for x in devices.devices.flat}) == 1
    several = several and (platform != "cpu" or devices.size == 1)
    others = seed_axis.AUTO_CANDIDATES[platform] if several else ()
    return (usual, *(name for name in others if name != usual))


def gate_probability(part: Mapping[str, Any]) -> float:
    """How often the gates of a stage's algorithm are open, as far as its config says."""
    p = part["algo"].get("p")
    return float(p) if isinstance(p, int | float) else 0.5


def choose_strategy(
    spec: run_spec.RunSpec,
    own: Sequence[Any],
    kept: Any,
    say: Callable[[str], None],
    stages: Sequence[stages.Stage],
    devices: jax.sharding.Mesh,
    free: int | None,
    fits: Callable[[str], Sequence[memory.Fit]],
) -> dict[str, Any]:
    """The strategy of a run, and what was found of each candidate if there are several.

    That is the cost of a step of one seed in the first stage: cycles where TPUs'
    compiler estimates them, else seconds of the first steps, whose results are dropped.
    What was found once of a program is cached, and holds while fits(strategy), of each
    stage, lets a seed run; `kept` is what the run had before.
    """
    run, stage = spec.config["run"], stages[0]
    several = candidates(run["strategy"], devices, len(own), stages[-1].last)
    if len(several) == 1:
        return {"strategy": several[0]}
    before = kept.get("strategy", "auto") if isinstance(kept, dict) else None
    before = several[0] if before == "auto" else before  # Nothing was compared.
    if before in several:
        return {"strategy": before}
    estimated = xla.platform() == "tpu"
    given = memory.step_shapes(stage, own)
    looped, device = seed_axis.STRATEGIES["looped"], devices.devices.flat[0]
    text = memory.lower_step(stage.seed_step, looped, given, devices, 1).as_text()
    about = (device.device_kind, device.client.platform_version, devices.shape)
    about += (len(own), several, run["together"], run["memory"], jax.__version__)
    about += (run["steps_per_dispatch"], len(os.sched_getaffinity(0)))
    path = files.cache_path("strategies")
    path /= f"{hashlib.sha256(f'{text}{about}'.encode()).hexdigest()}.json"
    with contextlib.suppress(OSError, ValueError, jax.errors.JaxRuntimeError):
        cached = files.read_json(path, dict, "delete it")
        name = cached.get("strategy")
        if name in several and all(one.count for one in fits(name)):
            return cached
    say(f"auto: comparing {', '.join(several)} ...")
    costs, free = {}, free or 2**62  # Where nobody says.
    for name in several:
        try:
            costs[name] = _cost(spec, stages, own, devices, name, free, estimated)
        except jax.errors.JaxRuntimeError as error:
            costs[name] = math.inf  # Mostly larger than the device.
            say(f"auto: {name}: {str(error).strip().partition(chr(10))[0][:200]}")
    unit = "cycles" if estimated else "seconds"
    fitting = {name: one for name, one in costs.items() if one < math.inf}
    found = {"strategy": min(costs, key=costs.get), unit: fitting}
    each = ", ".join(f"{name} {one:.4g}" for name, one in costs.items())
    say(f"auto: {found['strategy']}; {unit} of a seed's step: {each}")
    if fitting == costs:  # What did not fit may fit another time.
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            files.save(path, json.dumps(found))
    return found


def _cost(spec, stages, own, devices, name: str, free: int, estimated: bool) -> float:
    """Of one seed's step in the first stage; infinite where one stage does not fit."""
    programs, run = {}, {**spec.config["run"], "strategy": name}

    def compiled(*of_step) -> memory.Need:
        *_, given, _, count = of_step
        programs[count] = memory.lower_step(*of_step).compile()
        return memory.program_need(programs[count], given.state, count)

    first, *others = stages
    count = memory.fit(stages, first, own, devices, run, free, compiled).count
    fits = (memory.fit(stages, one, own, devices, run, free) for one in others)
    if not count or not all(one.count for one in fits):
        return math.inf
    if not estimated:
        return measured_seconds(spec, first, own, devices, name, count)
    stacked = seed_axis.STRATEGIES[name].stacked
    rows = count // devices.shape["seed"] if stacked else 1
    return estimated_cycles(programs[rows], spec, rows)


def estimated_cycles(
    program: jax.stages.Compiled, spec: run_spec.RunSpec, rows: int
) -> float:
    """Estimated cycles of one of the seeds that a program of the first stage computes."""
    found = hlo.operations(
        program.as_text(), gate_probability(spec.stages[0].config), rows
    )
    return sum(one.total for one in found) / rows


def measured_seconds(spec, stage, own, devices, name: str, count: int) -> float:
    """Of one seed's step: the fastest of some first ones."""
    laid = stages.fit_to_devices(
        stage, len(own), devices, strategy=name, together=count
    )
    which = [member.seed for member in spec.members]
    states = laid.layout.pack(stages.init_state(stage, seed) for seed in which)
    stage.wait(stage.first, lambda: False)
    taken = laid.layout.place(stage.batch(seed, stage.first) for seed in which)
    args = zip(laid.layout.pack_on_devices(own), taken, strict=True)
    args = tuple(tuple(zip(*wave, strict=True)) for wave in args)
    held, static, took = stage.shared(stage.first), stage.static(stage.first), []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        states, seen = laid.advance(states, [args] * _STEPS, held, static)
        jax.block_until_ready((states, seen))
        took.append(time.perf_counter() - began)
    return min(took[1:]) / _STEPS / len(own)
