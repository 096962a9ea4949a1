r"""Write the stimuli of a suite as PNG files, for networks that run elsewhere.

    jbias export-stimuli --suite=configs/suites/biases.py --out=stimuli
    jbias evaluate --decisions=mine.csv --suite=configs/suites/biases.py

Stimuli are the test images of the suite's measures, such as corrupted images. The file
OUT/index.csv has one row per stimulus, with the columns

    id         number of the stimulus
    set        test set of the suite
    condition  change of the image, such as a corruption and its severity
    imagename  path of the file in --out
    category   the correct class
    texture    for cue conflicts: the class of the texture
    exact      yes: the file has exactly the pixels that a network gets in `jbias evaluate`;
               no: the pixels were rounded to whole numbers from 0 to 255

Add a column object_response with the class that your network predicts, save the file as
mine.csv, and give it to `jbias evaluate --decisions` with the same suite, as in the second
command. Stimuli that depend on the network, such as attacks, cannot be exported.

Exit codes: 0 done; 2 an error, which standard error explains; 130 stopped by Ctrl-C, 143 by
SIGTERM.
"""

import argparse
import csv
import sys
from collections.abc import Sequence

from jbias import config as jc
from jbias.runtime import cli, console, outputs

INDEX = ("id", "set", "condition", "imagename", "category", "texture", "exact")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `jbias export-stimuli`; return the exit code.

    Exit codes: see the module's docstring. Invalid arguments raise SystemExit(2).
    argv: the arguments; None: the process's arguments.
    """
    args, changes = cli.parse(parser(), argv, "suite", jc.check)
    return cli.run(lambda: run(args, changes), rerun="writes all files again")


def parser() -> cli.Parser:
    """Return the parser of the command line."""
    parser = cli.Parser("export_stimuli", __doc__)
    parser.add_argument(
        "--suite",
        required=True,
        metavar="FILE[:ARGS]",
        help="suite, a Python file that lists measures and test sets, as for `jbias evaluate`, "
        "e.g. jbias:suites/biases",
    )
    cli.add_names(
        parser,
        "--only",
        None,
        "names of the suite's measures whose stimuli are written, separated by commas "
        "(default: all measures)",
    )
    parser.add_argument(
        "--out",
        **cli.OUT,
        help="new or empty folder to write the stimuli and index.csv into",
    )
    return parser


def run(args: argparse.Namespace, changes: Sequence[str]) -> int:
    """Write the stimuli of the suite as PNG files, then index.csv; return the exit code.

    changes: changes of the suite, such as --suite.run.batch=8. ValueError for a folder --out that
    is not empty, and for invalid arguments.
    """
    import numpy as np
    from etils import epath
    from PIL import Image

    from jbias.evals import decision_tables, inference, set_batches, suites

    log = console.logger(None)
    out = epath.Path(args.out)
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"--out: {out} must be empty; name another folder")
    outputs.check_writable_folder(args.out)
    config = jc.load(args.suite, changes, flag="suite")
    opened_suite = suites.open_suite(config, log, only=args.only or ())
    rows = []
    for (dataset, condition), task in decision_tables.stimuli(opened_suite).items():
        source = opened_suite.sources[dataset]
        classes = tuple(source.classes)
        labels = np.asarray(source.columns["label"])
        textures = np.asarray(source.columns.get("texture", np.full(len(labels), -1)))
        # All images with a label: measures that show fewer choose among them.
        labelled = np.flatnonzero(labels >= 0)
        prepared = set_batches.select(opened_suite, dataset, labelled)
        prepared = prepared._replace(index=prepared.index.astype(np.int32))
        built = opened_suite.make_probe(task.measure, task.dataset, classes)
        probe = suites.as_stimuli(built)
        for batch in set_batches.device_batches(opened_suite, prepared):
            stimuli = inference.make_stimuli(
                set_batches.NO_NETWORK, probe, batch, condition
            )
            pixels = np.asarray(stimuli)[: batch.count] * 255
            images = np.rint(pixels.clip(0, 255)).astype(np.uint8)
            is_exact = np.abs(pixels - images).max((1, 2, 3)) < 1e-3
            indices = np.asarray(batch.index)[: batch.count].tolist()
            for index, image, exact in zip(indices, images, is_exact, strict=True):
                name = decision_tables.stimulus_file(dataset, condition, index)
                (out / name).parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(image).save(out / name)
                rows.append(
                    (
                        len(rows),
                        dataset,
                        condition,
                        name,
                        _class_name(classes, labels[index]),
                        _class_name(classes, textures[index]),
                        "yes" if exact else "no",
                    )
                )
    with (out / "index.csv").open("w", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerows([INDEX, *rows])
    log(f"wrote {len(rows):,} stimuli and index.csv to {out}")
    return 0


def _class_name(classes: Sequence[str], number: int) -> str:
    """Return the name of the class with a number; "" for -1, an image without a class."""
    return classes[number] if number >= 0 else ""


if __name__ == "__main__":
    sys.exit(main())
