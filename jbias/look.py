r"""Draws what measures show a network, and where networks look.

    python -m jbias.look --suite=configs/suites/distortion.py:data=cifar10,root=DIR
    python -m jbias.look --runs='runs/distortion/*' --only=occlusion,cut_occlusion \
        --suite=configs/suites/distortion.py:data=cifar10,root=DIR
    python -m jbias.look --checkpoint=zoo/ --site=stage4 --set=cue-conflict \
        --suite=configs/suites/biases.py:data=imagenet,root=DIR,stimuli=DIR

A sheet for each measure of the suite and each of its sets, <measure>@<set>: a row an
image, a column a condition, with the pixels that a network gets in measuring; what shows
images as they are has one sheet, <measure>, with a column a set. Images are evenly spaced
in each set, the same everywhere. Without networks that is all.

With networks, the first seed of each run:

    saliency@<set>             Grad-CAM of each over the images, what it decides, and how
                               probable that is to it
    mean_saliency@<set>        the mean map of each over many images
    <network>/<measure>@<set>  conditions that are made by the network, such as attacks and
                               what it finds salient hidden

All as PNG, SVG and PDF. In the PNG every pixel of an image is a square of whole pixels, and
nothing is resampled.

Exit codes: 0 done; 1 some network, or something of one, was left out; 2 nothing could be
drawn, or arguments are wrong; 130 stopped. Standard error says why.
"""

import argparse
import sys
from collections.abc import Sequence

from jbias import presets
from jbias.measure import command, flags
from jbias.terminal import parsing

_OF_NETWORKS = (*flags.OF_FILES, "step", "site", "seeds", "maps")


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit code."""
    args, changes = command.parse(parser(), argv, "suite", presets.check)
    if not args.suite:
        parser().error("--suite is missing, e.g. --suite=jbias:suites/distortion")
    given = [name for name in _OF_NETWORKS if getattr(args, name) is not None]
    if given and not args.checkpoint:
        parser().error(f"--{given[0]} says nothing without --checkpoint; leave it out")
    args.only, args.set = args.only or (), args.set or ()
    args.seeds = 1 if args.seeds is None else args.seeds
    args.maps = 256 if args.maps is None else args.maps
    return command.run(lambda: _work(args, changes), stopped="draws all anew")


def _work(args: argparse.Namespace, changes: Sequence[str]) -> int:
    from jbias.measure import looking

    return looking.run(args, changes)


def parser() -> parsing.Parser:
    """The command line."""
    made = parsing.Parser("look", __doc__)
    flags.add(made)
    add = made.add_argument
    add(
        "--set",
        type=parsing.names,
        metavar="A,B",
        help="sets of the suite, by their names there; if not given all of each measure, "
        "and for saliency the first",
    )
    add(
        "--images",
        type=parsing.at_least(1),
        default=8,
        metavar="N",
        help="rows of a sheet; of the smallest set at most all (default: %(default)s)",
    )
    add(
        "--site",
        metavar="NAME",
        help="where networks are looked into for saliency, e.g. stage2 (default: as the "
        "suite's occlusion, stage3 if it does not say)",
    )
    add(
        "--seeds",
        type=parsing.at_least(0),
        metavar="N",
        help="so many seeds of each run, the first ones; 0 is all (default: 1)",
    )
    add(
        "--maps",
        type=parsing.at_least(0),
        metavar="N",
        help="so many images have a part in the mean map, evenly spaced; 0 draws none "
        "(default: 256)",
    )
    add("--out", default="pictures", metavar="DIR", help="(default: %(default)s)")
    return made


if __name__ == "__main__":
    sys.exit(main())
