"""The text of docs/reproduction-biases-tables.md: 48 ImageNet models, recomputed.

`python -m benchmarks.reproduction` writes it.
"""

from collections.abc import Iterable

from benchmarks import biases, prose
from jbias.papers import biases_published
from jbias.report import network_frame

NAME = "reproduction-biases-tables.md"
_CHOICES = ("all", "AT", "not AT")


def text() -> str:
    """Gives the whole document."""
    parts = [
        _opening(),
        *_agreement(),
        _printed_pairs(),
        _printed_among(),
        _counts(),
        _means(),
        _figures(),
        _moved(),
        *_tables(),
    ]
    return "\n\n".join(prose.wrapped(part.strip()) for part in parts) + "\n"


def _opening() -> str:
    return """
# 48 ImageNet models, recomputed

The tables and correlations of *Can Biases in ImageNet Models Explain Generalization?*
([Gavrikov and Keuper, CVPR 2024](https://arxiv.org/abs/2404.01509)), computed again from the authors' results
([biases_benchmark.csv](../examples/published/biases_benchmark.csv)) with jbias's own statistics, next to what they printed. Nothing
here was measured by jbias. This file is written by a command, and a test holds it and its numbers:

```bash
python -m benchmarks.reproduction --out=docs
```

The figures, with intervals and without rounding, are drawn by [the study as a command](biases.md):

```bash
python -m jbias.papers.biases --benchmark=examples/published/biases_benchmark.csv \\
    --printed=examples/published --out=study
```

Spectral biases are means of accuracy ratios over the cut-offs 0.1 to 0.5, critical-band values the normalised ones (_raw: the
others), averages the unweighted means of their benchmarks; ImageNet-C and C-bar are means of their 95 and 50 conditions.
"""


def _agreement() -> Iterable[str]:
    cells, pairs = biases.printed_cells(), biases.printed_pairs()
    off = cells[~cells["agrees"]]
    columns = ", ".join(dict.fromkeys(off["column"]))
    figures = pairs["y"].isin(biases.BIASES)
    rows = []
    for what, part in (
        ("Table 1, accuracies", cells[cells["table"] == 1]),
        ("Table 2, biases", cells[cells["table"] == 2]),
        ("Figure 2, biases with averages", pairs[~figures]),
        ("Figure 12, biases among themselves", pairs[figures]),
    ):
        rows.append((what, str(len(part)), str(int(part["agrees"].sum()))))
    yield f"""
## What agrees

{prose.markdown(("", "Printed", "Agree"), rows)}

A cell of a table agrees where it is the printed number to its last digit. The correlations are printed on the authors'
[poster](https://github.com/paulgavrikov/biases_vs_generalization/blob/main/assets/poster.pdf), with 0.00 for what is not significant; a
number agrees where ρ is the printed one and p ≤ 0.05 without adjustment, and a zero where p > 0.05.

The {len(off)} cells that differ are all {columns}: models that are right on less than half of the grey images without
noise and have no band. The fit ends anywhere: {off["printed"].iloc[0]:.2f} in the paper, {off["ours"].iloc[0]:.2f} in the data, with a
bandwidth of 11295.35 that stands for infinity. jbias's own measure gives no number there. No correlation uses them.
"""


def _printed_pairs() -> str:
    pairs = biases.printed_pairs()
    mine = pairs[~pairs["y"].isin(biases.BIASES)]
    families = dict(zip(biases.CHOICES, biases.families().values(), strict=True))
    rows = []
    for (x, y), part in mine.groupby(["x", "y"], sort=False):
        row = [network_frame.TITLES[x], y]
        for one in part.itertuples():
            strong = families[one.models].holm.loc[x, y] <= 0.05
            told = f"{prose.marked(prose.two(one.ours), strong)} ({_p(one.p)})"
            row += [told, _as_printed(one.printed) + ("" if one.agrees else " (!)")]
        rows.append(tuple(row))
    head = ["Bias", "Average"]
    for name, frame in zip(_CHOICES, biases.chosen().values(), strict=True):
        head += [f"ρ (p), {name} ({len(frame)})", "printed"]
    return f"""
## Biases and averages

Spearman's ρ over all models, the adversarially trained (AT), and the others, with its two-sided permutation p ({biases.PERMUTATIONS:,} orders),
and what is printed (n.s.: 0.00). Bold is significant at 0.05 after Holm's adjustment over the 24 pairs of its choice of models, which
the poster does not have. scipy's ρ are the same in all 72 cells.

{prose.markdown(head, rows)}

The paper's text describes the correlations of the bandwidth with the sign reversed, reading narrower as better; these
are plain ρ, as on the poster.
"""


def _printed_among() -> str:
    pairs = biases.printed_pairs()
    rows = [
        (
            network_frame.TITLES[one.x],
            network_frame.TITLES[one.y],
            f"{prose.two(one.ours)} ({_p(one.p)})",
            _as_printed(one.printed) + ("" if one.agrees else " (!)"),
        )
        for one in pairs[pairs["y"].isin(biases.BIASES)].itertuples()
    ]
    return f"""
## Biases among themselves

Over all models.

{prose.markdown(("Bias", "Bias", "ρ (p)", "printed"), rows)}
"""


def _p(value: float) -> str:
    return "< 0.001" if value < 0.0005 else f"{value:.3f}"


def _as_printed(value: float) -> str:
    return "n.s." if value == 0 else prose.two(value)


def _counts() -> str:
    rows = [
        (name, *map(str, counts.values()))
        for name, counts in biases.significant().items()
    ]
    partial = biases.partials()
    kept = partial[partial["p"] <= 0.05]
    head = ("Models", "p ≤ 0.05", "Holm", "Benjamini and Hochberg")
    rows_partial = [
        (
            bias,
            *(
                prose.marked(prose.two(cell.rho), cell.p <= 0.05)
                for cell in mine.itertuples()
            ),
        )
        for bias, mine in partial.groupby("bias", sort=False)
    ]
    return f"""
## How many are significant

Of the 24 pairs in each choice:

{prose.markdown(head, rows)}

Models of one training category are variants of one method, and 15 of the 48 are one adversarial training with another ε. With the
categories controlled for (partial ρ on all models, p from orders within categories, not adjusted), {len(kept)} of 24 have p ≤ 0.05 (bold):

{prose.markdown(("", *biases.MEMBERS), rows_partial)}
"""


def _means() -> str:
    frame = biases.by_training()
    rows = [
        (name, str(int(row["models"])), *(f"{row[m]:.2f}" for m in biases.MEMBERS))
        for name, row in frame.iterrows()
    ]
    return f"""
## Averages by training

Mean accuracies in %.

{prose.markdown(("Training", "Models", *biases.MEMBERS), rows)}
"""


def _figures() -> str:
    frame = biases.models()
    shape = frame["shape"]
    four = biases.spectral((0.1, 0.2, 0.3, 0.4)).loc["tv_resnet50", "low_freq"]
    best = biases.agreement()
    names = ("imagenet", "imagenet_v2", "imagenet_c", "imagenet_cbar", "imagenet_a")
    told = ", ".join(f"{name} {best[name]:.2f}" for name in names)
    both = biases.rho(frame[["shape", "low_freq"]]).iloc[0, 1]
    at = frame[frame["training"] == biases.AT]
    return f"""
## Figures of the text

- Shape bias runs from {shape.min():.3f} ({shape.idxmin()}) to {shape.max():.3f} ({shape.idxmax()}); the baseline has {shape["tv_resnet50"]:.4f}.
- Shape bias and low-frequency bias: ρ = {both:.2f}.
- Mean ρ of a benchmark with the others, without stylized16 and pgd: {told}; the largest is {best.idxmax()}, the smallest {best.idxmin()}.
- Low-frequency bias: the largest {frame["low_freq"].max():.2f} ({frame["low_freq"].idxmax()}), the smallest {frame["low_freq"].min():.2f} ({frame["low_freq"].idxmin()}). High-frequency bias:
  the largest {frame["high_freq"].max():.4f} ({frame["high_freq"].idxmax()}); no adversarially trained model has more than {at["high_freq"].max():.4f}.
- PGD: the largest {frame["pgd"].max():.2f} % ({frame["pgd"].idxmax()}), the smallest {frame["pgd"].min():.2f} % ({frame["pgd"].idxmin()}).
- The paper's text names four cut-offs, 10 to 40 %; its table averages five. The baseline's low-frequency bias is {frame.loc["tv_resnet50", "low_freq"]:.3f} over
  five, as printed (0.63), and {four:.3f} over four.
- From the two decimals of the printed table ρ of high-frequency bias and ID is {biases.rounded():.3f}; in full precision it is
  {biases.families()["all"].statistic.loc["high_freq", "ID"]:.3f}.
"""


def _moved() -> str:
    family = biases.families()["all"].statistic
    rows = []
    for name, member in (("ID", "imagenet_real"), ("Concepts", "stylized16")):
        for how, values in (
            (name, family[name]),
            (f"{name} without {member}", biases.without(name, member)),
        ):
            rows.append((how, *(prose.two(values[bias]) for bias in biases.BIASES)))
    off = biases.granularity()
    assert max(off.values()) < 0.001
    return f"""
## Anomalies, and what they move

- **ReaL.** All 48 accuracies are whole images of 326: only the last batch was logged (336 images, 10 without a label), not the
  46,837 of the set. It enters ID.
- **Stylised.** All 48 are whole images of 800: the 16-class set of model-vs-human, not the 1000 classes that the text describes. It
  enters Concepts, and without it the sign of shape bias changes there.
- **PGD.** All 48 are whole images of 50,048, the padded number, instead of 50,000: at most 0.084 percentage points too high. No
  rank can change: the map is the same for all models.
- **Critical band.** Nominal frequencies are 2 to 2.6 times too high and the noise is 0.943 of its nominal strength, alike for all models;
  values without normalisation are degenerate and differ between paper and data. Only normalised ones are used here; many are tied.

{prose.markdown(("ρ over all models", *biases.BIASES), rows)}
"""


def _tables() -> Iterable[str]:
    cells = biases.printed_cells()
    for table, title, columns in (
        (1, "accuracies in %", biases_published.ACCURACIES),
        (2, "biases", biases_published.BIASES),
    ):
        mine = cells[cells["table"] == table].set_index(["model", "column"])
        averages = tuple(biases.MEMBERS) if table == 1 else ()
        rows = []
        for model, one in biases.models().iterrows():
            row = [one["name"]]
            for column in columns:
                cell = mine.loc[(model, column)]
                told = prose.two(cell["ours"])
                if not cell["agrees"]:
                    told += f" (printed {prose.two(cell['printed'])})"
                row.append(told)
            rows.append((*row, *(prose.two(one[name]) for name in averages)))
        agrees = mine["agrees"]
        yield f"""
## Table {table}: {title}

{int(agrees.sum())} of {len(agrees)} cells are the printed ones; beside the others stands what is printed.

{prose.markdown(("Model", *columns, *averages), rows)}
"""
