"""Logger for Weights & Biases: one run, with keys per seed; offline by default.

The id of the run is in `<workdir>/wandb/jbias.json`. Steps that a resumed run repeats are
not logged twice: the last logged step comes from wandb's files if offline, and from the
server if online. `wandb sync` uploads offline runs.

The last step is read from the files, not from jbias.json, because a killed process may have logged
later steps. The files are in LevelDB's log format: seven bytes, then blocks of 32 KiB with records
of a checksum, a length, a kind (1 complete, 2 first, 3 middle, 4 last), and a part of one of
wandb's protocol buffers.
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


class _WandbLogger:
    """A logger that writes to one run of wandb; see `loggers.Logger`.

    The numbers of a step are sent as one row when the first numbers of a later step arrive.
    """

    def __init__(self, run: loggers.RunInfo):
        self._path = run.workdir / _FOLDER / "jbias.json"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._state = _load_state(self._path, run.name)
        self._step, self._row = -1, {}
        options = run.config["run"].get("wandb", {})
        is_offline = options.get("mode", loggers.WANDB_MODES[0]) == "offline"
        paths = self._path.parent.glob("offline-run-*/*.wandb") if is_offline else ()
        steps = [_last_step_in(path.read_bytes()) for path in paths]
        self._run = _start_run(
            run, self._state["id"], options=options, is_offline=is_offline
        )
        if not is_offline:
            steps = [self._run.step - 1]
        self._state["step"] = max(steps, default=self._state["step"])

    def scalars(self, step: int, numbers: loggers.Numbers) -> None:
        """Add the numbers of a step to its row; send the row of an earlier step first.

        Steps that were logged before the run was resumed are skipped.
        """
        if step > self._step:
            self._send_row()
        if step <= self._state["step"]:
            return  # Logged before the run was stopped and resumed.
        self._step = max(step, self._step)
        for owner, values in numbers.items():
            self._row |= {f"{tag}/{owner}": value for tag, value in values.items()}

    def close(self) -> None:
        """Send the last row, and finish the run."""
        self._send_row()
        self._run.finish()

    def _send_row(self) -> None:
        """Send the row of the latest step, if it has numbers."""
        if self._row:
            self._run.log(self._row, step=self._step, commit=True)
            self._state["step"], self._row = self._step, {}
            files.write(self._path, json.dumps(self._state), lasting=False)


def open(run: loggers.RunInfo) -> loggers.Logger:
    """Start or resume the workdir's run of Weights & Biases, and return its logger.

    Two environment variables of wandb, WANDB_ERROR_REPORTING and WANDB_SERVICE, are changed.
    """
    # wandb reads this variable at its import, and would contact a server.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    # The service of another process may still have the run of a killed process open.
    os.environ.pop("WANDB_SERVICE", None)
    return _WandbLogger(run)


def _load_state(path: epath.Path, name: str) -> dict[str, Any]:
    """Return the content of jbias.json: wandb's "id" of the run, and the last logged "step".

    A missing file at `path` is created with a new id, which begins with the run's `name`.
    """
    if path.exists():
        return json.loads(path.read_text("utf-8"))
    plain_name = re.sub(r"[^\w-]+", "-", name)
    state = {"id": f"{plain_name[:100]}-{uuid.uuid4().hex[:8]}", "step": -1}
    path.write_text(json.dumps(state), "utf-8")
    return state


def _start_run(
    run: loggers.RunInfo, run_id: str, *, options: Mapping[str, Any], is_offline: bool
) -> Any:
    """Start or resume the run `run_id` of wandb, and return wandb's object for the run.

    options: config.run.wandb. is_offline: True if wandb only writes files.
    """
    import wandb  # Late: wandb reads the environment at its import.

    settings = wandb.Settings(
        console="off",
        silent=is_offline,
        disable_code=True,
        disable_git=True,
        quiet=True,
        x_disable_machine_info=True,
        x_disable_stats=True,
        x_transaction_log_flush_interval=1.0,
    )
    with contextlib.redirect_stdout(None):
        return wandb.init(
            mode="offline" if is_offline else "online",
            id=run_id,
            resume="allow",
            name=run.name,
            project=options.get("project") or "jbias",
            entity=options.get("entity") or None,
            dir=os.fspath(run.workdir),
            config=dict(run.config),
            settings=settings,
            reinit="create_new",
        )


# LevelDB's log format, with wandb's header of 7 bytes.
_RECORD_HEADER = struct.Struct("<IHB")  # Checksum, size, kind.
_BLOCK_BYTES = 32768
_FILE_HEADER_BYTES = 7
_COMPLETE, _LAST = 1, 4  # Kinds of records that end a message.


def _last_step_in(data: bytes) -> int:
    """Return the last logged step in the content of a .wandb file; -1 without a step."""
    from wandb.proto import wandb_internal_pb2  # Late, as all of wandb.

    step = -1
    for message in _messages(data):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(message)
        if record.WhichOneof("record_type") == "history":
            step = max(step, record.history.step.num)
    return step


def _messages(data: bytes) -> Iterator[bytes]:
    """Yield the complete messages of a .wandb file; a kill may have cut the last message."""
    position, message = _FILE_HEADER_BYTES, b""
    while position + _RECORD_HEADER.size <= len(data):
        left_in_block = _BLOCK_BYTES - position % _BLOCK_BYTES
        if left_in_block < _RECORD_HEADER.size:
            position += left_in_block
            continue
        _, size, kind = _RECORD_HEADER.unpack_from(data, position)
        position += _RECORD_HEADER.size + size
        if position > len(data):
            return
        message += data[position - size : position]
        if kind in (_COMPLETE, _LAST):
            yield message
            message = b""
