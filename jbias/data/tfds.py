"""Sets that TensorFlow Datasets prepared, read from its files without it.

<root>/<name>[/<config>]/<version>/, in ArrayRecord or Parquet, as

    tfds build imagenette --file_format=array_record --data_dir=<root>

writes. TFRecord, the default of older versions, cannot be read in any order.
"""

import dataclasses
import json
import os
import re

from jbias.data import base, folder, listing, sources

_VERSION = re.compile(r"\d+\.\d+\.\d+")


def make(
    split: str,
    *,
    root: str,
    builder: str,
    size: int = 224,
    resize: int | None = None,
    crop: bool = True,
    space: str = "names",
) -> sources.EncodedSource:
    """Reads a split of a set, such as builder="imagenet_v2/matched-frequency".

    A builder without a version takes the latest. Labels are named as TFDS names them.
    """
    where = f"data.tfds {builder} {split}"
    root = listing.require_folder(where, os.path.expanduser(root), "root")
    path = _version(
        where, listing.require_folder(where, os.path.join(root, builder), "builder")
    )
    found = folder.make(
        split, root=path, size=size, resize=resize, crop=crop, space=space
    )
    cite = _citation(path)
    return dataclasses.replace(
        found, name=f"{builder}/{split}", cite=cite or found.cite
    )


def _version(where: str, path: str) -> str:
    """The folder of the latest version below a set's own."""
    if os.path.isfile(os.path.join(path, "dataset_info.json")):
        return _readable(where, path)
    there = [name for name in os.listdir(path) if _VERSION.fullmatch(name)]
    if not there:
        configs = sorted(
            n for n in os.listdir(path) if os.path.isdir(os.path.join(path, n))
        )
        raise ValueError(
            f"{where}: {path!r} must have a folder for each version, got"
            f" {', '.join(configs) or 'none'}; a config belongs to the builder:"
            " builder='<set>/<config>'"
        )
    latest = max(there, key=lambda name: [int(part) for part in name.split(".")])
    return _readable(where, os.path.join(path, latest))


def _readable(where: str, path: str) -> str:
    if any(".tfrecord" in name for name in os.listdir(path)):
        raise ValueError(
            f"{where}: {path!r} must be in ArrayRecord or Parquet, got TFRecord, which"
            " has no random access; make it anew: tfds build <name>"
            " --file_format=array_record"
        )
    return path


def _citation(path: str) -> str:
    """The set's citation on one line, if its files have one."""
    try:
        with open(os.path.join(path, "dataset_info.json"), encoding="utf-8") as file:
            return " ".join(json.load(file).get("citation", "").split())
    except (OSError, ValueError, AttributeError, RecursionError):
        return ""


SPEC = base.spec("tfds", make)
