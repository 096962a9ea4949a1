"""Chooses what the strategy "auto" is, by a compiler's estimate or by timing first steps."""

import contextlib
import hashlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from jbias.runtime import cuda_graphs, files, xla
from jbias.training import hlo, memory, seed_axis, stages

_MIN_STEPS = 500  # Steps of a run that is worth a comparison.
_MAX_SECONDS = 20.0  # For everything that the run does not need anyway.
_MAX_SAVING = 0.5  # The largest share of a run's time that another strategy has saved.
_TIMED_SECONDS = 3.0  # After which no further dispatch is timed.
_MOST_STEPS = "most_steps"  # Of the runs for which a cached comparison holds.
_STEPS = 2  # Per timed dispatch, where no steps are scanned.
_TIMED = 3  # Dispatches, at most, after those that compile.


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
    with it; `kept` is what the run had before. Nothing is compared where seeds are crowded.
    The first candidate is what the run takes without a comparison; another is looked at
    only if that probably ends within `_MAX_SECONDS` and takes less time than it can save.
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
        fits = name in several and all(one.count for one in placed.fits_by(name))
        # A comparison that left a candidate out holds for runs of as many steps.
        if fits and steps <= cached.pop(_MOST_STEPS, steps):
            return cached
    say(f"auto: comparing {', '.join(several)} ...")
    costs: dict[str, float] = {}
    allowed, spent = _MAX_SECONDS, 0.0
    # Seconds that a program of one seed's size took to compile and to time.
    per_program = 0.0
    for name in several:
        predicted = per_program * _relative_size(name, count)
        if costs and min(costs.values()) < math.inf and spent + predicted > allowed:
            say(
                f"auto: {name} left out: looking at it takes about {predicted:.0f} s, of "
                f"{allowed - spent:.0f} s that are worth it; --config.run.strategy={name} "
                "takes it"
            )
            continue
        began = time.perf_counter()
        try:
            costs[name] = _cost(placed, name, unit, is_first=name == several[0])
        except jax.errors.JaxRuntimeError as error:
            costs[name] = math.inf  # Mostly larger than the device.
            say(f"auto: {name}: {str(error).strip().partition(chr(10))[0][:200]}")
        seconds = time.perf_counter() - began
        if name == several[0]:
            per_program = seconds / _relative_size(name, count)
        else:
            spent += seconds
        if unit == "seconds" and costs[name] < math.inf:
            saving = _MAX_SAVING * steps * count * costs[name]
            allowed = min(allowed, saving)
    fitting = {name: one for name, one in costs.items() if one < math.inf}
    found = {"strategy": min(costs, key=costs.get), unit: fitting}
    each = ", ".join(f"{name} {one:.4g}" for name, one in costs.items())
    say(f"auto: {found['strategy']}; {unit} of a seed's step: {each}")
    # What did not fit may fit another time, and a longer run has time to look at more.
    if list(fitting) == list(costs):
        is_whole = list(costs) == list(several)
        limits = {} if is_whole else {_MOST_STEPS: steps}
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            files.save(path, json.dumps({**found, **limits}))
    return found


def _cost(placed: memory.Placement, name: str, unit: str, *, is_first: bool) -> float:
    """Return the cost of one seed's step in the first stage; infinite if a stage needs
    more memory than there is.

    is_first: the strategy is that of a run without a comparison.
    """
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
        return measured_seconds(
            first,
            devices,
            name,
            count,
            scanned=memory.scanned_steps(run),
            may_stop=is_first,
        )
    stacked = seed_axis.STRATEGIES[name].stacked
    rows = count // devices.shape["seed"] if stacked else 1
    return estimated_cycles(programs[rows], first, rows)


def estimated_cycles(
    program: jax.stages.Compiled, stage: stages.Stage, rows: int
) -> float:
    """Estimated cycles of one of the seeds that a program of a stage computes."""
    found = hlo.operations(program.as_text(), gate_probability(stage.spec.config), rows)
    return sum(one.total for one in found) / rows


def _relative_size(name: str, count: int) -> int:
    """Return about how many times as long as one seed's step a strategy's compiles.

    Ten seeds unrolled took four to five times as long on TPUs and GPUs as one.
    """
    strategy = seed_axis.STRATEGIES[name]
    unrolled = "unrolled" in (strategy.dispatch, strategy.convolutions)
    return 1 + count // 2 if unrolled else 1


def measured_seconds(
    stage: stages.Stage,
    devices: jax.sharding.Mesh,
    name: str,
    count: int,
    *,
    scanned: int = 0,
    may_stop: bool = False,
) -> float:
    """Return the seconds of one seed's step: of the fastest of some first dispatches.

    scanned: the number of steps that are one program in the run, 0: none are. may_stop:
    stop after a first dispatch of more than `_MAX_SECONDS`, which includes compilation, as
    nothing is compared with it then.
    """
    laid = stages.fit_to_devices(
        stage, devices, strategy=name, together=count, scanned=scanned
    )
    seconds = []
    num_warm_up = _num_warm_up()
    for number, elapsed in enumerate(_dispatch_first_steps(laid, scanned)):
        seconds.append(elapsed)
        is_over_limit = may_stop and seconds[0] > _MAX_SECONDS
        timed = seconds[num_warm_up:]
        if is_over_limit or len(timed) == _TIMED or sum(timed) > _TIMED_SECONDS:
            break
    return min(timed or seconds) / max(_STEPS, scanned) / len(laid.members)


def try_graph(stage: stages.Stage, scanned: int) -> None:
    """Run a stage's first steps on a GPU until they have been tried as a CUDA graph.

    The states are dropped. scanned: as for `measured_seconds`. A graph that fails is in
    `cuda_graphs.failures`.
    """
    for _ in zip(range(_num_warm_up()), _dispatch_first_steps(stage, scanned)):
        pass


def _num_warm_up() -> int:
    """Return the number of dispatches before the program that the run repeats is compiled."""
    return 2 if cuda_graphs.are_requested() else 1


def _dispatch_first_steps(stage: stages.Stage, scanned: int) -> Iterator[float]:
    """Dispatch a stage's first steps from fresh states; yield the seconds of each dispatch."""
    num_steps, step = max(_STEPS, scanned), stage.first
    states = stage.start()
    stage.wait(step, lambda: False)
    args = stage.batches(step) * num_steps
    shared, static = stage.shared(step), stage.static(step)
    while True:
        began = time.perf_counter()
        states, outputs = stage.advance(states, args, shared, static)
        jax.block_until_ready((states, outputs))
        yield time.perf_counter() - began
