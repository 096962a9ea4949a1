"""Restore a run from its latest checkpoint: states, records and files of decisions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jbias.runs import checkpoints, checksums, record_store, results
from jbias.training import step as train_step
from jbias.training import store
from jbias.training.placement import PlacedStage
from jbias.training.seed_axis import PackedStates
from jbias.training.stopping import AgreedStop


class Position(NamedTuple):
    """A position in training, restored from a checkpoint."""

    stage: int  # Index of the stage.
    states: PackedStates  # The states of all members after `step`.
    step: int
    info: dict[str, Any]  # The checkpoint's info, for `resume`.


def restore(
    run_store: store.RunStore, stages: Sequence[PlacedStage]
) -> Position | None:
    """Return the position of the latest complete checkpoint; None without checkpoints.

    Damaged checkpoints are moved aside. stages: all stages of the run. ValueError if a
    checkpoint is of another run, or none can be read.
    """
    run_store.check_lock()  # Restoring moves damaged checkpoints away.
    checkpoint = run_store.checkpoints.restore(_state_shapes(stages), run_store.log.say)
    if checkpoint is None:
        return None
    states, info = checkpoint
    stage = info["stage"]
    packed = stages[stage].layout.pack(states)
    return Position(stage, packed, info["step"], info)


def resume(
    run_store: store.RunStore, info: Mapping[str, Any], *, needs_evaluation: bool
) -> None:
    """Restore the monitor, the best accuracies and the files of records from a checkpoint.

    Records of the step's evaluation that are lost or damaged are written again. If another process
    evaluates the step or has evaluated it, the step counts as left to that process, and the monitor
    is reset.

    info: the checkpoint's `info`, as `save` stores it. needs_evaluation: a step that was saved
    without its evaluation is evaluated again, even if its records exist, because the states depend
    on evaluations.
    """
    step, is_main = info["step"], run_store.group.is_main
    run_store.monitor.load(info["watch"])
    run_store.best = info["best"]
    run_store.records.sums |= info.get("sums", {})
    run_store.log.resume(step)
    is_evaluated = is_main and record_store.is_evaluated(run_store.workdir, step)
    is_evaluated = run_store.group.broadcast("what is evaluated", is_evaluated)
    evaluates_elsewhere = run_store.spec.run.evaluate == "elsewhere"
    is_done = evaluates_elsewhere or (is_evaluated and not needs_evaluation)
    if info.get("left") and is_done:
        run_store.left = step
        run_store.monitor.reset()
    if info["records"]:
        run_store.evaluation = store.NOT_EVALUATED._replace(step=step)
        if is_main:
            where = f"the checkpoint of step {step}"
            records = results.loads(info["records"], where=where)
            run_store.records.write_again(step, records)
            run_store.log.observers.send_records(step, records)
    run_store.records.restore(run_store.checkpoints.info)


def restore_decisions(
    run_store: store.RunStore,
    stages: Sequence[PlacedStage],
    *,
    decide: Callable[[PlacedStage, PackedStates], Any],
    stop: AgreedStop,
) -> None:
    """Recompute lost files of decisions from checkpoints, and write the checksums.

    A line is logged if files cannot be recomputed, as their steps have no checkpoint. A stop
    signal ends the work; the next start continues.

    stages: all stages of the run. decide: returns the decisions of all members by data set; None
    if a stop was requested.
    """
    checksums_of_decisions = {
        path: checksum
        for path, checksum in run_store.records.sums.items()
        if not checksums.is_record(path)
    }
    lost, steps = record_store.find_damaged(
        run_store.workdir,
        checksums_of_decisions,
        decisions=run_store.spec.run.decisions,
    )
    for step in run_store.group.broadcast("lost decisions", steps):
        if stop.agreed:
            break
        shapes = _state_shapes(stages)
        checkpoint = run_store.checkpoints.restore_step(step, shapes)
        if checkpoint:
            stage = stages[checkpoint.info["stage"]]
            nets = stage.layout.pack(map(net_only, checkpoint.states))
            run_store.decisions.rewrite(step, decide(stage, nets), run_store.log.say)
    # After a stop, the next start recomputes the remaining files.
    run_store.records.seal(() if stop.agreed else lost)


def net_only(state: train_step.State) -> train_step.State:
    """Return the state with only the network that evaluations use, and no optimiser state."""
    net = train_step.net_of(state)
    return train_step.State(
        step=state.step,
        params={"net": net["params"]},
        stats={"net": net["stats"]},
        opt=(),
    )


def _state_shapes(stages: Sequence[PlacedStage]) -> checkpoints.Template:
    """Return a function from the index of a stage to the shapes of its members' states."""
    return lambda number: stages[number].stage.state_shapes
