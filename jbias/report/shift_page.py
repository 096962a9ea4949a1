"""The page of networks trained under chosen shifts, its tables and figures.

Most figures are small multiples of tidy frames: a panel a value of "panel", a look a value of
"line".
"""

import argparse
import dataclasses
import functools
import math
import pathlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from jbias.data import shifts
from jbias.evals import decisions
from jbias.report import document, plots, shift_drops, shift_runs, tables
from jbias.runs import checksums

Cell, Cells, Recipe = shift_runs.Cell, shift_runs.Cells, shift_runs.Recipe
Row, Rows, Draws = shift_drops.Row, shift_drops.Rows, shift_drops.Draws
Study = shift_runs.Study
SECTIONS = {
    "verdicts": "Which attributes hurt",
    "remedies": "What remedies close",
    "levels": "Drops over levels",
    "ranks": "Ranks in and out of distribution",
    "learning": "The first iterations",
    "probabilities": "Probabilities of the right class",
    "sizes": "Sizes of data",
    "caveats": "What to keep in mind",
    "made": "What was trained",
}
_ALWAYS = (
    "Hu et al. name the kinds of shift, but give no shares: levels and their tables are ours.",
    "Drops are of means over seeds, and those of averages are of averages, as in their paper.",
    "All seeds see the same test images, so intervals include the full noise of these.",
)
_CAVEATS = {
    "remedies": "What {} would close is not known: no run of {} has the same model, data, images, "
    "attribute and level. Train one, or name another algorithm by --reference.",
    "single": "One seed alone does not show how seeds vary: {}. Its intervals and tests are over "
    "test images only. Train more, such as with seeds=5 after the colon of --config.",
    "few": "The smallest test set has {:,} images: accuracy on it is known to about {} points at "
    "best (one standard error at 50 %).",
    "control": "Without a control (M0, C0, J0), a drop is not due to the shift alone: {}. These "
    "drops are compared with 0.",
    "images": "Of some runs, provenance does not say how many images they trained on.",
}
_OPTIONS = ("tau", "alpha", "reference", "draws", "seed")
_INTERVAL = "In brackets: 95 % intervals over redrawn seeds and test images."


_RECIPE = "model algorithm data setting attribute"
_CAPTIONS = {
    "verdicts": "Which attribute hurts which recipe, worst first, by the kind of shift with the "
    "largest normalised drop (in % of accuracy in distribution, less the control's). A bug: the "
    "drop at the most extreme level is more than {tau:g} points above the control's by Welch's t "
    "test over seeds, with the variance over images, p below {alpha:g} after Holm over all "
    f"recipes, attributes and kinds. Area: mean drop over the levels. {_INTERVAL}",
    "kinds": "The same for every kind of shift that was run. Without a control, the drop itself "
    f"is tested. {_INTERVAL}",
    "remedies": "How much of the plain recipe's drop each remedy closes, at the most extreme "
    "level of both: 1 - drop / plain drop, where the plain drop is surely above 0. Gain: "
    "accuracy out of distribution won; ID cost: accuracy in distribution lost, in points. "
    f"Paired: the same seeds, redrawn together. {_INTERVAL}",
    "levels": "Every level: accuracy in %, mean ± std (n - 1) over n seeds. Share: how many of a "
    "class's images have the values that training prefers; 0.5 is the control. Group metrics are "
    f"of classes with values, by test set. {_INTERVAL}",
    "ranks": "Do models rank alike in and out of distribution at the most extreme level? "
    "Kendall's tau-b and Spearman's rho of mean accuracies, the pairs of models that cross, and "
    "95 % intervals of tau over redrawn seeds and images.",
    "runs": "The runs, with the seeds that have records, and images trained on.",
}
_DROPS = (
    "level percent:.2[] drop:.2[] control:.2[] over:.2[] normalised:.2[] area:.2[] seeds p:p "
    "holm:p"
)
_COLUMNS = {
    "verdicts": f"rank {_RECIPE} verdict kind {_DROPS}",
    "kinds": f"{_RECIPE} kind verdict {_DROPS}",
    "remedies": "data attribute level model algorithm setting pairs closed:.2[] drop:.2[] "
    "gain:.2[] id_cost:.2[] id ood seeds:d",
    "levels": f"{_RECIPE} level id ood drop:.2[] percent:.2[] share:.3 seeds:d images:d "
    "n_id:d n_ood:d",
    "ranks": "whose data attribute algorithm kind models crossed interval n:d tau:.2 tau_p:p "
    "rho:.2 rho_p:p",
    "runs": f"workdir {_RECIPE} level seeds ended device commit images:d",
}
_HEADS = {"percent": "drop %", "drop": "drop, points", "control": "at the control"}
_HEADS |= {"over": "above the control", "normalised": "normalised %", "pairs": "paired"}
_HEADS |= {"area": "area, points", "tau_p": "p", "rho_p": "p", "whose": "numbers"}


def table(name: str, rows: Iterable[Row], more="", **how: float) -> tables.Table | None:
    """Gives a table of the page; `more` ends its caption, `how` is what this names."""
    rows, columns = list(rows), tables.columns(_COLUMNS[name], **_HEADS)
    groups = dict.fromkeys(x for row in rows for x in row if x[0] == "_" and "@" in x)
    found = tables.from_rows(
        name,
        f"{_CAPTIONS[name].format(**how)}{more}",
        rows,
        columns | {key: (key[1:].replace("_", " "), str) for key in groups},
        bold=lambda row: ["verdict"] * (row.get("verdict") == shift_drops.BUG),
    )
    shade = dict.fromkeys(found.bold, 0.5) if found else {}
    return found and dataclasses.replace(found, shade=shade)


def report(study: shift_runs.Study, args: argparse.Namespace) -> document.Report:
    """Gives the page; the arguments are those of the command."""
    cells, draws = study.cells, Draws(args.draws, args.seed)
    how = {"tau": args.tau, "alpha": args.alpha}
    candidates, kinds = shift_drops.verdicts(cells, draws, **how)
    remedies = shift_drops.remedies(cells, draws, args.reference)
    realised = list(_realised(cells))
    caveats = list(_caveats(study, remedies, args.reference))
    rows = {"verdicts": candidates, "kinds": kinds, "remedies": remedies}
    rows["levels"] = [level for row in kinds for level in row["_levels"]]
    rows |= {"ranks": shift_drops.ranks(cells, draws), "runs": _runs(cells)}
    places = {"kinds": "verdicts", "runs": "made"}
    shown = [(places.get(x, x), table(x, of, **how)) for x, of in rows.items()]
    drawn, texts = figures(study, kinds, draws), [("caveats", document.Text(caveats))]
    texts += [("made", _folded(one)) for one in realised]
    own = ("kind", "attribute", "verdict")
    verdicts = [x["_recipe"]._asdict() | {k: x.get(k) for k in own} for x in candidates]
    return document.Report(
        title="jbias shifts",
        heading="Networks under chosen shifts",
        subtitle="Marginal, conditional and joint shifts of attributes, jbias report",
        answer=_answer(candidates, kinds, study, **how),
        facts={
            "Recipes": len({cell.recipe for cell in cells}),
            "Attributes": len({(cell.recipe.data, cell.attribute) for cell in cells}),
            "Levels": len({cell.level for cell in cells}),
            "Networks": sum(len(cell.seeds) for cell in cells),
            "Seeds each": tables.span((len(cell.seeds) for cell in cells), "–"),
        },
        sections=document.sections(SECTIONS, drawn, shown, texts),
        results={
            "selection": study.rule,
            "options": {name: getattr(args, name) for name in _OPTIONS},
            "verdicts": verdicts,
            "caveats": caveats,
            "realised": realised,
            "tables": {one.name: one.data for _, one in shown if one},
        },
        source="Shifts are those of Hu, Sang, Wang and Jiang, Understanding and Testing "
        "Generalization of Deep Networks on Out-of-Distribution Data, 2021.",
    )


def _answer(candidates: Rows, kinds: Rows, study, *, tau, alpha) -> tuple[str, str]:
    """Gives the answer in one sentence, and what it rests on."""
    tested = [x for x in candidates if x["verdict"] != shift_drops.UNKNOWN]
    count = sum(row["verdict"] != shift_drops.UNKNOWN for row in kinds)
    bugs = [row for row in tested if row["verdict"] == shift_drops.BUG]
    basis = f"What counts: {study.rule}."
    if not tested:
        where = " For networks trained on one value see jbias papers shifts."
        single = any(cell.single for cell in study.cells)
        return "No shift beyond the control was run.", f"{basis}{where * single}"
    count = f"{count} tests of kinds, adjusted after Holm at {alpha:g}"
    bound = f"A bug costs more than {tau:g} points beyond the control"
    basis = f"{len(tested)} recipes and attributes; {count}. {bound}. {basis}"
    if not bugs:
        return f"None of {len(tested)} candidates is found to be a bug.", basis
    first, several = bugs[0], len({row["_recipe"] for row in tested}) > 1
    whose = f"{first['attribute']}" + f" of {first['_recipe'].label}" * several
    are = "is a bug:" if len(bugs) == 1 else "are bugs, the worst of them"
    lost = f"its {first['kind']} shift costs {first['over']:.2f} points of accuracy"
    return f"{len(bugs)} of {len(tested)} candidates {are} {whose}; {lost}.", basis


def _runs(cells: Cells) -> Iterator[Row]:
    for cell in cells:
        for run in cell.runs:
            device, code = (run.provenance.get(x) or {} for x in ("device", "code"))
            row = {"workdir": run.workdir, **cell.recipe._asdict()}
            row |= {"setting": cell.recipe.told or None, "attribute": cell.attribute}
            row |= {"level": cell.level, "seeds": ", ".join(map(str, run.seeds))}
            row |= {"ended": "yes" if run.finished else "no"}
            row |= {"device": device.get("kind"), "commit": code.get("commit")}
            yield row | {"images": cell.images or None}


def _realised(cells: Cells) -> Iterator[dict[str, Any]]:
    """Gives the counts of each data, attribute, level and options, each once.

    As provenance has them, by set: rows are classes, columns values.
    """
    told: dict[str, dict] = {}
    for cell in cells:
        named = {"data": cell.recipe.data, "attribute": cell.attribute}
        named |= {"level": cell.level, "options": dict(sorted(cell.options.items()))}
        found = {}
        for name, one in cell.runs[0].data.items():
            one = one if isinstance(one, Mapping) else {}
            counts = one.get("tables") or {}
            column = "attribute" if "attribute" in counts else cell.attribute
            if column in counts:
                values = (one.get("values") or {}).get(column) or []
                found[name] = {"classes": one.get("names") or [], "values": values}
                found[name] |= {"counts": counts[column]}
        if found:
            told.setdefault(str(named), {**named, "sets": found})
    yield from told.values()


def _folded(one: Mapping[str, Any]) -> document.Folded:
    """Gives the counts of a level with their sums, each set under its name."""
    options = ", ".join(f"{k}={v}" for k, v in one["options"].items() if v)
    ending = f" ({options})" if options else ""
    title = f"Images of {one['data']} by {one['attribute']}, {one['level']}{ending}"
    parts = []
    for name, told in one["sets"].items():
        counts = np.asarray(told["counts"])
        counts = np.vstack([counts, counts.sum(axis=0)])
        counts = np.column_stack([counts, counts.sum(axis=1)])
        named = zip((told["classes"], told["values"]), counts.shape, strict=True)
        rows, columns = ([*(x or range(n - 1)), "all"] for x, n in named)
        parts.append(f"{name}\n{pd.DataFrame(counts, rows, columns).to_string()}")
    return document.Folded(title, "\n\n".join(parts))


def _caveats(study: Study, remedies: Rows, reference: str) -> Iterator[str]:
    """Says what limits what can be told."""
    unlike = " In and out of distribution are then of different evaluations."
    yield f"Selection: {study.rule}.{unlike * study.oracle}"
    yield from study.notes
    algorithms = {cell.recipe.algorithm for cell in study.cells} - {reference}
    if alone := algorithms - {row["algorithm"] for row in remedies}:
        yield _CAVEATS["remedies"].format(tables.join(sorted(alone)), reference)
    if single := {x.recipe.label for x in study.cells if len(x.seeds) < 2}:
        yield _CAVEATS["single"].format(tables.few(sorted(single)))
    fewest = min(n for cell in study.cells for n in cell.tested)
    error = math.ceil(100 / (2 * math.sqrt(fewest)))
    if error >= 3:
        yield _CAVEATS["few"].format(fewest, error)
    shares: dict[str, set[float]] = {}
    for cell in (cell for cell in study.cells if cell.kind):
        name = f"{cell.kind} by {cell.attribute} of {cell.recipe.label}"
        shares.setdefault(name, set()).add(cell.share)
    if lost := [name for name in shares if shift_runs.CONTROL not in shares[name]]:
        yield _CAVEATS["control"].format(tables.few(lost))
    if any(not cell.images for cell in study.cells):
        yield _CAVEATS["images"]
    yield from _ALWAYS


# Figures.

PANELS, LINES = 9, 12  # More on one figure nobody can read.
SETS = {shift_runs.ID: "in distribution", shift_runs.OOD: "out of distribution"}
FIRST, FEWEST = 1_000, 5  # Iterations of learning curves; evaluations that make one.
EPOCHS = "epochs"
_DRAWN = {
    "levels": "Drop in points over the levels of the {} shift, placed by share, with 95 % intervals; "
    "the first is the control.",
    "ranks": "Accuracy in and out of distribution at the most extreme level: a small mark for "
    "each seed, a large one for their mean.",
    "learning": f"Accuracy in % over the first {FIRST:,} iterations at the most extreme level of "
    "each kind: mean ± std over seeds.",
    "probabilities": "Probability of the right class at the most extreme level, of the images of "
    "all seeds; dots are means.",
    "sizes": "Accuracy in and out of distribution by {}; bands: 95 % intervals.",
}


def figures(study: Study, kinds: Rows, draws: Draws) -> Iterator[tuple]:
    """Gives the figures with their sections, of what there is."""
    extremes: dict[tuple, Cell] = {}
    for cell in sorted(study.cells, key=lambda one: one.share):
        if cell.kind and cell.share > shift_runs.CONTROL:
            extremes[cell.recipe, cell.attribute, cell.kind] = cell
    last = list(extremes.values())
    names = _short(cell.recipe for cell in last)
    titles = {f"{names[x.recipe]}, {x.attribute} {x.level}": x for x in last}
    drawn = [
        ("in_against_out", "ranks", "", _seeds(last, names), against),
        ("learning_curves", "learning", "", _learning(titles, study.frame), learning),
        ("probabilities", "probabilities", "", _likely(titles), probabilities),
    ]
    for kind in shifts.KINDS:
        ticks = {one.share: x for x, one in shifts.LEVELS.items() if one.kind == kind}
        labels = f"level ({kind})", "drop in points"
        draw = functools.partial(curves, labels=labels, ticks=ticks)
        drawn.append((f"levels_{kind}", "levels", kind, _levels(kind, kinds), draw))
    sizes = ("sizes", "images", "training images")
    widths = ("widths", "model.width", "width of the network")
    for name, setting, what in (sizes, widths):
        draw = functools.partial(curves, labels=(what, "accuracy in %"))
        drawn.append((name, "sizes", what, _sizes(study.cells, draws, setting), draw))
    for name, section, what, frame, draw in drawn:
        if len(frame):
            words = _DRAWN[section].format(what), _uneven(frame), left_out(frame)
            caption = " ".join(filter(None, words))
            yield section, document.Figure(name, caption, draw(frame))


def _levels(kind: str, kinds: Rows) -> pd.DataFrame:
    """Drops over the levels of one kind: a panel an attribute, a line a recipe."""
    curved = [x for x in kinds if x["kind"] == kind and len(x["_levels"]) > 1]
    names = _short(curve["_recipe"] for curve in curved)
    titles = _titles((curve["data"], curve["attribute"]) for curve in curved)
    return pd.DataFrame(
        {"panel": titles[curve["data"], curve["attribute"]]}
        | {"line": names[curve["_recipe"]], "x": level["share"]}
        | {"value": level["drop"], "low": level["drop_low"], "high": level["drop_high"]}
        for curve in curved
        for level in curve["_levels"]
    )


def _short(recipes: Iterable[Recipe]) -> dict[Recipe, str]:
    """Names recipes by what is not the same of all, and by the model."""
    recipes, parts = list(dict.fromkeys(recipes)), ["model"]
    for name in ("algorithm", "data"):
        parts += [name] * (len({getattr(one, name) for one in recipes}) > 1)
    names = {one: ", ".join(getattr(one, part) for part in parts) for one in recipes}
    return {x: name + f" [{x.told}]" * bool(x.told) for x, name in names.items()}


def _titles(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Names attributes, with their data where there are several."""
    pairs = dict.fromkeys(pairs)
    several = len({data for data, _ in pairs}) > 1
    return {pair: " by ".join(pair) if several else pair[1] for pair in pairs}


def _seeds(extremes: Cells, names: Mapping[Recipe, str]) -> pd.DataFrame:
    """Accuracies of seeds in and out of distribution: a panel a kind with several recipes."""
    titles = _titles((cell.recipe.data, cell.attribute) for cell in extremes)
    rows = []
    for cell in sorted(extremes, key=lambda one: shifts.KINDS.index(one.kind)):
        title = titles[cell.recipe.data, cell.attribute]
        panel = f"{cell.kind}, {title}" if len(titles) > 1 else cell.kind
        pairs = zip(100 * cell.inside, 100 * cell.outside, strict=True)
        rows += [(panel, names[cell.recipe], *pair) for pair in pairs]
    frame = pd.DataFrame(rows, columns=["panel", "line", "inside", "outside"])
    return frame[frame.groupby("panel")["line"].transform("nunique") > 1]


def _learning(titles: Mapping[str, Cell], frame: pd.DataFrame) -> pd.DataFrame:
    """Accuracies over the first iterations, of runs that were evaluated often."""
    panels = {run.workdir: x for x, cell in titles.items() for run in cell.runs}
    frame = frame[(frame["metric"] == "accuracy") & (frame["step"] <= FIRST)]
    frame = frame[(frame["condition"] == "") & frame["value"].notna()]
    panel = pd.Categorical(frame["workdir"].astype(str).map(panels), list(titles))
    frame = frame.assign(panel=panel, line=frame["dataset"].astype(str).map(SETS))
    groups = frame.groupby(["panel", "line", "step"], observed=True)["value"]
    frame = groups.agg(value="mean", std="std").mul(100).reset_index()
    frame = frame.rename(columns={"step": "x"})
    often = frame.groupby("panel", observed=True)["x"].transform("nunique")
    return frame[often >= FEWEST]


def _likely(titles: Mapping[str, Cell]) -> pd.DataFrame:
    """Probabilities of the right class, where decisions were kept with them."""
    parts = [
        pd.DataFrame({"panel": panel, "line": line, "value": values})
        for panel, cell in titles.items()
        if all(map(len, pair := [likelihoods(cell, x) for x in SETS]))
        for line, values in zip(SETS.values(), pair, strict=True)
    ]
    return pd.concat(parts) if parts else pd.DataFrame()


def likelihoods(cell: Cell, dataset: str) -> Float[np.ndarray, "n"]:
    """Gives the probabilities of the right class of all seeds at what was selected."""
    rows = cell.rows
    rows = rows[(rows["dataset"] == dataset) & (rows["metric"] == "accuracy")]
    found = [np.zeros(0)]
    for (workdir, step), some in rows.groupby(["workdir", "step"]):
        path = pathlib.Path(workdir) / f"decisions/{dataset}/{step}.parquet"
        if path.exists():
            checksums.check(workdir, path.as_posix().endswith)
            by_seed = decisions.read(path)
            columns = [by_seed[x].columns for x in some["seed"] if x in by_seed]
            found += [one["likelihood"] for one in columns if "likelihood" in one]
    return np.concatenate(found, dtype=np.float64)


def _sizes(cells: Cells, draws: Draws, setting: str) -> pd.DataFrame:
    """Accuracies by size, a panel of each runs that differ in nothing else.

    They may differ in epochs, too, if no size has several of these.
    """
    groups: dict[tuple, dict[tuple[int, Any], Cell]] = {}
    for cell in cells:
        size = cell.images or "" if setting == "images" else cell.settings.get(setting)
        if cell.share > shift_runs.CONTROL and str(size).isdecimal():
            recipe, but = cell.recipe, (setting, EPOCHS)
            title = f"{recipe.model}, {cell.attribute} {cell.level}, {recipe.algorithm}"
            rest = (*sorted(cell.options.items()), *sorted(cell.settings.items()))
            key = title, recipe.data, *(x for x in rest if x[0] not in but)
            epochs = cell.settings.get(EPOCHS)
            groups.setdefault(key, {})[int(size), epochs] = cell
    rows, seen = [], []
    for (title, *_), sized in groups.items():
        several = len({size for size, _ in sized}) < len(sized)
        for apart in dict.fromkeys(several and epochs for _, epochs in sized):
            those = [x for x in sized if not several or x[1] == apart]
            seen.append(title)
            again = seen.count(title)
            panel = f"{title} ({again})" if again > 1 else title
            for size, epochs in sorted(those) if len(those) > 1 else ():
                drawn = draws.of(sized[size, epochs])
                for line, values in zip(SETS.values(), drawn, strict=True):
                    row = {"panel": panel, "line": line, "x": size, "epochs": epochs}
                    rows.append(row | shift_drops.estimate(100 * values)._asdict())
    return pd.DataFrame(rows)


def _uneven(frame: pd.DataFrame) -> str:
    """Says along which lines epochs are not the same."""
    if "epochs" not in frame:
        return ""
    counts = frame.groupby("panel", sort=False)["epochs"].nunique(dropna=False)
    names = tables.join(counts.index[counts > 1])
    return f"Epochs are not the same along {names}." if names else ""


def curves(frame: pd.DataFrame, labels, ticks=None) -> plots.Figure:
    """Draws lines with intervals; panels have one scale of y.

    frame: panel, line, x, value, low, high. labels: of x and y. ticks: names of places on the
    axis of x; None: x grows by factors, and its values are named.
    """
    names = frame["line"].unique()[:LINES]
    frame = _first(frame[frame["line"].isin(names)])
    ends = min(0.0, frame["low"].min()) - 2, max(10.0, frame["high"].max()) + 2

    def finish(axes, rows: pd.DataFrame) -> None:
        if ticks is None:
            axes.set_xscale("log")
        places = ticks or {x: f"{x:,}" for x in rows["x"]}
        axes.set_xticks(list(places), list(places.values()))
        axes.minorticks_off()
        axes.set_ylim(*ends)

    return plots.curves(frame, plots.styles(names), labels, finish=finish)


def against(frame: pd.DataFrame) -> plots.Figure:
    """Draws out over in distribution, in %: a small dot a seed, a large one their mean.

    frame: panel, line, inside, outside; a row a seed.
    """
    looks = plots.marks(sorted(frame["line"].unique()))

    def draw(axes, rows: pd.DataFrame) -> None:
        for name, spots in rows.groupby("line")[["inside", "outside"]]:
            axes.scatter(*spots.to_numpy().T, s=9, alpha=0.45, lw=0, **looks[name])
            axes.scatter(*spots.mean(), s=46, lw=0, **looks[name])
        axes.margins(0.12)

    labels = "in distribution, %", "out of distribution, %"
    panels = dict(iter(_first(frame).groupby("panel", sort=False)))
    return plots.multiples(panels, draw, labels, plots.handles(looks))


def learning(frame: pd.DataFrame) -> plots.Figure:
    """Draws means and deviations; frame: panel, line, x, value, std."""
    looks, labels = plots.styles(SETS.values()), ("iteration", "accuracy in %")
    return plots.curves(_first(frame), looks, labels)


def probabilities(frame: pd.DataFrame) -> plots.Figure:
    """Draws how often the right class has which probability; frame: panel, line, value."""
    panels = {
        title: {name: (part, None) for name, part in rows.groupby("line")["value"]}
        for title, rows in _first(frame).groupby("panel", sort=False)
    }
    looks = plots.styles(SETS.values())
    return plots.histograms(panels, looks, "probability of the right class")


def _first(frame: pd.DataFrame) -> pd.DataFrame:
    """Gives the rows of the panels that a figure has room for."""
    return frame[frame["panel"].isin(frame["panel"].unique()[:PANELS])]


def left_out(frame: pd.DataFrame) -> str:
    """Says what a figure leaves out for want of room."""
    told, panels = [], frame["panel"].nunique()
    if panels > PANELS:
        told.append(f"the first {PANELS} of {panels} panels")
    if "x" in frame and (recipes := frame["line"].nunique()) > LINES:
        told.append(f"{LINES} of {recipes} recipes")
    return f"Drawn are only {tables.join(told)}." if told else ""
