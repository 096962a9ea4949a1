"""Event files of TensorBoard: a folder for the means, and one inside it for each seed.

Written through tensorboardX's `EventsWriter`, in the caller's thread: its `SummaryWriter`
has a thread whose queue blocks, and the run with it, once a disk is full.
"""

import contextlib
import json
import os
import time
from typing import Any

from etils import epath
from tensorboardX import event_file_writer, summary
from tensorboardX.proto import event_pb2

from jbias import config as jc
from jbias.runs import loggers

FOLDER = "tensorboard"
_ELSEWHERE = "elsewhere"  # Below a seed's folder: what another process evaluates.


class _Board:
    """One event file a folder."""

    def __init__(self, run: loggers.RunInfo):
        self._run, self._root = run, run.workdir / FOLDER
        self._files: dict[epath.Path, event_file_writer.EventsWriter] = {}
        if not run.alone:
            return
        for depth in ("", "*/", "*/*/"):  # Voids what is stale in there.
            for path in self._root.glob(f"{depth}events.out.tfevents.*"):
                if path.parent.name != _ELSEWHERE:
                    self._file(path.parent)
        text = f"```json\n{json.dumps(run.config, indent=1)}\n```"
        self._add(self._root, 0, summary.text("config", text))
        self._file(self._root).flush()

    def scalars(self, step: int, numbers: loggers.Numbers) -> None:
        """Takes the numbers of a step; means lie where their seeds' folders do."""
        for of, values in numbers.items():
            parts = (part for part in of.split("/") if part != loggers.MEAN)
            folder = self._root.joinpath(*parts)
            folder = folder if self._run.alone else folder / _ELSEWHERE
            for tag, value in values.items():
                self._add(folder, step, summary.scalar(tag, value))
            self._file(folder).flush()

    def close(self) -> None:
        """Writes out what is left."""
        with contextlib.ExitStack() as stack:
            for file in self._files.values():
                stack.callback(file.close)

    def _add(self, folder: epath.Path, step: int, what: Any) -> None:
        event = event_pb2.Event(wall_time=time.time(), step=step, summary=what)
        self._file(folder).write_event(event)

    def _file(self, folder: epath.Path) -> event_file_writer.EventsWriter:
        """The file of a folder; it begins by voiding what stands from the start on."""
        if folder in self._files:
            return self._files[folder]
        folder.mkdir(parents=True, exist_ok=True)
        # By itself its name is one a second and host, and a second would overwrite it;
        # readers take files in the order of their names.
        suffix = f".{time.time_ns()}.{os.getpid()}"
        file = event_file_writer.EventsWriter(os.fspath(folder / "events"), suffix)
        self._files[folder] = file
        if self._run.alone:
            begun = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            at = dict(wall_time=time.time(), step=self._run.step)
            file.write_event(event_pb2.Event(**at, session_log=begun))
            file.flush()
            if folder.name.startswith("seed-"):
                self._tell_settings(folder)
        return file

    def _tell_settings(self, folder: epath.Path) -> None:
        """Gives a seed's folder its hyperparameters, those of its branch; lists as text."""
        branch = "" if folder.parent == self._root else folder.parent.name
        config = jc.flatten(self._run.branches.get(branch, self._run.config))
        flat = {"seed": int(folder.name.removeprefix("seed-"))}
        for key, value in config.items():
            if value != {}:
                plain = isinstance(value, bool | int | float | str)
                flat[key] = value if plain else json.dumps(value)
        # The third part says that it has ended.
        for part in summary.hparams(flat, {"valid/accuracy": 0})[:2]:
            self._add(folder, 0, part)


def open(run: loggers.RunInfo) -> loggers.Logger:
    """Begins event files below `<workdir>/tensorboard`."""
    return _Board(run)
