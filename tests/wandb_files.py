"""Reads the files that Weights & Biases writes offline, by their published formats.

They are logs as LevelDB has them (blocks of 32 KiB; records of a checksum, a length and a
kind: 1 whole, 2 first, 3 middle, 4 last), after a header of seven bytes; each record is a
protocol buffer of wandb's own.
"""

import json
import pathlib
import struct
import time
from collections.abc import Iterator

_BLOCK = 32768


def read(path: pathlib.Path, *, ended: bool = True) -> list:
    """Return all records of a file, in order; if `ended`, once the file is complete.

    wandb's own process goes on writing for a moment after the run is finished.
    """
    until = time.monotonic() + 60
    while True:
        records = _records(path)
        last = records[-1].WhichOneof("record_type") if records else ""
        if not ended or last == "exit":
            return records
        assert time.monotonic() < until, f"{path} is not whole"
        time.sleep(0.05)


def _records(path: pathlib.Path) -> list:
    from wandb.proto import wandb_internal_pb2

    records = []
    for body in _bodies(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(body)
        records.append(record)
    return records


def history(path: pathlib.Path, *, ended: bool = True) -> dict[int, dict[str, float]]:
    """Return the numbers by step; a repeated step is refused."""
    rows = {}
    for record in read(path, ended=ended):
        if record.WhichOneof("record_type") != "history":
            continue
        items = {
            "/".join(item.nested_key) or item.key: json.loads(item.value_json)
            for item in record.history.item
        }
        step = items.pop("_step")
        assert step == record.history.step.num and step not in rows
        rows[step] = {k: v for k, v in items.items() if not k.startswith("_")}
    return rows


def _bodies(data: bytes) -> Iterator[bytes]:
    assert data[:4] == b":W&B"
    at, body = 7, b""
    while at + 7 <= len(data):
        if _BLOCK - at % _BLOCK < 7:
            at += _BLOCK - at % _BLOCK
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        body += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            yield body
            body = b""
