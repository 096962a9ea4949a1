"""Where a run's numbers go beside its records: TensorBoard, Weights & Biases, MLflow.

`config.run.write` names them, joined by "+". The numbers of a step come as one mapping,
from what they belong to (`seed-0`; `optim.rate=0.1/seed-0` in a branch; `mean` over the
seeds) to numbers by tag (`valid/accuracy`). A logger that fails is reported once and
dropped: it never ends a run, whose own records do not depend on it.
"""

import contextlib
import importlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
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


def check(run: Mapping[str, Any]) -> None:
    """Refuses unknown loggers and modes, and packages that are not installed."""
    where, names = "config.run.write", configured(run)
    for name in names:
        if name not in LOGGERS or names.count(name) > 1:
            must = f"be of {', '.join(LOGGERS)}, each once, joined by +"
            jc.refuse(where, must, run["write"])
        for package in LOGGERS[name].packages:
            files.require_package(where, name, package, extra=name)
    where, options = "config.run.wandb", run.get("wandb", {})
    jc.check_all_known(where, options, WANDB_KEYS)
    if (mode := options.get("mode", WANDB_MODES[0])) not in WANDB_MODES:
        jc.refuse(f"{where}.mode", f"be one of {', '.join(WANDB_MODES)}", mode)


class Loggers:
    """All that a run asks for; each is dropped once it fails."""

    def __init__(self, say: Callable[[str], None]):
        self._say = say
        self._open: dict[str, Logger] = {}

    def begin(self, names: Sequence[str], run: RunInfo) -> None:
        """Opens those named, of which one that may not be twice is left to the trainer."""
        for name in names:
            kind = LOGGERS[name]
            if not (run.alone or kind.shareable):
                self._say(f"{name}: left to the process that trains")
                continue
            with self._dropping(name):
                self._open[name] = importlib.import_module(kind.module).open(run)

    def scalars(self, step: int, numbers: Numbers) -> None:
        """Gives numbers to all."""
        for name, writer in [*self._open.items()]:
            with self._dropping(name):
                writer.scalars(step, numbers)

    def close(self) -> None:
        """Has all write out what is left."""
        for name, writer in [*self._open.items()]:
            with self._dropping(name):
                writer.close()
        self._open.clear()

    @contextlib.contextmanager
    def _dropping(self, name: str) -> Iterator[None]:
        """Inside, any error of a logger drops it."""
        try:
            yield
        # Packages of others, at work on disks and networks, raise anything.
        except Exception as error:  # noqa: BLE001
            with contextlib.suppress(Exception):
                self._open.pop(name).close()
            reason = " ".join(str(error).split()) or type(error).__name__
            self._say(
                f"{name}: writes no more until the next start ({reason[:200]}); the run "
                "and its records go on"
            )
