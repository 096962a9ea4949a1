"""A search as an Optuna study, which samples trials and decides which trials to stop.

The workdirs have the state of the trials. It is reported to the study, for Optuna's sampler
and pruner, and for optuna-dashboard. A lost study is created again from the workdirs. Only
one process at a time uses the study.
"""

import collections
import hashlib
import itertools
import json
import os
import pathlib
import warnings
import zlib
from collections.abc import Callable, Collection, Mapping

import numpy as np
import optuna
import pandas as pd
from optuna import distributions, pruners, samplers
from optuna.storages import journal
from optuna.trial import TrialState

from jbias import config as jc
from jbias.launch import trials
from jbias.launch.search import CONFIG, Search
from jbias.runtime import messages

# Attributes of a study's trial: the name of our trial, and the number of the draw.
_RUN, _DRAW = "run", "draw"
_PHASES = {
    TrialState.COMPLETE: ("done", "diverged"),
    TrialState.PRUNED: ("stopped",),
    TrialState.FAIL: ("failed", "damaged"),
}


def open_study(search: Search, workdir: pathlib.Path, *, keep: bool) -> optuna.Study:
    """Return the Optuna study of a search; create the study if it is missing.

    keep: True: create a missing study in the search's storage; False: in memory. The study's
    name depends on configs, axes and seed, not on the number of trials and the pruner.
    ValueError if the storage cannot be read.
    """
    axes = {k: distributions.distribution_to_json(v) for k, v in search.space.items()}
    fixed = tuple(search.fixed)
    identities = [
        jc.identity(trials.read_config(name, fixed)) for name in search.config
    ]
    identity = json.dumps([identities, axes, search.seed])
    name = f"{search.search}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
    # Absolute, because Optuna finds a stale lock by the path.
    path = pathlib.Path(search.storage or workdir / ".sweep/study.log").absolute()
    storage = search.storage
    try:
        if "://" not in storage:
            if not keep and not path.exists():
                return optuna.create_study()
            path.parent.mkdir(parents=True, exist_ok=True)
            # A killed process may have left an incomplete line.
            if keep and path.exists():
                os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
            backend = journal.JournalFileBackend(str(path))
            storage = optuna.storages.JournalStorage(backend)
        if name in optuna.get_all_study_names(storage):
            return optuna.load_study(study_name=name, storage=storage)
    # Errors of SQLAlchemy, of drivers and of damaged files have no common type.
    except Exception as error:
        raise ValueError(
            f"--storage: the study cannot be read ({messages.one_line(error)}); repair or "
            "move it: finished trials are found by their workdirs"
        ) from error
    if not keep:
        return optuna.create_study(direction="maximize")
    return optuna.create_study(study_name=name, storage=storage, direction="maximize")


class Ledger:
    """The trials of a search, synchronised with its study.

    trials: the known trials by name. study: the Optuna study. planned: the trials of a grid
    or random search by name, as `plan` returns them.
    """

    def __init__(
        self,
        search: Search,
        workdir: pathlib.Path,
        study: optuna.Study,
        planned: Mapping[str, trials.Trial],
    ):
        self.study, self.workdir, self._search = study, workdir, search
        self.trials = {**planned}
        self._open: dict[str, optuna.Trial] = {}  # The study's running trials.
        self._queue = collections.deque[optuna.trial.FrozenTrial]()
        old_trials = study.get_trials()
        self._drawn = {
            old.user_attrs[_RUN] for old in old_trials if _RUN in old.user_attrs
        }
        draws = [old.user_attrs.get(_DRAW, -1) for old in old_trials]
        self._next_draw = 1 + max(draws, default=-1)
        self._num_trials, self._grid = search.trials * len(search.config), []
        if search.search == "grid":
            choices = [axis.choices for axis in search.space.values()]
            self._grid = [*itertools.product(*choices)]
        elif search.search == "tpe":
            for old in old_trials:
                if old.params.keys() == search.space.keys():
                    trial = trials.make(search, workdir, params=old.params)
                    self.trials[trial.name] = trial

    @property
    def num_undrawn(self) -> int:
        """Number of trials that the sampler tpe has yet to draw; 0 for other samplers."""
        if self._search.search != "tpe":
            return 0
        return max(0, self._num_trials - len(self.trials))

    def statuses(self) -> list[trials.TrialStatus]:
        """Read and return the status of all trials."""
        return [*map(trials.read_status, self.trials.values())]

    def prepare(self, phases_to_start: Collection[str]) -> None:
        """Queue the unfinished trials of the study for `next_trial`.

        Trials that are finished in the study are queued again if their phase is one of
        `phases_to_start`, or differs from the reported one.
        """
        latest = {old.user_attrs.get(_RUN): old for old in self.study.get_trials()}
        for name, trial in self.trials.items():
            old = latest.get(name)
            if old and old.state.is_finished():
                phase = trials.read_status(trial).state.phase
                if phase in phases_to_start or phase not in _PHASES[old.state]:
                    self.study.enqueue_trial(old.params, {_RUN: name})
        for state in (TrialState.RUNNING, TrialState.WAITING):
            self._queue.extend(self.study.get_trials(states=(state,)))

    def next_trial(self) -> trials.Trial | None:
        """Return the next trial, and mark it as running in the study; None if none is left."""
        for _ in range(10 * (len(self._drawn) + 10)):
            queued = self._queue.popleft() if self._queue else None
            if not queued:
                if self._grid:
                    is_complete = self._next_draw >= len(self._grid)
                else:
                    is_complete = len(self._drawn) >= self._num_trials
                if is_complete:
                    return None
                self._enqueue_draw()
            if queued and queued.state is TrialState.RUNNING:
                optuna_trial = optuna.Trial(self.study, queued._trial_id)
            else:
                optuna_trial = self.study.ask()
            trial = self._sample(optuna_trial)
            is_known = _RUN in optuna_trial.user_attrs
            first = self.trials.setdefault(trial.name, trial)
            if trial.name in (self._open if is_known else self._drawn):
                # The same combination was drawn before.
                self.study.tell(optuna_trial, state=TrialState.FAIL)
                trials.refuse_second(first, trial)
                continue
            if not is_known:
                optuna_trial.set_user_attr(_RUN, trial.name)
                self._drawn.add(trial.name)
            self._open[trial.name] = optuna_trial
            return first
        # No new combinations are drawn any more.
        self._num_trials = len(self._drawn)
        return None

    def _enqueue_draw(self) -> None:
        """Enqueue the next trial in the study: of the grid, or a draw of the next config."""
        draw, configs, fixed_params = self._next_draw, self._search.config, {}
        self._next_draw += 1
        if self._grid:
            fixed_params = dict(zip(self._search.space, self._grid[draw], strict=True))
        elif len(configs) > 1:
            fixed_params = {CONFIG: configs[draw % len(configs)]}
        self.study.enqueue_trial(fixed_params, {_DRAW: draw})

    def _sample(self, optuna_trial: optuna.Trial) -> trials.Trial:
        """Sample the parameters of a trial of the Optuna study; return the Trial.

        The random seed depends only on the search's seed, the number of the draw and the key.
        So a longer search starts with the same trials, whichever process draws them.
        """
        params = {}
        draw = optuna_trial.user_attrs.get(_DRAW, 0) // len(self._search.config)
        is_tpe = self._search.search == "tpe"
        sampler_type = samplers.TPESampler if is_tpe else samplers.RandomSampler
        for key, axis in self._search.space.items():
            entropy = [self._search.seed, draw, zlib.crc32(key.encode())]
            seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
            self.study.sampler = sampler_type(seed=seed)
            if isinstance(axis, distributions.CategoricalDistribution):
                params[key] = optuna_trial.suggest_categorical(key, axis.choices)
            else:
                params[key] = optuna_trial.suggest_float(
                    key, axis.low, axis.high, log=axis.log
                )
        return trials.make(self._search, self.workdir, params=params)

    def report(self, trial_status: trials.TrialStatus) -> str:
        """Report new evaluations to the study.

        Returns the reason if the study's pruner stops the trial, else "".
        """
        optuna_trial = self._open[trial_status.trial.name]
        curve = trial_status.curve
        old_trials = self.study.get_trials(deepcopy=False)
        reported = old_trials[optuna_trial.number].intermediate_values
        for step in sorted(curve.keys() - reported.keys()):
            optuna_trial.report(curve[step], step)
            self.study.pruner = _pruner(self._search, max(1, min(curve)))
            if optuna_trial.should_prune():
                return (
                    f"{self._search.stop}: its validation accuracy at step {step}, "
                    f"{100 * curve[step]:.1f}, is too low compared with other trials"
                )
        return ""

    def finish(self, trial_status: trials.TrialStatus) -> None:
        """Report to the study that a trial has ended; not for an interrupted trial."""
        self.report(trial_status)
        optuna_trial = self._open.pop(trial_status.trial.name)
        phase, best = trial_status.state.phase, trial_status.best
        for state, phases in _PHASES.items():
            if phase in phases:
                value = best[0] if best and phase == "done" else 0.0
                is_complete = state is TrialState.COMPLETE
                self.study.tell(optuna_trial, value if is_complete else None, state)


def _pruner(search: Search, first_step: int) -> pruners.BasePruner:
    """Return Optuna's pruner for `search.stop`; first_step: the first evaluated step."""
    match search.stop:
        case "median":
            return pruners.MedianPruner(search.fewest, search.grace + 1)
        case "hyperband":
            return pruners.HyperbandPruner(search.grace or first_step)
        case "asha":
            return pruners.SuccessiveHalvingPruner(search.grace or first_step)
    return pruners.NopPruner()


def plan(search: Search, workdir: pathlib.Path) -> dict[str, trials.Trial]:
    """Return all trials of a grid or random search by name; empty for the sampler tpe.

    workdir: of the search. ValueError for an invalid config, so that no trial starts if any
    config is invalid.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    for name in search.config:
        trials.read_config(name, tuple(search.fixed))
    if search.search == "tpe":
        return {}
    ledger = Ledger(search, workdir, study=optuna.create_study(), planned={})
    planned = {trial.name: trial for trial in iter(ledger.next_trial, None)}
    num_trials = search.trials * len(search.config)
    if search.search == "random" and len(planned) < num_trials:
        raise ValueError(
            f"--trials: the axes have about {len(planned)} different combinations, got "
            f"{num_trials}; lower it or take --sampler=grid"
        )
    return planned


def write_importance(ledger: Ledger, say: Callable[[str], None]) -> None:
    """Write the importance of each axis for the accuracy, as CSV and PNG, to the workdir.

    Uses PED-ANOVA on the finished trials (Watanabe et al., IJCAI 2023,
    https://arxiv.org/abs/2304.10255). say: logs a line. ValueError for fewer than two
    finished trials.
    """
    import matplotlib
    from optuna.visualization import matplotlib as plots

    study = ledger.study
    num_complete = len(study.get_trials(states=(TrialState.COMPLETE,)))
    if num_complete < 2:
        raise ValueError(f"--importance: two trials must be done, got {num_complete}")
    matplotlib.use("Agg")
    importances = optuna.importance.get_param_importances(study)
    csv_path = ledger.workdir / "importance.csv"
    figure_path = ledger.workdir / "importance.png"
    pd.Series(importances, name="importance").to_csv(csv_path, index_label="axis")
    with warnings.catch_warnings():  # Optuna warns that its figures are experimental.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        figure = plots.plot_param_importances(study).figure
    figure.savefig(figure_path, dpi=150, bbox_inches="tight")
    say(f"importance: {csv_path}, {figure_path}")
