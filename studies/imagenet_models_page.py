"""Text and tables of docs/reproduction-biases-tables.md: biases of 48 ImageNet models.

`python -m studies.reproduction` writes it.
"""

from collections.abc import Iterable

import pandas as pd

from jbias.report import network_frame
from studies import imagenet_models, prose

NAME = "reproduction-biases-tables.md"


def text() -> str:
    """Return the page as Markdown."""
    sections = [
        _opening(),
        *_agreement(),
        _correlations(),
        _counts(),
        _figures(),
        _moved(),
    ]
    return "\n\n".join(prose.wrap(section.strip()) for section in sections) + "\n"


def _opening() -> str:
    return """
# 48 ImageNet models, recomputed

The tables and correlations of [Gavrikov and Keuper, CVPR 2024](https://arxiv.org/abs/2404.01509), recomputed from
[the authors' results](../examples/published/biases_benchmark.csv) ([claims and verdicts](reproduction-biases.md)). This command writes the
page and its CSV files; [another](biases.md#the-published-models) draws the figures with intervals:

```bash
python -m studies.reproduction --out=docs
```
"""


def _agreement() -> Iterable[str]:
    cells, pairs = imagenet_models.printed_cells(), imagenet_models.printed_pairs()
    off = cells[~cells["agrees"]]
    columns = ", ".join(dict.fromkeys(off["column"]))
    figures = pairs["y"].isin(imagenet_models.BIASES)
    rows = []
    for title, cells_of_title in (
        ("Table 1, accuracies", cells[cells["table"] == 1]),
        ("Table 2, biases", cells[cells["table"] == 2]),
        ("Figure 2, biases with averages", pairs[~figures]),
        ("Figure 12, biases among themselves", pairs[figures]),
    ):
        num_agree = int(cells_of_title["agrees"].sum())
        rows.append((title, str(len(cells_of_title)), str(num_agree)))
    yield f"""
## What agrees

{prose.markdown(("", "Printed", "Agree"), rows)}

A cell agrees if all its printed digits do ([every cell](results/biases_cells.csv)). The figures are on the authors'
[poster](https://github.com/paulgavrikov/biases_vs_generalization/blob/main/assets/poster.pdf).

The {len(off)} cells that differ are all {columns}, of models without a band. Their fit ends at {off["printed"].iloc[0]:.2f} in the paper
and at {off["ours"].iloc[0]:.2f} in the data. No correlation uses these values.
"""


def _correlations() -> str:
    family = imagenet_models.families()["all"]
    rows = [
        (
            network_frame.TITLES[bias],
            *(
                prose.bold_if(prose.format_two_decimals(rho), holm <= 0.05)
                for rho, holm in zip(
                    family.statistic.loc[bias], family.holm.loc[bias], strict=True
                )
            ),
        )
        for bias in imagenet_models.BIASES
    ]
    sizes = [len(frame) for frame in imagenet_models.model_groups().values()]
    return f"""
## Biases and averages

Spearman's ρ over all {sizes[0]} models. Bold is significant at 0.05 after Holm's adjustment over the 24 pairs.

{prose.markdown(("Bias", *imagenet_models.MEMBERS), rows)}

[All correlations](results/biases_pairs.csv), printed and ours, also for the {sizes[1]} adversarially trained models (AT), the other
{sizes[2]}, and among biases. The paper's text reverses the bandwidth's sign; the poster does not.
"""


def _counts() -> str:
    rows = [
        (name, *map(str, counts.values()))
        for name, counts in imagenet_models.count_significant().items()
    ]
    partial = imagenet_models.partials()
    significant = partial[partial["p"] <= 0.05]
    head = ("Models", "p ≤ 0.05", "Holm", "Benjamini and Hochberg")
    return f"""
## How many are significant

Of 24 pairs, per choice of models:

{prose.markdown(head, rows)}

15 of the 48 models are one adversarial training with different ε. With
[training categories controlled for](results/biases_within_categories.csv) (partial ρ, p from permutations within categories, not
adjusted), {len(significant)} of {len(partial)} have p ≤ 0.05 ([averages by category](results/biases_categories.csv)).
"""


def _figures() -> str:
    frame = imagenet_models.models()
    shape = frame["shape"]
    four = imagenet_models.spectral((0.1, 0.2, 0.3, 0.4)).loc["tv_resnet50", "low_freq"]
    best = imagenet_models.agreement()
    both = imagenet_models.spearman(frame[["shape", "low_freq"]]).iloc[0, 1]
    return f"""
## Figures of the text

- Shape bias ranges from {shape.min():.3f} ({shape.idxmin()}) to {shape.max():.3f} ({shape.idxmax()}); the baseline has {shape["tv_resnet50"]:.4f}.
- Shape bias and low-frequency bias: ρ = {both:.2f}.
- Mean ρ of a benchmark with the others, without stylized16 and pgd: the largest is {best.idxmax()} ({best.max():.2f}), the smallest
  {best.idxmin()} ({best.min():.2f}).
- Low-frequency bias ranges from {frame["low_freq"].min():.2f} ({frame["low_freq"].idxmin()}) to {frame["low_freq"].max():.2f} ({frame["low_freq"].idxmax()}), high-frequency bias
  up to {frame["high_freq"].max():.4f} ({frame["high_freq"].idxmax()}).
- The paper's text names four cut-offs, 10 to 40 %; its table averages five. The baseline's low-frequency bias is {frame.loc["tv_resnet50", "low_freq"]:.3f} over
  five, as printed (0.63), and {four:.3f} over four.
"""


def _moved() -> str:
    family = imagenet_models.families()["all"].statistic
    rows = []
    for name, member in (("ID", "imagenet_real"), ("Concepts", "stylized16")):
        for title, values in (
            (name, family[name]),
            (
                f"{name} without {member}",
                imagenet_models.correlations_without(name, member),
            ),
        ):
            cells = [
                prose.format_two_decimals(values[bias])
                for bias in imagenet_models.BIASES
            ]
            rows.append((title, *cells))
    off = imagenet_models.granularity()
    assert max(off.values()) < 0.001
    return f"""
## Anomalies and their effect

- **ReaL**, part of ID. All accuracies are multiples of 1/326: only the last batch was logged, not the 46,837 images of the set.
- **Stylised**, part of Concepts. All accuracies are multiples of 1/800: the 16-class set of model-vs-human, not the 1000 classes that the
  text describes. Without it the sign of shape bias changes.
- **PGD.** All accuracies are multiples of 1/50,048, the padded number: at most 0.084 points too high, with the same ranks.
- **Critical band.** Nominal frequencies are 2 to 2.6 times too high and the noise has 0.943 of its nominal strength, equally for all
  models.

{prose.markdown(("ρ over all models", *imagenet_models.BIASES), rows)}
"""


def tables() -> dict[str, pd.DataFrame]:
    """Return the full tables behind the page, by the names of their files."""
    return {
        "biases_cells": imagenet_models.printed_cells(),
        "biases_pairs": imagenet_models.printed_pairs(),
        "biases_within_categories": imagenet_models.partials(),
        "biases_categories": imagenet_models.by_training().reset_index(),
    }
