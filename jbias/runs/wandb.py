"""Weights & Biases: one run, with a key for each seed; offline unless configured otherwise.

A run keeps its id in `<workdir>/wandb/jbias.json`. Steps that a resumed run repeats are not
logged twice: offline the run's files say what they have, online the server does. `wandb
sync` uploads what is offline.

A process that was killed has logged more than its files hold. They are logs in LevelDB's
format: blocks of 32 KiB; records of a checksum, a length and a kind (1 complete, 2 first, 3
middle, 4 last), here after seven bytes; each is a protocol buffer of wandb's.
"""

import contextlib
import json
import os
import re
import struct
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from jbias.runs import loggers
from jbias.runtime import files

_FOLDER = "wandb"


class _Run:
    """Gives away whole steps: a row is complete once a later step comes."""

    def __init__(self, run: loggers.RunInfo):
        self._path = run.workdir / _FOLDER / "jbias.json"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._state = _state(self._path, run.name)
        self._step, self._row = -1, {}
        options = run.config["run"].get("wandb", {})
        offline = options.get("mode", loggers.WANDB_MODES[0]) == "offline"
        written = self._path.parent.glob("offline-run-*/*.wandb") if offline else ()
        steps = [_last_step_in(path.read_bytes()) for path in written]
        self._run = _begun(run, self._state["id"], options, offline=offline)
        if not offline:
            steps = [self._run.step - 1]
        self._state["step"] = max(steps, default=self._state["step"])

    def scalars(self, step: int, numbers: loggers.Numbers) -> None:
        """Takes the numbers of a step."""
        if step > self._step:
            self._give()
        if step <= self._state["step"]:
            return  # Given away before the run was stopped and resumed.
        self._step = max(step, self._step)
        for of, values in numbers.items():
            self._row |= {f"{tag}/{of}": value for tag, value in values.items()}

    def close(self) -> None:
        """Writes out what is left."""
        self._give()
        self._run.finish()

    def _give(self) -> None:
        if self._row:
            self._run.log(self._row, step=self._step, commit=True)
            self._state["step"], self._row = self._step, {}
            files.write(self._path, json.dumps(self._state), lasting=False)


def open(run: loggers.RunInfo) -> loggers.Logger:
    """Begins or goes on with the workdir's run of Weights & Biases."""
    # Before wandb is imported: it would reach out.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    # A service that another process began would still have the run of one that was killed.
    os.environ.pop("WANDB_SERVICE", None)
    return _Run(run)


def _state(path: epath.Path, name: str) -> dict[str, Any]:
    """What is known from earlier starts; the id is drawn at the first."""
    if path.exists():
        return json.loads(path.read_text("utf-8"))
    plain = re.sub(r"[^\w-]+", "-", name)
    state = {"id": f"{plain[:100]}-{uuid.uuid4().hex[:8]}", "step": -1}
    path.write_text(json.dumps(state), "utf-8")
    return state


def _begun(run: loggers.RunInfo, identity: str, options: Mapping, *, offline: bool):
    import wandb  # Late: it reads its environment.

    on = ("disable_code", "disable_git", "quiet")
    on += ("x_disable_machine_info", "x_disable_stats")
    about = dict(x_transaction_log_flush_interval=1.0, **dict.fromkeys(on, True))
    settings = wandb.Settings(console="off", silent=offline, **about)
    with contextlib.redirect_stdout(None):
        return wandb.init(
            mode="offline" if offline else "online",
            id=identity,
            resume="allow",
            name=run.name,
            project=options.get("project") or "jbias",
            entity=options.get("entity") or None,
            dir=os.fspath(run.workdir),
            config=dict(run.config),
            settings=settings,
            reinit="create_new",
        )


_HEAD, _BLOCK, _START = struct.Struct("<IHB"), 32768, 7


def _last_step_in(data: bytes) -> int:
    from wandb.proto import wandb_internal_pb2  # Late, as all of wandb.

    step = -1
    for body in _bodies(data):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(body)
        if record.WhichOneof("record_type") == "history":
            step = max(step, record.history.step.num)
    return step


def _bodies(data: bytes) -> Iterator[bytes]:
    """The whole records; a kill may have cut the last one off."""
    at, body = _START, b""
    while at + _HEAD.size <= len(data):
        if (room := _BLOCK - at % _BLOCK) < _HEAD.size:
            at += room
            continue
        _, size, kind = _HEAD.unpack_from(data, at)
        at += _HEAD.size + size
        if at > len(data):
            return
        body += data[at - size : at]
        if kind in (1, 4):
            yield body
            body = b""
