"""Writes docs/published-shape-biases.md, its figure, and the table that reports read.

    python -m benchmarks.published_shape_biases [--out=docs] [--decisions=DIR]

The page and the figure are made of jbias/report/published_shape_biases.csv. With --decisions
that is written first: of the decisions in DIR, as their authors publish them, and of
examples/published/biases_printed.csv. DIR holds cue-conflict_subject-*.csv, of raw-data of
https://github.com/bethgelab/model-vs-human at 79ed7cd, and cue-conflict_NETWORK.csv, which are
style-transfer-512-nomask-experiment_NETWORK_session-1.csv, of raw-data of
https://github.com/rgeirhos/texture-vs-shape at ccd0c01.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from benchmarks import prose
from jbias.data import labels
from jbias.data.sets import geirhos
from jbias.evals import cue_conflict, human, trials
from jbias.report import network_frame, plots, published, tables

NAME, FIGURE = "published-shape-biases.md", "published-shape-biases.svg"
PRINTED = pathlib.Path(__file__).parents[1] / "examples/published/biases_printed.csv"
NETWORKS = {  # Names of files: network, and what it was trained on.
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
    """Gives the rows of the table, from published decisions and printed numbers."""
    people = trials.people(str(folder), "cue-conflict")
    each = human.shape_biases(people).values()
    told = dict(
        network=published.PEOPLE, training="", shape=sum(one.n_shape for one in each)
    )
    told["either"] = told["shape"] + sum(one.n_texture for one in each)
    for name, (network, training) in NETWORKS.items():
        path = folder / f"cue-conflict_{name}.csv"
        one = trials.read(str(path), "cue-conflict").select(people[0].image)
        known = tuple(labels.geirhos16())
        texture = geirhos.texture_labels("published", one.image, known)
        bias = cue_conflict.shape_bias(one.response, one.category, texture)
        counts = dict(shape=bias.n_shape, either=bias.n_shape + bias.n_texture)
        found = {x.metric: x.value for x in human.compare(one, people, "cue-conflict")}
        alike = dict(error_consistency=round(found["error_consistency"], 4))
        yield dict(network=network, training=training) | counts | alike | _GEIRHOS
    alike = dict(error_consistency=round(found["human_error_consistency"], 4))
    yield told | alike | _PEOPLE
    for one in pd.read_csv(PRINTED).to_dict("records"):
        training = network_frame.TITLES.get(one["training"], one["training"])
        told = dict(network=f"ResNet-50, {one['name']}", training=training)
        yield told | dict(printed=one["shape"]) | _GAVRIKOV


def write_table(folder: pathlib.Path) -> str:
    """Gives the text of the file that reports read."""
    head = ["network", "training", "printed", "shape", "either", "error_consistency"]
    frame = pd.DataFrame([*rows(folder)], columns=[*head, *_GEIRHOS])
    return tables.to_csv(frame.astype({"shape": "Int64", "either": "Int64"}))


def _printed(frame: pd.DataFrame) -> Iterator[tuple[str, Iterable]]:
    """Gives each way of training, and its networks without the words that all begin with."""
    frame = frame.assign(network=frame["network"].str.removeprefix("ResNet-50, "))
    for training, of_it in frame.groupby("training", sort=False):
        yield training, of_it.itertuples()


def text() -> str:
    """Gives the whole page."""
    frame = published.read()
    frame["training"] = frame["training"].fillna("")
    counted = frame["either"] > 0
    lines = []
    for one in frame[counted].itertuples():
        ends = f"{one.shape_bias_lower:.3f} to {one.shape_bias_upper:.3f}"
        alike = one.error_consistency
        cells = f"{one.shape_bias:.4f}", "–" if "nan" in ends else ends
        cells += f"{one.either:,.0f}", "–" if pd.isna(alike) else f"{alike:.3f}"
        lines.append((one.network, one.training, *cells))
    head = ("Network", "Trained", "Shape bias", "95 %", "Of", "Like people")
    parts = [_OPENING, prose.markdown(head, lines), _PRINTED]
    lines = [
        (training, "; ".join(f"{one.network} {one.shape_bias:.2f}" for one in of_it))
        for training, of_it in _printed(frame[~counted])
    ]
    head = ("Trained", "Shape bias of each ResNet-50, from texture to shape")
    parts += [prose.markdown(head, lines), _CLOSING]
    return "\n\n".join(prose.wrapped(part.strip()) for part in parts) + "\n"


_OPENING = f"""
# Published shape biases

Where does your network stand? These are people, and networks whose shape bias on the cue conflicts of
[Geirhos et al., ICLR 2019](https://arxiv.org/abs/1811.12231) others published. [jbias report measured](measures.md#looking-at-it)
sets yours among them, if it saw that set; `--no-published` leaves them out. No test, rank or mean uses them.

![Shape bias of people and of published networks, with intervals where decisions are known]({FIGURE})

- **Shape bias**: decisions for the shape among those for either cue, where the cues conflict (1,200 of the 1,280 images). 0 is
  texture, 1 is shape.
- **Counted**: by jbias, from decisions published image by image, with the number of decisions and, but for people, ten of whom saw the same images, Wilson's 95 % interval: networks'
  from [texture-vs-shape](https://github.com/rgeirhos/texture-vs-shape) at ccd0c01 (Geirhos et al., ICLR 2019), people's from
  [model-vs-human](https://github.com/bethgelab/model-vs-human) at 79ed7cd (NeurIPS 2021). No licence is
  stated for them; the images are CC BY 4.0. **Like people**: mean error consistency with ten people; for people, over their 45 pairs.
"""
_PRINTED = """
**Printed**: as Table 2 of [Gavrikov and Keuper, CVPR 2024](https://arxiv.org/abs/2404.01509) rounds it, without the number of
decisions. An interval of some 730 decisions would be ±0.03 wide.
"""
_CLOSING = """
## What to keep in mind

- All networks saw the images at 224 pixels, uncropped, and the mean probability over a category's ImageNet classes decided. Another
  rule or a crop moves the number: measure yours so, with [the suite of biases](own-checkpoint.md), or expect a shift.
- ResNet-50 stands here twice, 0.2207 counted and 0.21 printed, and again trained on Stylized-ImageNet, 0.8061 and 0.81: two
  studies, two programs.
- People left 1 to 37 images each without an answer; that counts for neither cue.
- A shape bias says how conflicts are decided, not how well shapes are recognised: a network right on few images may have a large
  one.

The numbers lie in [a file of the package](../jbias/report/published_shape_biases.csv). This page is written by

```bash
python -m benchmarks.published_shape_biases --out=docs
```
"""


def figure() -> str:
    """Gives the figure as SVG."""
    frame = published.read()
    trained = frame["training"].fillna("").where(frame["either"] > 0, "")
    names = [f"{a}{f' ({b})' if b else ''}" for a, b in zip(frame["network"], trained)]
    ends = ("shape_bias", "shape_bias_lower", "shape_bias_upper")
    drawn = plots.intervals(
        names, *(frame[x].to_numpy() for x in ends), label="shape bias"
    )
    return plots.to_svg(drawn)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.published_shape_biases",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", default="docs", metavar="DIR", help="(default: docs)")
    parser.add_argument("--decisions", metavar="DIR", help="writes the table first")
    args = parser.parse_args(argv)
    if args.decisions:
        published.FILE.write_text(write_table(pathlib.Path(args.decisions)), "utf-8")
        print(f"written: {published.FILE}")
    for name, made in ((NAME, text), (FIGURE, figure)):
        path = pathlib.Path(args.out) / name
        path.write_text(made(), encoding="utf-8")
        print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
