r"""Run the benchmark on photographs, in pieces that continue each other.

    python -m studies.photographs --root=DIR --minutes=15
    python -m studies.photographs --root=DIR --methods=erm+eoa

DIR has tiny-imagenet-200 (Tiny ImageNet in its own layout), pacs64 (PACS) and geirhos64 (Geirhos'
stimuli); docs/data.md says where they come from. Claims and tests were registered in
docs/results/photographs/claims.json before the first run. Six runs later they were amended
(amendments.json in that folder), and all runs were repeated; tests and DeepAugment's epochs were
amended again with 28 of 55 runs known.

Two studies, at 32 pixels, with a ResNet-18 of width 8:

- photographs: 26 classes of Tiny ImageNet train (8,190 images); tests are their validation images
  and Geirhos' stimuli.
- held-out-styles: three styles of PACS train, the fourth is the test, four times.

Methods train for five epochs. An epoch of DeepAugment has twice the steps, for its damaged images;
it trains for half as many, so that it has the steps of ERM, up to three. InfoDrop adds an epoch of
its own.

Each method is trained with each of two learning rates, with seeds 0, 1 and 2, and with seed 1000,
whose validation accuracy chooses the rate and which is used nowhere else. All scores are those of
the last evaluation.

Writes the runs to `--runs`. A run that is finished adds its rows to docs/results/all.csv, its
config to docs/results/STUDY/configs, and the validation accuracies of seed 1000 to
docs/results/photographs/rates.json; runs whose rows are there are not repeated. The same command
continues. With --minutes, a run that is not finished in time is stopped and continues later.

Two cores are used best by two copies of the repository, each bound to one core and with half of
the methods: one process trains 9 to 12 networks' steps per second on two cores, two processes 17.

Takes about ten hours on two cores of an AMD EPYC (15 to 35 minutes per run and core).
"""

import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np
import pandas as pd

from jbias.runs import results, selection
from studies import collect_results, command

ROOT = pathlib.Path(__file__).parents[1]
RATES_FILE = ROOT / "docs/results/photographs/rates.json"
PHOTOGRAPHS, HELD_OUT = "photographs", "held-out-styles"
STYLES = ("sketch", "cartoon", "art_painting", "photo")
RATES = (0.03, 0.1)
SEEDS, TUNING_SEED = (0, 1, 2), 1000
# Config and arguments by name of the method.
METHODS = {
    "erm": "erm",
    "eoa": "eoa",
    "swad": "swad",
    "sam": "sam",
    "sagnet": "sagnet",
    "padain": "padain",
    "stylized_erm": "stylized_erm:transfer=small",
    "infodrop": "infodrop",
    "debiased": "debiased:transfer=small",
    "deepaugment-cae": "deepaugment:nets=cae",
    "deepaugment-edsr": "deepaugment:nets=edsr",
}
# Only the last evaluation is used, but SWAD chooses steps by its evaluations.
EVAL_EVERY, EVAL_EVERY_OF = "5 epochs", {"swad": "5 %"}
# An epoch of DeepAugment is one of clean and damaged images: twice the steps.
EPOCHS, EPOCHS_OF = 5, {"deepaugment-cae": 2.5, "deepaugment-edsr": 2.5}
# The classes of Tiny ImageNet that belong to Geirhos' sixteen, and their images per class.
CLASSES = (
    "n01855672",
    "n02002724",
    "n02056570",
    "n02094433",
    "n02099601",
    "n02099712",
    "n02106662",
    "n02113799",
    "n02123045",
    "n02123394",
    "n02124075",
    "n02125311",
    "n02132136",
    "n02504458",
    "n02814533",
    "n02823428",
    "n03085013",
    "n03100240",
    "n03662601",
    "n03796401",
    "n03937543",
    "n03977966",
    "n03983396",
    "n04099969",
    "n04285008",
    "n04560804",
)
IMAGES_PER_CLASS = 350
FLAGS = (
    "--config.model.width=8",
    f"--config.seeds={(*SEEDS, TUNING_SEED)}",
    "--config.precision=float32",
    # On one core, 8.8 steps of a network per second; "threaded" takes 7.4 with four networks and
    # 4.6 with eight.
    "--config.run.strategy=looped",
)


@dataclasses.dataclass(frozen=True)
class Cell:
    """A method and the data that it is trained on.

    style: the style of PACS that is left out; "" for the photographs of Tiny ImageNet.
    """

    method: str
    style: str

    @property
    def study(self) -> str:
        """Name of the study in docs/results/all.csv."""
        return HELD_OUT if self.style else PHOTOGRAPHS

    @property
    def name(self) -> str:
        """Name of the folder of the run."""
        return f"{self.study}/{self.method}" + (self.style and f"-{self.style}")


def cells(methods: Sequence[str]) -> list[Cell]:
    """Return all cells in the order in which they are trained."""
    return [Cell(method, style) for method in methods for style in ("", *STYLES)]


def config_text(cell: Cell, *, root: pathlib.Path, runs: pathlib.Path) -> str:
    """Return the value of --config for a cell.

    root: folder of the data. runs: folder of the runs, with the images of DeepAugment.
    """
    config, _, arguments = METHODS[cell.method].partition(":")
    data = (
        f"data=pacs,root={root / 'pacs64'},held_out={cell.style}"
        if cell.style
        else f"data=tiny_imagenet,root={runs / 'tiny26'},stimuli={root / 'geirhos64'}"
    )
    if config == "deepaugment":
        arguments += f",prepared={runs / 'prepared' / cell.study}"
    varied = "+".join(f"{rate:g}" for rate in RATES)
    epochs = EPOCHS_OF.get(cell.method, EPOCHS)
    length = f"size=32,epochs={epochs:g}"
    texts = (arguments, data, length, f"vary=optim.rate={varied}")
    return f"configs/{config}.py:{','.join(filter(None, texts))}"


def train_flags(cell: Cell, *, root: pathlib.Path, runs: pathlib.Path) -> list[str]:
    """Return the flags of `jbias train` for a cell; root, runs: see `config_text`."""
    eval_every = EVAL_EVERY_OF.get(cell.method, EVAL_EVERY)
    return [
        *FLAGS,
        f"--config.eval_every={eval_every}",
        f"--config={config_text(cell, root=root, runs=runs)}",
    ]


def write_classes(source: pathlib.Path, folder: pathlib.Path) -> None:
    """Write Tiny ImageNet with the first images of 26 classes, as links, in its own layout."""
    if (folder / "wnids.txt").exists():
        return
    (folder / "val").mkdir(parents=True, exist_ok=True)
    for name in CLASSES:
        images = folder / "train" / name / "images"
        images.mkdir(parents=True, exist_ok=True)
        for number in range(IMAGES_PER_CLASS):
            file = f"{name}_{number}.JPEG"
            link = images / file
            if not link.exists():
                link.symlink_to(source.absolute() / "train" / name / "images" / file)
    annotations = (source / "val/val_annotations.txt").read_text().splitlines()
    chosen = [line for line in annotations if line.split("\t")[1] in CLASSES]
    (folder / "val/val_annotations.txt").write_text("\n".join(chosen) + "\n")
    (folder / "val/images").mkdir(exist_ok=True)
    for line in chosen:
        file = line.split("\t")[0]
        link = folder / "val/images" / file
        if not link.exists():
            link.symlink_to(source.absolute() / "val/images" / file)
    words = (source / "words.txt").read_text()
    (folder / "words.txt").write_text(words)
    (folder / "wnids.txt").write_text("\n".join(CLASSES) + "\n")  # Last: all is there.


def prepare(cell: Cell, *, root: pathlib.Path, runs: pathlib.Path) -> list[list[str]]:
    """Return the commands that make the damaged images that a cell trains on; [] for none."""
    net = METHODS[cell.method].partition("nets=")[2]
    if not net:
        return []
    if cell.style:
        splits = [style for style in STYLES if style != cell.style]
        data = ["--data=pacs", f"--root={root / 'pacs64'}"]
    else:
        splits = ["train"]
        data = ["--data=tiny_imagenet", f"--root={runs / 'tiny26'}"]
    out = runs / "prepared" / cell.study / net
    run = [sys.executable, "-m", "jbias", "prepare", "deepaugment", f"--net={net}"]
    return [
        [*run, *data, f"--split={split}[:90%]", f"--out={out}", "--size=32"]
        for split in splits
    ]


def done_cells() -> set[tuple[str, str]]:
    """Return (study, name of the run) of each run whose rows are in the tables."""
    if not RATES_FILE.exists():
        return set()
    return {
        (study, name)
        for study, by_name in json.loads(RATES_FILE.read_text()).items()
        for name in by_name
    }


def add_results(cell: Cell, run: pathlib.Path) -> None:
    """Write the rows of a finished run to all.csv, and its tuning accuracies to rates.json.

    Rows of the cell that are there already are replaced.
    """
    branches = [str(path) for path in sorted(run.glob("vary/*"))]
    rows = collect_results.run_rows(branches, cell.study, rule=collect_results.LAST)
    rows["method"] = cell.method
    rows = rows[rows["seed"].isin(SEEDS)]
    path = command.DOCS / "results/all.csv"
    table = collect_results.read(path)
    is_replaced = (table["study"] == cell.study) & (table["method"] == cell.method)
    if cell.style:
        is_replaced &= table["set"] == cell.style
    table = collect_results.check(
        pd.concat([table[~is_replaced], rows], ignore_index=True), str(path)
    )
    collect_results.write(table, path.parent)
    write_config(cell, run, path.parent)
    accuracies = json.loads(RATES_FILE.read_text()) if RATES_FILE.exists() else {}
    by_name = accuracies.setdefault(cell.study, {})
    by_name[cell.name.rpartition("/")[2]] = tuning_accuracies(branches)
    RATES_FILE.parent.mkdir(parents=True, exist_ok=True)
    RATES_FILE.write_text(json.dumps(accuracies, indent=1, sort_keys=True) + "\n")


def write_config(cell: Cell, run: pathlib.Path, folder: pathlib.Path) -> None:
    """Write the config of a run, without paths of the machine, to folder/<study>/configs."""

    def shorten(entry: object) -> object:
        """Return an entry with the last folder of each path in place of an absolute path."""
        if isinstance(entry, dict):
            return {key: shorten(value) for key, value in entry.items()}
        if isinstance(entry, list):
            return [shorten(value) for value in entry]
        is_path = isinstance(entry, str) and entry.startswith("/")
        return pathlib.PurePath(entry).name if is_path else entry

    config = shorten(json.loads((run / "config.json").read_text()))
    path = folder / cell.study / "configs" / f"{cell.name.rpartition('/')[2]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")


def tuning_accuracies(branches: Sequence[str]) -> dict[str, float | None]:
    """Return the tuning seed's last validation accuracy by learning rate, as text.

    The value is None for a rate at which the seed diverged.
    """
    accuracies = {}
    for branch in branches:
        config = json.loads((pathlib.Path(branch) / "config.json").read_text())
        rows = results.read([branch])
        rows = selection.last_n(rows[rows["seed"] == TUNING_SEED], n=1)
        is_valid = (rows["dataset"] == results.VALID) & (rows["metric"] == "accuracy")
        values = rows[is_valid & (rows["condition"] == "")]["value"]
        is_finite = len(values) == 1 and np.isfinite(values.iloc[0])
        rate = f"{config['optim']['rate']:g}"
        accuracies[rate] = float(values.iloc[0]) if is_finite else None
    return accuracies


def run_until(arguments: Sequence[str], deadline: float) -> int:
    """Run a command, stop it with SIGTERM at the deadline; return its exit code."""
    process = subprocess.Popen(arguments, cwd=ROOT)
    try:
        return process.wait(timeout=max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        return process.wait()


def main(argv: list[str] | None = None) -> int:
    """Train the cells that have no rows yet; return 0, or the exit code of a run that failed."""
    parser = command.parser("photographs", __doc__)
    parser.add_argument(
        "--root",
        type=pathlib.Path,
        required=True,
        metavar="DIR",
        help="folder with tiny-imagenet-200, pacs64 and geirhos64",
    )
    parser.add_argument(
        "--runs",
        type=pathlib.Path,
        default=pathlib.Path("runs/photographs"),
        metavar="DIR",
        help="folder for the runs (default: %(default)s)",
    )
    parser.add_argument(
        "--methods",
        default="+".join(METHODS),
        metavar="NAMES",
        help="methods, joined by + (default: all)",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=float("inf"),
        metavar="N",
        help="stop after N minutes (default: when all is done)",
    )
    options = parser.parse_args(argv)
    unknown = [name for name in options.methods.split("+") if name not in METHODS]
    if unknown:
        parser.error(f"--methods: no {unknown[0]!r}; choose from {', '.join(METHODS)}")
    deadline = time.monotonic() + 60 * options.minutes
    root, runs = options.root.absolute(), options.runs.absolute()
    write_classes(root / "tiny-imagenet-200", runs / "tiny26")
    for cell in cells(options.methods.split("+")):
        if (cell.study, cell.name.rpartition("/")[2]) in done_cells():
            continue
        run = runs / cell.name
        flags = train_flags(cell, root=root, runs=runs)
        train = [sys.executable, "-m", "jbias.main", f"--workdir={run}", *flags]
        for arguments in (*prepare(cell, root=root, runs=runs), train):
            code = run_until(arguments, deadline)
            if time.monotonic() >= deadline:
                print(
                    f"photographs: stopped in {cell.name}; the same command continues"
                )
                return 0
            if code:
                print(f"photographs: {cell.name} failed with exit code {code}")
                return code
        add_results(cell, run)
        print(f"photographs: {cell.name} is done", flush=True)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    sys.exit(main())
