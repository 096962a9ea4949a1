"""Draws the pictures of docs/concepts.md; minutes on two cores.

python docs/site/figures.py
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile

import matplotlib.figure
import numpy as np

from jbias import data
from jbias.prepare import sheet
from jbias.report import plots
from jbias.runs import results

DOCS = pathlib.Path(__file__).parents[1]
SHOWN = {"valid": "validation", "silhouette": "silhouettes", "stylized": "new textures"}
EPOCHS = 8


def command(*arguments: str) -> None:
    """Runs a command of jbias at the top of the checkout."""
    subprocess.run([sys.executable, "-m", *arguments], check=True, cwd=DOCS.parent)


def conflict() -> None:
    """Images whose shape says one class and whose texture another, six of them."""
    source = data.load("shapes", "cue_conflict", size=128)
    classes = list(source.classes)
    shapes = np.asarray(source.columns["label"])
    textures = np.asarray(source.columns["texture"])
    chosen = [
        int(np.flatnonzero((shapes == one) & (textures == (one + step) % 16))[0])
        for step, one in enumerate(range(0, 16, 3), start=3)
    ]
    titles = [f"{classes[shapes[i]]} of {classes[textures[i]]}" for i in chosen]
    images = {"cue conflict": [source[i]["image"] for i in chosen]}
    sheet.write(DOCS / "concepts-conflict.png", images, titles=titles, foot="")


def ranks(folder: pathlib.Path) -> None:
    """Mean ranks and the critical difference of the runs that BiasBed lists."""
    scores = "--scores=examples/biasbed_runs.csv"
    command("jbias.report", scores, f"--out={folder}")
    drawn = folder / "figures" / "critical_difference.svg"
    shutil.copy(drawn, DOCS / "concepts-ranks.svg")


def swings(folder: pathlib.Path) -> None:
    """Accuracies of one seed at every quarter of an epoch."""
    changes = (f"--config.epochs={EPOCHS}.0", "--config.eval_every=32 steps")
    config = "--config=configs/erm.py:small,seeds=1"
    command("jbias.main", config, *changes, f"--workdir={folder}")
    rows = results.read(folder)
    rows = rows[(rows["metric"] == "accuracy") & (rows["condition"] == "")]
    drawing = matplotlib.figure.Figure(figsize=(7, 3), layout="constrained")
    axes = drawing.subplots()
    for i, (name, label) in enumerate(SHOWN.items()):
        one = rows[rows["dataset"] == name].sort_values("epoch")
        style = plots.style_of(i)
        axes.plot(one["epoch"], 100 * one["value"].astype(float), label=label, **style)
    axes.set(xlabel="epoch", ylabel="accuracy, %", ylim=(0, 100))
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    (DOCS / "concepts-swings.svg").write_text(plots.to_svg(drawing))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        conflict()
        ranks(pathlib.Path(temporary, "report"))
        swings(pathlib.Path(temporary, "run"))
