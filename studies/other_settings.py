r"""Write the tables and the figure of docs/results.md#at-other-settings.

    python -m studies.other_settings
    python -m studies.other_settings --runs runs/constant/* runs/cosine/*

Reads the studies of thirty epochs, 64 pixels and photographs in docs/results/all.csv and
docs/results/thirty_epochs.csv. Writes studies/results/other-settings.md and
OUT/results-epochs.svg. With --runs, docs/results/thirty_epochs.csv is written first, from these
runs: a row per epoch of a seed, with accuracies and shape bias in [0, 1] as columns.

One example command per study; all configs are docs/results/STUDY/configs/*.json:

    O=(--config.precision=float32 --config.run.strategy=vmapped --config.save_every='1000 epochs')
    THIRTY="jbias train --config=configs/sagnet.py:small,more,seeds=5,epochs=30"
    $THIRTY --config.optim.rate=0.02 --config.optim.schedule.name=constant "${O[@]}" \
        --workdir=runs/constant/sagnet
    $THIRTY --config.optim.rate=0.02 --config.optim.schedule.name=cosine "${O[@]}" \
        --workdir=runs/cosine/sagnet
    jbias train --config=configs/sagnet.py:small,more,seeds=5,size=64 "${O[@]}" \
        --config.optim.rate=0.02 --workdir=runs/64-pixels/sagnet
    DATA=data=tiny_imagenet,root=tiny26,stimuli=STIMULI
    jbias train --config=configs/sagnet.py:$DATA,seeds=5,epochs=12,size=32 "${O[@]}" \
        --config.optim.rate=0.1 --config.eval_every='3 epochs' --workdir=runs/tiny-imagenet/sagnet
    python -m studies.collect_results --runs='runs/constant/*' --study=thirty-epochs-constant
    python -m studies.collect_results --runs='runs/cosine/*' --study=thirty-epochs-cosine
    python -m studies.collect_results --runs='runs/64-pixels/*' --study=64-pixels
    python -m studies.collect_results --runs='runs/tiny-imagenet/*' --study=tiny-imagenet

Methods and learning rates:

- Thirty epochs and 64 pixels: `erm` at 0.05, `sagnet` and `stylized_erm` at 0.02; at 64 pixels
  also `mixstyle` at 0.02.
- Photographs, at 0.1: `erm`, `sagnet`, `padain`, `mixstyle`, `efdmix`, `rand_conv`,
  `gaussian_noise`, and `stylized_erm` with `transfer=small`.

STIMULI is the folder of Geirhos' stimuli (docs/data.md). `tiny26` is Tiny ImageNet in its own
layout, with images 0 to 349 of 26 classes, of which a tenth are used for validation. Its
`wnids.txt` lists the classes: n01855672, n02002724, n02056570, n02094433, n02099601, n02099712,
n02106662, n02113799, n02123045, n02123394, n02124075, n02125311, n02132136, n02504458,
n02814533, n02823428, n03085013, n03100240, n03662601, n03796401, n03937543, n03977966,
n03983396, n04099969, n04285008, n04560804.

Takes about five seconds on two cores. The trainings take a few minutes each on a GPU (an
estimate).
"""

import json
import pathlib

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "jbias"  # The same file for the same results.

import numpy as np
import pandas as pd
import scipy.stats
from matplotlib import pyplot as plt

from jbias import stats
from jbias.runs import results
from studies import all_results, command

ROOT = pathlib.Path(__file__).parents[1]
EPOCHS = ROOT / "docs/results/thirty_epochs.csv"
RUN = ["method", "schedule", "seed", "epoch"]
EARLY = 5  # Number of epochs in the other tables.
SETTLED = 10  # Swings are counted from this epoch on, when learning has slowed down.


def read_epochs(workdirs: list[str]) -> pd.DataFrame:
    """Return the scores of every epoch of some runs.

    Rows are indexed by RUN; columns are the test sets, "valid" and "shape_bias".
    """
    rows = results.read(workdirs)
    rows = rows[rows["metric"].isin(["accuracy", "shape_bias"])]
    rows = rows[rows["dataset"] != "train"]
    is_shape_bias = rows["metric"] == "shape_bias"
    optim_configs = {
        name: json.loads((pathlib.Path(name) / "config.json").read_text())["optim"]
        for name in rows["workdir"].unique()
    }
    rows = rows.assign(
        column=rows["dataset"].astype(object).where(~is_shape_bias, "shape_bias"),
        schedule=[optim_configs[name]["schedule"]["name"] for name in rows["workdir"]],
        method=[all_results.NAMES.get(x, x) for x in all_results.methods(rows)],
        epoch=rows["epoch"].round().astype(int),
    )
    return rows.pivot(index=RUN, columns="column", values="value").sort_index()


def oracle_gaps(accuracy: pd.DataFrame, selected: int) -> pd.Series:
    """Return by how much the best epoch of each test set exceeds the selected epoch.

    accuracy: epochs by data sets of one seed. selected: row of the selected epoch.
    """
    return (accuracy.max() - accuracy.iloc[selected]).drop("valid")


def swings(accuracy: pd.DataFrame) -> pd.Series:
    """Return the mean absolute change between successive epochs, by data set.

    accuracy: epochs by data sets of one seed.
    """
    return accuracy.diff().abs().iloc[SETTLED:].mean()


def format_epochs(scores: pd.DataFrame) -> str:
    """Return the table of thirty epochs as Markdown.

    Columns: shape bias at the epoch selected by validation, its change after epoch EARLY,
    gap to the best epoch of each test set, and swings between epochs.

    scores: as read_epochs returns them.
    """
    lines = []
    for (method, schedule), rows in scores.groupby(["method", "schedule"], sort=False):
        accuracies = [100 * seed.droplevel(RUN[:3]) for _, seed in rows.groupby("seed")]
        # The first of equally good epochs, as jbias selects them.
        selected = [accuracy["valid"].argmax() for accuracy in accuracies]
        biases = [accuracy.pop("shape_bias") for accuracy in accuracies]
        changes = [(bias.loc[EARLY:] - bias.loc[EARLY]).abs().max() for bias in biases]
        selected_biases = [
            bias.iloc[epoch] for bias, epoch in zip(biases, selected, strict=True)
        ]
        gap = pd.concat(map(oracle_gaps, accuracies, selected), axis=1).mean(axis=1)
        swing = pd.concat(map(swings, accuracies), axis=1).mean(axis=1)
        outside = swing.drop(["valid", "test"])
        lines.append(
            (
                f"{method}, {schedule}",
                all_results.spread(np.array(selected_biases)),
                f"{max(changes):.0f}",
                f"{gap.mean():.1f}; {gap.max():.1f} ({gap.idxmax()})",
                f"{swing['valid']:.1f}",
                f"{outside.mean():.1f}; {outside.max():.1f} ({outside.idxmax()})",
            )
        )
    head = (
        "Method, schedule",
        "shape bias, %",
        f"largest change of a seed after epoch {EARLY}",
        "gap to an oracle: mean; largest (set)",
        "swing in validation",
        "swing on test sets: mean; largest (set)",
    )
    return all_results.table(head, lines)


def format_pixels() -> str:
    """Return a table that compares images of 64 and 32 pixels, at one rate per method."""
    rows = all_results.rows_of("64-pixels", "shape_bias")
    rates = {
        all_results.NAMES.get(name, name): rate
        for name, rate in zip(rows["method"], rows["rate"], strict=True)
    }

    def read_both(
        metric: str, **where: object
    ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return scores per seed at 32 and at 64 pixels, by method."""
        large = all_results.by_method("64-pixels", metric, **where)
        small = {
            rate: all_results.by_method("every-rate", metric, rate=rate, **where)
            for rate in {*rates.values()}
        }
        return {name: (small[rate][name], large[name]) for name, rate in rates.items()}

    biases = read_both("shape_bias")
    accuracies = read_both("accuracy", dataset="test")
    pvalues = [
        scipy.stats.mannwhitneyu(small, large).pvalue
        for small, large in biases.values()
    ]
    lines = [
        (
            name,
            f"{rates[name]:g}",
            *map(all_results.spread, biases[name]),
            all_results.p_value(adjusted),
            *map(all_results.spread, accuracies[name]),
        )
        for name, adjusted in zip(rates, stats.adjust(pvalues, "holm"), strict=True)
    ]
    head = (
        "Shape bias, %",
        "rate",
        "32 pixels, ten seeds",
        "64 pixels, five seeds",
        "p",
        "accuracy on `test` at 32",
        "at 64",
    )
    return all_results.table(head, lines)


def format_photographs() -> str:
    """Return the table of photographs, with p of Dunnett's test against ERM."""
    biases = all_results.by_method("tiny-imagenet", "shape_bias")
    neither = all_results.by_method("tiny-imagenet", "fraction_neither")
    methods = [name for name in biases if name != "ERM"]
    test = scipy.stats.dunnett(
        *(biases[name] for name in methods), control=biases["ERM"], rng=0
    )
    # SciPy's numerical integral is exact to about three decimals.
    p_texts = {
        name: "< 0.001" if pvalue < 0.001 else all_results.p_value(pvalue)
        for name, pvalue in zip(methods, test.pvalue, strict=True)
    }
    datasets = ("val", "cue-conflict", "edge", "silhouette")
    accuracies = [
        all_results.by_method("tiny-imagenet", "accuracy", dataset=dataset)
        for dataset in datasets
    ]
    lines = [
        (
            name,
            all_results.spread(biases[name]),
            p_texts.get(name, "–"),
            *(f"{np.median(scores[name]):.0f}" for scores in (neither, *accuracies)),
        )
        for name in sorted(biases, key=lambda name: -np.median(biases[name]))
    ]
    head = ("Photographs, %", "shape bias", "p against ERM", "neither cue", *datasets)
    return all_results.table(head, lines)


def draw(scores: pd.DataFrame, path: pathlib.Path) -> None:
    """Write a figure of shape bias by epoch: a panel per method and schedule.

    Each line is a seed. scores: as read_epochs returns them.
    """
    figure, axes = plt.subplots(
        2, 2, figsize=(6.4, 4.4), layout="constrained", sharex=True, sharey=True
    )
    for row, method in zip(axes, ("ERM", "SagNet"), strict=True):
        for panel, schedule in zip(row, ("constant", "cosine"), strict=True):
            biases = scores.loc[method, schedule]["shape_bias"].unstack("seed")
            panel.plot(biases.index, 100 * biases.to_numpy(), lw=1.2)
            panel.set_title(f"{method}, {schedule} rate", fontsize=10)
            panel.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylim(0, 100)
    axes[0, 0].set_xlim(0, 30)
    figure.supylabel("shape bias, %: a line a seed", fontsize=10)
    figure.supxlabel("epoch", fontsize=10)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main(argv: list[str] | None = None) -> None:
    """Write the tables and the figure."""
    parser = command.parser("other_settings", __doc__)
    command.add_out(parser, "the figure")
    parser.add_argument(
        "--runs",
        nargs="+",
        metavar="WORKDIR",
        help="workdirs of the runs of thirty epochs to write docs/results/thirty_epochs.csv from "
        "(default: use the file as it is)",
    )
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    scores = pd.read_csv(EPOCHS, index_col=RUN)
    if options.runs:
        new_scores = read_epochs(options.runs).round(6)
        missing = {*scores.index.droplevel(["seed", "epoch"])} - {
            *new_scores.index.droplevel(["seed", "epoch"])
        }
        if missing:
            names = ", ".join(" ".join(pair) for pair in sorted(missing))
            parser.error(f"--runs: no runs of {names}; add them")
        new_scores.to_csv(EPOCHS)
        scores = new_scores
    text = f"{format_epochs(scores)}\n{format_pixels()}\n{format_photographs()}"
    path = ROOT / "studies/results/other-settings.md"
    path.write_text(text, encoding="utf-8")
    draw(scores, options.out / "results-epochs.svg")
    print(text)


if __name__ == "__main__":
    main()
