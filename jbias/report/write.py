"""Makes all parts of a report and writes them."""

import json
import math
import os
import pathlib
from collections.abc import Iterator

import pandas as pd

from jbias import results
from jbias.report import content, figures, gather, page, sources, tables, words
from jbias.report import options as options_lib
from jbias.report import study as study_lib

PANELS, CURVES = 9, 12  # More on one figure nobody can read.


def report(
    study: study_lib.Study, options: options_lib.Options, out: pathlib.Path
) -> Iterator[str]:
    """Writes the report; gives lines that sum it up. Nothing is written on an error."""
    reference = options.reference
    if reference and reference not in study.algorithms:
        raise ValueError(
            f"--reference: must be an algorithm, got {reference!r}: "
            f"{', '.join(study.algorithms)}"
        )
    analysis = study_lib.analyse(study, options.alpha)
    caveats = words.caveats(study, analysis)
    shown = {table.name: table for table in _tables(study, analysis, reference)}
    drawn = dict(_figures(study, analysis))
    files: dict[str, str | bytes] = {}
    for name, table in shown.items():
        files[f"tables/{name}.csv"] = tables.to_csv(table)
        files[f"tables/{name}.tex"] = tables.to_latex(table)
        files[f"tables/{name}.md"] = tables.to_markdown(table)
        files[f"tables/{name}.parquet"] = tables.to_parquet(table)
    inline = {}
    for name, (section, figure, caption) in drawn.items():
        files[f"figures/{name}.svg"] = svg = figures.to_svg(figure)
        files[f"figures/{name}.pdf"] = figures.to_pdf(figure)
        inline[name] = (section, svg, caption)
    files["results.json"] = summary(study, analysis, caveats)
    files["index.html"] = page.render(
        study, analysis, shown, inline, caveats=caveats, reference=reference
    )
    for name, data in files.items():
        _write(out / name, data.encode() if isinstance(data, str) else data)
    answer, basis = words.headline(study, analysis)
    left_out = (f"left out of the tests: {n} ({why})" for n, why in analysis.left_out)
    return iter([answer, basis, *left_out, f"written: {out / 'index.html'}"])


def summary(study: study_lib.Study, analysis: study_lib.Analysis, caveats) -> str:
    """Gives results.json: strict JSON, null for what is not finite or not known."""
    tested = analysis.friedman is not None
    answer, basis = words.headline(study, analysis)
    tree = {
        "headline": answer,
        "basis": basis,
        "source": study.source,
        "metric": study.metric,
        "larger_is_better": study.larger_is_better,
        "selection": study.selection,
        "selection_rule": study.rule,
        "algorithms": list(study.algorithms),
        "datasets": list(study.datasets),
        "table": analysis.cells.to_dict("records"),
        "alpha": analysis.alpha,
        "tested": {
            "algorithms": list(analysis.algorithms) if tested else [],
            "datasets": list(analysis.datasets) if tested else [],
            "left_out": [{"name": n, "reason": r} for n, r in analysis.left_out],
            "why_not": analysis.why_not,
        },
        "friedman": _friedman(analysis, analysis.friedman) if tested else None,
        "friedman_uncorrected": _friedman(analysis, analysis.uncorrected)
        if tested
        else None,
        "nemenyi": _nemenyi(analysis) if tested else None,
        "caveats": list(caveats),
    }
    if study.is_runs:
        bias = content.shape_bias_table(study)
        tree["shape_bias"] = [] if bias is None else bias.data.to_dict("records")
        tree["diverged"] = study.diverged.to_dict("records")
        tree["other_selections"] = {
            name: study_lib.cells_of(v, study.algorithms, study.datasets).to_dict(
                "records"
            )
            for name, v in study.others
        }
        tree["runs"] = [{"workdir": r.workdir, "label": r.label} for r in study.runs]
    return (
        json.dumps(_strict(tree), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    )


def _friedman(analysis: study_lib.Analysis, result) -> dict:
    return {
        "chi2": result.chi2,
        "chi2_p": result.chi2_pvalue,
        "F": result.statistic,
        "F_is_infinite": math.isinf(result.statistic),
        "p": result.pvalue,
        "df": list(result.df),
        "kendall_w": result.kendall_w,
        "mean_ranks": dict(
            zip(analysis.algorithms, result.ranks.tolist(), strict=True)
        ),
    }


def _nemenyi(analysis: study_lib.Analysis) -> dict:
    names, result = analysis.algorithms, analysis.nemenyi
    p = {
        name: dict(zip(names, row, strict=True))
        for name, row in zip(names, result.pvalues.tolist(), strict=True)
    }
    alphas = sorted({0.05, 0.1, analysis.alpha})
    return {
        "p": p,
        "critical_difference": {
            f"{alpha:g}": result.critical_difference(alpha) for alpha in alphas
        },
        "significant": [
            {"better": a, "worse": b, "p": pvalue}
            for a, b, pvalue in analysis.significant
        ],
        "cliques": [[names[i] for i in clique] for clique in analysis.cliques],
    }


def _tables(study, analysis, reference) -> Iterator[tables.Table]:
    yield content.score_table(study, analysis)
    if reference:
        yield content.reference_table(study, analysis, reference)
    if analysis.friedman is not None:
        yield content.friedman_table(analysis)
        yield content.nemenyi_table(analysis)
        yield content.rank_table(study, analysis)
    if not study.is_runs:
        return
    optional = (
        content.validation_table(study),
        content.shape_bias_table(study),
        sources.settings_table(study),
    )
    yield from (table for table in optional if table is not None)
    yield content.selection_test_table(study, analysis.alpha)
    yield content.selection_table(study)
    yield from sources.provenance_tables(study)


def _figures(study, analysis):
    """Gives names with (section, figure, caption)."""
    if analysis.nemenyi is not None:
        colours = {
            name: figures.style_of(i)["color"]
            for i, name in enumerate(study.algorithms)
        }
        figure = figures.critical_difference(
            analysis.algorithms,
            analysis.nemenyi.ranks,
            analysis.cliques,
            analysis.critical_difference,
            alpha=analysis.alpha,
            colours=[colours[name] for name in analysis.algorithms],
        )
        caption = (
            "Mean ranks and critical difference. The best rank stands on the left. A bar "
            "joins algorithms that Nemenyi's test does not tell apart at "
            f"α = {analysis.alpha:g}."
        )
        yield "critical_difference", ("tests", figure, caption)
    if not study.is_runs:
        return
    drawn = _leading(study, analysis)
    chosen = results.evaluations(study.frame)
    for metric in dict.fromkeys((study.metric, "shape_bias")):
        panels = list(_panels(study, chosen, metric))
        if not panels:
            continue
        shown = panels[:PANELS]
        scale = study_lib.unit_of(metric, panels[0][1]["mean"]).scale
        places = [study.algorithms.index(name) for name in drawn]
        figure = figures.curves(shown, drawn, scale=scale, places=places)
        unit = " in %" if scale == 100 else ""
        name = metric.replace("_", " ").capitalize()
        caption = (
            f"{name}{unit} over epochs. Mean over seeds; the band is ± one standard "
            "deviation over seeds. Each panel has an axis of its own; diverged seeds are "
            f"left out.{_limits(study, panels, drawn)}"
        )
        yield f"curves_{metric}", ("curves", figure, caption)


def _panels(study: study_lib.Study, chosen: pd.DataFrame, metric: str):
    wanted = list(study.datasets)
    if metric == study.metric:
        wanted = list(dict.fromkeys([results.VALID, *wanted]))
    else:
        wanted = list(chosen["dataset"][chosen["metric"] == metric].unique())
    rows = chosen[(chosen["metric"] == metric) & chosen["dataset"].isin(wanted)]
    by = ["label", "dataset", "run", "seed", "epoch"]
    values = gather.averaged(rows, by).dropna(subset="value")
    groups = values.groupby(["dataset", "label", "epoch"])["value"]
    tables_of = dict(iter(groups.agg(["mean", "std", "size"]).groupby(level=0)))
    for dataset in wanted:
        if dataset not in tables_of:
            continue
        table = (
            tables_of[dataset].droplevel(0).reset_index(names=["algorithm", "epoch"])
        )
        # Where seeds are missing the mean would jump for no reason of training.
        full = table.groupby("algorithm")["size"].transform("max")
        yield dataset, table[table["size"] == full]


def _leading(study: study_lib.Study, analysis: study_lib.Analysis) -> tuple[str, ...]:
    """Gives the algorithms whose curves are drawn: all, or the best if they are many."""
    if len(study.algorithms) <= CURVES:
        return study.algorithms
    if analysis.nemenyi is None:
        return study.algorithms[:CURVES]
    ranked = dict(zip(analysis.algorithms, analysis.nemenyi.ranks, strict=True))
    best = sorted(study.algorithms, key=lambda name: ranked.get(name, math.inf))
    return tuple(best[:CURVES])


def _limits(study: study_lib.Study, panels, drawn) -> str:
    """Says what a figure leaves out for want of room."""
    told = []
    if len(panels) > PANELS:
        told.append(f"the first {PANELS} of {len(panels)} data sets")
    if len(drawn) < len(study.algorithms):
        which = f"{len(drawn)} of {len(study.algorithms)} algorithms"
        told.append(f"{which}, those of the best mean rank if there is one")
    return f" Drawn are {' and '.join(told)}." if told else ""


def _strict(tree):
    """Makes numbers plain and what is not finite null."""
    if isinstance(tree, dict):
        return {str(key): _strict(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_strict(value) for value in tree]
    if tree is pd.NA:
        return None
    value = tree.item() if hasattr(tree, "item") else tree
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write(path: pathlib.Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_bytes(data)
    part.replace(path)
