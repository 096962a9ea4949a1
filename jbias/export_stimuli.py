r"""Writes the stimuli of a suite as PNG, for networks that run elsewhere.

    jbias export-stimuli --suite=configs/suites/biases.py --out=stimuli
    jbias evaluate --decisions=mine.csv --suite=configs/suites/biases.py

index.csv has a row a stimulus: id, set, condition (of the measure), imagename (the file in
--out), category and texture (the right class, and that of the texture where cues conflict),
and exact: whether the file has just the pixels that a network gets in measuring, or these
rounded to bytes. Add a column object_response with the class that your network decides for,
and give the file to `jbias evaluate --decisions` with the same suite.

What asks a network, such as attacks, cannot be written. Exit codes: 0 done; 2 refused;
130 or 143 stopped. Standard error says why.
"""

import argparse
import csv
import sys
from collections.abc import Sequence

from jbias import config as jc
from jbias.runtime import cli, console, outputs

INDEX = ("id", "set", "condition", "imagename", "category", "texture", "exact")


def main(argv: Sequence[str] | None = None) -> int:
    """Does what the arguments say; returns the exit code."""
    args, changes = cli.parse(parser(), argv, "suite", jc.check)
    return cli.run(lambda: run(args, changes), stopped="writes all anew")


def parser() -> cli.Parser:
    """The command line."""
    made = cli.Parser("export_stimuli", __doc__)
    what = "what is measured, as jbias evaluate takes it"
    made.add_argument("--suite", required=True, metavar="FILE[:ARGS]", help=what)
    cli.add_names(made, "--only", None, "measures of the suite; all if not given")
    what = "a new or empty folder, for the stimuli and their index"
    made.add_argument("--out", **cli.OUT, help=what)
    return made


def run(args: argparse.Namespace, changes: Sequence[str]) -> int:
    """Writes all stimuli, then their index; returns the exit code."""
    import numpy as np
    from etils import epath
    from PIL import Image

    from jbias.evals import decision_tables, inference, prepared_sets, suites

    say, out = console.logger(None), epath.Path(args.out)
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"--out: {out} must be empty; name another folder")
    outputs.check_writable_folder(args.out)
    config = jc.load(args.suite, changes, flag="suite")
    asked = suites.open_suite(config, say, only=args.only or ())
    rows = []
    for (dataset, condition), task in decision_tables.stimuli(asked).items():
        source = asked.sources[dataset]
        classes = tuple(source.classes)
        label = np.asarray(source.columns["label"])
        texture = np.asarray(source.columns.get("texture", np.full(len(label), -1)))
        # All that a measure under this condition may show, of fewer images others too.
        few = prepared_sets.select(asked, dataset, np.flatnonzero(label >= 0))
        few = few._replace(index=few.index.astype(np.int32))
        made = asked.make_probe(*task, classes)
        for batch in prepared_sets.device_batches(asked, few):
            of = prepared_sets.NO_NETWORK, made, batch, condition
            pixels = np.asarray(inference.make_stimuli(*of))[: batch.count] * 255
            written = np.rint(pixels.clip(0, 255)).astype(np.uint8)
            exact = np.abs(pixels - written).max((1, 2, 3)) < 1e-3
            index = np.asarray(batch.index)[: batch.count].tolist()
            for number, image, same in zip(index, written, exact, strict=True):
                name = decision_tables.stimulus_file(dataset, condition, number)
                (out / name).parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(image).save(out / name)
                both = label[number], texture[number]
                known = [classes[x] if x >= 0 else "" for x in both]
                told = "yes" if same else "no"
                rows.append((len(rows), dataset, condition, name, *known, told))
    with (out / "index.csv").open("w", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerows([INDEX, *rows])
    say(f"wrote {len(rows):,} stimuli and index.csv to {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
