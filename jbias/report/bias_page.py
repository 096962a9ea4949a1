"""The page and the files of the study of biases."""

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from jbias.report import (
    bias_figures,
    bias_models,
    bias_printed,
    bias_stimuli,
    bias_study,
    bias_tables,
    figures,
    page,
    relation_page,
    relation_words,
    relations,
    tables,
)

_SECTIONS = (
    ("correlations", "What goes with what"),
    ("models", "Models"),
    ("benchmarks", "Benchmarks"),
    ("biases", "Biases"),
    ("printed", "Beside the printed numbers"),
    ("vit", "Vision transformers"),
    ("caveats", "What to keep in mind"),
)


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


def write(
    models: bias_models.Models,
    study: relations.Study,
    out: pathlib.Path,
    *,
    printed: Printed | None = None,
    appendix: relations.Study | None = None,
    images: Sequence[np.ndarray] = (),
) -> Iterator[str]:
    """Writes the report; gives lines that sum it up. Nothing is written on an error.

    appendix: a study of further models, each a category of its own. images: photographs,
    to show what filters leave of them.
    """
    shown = bias_study.titled(study)
    made = list(_tables(models, shown, printed))
    files: dict[str, str | bytes] = {}
    for _, table in made:
        files[f"tables/{table.name}.csv"] = tables.to_csv(table)
        files[f"tables/{table.name}.tex"] = tables.to_latex(table)
    files["tables/models.csv"] = models.frame.to_csv(
        index_label="model", lineterminator="\n"
    )
    drawn = list(_figures(models, shown, appendix, images))
    bodies = {name: "" for name, _ in _SECTIONS}
    for section, paragraphs in models.anomalies.items():
        bodies[section] += page.points(paragraphs)
    if printed is not None:
        bodies["printed"] += f"<p>{tables.escape(printed.told)}</p>"
    for name, section, fig, told in drawn:
        files[f"figures/{name}.svg"] = svg = figures.to_svg(fig)
        files[f"figures/{name}.pdf"] = figures.to_pdf(fig)
        files[f"figures/{name}.png"] = figures.to_png(fig)
        bodies[section] += page.figure(name, svg, told)
    for section, table in made:
        bodies[section] += tables.to_html(table)
    caveats = _caveats(models, shown)
    bodies["caveats"] = page.points(caveats)
    files["results.json"] = _summary(models, study, printed, caveats)
    files["index.html"] = page.document(
        "jbias study of biases",
        heading="Do biases go with generalisation?",
        under=f"{len(models.biases)} biases and {len(models.benchmarks)} benchmarks of "
        f"{len(models.frame)} models, jbias report",
        answer=relation_words.headline(shown),
        facts=_facts(models, printed),
        sections=[(name, title, bodies[name]) for name, title in _SECTIONS],
        footer=f"Made from {tables.escape(models.source)}. The study is that of Gavrikov and "
        "Keuper, Can Biases in ImageNet Models Explain Generalization?, CVPR 2024; numbers of "
        "figures and tables are those of that paper. The "
        "tables lie beside this page as CSV and LaTeX (<code>tables/</code>), with every "
        "number of every model in <code>tables/models.csv</code>, the figures as SVG, PDF "
        "and PNG (<code>figures/</code>), and all of it in <code>results.json</code>.",
    )
    page.write(out, files)
    lines = [*relation_words.headline(shown)]
    if printed is not None:
        lines.append(printed.told)
    return iter([*lines, *models.told, f"written: {out / 'index.html'}"])


def _tables(models, shown: relations.Study, printed: Printed | None):
    for table in relation_page.tables_of(shown):
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
    told = relation_words.caveats(shown) + list(models.told)
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


def _summary(models, study, printed: Printed | None, caveats: list[str]) -> str:
    """Gives results.json: that of the correlations, and the models."""
    tree = json.loads(relation_words.summary(study))
    tree["members"] = models.members
    tree["biases"] = models.biases
    tree["models"] = _records(models.frame.rename_axis("model").reset_index())
    tree["anomalies"] = dict(models.anomalies)
    tree["caveats"] = caveats
    if printed is not None:
        tree["printed"] = {
            "tables": _records(printed.cells),
            "correlations": _records(printed.pairs),
        }
    return json.dumps(tree, indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _records(frame: pd.DataFrame) -> list[dict]:
    return json.loads(frame.to_json(orient="records", double_precision=15))
