"""The set "tfds": what TensorFlow Datasets prepared, read without TensorFlow.

<root>/<name>[/<config>]/<version>/*-<split>.{array_record,parquet}-*, as `jbias
prepare tfds --name=<name>` makes it. TFDS says of a set which format it has, how many
examples are in each split and whom to cite; its shards are listed and read as any others
(forms/shards.py). Not by its data sources (4.9.10), which import whatever module features.json
names; that of ArrayRecord takes twice as long a record, and that of Parquet reads all shards
into memory and has no parts of a split.

Its writer of Parquet keeps a third of 1,500 examples in a shard, and the fewer the more there
are: a split that lacks some of its examples is refused.
"""

import os
import re

from jbias.data import base, tables
from jbias.data.forms import listing, shards
from jbias.data.sets import folder


def default_root() -> str:
    """Where TFDS has its sets, unless another place is named."""
    return os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"


def read(request: folder.Request, *, builder: str, space: str = "names") -> base.Source:
    """Reads a split of a set, such as builder="imagenet_v2/matched-frequency".

    A builder without a version takes the latest; "imagenette/320px:1.0.0" names one.
    Labels are named as TFDS names them.
    """
    where = f"data.tfds {builder} {request.split}"
    path = os.path.join(request.root, *builder.split(":"))
    path = _version(where, listing.require_folder(where, path, "builder"))
    info = _info(where, path)
    remedy = f"make it anew: jbias prepare tfds --name={builder}"
    if info.file_format not in shards.FORMS:
        must = f"{where}: {path!r} must be in ArrayRecord or Parquet"
        got = f"got {info.file_format or 'tfrecord'}, which has no random access"
        raise ValueError(f"{must}, {got}; {remedy}")
    counts = {split.name: sum(split.shard_lengths) for split in info.splits}
    base.check_known(f"{where}: split must be there", request.part.base, counts)
    cite = " ".join(info.citation.split()) or tables.cite("folder")
    request = request._replace(name=builder, root=path, where=where, cite=cite)
    found = folder.find_split(request)
    n, there = counts[request.part.base], len(found.names)
    if there != n:
        must = f"{where}: {path!r} must hold all {n:,} examples, got {there:,}"
        raise ValueError(f"{must}; {remedy}")
    return folder.build_named(request, found, space)


def _info(where: str, path: str):
    """What TFDS noted beside the shards, a protocol buffer."""
    from google.protobuf import json_format
    from tensorflow_datasets.core import dataset_info

    must = f"{where}: {path!r} must be a set that TFDS prepared: "
    kinds = OSError, ValueError, json_format.Error
    with base.explain_errors(must, *kinds, reason=base.describe_error):
        return dataset_info.read_proto_from_builder_dir(path)


def _version(where: str, path: str) -> str:
    """The folder of the latest version below a set's own."""
    if os.path.isfile(os.path.join(path, "dataset_info.json")):
        return path
    names = sorted(os.listdir(path))
    versions = [name for name in names if re.fullmatch(r"\d+\.\d+\.\d+", name)]
    if not versions:
        configs = [one for one in names if os.path.isdir(os.path.join(path, one))]
        must = f"{where}: {path!r} must have a folder for each version"
        got = f"got {', '.join(configs) or 'none'}; a config belongs to the builder"
        raise ValueError(f"{must}, {got}: builder='<set>/<config>'")
    latest = max(versions, key=lambda name: [int(part) for part in name.split(".")])
    return os.path.join(path, latest)
