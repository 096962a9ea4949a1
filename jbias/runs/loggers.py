"""Loggers that copy a run's numbers to TensorBoard, Weights & Biases or MLflow.

`config.run.write` names the loggers, joined by "+". The numbers of a step are one mapping,
from their owner (`seed-0`; `optim.rate=0.1/seed-0` in a branch; `mean` for the mean over
seeds) to numbers by tag (`valid/accuracy`). A logger that fails is reported once and
dropped; the run and its records continue.
"""

import functools
import importlib
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from etils import epath

from jbias import errors
from jbias.runtime import files

MEAN = "mean"
Numbers = Mapping[str, Mapping[str, float]]  # By owner, then by tag.


class Logger(Protocol):
    """A logger that writes to one service."""

    def scalars(self, step: int, numbers: Numbers) -> None:
        """Log the numbers of a step; callers give steps in ascending order."""

    def close(self) -> None:
        """Write the pending numbers, and close the logger."""


class RunInfo(NamedTuple):
    """The run that a logger writes about."""

    workdir: epath.Path
    name: str
    config: Mapping[str, Any]
    step: int  # The first step; earlier logs of this and later steps are void.
    alone: bool = True  # False if another process trains this run.
    # The branches' configs by name; empty in a run without branches.
    branches: Mapping[str, Mapping[str, Any]] = types.MappingProxyType({})


class LoggerKind(NamedTuple):
    """The module of a logger, and the packages that it needs."""

    module: str
    packages: tuple[str, ...]
    shareable: bool  # True if two processes may write to one run.


LOGGERS: Mapping[str, LoggerKind] = {
    "tensorboard": LoggerKind(
        "jbias.runs.tensorboard", packages=("tensorboardX",), shareable=True
    ),
    "wandb": LoggerKind("jbias.runs.wandb", packages=("wandb",), shareable=False),
    "mlflow": LoggerKind("jbias.runs.mlflow", packages=("mlflow",), shareable=False),
}
WANDB_MODES = ("offline", "online")
WANDB_KEYS = ("mode", "project", "entity")


def configured(write: str) -> list[str]:
    """Return the names of loggers in config.run.write, such as "tensorboard+wandb"."""
    return [name for name in write.split("+") if name]


def check(write: str, wandb: Mapping[str, Any], *, packages: bool = True) -> None:
    """Raise ValueError for invalid loggers in config.run.

    write: config.run.write; a logger is invalid if its name is unknown or occurs twice, or if its
    package is not installed. wandb: config.run.wandb; an unknown key or mode is invalid.
    packages: False: do not check that packages are installed.
    """
    where, names = "config.run.write", configured(write)
    for name in names:
        if name not in LOGGERS or names.count(name) > 1:
            must = f"be of {', '.join(LOGGERS)}, each once, joined by +"
            errors.refuse(where, must, write)
        for package in LOGGERS[name].packages if packages else ():
            files.require_package(where, name, package, extra=name)
    where = "config.run.wandb"
    errors.check_all_known(where, wandb, WANDB_KEYS)
    mode = wandb.get("mode", WANDB_MODES[0])
    errors.check_choice(f"{where}.mode", mode, WANDB_MODES)


PATIENCE_SECONDS = 120.0  # For one call of a logger.


class Loggers:
    """The open loggers of a run; a logger that fails is dropped.

    say: logs a line about a failure. patience: seconds after which a call of a logger counts
    as failed.
    """

    def __init__(
        self, say: Callable[[str], None], *, patience: float = PATIENCE_SECONDS
    ):
        self._say, self._patience = say, patience
        self._open: dict[str, Logger] = {}

    def begin(self, names: Sequence[str], run: RunInfo) -> None:
        """Open the named loggers for a run.

        Loggers that are not shareable are skipped if another process trains the run, and loggers
        that cannot be opened are left out. A line is logged about each such logger.
        """
        for name in names:
            kind = LOGGERS[name]
            if not (run.alone or kind.shareable):
                self._say(f"{name}: left to the process that trains")
                continue

            def open_logger(name: str = name, module: str = kind.module) -> None:
                self._open[name] = importlib.import_module(module).open(run)

            self._call(name, open_logger)

    def scalars(self, step: int, numbers: Numbers) -> None:
        """Log the numbers of a step in all loggers; numbers: numbers by owner, then by tag."""
        for name, logger in [*self._open.items()]:
            self._call(name, lambda logger=logger: logger.scalars(step, numbers))

    def close(self) -> None:
        """Close all loggers."""
        for name, logger in [*self._open.items()]:
            self._call(name, functools.partial(_close, logger))
        self._open.clear()

    def _call(self, name: str, work: Callable[[], object]) -> None:
        """Call `work`, which uses the named logger; if it fails, drop the logger.

        The logger is closed, unless the call timed out, and a line about the failure is
        logged.
        """
        error = _failure(work, self._patience)
        if error is None:
            return
        logger = self._open.pop(name, None)
        if logger is not None and not isinstance(error, TimeoutError):
            _failure(functools.partial(_close, logger), self._patience)
        reason = " ".join(str(error).split())
        if not isinstance(error, Exception):
            reason = f"{type(error).__name__} {reason}".strip()
        self._say(
            f"{name}: stopped logging until the next start "
            f"({(reason or type(error).__name__)[:200]}); the run and its records continue"
        )


def _close(logger: Logger) -> None:
    """Close a logger."""
    logger.close()


def _failure(work: Callable[[], object], patience: float) -> BaseException | None:
    """Call a function of a logger in a thread; return the exception that it raises, or None.

    Returns a TimeoutError after `patience` seconds. The loggers' packages use disks and
    networks, and may raise anything, call sys.exit, or hang. In a thread, none of these failures
    affects the run, and the caller still receives signals.
    """
    raised: list[BaseException] = []

    def attempt() -> None:
        """Call `work`; add an exception to `raised`."""
        try:
            work()
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    thread = threading.Thread(target=attempt, daemon=True, name="logger")
    thread.start()
    thread.join(patience)
    if thread.is_alive():
        return TimeoutError(f"no answer within {patience:g} seconds")
    return raised[0] if raised else None
