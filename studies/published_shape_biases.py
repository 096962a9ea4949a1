"""Write docs/published-shape-biases.md and its figure from a table of the package.

    python -m studies.published_shape_biases
    python -m studies.published_shape_biases --decisions=DECISIONS

Writes OUT/published-shape-biases.md and OUT/published-shape-biases.svg. Both are made from
jbias/report/pages/networks/published_shape_biases.csv, which reports use, too. With --decisions,
this table is written first, in the package whatever --out is, from the published decisions in
the folder DECISIONS and from examples/published/biases_printed.csv.

DECISIONS must have two kinds of files:

- cue-conflict_subject-*.csv: from raw-data of https://github.com/bethgelab/model-vs-human at
  79ed7cd.
- cue-conflict_NETWORK.csv: from raw-data of https://github.com/rgeirhos/texture-vs-shape at
  ccd0c01. Rename style-transfer-512-nomask-experiment_NETWORK_session-1.csv to
  cue-conflict_NETWORK.csv. NETWORK is resnet50, densenet121 and resnet50_train_60_epochs.

Takes about five seconds on two cores.
"""

import pathlib
import sys
from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from jbias.data import class_maps
from jbias.data.sets import geirhos
from jbias.measures import cue_conflict, human, human_answers
from jbias.report import network_frame, plots, tables
from jbias.report.pages.networks import published_shape_biases
from studies import command, prose

NAME, FIGURE = "published-shape-biases.md", "published-shape-biases.svg"
PRINTED = pathlib.Path(__file__).parents[1] / "examples/published/biases_printed.csv"
NETWORKS = {  # Name in the file: (network, training set).
    "resnet50": ("ResNet-50", "ImageNet"),
    "densenet121": ("DenseNet-121", "ImageNet"),
    "resnet50_train_60_epochs": ("ResNet-50", "Stylized-ImageNet"),
}
_OF_DECISIONS = {"licence": "none stated (images: CC BY 4.0)"}
_GEIRHOS = _OF_DECISIONS | {
    "source": "Geirhos et al., ICLR 2019, counted",
    "url": "https://github.com/rgeirhos/texture-vs-shape",
}
_PEOPLE = _OF_DECISIONS | {
    "source": "Geirhos et al., NeurIPS 2021, counted",
    "url": "https://github.com/bethgelab/model-vs-human",
}
_GAVRIKOV = {
    "source": "Gavrikov and Keuper, CVPR 2024, Table 2, printed",
    "licence": "single numbers of a paper",
    "url": "https://arxiv.org/abs/2404.01509",
}


def rows(folder: pathlib.Path) -> Iterator[dict]:
    """Yield the rows of the table, from published decisions and printed numbers.

    folder: the folder of --decisions.
    """
    people = human_answers.people(str(folder), "cue-conflict")
    for name, (network, training) in NETWORKS.items():
        path = folder / f"cue-conflict_{name}.csv"
        decisions = human_answers.read(str(path), "cue-conflict").select(
            people[0].image
        )
        classes = tuple(class_maps.geirhos16())
        texture = geirhos.texture_labels("published", decisions.image, classes)
        bias = cue_conflict.shape_bias(decisions.response, decisions.category, texture)
        metrics = {
            x.metric: x.value for x in human.compare(decisions, people, "cue-conflict")
        }
        yield {
            "network": network,
            "training": training,
            "shape": bias.n_shape,
            "either": bias.n_shape + bias.n_texture,
            "error_consistency": round(metrics["error_consistency"], 4),
            **_GEIRHOS,
        }
    people_biases = human.shape_biases(people).values()
    n_shape = sum(bias.n_shape for bias in people_biases)
    n_texture = sum(bias.n_texture for bias in people_biases)
    yield {
        "network": published_shape_biases.PEOPLE,
        "training": "",
        "shape": n_shape,
        "either": n_shape + n_texture,
        # The same value in every comparison of a network with people.
        "error_consistency": round(metrics["human_error_consistency"], 4),
        **_PEOPLE,
    }
    for row in pd.read_csv(PRINTED).to_dict("records"):
        yield {
            "network": f"ResNet-50, {row['name']}",
            "training": network_frame.TITLES.get(row["training"], row["training"]),
            "printed": row["shape"],
            **_GAVRIKOV,
        }


def format_table(folder: pathlib.Path) -> str:
    """Return the table that reports read, as CSV; folder: that of --decisions."""
    head = ["network", "training", "printed", "shape", "either", "error_consistency"]
    frame = pd.DataFrame([*rows(folder)], columns=[*head, *_GEIRHOS])
    return tables.to_csv(frame.astype({"shape": "Int64", "either": "Int64"}))


def _printed(frame: pd.DataFrame) -> Iterator[tuple[str, Iterable]]:
    """Yield each training category and its networks, named without "ResNet-50, "."""
    frame = frame.assign(network=frame["network"].str.removeprefix("ResNet-50, "))
    for training, networks in frame.groupby("training", sort=False):
        yield training, networks.itertuples()


def text() -> str:
    """Return the page as Markdown."""
    frame = published_shape_biases.read()
    frame["training"] = frame["training"].fillna("")
    is_counted = frame["either"] > 0
    lines = []
    for network in frame[is_counted].itertuples():
        interval = f"{network.shape_bias_lower:.3f} to {network.shape_bias_upper:.3f}"
        consistency = network.error_consistency
        line = (
            network.network,
            network.training,
            f"{network.shape_bias:.4f}",
            "–" if "nan" in interval else interval,
            f"{network.either:,.0f}",
            "–" if pd.isna(consistency) else f"{consistency:.3f}",
        )
        lines.append(line)
    head = (
        "Network",
        "Trained on",
        "Shape bias",
        "95 % interval",
        "Decisions",
        "Like people",
    )
    sections = [_OPENING, prose.markdown(head, lines), _PRINTED]
    lines = [
        (training, "; ".join(f"{x.network} {x.shape_bias:.2f}" for x in networks))
        for training, networks in _printed(frame[~is_counted])
    ]
    head = ("Training", "Shape bias of each ResNet-50, from texture to shape")
    sections += [prose.markdown(head, lines), _CLOSING]
    return "\n\n".join(prose.wrap(section.strip()) for section in sections) + "\n"


_OPENING = f"""
# Published shape biases

This page lists published shape biases of people and networks on the cue conflicts of
[Geirhos et al., ICLR 2019](https://arxiv.org/abs/1811.12231). [jbias report measured](measures.md#looking-at-it) shows them
with yours if your network was measured on that set; `--no-published` leaves them out. No test, rank or mean uses them.

![Shape bias of people and of published networks, with intervals where decisions are known]({FIGURE})

- **Shape bias**: shape decisions divided by decisions for either cue, on the 1,200 of 1,280 images whose cues conflict. 0 is texture, 1 is
  shape.
- **Counted**: jbias counted decisions that were published per image. The intervals are Wilson's 95 % intervals; people have none, because ten people
  saw the same images. Networks' decisions are from [texture-vs-shape](https://github.com/rgeirhos/texture-vs-shape) at ccd0c01 (Geirhos et al., ICLR
  2019), people's from [model-vs-human](https://github.com/bethgelab/model-vs-human) at 79ed7cd (NeurIPS 2021). No licence is stated; the images are
  CC BY 4.0.
- **Like people**: mean error consistency with ten people; for people, over their 45 pairs.
"""
_PRINTED = """
**Printed**: from Table 2 of [Gavrikov and Keuper, CVPR 2024](https://arxiv.org/abs/2404.01509), rounded and without the number of
decisions. With about 730 decisions an interval would be ±0.03.
"""
_CLOSING = """
## What to keep in mind

- All networks saw the images at 224 pixels, uncropped. The mean probability over a category's ImageNet classes decides. Another
  rule or a crop changes the number, so measure your network in this way, with [the suite of biases](own-checkpoint.md).
- ResNet-50 is listed twice (0.2207 counted, 0.21 printed), also trained on Stylized-ImageNet (0.8061, 0.81): two studies, two
  programs.
- Each person left 1 to 37 images without an answer; they are no decisions.
- Shape bias does not say how well shapes are recognised: a network that is right on few images may have a high shape bias.

[This file](../jbias/report/pages/networks/published_shape_biases.csv) has the numbers. This command writes the page:

```bash
python -m studies.published_shape_biases --out=docs
```
"""


def figure() -> str:
    """Return the figure as SVG."""
    frame = published_shape_biases.read()
    trainings = frame["training"].fillna("").where(frame["either"] > 0, "")
    names = [
        f"{network} ({training})" if training else network
        for network, training in zip(frame["network"], trainings)
    ]
    plot = plots.intervals(
        names,
        frame["shape_bias"].to_numpy(),
        frame["shape_bias_lower"].to_numpy(),
        frame["shape_bias_upper"].to_numpy(),
        label="shape bias",
    )
    return plots.to_svg(plot)


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page and the figure, and with --decisions the table."""
    parser = command.parser("published_shape_biases", __doc__)
    command.add_out(parser, "the page and the figure", pathlib.Path("docs"))
    parser.add_argument(
        "--decisions",
        type=pathlib.Path,
        metavar="DECISIONS",
        help="folder of published decisions to write the package's table from "
        "(default: use the table as it is)",
    )
    args = parser.parse_args(argv)
    if args.decisions:
        table = format_table(args.decisions)
        published_shape_biases.FILE.write_text(table, "utf-8")
        print(f"written: {published_shape_biases.FILE}")
    for name, make_content in ((NAME, text), (FIGURE, figure)):
        path = args.out / name
        path.write_text(make_content(), encoding="utf-8")
        print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
