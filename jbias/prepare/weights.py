"""Convert published weights of other projects, for `stylize` and `deepaugment`.

jbias prepare weights --net=vgg_adain --src=DIR --out=vgg_adain.npz

First download the published files into --src. The command checks that they are unchanged.

    vgg_adain  vgg_normalised.pth and decoder.pth, the style transfer AdaIN, from
               https://github.com/LiYingwei/ShapeTextureDebiasedTraining/tree/afdb8b7/models
    cae        model_final.state, an autoencoder of DeepAugment, from
               https://github.com/hendrycks/imagenet-r/tree/3131cac/DeepAugment/CAE_Weights
    edsr       edsr_baseline_x4.pt, a super-resolution network of DeepAugment, from
               https://github.com/hendrycks/imagenet-r/tree/3131cac/DeepAugment/EDSR_Weights
"""

import argparse

from jbias import errors
from jbias.models import registry, weight_files


def add(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `jbias prepare weights` to its parser."""
    add = parser.add_argument
    net_help = f"network to convert, see above: one of {', '.join(registry.CONVERTERS)}"
    add("--net", required=True, metavar="NAME", help=net_help)
    src_help = "folder with the downloaded files of this network"
    add("--src", required=True, metavar="DIR", help=src_help)
    add(
        "--out",
        required=True,
        metavar="FILE",
        help="weights file to write, ending in .npz",
    )


def run(args: argparse.Namespace) -> str:
    """Convert the weights of one network; return a line with the value count and the files' names.

    args: the flags of `add`. ValueError, with the address of the published files, if a file
    is missing or is not the published one.
    """
    errors.check_known("prepare weights: --net", args.net, registry.CONVERTERS)
    source = registry.CONVERTERS[args.net]
    arrays = weight_files.read_folder(source, args.src)
    weight_files.write_npz(args.out, arrays)
    count = sum(array.size for array in arrays.values())
    return f"{args.out}: {count} numbers of {', '.join(source.files)}"
