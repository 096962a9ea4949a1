"""Rounds of trials of a search with --until-decided: train, look, decide, train further seeds.

Each combination of a search is a method, which is compared with the reference. A trial is a batch
of seeds of a method, or of the reference. `jbias.deciding` plans the batches and decides.
"""

import argparse
import dataclasses
import math
import os
import pathlib
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from jbias import config as jc
from jbias.deciding import chance, descriptions, references, seed_scores, state_file
from jbias.deciding import comparison as comparison_lib
from jbias.deciding import settings as settings_lib
from jbias.launch import local, reference_configs, slurm, trial_loop, trials
from jbias.launch.search import Search
from jbias.runtime import files

UNDECIDED = 4  # Exit code, as of `jbias train --until-decided`.
# Seeds of a batch, if the config does not name a number: at most the first number on cores, and
# the second number on GPUs.
_CPU_SEEDS, _GPU_SEEDS = 4, 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The options of --until-decided; see `comparison.Settings` and `comparison.Limits`.

    metric, dataset: "": see `settings.choose`. bounds: two numbers as text, "LOW,HIGH".
    """

    reference: str
    metric: str = ""
    dataset: str = ""
    selection: str = "best_validation"
    alpha: float = 0.05
    points: float | None = None
    quantity: str = "mean"
    bounds: str = "0,1"
    max_seeds: int = 30
    max_hours: float = math.inf


class Opened(NamedTuple):
    """A comparison that rounds of trials continue.

    methods: the trial of the search of each method, by name of the method. limits: of this start.
    """

    state: state_file.State
    methods: Mapping[str, trials.Trial]
    reference: references.Reference
    limits: comparison_lib.Limits

    @property
    def plan(self) -> comparison_lib.Comparison:
        """The comparison: batches and scores."""
        return self.state.comparison


def check_supported(search: Search, args: argparse.Namespace, is_cloud: bool) -> None:
    """Raise ValueError for a search that cannot train until it is decided.

    args: the parsed arguments. is_cloud: True if results are not available on this machine.
    """
    where = "--until-decided"
    if search.search == "tpe":
        raise ValueError(
            f"{where}: compares a fixed number of methods; use --sampler=grid or random"
        )
    if search.stop != "never":
        raise ValueError(f"{where}: needs all seeds; leave out --pruner")
    if is_cloud:
        raise ValueError(
            f"{where}: needs results, which are not available on this machine with --on={args.on}; "
            "use local or slurm"
        )
    if args.importance:
        raise ValueError(f"{where}: compares methods; leave out --importance")
    if "seeds" in search.axes:
        raise ValueError(
            f"{where}: config.seeds cannot be an axis, because the comparison chooses the seeds"
        )


def open_comparison(
    search: Search,
    planned: Mapping[str, trials.Trial],
    workdir: pathlib.Path,
    *,
    default_seeds: int,
) -> Opened:
    """Return the comparison of a search, from its workdir or new; write nothing.

    planned: the trials of the search, one per method. workdir: of the search. default_seeds: seeds
    of a batch, unless a config names a number.
    ValueError for invalid options, and for options that differ from the comparison in the workdir.
    """
    try:
        options = Options(**search.until_decided)
    except TypeError:
        known = ", ".join(field.name for field in dataclasses.fields(Options))
        raise ValueError(
            f"--until-decided: must have entries among {known}, with reference, got "
            f"{search.until_decided}"
        ) from None
    reference = references.read(options.reference)
    planned = [*planned.values()]
    for trial in planned:
        _check_seeds(trial)
    _check_different(planned, reference)
    *method_names, reference_name = seed_scores.names(
        [trial.config for trial in planned], reference.config
    )
    methods = dict(zip(method_names, planned, strict=True))
    configs = {name: trial.config for name, trial in methods.items()}
    settings = _settings(options, {**configs, reference_name: reference.config})
    trained_seeds = tuple(sorted(seed_scores.read(reference.runs, settings)))
    pinned = {
        name: state_file.pinned_config(
            config, own_code=reference_configs.own_code(config)
        )
        for name, config in configs.items()
    }
    pinned[reference_name] = state_file.pinned_config(
        reference.config,
        # The own code of runs is compared with their records before further seeds are trained.
        own_code={} if reference.runs else reference_configs.own_code(reference.config),
    )
    plan = comparison_lib.Comparison(
        settings=settings,
        methods=tuple(methods),
        reference=reference_name,
        first_seeds=trained_seeds or (min(reference.config["seeds"]),),
        are_trained=bool(reference.runs),
    )
    limits = comparison_lib.Limits(
        max_seeds=options.max_seeds,
        max_hours=options.max_hours,
        batch_seeds={
            name: _explicit_seeds(trial) or default_seeds
            for name, trial in methods.items()
        },
    )
    comparison_lib.check_limits(plan, limits)
    comparison_lib.look(plan)  # Raises for wrong points, bounds and quantity.
    state = state_file.resume(workdir, state_file.State(plan, pinned))
    return Opened(state, methods, reference=reference, limits=limits)


def _settings(
    options: Options, configs: Mapping[str, Mapping[str, Any]]
) -> comparison_lib.Settings:
    """Return the settings of a comparison of configs, by name; ValueError if they are invalid."""
    return settings_lib.choose(
        configs,
        metric=options.metric,
        dataset=options.dataset,
        selection=options.selection,
        alpha=options.alpha,
        points=options.points,
        quantity=options.quantity,
        bounds=settings_lib.parse_bounds(options.bounds),
    )


def _check_different(
    planned: Sequence[trials.Trial], reference: references.Reference
) -> None:
    """Raise ValueError if two methods, or a method and the reference, have the same config.

    planned: the trials of the methods. Configs that differ only in seeds are the same.
    """
    reference_config = state_file.pinned_config(reference.config)
    earlier: list[dict[str, Any]] = []
    for trial in planned:
        config = state_file.pinned_config(trial.config)
        words = shlex.join(trial.arguments)
        if config == reference_config:
            raise ValueError(
                f"--until-decided: the reference has the same config as {words}, so that every "
                "seed would be compared with itself; leave one out"
            )
        if config in earlier:
            raise ValueError(
                f"--until-decided: {words} differs from another config only in seeds; leave one "
                "out"
            )
        earlier.append(config)


def _check_seeds(trial: trials.Trial) -> None:
    """Raise ValueError if config.seeds is not 0, 1, 2, ...: the comparison chooses the seeds."""
    seeds = trial.config["seeds"]
    if list(seeds) != list(range(len(seeds))):
        raise ValueError(
            f"config.seeds: --until-decided trains the seeds of the reference, got {seeds}; leave "
            "the entry out, seeds=N in --config=NAME:seeds=N is the number of seeds at a time"
        )


def _explicit_seeds(trial: trials.Trial) -> int:
    """Return the number of seeds that the arguments of a trial name; 0 if they name none."""
    config_argument, *changes = trial.arguments
    config_name = config_argument.removeprefix("--config=").removeprefix("jbias:")
    arguments = jc.explicit_arguments(config_name.partition(":")[2])
    if "seeds" in arguments or any(
        change.startswith("--config.seeds=") for change in changes
    ):
        return len(trial.config["seeds"])
    return 0


def default_seeds(executor_name: str, options: Mapping[str, Any]) -> int:
    """Return the seeds of a batch that an executor's slot or job computes cheaply.

    options: of the executor, as `runner.parse_executor` returns them.
    """
    if executor_name == "slurm":
        has_gpus, num_cores = options["gpus"] > 0, options["cpus"]
    else:
        slots = local.slots(**options)
        has_gpus = any("CUDA_VISIBLE_DEVICES" in slot.environment for slot in slots)
        num_cores = len(os.sched_getaffinity(0)) // len(slots)
    return _GPU_SEEDS if has_gpus else min(max(1, num_cores), _CPU_SEEDS)


class Round:
    """The trials of a round, for `trial_loop.run_trials`.

    workdir: of the search.
    """

    num_undrawn = 0

    def __init__(self, round_trials: Sequence[trials.Trial], workdir: pathlib.Path):
        self.workdir = workdir
        self._trials, self._waiting = [*round_trials], [*round_trials]

    def prepare(self, phases_to_start: Collection[str]) -> None:
        """Do nothing: there is no study that knows unfinished trials."""

    def statuses(self) -> list[trials.TrialStatus]:
        """Read and return the status of all trials."""
        return [*map(trials.read_status, self._trials)]

    def next_trial(self) -> trials.Trial | None:
        """Return the next trial; None if none is left."""
        return self._waiting.pop(0) if self._waiting else None

    def report(self, trial_status: trials.TrialStatus) -> str:
        """Return "": no trial is stopped early."""
        return ""

    def finish(self, trial_status: trials.TrialStatus) -> None:
        """Do nothing: `jbias.deciding` reads the scores of ended trials."""


def batch_trial(
    opened: Opened, batch: comparison_lib.Batch, workdir: pathlib.Path
) -> trials.Trial:
    """Return the trial that trains a batch; workdir: of the search."""
    method = opened.methods.get(batch.method)
    if method:
        arguments, values, config = method.arguments, method.values, method.config
    else:
        argument = reference_configs.config_argument(opened.reference, workdir)
        arguments, values, config = (argument,), {}, opened.reference.config
    words = [word for word in arguments if not word.startswith("--config.seeds=")]
    seeds = f"--config.seeds={batch.seeds!r}".replace(" ", "")
    return trials.Trial(
        batch.folder,
        workdir / batch.folder,
        arguments=(*words, seeds),
        values=values,
        config={**config, "seeds": [*batch.seeds]},
    )


def with_scores(opened: Opened, workdir: pathlib.Path) -> Opened:
    """Return the comparison with the scores of all finished runs; workdir: of the search.

    ValueError for damaged records, and for runs on different data.
    """
    plan = opened.plan
    scores = references.read_scores(plan, workdir, opened.reference.runs)
    return opened._replace(
        state=opened.state._replace(comparison=plan.with_scores(scores))
    )


def next_action(
    opened: Opened, workdir: pathlib.Path, blocked: Collection[str] = ()
) -> comparison_lib.Action:
    """Return what to do next.

    workdir: of the search. blocked: methods that get no further batch, because a batch of them has
    failed; the other methods keep their level.
    """
    plan = opened.plan
    hours = seed_scores.device_hours(workdir, plan)
    if blocked:
        methods = tuple(name for name in plan.methods if name not in blocked)
        alpha = plan.level * len(methods)
        settings = dataclasses.replace(plan.settings, alpha=alpha)
        plan = dataclasses.replace(plan, methods=methods, settings=settings)
    return comparison_lib.next_action(plan, opened.limits, hours=hours)


def next_round(opened: Opened, workdir: pathlib.Path) -> Round:
    """Return the trials of the next round; workdir: of the search."""
    opened = with_scores(opened, workdir)
    action = next_action(opened, workdir)
    batches = action.batches if isinstance(action, comparison_lib.Train) else ()
    return Round([batch_trial(opened, batch, workdir) for batch in batches], workdir)


def run(
    opened: Opened,
    executor: local.Executor | slurm.Executor,
    phases_to_start: list[str],
    *,
    workdir: pathlib.Path,
    args: argparse.Namespace,
    say: Callable[[str], None],
) -> int:
    """Run rounds of trials until the comparison ends or the executor stops; return the exit code.

    The code is 0 if all comparisons are decided, `UNDECIDED` if some are not, and 1 if a trial has
    not ended that is needed to continue. A method whose trial fails gets no further seeds, and the
    other methods continue.
    phases_to_start: the phases of trials that are started. workdir: of the search. args: the
    parsed arguments. say: logs a line.
    """
    plan = opened.plan
    for line in (
        *descriptions.describe_start(plan, opened.limits)[1:],
        *descriptions.describe_differences(opened.state.configs, plan),
        *describe_methods(opened),
    ):
        say(line)
    blocked, last_lines = set[str](), dict[str, str]()
    while True:
        opened = with_scores(opened, workdir)
        plan = opened.plan
        if plan.batches:
            state_file.write(workdir, opened.state)
            write_tables(opened, workdir)
        for method, method_look in comparison_lib.look(plan).items():
            line = descriptions.describe_look(plan, method_look, opened.limits)
            if method_look.num_seeds and line != last_lines.get(method):
                say(line)
                last_lines[method] = line
        if plan.reference in blocked or blocked >= {*plan.methods}:
            break
        action = next_action(opened, workdir, blocked)
        if not isinstance(action, comparison_lib.Train):
            break
        plan = plan.with_batches(action.batches)
        opened = opened._replace(state=opened.state._replace(comparison=plan))
        state_file.write(workdir, opened.state)  # Before any batch starts.
        is_extended = any(batch.method == plan.reference for batch in action.batches)
        if is_extended and opened.reference.runs:
            reference_configs.write_config(opened.reference, workdir)
        round_trials = {
            batch: batch_trial(opened, batch, workdir) for batch in action.batches
        }
        trial_loop.run_trials(
            Round([*round_trials.values()], workdir),
            executor,
            phases_to_start,
            args=args,
            say=say,
        )
        blocked |= {
            batch.method
            for batch, trial in round_trials.items()
            if not seed_scores.is_finished(trial.workdir)
        }
        limits = references.fit_memory(opened.limits, action.batches, workdir)
        opened = opened._replace(limits=limits)
        if executor.stop:
            opened = with_scores(opened, workdir)
            break
    write_tables(opened, workdir)
    return conclude(opened, workdir, say=say)


def conclude(
    opened: Opened, workdir: pathlib.Path, *, say: Callable[[str], None]
) -> int:
    """Log the end of a comparison and problems of its trials; return the exit code of `run`.

    opened: with the latest scores. workdir: of the search.
    """
    plan, statuses = opened.plan, batch_statuses(opened, workdir)
    folders = references.folders(plan, workdir, opened.reference.runs)
    for line in chance.describe(plan.settings, folders):
        say(line)
    failed = set()
    for batch, trial_status in zip(plan.batches, statuses, strict=True):
        if trial_status.state.phase in ("failed", "damaged"):
            failed.add(batch.method)
        if trial_status.state.phase == "damaged":
            say(trials.status_line(trial_status))
    if statuses:
        say(trials.count_line(statuses))
    if failed:
        say(
            "seeds after those of a failed trial do not count until it has ended; to run failed "
            f"trials again: jbias sweep retry --workdir={shlex.quote(str(workdir))}"
        )
    can_continue = plan.reference not in failed and not failed >= {*plan.methods}
    blocked = failed if can_continue else set()
    action = next_action(opened, workdir, blocked)
    if isinstance(action, comparison_lib.Undecided):
        for method, end in action.ends.items():
            say(descriptions.describe_end(plan, method, end, opened.limits))
    if blocked or isinstance(action, comparison_lib.Train):
        return 1
    runs = shlex.join(map(str, (workdir, *opened.reference.runs)))
    say(
        f"to compare all numbers: jbias report --metric={plan.settings.metric} --runs {runs}"
    )
    return 0 if isinstance(action, comparison_lib.Decided) else UNDECIDED


def describe_methods(opened: Opened) -> list[str]:
    """Return a line with the number of comparisons, and one per method that has values of axes."""
    plan = opened.plan
    settings, count = plan.settings, len(plan.methods)
    lines = [
        (
            f"{settings.metric} on {settings.dataset}: {count} comparison{'s' if count > 1 else ''} "
            f"with {plan.reference}, each at the level {plan.level:.3g}"
        )
    ]
    for name, trial in opened.methods.items():
        if trial.values:
            values = ", ".join(f"{key}={value}" for key, value in trial.values.items())
            lines.append(f"{name}: {values}")
    return lines


def batch_statuses(opened: Opened, workdir: pathlib.Path) -> list[trials.TrialStatus]:
    """Read and return the status of the trials of all planned batches."""
    return [
        trials.read_status(batch_trial(opened, batch, workdir))
        for batch in opened.plan.batches
    ]


def table(opened: Opened) -> pd.DataFrame:
    """Return a table of the comparisons, one row per method.

    difference, low, high: in the unit of the scores. decision: the name of the better one of
    method and reference, "equivalent", or "". more_seeds: further seeds after which 80 % of
    simulated continuations are decided, of an open comparison.
    """
    plan, rows = opened.plan, []
    for method, method_look in comparison_lib.look(plan).items():
        result = method_look.result
        sequence = result.difference
        names = {"a": method, "b": plan.reference, "equivalent": "equivalent"}
        outlook = None
        if result.decision is None:
            outlook = comparison_lib.outlook(plan, method_look, opened.limits)
        rows.append(
            {
                "method": method,
                **opened.methods[method].values,
                "reference": plan.reference,
                "metric": plan.settings.metric,
                "dataset": plan.settings.dataset,
                "level": plan.level,
                "seeds": method_look.num_seeds,
                "diverged": method_look.num_diverged,
                "difference": sequence.estimate[-1] if result.looks else math.nan,
                "low": sequence.lower[-1] if result.looks else math.nan,
                "high": sequence.upper[-1] if result.looks else math.nan,
                "evalue": result.evalues[-1] if result.looks else math.nan,
                "decision": names.get(result.decision, ""),
                "decided_after": result.stopped_at,
                "more_seeds": outlook.pairs if outlook else None,
            }
        )
    return pd.DataFrame(rows)


def write_tables(opened: Opened, workdir: pathlib.Path) -> None:
    """Write comparisons.csv, a row per method, and trials.csv, a row per batch, to the workdir."""
    files.write(workdir / "comparisons.csv", table(opened).to_csv(index=False))
    statuses = batch_statuses(opened, workdir)
    files.write(workdir / "trials.csv", trials.to_csv(statuses))


def table_text(opened: Opened) -> str:
    """Return the table of the comparisons for `jbias sweep status`."""
    plan, rows = opened.plan, []
    for method, method_look in comparison_lib.look(plan).items():
        rows.append(
            {
                "method": method,
                **opened.methods[method].values,
                "seeds": str(method_look.num_seeds),
                f"points above {plan.reference}": _interval(plan, method_look),
                "decision": descriptions.verdict(plan, method_look),
            }
        )
    return pd.DataFrame(rows).fillna("").to_string(index=False)


def _interval(plan: comparison_lib.Comparison, method_look: comparison_lib.Look) -> str:
    """Return the difference of a method with its interval in percentage points, "" if unknown."""
    result = method_look.result
    if not result.looks:
        return ""
    unit = comparison_lib.points_of_unit(plan.settings)
    sequence = result.difference
    return (
        f"{unit * sequence.estimate[-1]:+.1f} "
        f"[{unit * sequence.lower[-1]:+.1f}, {unit * sequence.upper[-1]:+.1f}]"
    )


def show_status(
    opened: Opened,
    workdir: pathlib.Path,
    *,
    jobs: Mapping[str, tuple[str, str]],
    say: Callable[[str], None],
) -> None:
    """Log the table of the comparisons, the trials that have not ended, and what to do next.

    workdir: of the search. jobs: as `slurm.active` returns them.
    """
    opened = with_scores(opened, workdir)
    plan = opened.plan
    for line in describe_methods(opened):
        say(line)
    say(table_text(opened))
    for batch in plan.batches:
        trial_status = trials.read_status(batch_trial(opened, batch, workdir))
        # `conclude` shows damaged trials.
        if trial_status.state.phase not in ("done", "diverged", "damaged"):
            job_state, _ = jobs.get(trial_status.trial.name, ("", ""))
            say(trials.status_line(trial_status, job_state))
    if plan.batches:
        write_tables(opened, workdir)
    conclude(opened, workdir, say=say)
