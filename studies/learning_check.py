r"""Check that DomainBed's methods learn: validation accuracies of small networks, one seed each.

    python -m studies.learning_check
    python -m studies.learning_check --methods=dann+cdann

Trains a CNN of width 8 by each method's preset on 2,048 images of the embedded set, in batches of 64
with equal shares of the textures, which are the environments. By SGD the rate is 0.01, also that of
MLDG's inner steps; by Adam it is the preset's. DANN and CDANN train their network in half of their
steps, so that they get twice as many epochs. ERM is trained by both optimisers, to compare with. This
is a check that nothing is broken, not a benchmark: one seed, no tuning, few steps.

Textures predict 99 % of the classes, which DANN, whose features should not depend on the texture,
cannot use. Rows with the ending -independent have textures that are independent of the class.

Writes learning-check.json and learning-check.md to --out, with the rows of earlier calls.

Takes about 15 minutes on two cores.
"""

import json
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import ml_collections

from benchmarks import result_files
from jbias import config as jc
from jbias import train
from jbias.configs import common
from jbias.runs import results, selection
from studies import command

NAME = "learning-check"
WIDTH, IMAGES, EPOCHS, SGD_RATE = 8, 2048, 4.0, 0.01
CLASSES = 16


class Method(NamedTuple):
    """A preset to train.

    epochs: factor on the number of epochs. by_adam: replaces SGD by Adam at 1e-3. correlation:
    share of the images whose texture is that of their class.
    """

    preset: str
    epochs: int = 1
    by_adam: bool = False
    correlation: float = 0.99


METHODS: Mapping[str, Method] = {
    "erm": Method("erm"),
    "mmd": Method("mmd"),
    "mldg": Method("mldg"),
    "rsc": Method("rsc"),
    "fishr": Method("fishr"),
    "eqrm": Method("eqrm"),
    "erm-adam": Method("erm", by_adam=True),
    "dann": Method("dann", epochs=2),
    "cdann": Method("cdann", epochs=2),
    "erm-adam-independent": Method("erm", by_adam=True, correlation=1 / CLASSES),
    "dann-independent": Method("dann", epochs=2, correlation=1 / CLASSES),
    "cdann-independent": Method("cdann", epochs=2, correlation=1 / CLASSES),
}
BASELINES = {  # By optimiser and correlation.
    (METHODS[name].by_adam, METHODS[name].correlation): name
    for name in ("erm", "erm-adam", "erm-adam-independent")
}


def make_config(method: Method) -> ml_collections.ConfigDict:
    """Return the config of a method's run."""
    text = (
        f"jbias:{method.preset}:seeds=1,model=cnn,balance=attribute,"
        f"correlation={method.correlation}"
    )
    config = jc.load(text, flag="config")
    if method.by_adam:
        common.use_adam(config, 1e-3)
    if config.optim.name == "sgd":
        config.optim.rate = SGD_RATE
        if "inner_rate" in config.algo:
            config.algo.inner_rate = SGD_RATE
    config.model.width, config.train.n = WIDTH, IMAGES
    config.epochs = method.epochs * EPOCHS
    config.eval_every = config.save_every = f"{config.epochs:g} epochs"
    config.precision, config.run.strategy = "float32", "looped"
    with config.unlocked():
        config.tests = {}
    return config


def train_method(method: Method) -> dict[str, Any]:
    """Train a method's network; return its row: accuracy, epochs, optimiser and options."""
    config, began = make_config(method), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        workdir = pathlib.Path(folder) / "run"
        if not train.run(config, workdir):
            raise SystemExit(f"studies.{NAME}: {method.preset} was stopped")
        table = selection.last_n(results.read([workdir]), 1)
    is_valid = (table["dataset"] == results.VALID) & (table["metric"] == "accuracy")
    (accuracy,) = table[is_valid & (table["condition"] == "")]["value"]
    return {
        "accuracy": float(accuracy),
        "epochs": config.epochs,
        "optimiser": config.optim.name,
        "rate": config.optim.rate,
        "algorithm": config.algo.to_dict(),
        "seconds": round(time.monotonic() - began),
        "date": result_files.facts()["date"],
    }


def page(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of all rows as Markdown; accuracies are compared with ERM's."""
    lines = []
    for name, row in rows.items():
        is_adam, correlation = row["optimiser"] == "adam", METHODS[name].correlation
        baseline = rows.get(BASELINES[is_adam, correlation])
        ratio = f"{row['accuracy'] / baseline['accuracy']:.2f}" if baseline else "–"
        options = ", ".join(
            f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
            for key, value in row["algorithm"].items()
            if key != "name" and isinstance(value, int | float)
        )
        lines.append(
            (
                name,
                f"{row['optimiser']} {row['rate']:g}",
                f"{row['epochs']:g}",
                f"{100 * row['accuracy']:.1f}",
                ratio,
                options or "–",
            )
        )
    head = ("method", "optimiser", "epochs", "accuracy, %", "of ERM", "options")
    intro = (
        f"Validation accuracy of a CNN of width {WIDTH} on {IMAGES:,} images of the embedded set, "
        f"one seed each; chance is {100 / CLASSES:g} %. In rows that end with -independent, the "
        "texture of training images is independent of the class; otherwise it tells the class in "
        "99 % of the images. Textures are the environments.\n\n"
    )
    return intro + result_files.markdown(head, lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Train the methods, and write the table of all rows."""
    parser = command.parser("learning_check", __doc__)
    parser.add_argument(
        "--methods",
        default="+".join(METHODS),
        metavar="NAMES",
        help="methods to train, joined by + (default: all)",
    )
    command.add_out(parser, "the table", command.RESULTS)
    options = parser.parse_args(argv)
    names = options.methods.split("+")
    unknown = [name for name in names if name not in METHODS]
    if unknown:
        parser.error(f"--methods: no {unknown[0]!r}; choose from {', '.join(METHODS)}")
    path = options.out / f"{NAME}.json"
    rows = json.loads(path.read_text())["results"] if path.exists() else {}
    for name in names:
        rows[name] = train_method(METHODS[name])
        rows = {key: rows[key] for key in METHODS if key in rows}
        result_files.write(NAME, rows, page(rows), ratios={}, out=options.out)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.exit(main())
