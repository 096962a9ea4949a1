r"""Audits models: which attribute of the images hurts, how much, and in which way.

    python -m jbias.audit --checkpoint=runs/x --data=attributed --root=DIR \
        --attributes=hair,background --out=audit/
    python -m jbias.audit --checkpoint=net.pth --model=resnet50 --classes=names.txt \
        --data=attributed --root=DIR
    python -m jbias.audit --runs='runs/*' --data=shapes --data.factors=True \
        --data.correlation=0.0625 --data.n=4096

Nothing is trained. Every network is shown the images once; of each column of the data set
whose values have names, or of --attributes, test sets of all kinds and levels are made of
its answers: marginal (M0 to M4), conditional (C0 to C6) and joint (J0 to J4) shifts. The
seeds of a run are one model, each file is one.

Writes to --out: index.html (one page that needs no network) with attributes ranked by how
much they hurt, drop curves, images that flip and probabilities in and out of
distribution; tables/*.csv and *.tex, figures/*.svg, *.pdf and *.png, results.json; of
several models these are in models/<name>/. In networks/<name>/ lies what each network
decided, so that the same command goes on where it was stopped.

Every class should have images of every value: what has not is left out, and told.

Exit codes: 0 done; 1 some network was left out; 2 none could be audited, or arguments are
wrong; 130 stopped. Standard error says why.
"""

import argparse
import sys
from collections.abc import Sequence

from jbias import presets
from jbias.measure import command, flags
from jbias.terminal import parsing

_KINDS = ("marginal", "conditional", "joint")  # jbias.data.shifts.KINDS, known early.


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit code."""
    args, options = command.parse(parser(), argv, "data", presets.check)
    if not args.checkpoint:
        parser().error("--checkpoint is missing, e.g. --checkpoint=runs/x")
    if not args.data:
        parser().error("--data is missing, e.g. --data=attributed --root=DIR")
    return command.run(lambda: _work(args, options), stopped="goes on")


def _work(args: argparse.Namespace, options: Sequence[str]) -> int:
    from jbias.measure import auditing

    return auditing.run(args, options)


def parser() -> parsing.Parser:
    """The command line."""
    made = parsing.Parser("audit", __doc__)
    flags.add_networks(made)
    add = made.add_argument
    add(
        "--data",
        metavar="NAME",
        help="a data set of jbias.data.DATASETS; --data.KEY=VALUE, as often as wanted, is "
        "an option of it, e.g. --data.label=smile",
    )
    add("--root", metavar="DIR", help="its folder, as --data.root=DIR")
    add("--split", default="test", help="of the data set (default: %(default)s)")
    add(
        "--size",
        type=parsing.at_least(1),
        metavar="PIXELS",
        help="of the images' sides (default: that of the runs, for files 224)",
    )
    add(
        "--images",
        type=parsing.at_least(0),
        default=0,
        metavar="N",
        help="so many images, evenly spaced; 0 is all (default: %(default)s)",
    )
    add(
        "--reference",
        action="append",
        default=[],
        metavar="PATH",
        help="networks, as for --checkpoint, that do not rely on anything, such as ones "
        "trained on all values alike: drops are then beyond theirs, which leaves out what "
        "is harder for any network",
    )
    add(
        "--attributes",
        type=parsing.names,
        default=(),
        metavar="A,B",
        help="columns of the data set (default: all whose values have names)",
    )
    add(
        "--kinds",
        type=_kinds,
        default=_KINDS,
        metavar="A,B",
        help=f"of shifts: {', '.join(_KINDS)} (default: all). A marginal drop may be of "
        "images that are harder; conditional asks for shortcuts alone",
    )
    add(
        "--apart",
        action="store_true",
        help="each seed of a run is a model of its own",
    )
    add(
        "--tau",
        type=_between(0, 100),
        default=5.0,
        metavar="POINTS",
        help="a drop that matters (default: %(default)g points)",
    )
    add(
        "--alpha",
        type=_between(1e-9, 1),
        default=0.05,
        metavar="P",
        help="level of the tests together, of each model (default: %(default)s)",
    )
    add(
        "--draws",
        type=parsing.at_least(100),
        default=2000,
        metavar="N",
        help="of the bootstrap (default: %(default)s)",
    )
    add(
        "--seed",
        type=parsing.at_least(0),
        default=0,
        help="of halves and draws (default: %(default)s)",
    )
    add(
        "--pairs",
        type=parsing.at_least(0),
        default=8,
        metavar="N",
        help="so many pairs of images that flip are shown of each bug (default: %(default)s)",
    )
    add(
        "--devices",
        type=parsing.at_least(0),
        default=0,
        metavar="N",
        help="how many of those here are used; 0 is all (default: %(default)s)",
    )
    add("--out", default="audit", metavar="DIR", help="(default: %(default)s)")
    return made


def _kinds(text: str) -> tuple[str, ...]:
    found = parsing.names(text)
    for name in found:
        if name not in _KINDS:
            raise argparse.ArgumentTypeError(
                f"must be of {', '.join(_KINDS)}, got {name!r}"
            )
    return found


def _between(least: float, most: float):
    what = f"a number from {least:g} to below {most:g}"
    return parsing.number(float, lambda value: least <= value < most, what)


if __name__ == "__main__":
    sys.exit(main())
