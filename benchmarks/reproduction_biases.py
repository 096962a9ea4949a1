"""Text and tables of docs/reproduction-biases-tables.md: biases of 48 ImageNet models.

`python -m benchmarks.reproduction` writes it.
"""

from collections.abc import Iterable

import pandas as pd

from benchmarks import biases, prose
from jbias.report import network_frame

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

This page recomputes the tables and correlations of [Gavrikov and Keuper, CVPR 2024](https://arxiv.org/abs/2404.01509) from the authors' results
([biases_benchmark.csv](../examples/published/biases_benchmark.csv)). No network was measured
([claims and verdicts](reproduction-biases.md)). This command writes the page and its CSV files:

```bash
python -m benchmarks.reproduction --out=docs
```

[The study as a command](biases.md#the-published-models) draws the figures with intervals.

Spectral biases are means of accuracy ratios over the cut-offs 0.1 to 0.5. Critical-band values are normalised, except those named `_raw`. Averages are unweighted means of their benchmarks; ImageNet-C and C-bar are means of their 95 and 50 conditions.
"""


def _agreement() -> Iterable[str]:
    cells, pairs = biases.printed_cells(), biases.printed_pairs()
    off = cells[~cells["agrees"]]
    columns = ", ".join(dict.fromkeys(off["column"]))
    figures = pairs["y"].isin(biases.BIASES)
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

A cell agrees if all its printed digits do ([every cell](results/biases_cells.csv)). A correlation of the authors'
[poster](https://github.com/paulgavrikov/biases_vs_generalization/blob/main/assets/poster.pdf) must also have p ≤ 0.05, or p > 0.05 if printed as 0.00.

The {len(off)} cells that differ are all {columns}, of models without a band: they classify less than half of the grey images without noise
correctly. Their fit ends at {off["printed"].iloc[0]:.2f} in the paper and at {off["ours"].iloc[0]:.2f} in the
data. No correlation uses these values.
"""


def _correlations() -> str:
    family = biases.families()["all"]
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
        for bias in biases.BIASES
    ]
    sizes = [len(frame) for frame in biases.model_groups().values()]
    return f"""
## Biases and averages

Spearman's ρ over all {sizes[0]} models. Bold is significant at 0.05 after Holm's adjustment over the 24 pairs.

{prose.markdown(("Bias", *biases.MEMBERS), rows)}

[All printed correlations and ours](results/biases_pairs.csv) are in a file with two-sided permutation p ({biases.PERMUTATIONS:,} orders), also for the
{sizes[1]} adversarially trained models (AT), the other {sizes[2]}, and among biases. The paper's text reverses the
bandwidth's sign; the poster does not.
"""


def _counts() -> str:
    rows = [
        (name, *map(str, counts.values()))
        for name, counts in biases.count_significant().items()
    ]
    partial = biases.partials()
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
    frame = biases.models()
    shape = frame["shape"]
    four = biases.spectral((0.1, 0.2, 0.3, 0.4)).loc["tv_resnet50", "low_freq"]
    best = biases.agreement()
    names = ("imagenet", "imagenet_v2", "imagenet_c", "imagenet_cbar", "imagenet_a")
    agreements = ", ".join(f"{name} {best[name]:.2f}" for name in names)
    both = biases.spearman(frame[["shape", "low_freq"]]).iloc[0, 1]
    at = frame[frame["training"] == biases.AT]
    return f"""
## Figures of the text

- Shape bias ranges from {shape.min():.3f} ({shape.idxmin()}) to {shape.max():.3f} ({shape.idxmax()}); the baseline has {shape["tv_resnet50"]:.4f}.
- Shape bias and low-frequency bias: ρ = {both:.2f}.
- Mean ρ of a benchmark with the others, without stylized16 and pgd: {agreements}; the largest is {best.idxmax()}, the smallest {best.idxmin()}.
- Low-frequency bias ranges from {frame["low_freq"].min():.2f} ({frame["low_freq"].idxmin()}) to {frame["low_freq"].max():.2f} ({frame["low_freq"].idxmax()}), high-frequency bias
  up to {frame["high_freq"].max():.4f} ({frame["high_freq"].idxmax()}), among adversarially trained models to {at["high_freq"].max():.4f}.
- The paper's text names four cut-offs, 10 to 40 %; its table averages five. The baseline's low-frequency bias is {frame.loc["tv_resnet50", "low_freq"]:.3f} over
  five, as printed (0.63), and {four:.3f} over four.
- From the two printed decimals, ρ of high-frequency bias and ID would be {biases.rho_of_rounded():.3f}, not {biases.families()["all"].statistic.loc["high_freq", "ID"]:.3f}.
"""


def _moved() -> str:
    family = biases.families()["all"].statistic
    rows = []
    for name, member in (("ID", "imagenet_real"), ("Concepts", "stylized16")):
        for title, values in (
            (name, family[name]),
            (f"{name} without {member}", biases.correlations_without(name, member)),
        ):
            cells = [prose.format_two_decimals(values[bias]) for bias in biases.BIASES]
            rows.append((title, *cells))
    off = biases.granularity()
    assert max(off.values()) < 0.001
    return f"""
## Anomalies and their effect

- **ReaL** is part of ID. All 48 accuracies are multiples of 1/326: only the last batch was logged (336 images, 10 without a label), not
  the 46,837 images of the set.
- **Stylised** is part of Concepts; without it the sign of shape bias changes. All 48 accuracies are multiples of 1/800: the 16-class set of
  model-vs-human, not the 1000 classes that the text describes.
- **PGD.** All 48 accuracies are multiples of 1/50,048, the padded number, instead of 1/50,000: at most 0.084 points too high, with the same ranks.
- **Critical band.** Nominal frequencies are 2 to 2.6 times too high and the noise has 0.943 of its nominal strength, equally for all
  models. This page uses only normalised values, many of them tied.

{prose.markdown(("ρ over all models", *biases.BIASES), rows)}
"""


def tables() -> dict[str, pd.DataFrame]:
    """Return the full tables behind the page, by the names of their files."""
    return {
        "biases_cells": biases.printed_cells(),
        "biases_pairs": biases.printed_pairs(),
        "biases_within_categories": biases.partials(),
        "biases_categories": biases.by_training().reset_index(),
    }
