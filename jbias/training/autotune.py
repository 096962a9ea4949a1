"""Chooses what the strategy "auto" is, by a compiler's estimate or by timing first steps."""

import contextlib
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

from jbias.runtime import files, xla
from jbias.training import hlo, memory, seed_axis, stages

_MIN_STEPS = 500  # Steps of a run that is worth a comparison.
# Seconds of the steps of one on a GPU, which compiles another program for half a minute.
_MIN_SECONDS = 60.0
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
    placed: memory.Placement, kept: Any, say: Callable[[str], None]
) -> dict[str, Any]:
    """The strategy of a run, and what was found of each candidate if there are several.

    That is the cost of a step of one seed in the first stage: cycles where TPUs'
    compiler estimates them, else seconds of the first steps, whose results are dropped.
    What was found once of a program is cached, and holds while a seed of each stage fits
    with it; `kept` is what the run had before. Nothing is compared where seeds are crowded,
    and nothing more where a GPU ends the run soon with what was timed first.
    """
    run, devices, stage = placed.run, placed.devices, placed.stages[0]
    count, steps = len(stage.members), placed.stages[-1].last
    several = candidates(run["strategy"], devices, count, steps)
    if placed.crowded or len(several) == 1:
        return {"strategy": run["strategy"] if placed.crowded else several[0]}
    before = kept.get("strategy", "auto") if isinstance(kept, dict) else None
    before = several[0] if before == "auto" else before  # Nothing was compared.
    if before in several:
        return {"strategy": before}
    unit = "cycles" if xla.platform() == "tpu" else "seconds"
    looped, device = seed_axis.STRATEGIES["looped"], devices.devices.flat[0]
    program = stage.program.step, looped, stage.shapes, devices, 1
    text = memory.lower_step(*program).as_text()
    about = (device.device_kind, device.client.platform_version, devices.shape)
    about += (count, several, run["together"], run["memory"], jax.__version__)
    about += (run["steps_per_dispatch"], len(os.sched_getaffinity(0)))
    path = files.cache_path("strategies")
    path /= f"{hashlib.sha256(f'{text}{about}'.encode()).hexdigest()}.json"
    with contextlib.suppress(OSError, ValueError, jax.errors.JaxRuntimeError):
        cached = files.read_json(path, dict, "delete it")
        name = cached.get("strategy")
        if name in several and all(one.count for one in placed.fits_by(name)):
            return cached
    say(f"auto: comparing {', '.join(several)} ...")
    costs = {}
    for name in several:
        try:
            costs[name] = _cost(placed, name, unit)
        except jax.errors.JaxRuntimeError as error:
            costs[name] = math.inf  # Mostly larger than the device.
            say(f"auto: {name}: {str(error).strip().partition(chr(10))[0][:200]}")
        soon = steps * count * costs[name] < _MIN_SECONDS
        if soon and name == several[0] and xla.platform() == "gpu":
            say(f"auto: {name}; its steps take less time than comparing would")
            return {"strategy": name, unit: costs}
    fitting = {name: one for name, one in costs.items() if one < math.inf}
    found = {"strategy": min(costs, key=costs.get), unit: fitting}
    each = ", ".join(f"{name} {one:.4g}" for name, one in costs.items())
    say(f"auto: {found['strategy']}; {unit} of a seed's step: {each}")
    if fitting == costs:  # What did not fit may fit another time.
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            files.save(path, json.dumps(found))
    return found


def _cost(placed: memory.Placement, name: str, unit: str) -> float:
    """Of one seed's step in the first stage; infinite where one stage does not fit."""
    programs, run = {}, {**placed.run, "strategy": name}
    stages, devices = placed.stages, placed.devices
    free = placed.free or 2**62  # Where nobody says.

    def compiled(*of_step) -> memory.Need:
        *_, given, _, count = of_step
        programs[count] = memory.lower_step(*of_step).compile()
        return memory.program_need(programs[count], given.state, count)

    first, *others = stages
    count = memory.fit(stages, first, devices, run, free, compiled).count
    fits = (memory.fit(stages, one, devices, run, free) for one in others)
    if not count or not all(one.count for one in fits):
        return math.inf
    if unit == "seconds":
        return measured_seconds(first, devices, name, count)
    stacked = seed_axis.STRATEGIES[name].stacked
    rows = count // devices.shape["seed"] if stacked else 1
    return estimated_cycles(programs[rows], first, rows)


def estimated_cycles(
    program: jax.stages.Compiled, stage: stages.Stage, rows: int
) -> float:
    """Estimated cycles of one of the seeds that a program of a stage computes."""
    found = hlo.operations(program.as_text(), gate_probability(stage.spec.config), rows)
    return sum(one.total for one in found) / rows


def measured_seconds(
    stage: stages.Stage, devices: jax.sharding.Mesh, name: str, count: int
) -> float:
    """Of one seed's step: the fastest of some first ones."""
    laid = stages.fit_to_devices(stage, devices, strategy=name, together=count)
    states, step, took = laid.start(), laid.first, []
    laid.wait(step, lambda: False)
    args = laid.batches(step) * _STEPS
    held, static = laid.shared(step), laid.static(step)
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        states, seen = laid.advance(states, args, held, static)
        jax.block_until_ready((states, seen))
        took.append(time.perf_counter() - began)
    return min(took[1:]) / _STEPS / len(laid.members)
