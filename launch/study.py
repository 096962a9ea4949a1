"""A search as an Optuna study: which trial is next, which is to stop, what came out.

The workdirs say how far each trial is; the study is told of it, for its sampler, its pruner
and whoever looks at it (optuna-dashboard). A study that is lost is made anew from the
workdirs. One process at a time asks and tells.
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

# Attributes of a study's trial: whose workdir, and the how manieth draw, from 0.
_RUN, _DRAW = "run", "draw"
_PHASES = {
    TrialState.COMPLETE: ("done", "diverged"),
    TrialState.PRUNED: ("stopped",),
    TrialState.FAIL: ("failed", "damaged"),
}


def open_study(search: Search, workdir: pathlib.Path, *, keep: bool) -> optuna.Study:
    """The study of a search; without `keep` the one that is there, or one in memory.

    Its name is the same whatever the number of trials and the pruner. ValueError where its
    storage cannot be read.
    """
    axes = {k: distributions.distribution_to_json(v) for k, v in search.space.items()}
    configs = (trials.read_config(one, tuple(search.fixed)) for one in search.config)
    told = json.dumps([[*map(jc.identity, configs)], axes, search.seed])
    name = f"{search.search}-{hashlib.sha256(told.encode()).hexdigest()[:8]}"
    # Whole: Optuna looks for a stale lock by this name.
    path = pathlib.Path(search.storage or workdir / ".sweep/study.log").absolute()
    storage = search.storage
    try:
        if "://" not in storage:
            if not keep and not path.exists():
                return optuna.create_study()
            path.parent.mkdir(parents=True, exist_ok=True)
            if keep and path.exists():  # A killed process may have left half a line.
                os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
            backend = journal.JournalFileBackend(str(path))
            storage = optuna.storages.JournalStorage(backend)
        if name in optuna.get_all_study_names(storage):
            return optuna.load_study(study_name=name, storage=storage)
    except Exception as error:  # Of SQLAlchemy, of drivers, of what a file holds.
        raise ValueError(
            f"--storage: the study cannot be read ({messages.one_line(error)}); mend it, "
            "or move it away: trials that are done are found by their workdirs"
        ) from error
    storage, name = (storage, name) if keep else (None, None)
    return optuna.create_study(study_name=name, storage=storage, direction="maximize")


class Ledger:
    """The trials of a search and its study, which is asked for them and told of them."""

    def __init__(
        self,
        search: Search,
        workdir: pathlib.Path,
        study: optuna.Study,
        planned: Mapping[str, trials.Trial],
    ):
        self.study, self.workdir, self._search = study, workdir, search
        self.trials = {**planned}  # By name.
        self._asked: dict[str, optuna.Trial] = {}
        self._todo = collections.deque[optuna.trial.FrozenTrial]()
        known = study.get_trials()
        self._drawn = {one.user_attrs[_RUN] for one in known if _RUN in one.user_attrs}
        draws = [one.user_attrs.get(_DRAW, -1) for one in known]
        self._next = 1 + max(draws, default=-1)
        self._count, self._grid = search.trials * len(search.config), []
        if search.search == "grid":
            choices = (axis.choices for axis in search.space.values())
            self._grid = [*itertools.product(*choices)]
        for one in known if search.search == "tpe" else ():
            if one.params.keys() == search.space.keys():
                trial = trials.make(search, workdir, one.params)
                self.trials[trial.name] = trial

    @property
    def undrawn(self) -> int:
        """How many trials there will be beside those that are known."""
        tpe = self._search.search == "tpe"
        return tpe * max(0, self._count - len(self.trials))

    def look(self) -> list[trials.TrialStatus]:
        """Looks once into the folder of each trial."""
        return [*map(trials.look, self.trials.values())]

    def begin(self, words: Collection[str]) -> None:
        """Readies what `take` gives: what the study has open, or has not yet.

        What it has as ended comes again where its phase is one of `words`, or another than
        the study was told.
        """
        latest = {one.user_attrs.get(_RUN): one for one in self.study.get_trials()}
        for name, trial in self.trials.items():
            if name in latest and (state := latest[name].state).is_finished():
                phase = trials.look(trial).state.phase
                if phase in words or phase not in _PHASES[state]:
                    self.study.enqueue_trial(latest[name].params, {_RUN: name})
        for state in (TrialState.RUNNING, TrialState.WAITING):
            self._todo.extend(self.study.get_trials(states=(state,)))

    def take(self) -> trials.Trial | None:
        """The next trial, which the study has as running from now on; None without any."""
        for _ in range(10 * (len(self._drawn) + 10)):
            old = self._todo.popleft() if self._todo else None
            if not old:
                drawn, count = len(self._drawn), self._count
                if self._grid:
                    drawn, count = self._next, len(self._grid)
                if drawn >= count:
                    return None
                self._enqueue()
            if old and old.state is TrialState.RUNNING:
                asked = optuna.Trial(self.study, old._trial_id)
            else:
                asked = self.study.ask()
            trial, again = self._suggested(asked), _RUN in asked.user_attrs
            first = self.trials.setdefault(trial.name, trial)
            if trial.name in (self._asked if again else self._drawn):
                self.study.tell(asked, state=TrialState.FAIL)  # It was drawn before.
                trials.refuse_second(first, trial)
                continue
            if not again:
                asked.set_user_attr(_RUN, trial.name)
                self._drawn.add(trial.name)
            self._asked[trial.name] = asked
            return first
        self._count = len(self._drawn)  # All that there is.
        return None

    def _enqueue(self) -> None:
        """Has the study ask for another draw, the next of the grid or of a config."""
        number, configs, fixed = self._next, self._search.config, {}
        self._next += 1
        if self._grid:
            fixed = dict(zip(self._search.space, self._grid[number], strict=True))
        elif len(configs) > 1:
            fixed = {CONFIG: configs[number % len(configs)]}
        self.study.enqueue_trial(fixed, {_DRAW: number})

    def _suggested(self, asked: optuna.Trial) -> trials.Trial:
        """The trial that the study asks for: a function of seed, number and key.

        So more draws begin with the same ones, whichever process made them.
        """
        params = {}
        number = asked.user_attrs.get(_DRAW, 0) // len(self._search.config)
        for key, axis in self._search.space.items():
            words = [self._search.seed, number, zlib.crc32(key.encode())]
            seed = int(np.random.SeedSequence(words).generate_state(1)[0])
            tpe = self._search.search == "tpe"
            kind = samplers.TPESampler if tpe else samplers.RandomSampler
            self.study.sampler = kind(seed=seed)
            if isinstance(axis, distributions.CategoricalDistribution):
                params[key] = asked.suggest_categorical(key, axis.choices)
            else:
                params[key] = asked.suggest_float(
                    key, axis.low, axis.high, log=axis.log
                )
        return trials.make(self._search, self.workdir, params)

    def report(self, look: trials.TrialStatus) -> str:
        """Tells the study of what is evaluated; why the pruner stops the trial, or ""."""
        asked, curve = self._asked[look.trial.name], look.curve
        told = self.study.get_trials(deepcopy=False)[asked.number].intermediate_values
        for step in sorted(curve.keys() - told.keys()):
            asked.report(curve[step], step)
            self.study.pruner = _pruner(self._search, max(1, min(curve)))
            if asked.should_prune():
                return (
                    f"{self._search.stop}: its validation accuracy at step {step}, "
                    f"{100 * curve[step]:.1f}, is too low beside the others'"
                )
        return ""

    def settle(self, look: trials.TrialStatus) -> None:
        """Tells the study how a trial has ended; one that was interrupted stays open."""
        self.report(look)
        asked, phase = self._asked.pop(look.trial.name), look.state.phase
        for ended, phases in _PHASES.items():
            if phase in phases:
                value = look.best[0] if look.best and phase == "done" else 0.0
                done = ended is TrialState.COMPLETE
                self.study.tell(asked, value if done else None, ended)


def _pruner(search: Search, first: int) -> pruners.BasePruner:
    """Optuna's pruner; `first` is the first step that is evaluated."""
    match search.stop:
        case "median":
            return pruners.MedianPruner(search.fewest, search.grace + 1)
        case "hyperband":
            return pruners.HyperbandPruner(search.grace or first)
        case "asha":
            return pruners.SuccessiveHalvingPruner(search.grace or first)
    return pruners.NopPruner()


def plan(search: Search, workdir: pathlib.Path) -> dict[str, trials.Trial]:
    """All trials of a grid or of random draws, by name: each is read before any is started."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    for named in search.config:
        trials.read_config(named, tuple(search.fixed))
    if search.search == "tpe":
        return {}
    ledger = Ledger(search, workdir, optuna.create_study(), {})
    found = {trial.name: trial for trial in iter(ledger.take, None)}
    count = search.trials * len(search.config)
    if search.search == "random" and len(found) < count:
        raise ValueError(
            f"--trials: the axes have about {len(found)} different combinations, got "
            f"{count}; lower it or take --sampler=grid"
        )
    return found


def write_importance(ledger: Ledger, say: Callable[[str], None]) -> None:
    """Writes how much each axis says of the accuracy, as CSV and PNG.

    By PED-ANOVA of the trials that are done (Watanabe et al., IJCAI 2023,
    https://arxiv.org/abs/2304.10255). ValueError for fewer than two.
    """
    import matplotlib
    from optuna.visualization import matplotlib as plots

    study, complete = ledger.study, (TrialState.COMPLETE,)
    if (count := len(study.get_trials(states=complete))) < 2:
        raise ValueError(f"--importance: two trials must be done, got {count}")
    matplotlib.use("Agg")
    found = pd.Series(optuna.importance.get_param_importances(study), name="importance")
    table, figure = (ledger.workdir / f"importance.{form}" for form in ("csv", "png"))
    found.to_csv(table, index_label="axis")
    with warnings.catch_warnings():  # Optuna calls its figures an experiment.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        shown = plots.plot_param_importances(study).figure
    shown.savefig(figure, dpi=150, bbox_inches="tight")
    say(f"importance: {table}, {figure}")
