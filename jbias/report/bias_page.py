"""The page and the files of the study of biases."""

import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np
import pandas as pd

from jbias.report import (
    bias_figures,
    bias_models,
    bias_printed,
    bias_stimuli,
    bias_study,
    bias_tables,
    document,
    relations,
)

_SECTIONS = {
    "correlations": "What goes with what",
    "models": "Models",
    "benchmarks": "Benchmarks",
    "biases": "Biases",
    "printed": "Beside the printed numbers",
    "vit": "Vision transformers",
    "caveats": "What to keep in mind",
}


@dataclasses.dataclass(frozen=True, eq=False)
class Printed:
    """What the authors printed beside what was computed here."""

    cells: pd.DataFrame
    pairs: pd.DataFrame

    @property
    def told(self) -> str:
        cells, pairs = self.cells["agrees"], self.pairs["agrees"]
        return (
            f"{cells.sum()} of {len(cells)} cells of tables 1 and 2 and {pairs.sum()} of "
            f"{len(pairs)} printed correlations agree."
        )


def compare(
    models: bias_models.Models, study: relations.Study, folder: pathlib.Path
) -> Printed:
    """Reads the printed numbers of a folder and puts ours beside them."""
    among = bias_figures.biases_of(study)
    return Printed(
        bias_printed.cells(models, folder),
        bias_printed.correlations(study.families, among, folder),
    )


def report(
    models: bias_models.Models,
    study: relations.Study,
    *,
    printed: Printed | None = None,
    appendix: relations.Study | None = None,
    images: Sequence[np.ndarray] = (),
) -> document.Report:
    """Gives the page.

    appendix: a study of further models, each a category of its own. images: photographs,
    to show what filters leave of them.
    """
    shown = bias_study.titled(study)
    told = [(name, document.Text(words)) for name, words in models.anomalies.items()]
    if printed is not None:
        told.append(("printed", document.Text(printed.told)))
    caveats = _caveats(models, shown)
    return document.Report(
        title="jbias study of biases",
        heading="Do biases go with generalisation?",
        subtitle=f"{len(models.biases)} biases and {len(models.benchmarks)} benchmarks of "
        f"{len(models.frame)} models, jbias report",
        answer=relations.headline(shown),
        facts=_facts(models, printed),
        sections=document.sections(
            _SECTIONS,
            told,
            document.figures(_figures(models, shown, appendix, images)),
            _tables(models, shown, printed),
            [("caveats", document.Text(caveats))],
        ),
        results=_results(models, study, printed, caveats),
        source=f"Made from {models.source}. The study is that of Gavrikov and "
        "Keuper, Can Biases in ImageNet Models Explain Generalization?, CVPR 2024; numbers "
        "of figures and tables are those of that paper.",
        frames={"models": models.frame.rename_axis("model").reset_index()},
    )


def _tables(models, shown: relations.Study, printed: Printed | None):
    for _, table in relations.tables_of(shown):
        if not table.name.startswith("among"):
            yield "correlations", table
    yield from bias_tables.of(models)
    if printed is not None:
        for table in bias_tables.printed(printed.cells, printed.pairs):
            yield "printed", table


def _figures(models, shown: relations.Study, appendix, images) -> bias_figures.Drawn:
    yield from bias_figures.draw(models, shown)
    if images:
        yield (
            "stimuli",
            "biases",
            bias_stimuli.draw(images),
            (
                "What the spectral biases show: photographs after low- and high-pass filters "
                "that keep the inner or outer share of frequencies (figures 7 and 14). "
                "High-pass images have mean zero and lose what is negative; they are drawn "
                f"{bias_stimuli.GAIN} times brighter than a network sees them."
            ),
        )
    if appendix is not None:
        yield from bias_figures.appendix(bias_study.titled(appendix))


def _facts(models: bias_models.Models, printed: Printed | None) -> dict[str, object]:
    facts: dict[str, object] = {
        "Models": len(models.frame),
        "Categories": models.frame["training"].nunique(),
        "Biases": len(models.biases),
        "Benchmarks": len(models.benchmarks),
    }
    if printed is not None:
        agrees = [*printed.cells["agrees"], *printed.pairs["agrees"]]
        facts["As printed"] = f"{sum(agrees)} of {len(agrees)}"
    return facts


def _caveats(models: bias_models.Models, shown: relations.Study) -> list[str]:
    told = relations.caveats(shown) + list(models.told)
    if models.anomalies:
        told.append(
            "The published numbers have known faults, which are told where they matter: "
            "under Benchmarks and Biases."
        )
    if shown.options.split is None:
        told.append(
            "Adversarially trained models are not told apart: that needs at least "
            f"{bias_study.LEAST} of them and as many others."
        )
    return told


def _results(models, study, printed: Printed | None, caveats: list[str]) -> dict:
    """Gives what results.json says: that of the correlations, and the models."""
    tree = relations.results(study)
    tree |= dict(zip(("headline", "basis"), relations.headline(study), strict=True))
    tree["members"] = models.members
    tree["biases"] = models.biases
    tree["models"] = models.frame.rename_axis("model").reset_index()
    tree["anomalies"] = dict(models.anomalies)
    tree["caveats"] = caveats
    if printed is not None:
        tree["printed"] = {"tables": printed.cells, "correlations": printed.pairs}
    return tree
