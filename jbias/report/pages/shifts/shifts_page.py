"""The page of networks trained under shifts: its headline, sections, tables and caveats."""

import argparse
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from jbias.data import shifts
from jbias.report import document, tables
from jbias.report.pages.shifts import shift_cells, shift_drops, shift_figures

ShiftCell, ShiftCells = shift_cells.ShiftCell, shift_cells.ShiftCells
ShiftStudy, Recipe = shift_cells.ShiftStudy, shift_cells.Recipe
TableRow, TableRows = shift_drops.TableRow, shift_drops.TableRows
AccuracyDraws = shift_drops.AccuracyDraws
Blocks = document.Blocks
_ALWAYS = (
    "Hu et al. name the kinds of shift, but give no shares: levels and their tables are ours.",
    "Drops are computed from means over seeds (drops of averages: from averages), as published.",
    "All seeds see the same test images, so intervals include the full noise of these images.",
)
_CAVEATS = {
    "remedies": "The drop closed by {} is unknown: no run of {} has the same model, data, images, "
    "attribute and level. Train such a run, or name another algorithm with --reference.",
    "single": "One seed does not show the variation between seeds: {}. Its intervals and tests "
    "cover test images only. Train more, such as with seeds=5 after the colon of --config.",
    "few": "The smallest test set has {:,} images: the standard error of accuracy is about {} "
    "points (at 50 %).",
    "control": "Without a control (M0, C0, J0), a drop may have causes other than the shift: {}. "
    "These drops are compared with 0.",
    "images": "Some runs have no number of training images in their provenance.",
}
_OPTIONS = ("tau", "alpha", "reference", "draws", "seed")
_INTERVAL = "In brackets: 95 % intervals over redrawn seeds and test images."


_RECIPE = "model algorithm data setting attribute"
_DROPS = (
    "level percent:.2[] drop:.2[] control:.2[] over:.2[] normalised:.2[] area:.2[] seeds p:p "
    "holm:p"
)
_HEADS = {
    "percent": "drop %",
    "drop": "drop, points",
    "control": "at the control",
    "over": "above the control",
    "normalised": "normalised %",
    "pairs": "paired",
    "area": "area, points",
    "tau_p": "p",
    "rho_p": "p",
    "whose": "numbers",
}


def _table(
    name: str,
    caption: str,
    specification: str,
    rows: Iterable[TableRow],
) -> tables.Table | None:
    """Return a table of the page; None without rows.

    specification: the columns of the page, see `tables.columns`. rows: values by key of the column;
    keys such as "_worst_group@id" (a metric and a test set) become further columns.
    """
    rows = list(rows)
    columns = tables.columns(specification, **_HEADS)
    groups = dict.fromkeys(
        key for row in rows for key in row if key[0] == "_" and "@" in key
    )
    result = tables.from_rows(
        name,
        caption,
        rows,
        columns | {key: (key[1:].replace("_", " "), str) for key in groups},
        bold=lambda row: ["verdict"] * (row.get("verdict") == shift_drops.BUG),
    )
    if result is None:
        return None
    return dataclasses.replace(result, shade=dict.fromkeys(result.bold, 0.5))


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class ShiftsData:
    """Data that the sections of the page show, computed once; see `compute`."""

    study: ShiftStudy
    draws: AccuracyDraws
    tau: float  # A bug costs more than this number of points.
    alpha: float  # Significance level.
    candidates: (
        TableRows  # Rows of `shift_drops.verdicts`, one per recipe and attribute.
    )
    kinds: TableRows  # Rows of `shift_drops.verdicts`, one per kind of shift.
    remedies: TableRows
    caveats: Sequence[str]
    realised: Sequence[Mapping[str, Any]]  # See `_image_counts`.


def compute(
    study: ShiftStudy, draws: AccuracyDraws, *, tau: float, alpha: float, reference: str
) -> ShiftsData:
    """Return the results that the sections of the page show.

    tau: threshold of a bug in percentage points. alpha: significance level. reference: algorithm of
    the reference recipes. Raises ValueError as `shift_drops.remedies` does.
    """
    candidates, kinds = shift_drops.verdicts(study.cells, draws, tau=tau, alpha=alpha)
    remedies = shift_drops.remedies(study.cells, draws, reference)
    return ShiftsData(
        study=study,
        draws=draws,
        tau=tau,
        alpha=alpha,
        candidates=candidates,
        kinds=kinds,
        remedies=remedies,
        caveats=list(_caveats(study, remedies, reference)),
        realised=list(_image_counts(study.cells)),
    )


def report(study: ShiftStudy, args: argparse.Namespace) -> document.Report:
    """Return the report page of a study of shifts.

    args: parsed flags of the command `jbias report shifts`. Raises ValueError as
    `shift_drops.remedies` does for an unknown reference.
    """
    cells = study.cells
    computed = compute(
        study,
        AccuracyDraws(args.draws, args.seed),
        tau=args.tau,
        alpha=args.alpha,
        reference=args.reference,
    )
    candidates = computed.candidates
    sections = document.make_sections(SECTIONS, computed)
    verdicts = []
    for row in candidates:
        verdict = {key: row.get(key) for key in ("kind", "attribute", "verdict")}
        verdicts.append(row["_recipe"]._asdict() | verdict)
    return document.Report(
        title="jbias shifts",
        heading="Networks under chosen shifts",
        subtitle="Marginal, conditional and joint shifts of attributes, jbias report",
        answer=_answer(computed),
        facts={
            "Recipes": len({cell.recipe for cell in cells}),
            "Attributes": len({(cell.recipe.data, cell.attribute) for cell in cells}),
            "Levels": len({cell.level for cell in cells}),
            "Networks": sum(len(cell.seeds) for cell in cells),
            "Seeds each": tables.span((len(cell.seeds) for cell in cells), "–"),
        },
        sections=sections,
        results={
            "selection": study.rule,
            "options": {name: getattr(args, name) for name in _OPTIONS},
            "verdicts": verdicts,
            "caveats": computed.caveats,
            "realised": computed.realised,
            "tables": {
                block.name: block.data
                for section in sections
                for block in section.blocks
                if isinstance(block, tables.Table)
            },
        },
        source="Shifts are those of Hu, Sang, Wang and Jiang, Understanding and Testing "
        "Generalization of Deep Networks on Out-of-Distribution Data, 2021.",
    )


def _answer(computed: ShiftsData) -> tuple[str, str]:
    """Return (main result in one sentence, sentences on the analysed data).

    The main result has the number of bugs among the candidates and the worst bug, or that no shift
    beyond the control was run.
    """
    study, kinds = computed.study, computed.kinds
    tau, alpha = computed.tau, computed.alpha
    tested = [x for x in computed.candidates if x["verdict"] != shift_drops.UNKNOWN]
    count = sum(row["verdict"] != shift_drops.UNKNOWN for row in kinds)
    bugs = [row for row in tested if row["verdict"] == shift_drops.BUG]
    basis = f"Selection: {study.rule}."
    if not tested:
        hint = " For networks trained on one value see jbias papers shifts."
        if any(cell.only_value for cell in study.cells):
            basis += hint
        return "No shift beyond the control was run.", basis
    count = f"{count} tests of kinds, adjusted after Holm at {alpha:g}"
    definition = f"A bug costs more than {tau:g} points beyond the control"
    basis = f"{len(tested)} recipes and attributes; {count}. {definition}. {basis}"
    if not bugs:
        return f"None of {len(tested)} candidates is a bug.", basis
    first = bugs[0]
    has_several = len({row["_recipe"] for row in tested}) > 1
    subject = f"{first['attribute']}" + f" of {first['_recipe'].label}" * has_several
    verb = "is a bug:" if len(bugs) == 1 else "are bugs, the worst of them"
    cost = f"its {first['kind']} shift costs {first['over']:.2f} points of accuracy"
    return f"{len(bugs)} of {len(tested)} candidates {verb} {subject}; {cost}.", basis


def _run_rows(cells: ShiftCells) -> Iterator[TableRow]:
    """Yield the rows of the table of runs, one per run of each cell.

    Keys: workdir, fields of the recipe, attribute, level, seeds (text), ended ("yes" or "no"),
    device, commit and images; None for an unknown value.
    """
    for cell in cells:
        for run in cell.runs:
            device = run.provenance.get("device") or {}
            code = run.provenance.get("code") or {}
            yield {
                "workdir": run.workdir,
                **cell.recipe._asdict(),
                "setting": cell.recipe.details or None,
                "attribute": cell.attribute,
                "level": cell.level,
                "seeds": ", ".join(map(str, run.seeds)),
                "ended": "yes" if run.finished else "no",
                "device": device.get("kind"),
                "commit": code.get("commit"),
                "images": cell.images or None,
            }


def _image_counts(cells: ShiftCells) -> Iterator[dict[str, Any]]:
    """Yield numbers of images by class and value, a dict per data, attribute, level and options.

    Keys: data, attribute, level, options and sets. `sets` maps each data set to the names of its
    classes and values, and to its counts (rows: classes, columns: values), as in the provenance.
    """
    realised: dict[str, dict] = {}
    for cell in cells:
        identity = {
            "data": cell.recipe.data,
            "attribute": cell.attribute,
            "level": cell.level,
            "options": dict(sorted(cell.options.items())),
        }
        sets = {}
        for name, entry in cell.runs[0].data.items():
            dataset = entry if isinstance(entry, Mapping) else {}
            counts = dataset.get("tables") or {}
            column = "attribute" if "attribute" in counts else cell.attribute
            if column in counts:
                sets[name] = {
                    "classes": dataset.get("names") or [],
                    "values": (dataset.get("values") or {}).get(column) or [],
                    "counts": counts[column],
                }
        if sets:
            realised.setdefault(str(identity), {**identity, "sets": sets})
    yield from realised.values()


def _folded(entry: Mapping[str, Any]) -> document.Folded:
    """Return a collapsed block with a table of counts per data set, as text.

    Rows are classes and columns values of the attribute; the last row and column are sums. entry: a
    dict of `_image_counts`.
    """
    options = ", ".join(f"{k}={v}" for k, v in entry["options"].items() if v)
    ending = f" ({options})" if options else ""
    title = (
        f"Images of {entry['data']} by {entry['attribute']}, {entry['level']}{ending}"
    )
    texts = []
    for name, dataset in entry["sets"].items():
        counts = np.asarray(dataset["counts"])
        counts = np.vstack([counts, counts.sum(axis=0)])
        counts = np.column_stack([counts, counts.sum(axis=1)])
        num_rows, num_columns = counts.shape
        rows = [*(dataset["classes"] or range(num_rows - 1)), "all"]
        columns = [*(dataset["values"] or range(num_columns - 1)), "all"]
        texts.append(f"{name}\n{pd.DataFrame(counts, rows, columns).to_string()}")
    return document.Folded(title, "\n\n".join(texts))


def _caveats(study: ShiftStudy, remedies: TableRows, reference: str) -> Iterator[str]:
    """Yield the caveats of the page, one sentence or short paragraph each.

    remedies: rows of `shift_drops.remedies`. reference: algorithm of the reference recipe.
    """
    oracle_note = (
        " Accuracies in and out of distribution are from different evaluations."
    )
    yield f"Selection: {study.rule}.{oracle_note * study.oracle}"
    yield from study.notes
    algorithms = {cell.recipe.algorithm for cell in study.cells} - {reference}
    uncompared = algorithms - {row["algorithm"] for row in remedies}
    if uncompared:
        yield _CAVEATS["remedies"].format(tables.join(sorted(uncompared)), reference)
    single = {cell.recipe.label for cell in study.cells if len(cell.seeds) < 2}
    if single:
        yield _CAVEATS["single"].format(tables.few(sorted(single)))
    fewest = min(n for cell in study.cells for n in cell.tested)
    error = math.ceil(100 / (2 * math.sqrt(fewest)))
    if error >= 3:
        yield _CAVEATS["few"].format(fewest, error)
    shares: dict[str, set[float]] = {}
    for cell in (cell for cell in study.cells if cell.kind):
        name = f"{cell.kind} by {cell.attribute} of {cell.recipe.label}"
        shares.setdefault(name, set()).add(cell.share)
    uncontrolled = [name for name in shares if shift_cells.CONTROL not in shares[name]]
    if uncontrolled:
        yield _CAVEATS["control"].format(tables.few(uncontrolled))
    if any(not cell.images for cell in study.cells):
        yield _CAVEATS["images"]
    yield from _ALWAYS


# The sections, in the order of the page.


def _verdicts(computed: ShiftsData) -> Blocks:
    """Yield the tables of verdicts by attribute, and by kind of shift."""
    yield _table(
        "verdicts",
        "Recipes and attributes, worst first, with the kind of shift of the largest "
        "normalised drop (in % of accuracy in distribution, minus that of the control). Bug: the "
        f"drop at the most extreme level is more than {computed.tau:g} points above the control's "
        "(Welch's t test over seeds, plus the variance over images; p below "
        f"{computed.alpha:g} after Holm's adjustment over all recipes, attributes and kinds). "
        f"Area: mean drop over the levels. {_INTERVAL}",
        f"rank {_RECIPE} verdict kind {_DROPS}",
        computed.candidates,
    )
    yield _table(
        "kinds",
        "Drops and verdicts for every kind of shift. Without a control, the drop itself is "
        f"tested. {_INTERVAL}",
        f"{_RECIPE} kind verdict {_DROPS}",
        computed.kinds,
    )


def _remedies(computed: ShiftsData) -> Blocks:
    """Yield the table of drops that remedies close."""
    yield _table(
        "remedies",
        "Share of the plain recipe's drop that a remedy closes, at the most extreme "
        "common level: 1 - drop / plain drop, if the interval of the plain drop is above 0. Gain: "
        "increase of accuracy out of distribution; ID cost: decrease of accuracy in distribution, "
        f"in points. Paired: the same seeds, redrawn together. {_INTERVAL}",
        "data attribute level model algorithm setting pairs closed:.2[] drop:.2[] gain:.2[] "
        "id_cost:.2[] id ood seeds:d",
        computed.remedies,
    )


def _levels(computed: ShiftsData) -> Blocks:
    """Yield a figure of drops over levels per kind of shift, and the table of all levels."""
    for kind in shifts.KINDS:
        yield shift_figures.level_figure(kind, computed.kinds)
    yield _table(
        "levels",
        "All levels: accuracy in %, mean ± std (n - 1) over n seeds. Share: fraction of a "
        "class's training images with the preferred values; 0.5 is the control. Group metrics: "
        f"over groups of class and value, by test set. {_INTERVAL}",
        f"{_RECIPE} level id ood drop:.2[] percent:.2[] share:.3 seeds:d images:d n_id:d n_ood:d",
        [level for row in computed.kinds for level in row["_levels"]],
    )


def _ranks(computed: ShiftsData) -> Blocks:
    """Yield the figure and the table of ranks of models in and out of distribution."""
    cells = computed.study.cells
    yield shift_figures.rank_figure(cells)
    yield ranks_table(shift_drops.ranks(cells, computed.draws))


def ranks_table(rows: Iterable[TableRow], note: str = "") -> tables.Table | None:
    """Return the table of ranks in and out of distribution; None without rows.

    One row per item of `rows`; columns: see `shift_drops.agreement`. The page leaves out low, high,
    discordant and pairs. rows: results of `shift_drops.agreement`. note: end of the caption.
    """
    return _table(
        "ranks",
        "Agreement of the models' ranks in and out of distribution at the most extreme level: "
        "Kendall's tau-b and Spearman's rho of mean accuracies, pairs of models in opposite order, "
        f"and 95 % intervals of tau over redrawn seeds and images.{note}",
        "whose data attribute algorithm kind models crossed interval n:d tau:.2 tau_p:p rho:.2 "
        "rho_p:p",
        rows,
    )


def _learning(computed: ShiftsData) -> Blocks:
    """Yield the figure of the first iterations."""
    yield shift_figures.learning_figure(computed.study)


def _probabilities(computed: ShiftsData) -> Blocks:
    """Yield the figure of probabilities of the right class."""
    yield shift_figures.probability_figure(computed.study.cells)


def _sizes(computed: ShiftsData) -> Blocks:
    """Yield figures of accuracy by number of training images, and by width of the network."""
    for name, setting, label in (
        ("sizes", "images", "training images"),
        ("widths", "model.width", "width of the network"),
    ):
        yield shift_figures.size_figure(
            name, setting, label, cells=computed.study.cells, draws=computed.draws
        )


def _trained_networks(computed: ShiftsData) -> Blocks:
    """Yield the table of runs, and the folded numbers of images by class and value."""
    yield _table(
        "runs",
        "Runs with their recorded seeds and number of training images.",
        f"workdir {_RECIPE} level seeds ended device commit images:d",
        _run_rows(computed.study.cells),
    )
    yield from map(_folded, computed.realised)


SECTIONS = (
    document.SectionMaker("verdicts", "Attributes by drop in accuracy", _verdicts),
    document.SectionMaker("remedies", "Drops closed by remedies", _remedies),
    document.SectionMaker("levels", "Drops over levels", _levels),
    document.SectionMaker("ranks", "Ranks in and out of distribution", _ranks),
    document.SectionMaker("learning", "The first iterations", _learning),
    document.SectionMaker(
        "probabilities", "Probabilities of the right class", _probabilities
    ),
    document.SectionMaker("sizes", "Sizes of data", _sizes),
    document.SectionMaker(
        "caveats", "Caveats", lambda computed: [document.Text(computed.caveats)]
    ),
    document.SectionMaker("made", "Trained networks", _trained_networks),
)
