"""The report that compares algorithms: its sections, figures and results.json."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from jbias.report import analysis as analysis_lib
from jbias.report import benchmark_tables as made
from jbias.report import (
    document,
    few_seeds,
    grids,
    inputs,
    plots,
    prose,
    seed_sections,
    tables,
)
from jbias.runs import results, selection

Analysis = analysis_lib.Analysis
PANELS, CURVES = 9, 12  # More on one figure nobody can read.
_DOTS = 20_000  # Of seeds; more hide the lines.
_SECTIONS = {
    "scores": "Scores",
    "tests": "What is significant",
    "alike": "Test sets that are alike",
    "seeds": "How stable",
    "few_seeds": "Would few seeds have lied?",
    "grid": "Does it hold at every value?",
    "power": "How much power",
    "caveats": "What to keep in mind",
    "shape_bias": "Shape bias",
    "selection": "Selection",
    "curves": "Over epochs",
    "runs": "Single runs",
    "provenance": "What was run",
    "methods": "Methods, to paste",
}


def report(study: analysis_lib.BenchmarkScores) -> document.Report:
    """Tests the scores, and gives the page of what was found."""
    reference = study.options.reference
    if reference and reference not in study.algorithms:
        raise ValueError(
            f"--reference: must be an algorithm, got {reference!r}: "
            f"{', '.join(study.algorithms)}"
        )
    if study.options.paired_seeds and len(study.datasets) > analysis_lib.FEW_SETS:
        raise ValueError(
            "--paired-seeds: is for the tests over seeds of one or two data sets, got "
            f"{len(study.datasets)} data sets; leave it out, or name two by --datasets"
        )
    tested = analysis_lib.analyse(study)
    # Little of this waits for the rest: most of the evidence is numpy's, the rest pandas'.
    analysis, drawn_curves, varying, fewer, over, _ = analysis_lib.run_side_by_side(
        [
            lambda: analysis_lib.with_evidence(tested),
            lambda: [*curves(tested)],
            lambda: variability(study) if study.is_runs else None,
            lambda: [("few_seeds", block) for block in few_seeds.blocks(study)],
            lambda: [("grid", block) for block in grids.blocks(study)],
            lambda: study.warnings,  # Which the study keeps.
        ]
    )
    by_seeds = [("tests", block) for block in seed_sections.blocks(analysis)]
    placed = [*by_seeds, *_tables(analysis, varying), *fewer, *over]
    methods = prose.methods(analysis, seed_sections.methods(analysis))
    bib = prose.bib(methods.keys)
    answer = prose.answer(analysis, seed_sections.answer(analysis))
    biases = prose.shape_biases(made.shape_biases(study))
    several = tables.count(len(study.algorithms), "algorithm")
    metric = study.options.metric.replace("_", " ").capitalize()
    about = filter(None, (prose.demonstration(study), *study.understood))
    # The figure of ranks stands below the scores, figures else above tables.
    ranks = [("scores", _ranks(analysis))] if analysis.tests else []
    drawn = [*figures(analysis, varying), *drawn_curves]
    parts = _words(analysis), drawn, placed, ranks
    return document.Report(
        title="jbias report",
        heading=tables.join(study.algorithms) if len(study.algorithms) < 7 else several,
        subtitle=f"{metric} on {tables.count(len(study.datasets), 'data set')}, jbias report"
        + "".join(f"; {line}" for line in about),
        answer=answer,
        highlights=biases,
        points=[*biases, *(prose.points(analysis) or answer[1:])],
        warnings=prose.warnings(analysis),
        facts=_facts(analysis),
        sections=document.sections(
            _SECTIONS,
            *parts,
            _texts(analysis, methods, bib),
            unfolded=("scores", "tests") if by_seeds else ("scores",),
            printed=("tests",),
        ),
        results=_results(analysis, placed, methods),
        files={
            "methods.md": prose.markdown(methods.paragraph, methods.others),
            "methods.bib": bib,
        },
    )


def _facts(analysis: Analysis) -> dict[str, object]:
    study, (n, k) = analysis.study, analysis.means.shape
    facts = {
        "Algorithms": len(study.algorithms),
        "Data sets": len(study.datasets),
        "In the tests": f"{k} × {n}" if _is_tested(analysis) else "none",
    }
    if study.is_of_means:
        facts["Scores"] = "means over runs"
    else:
        facts[f"{study.repeats.capitalize()} each"] = tables.span(study.seeds, "–")
    if study.is_runs:
        facts["Selection"] = study.options.selection.replace("_", " ")
    sizes = study.values.dropna(subset="n").groupby("dataset")["n"].max()
    if len(sizes):
        facts["Test images"] = f"{int(sizes.sum()):,}"
    if study.diverged is not None and len(study.diverged):
        facts["Diverged seeds"] = len(study.diverged)
    return facts


def _is_tested(analysis: Analysis) -> bool:
    """Return whether ranks were tested, or seeds."""
    by_seeds = analysis.by_seeds
    return analysis.friedman is not None or bool(by_seeds and by_seeds.family)


def _words(analysis: Analysis) -> document.Placed:
    """Gives what is said in words at the head of a section."""
    said = {"tests": prose.untested(analysis)}
    if analysis.tests:
        said |= {"seeds": prose.stability(analysis), "power": prose.power(analysis)}
        said["alike"] = prose.alike(analysis)
    for section, paragraphs in said.items():
        for text in paragraphs:
            yield section, document.Text(text)


def _texts(analysis: Analysis, methods: prose.Methods, bib: str) -> document.Placed:
    yield "caveats", document.Text(prose.notes(analysis))
    yield "provenance", document.Text(f"Made from {analysis.study.source}.")
    for run in analysis.study.runs:
        if run.config is not None:
            text = json.dumps(dict(run.config), indent=1, ensure_ascii=False)
            title = f"All settings of {run.workdir}"
            yield "provenance", document.Folded(title, text)
    yield "methods", document.Text(methods.paragraph)
    if methods.others:
        yield (
            "methods",
            document.Folded("Methods of the other sections", methods.others),
        )
    yield "methods", document.Folded("Works cited, as BibTeX", bib)


def _tables(analysis: Analysis, varying: pd.DataFrame | None) -> document.Placed:
    """Gives the tables in the order in which they stand."""
    study = analysis.study
    yield "scores", made.scores(analysis)
    if study.options.reference:
        yield "scores", made.reference(analysis)
    if analysis.tests:
        tests = made.omnibus, made.strict, made.nemenyi, made.posthoc
        seeds = made.stability, made.differences
        if "dunn" in analysis.tests:
            tests, seeds = (*tests, made.control), (*seeds, made.outperforming)
        shown = {"tests": (*tests, made.ranks)}
        if analysis.alike:
            shown["alike"] = made.blocked, made.dataset_blocks
        if analysis.runs is not None:
            shown |= {"seeds": seeds, "power": (made.power,)}
        for section, makers in shown.items():
            for make in makers:
                yield section, make(analysis)
    if not study.is_of_means:
        yield "runs", made.runs(study)
    if study.is_runs:
        yield "selection", made.validation(study)
        yield "selection", made.selection_tests(analysis)
        yield "selection", made.selections(study)
        yield "selection", made.variability(study, varying)
        yield "shape_bias", made.shape_bias(study)
        for make in (made.settings, made.costs, made.provenance, made.data):
            yield "provenance", make(study)


def _results(analysis: Analysis, placed, methods: prose.Methods) -> Mapping[str, Any]:
    """Gives what a script needs of a report without parsing HTML.

    Tables of tests are listed by their names, with the numbers of their CSV files.
    """
    study, tested = analysis.study, analysis.friedman is not None
    frames = {t.name: t.data for _, t in placed if isinstance(t, tables.Table)}
    listed = ("omnibus", "posthoc", "control", "strict", "stability", "differences")
    listed += ("outperforming", "few_seeds", "grid", "grid_pairs")
    listed += ("blocked", "dataset_blocks")
    tree = {
        "source": study.source,
        "read_as": study.understood,
        **{x: getattr(study.options, x) for x in _ASKED},
        "selection_rule": study.rule,
        "algorithms": study.algorithms,
        "datasets": study.datasets,
        "table": analysis.cells,
        "alpha": analysis.alpha,
        "tested": {
            "algorithms": analysis.algorithms if tested else [],
            "datasets": analysis.datasets if tested else [],
            "left_out": [{"name": n, "reason": why} for n, why in analysis.left_out],
            "why_not": analysis.why_not,
        },
        **(_tests(analysis) if tested else dict.fromkeys(_TESTS)),
        "seed_tests": seed_sections.results(analysis),
        "caveats": prose.caveats(analysis),
        "twins": [{"names": names, "why": why} for *names, why in study.twins],
        "at_chance": study.at_chance,
        "derived": [{"kind": x.kind, **x.item._asdict()} for x in study.derived],
        "methods": methods.paragraph,
        "methods_of_other_sections": methods.others,
        "trained_on": sorted(study.trained),
        **{n: frames[n] for n in (*listed, "power", "variability") if n in frames},
    }
    if study.is_runs:
        tree["shape_bias"] = frames.get("shape_bias", [])
        tree["diverged"] = study.diverged
        others = ((name, study.cells_of(values)) for name, values in study.others)
        tree["other_selections"] = dict(others)
        tree["runs"] = [{"workdir": r.workdir, "label": r.label} for r in study.runs]
    return tree


_ASKED = ("metric", "larger_is_better", "selection")
_TESTS = ("friedman", "friedman_uncorrected", "permutation", "nemenyi")


def _tests(analysis: Analysis) -> dict[str, Any]:
    names, exact, nemenyi = analysis.algorithms, analysis.permutation, analysis.nemenyi
    keys = "p", "exact", "standard_error"
    permutation = dict(zip(keys, (exact.pvalue, exact.exact, exact.standard_error)))
    friedman = [
        {
            "chi2": result.chi2,
            "chi2_p": result.chi2_pvalue,
            "F": result.statistic,
            "F_is_infinite": math.isinf(result.statistic),
            "p": result.pvalue,
            "df": result.df,
            "kendall_w": result.kendall_w,
            "mean_ranks": dict(zip(names, result.ranks, strict=True)),
        }
        for result in (analysis.friedman, analysis.uncorrected)
    ]
    levels = sorted({0.05, 0.1, analysis.alpha})
    distances = {f"{x:g}": nemenyi.critical_difference(x) for x in levels}
    claimed = pd.DataFrame(analysis.significant, columns=["better", "worse", "p"])
    pairs = {
        "p": pd.DataFrame(nemenyi.pvalues, names, names).to_dict("index"),
        "critical_difference": distances,
        "significant": claimed,
        "cliques": [[names[i] for i in clique] for clique in analysis.cliques],
    }
    return dict(zip(_TESTS, (*friedman, permutation, pairs), strict=True))


def variability(study: analysis_lib.BenchmarkScores) -> pd.DataFrame:
    """Gives how scores vary inside runs and between them, per algorithm and data set.

    `within` is the deviation over the last evaluations of a seed (root of the mean
    variance over seeds), `between` that of the seeds' means over these; ddof 1. Source:
    BiasBed, figure 2.
    """
    every = _evaluated(study, study.options.metric, study.datasets)
    if not every["epoch"].is_monotonic_increasing:
        every = every.sort_values("epoch", kind="stable")
    keys = results.number_rows(every, ["label", "dataset", "run", "seed"])
    later = selection.count_later(keys)
    mine = later < study.options.last
    tail = every["value"][mine].groupby(keys[mine]).agg(["mean", "var", "size"])
    ends = later == 0
    seeds = every.loc[ends, ["label", "dataset"]].set_index(keys[ends]).join(tail)
    groups = seeds.astype({"label": str, "dataset": str}).groupby(["label", "dataset"])
    varying = {"within": np.sqrt(groups["var"].mean()), "between": groups["mean"].std()}
    varying |= {"seeds": groups.size(), "evaluations": groups["size"].min()}
    order = pd.MultiIndex.from_product([study.algorithms, study.datasets])
    frame = pd.DataFrame(varying).reindex(order)
    return frame.rename_axis(["algorithm", "dataset"]).reset_index()


def _evaluated(study, metric: str, datasets: Sequence[str]) -> pd.DataFrame:
    """Gives a metric's value of each seed at each epoch; conditions are averaged."""
    chosen, by = study.chosen, ["label", "dataset", "run", "seed", "epoch"]
    mine = (chosen["metric"] == metric) & chosen["dataset"].isin(datasets)
    return inputs.averaged(chosen.loc[mine, [*by, "condition", "value"]], by)


def figures(analysis: Analysis, varying: pd.DataFrame | None) -> document.Placed:
    """Yield the figures with the sections in which they stand, but for `curves`."""
    if analysis.tests:
        for by in analysis.alike:
            yield "alike", _alike(analysis, by)
        if analysis.runs is not None:
            yield "seeds", _iqm(analysis)
            yield "seeds", _profiles(analysis)
            yield "power", _power(analysis)
    if analysis.study.is_runs:
        yield "selection", _variability(analysis.study, varying)


def curves(analysis: Analysis) -> document.Placed:
    """Yield the figures of scores over epochs, which need no evidence."""
    if analysis.study.is_runs:
        for metric in dict.fromkeys((analysis.study.options.metric, "shape_bias")):
            yield "curves", _curves(analysis, metric)


def _ranks(analysis: Analysis) -> document.Figure:
    names, ranks = analysis.algorithms, analysis.nemenyi.ranks
    looks = plots.styles(analysis.study.algorithms)
    how = dict(alpha=analysis.alpha, colours=[looks[x]["color"] for x in names])
    bars = analysis.cliques, analysis.critical_difference
    drawn = lambda: plots.critical_difference(names, ranks, *bars, **how)
    caption = "Mean ranks, the best on the left. A bar joins algorithms that Nemenyi's test does not "
    caption += f"tell apart at α = {analysis.alpha:g}."
    return document.Figure("critical_difference", caption, drawn)


def _alike(analysis: Analysis, by: str) -> document.Figure:
    found, names = analysis.alike[by][0], analysis.datasets
    frame = pd.DataFrame(found.correlations, names, names)
    frame, labels = frame.iloc[found.order, found.order], found.labels[found.order]
    caption = f"Correlations over algorithms by {by}, in the order of the tree; blocks are framed."
    drawn = lambda: plots.blocks(frame, labels)
    return document.Figure(f"alike_by_{by}", caption, drawn)


def _iqm(analysis: Analysis) -> document.Figure:
    iqm, order = analysis.seeds["intervals"].iqm, analysis.order
    names = [analysis.algorithms[i] for i in order]
    three = [part[order] for part in (iqm.value, iqm.low, iqm.high)]
    caption = "Interquartile mean of scores normalised by the worst and best run of each data set, "
    caption += f"with {analysis.bounds} over redrawn {analysis.study.repeats}."
    label = "IQM, 0 the worst, 1 the best"
    drawn = lambda: plots.intervals(names, *three, label=label)
    return document.Figure("iqm", caption, drawn)


def _profiles(analysis: Analysis) -> document.Figure:
    what = analysis.study.repeats
    profiles = analysis.seeds["performance_profiles"]
    names = [name for name in _leading(analysis) if name in analysis.algorithms]
    places, x = [analysis.algorithms.index(name) for name in names], profiles.thresholds
    frame = {"panel": "", "line": np.repeat(names, len(x)), "x": np.tile(x, len(names))}
    for key in ("value", "low", "high"):
        frame[key] = getattr(profiles.share, key)[places].ravel()
    every = plots.styles(analysis.study.algorithms)
    looks = {name: every[name] for name in names}
    labels = "normalised score", f"share of {what} above"
    caption = f"Performance profiles: the share of {what} × data sets whose normalised score reaches "
    caption += f"a threshold, with {analysis.bounds}, pointwise."
    size = dict(alone=9.0, cell=(0, 3.4))
    drawn = lambda: plots.curves(pd.DataFrame(frame), looks, labels, **size)
    return document.Figure("profiles", caption, drawn)


def _power(analysis: Analysis) -> document.Figure:
    power, what = analysis.seeds["power"], analysis.study.repeats
    frame = pd.DataFrame(power.power["nemenyi"], power.seeds, power.datasets)
    caption = f"Power: how often a study with so many {what} and data sets would find one algorithm "
    caption += f"better by {power.difference:g} with Nemenyi's test at α = {power.alpha:g}, by "
    caption += "simulation from the spread seen here. Framed: "
    caption += f"at least {power.target:g}."
    labels = "data sets", what
    drawn = lambda: plots.power(frame, target=power.target, labels=labels)
    return document.Figure("power", caption, drawn)


def _variability(study, data: pd.DataFrame) -> document.Figure | None:
    names, kinds = study.algorithms[:CURVES], ["within", "between"]
    data = data[data["algorithm"].isin(names)].set_index("algorithm")
    if not data[kinds].notna().any().all():
        return None
    each = [study.unit.scale * data.loc[[name], kinds] for name in names]
    values = {f"{kind} runs": [one[kind].to_numpy() for one in each] for kind in kinds}
    unit = f" in {study.unit.name}" if study.unit.name else ""
    caption = "How scores vary on the data sets: inside runs over their last evaluations, and "
    caption += "between runs. Boxes span the quartiles, whiskers all data sets."
    label = f"standard deviation{unit}"
    drawn = lambda: plots.variability(names, values, label=label)
    return document.Figure("variability", caption, drawn)


def _curves(analysis: Analysis, metric: str) -> document.Figure | None:
    study, leading = analysis.study, _leading(analysis)
    frame, seeds = _by_epoch(study, metric)
    if frame.empty:
        return None
    unit, limits = analysis_lib.unit_of(metric, frame["value"]), []
    panels = frame["panel"].unique()
    if len(panels) > PANELS:
        limits.append(f"the first {PANELS} of {len(panels)} data sets")
    if len(leading) < len(study.algorithms):
        which = f"{len(leading)} of {len(study.algorithms)} algorithms"
        limits.append(f"{which}, those of the best mean rank if there is one")
    limited = f" Drawn are {' and '.join(limits)}." if limits else ""
    name = metric.replace("_", " ").capitalize()
    beyond = unit.beyond(frame["value"], frame["std"])
    ranged = panels[[beyond[frame["panel"] == one].any() for one in panels]]
    frame = frame[frame["panel"].isin(panels[:PANELS]) & frame["line"].isin(leading)]
    keys = ["panel", "line", "x"]
    drawn = [panel for panel in ranged if panel in panels[:PANELS]]
    shown_rows = seeds["panel"].isin(drawn) & seeds["line"].isin(leading)
    seeds = seeds.loc[shown_rows, [*keys, "value"]]
    seeds = seeds[_is_full(seeds)]
    ends = {"low": frame["value"] - frame["std"].fillna(0)}
    frame = frame.assign(**ends, high=2 * frame["value"] - ends["low"]).set_index(keys)
    shown = seeds.groupby(keys, observed=True)["value"].agg(["median", "min", "max"])
    if few := len(seeds) <= _DOTS:
        shown[["min", "max"]] = math.nan
    shown = shown.reset_index().astype({"panel": str, "line": str}).set_index(keys)
    columns = ["value", "low", "high"]
    frame.loc[shown.index, columns] = shown.to_numpy()
    frame = frame[columns].mul(unit.scale).reset_index()
    every = plots.styles(study.algorithms)
    looks = {name: every[name] for name in leading}

    are_whole = (frame["x"] % 1 == 0).all()

    def dots(axes, rows: pd.DataFrame) -> None:
        if are_whole:  # No tick at epoch 1.5.
            axes.xaxis.get_major_locator().set_params(integer=True)
        points = seeds[seeds["panel"] == rows["panel"].iloc[0]]
        for name, line in points.groupby("line", observed=True) if few else ():
            look = dict(color=looks[name]["color"], ms=2.5, mew=0, alpha=0.5)
            axes.plot(line["x"], unit.scale * line["value"], "o", **look)

    named = f"{name}{' in %' if unit.scale == 100 else ''}"
    caption = f"{named} over epochs: mean ± one standard "
    caption += "deviation over seeds, or where that leaves [0, 100] % medians and "
    caption += f"{'a dot a seed' if few else 'ranges'}, without diverged seeds. Each panel has an "
    caption += f"axis of its own.{limited}"
    drawn = lambda: plots.curves(frame, looks, ("epoch", named), finish=dots)
    return document.Figure(f"curves_{metric}", caption, drawn)


def _by_epoch(study, metric: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Gives mean (value) and std over seeds by data set (panel), algorithm and epoch.

    Second, a row a seed: the same keys, and its value.
    """
    chosen, wanted = study.chosen, [*dict.fromkeys([results.VALID, *study.datasets])]
    if metric != study.options.metric:
        wanted = list(chosen["dataset"][chosen["metric"] == metric].unique())
    values = _evaluated(study, metric, wanted).dropna(subset="value")
    values = values.rename(columns={"dataset": "panel", "label": "line", "epoch": "x"})
    groups = values.groupby(["panel", "line", "x"], observed=True)["value"]
    frame = groups.agg(value="mean", std="std", size="size").reset_index()
    frame = frame.astype({"panel": str, "line": str})
    # Where seeds are missing the mean would jump for no reason of training.
    full = frame.groupby(["panel", "line"])["size"].transform("max")
    frame = frame[frame["size"] == full]
    order = lambda names: names.map(wanted.index)
    return frame.sort_values("panel", key=order, kind="stable"), values


def _is_full(seeds: pd.DataFrame) -> pd.Series:
    """Return whether each row is of an epoch at which no seed of its line is missing."""
    line = ["panel", "line"]
    sizes = seeds.groupby([*line, "x"], observed=True)["value"].transform("size")
    most = sizes.groupby([seeds[name] for name in line], observed=True).transform("max")
    return sizes == most


def _leading(analysis: Analysis) -> tuple[str, ...]:
    """Gives the algorithms whose curves are drawn: all, or the best if they are many."""
    names, best = analysis.study.algorithms, []
    if len(names) > CURVES and analysis.nemenyi is not None:
        best = [analysis.algorithms[i] for i in analysis.order]
    return (*best, *(name for name in names if name not in best))[:CURVES]
