"""Tables 1 to 3 of a paper on distribution shifts, with our and the printed numbers.

Source: Hu, Sang, Wang and Jiang, Understanding and Testing Generalization of Deep Networks on
Out-of-Distribution Data, 2021, https://arxiv.org/abs/2111.09190. Accuracies and drops in %.

The printed Drop % of Table 2 is the mean of the relative drops over all m columns,
including 0 for the trained value. This is (m - 1) / m of the drop of the mean over the
m - 1 other values. Our tables show both.
"""

import argparse
import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from jbias import numerals
from jbias.data import shifts
from jbias.papers import printed_numbers
from jbias.report import document, tables
from jbias.report.pages.shifts import shift_cells, shift_drops, shifts_page

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
# By the first part of our name of the data.
DATA = {"colored_mnist": "ColoredMNIST", "celeba": "CelebA"}
HAIR = {f"{colour}_Hair" for colour in ("Black", "Blond", "Brown", "Gray")}
_HEADS = ("ID", "OOD", "Drop %")
_FEW_IMAGES = 1_300  # Up to this size, a row is compared with the paper's 1,000 images.
_EMPTY = ("–",) * 3
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
ShiftCell, ShiftCells = shift_cells.ShiftCell, shift_cells.ShiftCells
AccuracyDraws = shift_drops.AccuracyDraws
CellsByNetwork = dict[str, dict[str, ShiftCell]]  # By network, then by kind of shift.
Row = tuple[str, ...]  # Cells of a table as text.
two_digits = tables.digits(2)
_COLOUR = ("model", "train_colour", "train_size")
# By file: the columns of names, and the columns of numbers. The model "Average" has the
# averages over models.
_FILES = {
    "ood_table1": (("dataset", "model", "shift"), ("id_acc", "ood_acc", "drop_pct")),
    "ood_table2": ((*_COLOUR, "test_colour"), ("accuracy",)),
    "ood_table2_drops": (_COLOUR, ("drop_pct",)),
    "ood_table3": (("train_cluster", "model"), ("id_acc", "ood_acc_avg")),
}
# The printed numbers by file (key of _FILES), then by the texts in its columns of names.
Printed = Mapping[str, Mapping[tuple[str, ...], tuple[float, ...]]]


def read(folder: str) -> Printed:
    """Return the printed numbers in the files ood_*.csv of a folder.

    For the folder "", no file is read, and each file has {}. ValueError for a missing file or an
    invalid row.
    """
    printed: dict[str, dict] = {name: {} for name in _FILES}
    if not folder:
        return printed
    for name, (name_columns, number_columns) in _FILES.items():

        def parse(
            row: Mapping[str, str],
            name_columns: Row = name_columns,
            number_columns: Row = number_columns,
        ) -> tuple[Row, tuple[float, ...]]:
            """Return (names, numbers) of a row."""
            names = tuple(row[column] for column in name_columns)
            return names, tuple(numerals.real(row[column]) for column in number_columns)

        printed[name] = dict(printed_numbers.read(folder, name, parse))
    return printed


def extended(
    printed: Printed,
    page: document.Report,
    study: shift_cells.ShiftStudy,
    args: argparse.Namespace,
) -> document.Report:
    """Return a report of shifts with the paper's tables and the ranks of its models added.

    printed: result of `read`. page: result of shifts_page.report for `study`. args: the parsed
    flags; `draws` and `seed` of the bootstrap are used.
    """
    draws = AccuracyDraws(args.draws, args.seed)
    our_ranks = list(shift_drops.ranks(study.cells, draws))
    our_data = {data_of(cell) for cell in study.cells}
    their_ranks = [
        row for row in printed_ranks(printed) if our_ranks or row["data"] in our_data
    ]
    note = " The paper's are computed from its Table 1, one run a model."
    ranks = shifts_page.ranks_table([*our_ranks, *their_ranks], note)
    new_tables = make_tables(study.cells, printed, draws)
    sections = []
    for section in page.sections:
        if section.id == "ranks":
            title = "The paper's tables"
            sections.append(document.Section("tables", title, new_tables))
            blocks = [x for x in section.blocks if not isinstance(x, tables.Table)]
            if ranks:
                blocks.append(ranks)
            section = dataclasses.replace(section, blocks=blocks)
        sections.append(section)
    data = {table.name: table.data for table in filter(None, (*new_tables, ranks))}
    results = {**page.results, "tables": page.results["tables"] | data}
    source = f"{page.source} Tables are numbered as in that paper."
    return dataclasses.replace(page, sections=sections, results=results, source=source)


def printed_ranks(printed: Printed) -> Iterator[shift_drops.TableRow]:
    """Yield rows on the agreement of models' ranks in and out of distribution in the paper.

    One row per data set and kind of shift of the paper's Table 1, without the averages over models.
    Columns: see shift_drops.agreement.
    """
    rows = [(*names, *numbers) for names, numbers in printed["ood_table1"].items()]
    frame = pd.DataFrame(rows, columns=["data", "model", "kind", "id", "ood", "drop"])
    frame = frame[frame["model"] != AVERAGE]
    for (data, kind), group in frame.groupby(["data", "kind"], sort=False):
        names = ("paper", "", data, "", kind)
        drawn = shift_drops.DrawnAccuracies(
            group[["id"]].to_numpy(), group[["ood"]].to_numpy()
        )
        yield shift_drops.agreement(names, group["model"], drawn)


def data_of(cell: ShiftCell) -> str:
    """Return the paper's name of a cell's data set; "" if the paper does not have this set.

    For CelebA, the paper has only the label gender with four colours of hair.
    """
    name = _data_name(cell)
    label = cell.settings.get("train.label", "")
    attribute = cell.settings.get("train.attribute", "")
    has_paper_labels = label == "Male" and {*attribute.split("+")} == HAIR
    return "" if name == "CelebA" and not has_paper_labels else name


def _data_name(cell: ShiftCell) -> str:
    """Return the paper's name of a cell's data set, for any labels; "" if not in the paper."""
    return DATA.get(cell.recipe.data.partition("/")[0], "")


def make_tables(
    cells: ShiftCells, printed: Printed, draws: AccuracyDraws
) -> list[tables.Table]:
    """Return the tables, among the paper's Tables 1 to 3, for which there are cells.

    printed: result of `read`. draws: the bootstrap draws.
    """
    single = [cell for cell in cells if cell.only_value]
    clusters = [cell for cell in single if re.fullmatch(r"D\d+", cell.only_value)]
    colours = [cell for cell in single if cell not in clusters]
    shifted = [x for x in cells if x.kind and x.share > shift_cells.CONTROL]
    new_tables = []
    if shifted:
        new_tables.append(_table1(shifted, printed, draws))
    if colours:
        new_tables.append(_table2(colours, printed))
    if clusters:
        new_tables.append(_table3(clusters, printed, draws))
    return new_tables


def _table1(cells: ShiftCells, printed: Printed, draws: AccuracyDraws) -> tables.Table:
    """Return Table 1, with rows by training data, model and source of the numbers.

    The source is our runs (their number of seeds) or "paper". Columns of the page: training data,
    model, source, and ID accuracy, OOD accuracy and drop, in %, for each of shifts.KINDS at the
    most extreme level; the files have the columns of `_cell_numbers`. cells: with a kind of shift.
    printed: result of `read`. draws: the bootstrap draws.
    """
    groups: dict[str, CellsByNetwork] = {}  # By training data.
    # Later cells, of more extreme levels, replace earlier cells.
    for cell in sorted(cells, key=lambda x: x.share):
        networks = groups.setdefault(_trained(cell), {})
        networks.setdefault(cell.recipe.network, {})[cell.kind] = cell
    rows, table_cells = [], []
    for name in sorted(groups):
        for model, source, numbers in _table1_rows(groups[name], printed, draws):
            row = [name, model, source]
            for kind in shifts.KINDS:
                row += numbers.get(kind, _EMPTY)
            rows.append(tuple(row))
        for cells_by_kind in groups[name].values():
            table_cells += cells_by_kind.values()
    heads = [f"{kind} {head}" for kind in shifts.KINDS for head in _HEADS]
    return _table(
        "table1_kinds",
        ("model", "numbers", *heads),
        rows=rows,
        data=_cell_numbers(table_cells, draws),
        texts=3,
    )


def _table(
    name: str,
    titles: Row,
    *,
    rows: Sequence[Row],
    data: pd.DataFrame,
    texts: int,
    bold: frozenset[tuple[int, int]] = frozenset(),
) -> tables.Table:
    """Return a table whose first column is titled "Trained on".

    name: name of the table's files, a key of _CAPTIONS. titles: titles of the other columns. rows:
    cells as text, including the first column. data: unrounded numbers, for the files. texts: the
    number of leading columns with words. bold: cells (row, column) in bold.
    """
    return tables.Table(
        name,
        _CAPTIONS[name],
        ("Trained on", *titles),
        tuple(rows),
        data,
        bold=bold,
        texts=texts,
    )


def _table1_rows(
    networks: CellsByNetwork, printed: Printed, draws: AccuracyDraws
) -> Iterator[tuple[str, str, dict[str, Row]]]:
    """Yield (model, source of the numbers, (ID, OOD, drop) by kind) for rows of one data set.

    Our networks come first; the paper's row of a model follows the first network of this model.
    Averages (ours only for several networks) and the other models of the paper come last.
    networks: cells of one data set. printed: result of `read`. Numbers are texts, in %.
    """
    first_cells = next(iter(networks.values()))
    name = data_of(next(iter(first_cells.values())))
    # Printed numbers by model and kind.
    theirs: dict[str, dict[str, tuple[float, ...]]] = {}
    for (data, model, kind), numbers in printed["ood_table1"].items():
        if data == name:
            theirs.setdefault(model, {})[kind] = numbers
    our_models = {}  # Our names by the paper's.
    for network in sorted(networks):
        cells = networks[network].values()
        model = next(iter(cells)).recipe.model
        their_name = MODELS.get(model, "")
        yield network, _seeds(cells), {cell.kind: _ours(cell, draws) for cell in cells}
        if their_name in theirs and their_name not in our_models:
            yield f"{model}: {their_name}", "paper", _paper(theirs, [their_name])
        our_models[their_name] = model
    if len(networks) > 1:
        all_cells = [
            cell
            for cells_by_kind in networks.values()
            for cell in cells_by_kind.values()
        ]
        means = {}
        for kind in shifts.KINDS:
            of_kind = [cells[kind] for cells in networks.values() if kind in cells]
            if len(of_kind) == len(networks):
                means[kind] = _average(of_kind, draws)
        yield AVERAGE, _seeds(all_cells), means
        has_all = our_models.keys() <= theirs.keys()
        if has_all and 1 < len(our_models) < len(theirs) - 1:
            numbers = _paper(theirs, list(our_models))
            yield f"{AVERAGE} of these models", "paper", numbers
    if AVERAGE in theirs:
        yield AVERAGE, "paper", _paper(theirs, [AVERAGE])
    for model in theirs:
        if model not in (*our_models, AVERAGE):
            yield model, "paper", _paper(theirs, [model])


def _ours(cell: ShiftCell, draws: AccuracyDraws) -> Row:
    """Return (ID accuracy, OOD accuracy, drop) of a cell as texts, in %.

    Accuracies are "mean ± standard deviation". The drop is in % of the ID accuracy, with its
    interval. The level of the shift follows in brackets, unless all training images of a class
    have its preferred values.
    """
    drop = shift_drops.estimate(draws.draw(cell).percent)
    level = f" ({cell.level})" if cell.share < 1 else ""
    return (
        shift_drops.spread(cell.inside),
        shift_drops.spread(cell.outside),
        f"{drop}{level}",
    )


def _average(cells: ShiftCells, draws: AccuracyDraws) -> Row:
    """Return (ID accuracy, OOD accuracy, drop) of the means over cells as texts, in %.

    The text of the drop has the interval of the bootstrap. cells: of any models and levels. draws:
    the bootstrap draws.
    """
    drawn = [draws.draw(cell) for cell in cells]
    mean = shift_drops.DrawnAccuracies(
        np.mean([x.inside for x in drawn], axis=0),
        np.mean([x.outside for x in drawn], axis=0),
    )
    drop = str(shift_drops.estimate(mean.percent))
    inside, outside = 100 * mean.inside[0], 100 * mean.outside[0]
    return two_digits(inside), two_digits(outside), drop


def _paper(
    theirs: Mapping[str, Mapping[str, tuple[float, ...]]], models: Sequence[str]
) -> dict[str, Row]:
    """Return printed (ID accuracy, OOD accuracy, drop) as texts, in %, by kind of shift.

    theirs: printed numbers by model and kind. models: names of models; accuracies of several models
    are averaged before the drop is computed. A kind that a model lacks is left out.
    """
    texts = {}
    for kind in shifts.KINDS:
        numbers = [theirs[model].get(kind) for model in models]
        if None not in numbers:
            inside, outside, drop = np.mean(numbers, axis=0)
            if len(numbers) > 1:
                drop = float(shift_drops.percent(inside, outside))
            texts[kind] = tuple(map(two_digits, (inside, outside, drop)))
    return texts


def _table2(cells: ShiftCells, printed: Printed) -> tables.Table:
    """Return Table 2: rows by model, trained value and size, columns by tested value.

    Further columns: OOD, drop, and drop as the paper computes it. The paper's row of a model, value
    and size, if any, follows the first of our rows with the same model, value and size. Accuracies
    on the trained value are bold.
    cells: trained on a single value. printed: result of `read`.
    """
    values = list(dict.fromkeys(name for cell in cells for name in _values(cell)))
    rows, data = [], []
    trained_places = set()  # Of the cells of the trained values, which are bold.
    printed_rows = set()  # The paper's rows that are shown already.
    for cell in sorted(
        cells, key=lambda x: (*_sort_key(x), values.index(x.only_value))
    ):
        trained, network = _trained(cell), cell.recipe.network
        accuracies = {cell.only_value: cell.inside, **cell.others}
        drop, paper_drop = drops_of(cell)
        size = FEW if 0 < cell.images <= _FEW_IMAGES else FULL
        images = f", {cell.images:,} images" if cell.images else ""
        texts = [
            shift_drops.spread(accuracies[value]) if value in accuracies else "–"
            for value in values
        ]
        texts += [
            shift_drops.spread(cell.outside),
            two_digits(drop),
            two_digits(paper_drop),
        ]
        lines = [(f"{_seeds([cell])}{images}", *texts)]
        theirs = _printed_single(cell, size, values=values, printed=printed)
        printed_row = (network, cell.only_value, size)
        if theirs and printed_row not in printed_rows:
            printed_rows.add(printed_row)
            lines.append((f"paper, {size}", *theirs))
        for line in lines:
            trained_places.add((len(rows), 4 + values.index(cell.only_value)))
            rows.append((trained, network, cell.only_value, *line))
        for tested, accuracy in accuracies.items():
            data.append(
                {
                    "trained": trained,
                    "model": network,
                    "value": cell.only_value,
                    "images": cell.images,
                    "tested": tested,
                    "accuracy": 100 * float(accuracy.mean()),
                    "seeds": len(accuracy),
                    "drop_percent": drop,
                    "drop_paper_compat": paper_drop,
                }
            )
    return _table(
        "table2_single_values",
        ("model", "value", "numbers", *values, "OOD", "drop %", "paper's drop %"),
        rows=rows,
        data=pd.DataFrame(data),
        bold=frozenset(trained_places),
        texts=4,
    )


def _values(cell: ShiftCell) -> list[str]:
    """Return the names of a cell's tested values, in the data set's order, else sorted."""
    tested = [cell.only_value, *cell.others]
    return [name for name in _all_values(cell) if name in tested] or sorted(tested)


def _all_values(cell: ShiftCell) -> list[str]:
    """Return the names of all values of a cell's attribute; [] if the provenance lacks them."""
    for run in cell.runs:
        for dataset in run.data.values():
            if not isinstance(dataset, Mapping):
                continue
            values = dataset.get("values") or {}
            for names in (values.get("attribute"), values.get(cell.attribute)):
                if names and {cell.only_value, *cell.others} <= set(names):
                    return list(names)
    return []


def drops_of(cell: ShiftCell) -> tuple[float, float]:
    """Return (drop in %, drop in % as the paper computes it) of a cell.

    The second drop is NaN if the number of values is unknown; see `paper_compat`.
    """
    drop = float(shift_drops.percent(cell.inside.mean(), cell.outside.mean()))
    values = len(cell.others) + 1 if cell.others else len(_all_values(cell))
    return drop, paper_compat(drop, values) if values else math.nan


def paper_compat(drop: float, values: int) -> float:
    """Return the mean of relative drops over all values, including 0 for the trained value.

    drop: mean over the other values. values: the number of values.
    """
    return drop * (values - 1) / values


def _printed_single(
    cell: ShiftCell, size: str, *, values: Sequence[str], printed: Printed
) -> list[str]:
    """Return the paper's row of the same model, colour and size as texts, in %.

    size: FULL or FEW. values: the tested values of the table, followed in the row by OOD, drop
    and the paper's drop. [] if the paper has no such row. printed: result of `read`.
    """
    key = MODELS.get(cell.recipe.model, ""), cell.only_value[:1].upper(), size
    accuracies = [printed["ood_table2"].get((*key, x[:1].upper())) for x in values]
    is_in_paper = data_of(cell) == "ColoredMNIST" and key in printed["ood_table2_drops"]
    if not is_in_paper or None in accuracies:
        return []
    numbers = np.ravel(accuracies)
    trained = values.index(cell.only_value)
    outside = np.delete(numbers, trained).mean()
    drop = shift_drops.percent(numbers[trained], outside)
    paper_drop = printed["ood_table2_drops"][key]
    return [*map(two_digits, (*numbers, outside, float(drop), *paper_drop))]


def _table3(cells: ShiftCells, printed: Printed, draws: AccuracyDraws) -> tables.Table:
    """Return Table 3: for each training and network, rows by cluster, and a row of their means.

    A training is data, attribute and algorithm; the first cluster is D1. On CelebA, the paper's row
    for a cluster, if any, follows our row. Columns of the page: training, network, cluster, source
    of the numbers, and ID accuracy, OOD accuracy and drop, in %; the files have the columns of
    `_cell_numbers`. cells: trained on a single cluster. printed: result of `read`. draws: the
    bootstrap draws.
    """
    cells = sorted(cells, key=lambda x: (*_sort_key(x)[:2], int(x.only_value[1:])))
    groups = itertools.groupby(cells, key=lambda x: _sort_key(x)[:2])
    rows = []
    for (trained, network), group in groups:
        group_cells = list(group)
        their_name = MODELS.get(group_cells[0].recipe.model, "")
        # Table 3 of the paper does not name the version of SqueezeNet.
        if their_name.startswith("SqueezeNet"):
            their_name = "SqueezeNet"
        for cell in group_cells:
            numbers = _ours(cell, draws)
            rows.append((trained, network, cell.only_value, _seeds([cell]), *numbers))
            accuracies = printed["ood_table3"].get((cell.only_value, their_name))
            if accuracies and _data_name(cell) == "CelebA":
                inside, outside = accuracies
                drop = float(shift_drops.percent(inside, outside))
                numbers = map(two_digits, (inside, outside, drop))
                model = f"{network}: {their_name}"
                rows.append((trained, model, cell.only_value, "paper", *numbers))
        means = _average(group_cells, draws)
        rows.append((trained, network, "mean", _seeds(group_cells), *means))
    return _table(
        "table3_clusters",
        ("model", "cluster", "numbers", *_HEADS),
        rows=rows,
        data=_cell_numbers(cells, draws),
        texts=4,
    )


def _sort_key(cell: ShiftCell) -> tuple[str, str, int]:
    """Return (text of the training, network, number of training images) of a cell."""
    return _trained(cell), cell.recipe.network, cell.images


def _trained(cell: ShiftCell) -> str:
    """Return a cell's data, attribute and algorithm as text."""
    recipe = cell.recipe
    suffix = f" [{recipe.dealt}]" if recipe.dealt else ""
    return f"{recipe.data} by {cell.attribute}, {recipe.algorithm}{suffix}"


def _seeds(cells: Iterable[ShiftCell]) -> str:
    """Return the source of our numbers as text, with the number of seeds: "here, n=5"."""
    return f"here, n={tables.span((len(cell.seeds) for cell in cells), '–')}"


def _cell_numbers(cells: Iterable[ShiftCell], draws: AccuracyDraws) -> pd.DataFrame:
    """Return unrounded numbers for a table's files, one row per cell.

    Columns: trained, model, kind, level, seeds, and in %: id, ood, drop_percent, and
    low and high, the ends of the drop's interval.
    """
    rows = []
    for cell in cells:
        drawn = draws.draw(cell)
        drop, low, high = shift_drops.estimate(drawn.percent)
        rows.append(
            {
                "trained": _trained(cell),
                "model": cell.recipe.network,
                "kind": cell.kind or None,
                "level": cell.level,
                "seeds": len(cell.seeds),
                "id": 100 * drawn.inside[0],
                "ood": 100 * drawn.outside[0],
                "drop_percent": drop,
                "low": low,
                "high": high,
            }
        )
    return pd.DataFrame(rows)
