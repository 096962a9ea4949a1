"""Trains all seeds of a config, evaluates and saves in its cadence, survives kills.

`opening` makes what the config names, `loop` takes the steps of a stage; this is what
goes before, between and after. Started again with the same config, a run goes on where
its latest whole checkpoint stands.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from etils import epath

from jbias import config as jc
from jbias import step as train_step
from jbias.runs import checkpoints, checksums, costs, status, workdirs
from jbias.runtime import console, files, messages, signals
from jbias.runtime import processes as teams
from jbias.strategies import layout as layouts
from jbias.training import (
    build,
    checks,
    loop,
    observe,
    opening,
    recorded,
    saving,
    signs,
    warmstart,
)
from jbias.training.job import Job


def run(
    config: Mapping[str, Any],
    workdir: epath.PathLike,
    team: teams.ProcessGroup = teams.ALONE,
    *,
    heard: signals.StopSignal | None = None,
) -> bool:
    """Trains, evaluates and records; returns whether any seed stayed finite.

    Where several processes train together, `team` are they: the first alone touches the
    workdir. ValueError where the config cannot be carried out, OSError where the disk cannot
    take it, signals.Interrupted after SIGTERM, SIGUSR1 or SIGINT; each loses nothing that
    was saved. Who trains several runs gives what notes the signals, `heard`.
    """
    if heard is None:
        with signals.listen() as by:
            return run(config, workdir, team, heard=by)
    meter = costs.Stopwatch()
    config = jc.plain(config)
    checks.whole(config)
    saving.energy(config)
    workdir = files.resolve(workdir)
    own = config["run"].get("log", console.LOG_FORMATS[0])
    say = console.logger(workdir, own) if team.is_main else _unheard
    if not team.is_main:
        of = f"process {team.number} of {team.count}"
        console.logger(None)(f"{of}: it is process 0 that says how far the run is")
    with _claimed(workdir, config, say, team) as guard:
        done = workdir / "done"
        fate = done.read_text().strip() if team.is_main and done.exists() else ""
        if fate := team.broadcast("whether it is done", fate):
            if team.is_main:
                opening.check_moved(config, workdir)
            mends = team.is_main and recorded.to_mend(workdir, config["run"], say)
            if not team.broadcast("whether files of it are lost", mends):
                so = "done, every seed diverged" if fate == "diverged" else "done"
                say(f"{workdir} is {so}: nothing to do; another --workdir trains again")
                return fate != "diverged"
        if team.is_main and (workdir / "config.json").exists():
            status.Heartbeat(workdir, say).update("opening")
        job = opening.job(config, workdir, say, team=team, guard=guard)
        job.meter = meter
        heard.attach(job)
        with contextlib.closing(job.writers):
            _train(job)
        fate = "diverged" if job.monitor.all_diverged else "finished"
        if team.is_main:
            _end(job, fate)
        return fate == "finished"


@contextlib.contextmanager
def _claimed(
    workdir: epath.Path,
    config: dict,
    say: Callable[[str], None],
    team: teams.ProcessGroup,
) -> Iterator[Callable[[], None]]:
    """Holds the workdir in the process that writes it; yields what tells it is lost."""
    if not team.is_main:
        yield lambda: None
        return
    try:
        with workdirs.claim(workdir, config, say) as held:
            try:
                yield held.check
            except OSError:
                files.stop_retrying(workdir)
                raise
            except Exception as error:
                if isinstance(error, messages.UserCodeError) or not isinstance(
                    error, ValueError
                ):
                    messages.save_traceback(error, workdir, held.check)
                raise
    finally:
        console.flush(workdir)


def _end(job: Job, fate: str) -> None:
    """Writes how the run ended, and tells it."""
    job.check_lock()
    for folder in (*(b.folder for b in job.branches if b.folder), ""):
        files.save(job.workdir / folder / "done", fate + "\n")
    cost = costs.describe(saving.write_cost(job))
    line = f"{fate}: {job.name} in {job.workdir}, {cost}"
    step = max(job.saved, 0)
    job.log(console.LogEvent(line, "finished", step=step, fate=fate))
    signs.doing(job, fate, step)
    if job.config["vary"]:
        job.log(
            f"its branches side by side: python -m jbias.report --runs={job.workdir}"
        )
    if left := [*recorded.left(job.workdir)]:
        job.log(
            f"steps {', '.join(map(str, left))} are left to "
            f"python -m jbias.evaluate --follow={job.workdir}"
        )


def _unheard(line: str) -> None:
    """What a process but the first would say: the first says the same."""
    del line


def _train(job: Job) -> None:
    """Runs the stages, from where the latest checkpoint stands."""
    restored = _restored(job)
    first, packed, step = 0, None, 0
    info: dict[str, Any] = {}
    if restored is not None:
        states, info = restored
        first, step = info["stage"], info["step"]
        packed = job.stages[first].layout.pack(states)
        del states, restored
    _begin(job, step)
    if packed is not None:
        saving.take_up(job, info)
    _decide_again(job)
    try:
        for number in range(first, len(job.stages)):
            stage = job.stages[number]
            if packed is None or number > first:
                job.best, step = {}, stage.first
                packed = _start(job, stage, packed)
            packed = loop.run(job, stage, packed, step)
            stage.close()
            if job.monitor.all_diverged:
                break
    finally:
        for stage in job.stages:
            stage.close()
        if job.team.is_main:
            checkpoints.finish(job.manager)
    if job.monitor.all_diverged:
        job.log(f"every seed diverged: {_fates(job)}; lower config.optim.rate")


def _restored(job: Job) -> tuple[tuple, dict[str, Any]] | None:
    """What the first process finds in the latest whole checkpoint, in all."""
    job.check_lock()  # What is damaged is moved.
    return _of_first(job, lambda like: checkpoints.restore(job.manager, like, job.log))


def _decide_again(job: Job) -> None:
    """Makes decisions anew that are lost, where their step's states are kept; seals all."""
    held = {k: v for k, v in job.sums.items() if not checksums.is_record(k)}
    lost, steps = recorded.astray(job.workdir, held, job.config["run"])
    for step in job.team.broadcast("lost decisions", steps):
        if job.halted:
            break
        if found := _of_first(
            job, lambda x, n=step: checkpoints.restore_step(job.manager, n, x)
        ):
            stage = job.stages[found[1]["stage"]]
            nets = stage.layout.pack(map(observe.net_alone, found[0]))
            observe.decide(job, stage, nets, step)
    # Halted, it goes on another time.
    recorded.seal(job, () if job.halted else lost)


def _of_first(job: Job, read: Callable) -> tuple[tuple, dict[str, Any]] | None:
    """What the first process reads of a checkpoint by its states' shapes, in all."""
    shapes = observe.template(job)
    restored = read(shapes) if job.team.is_main else None
    if job.team.count == 1:
        return restored
    info = job.team.broadcast("the checkpoint", restored and _of_all(restored[1]))
    if info is None:
        return None
    info = restored[1] if restored else info
    states = restored[0] if restored else _empty(shapes(info["stage"]))
    return tuple(map(job.team.broadcast_tree, states)), info


def _of_all(info: Mapping[str, Any]) -> dict[str, Any]:
    """What every process needs of what stands beside the states: not the records."""
    return {**info, "records": bool(info["records"]), "sums": {}}


def _empty(shapes: tuple) -> tuple:
    return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)


def _begin(job: Job, step: int) -> None:
    """Says what begins or goes on, and opens what hears of it."""
    line = f"{job.name} begins at step {step}"
    told = dict(run=job.name, seeds=job.seeds, total=job.stages[-1].last)
    job.log(console.LogEvent(line, "start", step=step, **told).at("info", quiet=True))
    signs.begin(job, step)
    signs.doing(job, "opening", step)


def _start(
    job: Job, stage: build.Stage, before: layouts.Packed | None
) -> layouts.Packed:
    """The first states of a stage: new ones, with the nets of the stage before it."""
    nets = [None] * len(job.members)
    if before is not None:
        layout = job.stages[stage.number - 1].layout
        assert layout is not None
        nets = [train_step.net_of(state) for state in layout.unpack(before)]
    elif job.initial_nets:
        drawn = [train_step.net_of(build.start(stage, seed)) for seed in job.seeds]
        pairs = zip(drawn, job.initial_nets, strict=True)
        nets = [warmstart.grafted(*pair, job.log) for pair in pairs]
        nets *= len(job.branches)
    assert stage.layout is not None
    return stage.layout.pack(
        job.team.broadcast_tree(build.start(stage, entry.seed, net))
        for entry, net in zip(job.members, nets, strict=True)
    )


def _fates(job: Job) -> str:
    """Which seed diverged at which step."""
    return ", ".join(f"seed {k} at step {v}" for k, v in job.monitor.diverged.items())
