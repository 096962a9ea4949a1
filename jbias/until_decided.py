"""`jbias train --until-decided`: train seeds until a comparison with a reference is decided.

The plan, the looks and the decisions are in `jbias.deciding`; this module trains the batches, one
after the other, each as an ordinary run in a workdir of its own.
"""

import dataclasses
import os
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
from etils import epath

from jbias import build, errors, extensions, run_spec, train
from jbias import config as jc
from jbias.deciding import chance, descriptions, references, seed_scores, state_file
from jbias.deciding import comparison as comparison_lib
from jbias.deciding import settings as settings_lib
from jbias.runs import workdirs
from jbias.runtime import console, files, messages, signals, workdir_lock, xla

UNDECIDED = 4  # Exit code.
DEFAULT_MAX_SEEDS = 30
# Seeds of a batch, if the config does not name a number: on a CPU the number of cores, but no
# more than the first number; on an accelerator the second number.
_CPU_SEEDS, _ACCELERATOR_SEEDS = 4, 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments of `jbias train --until-decided`.

    spec: of the method. words: the arguments that name the config of the method. reference: a
    config, FILE:ARGUMENTS, or a path or glob of runs. metric, dataset: "": see `settings.choose`.
    workdir: "": named after both configs. Other fields: see `comparison.Settings` and
    `comparison.Limits`.
    """

    spec: run_spec.RunSpec
    words: Sequence[str]
    reference: str
    metric: str
    dataset: str
    selection: str
    alpha: float
    points: float | None
    quantity: str
    bounds: tuple[float, float]
    max_seeds: int
    max_hours: float
    workdir: str


class Opened(NamedTuple):
    """A comparison that can be continued.

    state: from comparison.json, or new. configs: by name of the method and of the reference.
    words: the arguments that name each config; empty for runs. limits: of this start.
    """

    state: state_file.State
    configs: Mapping[str, Mapping[str, Any]]
    words: Mapping[str, Sequence[str]]
    reference: references.Reference
    limits: comparison_lib.Limits


def run(
    opened: Opened, workdir: files.PathLike, stop_signal: signals.StopSignal
) -> int:
    """Train batches of seeds until the comparison ends; return the exit code.

    The code is 0 if the comparison is decided, and `UNDECIDED` otherwise. opened: as
    `open_comparison` returns it, with the `workdir` of `workdir_of`. stop_signal: records stop
    signals. Errors as of `train.run`. signals.Interrupted after a stop signal, with all work saved.
    The same request continues a comparison that was stopped or killed.
    """
    folder = epath.Path(workdir)
    with files.translate_os_errors(f"workdir {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    say = console.logger(folder)
    with (
        workdir_lock.acquire(folder / "lock", f"is at work in {folder}", say),
        console.printing_notes_once(),
    ):
        # Again, because the previous owner of the lock may have planned batches.
        state = state_file.resume(folder, opened.state)
        return _continue(
            opened._replace(state=state), folder, stop_signal=stop_signal, say=say
        )


def open_comparison(request: Request) -> Opened:
    """Return the comparison of a request, from its workdir or new; write nothing.

    ValueError for invalid arguments, and for arguments that differ from the comparison in the
    workdir.
    """
    if files.is_remote(request.workdir):
        errors.refuse(
            "--workdir",
            "be a local directory with --until-decided",
            request.workdir,
            "mount the bucket",
        )
    _check_seeds(request.words, request.spec.config)
    config = request.spec.config
    if config["vary"]:
        raise ValueError(
            "config.vary: --until-decided compares one method with the reference; leave out vary, "
            "and name its value by --config.KEY=VALUE"
        )
    reference = references.read(request.reference)
    settings = settings_lib.choose(
        {"--config": config, "the reference": reference.config},
        metric=request.metric,
        dataset=request.dataset,
        selection=request.selection,
        alpha=request.alpha,
        points=request.points,
        quantity=request.quantity,
        bounds=request.bounds,
    )
    method, reference_name = seed_scores.names([config], reference.config)
    configs = {method: config, reference_name: reference.config}
    if reference.runs:
        reference_code = _recorded_code(reference.runs[0])
    else:
        reference_code = _own_code(reference.config)
    pinned = {
        method: state_file.pinned_config(config, own_code=_own_code(config)),
        reference_name: state_file.pinned_config(
            reference.config, own_code=reference_code
        ),
    }
    if pinned[method] == pinned[reference_name]:
        raise ValueError(
            "--until-decided: the reference has the same config as --config, so that every seed "
            "would be compared with itself; name another"
        )
    trained_seeds = _trained_seeds(reference.runs, settings)
    plan = comparison_lib.Comparison(
        settings=settings,
        methods=(method,),
        reference=reference_name,
        first_seeds=trained_seeds or (min(reference.config["seeds"]),),
        are_trained=bool(reference.runs),
    )
    limits = comparison_lib.Limits(
        max_seeds=request.max_seeds,
        max_hours=request.max_hours,
        batch_seeds={method: _batch_seeds(request)},
    )
    comparison_lib.check_limits(plan, limits)
    comparison_lib.look(plan)  # Raises for wrong points, bounds and quantity.
    opened = Opened(
        state=state_file.State(plan, pinned),
        configs=configs,
        words={
            method: request.words,
            reference_name: (reference.argument,) if reference.argument else (),
        },
        reference=reference,
        limits=limits,
    )
    stored = state_file.resume(workdir_of(request, opened), opened.state)
    return opened._replace(state=stored)


def workdir_of(request: Request, opened: Opened) -> str:
    """Return the workdir of a comparison: as given, or named after both configs.

    The name does not depend on metric, points and so on, so that a comparison that is repeated with
    another setting is refused.
    """
    if request.workdir:
        return request.workdir
    method, reference = (
        jc.run_name({**config, "seeds": []}) for config in opened.configs.values()
    )
    return os.path.join("runs", f"{method}-against-{reference}".replace("/", "-"))


def _continue(
    opened: Opened,
    folder: epath.Path,
    *,
    stop_signal: signals.StopSignal,
    say: messages.Say,
) -> int:
    """Train, look and log until the comparison ends; return the exit code.

    folder: workdir of the comparison, which this process has locked.
    """
    state, limits = opened.state, opened.limits
    last_line = ""
    for line in (
        *descriptions.describe_start(state.comparison, limits),
        *descriptions.describe_differences(state.configs, state.comparison),
    ):
        say(line)
    while True:
        plan = state.comparison.with_scores(
            references.read_scores(state.comparison, folder, opened.reference.runs)
        )
        state = state._replace(comparison=plan)
        if plan.batches:
            state_file.write(folder, state)
        for method_look in comparison_lib.look(plan).values():
            line = descriptions.describe_look(plan, method_look, limits)
            if method_look.num_seeds and line != last_line:
                say(line)
                last_line = line
        folders = references.folders(plan, folder, opened.reference.runs)
        for line in chance.describe(plan.settings, folders):
            if plan.batches:
                say(line)
        action = comparison_lib.next_action(
            plan, limits, hours=seed_scores.device_hours(folder, plan)
        )
        if not isinstance(action, comparison_lib.Train):
            break
        state = state._replace(comparison=plan.with_batches(action.batches))
        state_file.write(folder, state)  # Before any batch starts.
        for batch in action.batches:
            _train(opened, batch, folder, stop_signal=stop_signal, say=say)
        limits = references.fit_memory(limits, action.batches, folder)
    is_undecided = isinstance(action, comparison_lib.Undecided)
    if is_undecided:
        for method, end in action.ends.items():
            say(descriptions.describe_end(plan, method, end, limits))
    runs = shlex.join(map(str, (folder, *opened.reference.runs)))
    metric = plan.settings.metric
    say(f"to compare all numbers: jbias report --metric={metric} --runs {runs}")
    return UNDECIDED if is_undecided else 0


def _train(
    opened: Opened,
    batch: comparison_lib.Batch,
    folder: epath.Path,
    *,
    stop_signal: signals.StopSignal,
    say: messages.Say,
) -> None:
    """Train a batch in its workdir; a batch that has begun is resumed."""
    config = {**opened.configs[batch.method], "seeds": list(batch.seeds)}
    if batch.method == opened.state.comparison.reference and opened.reference.runs:
        first_run = opened.reference.runs[0]
        run_spec.check_trusted(dict(config), first_run)
        workdirs.check_own_code(epath.Path(first_run), _own_code(config))
    words = opened.words[batch.method]
    if words:
        words = (*words, f"--config.seeds={batch.seeds!r}".replace(" ", ""))
    spec = run_spec.RunSpec.from_config(config)
    spec = dataclasses.replace(spec, command=" ".join(words))
    say(f"{batch.method}, seeds {', '.join(map(str, batch.seeds))}")
    train.run(spec, folder / batch.folder, stop_signal=stop_signal)
    stop_signal.detach()
    jax.clear_caches()  # Each run compiles its own programs.


def _check_seeds(words: Sequence[str], config: Mapping[str, Any]) -> None:
    """Raise ValueError if config.seeds is not 0, 1, 2, ...: the comparison chooses the seeds."""
    if list(config["seeds"]) != list(range(len(config["seeds"]))):
        raise ValueError(
            f"config.seeds: --until-decided trains the seeds of the reference, got "
            f"{config['seeds']}; leave the entry out, seeds=N in --config=NAME:seeds=N is the "
            "number of seeds at a time"
        )


def _batch_seeds(request: Request) -> int:
    """Return the seeds of a batch: as the config names explicitly, else by the device."""
    config_word, *changes = request.words
    _, _, arguments = config_word.removeprefix("--config=jbias:").partition(":")
    is_explicit = "seeds" in jc.explicit_arguments(arguments)
    if is_explicit or any(word.startswith("--config.seeds=") for word in changes):
        return len(request.spec.config["seeds"])
    if xla.platform() == "cpu":
        return min(len(os.sched_getaffinity(0)), _CPU_SEEDS)
    return _ACCELERATOR_SEEDS


def _own_code(config: Mapping[str, Any]) -> dict[str, str]:
    """Return digests of the user's own files that a config names."""
    return {**build.user_file_digests(config), **extensions.import_digests(config)}


def _recorded_code(run_folder: pathlib.Path) -> dict[str, str]:
    """Return the digests of the user's own files that a run has recorded."""
    recorded = workdirs.provenance(epath.Path(run_folder))
    return {**(recorded.get("own_code") or {}), **(recorded.get("own_imports") or {})}


def _trained_seeds(
    runs: Sequence[pathlib.Path], settings: comparison_lib.Settings
) -> tuple[int, ...]:
    """Return the seeds of runs in ascending order; ValueError as `seed_scores.read` raises it."""
    return tuple(sorted(seed_scores.read(runs, settings)))
