"""Report section on statistical power, for this study and other numbers of seeds and data sets.

A cell is an algorithm on a data set.
"""

import math
from collections.abc import Iterator

import pandas as pd

from jbias.report import document, plots, tables
from jbias.report.pages.benchmark import analysis as analysis_lib

Analysis = analysis_lib.Analysis


def blocks(analysis: Analysis) -> document.Blocks:
    """Yield sentences, the figure and the table of power; nothing without tested ranks."""
    if analysis.tests is None:
        return
    yield from map(document.Text, _sentences(analysis))
    if analysis.runs is not None:
        yield power_figure(analysis)
        yield power_table(analysis)


def _sentences(analysis: Analysis) -> Iterator[str]:
    """Yield sentences on the power of the study: the verdict and the difference tested.

    If seeds were not analysed, the only sentence has the reason.
    """
    if analysis.runs is None:
        yield f"Power is not known: {analysis.no_seeds}."
        return
    result = analysis.seeds.power
    yield result.verdict
    yield f"The power is for a difference of {result.difference:g}; --points sets this value."


def power_table(analysis: Analysis) -> tables.Table:
    """Return the table of the power of each test in this study: paired t, Wilcoxon, Nemenyi.

    The page also has the difference that each test detects with the target power, or "never". The
    files have the columns test, seeds ("here" for this study), datasets and power, with rows for
    other numbers of seeds and data sets. Seeds must have been analysed.
    """
    result = analysis.seeds.power
    repeats = analysis.study.repeats
    digits = analysis.study.unit.digits + 1
    rows = []
    data = []
    tests = {"t": "paired t", "wilcoxon": "Wilcoxon", "nemenyi": "Nemenyi"}
    for test, name in tests.items():
        least = result.minimal[test]
        present = result.present[test]
        shown = f"{least:.{digits}f}" if math.isfinite(least) else "never"
        rows.append((name, "as here", f"{present:.2f}", shown))
        data.append((test, "here", len(analysis.datasets), present))
        for seeds, row in zip(result.seeds, result.power[test], strict=True):
            cells = zip(result.datasets, row, strict=True)
            data += [
                (test, str(seeds), num_datasets, share) for num_datasets, share in cells
            ]
    return tables.Table(
        "power",
        "Probability that a study like this one finds a difference of "
        f"{result.difference:g} between two algorithms, and the difference that it finds with "
        f"probability {result.target:g}, by simulation. t and Wilcoxon at α = {result.alpha:g} shared among "
        f"{tables.count(result.comparisons, 'pair')}. The CSV file has other numbers of {repeats} and data sets.",
        head=("Test", "study", "power", f"found with {result.target:g}"),
        rows=tuple(rows),
        data=pd.DataFrame(data, columns=["test", "seeds", "datasets", "power"]),
        texts=2,
        in_results=True,
    )


def power_figure(analysis: Analysis) -> document.Figure:
    """Return the figure of the power of Nemenyi's test by numbers of seeds and data sets.

    Seeds must have been analysed.
    """
    power = analysis.seeds.power
    repeats = analysis.study.repeats
    frame = pd.DataFrame(power.power["nemenyi"], power.seeds, power.datasets)
    caption = (
        f"Power: probability that a study with the given numbers of {repeats} and data sets "
        f"finds a difference of {power.difference:g} between two algorithms with Nemenyi's "
        f"test at α = {power.alpha:g}, by simulation from the spread in this study. Framed: at "
        f"least {power.target:g}."
    )

    def draw() -> plots.Figure:
        return plots.power(frame, target=power.target, labels=("data sets", repeats))

    return document.Figure("power", caption, draw)
