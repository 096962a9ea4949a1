"""Which step the offline files of Weights & Biases hold last.

A process that was killed has given away more than stands there. The files are logs as
LevelDB has them: blocks of 32 KiB; records of a sum, a length and a kind (1 whole, 2 first, 3
middle, 4 last), here after seven bytes; each is a protocol buffer of wandb's.
"""

import struct
from collections.abc import Iterator

from etils import epath

_HEAD, _BLOCK, _START = struct.Struct("<IHB"), 32768, 7


def last_step(folder: epath.Path) -> int | None:
    """The last step in a workdir's offline files; None where there are none."""
    paths = sorted(folder.glob("offline-run-*/*.wandb"))
    steps = [_step(path.read_bytes()) for path in paths]
    return max(steps) if steps else None


def _step(data: bytes) -> int:
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
