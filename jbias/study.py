r"""Audits a recipe: trains it under every kind and level of shift of each attribute.

    python -m jbias.study --config=configs/erm.py:data=colored_mnist,root=/data/mnist
    python -m jbias.study --config=configs/erm.py:data=attributed,root=DIR,seeds=5 \
        --attributes=hair,background --levels=M4,C --workdir=runs/faces
    python -m jbias.report.shifts --runs='runs/study/*/*/*' --out=report-shifts

Each network has a workdir of its own, <workdir>/<recipe>/<attribute>/<level>; all seeds
of one train together. The same command goes on where it was stopped, and what is done
stays. Several --config, such as a recipe and its remedies, or --models make a study of
each; --config.key=value changes an entry of all.

Exit codes: 0 all are trained; 1 some could not be, and standard error says why; 2 none,
or arguments are wrong; 130 or 143 stopped with all work saved.
"""

import argparse
import sys
from collections.abc import Sequence

from jbias import presets
from jbias.measure import command
from jbias.terminal import parsing


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit code."""
    args, changes = command.parse(parser(), argv, "config", presets.check)
    if not args.config:
        parser().error("--config is missing, e.g. --config=jbias:erm")
    return command.run(lambda: _work(args, changes), stopped="goes on")


def _work(args: argparse.Namespace, changes: Sequence[str]) -> int:
    from jbias.measure import studying

    return studying.run(args, changes)


def parser() -> parsing.Parser:
    """The command line."""
    made = parsing.Parser("study", __doc__)
    add = made.add_argument
    add(
        "--config",
        action="append",
        metavar="FILE:ARGUMENTS",
        help="the recipe, as for jbias.main, without shift; may be given several times",
    )
    add(
        "--models",
        type=parsing.names,
        default=(),
        metavar="A,B",
        help="networks to train each recipe with (default: the recipe's own)",
    )
    add(
        "--attributes",
        type=parsing.names,
        default=("attribute",),
        metavar="A,B",
        help="columns of the data set (default: attribute)",
    )
    add(
        "--levels",
        type=parsing.names,
        default=("M", "C", "J"),
        metavar="A,B",
        help="such as M4,C6; a letter is all of its kind, `only` trains on each value "
        "alone (default: M,C,J)",
    )
    add("--workdir", default="runs/study", metavar="DIR", help="(default: %(default)s)")
    add(
        "--dry-run",
        action="store_true",
        help="tells which networks there are and how far each is, and trains none",
    )
    return made


if __name__ == "__main__":
    sys.exit(main())
