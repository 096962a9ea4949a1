"""Reader of data that TensorFlow Datasets prepared: the data set "tfds", without TensorFlow.

<root>/<name>[/<config>]/<version>/*-<split>.{array_record,parquet}-*, as made by `jbias
prepare tfds --name=<name>`. The format, the number of examples of each split and the citation
are from TFDS's files; shards are listed and read like those of other data sets
(forms/shards.py). TFDS's own data sources (4.9.10) are not used: they import any module that
features.json names; ArrayRecord takes twice as long per record, and Parquet reads all shards
into memory and has no parts of a split.

TFDS's writer of Parquet loses examples: of 1,500 examples in a shard it keeps a third, of more
examples a smaller share. A split that lacks examples is refused.
"""

import dataclasses
import os
import re
from typing import Any

from jbias import errors
from jbias.data import base, sets
from jbias.data.forms import listing, shards
from jbias.data.sets.split_files import SplitFiles


def default_root() -> str:
    """Return TFDS's default folder of data sets: $TFDS_DATA_DIR or ~/tensorflow_datasets."""
    return os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"


def read(files: SplitFiles, *, builder: str, space: str = "names") -> base.Source:
    """Return the source of a split of a data set that TFDS prepared.

    builder: TFDS's name of the data set, "imagenet_v2/matched-frequency", with the version as
      in "imagenette/320px:1.0.0"; default: the latest version on disk.
    space: the label space of TFDS's class names: "names", "wnid" or "entry16".
    ValueError for a set, a version or a split that does not exist, a format without random
    access, and a split with another number of examples than TFDS states.
    """
    where = f"data.tfds {builder} {files.split}"
    path = os.path.join(files.root, *builder.split(":"))
    path = _version(where, listing.require_folder(where, path, "builder"))
    info = _info(where, path)
    remedy = f"make it again: jbias prepare tfds --name={builder}"
    if info.file_format not in shards.FORMS:
        must = f"{where}: {path!r} must be in ArrayRecord or Parquet"
        got = f"got {info.file_format or 'tfrecord'}, which has no random access"
        raise ValueError(f"{must}, {got}; {remedy}")
    counts = {split.name: sum(split.shard_lengths) for split in info.splits}
    errors.check_known(where, files.part.base, counts, "split", must="be there")
    cite = " ".join(info.citation.split()) or sets.DATASETS["folder"].cite
    files = dataclasses.replace(files, name=builder, root=path, where=where, cite=cite)
    images = files.find()
    expected, got = counts[files.part.base], len(images.names)
    if got != expected:
        must = f"{where}: {path!r} must hold all {expected:,} examples, got {got:,}"
        raise ValueError(f"{must}; {remedy}")
    return files.build_named(images, space=space)


def _info(error_prefix: str, path: str) -> Any:
    """Return TFDS's protocol buffer DatasetInfo of the data set prepared in folder `path`.

    ValueError if TFDS prepared no data set there. error_prefix: start of error messages.
    """
    from google.protobuf import json_format
    from tensorflow_datasets.core import dataset_info

    must = f"{error_prefix}: {path!r} must be a set that TFDS prepared: "
    with base.explain_errors(
        must, OSError, ValueError, json_format.Error, reason=base.describe_error
    ):
        return dataset_info.read_proto_from_builder_dir(path)


def _version(error_prefix: str, path: str) -> str:
    """Return the folder of the latest version in `path`; `path` itself if it is a version.

    ValueError if `path` has no folder named by a version, such as "1.0.0".
    error_prefix: start of error messages.
    """
    if os.path.isfile(os.path.join(path, "dataset_info.json")):
        return path
    names = sorted(os.listdir(path))
    versions = [name for name in names if re.fullmatch(r"\d+\.\d+\.\d+", name)]
    if not versions:
        configs = [name for name in names if os.path.isdir(os.path.join(path, name))]
        must = f"{error_prefix}: {path!r} must have a folder for each version"
        got = f"got {', '.join(configs) or 'none'}; a config belongs to the builder"
        raise ValueError(f"{must}, {got}: builder='<set>/<config>'")
    latest = max(versions, key=lambda name: [int(part) for part in name.split(".")])
    return os.path.join(path, latest)
