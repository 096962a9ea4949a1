"""Downloads a set of TensorFlow Datasets and writes it so that it is read without TensorFlow.

jbias prepare tfds --name=imagenette/320px

Writes ArrayRecord shards below --root, by itself where TFDS has its sets: $TFDS_DATA_DIR, or
~/tensorflow_datasets. A set that is there already stays as it is. Where there is no network,
which is told after some minutes of trying, run the same command where there is one, and copy
the folder. Most sets are written by TensorFlow (`pip install 'jbias[prepare]'`), which nothing
needs to read them.
"""

import argparse
import contextlib
import io
import os

from jbias.data import base
from jbias.data.sets import tfds as sets
from jbias.runtime import messages


def add(parser) -> None:
    """Adds the arguments of the subcommand."""
    add = parser.add_argument
    about = "as TFDS's catalogue has it, such as mnist or imagenette/320px"
    add("--name", required=True, help=about)
    add("--root", default="", help="the folder of the sets; by itself that of TFDS")


def run(args: argparse.Namespace) -> str:
    """Prepares the set; returns what it has.

    Raises ValueError, one line, for a set that TFDS does not know, a package that is not
    installed, and where nothing can be downloaded.
    """
    import requests
    import tensorflow_datasets as tfds

    where, root = "prepare tfds", os.path.expanduser(args.root or sets.default_root())
    name = args.name.partition("/")[0].partition(":")[0]
    known = tfds.list_builders(with_community_datasets=False)
    base.check_known(f"{where}: --name must be in the catalogue of TFDS", name, known)
    command = f"jbias prepare tfds --name={args.name} --root={root}"
    try:
        # What it says of packages that lack is said below.
        with contextlib.redirect_stdout(io.StringIO()):
            builder = tfds.builder(args.name, data_dir=root, file_format="array_record")
            builder.download_and_prepare()
    except ImportError as error:
        needed = f"{where}: {args.name} needs {error.name or error} to be prepared"
        remedy = "pip install 'jbias[prepare]'"
        raise ValueError(f"{needed}, which is not installed; {remedy}") from error
    except requests.RequestException as error:
        what = f"{where}: {args.name} cannot be downloaded here"
        remedy = f"run `{command}`, and copy {os.path.join(root, name)} from there"
        reason = f"({messages.one_line(error)[:200]}); where there is a network"
        raise ValueError(f"{what} {reason}, {remedy}") from error
    splits = builder.info.splits.values()
    counts = ", ".join(f"{one.name} {one.num_examples:,}" for one in splits)
    them = f"data='tfds', {root=}, builder={args.name!r}"
    return f"{builder.data_dir}: {counts}; read them with {them}"
