"""Where a run's numbers go beside its records: TensorBoard, Weights & Biases, MLflow.

`config.run.write` names them, joined by "+". The numbers of a step come as one mapping,
from what they belong to (`seed-0`; `optim.rate=0.1/seed-0` in a branch; `mean` over the
seeds) to numbers by tag (`valid/accuracy`). A logger that fails is reported once and
dropped: it never ends a run, whose own records do not depend on it.
"""

import functools
import importlib
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from etils import epath

from jbias import config as jc
from jbias.runtime import files

MEAN = "mean"
Numbers = Mapping[str, Mapping[str, float]]  # By what they are of, then by tag.


class Logger(Protocol):
    """One place that numbers go to."""

    def scalars(self, step: int, numbers: Numbers) -> None:
        """Takes the numbers of a step, which is none before those it has had."""

    def close(self) -> None:
        """Writes out what is left."""


class RunInfo(NamedTuple):
    """What a logger needs to know of a run as it opens."""

    workdir: epath.Path
    name: str
    config: Mapping[str, Any]
    step: int  # Where it begins or goes on; what stands there and beyond is void.
    alone: bool = True  # False where another process trains this run.
    # By what branches are called, the config of each; a run without has none.
    branches: Mapping[str, Mapping[str, Any]] = types.MappingProxyType({})


class LoggerKind(NamedTuple):
    """A place: its module, and the packages that it needs."""

    module: str
    packages: tuple[str, ...]
    shareable: bool  # Whether two processes may write of one run.


LOGGERS: Mapping[str, LoggerKind] = {
    "tensorboard": LoggerKind("jbias.runs.tensorboard", ("tensorboardX",), True),
    "wandb": LoggerKind("jbias.runs.wandb", ("wandb",), False),
    "mlflow": LoggerKind("jbias.runs.mlflow", ("mlflow",), False),
}
WANDB_MODES = ("offline", "online")
WANDB_KEYS = ("mode", "project", "entity")


def configured(run: Mapping[str, Any]) -> list[str]:
    """The loggers that `config.run` asks for."""
    return [name for name in str(run.get("write", "")).split("+") if name]


def check(run: Mapping[str, Any], *, packages: bool = True) -> None:
    """Raise ValueError for unknown loggers and modes, and packages that are not installed.

    packages: whether the run trains here, so that packages must be installed here.
    """
    where, names = "config.run.write", configured(run)
    for name in names:
        if name not in LOGGERS or names.count(name) > 1:
            must = f"be of {', '.join(LOGGERS)}, each once, joined by +"
            jc.refuse(where, must, run["write"])
        for package in LOGGERS[name].packages if packages else ():
            files.require_package(where, name, package, extra=name)
    where, options = "config.run.wandb", run.get("wandb", {})
    jc.check_all_known(where, options, WANDB_KEYS)
    if (mode := options.get("mode", WANDB_MODES[0])) not in WANDB_MODES:
        jc.refuse(f"{where}.mode", f"be one of {', '.join(WANDB_MODES)}", mode)


PATIENCE_SECONDS = 120.0  # Of one call of a logger.


class Loggers:
    """All that a run asks for; each is dropped once it fails, whatever it raises.

    patience: seconds after which a call of a logger is given up, and the logger dropped.
    """

    def __init__(
        self, say: Callable[[str], None], *, patience: float = PATIENCE_SECONDS
    ):
        self._say, self._patience = say, patience
        self._open: dict[str, Logger] = {}

    def begin(self, names: Sequence[str], run: RunInfo) -> None:
        """Opens those named, of which one that may not be twice is left to the trainer."""
        for name in names:
            kind = LOGGERS[name]
            if not (run.alone or kind.shareable):
                self._say(f"{name}: left to the process that trains")
                continue

            def open_logger(name: str = name, module: str = kind.module) -> None:
                self._open[name] = importlib.import_module(module).open(run)

            self._call(name, open_logger)

    def scalars(self, step: int, numbers: Numbers) -> None:
        """Gives numbers to all."""
        for name, writer in [*self._open.items()]:
            self._call(name, functools.partial(writer.scalars, step, numbers))

    def close(self) -> None:
        """Has all write out what is left."""
        for name, writer in [*self._open.items()]:
            self._call(name, functools.partial(_close, writer))
        self._open.clear()

    def _call(self, name: str, work: Callable[[], object]) -> None:
        """Call a logger's function; drop the logger, with one line, if that fails."""
        error = _failure(work, self._patience)
        if error is None:
            return
        writer = self._open.pop(name, None)
        if writer is not None and not isinstance(error, TimeoutError):
            _failure(functools.partial(_close, writer), self._patience)
        reason = " ".join(str(error).split())
        if not isinstance(error, Exception):
            reason = f"{type(error).__name__} {reason}".strip()
        self._say(
            f"{name}: writes no more until the next start "
            f"({(reason or type(error).__name__)[:200]}); the run and its records go on"
        )


def _close(writer: Logger) -> None:
    writer.close()


def _failure(work: Callable[[], object], patience: float) -> BaseException | None:
    """Call a function of a logger and return what it raised; None where it succeeded.

    Packages of others, at work on disks and networks, raise anything, end the process by
    sys.exit, or hang. In a thread of its own none of these is the run's; a signal that
    stops the run still comes to the caller. TimeoutError after `patience` seconds.
    """
    errors: list[BaseException] = []

    def attempt() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    thread = threading.Thread(target=attempt, daemon=True, name="logger")
    thread.start()
    thread.join(patience)
    if thread.is_alive():
        return TimeoutError(f"no answer within {patience:g} seconds")
    return errors[0] if errors else None
