"""Download a data set of TensorFlow Datasets; training then reads it without TensorFlow.

jbias prepare tfds --name=imagenette/320px

Writes ArrayRecord shards into a folder below --root; a data set that exists is not changed. To
train on the data set, use data=tfds,name=imagenette/320px,tests=validation in the config.
Without an internet connection the command fails after some minutes: run the command on a
machine with a connection, and copy the folder. Most data sets need TensorFlow for this command
(`pip install 'jbias[prepare]'`), but not for training and evaluation.
"""

import argparse
import contextlib
import io
import os

from jbias import errors
from jbias.data.sets import tfds as sets
from jbias.runtime import messages


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `jbias prepare tfds` to its parser."""
    add = parser.add_argument
    name_help = "name in the catalogue of TensorFlow Datasets, such as mnist or "
    name_help += "imagenette/320px"
    add("--name", required=True, metavar="NAME", help=name_help)
    root_help = "folder in which TensorFlow Datasets keeps all its data sets (default: "
    root_help += "$TFDS_DATA_DIR, else ~/tensorflow_datasets)"
    add("--root", default="", metavar="DIR", help=root_help)


def run(args: argparse.Namespace) -> str:
    """Download the data set; return a line with its counts and the options that read it.

    args: the flags of `add`. ValueError for a data set that is not in TFDS's catalogue, a
    package that is not installed, and if the data set cannot be downloaded.
    """
    import requests
    import tensorflow_datasets as tfds

    where, root = "prepare tfds", os.path.expanduser(args.root or sets.default_root())
    name = args.name.partition("/")[0].partition(":")[0]
    known = tfds.list_builders(with_community_datasets=False)
    errors.check_known(where, name, known, "--name", must="be in the catalogue of TFDS")
    command = f"jbias prepare tfds --name={args.name} --root={root}"
    try:
        # TFDS prints about missing packages; the error below has the same information.
        with contextlib.redirect_stdout(io.StringIO()):
            builder = tfds.builder(args.name, data_dir=root, file_format="array_record")
            builder.download_and_prepare()
    except ImportError as error:
        needed = f"{where}: {args.name} needs {error.name or error} to be prepared"
        remedy = "pip install 'jbias[prepare]'"
        raise ValueError(f"{needed}, which is not installed; {remedy}") from error
    except requests.RequestException as error:
        problem = f"{where}: {args.name} cannot be downloaded here"
        remedy = f"run `{command}`, and copy {os.path.join(root, name)} from there"
        reason = f"({messages.one_line(error)[:200]}); where there is a network"
        raise ValueError(f"{problem} {reason}, {remedy}") from error
    splits = builder.info.splits.values()
    counts = ", ".join(f"{split.name} {split.num_examples:,}" for split in splits)
    entry = f"data='tfds', {root=}, builder={args.name!r}"
    return f"{builder.data_dir}: {counts}; read them with {entry}"
