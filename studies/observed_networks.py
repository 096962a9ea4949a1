"""Store the decisions of networks that the page of `jbias observe` compares a person with.

    jbias train --config=configs/erm.py:size=64,seeds=1,epochs=6 --workdir=runs/observed
    jbias measure runs/observed --only=accuracy,shape_bias --out=measured-observed
    python -m studies.observed_networks measured-observed/*

Writes jbias/observing/stored/networks.csv, the decisions of each measured network about the images
of the page. The network of the run with the largest validation accuracy is measured, that of epoch 5.
Takes seconds; the training takes an hour of one core.
"""

import argparse
import csv
import io
import pathlib
import sys
from collections.abc import Sequence

import numpy as np

from jbias.answers import letter_answers
from jbias.evals import decision_files
from jbias.observing import comparison, stimuli
from jbias.runtime import files, messages
from studies import command

COLUMNS = ("network", "about", "set", "fingerprint", "answers")
NETWORKS = {  # A sentence about each network.
    "A network": "a ResNet-18 of width 16, trained for 5 epochs on 4,096 images of 64 pixels, in 99 of "
    "100 of which the texture is the class's."
}


def main(argv: Sequence[str] | None = None) -> int:
    """Write the stored decisions; return the exit code. argv: the arguments."""
    args = parser().parse_args(argv)
    files.write(comparison.STORED, to_csv(args.measured), lasting=False)
    messages.print_text(f"written: {comparison.STORED}")
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command.parser("observed_networks", __doc__)
    parser.add_argument(
        "measured",
        nargs=len(NETWORKS),
        type=pathlib.Path,
        help="folder of a network's results, as `jbias measure` writes it, for each network",
    )
    return parser


def to_csv(measured: Sequence[pathlib.Path]) -> str:
    """Return the stored decisions as CSV: a row for each network and set.

    measured: the folder of each network's results, in the order of NETWORKS. ValueError if the
    results are about other images than those of the page.
    """
    shown = stimuli.embedded()
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for (name, note), folder in zip(NETWORKS.items(), measured, strict=True):
        for group in shown.groups:
            split = group.dataset.removeprefix(f"{stimuli.SHAPES}-")
            path = folder / "decisions" / split / "accuracy.parquet"
            (decided,) = decision_files.read_conditions(path).values()
            n = len(group.label)
            if not np.array_equal(decided.columns["label"][:n], group.label):
                raise ValueError(
                    f"{path}: must be about the images of the page; measure again"
                )
            answers = letter_answers.encode(decided.prediction[:n])
            table.writerow([name, note, group.dataset, group.fingerprint, answers])
    return text.getvalue()


if __name__ == "__main__":
    sys.exit(main())
