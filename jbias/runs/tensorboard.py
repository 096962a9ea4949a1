"""Logger for TensorBoard: a folder of event files for the means, with a folder per seed.

Uses tensorboardX's `EventsWriter` in the caller's thread. `SummaryWriter` uses a thread
with a queue, which blocks the run when the disk is full.
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
# Folder in a seed's folder, for numbers of a process that evaluates but does not train.
_FOLLOWER_FOLDER = "elsewhere"


class _TensorBoardLogger:
    """A logger that writes one event file per folder; see `loggers.Logger`."""

    def __init__(self, run: loggers.RunInfo):
        self._run, self._root = run, run.workdir / FOLDER
        self._files: dict[epath.Path, event_file_writer.EventsWriter] = {}
        if not run.alone:
            return
        # A new file in each existing folder voids its old events of repeated steps.
        for depth in ("", "*/", "*/*/"):
            for path in self._root.glob(f"{depth}events.out.tfevents.*"):
                if path.parent.name != _FOLLOWER_FOLDER:
                    self._file(path.parent)
        text = f"```json\n{json.dumps(run.config, indent=1)}\n```"
        self._add(self._root, 0, summary.text("config", text))
        self._file(self._root).flush()

    def scalars(self, step: int, numbers: loggers.Numbers) -> None:
        """Log the numbers of a step; means go to the parent of their seeds' folders.

        In a process that only evaluates the run, each folder is replaced by a folder `elsewhere`
        inside it.
        """
        for owner, values in numbers.items():
            names = [name for name in owner.split("/") if name != loggers.MEAN]
            folder = self._root.joinpath(*names)
            folder = folder if self._run.alone else folder / _FOLLOWER_FOLDER
            for tag, value in values.items():
                self._add(folder, step, summary.scalar(tag, value))
            self._file(folder).flush()

    def close(self) -> None:
        """Close all event files."""
        with contextlib.ExitStack() as stack:
            for file in self._files.values():
                stack.callback(file.close)

    def _add(self, folder: epath.Path, step: int, content: Any) -> None:
        """Write a summary (a protocol buffer) of a step to a folder's event file."""
        event = event_pb2.Event(wall_time=time.time(), step=step, summary=content)
        self._file(folder).write_event(event)

    def _file(self, folder: epath.Path) -> event_file_writer.EventsWriter:
        """Return the open event file of a folder; create the file if needed.

        If this process trains the run, a new file starts with an event that makes TensorBoard
        ignore older events of this start's first step and of later steps, and a new file of a seed
        gets its hyperparameters.
        """
        if folder in self._files:
            return self._files[folder]
        folder.mkdir(parents=True, exist_ok=True)
        # The default name has only seconds and host, so that a restart within a second
        # would overwrite the file. Readers sort files by name.
        suffix = f".{time.time_ns()}.{os.getpid()}"
        file = event_file_writer.EventsWriter(os.fspath(folder / "events"), suffix)
        self._files[folder] = file
        if self._run.alone:
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            event = event_pb2.Event(
                wall_time=time.time(), step=self._run.step, session_log=start
            )
            file.write_event(event)
            file.flush()
            if folder.name.startswith("seed-"):
                self._add_hyperparameters(folder)
        return file

    def _add_hyperparameters(self, folder: epath.Path) -> None:
        """Write the config of a seed's branch as hyperparameters to the seed's folder.

        folder: named seed-<number>. Values that are not scalars are written as JSON; empty mappings
        are left out. The seed is a hyperparameter, too.
        """
        branch = "" if folder.parent == self._root else folder.parent.name
        config = jc.flatten(self._run.branches.get(branch, self._run.config))
        hyperparameters = {"seed": int(folder.name.removeprefix("seed-"))}
        for key, value in config.items():
            if value != {}:
                is_plain = isinstance(value, bool | int | float | str)
                hyperparameters[key] = value if is_plain else json.dumps(value)
        # The third summary would mark the session as ended.
        start_summaries = summary.hparams(hyperparameters, {"valid/accuracy": 0})[:2]
        for content in start_summaries:
            self._add(folder, 0, content)


def open(run: loggers.RunInfo) -> loggers.Logger:
    """Return a logger that writes event files below `<workdir>/tensorboard`."""
    return _TensorBoardLogger(run)
