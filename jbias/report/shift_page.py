"""The page and the files of the report of networks trained under chosen shifts."""

import argparse
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from jbias.report import document, shift_drops, shift_plots, shift_runs, tables

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
_OPTIONS = ("tau", "alpha", "reference", "draws", "seed")
_INTERVAL = "In brackets: 95 % intervals over redrawn seeds and test images."


def _columns(form: Callable[..., str], names: str = "", **heads: str) -> dict:
    """Gives columns of one form, which are called as their keys are or as `heads` says."""
    heads = {name: name for name in names.split()} | heads
    return {key: (head, form) for key, head in heads.items()}


_words, _counts = (functools.partial(_columns, x) for x in (str, tables.whole))
_p, _two = (functools.partial(_columns, x) for x in (tables.p_text, tables.digits(2)))
_NUMBERS = (
    _words("level", _percent="drop %", _drop="drop, points", _control="at the control")
    | _words(_over="above it", _normalised="normalised %", _area="area, points")
    | _words(seeds="n")
    | _p("p", holm="p (Holm)")
)
_RECIPE = "model algorithm data setting attribute"
_CAPTIONS = {
    "verdicts": "Which attribute hurts which recipe, worst first. A bug is a kind of shift whose "
    "drop at the most extreme level exceeds the control's by more than {tau:g} points: Welch's t "
    "test over seeds, with the variance over images, p below {alpha:g} after Holm over all "
    "recipes, attributes and kinds. Kind: the one with the largest normalised drop (in % of "
    "accuracy in distribution, less the control's), of the bugs if there are any. Area: mean "
    f"drop over the levels. {_INTERVAL}",
    "kinds": "The same for every kind of shift that was run. Without a control, the drop itself "
    f"is tested. {_INTERVAL}",
    "remedies": "How much of the plain recipe's drop each remedy closes, at the most extreme "
    "level that both were trained at. Closed: 1 - drop / plain drop; a dash where the plain drop "
    "is not surely above 0. Gain: accuracy out of distribution won; ID cost: accuracy in "
    "distribution lost, in points. A remedy near chance in distribution has no drop either, but "
    f"mends nothing. Paired: the same seeds, redrawn together. {_INTERVAL}",
    "levels": "Every level: accuracy in %, mean ± standard deviation over n seeds (n - 1 in the "
    "denominator). Share: how many of a class's images have the values that training prefers; "
    f"0.5 is the control. Group metrics are of classes with values, by test set. {_INTERVAL}",
    "ranks": "Do models rank alike in and out of distribution at the most extreme level? "
    "Kendall's tau-b and Spearman's rho of mean accuracies, with p over all orders (9,999 random "
    "ones for more than 7 models), the pairs of models that cross, and 95 % intervals of tau "
    "over redrawn seeds and images.",
    "runs": "The runs, with the seeds that have records, and images trained on.",
}
_COLUMNS = {  # Metrics of groups go behind those of words.
    "verdicts": _words(rank="Rank") | _words(f"{_RECIPE} verdict kind") | _NUMBERS,
    "kinds": _words(f"{_RECIPE} kind verdict") | _NUMBERS,
    "remedies": _words(data="Data")
    | _words("attribute level model algorithm setting", pairs="paired")
    | _words(_closed="closed", _drop="drop, points", _gain="gain", _id_cost="ID cost")
    | _words(id="ID", ood="OOD")
    | _counts(seeds="n"),
    "levels": _words(f"{_RECIPE} level", id="ID", ood="OOD")
    | _words(_drop="drop, points", _percent="drop %")
    | _columns(tables.digits(3), "share")
    | _counts(seeds="n", images="images trained", n_id="ID images", n_ood="OOD images"),
    "ranks": _words(whose="Numbers")
    | _words("data attribute algorithm kind models", crossed="discordant")
    | _words(interval="interval of tau")
    | (_counts("n") | _two("tau") | _p(tau_p="p") | _two("rho") | _p(rho_p="p")),
    "runs": _words(workdir="Workdir")
    | _words(f"{_RECIPE} level seeds ended device commit")
    | _counts("images"),
}
Cells = Sequence[shift_runs.Cell]
Rows = Sequence[shift_drops.Row]


def table(
    name: str, rows: Iterable[shift_drops.Row], more: str = "", **how: float
) -> tables.Table | None:
    """Gives a table of the page; `more` ends its caption, `how` is what this names."""
    rows, columns = list(rows), _COLUMNS[name]
    words = {key: column for key, column in columns.items() if column[1] is str}
    groups = dict.fromkeys(x for row in rows for x in row if x[0] == "_" and "@" in x)
    words |= {key: (key[1:].replace("_", " "), str) for key in groups}
    found = tables.from_rows(
        name,
        f"{_CAPTIONS[name].format(**how)}{more}",
        rows,
        words | columns,
        strong=lambda row: ["verdict"] * (row.get("verdict") == shift_drops.BUG),
    )
    shade = dict.fromkeys(found.strong, 0.5) if found else {}
    return found and dataclasses.replace(found, shade=shade)


def report(study: shift_runs.Study, args: argparse.Namespace) -> document.Report:
    """Gives the page; the arguments are those of the command."""
    cells, draws = study.cells, shift_drops.Draws(args.draws, args.seed)
    how = {"tau": args.tau, "alpha": args.alpha}
    candidates, kinds = shift_drops.verdicts(cells, draws, **how)
    remedies = shift_drops.remedies(cells, draws, args.reference)
    levels = [level for row in kinds for level in row["_levels"]]
    realised = list(_realised(cells))
    caveats = list(_caveats(study, remedies, args.reference))
    shown = [
        ("verdicts", table("verdicts", candidates, **how)),
        ("verdicts", table("kinds", kinds)),
        ("remedies", table("remedies", remedies)),
        ("levels", table("levels", levels)),
        ("ranks", table("ranks", shift_drops.ranks(cells, draws))),
        ("made", table("runs", _runs(cells))),
    ]
    counts = sorted({len(cell.seeds) for cell in cells})
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
            "Seeds each": "–".join(map(str, dict.fromkeys((counts[0], counts[-1])))),
        },
        sections=document.sections(
            SECTIONS,
            shift_plots.of(study, kinds, draws),
            shown,
            [("caveats", document.Text(caveats))],
            (("made", _folded(one)) for one in realised),
        ),
        results={
            "selection": study.rule,
            "options": {name: getattr(args, name) for name in _OPTIONS},
            "verdicts": [
                {**one["_recipe"]._asdict(), "kind": one.get("kind")}
                | {name: one[name] for name in ("attribute", "verdict")}
                for one in candidates
            ],
            "caveats": caveats,
            "realised": realised,
            "tables": {one.name: one.data for _, one in shown if one},
        },
        source="Shifts are those of Hu, Sang, Wang and Jiang, Understanding and Testing "
        "Generalization of Deep Networks on Out-of-Distribution Data, 2021.",
    )


def _answer(
    candidates: Rows, kinds: Rows, study: shift_runs.Study, *, tau: float, alpha: float
) -> tuple[str, str]:
    """Gives the answer in one sentence, and what it rests on."""
    tested = [x for x in candidates if x["verdict"] != shift_drops.UNKNOWN]
    count = sum(row["verdict"] != shift_drops.UNKNOWN for row in kinds)
    bugs = [row for row in tested if row["verdict"] == shift_drops.BUG]
    basis = f"What counts: {study.rule}."
    if not tested:
        where = " For networks trained on one value see python -m jbias.papers.shifts."
        single = any(cell.single for cell in study.cells)
        return "No shift beyond the control was run.", f"{basis}{where * single}"
    basis = (
        f"{len(tested)} recipes and attributes; {count} tests of kinds, adjusted after Holm at "
        f"{alpha:g}. A bug costs more than {tau:g} points beyond the control. {basis}"
    )
    if not bugs:
        return f"None of {len(tested)} candidates is found to be a bug.", basis
    first, several = bugs[0], len({row["_recipe"] for row in tested}) > 1
    whose = f" of {first['_recipe'].label}" if several else ""
    are = "is a bug:" if len(bugs) == 1 else "are bugs, the worst of them"
    lost = f"its {first['kind']} shift costs {first['over']:.2f} points of accuracy"
    answer = f"{len(bugs)} of {len(tested)} candidates {are} {first['attribute']}{whose}; {lost}."
    return answer, basis


def _runs(cells: Cells) -> Iterator[shift_drops.Row]:
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
    told = set()
    for cell in cells:
        named = {"data": cell.recipe.data, "attribute": cell.attribute}
        named |= {"level": cell.level, "options": dict(sorted(cell.options.items()))}
        found = {}
        for name, one in (cell.runs[0].provenance.get("data") or {}).items():
            one = one if isinstance(one, Mapping) else {}
            counts = one.get("tables") or {}
            column = "attribute" if "attribute" in counts else cell.attribute
            if column in counts:
                found[name] = {
                    "classes": one.get("names") or [],
                    "values": (one.get("values") or {}).get(column) or [],
                    "counts": counts[column],
                }
        if found and str(named) not in told:
            told.add(str(named))
            yield {**named, "sets": found}


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
        rows, columns = (
            [*(told[key] or range(n - 1)), "all"]
            for key, n in zip(("classes", "values"), counts.shape, strict=True)
        )
        parts.append(f"{name}\n{pd.DataFrame(counts, rows, columns).to_string()}")
    return document.Folded(title, "\n\n".join(parts))


def _caveats(
    study: shift_runs.Study, remedies: Sequence[shift_drops.Row], reference: str
) -> Iterator[str]:
    """Says what limits what can be told."""
    unlike = " In and out of distribution are then of different evaluations."
    yield f"Selection: {study.rule}.{unlike * study.oracle}"
    yield from study.notes
    algorithms = {cell.recipe.algorithm for cell in study.cells} - {reference}
    if alone := algorithms - {row["algorithm"] for row in remedies}:
        yield (
            f"What {tables.join(sorted(alone))} would close is not known: no run of "
            f"{reference} has the same model, data, images, attribute and level. Train one, or "
            "name another algorithm by --reference."
        )
    single = {cell.recipe.label for cell in study.cells if len(cell.seeds) < 2}
    if single:
        yield (
            "One seed alone does not show how seeds vary: "
            f"{shift_runs.few(sorted(single))}. Its intervals and tests are over test images "
            "only. Train more, such as with seeds=5 after the colon of --config."
        )
    fewest = min(n for cell in study.cells for n in cell.tested)
    error = math.ceil(100 / (2 * math.sqrt(fewest)))
    if error >= 3:
        yield (
            f"The smallest test set has {fewest:,} images: accuracy on it is known to about "
            f"{error} points at best (one standard error at 50 %)."
        )
    shares: dict[str, set[float]] = {}
    for cell in study.cells:
        if cell.kind:
            name = f"{cell.kind} by {cell.attribute} of {cell.recipe.label}"
            shares.setdefault(name, set()).add(cell.share)
    lost = [name for name in shares if shift_runs.CONTROL not in shares[name]]
    if lost:
        yield (
            "Without a control (M0, C0, J0), a drop is not due to the shift alone: "
            f"{shift_runs.few(lost)}. These drops are compared with 0."
        )
    if any(not cell.images for cell in study.cells):
        yield "Of some runs, provenance does not say how many images they trained on."
    yield from _ALWAYS
