"""Converts published weights, after checking that they are these.

jbias prepare weights --net=vgg_adain --src=DIR --out=vgg_adain.npz
"""

import argparse

from jbias import config as jc
from jbias.models import registry, weight_files


def add(parser) -> None:
    """Adds the arguments of the subcommand."""
    add = parser.add_argument
    add("--net", required=True, help=f"one of {', '.join(registry.CONVERTERS)}")
    add("--src", required=True, help="the folder of the published files")
    add("--out", required=True, help="the file to write, .npz")


def run(args: argparse.Namespace) -> str:
    """Converts the weights of one network; returns what it did.

    Raises ValueError, with where they are published, if a file is missing or another.
    """
    jc.check_known("prepare weights: --net", args.net, registry.CONVERTERS)
    source = registry.CONVERTERS[args.net]
    arrays = weight_files.read_folder(source, args.src)
    weight_files.write_npz(args.out, arrays)
    count = sum(array.size for array in arrays.values())
    return f"{args.out}: {count} numbers of {', '.join(source.files)}"
