"""Choose a run's strategy for config.run.strategy="auto": compare cycles or timed steps."""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from jbias.runtime import cuda_graphs, files, messages, xla
from jbias.training import placement, seed_axis, stages, strategies
from jbias.training.tuning import hlo, memory_estimate

_MIN_STEPS = 500  # Shorter runs compare nothing.
_MAX_SECONDS = 20.0  # The budget of a comparison, apart from the default strategy.
_MAX_SAVING = 0.5  # The largest share of a run's time that another strategy has saved.
_TIMED_SECONDS = 3.0  # After this time no further dispatch is timed.
# Key in a cached comparison: the most steps of the runs that may reuse it.
_MOST_STEPS = "most_steps"
_STEPS = 2  # Steps per timed dispatch, if no steps are in one compiled loop.
_TIMED = 3  # The largest number of timed dispatches.


def candidates(
    strategy: str, devices: jax.sharding.Mesh, count: int, steps: int
) -> tuple[str, ...]:
    """Return the names of the strategies to compare for `count` seeds, the default first.

    strategy: config.run.strategy; unless "auto", only this name is returned. steps: length
    of the run. Only the default is returned if the run has fewer than `_MIN_STEPS` steps,
    several processes (which must all choose the same strategy), several CPU devices, or at most one
    seed per position of the mesh axis "seed".
    """
    if strategy != "auto":
        return (strategy,)
    platform = xla.platform()
    default = strategies.default_strategy(platform, devices.size)
    has_one_process = len({x.process_index for x in devices.devices.flat}) == 1
    is_compared = (
        count > devices.shape["seed"]
        and steps >= _MIN_STEPS
        and has_one_process
        and (platform != "cpu" or devices.size == 1)
    )
    names = strategies.AUTO_CANDIDATES[platform] if is_compared else ()
    return (default, *(name for name in names if name != default))


def gate_probability(stage_config: Mapping[str, Any]) -> float:
    """Return the probability that a random conditional of a stage's algorithm is True.

    This is the option `p` of config.algo if it is a number, else 0.5.
    """
    p = stage_config["algo"].get("p")
    return float(p) if isinstance(p, int | float) else 0.5


def choose_strategy(
    placed: memory_estimate.Placement, earlier: Any, say: Callable[[str], None]
) -> dict[str, Any]:
    """Return {"strategy": name}, and the cost of each candidate if several were compared.

    The costs are an entry "cycles": {name: cost} on TPUs, whose compiler estimates cycles, else
    "seconds": {name: cost}. A cost is the cost of one step of one seed in the first stage.
    The costs lack strategies that failed, need too much memory or were left out (see `_compare`).
    The result has no costs if `earlier` is used or the default strategy was too slow to compare.
    The states of timed steps are dropped.

    placed: the stages and the memory that they need. earlier: what this function returned when
    the run was first started, or None; the strategy in `earlier` is used again if this strategy
    is still a candidate ("auto" means the default). say: prints a line.

    Nothing is compared if there is only one candidate, or if memory is scarce
    (`Placement.crowded`). If memory is scarce, config.run.strategy is returned, even if this option
    is "auto". The default strategy is compared first. Further strategies are compared
    only while the comparison probably takes less than `_MAX_SECONDS` in total, and less than
    the time that a better strategy can save. Results are cached by program, device and options,
    and reused if all stages still fit into memory.
    """
    run, devices, stage = placed.run, placed.devices, placed.stages[0]
    count, steps = len(stage.members), placed.stages[-1].last
    names = candidates(run.strategy, devices, count, steps)
    if placed.crowded:
        return {"strategy": run.strategy}
    if len(names) == 1:
        return {"strategy": names[0]}
    earlier_name = (
        earlier.get("strategy", "auto") if isinstance(earlier, dict) else None
    )
    if earlier_name == "auto":  # The run began before strategies were compared.
        earlier_name = names[0]
    if earlier_name in names:
        return {"strategy": earlier_name}
    path = _cache_path(placed, names)
    with contextlib.suppress(OSError, ValueError, jax.errors.JaxRuntimeError):
        cached = files.read_json(path, dict, "delete it")
        cached_name = cached.get("strategy")
        does_fit = cached_name in names and all(
            fit.count for fit in placed.fits_by(cached_name)
        )
        # An incomplete comparison is reused only by runs with at most as many steps.
        if does_fit and steps <= cached.pop(_MOST_STEPS, steps):
            return cached
    say(f"auto: comparing {', '.join(names)} ...")
    unit = "cycles" if xla.platform() == "tpu" else "seconds"
    costs = _compare(placed, names, unit, say)
    finite_costs = {name: cost for name, cost in costs.items() if cost < math.inf}
    choice = {"strategy": min(costs, key=costs.get, default=names[0])}
    if costs:
        choice[unit] = finite_costs
        costs_text = ", ".join(f"{name} {cost:.4g}" for name, cost in costs.items())
        say(f"auto: {choice['strategy']}; {unit} of a seed's step: {costs_text}")
    # A candidate that needed too much memory may fit another time, so nothing is cached.
    if len(finite_costs) == len(costs):
        limits = {} if len(costs) == len(names) else {_MOST_STEPS: steps}
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            files.save(path, json.dumps({**choice, **limits}))
    return choice


def _cache_path(
    placed: memory_estimate.Placement, names: tuple[str, ...]
) -> pathlib.Path:
    """Return the cache file of a comparison, named by a hash of all that the result depends on.

    The hash is of one seed's program in the first stage, the devices, the versions of JAX
    and the driver, the candidates, the number of seeds, and the options of the run.
    """
    run, devices, stage = placed.run, placed.devices, placed.stages[0]
    program = memory_estimate.lower_step(
        stage.program.step,
        strategies.STRATEGIES["looped"],
        stage.shapes,
        devices,
        1,
    )
    device = devices.devices.flat[0]
    environment = (
        device.device_kind,
        device.client.platform_version,
        devices.shape,
        len(stage.members),
        names,
        run.together,
        run.memory,
        jax.__version__,
        run.steps_per_dispatch,
        len(os.sched_getaffinity(0)),
        os.environ.get("XLA_FLAGS", ""),
        cuda_graphs.describe(devices.size),
        sorted(cuda_graphs.LOOP_OPTIONS.items()),
    )
    key = f"{program.as_text()}{environment}"
    digest = hashlib.sha256(key.encode()).hexdigest()
    return files.cache_path("strategies") / f"{digest}.json"


def _compare(
    placed: memory_estimate.Placement,
    names: tuple[str, ...],
    unit: str,
    say: Callable[[str], None],
) -> dict[str, float]:
    """Return the cost of a seed's step by strategy; infinite if the step does not fit or fails.

    names: the default first. unit: "cycles" or "seconds". Strategies that would take too long
    to compare are left out, and `say` prints a line about each. The result is empty if the
    first steps of the default take more than `_MAX_SECONDS`.
    """
    count, steps = len(placed.stages[0].members), placed.stages[-1].last
    costs: dict[str, float] = {}
    budget, spent = _MAX_SECONDS, 0.0
    # Seconds to compile and time a program of the size of one seed's.
    seconds_per_size = 0.0
    for name in names:
        predicted = seconds_per_size * _relative_size(name, count)
        has_choice = costs and min(costs.values()) < math.inf
        if has_choice and spent + predicted > budget:
            say(
                f"auto: {name} left out: timing it would take about {predicted:.0f} s, and "
                f"{budget - spent:.0f} s are left; --config.run.strategy={name} takes it"
            )
            continue
        began = time.perf_counter()
        try:
            cost = _cost(placed, name, unit, is_first=name == names[0])
        except jax.errors.JaxRuntimeError as error:
            cost = math.inf  # Mostly because it needs too much memory.
            say(f"auto: {name}: {messages.shorten(error)}")
        seconds = time.perf_counter() - began
        if cost is None:
            others = " or ".join(f"--config.run.strategy={x}" for x in names[1:])
            say(
                f"auto: {name}, not compared: its first steps took {seconds:.0f} s with "
                f"compilation; {others} takes another"
            )
            return {}
        costs[name] = cost
        if name == names[0]:
            seconds_per_size = seconds / _relative_size(name, count)
        else:
            spent += seconds
        if unit == "seconds" and costs[name] < math.inf:
            largest_saving = _MAX_SAVING * steps * count * costs[name]
            budget = min(budget, largest_saving)
    return costs


def _cost(
    placed: memory_estimate.Placement, name: str, unit: str, *, is_first: bool
) -> float | None:
    """Return the cost of one seed's step in the first stage; infinite if a stage does not fit.

    name: the strategy. unit: "cycles" or "seconds". is_first: the strategy is the default;
    return None if its first timed steps, with compilation, take more than `_MAX_SECONDS`.
    """
    compiled_programs: dict[int, jax.stages.Compiled] = {}
    run = dataclasses.replace(placed.run, strategy=name)
    devices = placed.devices
    free = placed.free or 2**62  # No limit, if the free memory is unknown.

    def compile_and_keep(
        step: seed_axis.SeedFunction,
        strategy: strategies.Strategy,
        shapes: stages.StepShapes,
        devices: jax.sharding.Mesh,
        count: int,
    ) -> memory_estimate.Need:
        program = memory_estimate.lower_step(
            step, strategy, shapes, devices, count
        ).compile()
        compiled_programs[count] = program
        return memory_estimate.program_need(program, shapes.state, count)

    first, *later_stages = placed.stages
    count = memory_estimate.fit(
        placed.stages, first, devices, run, free, compile_and_keep
    ).count
    other_fits = (
        memory_estimate.fit(placed.stages, x, devices, run, free) for x in later_stages
    )
    if not count or not all(fit.count for fit in other_fits):
        return math.inf
    if unit == "seconds":
        return measured_seconds(
            first,
            devices,
            name,
            count,
            scanned=memory_estimate.scanned_steps(run),
            may_stop=is_first,
        )
    is_stacked = strategies.STRATEGIES[name].stacked
    seeds_per_program = count // devices.shape["seed"] if is_stacked else 1
    return estimated_cycles(
        compiled_programs[seeds_per_program], first, seeds_per_program
    )


def estimated_cycles(
    program: jax.stages.Compiled, stage: stages.Stage, num_seeds: int
) -> float:
    """Return the estimated cycles per seed of a TPU's program of `num_seeds` seeds."""
    probability = gate_probability(stage.spec.config)
    operations = hlo.operations(program.as_text(), probability, num_seeds)
    return sum(operation.total for operation in operations) / num_seeds


def _relative_size(name: str, count: int) -> int:
    """Return the size of a strategy's program, as a multiple of the program of one seed.

    name: the strategy. count: number of seeds. The size is 1 + count // 2 if seeds or
    convolutions are unrolled, else 1. On TPUs and GPUs, the compilation of ten unrolled seeds
    took four to five times as long as the compilation of one seed.
    """
    strategy = strategies.STRATEGIES[name]
    is_unrolled = "unrolled" in (strategy.dispatch, strategy.convolutions)
    return 1 + count // 2 if is_unrolled else 1


def measured_seconds(
    stage: stages.Stage,
    devices: jax.sharding.Mesh,
    name: str,
    count: int,
    *,
    scanned: int = 0,
    may_stop: bool = False,
) -> float | None:
    """Return the seconds of one seed's step: the fastest of at most `_TIMED` dispatches.

    One or two dispatches before the timed dispatches are not counted. name: the strategy.
    count: number of seeds that train together. scanned: the steps in one compiled loop; 0: no
    loop. may_stop: return None if the first dispatch, compilation included, takes more than
    `_MAX_SECONDS`.
    """
    laid = placement.fit_to_devices(
        stage, devices, strategy=name, together=count, scanned=scanned
    )
    seconds = []
    # A graph is captured in the second dispatch (`cuda_graphs.CapturedFunction`).
    num_warm_up = 2 if cuda_graphs.are_requested() else 1
    for elapsed in _dispatch_first_steps(laid, scanned):
        seconds.append(elapsed)
        if may_stop and seconds[0] > _MAX_SECONDS:
            return None
        timed = seconds[num_warm_up:]
        if len(timed) == _TIMED or sum(timed) > _TIMED_SECONDS:
            break
    return min(timed) / max(_STEPS, scanned) / len(stage.members)


def _dispatch_first_steps(laid: placement.PlacedStage, scanned: int) -> Iterator[float]:
    """Dispatch a stage's first steps from fresh states; yield the seconds of each dispatch.

    A dispatch has `scanned` steps, but at least `_STEPS`, all on the stage's first batch. The
    iterator has no end.
    """
    num_steps, step = max(_STEPS, scanned), laid.stage.first
    states = laid.start()
    laid.stage.feed.wait(step, lambda: False)
    first = laid.take(step, 1)
    steps = first._replace(arguments=first.arguments * num_steps)
    while True:
        began = time.perf_counter()
        states, outputs = laid.advance(states, steps)
        jax.block_until_ready((states, outputs))
        yield time.perf_counter() - began
