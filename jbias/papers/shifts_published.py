"""Tables 1 to 3 of the paper on tests under chosen shifts: its layout, ours beside theirs.

Source: Hu, Sang, Wang and Jiang, Understanding and Testing Generalization of Deep Networks on
Out-of-Distribution Data, 2021, https://arxiv.org/abs/2111.09190. Accuracies and drops in %.

The Drop% of its Table 2 is the mean of the relative drops over all columns, that of the
trained value, 0, among them: (m - 1) / m of the drop of the mean over the m - 1 others. Both
are shown.
"""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from jbias import numerals
from jbias.data import shifts
from jbias.papers import printed_numbers
from jbias.report import document, shift_drops, shift_page, shift_runs, tables

AVERAGE = "Average"
FULL, FEW = "Full", "1K"  # Sizes of training sets in Table 2.
MODELS = {
    "resnet18": "ResNet18",
    "resnet34": "ResNet34",
    "squeezenet1_0": "SqueezeNet1.0",
    "squeezenet1_1": "SqueezeNet1.1",
    "mobilenetv3_small": "MobileNet v3",
    "mobilenetv3_large": "MobileNet v3",
    "cnn": "2-layer CNN",
    "alexnet": "AlexNet",
    "vgg11": "Vgg11",
    "densenet121": "DensNet121",
    "resnext50": "ResNeXt50",
}
# By the first word of what data is called here.
DATA = {"colored_mnist": "ColoredMNIST", "celeba": "CelebA"}
HAIR = {f"{colour}_Hair" for colour in ("Black", "Blond", "Brown", "Gray")}
_HEADS = ("ID", "OOD", "Drop %")
_FEW_IMAGES = 1_300  # Up to so many the paper's rows of 1,000 are the like.
_NOTHING = ("–",) * 3
_MEANS = (
    "Ours: mean ± standard deviation over n seeds (n - 1 in the denominator); drops of means, "
    "100 (ID - OOD) / ID, with 95 % intervals over redrawn seeds and test images."
)
_CAPTIONS = {
    "table1_kinds": "Table 1. Accuracy in % in and out of distribution, and the drop, at the "
    "most extreme level run of each kind (named where it is not the last). Averages are over "
    f"models, and their drops are of averages. {_MEANS}",
    "table2_single_values": "Table 2. Trained on one value of the attribute, tested on each: "
    "accuracy in %, in bold on held-out images of the trained value; mean ± standard deviation "
    "over n seeds. OOD: mean over the other values, or accuracy on all their images where these "
    "were tested together. Drop %: 100 (ID - OOD) / ID. Paper's drop: as printed, the mean of "
    "relative drops over all m columns, the trained value's 0 among them, so (m - 1) / m of the "
    f"drop. The paper's sizes are {FEW} (a thousand images) and {FULL}.",
    "table3_clusters": "Table 3. Trained on one cluster: accuracy in % on its held-out part, and "
    "the mean over the other clusters, or accuracy on all their images where these were tested "
    "together. D1 holds the largest cluster of each class. The paper prints no drops here; "
    f"theirs are computed from its numbers. {_MEANS}",
}
Cell, Cells, Draws = shift_runs.Cell, shift_runs.Cells, shift_drops.Draws
Part = dict[str, dict[str, Cell]]  # By network and kind.
Row = tuple[str, ...]
two = tables.digits(2)
# By file, the columns that name numbers, and those of numbers; averages are of the model
# "Average".
_COLOUR = ("model", "train_colour", "train_size")
_FILES = {
    "ood_table1": (("dataset", "model", "shift"), ("id_acc", "ood_acc", "drop_pct")),
    "ood_table2": ((*_COLOUR, "test_colour"), ("accuracy",)),
    "ood_table2_drops": (_COLOUR, ("drop_pct",)),
    "ood_table3": (("train_cluster", "model"), ("id_acc", "ood_acc_avg")),
}
# By file and names.
Printed = Mapping[str, Mapping[tuple[str, ...], tuple[float, ...]]]


def read(folder: str) -> Printed:
    """Reads ood_*.csv of a folder, "" for none. Raises ValueError where one is amiss."""
    found: dict[str, dict] = {name: {} for name in _FILES}
    for name, columns in _FILES.items() if folder else ():
        parse = functools.partial(_numbers, *columns)
        found[name] = dict(printed_numbers.read(folder, name, parse))
    return found


def _numbers(names: Row, numbers: Row, row: Mapping[str, str]) -> tuple[Row, tuple]:
    return tuple(row[x] for x in names), tuple(numerals.real(row[x]) for x in numbers)


def extended(printed: Printed, page: document.Report, study, args) -> document.Report:
    """Gives a report of shifts with the paper's tables, and the ranks of its models.

    args: as `shift_page.report` takes them.
    """
    draws = Draws(args.draws, args.seed)
    ours = list(shift_drops.ranks(study.cells, draws))
    known = {data_of(cell) for cell in study.cells}
    theirs = [x for x in printed_ranks(printed) if ours or x["data"] in known]
    told = " The paper's are computed from its Table 1, one run a model."
    ranks = shift_page.table("ranks", [*ours, *theirs], told)
    added = of(study.cells, printed, draws)
    sections = []
    for one in page.sections:
        if one.id == "ranks":
            sections.append(document.Section("tables", "The paper's tables", added))
            kept = [x for x in one.blocks if not isinstance(x, tables.Table)]
            one = dataclasses.replace(one, blocks=[*kept, *filter(None, [ranks])])
        sections.append(one)
    more = {table.name: table.data for table in filter(None, (*added, ranks))}
    results = {**page.results, "tables": page.results["tables"] | more}
    source = f"{page.source} Tables are numbered as in that paper."
    return dataclasses.replace(page, sections=sections, results=results, source=source)


def printed_ranks(printed: Printed) -> Iterator[shift_drops.Row]:
    """Gives the agreement of the paper's Table 1, without its averages."""
    rows = [(*key, *pair) for key, pair in printed["ood_table1"].items()]
    frame = pd.DataFrame(rows, columns=["data", "model", "kind", "id", "ood", "drop"])
    frame = frame[frame["model"] != AVERAGE]
    for (data, kind), those in frame.groupby(["data", "kind"], sort=False):
        pair = (those[[name]].to_numpy() for name in ("id", "ood"))
        named, pair = ("paper", "", data, "", kind), shift_drops.Drawn(*pair)
        yield shift_drops.agreement(named, those["model"], pair)


def data_of(cell: Cell) -> str:
    """Gives what the paper calls the data of a cell, "" if it has not these.

    Of faces it has gender by four colours of hair alone.
    """
    name = _named(cell)
    told = [cell.settings.get(f"train.{x}", "") for x in ("label", "attribute")]
    others = told[0] != "Male" or {*told[1].split("+")} != HAIR
    return "" if name == "CelebA" and others else name


def _named(cell: Cell) -> str:
    """Gives what the paper calls a data set of ours, whatever its labels; "" if it has it not."""
    return DATA.get(cell.recipe.data.partition("/")[0], "")


def of(cells: Cells, printed: Printed, draws: Draws) -> list[tables.Table]:
    """Gives the tables that something here is of."""
    single = [cell for cell in cells if cell.single]
    clusters = [cell for cell in single if re.fullmatch(r"D\d+", cell.single)]
    colours = [cell for cell in single if cell not in clusters]
    shifted = [x for x in cells if x.kind and x.share > shift_runs.CONTROL]
    made = [_kinds(shifted, printed, draws)] if shifted else []
    made += [_singles(colours, printed)] if colours else []
    return made + ([_clusters(clusters, printed, draws)] if clusters else [])


def _kinds(cells: Cells, printed: Printed, draws: Draws) -> tables.Table:
    """Gives Table 1; of each kind the most extreme level."""
    parts: dict[str, Part] = {}
    for cell in sorted(cells, key=lambda one: one.share):
        networks = parts.setdefault(_trained(cell), {})
        networks.setdefault(cell.recipe.network, {})[cell.kind] = cell
    rows = []
    for name in sorted(parts):
        for *words, of_kinds in _part(parts[name], printed, draws):
            found = (of_kinds.get(kind, _NOTHING) for kind in shifts.KINDS)
            rows.append((name, *words, *(x for three in found for x in three)))
    of_parts = (parts[name].values() for name in sorted(parts))
    full = _full((x for part in of_parts for by in part for x in by.values()), draws)
    heads = (f"{kind} {word}" for kind in shifts.KINDS for word in _HEADS)
    return _table("table1_kinds", ("model", "numbers", *heads), rows, full, texts=3)


def _table(name: str, head: Row, rows: Sequence[Row], data, **more) -> tables.Table:
    head = ("Trained on", *head)
    return tables.Table(name, _CAPTIONS[name], head, tuple(rows), data, **more)


def _part(part: Part, printed: Printed, draws: Draws) -> Iterator[tuple]:
    """Gives model, whose numbers, and these by kind: of all models that have one data set."""
    name = data_of(next(iter(next(iter(part.values())).values())))
    theirs: dict[str, dict[str, tuple]] = {}
    for (data, model, kind), numbers in printed["ood_table1"].items():
        if data == name:
            theirs.setdefault(model, {})[kind] = numbers
    shown = {}
    for network in sorted(part):
        cells = part[network].values()
        model = next(iter(cells)).recipe.model
        known = MODELS.get(model, "")
        yield network, _seeds(cells), {cell.kind: _ours(cell, draws) for cell in cells}
        if known in theirs and known not in shown:
            yield f"{model}: {known}", "paper", _paper(theirs, [known])
        shown[known] = model
    if len(part) > 1:
        all_kinds = [cell for by in part.values() for cell in by.values()]
        means = {}
        for kind in shifts.KINDS:
            those = [by[kind] for by in part.values() if kind in by]
            if len(those) == len(part):
                means[kind] = _average(those, draws)
        yield AVERAGE, _seeds(all_kinds), means
        if shown.keys() <= theirs.keys() and 1 < len(shown) < len(theirs) - 1:
            yield f"{AVERAGE} of these models", "paper", _paper(theirs, list(shown))
    others = [x for x in theirs if x not in (*shown, AVERAGE)]
    for model in [AVERAGE] * (AVERAGE in theirs) + others:
        yield model, "paper", _paper(theirs, [model])


def _ours(cell: Cell, draws: Draws) -> Row:
    """Shows a cell's accuracies and drop."""
    drop = shift_drops.estimate(draws.of(cell).percent)
    ending = f" ({cell.level})" if cell.share < 1 else ""
    return (*map(shift_drops.spread, (cell.inside, cell.outside)), f"{drop}{ending}")


def _average(cells: Cells, draws: Draws) -> Row:
    """Shows accuracies averaged over cells, and the drop of these averages."""
    pairs = zip(*(draws.of(cell) for cell in cells), strict=True)
    mean = shift_drops.Drawn(*(np.mean(one, axis=0) for one in pairs))
    drop = str(shift_drops.estimate(mean.percent))
    return two(100 * mean.inside[0]), two(100 * mean.outside[0]), drop


def _paper(theirs: Mapping[str, Mapping[str, tuple]], models: Sequence[str]) -> dict:
    """Shows printed numbers by kind; of several models averages and the drops of these."""
    found = {}
    for kind in shifts.KINDS:
        those = [theirs[model].get(kind) for model in models]
        if None not in those:
            inside, outside, drop = np.mean(those, axis=0)
            several = float(shift_drops.percent(inside, outside))
            shown = inside, outside, drop if len(those) == 1 else several
            found[kind] = tuple(map(two, shown))
    return found


def _singles(cells: Cells, printed: Printed) -> tables.Table:
    """Gives Table 2: a row a model, trained value and size, a column a tested value."""
    values = list(dict.fromkeys(name for cell in cells for name in _values(cell)))
    rows, data, own, told = [], [], set(), set()
    for cell in sorted(cells, key=lambda x: (*_place(x), values.index(x.single))):
        name, network, _ = _place(cell)
        found = {cell.single: cell.inside, **cell.others}
        drop, compat = drops_of(cell)
        size = FEW if 0 < cell.images <= _FEW_IMAGES else FULL
        images = f", {cell.images:,} images" if cell.images else ""
        shown = [shift_drops.spread(found[x]) if x in found else "–" for x in values]
        shown += [shift_drops.spread(cell.outside), two(drop), two(compat)]
        lines = [(f"{_seeds([cell])}{images}", *shown)]
        theirs = _printed_single(cell, size, values, printed)
        if theirs and (network, cell.single, size) not in told:
            told.add((network, cell.single, size))
            lines.append((f"paper, {size}", *theirs))
        for line in lines:
            own.add((len(rows), 4 + values.index(cell.single)))
            rows.append((name, network, cell.single, *line))
        words = {"trained": name, "model": network, "value": cell.single}
        drops = {"drop_percent": drop, "drop_paper_compat": compat}
        for tested, accuracy in found.items():
            row = words | {"images": cell.images, "tested": tested}
            row |= {"accuracy": 100 * float(accuracy.mean()), "seeds": len(accuracy)}
            data.append(row | drops)
    head = ("model", "value", "numbers", *values, "OOD", "drop %", "paper's drop %")
    full, more = pd.DataFrame(data), dict(bold=frozenset(own), texts=4)
    return _table("table2_single_values", head, rows, full, **more)


def _values(cell: Cell) -> list[str]:
    """Gives the tested values of a cell, in the order of its data if that is told."""
    known = [cell.single, *cell.others]
    return [name for name in _all_values(cell) if name in known] or sorted(known)


def _all_values(cell: Cell) -> list[str]:
    """Gives all values of a cell's attribute as provenance has them, [] if it has not."""
    for run in cell.runs:
        for told in (run.data[x] for x in run.data if isinstance(run.data[x], Mapping)):
            values = told.get("values") or {}
            for names in (values.get("attribute"), values.get(cell.attribute)):
                if names and {cell.single, *cell.others} <= set(names):
                    return list(names)
    return []


def drops_of(cell: Cell) -> tuple[float, float]:
    """Gives the drop in %, and as the paper prints it; NaN if it is not known of how many."""
    drop = float(shift_drops.percent(cell.inside.mean(), cell.outside.mean()))
    values = len(cell.others) + 1 if cell.others else len(_all_values(cell))
    return drop, paper_compat(drop, values) if values else math.nan


def paper_compat(drop: float, values: int) -> float:
    """The mean of relative drops over all values, of which the trained one has none."""
    return drop * (values - 1) / values


def _printed_single(cell: Cell, size: str, values, printed: Printed) -> list[str]:
    """Shows the paper's row of the same model, colour and size, [] if there is none."""
    key = MODELS.get(cell.recipe.model, ""), cell.single[:1].upper(), size
    found = [printed["ood_table2"].get((*key, name[:1].upper())) for name in values]
    here = data_of(cell) == "ColoredMNIST" and key in printed["ood_table2_drops"]
    if not here or None in found:
        return []
    numbers = np.ravel(found)
    own = values.index(cell.single)
    outside = np.delete(numbers, own).mean()
    drop = shift_drops.percent(numbers[own], outside)
    compat = printed["ood_table2_drops"][key]
    return [*map(two, (*numbers, outside, float(drop), *compat))]


def _clusters(cells: Cells, printed: Printed, draws: Draws) -> tables.Table:
    """Gives Table 3: a row a cluster, D1 first, and their means."""
    cells = sorted(cells, key=lambda x: (*_place(x)[:2], int(x.single[1:])))
    rows = []
    for (name, network), each in itertools.groupby(cells, lambda x: _place(x)[:2]):
        those = list(each)
        known = MODELS.get(those[0].recipe.model, "")
        # The paper does not say here which of its two it is.
        known = "SqueezeNet" if known.startswith("SqueezeNet") else known
        for cell in those:
            words = network, cell.single, _seeds([cell])
            rows.append((name, *words, *_ours(cell, draws)))
            pair = printed["ood_table3"].get((cell.single, known))
            if pair and _named(cell) == "CelebA":
                numbers = *pair, float(shift_drops.percent(*pair))
                words = f"{network}: {known}", cell.single, "paper"
                rows.append((name, *words, *map(two, numbers)))
        rows.append((name, network, "mean", _seeds(those), *_average(those, draws)))
    head = ("model", "cluster", "numbers", *_HEADS)
    return _table("table3_clusters", head, rows, _full(cells, draws), texts=4)


def _place(cell: Cell) -> tuple[str, str, int]:
    return _trained(cell), cell.recipe.network, cell.images


def _trained(cell: Cell) -> str:
    """Says what a part of a table has in common but for models and kinds."""
    recipe = cell.recipe
    ending = f" [{recipe.dealt}]" if recipe.dealt else ""
    return f"{recipe.data} by {cell.attribute}, {recipe.algorithm}{ending}"


def _seeds(cells: Iterable[Cell]) -> str:
    """Says whose a row is, and of how many seeds."""
    return f"here, n={tables.span((len(cell.seeds) for cell in cells), '–')}"


def _full(cells: Iterable[Cell], draws: Draws) -> pd.DataFrame:
    """Gives cells' numbers in full, for files."""
    rows = []
    for cell in cells:
        drawn = draws.of(cell)
        drop = shift_drops.estimate(drawn.percent)
        of = _trained(cell), cell.recipe.network, cell.kind or None, cell.level
        ends = 100 * drawn.inside[0], 100 * drawn.outside[0]
        rows.append((*of, len(cell.seeds), *ends, *drop))
    names = "trained model kind level seeds id ood drop_percent low high"
    return pd.DataFrame(rows, columns=names.split())
