"""Printed numbers and claims of a paper on data distortion, compared with measured results.

Source: Marcu and Pruegel-Bennett, On the Effects of Artificial Data Modification, ICML 2022,
https://arxiv.org/abs/2110.13968; means and standard deviations over five runs; for ImageNet, over
one run.

A claim is that one mean is larger than another mean. Some claims are in the paper's text. The other
claims were read off its tables, so these claims cannot be tested on the printed numbers. Claims of
the text are tested on the printed numbers by Welch's t test, from means, deviations and five runs,
except for the DI index, whose runs share a weight. On our numbers, all claims are tested by
exchanging seeds between the two groups. Each claim has two one-sided p, for and against the claim,
each tested at half the level. p is adjusted by Holm's method over a family: the claims of a measure
and data set, separately for text and tables.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from jbias import numerals
from jbias.papers import printed_numbers
from jbias.report import document, tables
from jbias.report.pages.distortion import distortion_groups, distortion_page
from jbias.stats import multiple_testing, two_sample

DistortionStudy, GroupKey = (
    distortion_groups.DistortionStudy,
    distortion_groups.GroupKey,
)
NumberKey, QuantityValues = (
    distortion_groups.NumberKey,
    distortion_groups.QuantityValues,
)
QUANTITIES, STACKED = distortion_groups.QUANTITIES, distortion_groups.STACKED
PLAIN, OTHER = distortion_groups.PLAIN, distortion_groups.OTHER
WITHOUT = distortion_groups.WITHOUT
Number = Mapping[str, float | None]  # mean, std and n (None if unknown) of a cell.
Numbers = Mapping[NumberKey, Number]
RUNS = 5
UNNAMED = "CIFAR-10"  # Assumed for printed tables that name no data set.
MARGIN = 1.0  # Percentage points: a smaller loss counts as no harm.
TEXT, TABLE = "text", "table"  # Sources of a claim.


class PaperTable(NamedTuple):
    """A table of the paper: the columns of its CSV file, and its layout."""

    name: str  # Of our table; its first word is the name of the CSV file.
    data_column: str  # Column of the data set; "" if the file has none.
    method_column: str  # Column of the method.
    number_prefixes: tuple[str, ...]  # Of the columns <prefix>mean and <prefix>std.
    # The quantity, or the column with its name; "": the prefix is its name.
    quantity: str = ""
    lead: tuple[str, ...] = ("Data",)  # Properties that distinguish the rows.
    head: tuple[str, ...] = ("method",)  # Properties that distinguish the columns.
    training: str = PLAIN  # PLAIN, OTHER or WITHOUT.
    our_methods: tuple[str, ...] = ()  # Methods that the paper's table lacks.


TABLES = {
    "Table 1": PaperTable(
        "table1_grid_shuffle",
        data_column="dataset",
        method_column="model",
        number_prefixes=("di_index_",),
        quantity="di_grid",
    ),
    "Table 2": PaperTable(
        "table2_style_transfer",
        data_column="train_dataset",
        method_column="model",
        number_prefixes=("shape_", "texture_"),
        head=("method", "measure"),
    ),
    "Table 3": PaperTable(
        "table3_cut_occlusion",
        data_column="dataset",
        method_column="model",
        number_prefixes=("di_index_",),
        quantity="di_black",
    ),
    "Table 4": PaperTable(
        "table4_occlusion",
        data_column="",
        method_column="model",
        number_prefixes=("",),
        quantity="measure",
        lead=("Data", "measure"),
    ),
    "Table 5": PaperTable(
        "table5_affinity",
        data_column="",
        method_column="augmentation",
        number_prefixes=("",),
        quantity="measure",
        lead=("Data", "measure"),
        our_methods=("CutMix",),
    ),
    "Table 6": PaperTable(
        "table6_without_class",
        data_column="dataset",
        method_column="model",
        number_prefixes=("di_index_",),
        quantity="di_anywhere",
        training=WITHOUT,
    ),
    "Table 7": PaperTable(
        "table7_inter_dataset",
        data_column="target_dataset",
        method_column="augmentation",
        number_prefixes=("accuracy_",),
        lead=("Data", "mixed with"),
        training=OTHER,
    ),
    STACKED: PaperTable(
        "mnist_cifar",
        data_column="",
        method_column="training_msda",
        number_prefixes=("accuracy_",),
        quantity="evaluated_label",
        lead=("method",),
        head=("measure",),
    ),
}
_CAPTIONS = {
    "Table 1": "DI index in % when tiles are shuffled: 2 × 2 of FashionMNIST, 8 × 8 of ImageNet, "
    "4 × 4 of the others.",
    "Table 2": "Accuracy in % on Geirhos' style transfer images by the label of the shape and of "
    "the texture; all images, including those whose labels agree.",
    "Table 3": "DI index in % under a black rectangle of an area drawn from Beta(2, 1), anywhere "
    "and cut off at the edges.",
    "Table 4": "Effect of occluders from images of another data set that hide 30 %: the DI index "
    "in % and accuracy in % for rectangles (CutOcclusion), and iOcclusion, which hides the most "
    f"salient pixels by Grad-CAM. The printed table is compared with {UNNAMED}.",
    "Table 5": "Affinity: accuracy on mixed test images minus accuracy on plain test images, of "
    "networks trained without mixing, in points. Diversity: cross-entropy on mixed training "
    "images of networks trained with this mixing, by the larger part's label; MixDiversity: by "
    "both labels.",
    "Table 6": "DI index in % when images of another data set hide a part, for networks trained "
    "and tested without the dominant class of the basic networks' errors. The paper does not "
    "give the size of the part; we use rectangles as in Table 3.",
    "Table 7": "Accuracy in % on the test images of networks whose training images are mixed with "
    "images of another set, without using the labels of that set.",
    STACKED: "Accuracy in % on a digit stacked with a photograph, paired at random, by the label "
    "of the digit or of the photograph. Basic networks, and networks trained with FMix on the "
    "half of the digit.",
    "claims": "Orderings that the paper claims, or that its tables show: {what} Here: p over all "
    "exchanges of n seeds between the two groups, or a sample of them; ranks: p of the "
    "Wilcoxon-Mann-Whitney test. For the DI index, the share and the growth of the dominant class "
    "of the errors are exchanged; for iOcclusion, gaps divided by the mean gap, so that means are "
    "ratios of mean gaps. fdr: two-sided p, adjusted over all tests here by Benjamini and "
    "Hochberg. In brackets: the smallest possible holm for this number of seeds.",
    "claims_unmeasured": "Orderings of the paper without measurements here: {what}",
    "missing": "Missing measurements of the paper's tables, and the commands that make them; "
    "networks must be trained before they are measured. CLASS: the dominant class of the basic "
    "networks' errors; DIR: the folder of a data set. Existing measurements are not repeated.",
}
_CAVEATS = {
    "blind": "{} orderings cannot be decided whatever the numbers: with so few seeds, no p is "
    "small enough to pass Holm's adjustment at {:g}, half the level on each side; the table "
    "shows the smallest possible p. Five seeds per group allow 1/252, enough for up to {} "
    "claims of a measure and data set.",
    "untested": "{} orderings have fewer than two seeds with a known measure in a group: their "
    "means are shown, without a test.",
    "chance": "If all methods were equal, on average up to {:.2g} of the {} families of orderings "
    "({} tests) would have a verdict by chance. Seeds that start from the same weights are "
    "treated as independent, and seeds of two equal methods as exchangeable.",
}
_COLUMNS = (
    "table data claim whose here_verdict paper_verdict here_means here_order here_n "
    "here_p:p here_holm:p here_holm_against:p here_ranks:p fdr:p paper_means paper_order "
    "paper_n paper_holm:p paper_holm_against:p"
)
_CLAIM = (
    "that the first mean is larger than the second. Whose: the paper's text, or one of its "
    "tables. Paper: Welch's t test from printed means, deviations (0.00 taken as 0.005) and "
    "five runs; claims that were read off these numbers are not tested, nor the DI index, whose "
    "runs share a weight. p is one-sided, for the claim; holm: adjusted over the claims of a "
    "measure and data set, separately for text and tables; holm against: of the opposite claim. "
    "Holds (bold, shaded): holm is at most {:g}; does not hold (underlined): holm against is."
)
# Our names of quantities and methods by their names in the files.
_OUR_NAMES = {
    **{quantity.title: name for name, quantity in QUANTITIES.items()},
    "shape_": "gst_shape",
    "texture_": "gst_texture",
    "cifar10": "cifar",
    "accuracy_": "accuracy",
    "DI index": "di_other",
    "none": "basic",
    "fmix_on_mnist_half": "FMix",
}


class Claim(NamedTuple):
    """The claim that the mean of `more` is larger than the mean of `less` minus `margin`."""

    table: str  # A key of TABLES.
    words: str  # The claim as text.
    more: NumberKey
    less: NumberKey
    whose: str = TABLE  # TEXT or TABLE.
    margin: float = 0.0  # With a margin, an equal mean satisfies the claim, too.

    @property
    def family(self) -> tuple[str, ...]:
        """Return the key of the family of claims whose p-values are adjusted together."""
        return self.table, self.more.quantity, self.more.data, self.whose


class Printed(NamedTuple):
    """The printed numbers and claims of the paper."""

    # By table and cell: mean, std and n; None for an empty cell.
    tables: Mapping[str, Mapping[NumberKey, Number | None]]
    claimed: Sequence[Mapping[str, str]]  # Rows of distortion_claims.csv.

    @property
    def numbers(self) -> Numbers:
        """Return the printed numbers of all tables by cell, without empty cells."""
        return {
            cell: number
            for cells in self.tables.values()
            for cell, number in cells.items()
            if number
        }

    def data(self, table: str, our_data: Sequence[str]) -> list[str]:
        """Return the names of a table's data sets, followed by `our_data`, each name once.

        table: a key of TABLES.
        """
        names = [cell.data for cell in self.tables[table]]
        if table != STACKED:
            names += [name for name in our_data if name != STACKED]
        return list(dict.fromkeys(names))

    def layouts(
        self, our_data: Sequence[str] = ()
    ) -> dict[str, distortion_page.ValueLayout]:
        """Return the layout of each table of the paper, by key of TABLES.

        A layout has all cells of the paper's table, and cells without a printed number for this
        project's own results: for the methods `PaperTable.our_methods`, the same rows as for the
        table's first method; for data sets in `our_data` that the table lacks, the same rows and
        columns as for the table's first data set. our_data: names of this project's data sets.
        """
        layouts = {}
        for table, paper_table in TABLES.items():
            cells = list(self.tables[table])
            first_method = [cell for cell in cells if cell.method == cells[0].method]
            for method in paper_table.our_methods:
                cells += [cell._replace(method=method) for cell in first_method]
            first_data = [cell for cell in cells if cell.data == cells[0].data]
            rows: dict[tuple[str, ...], dict[str, NumberKey]] = {}
            for data in self.data(table, our_data):
                data_cells = [cell for cell in cells if cell.data == data]
                if not data_cells:  # A data set of ours.
                    data_cells = [cell._replace(data=data) for cell in first_data]
                for cell in data_cells:
                    words = {
                        "Data": data,
                        "method": cell.method,
                        "measure": QUANTITIES[cell.quantity].title,
                        "mixed with": cell.training.removeprefix(OTHER),
                    }
                    row_words = tuple(words[x] for x in paper_table.lead)
                    column = ": ".join(words[x] for x in paper_table.head)
                    rows.setdefault(row_words, {})[column] = cell
            columns = next(iter(rows.values()))
            layouts[table] = distortion_page.ValueLayout(
                paper_table.name,
                f"{table}. {_CAPTIONS[table]}",
                (*paper_table.lead, *columns),
                [(words, list(row.values())) for words, row in rows.items()],
            )
        return layouts

    def claims(self, our_data: Sequence[str] = ()) -> Iterator[Claim]:
        """Yield the claims, table by table, one for each ordered pair of means and data set.

        our_data: names of our data sets, for claims about all data sets.
        """
        by_table = itertools.groupby(self.claimed, key=lambda row: row["table"])
        for table, group in by_table:
            rows = list(group)
            for data in self.data(table, our_data if rows[0]["data"] == "all" else ()):
                for row in rows:
                    yield from _claims(row, data)


def _claims(row: Mapping[str, str], data: str) -> Iterator[Claim]:
    """Yield the claims in a row of distortion_claims.csv about a data set.

    The row's claim is "A > B > C" about methods, or "A: X ≥ Y" about the data sets that
    images were mixed with for method A. Neighbours are compared: A > B, then B > C. data: name
    of the data set.
    """
    table, quantity = row["table"], row["quantity"]
    method, _, ordering = row["claim"].rpartition(": ")
    sign, margin = ("≥", MARGIN) if "≥" in ordering else (">", 0.0)
    training = TABLES[table].training
    title = "DI" if quantity.startswith("di_") else QUANTITIES[quantity].title
    for pair in itertools.pairwise(ordering.split(f" {sign} ")):
        if method:
            cells = [NumberKey(quantity, data, method, training + x) for x in pair]
            names = [cell.training for cell in cells]
        else:
            cells = [NumberKey(quantity, data, x, training) for x in pair]
            names = [cell.method for cell in cells]
        words = f"{method or title}: {f' {sign} '.join(names)}"
        if margin:
            words += f" less {margin:g} point"
        more, less = cells
        yield Claim(
            table,
            words,
            more=more,
            less=less,
            whose=row["from"],
            margin=margin,
        )


def read(folder: str) -> Printed:
    """Return the numbers and claims of distortion_*.csv in a folder.

    ValueError for a missing file or an invalid row.
    """
    numbers: dict[str, dict[NumberKey, Number | None]] = {}
    for table, paper_table in TABLES.items():
        name = "simplicity" if table == STACKED else paper_table.name.partition("_")[0]

        def parse(
            row: Mapping[str, str],
            table: str = table,
            paper_table: PaperTable = paper_table,
        ) -> list[tuple[NumberKey, Number | None]]:
            """Return `_numbers` of a row of this table."""
            return _numbers(table, paper_table, row)

        rows = printed_numbers.read(folder, f"distortion_{name}", parse)
        numbers[table] = dict(itertools.chain(*rows))
    claimed = list(printed_numbers.read(folder, "distortion_claims", dict))
    return Printed(numbers, claimed)


def _numbers(
    table: str, paper_table: PaperTable, row: Mapping[str, str]
) -> list[tuple[NumberKey, Number | None]]:
    """Return (cell, {"mean", "std", "n"}) for each number in a row.

    An empty cell has None instead of the dict. Without a printed deviation, std is NaN and n has
    the value None. table: a key of TABLES. row: a row of the table's CSV file.
    """
    if paper_table.data_column:
        data = row[paper_table.data_column]
    else:
        data = STACKED if table == STACKED else UNNAMED
    method, training = row[paper_table.method_column], paper_table.training
    if training == OTHER:
        training += "itself" if row["row"] == "baseline" else row["mixed_with"]
    numbers = []
    for prefix in paper_table.number_prefixes:
        quantity = row.get(paper_table.quantity, paper_table.quantity) or prefix
        mean, std = row[f"{prefix}mean"], row[f"{prefix}std"]
        cell = NumberKey(
            _OUR_NAMES.get(quantity, quantity),
            data,
            method=_OUR_NAMES.get(method, method),
            training=training,
        )
        number = {
            "std": numerals.real(std) if std else math.nan,
            "n": RUNS if std else None,
        }
        if mean:
            number = {"mean": numerals.real(mean), **number}
        numbers.append((cell, number if mean else None))
    return numbers


# Tests of the paper's claims.

HOLDS, NOT, UNKNOWN = "holds", "does not hold", distortion_page.UNKNOWN
UNTESTED = "no test"
AS_CLAIMED, EQUAL, OPPOSITE = "as claimed", "equal", "opposite"
_MIN_DEVIATION = 0.005  # A printed deviation of 0.00 may be as large.
# By adjusted p: the p that it adjusts.
_HOLM = {"holm": "p", "holm_against": "against", "holm_least": "least"}
# The test of a claim on one side, the paper's or our numbers; NaN: no test.
_BLANK = {
    "more": math.nan,
    "less": math.nan,
    "n": "",
    "order": "",
    "p": math.nan,  # Of the null that the first mean is not larger.
    "against": math.nan,  # Of the null that the first mean is not smaller.
    "ranks": math.nan,  # As p, by a rank test.
    "least": math.nan,  # The smallest possible p.
    "holm": math.nan,
    "holm_against": math.nan,
    "holm_least": math.nan,
    "verdict": "",
}


def order(claim: Claim, more: float, less: float) -> str:
    """Return AS_CLAIMED, EQUAL or OPPOSITE for the means of claim.more and claim.less.

    "" if a mean is NaN. With a margin, an equal mean is AS_CLAIMED.
    """
    if math.isnan(more) or math.isnan(less):
        return ""
    if math.isclose(more + claim.margin, less, rel_tol=1e-9, abs_tol=1e-9):
        return AS_CLAIMED if claim.margin else EQUAL
    return AS_CLAIMED if more + claim.margin > less else OPPOSITE


def _side(
    claim: Claim, more: float, less: float, counts: Sequence[int]
) -> dict[str, Any]:
    """Return a test without p-values, a dict with the keys of _BLANK.

    "more" and "less" are the two means, "n" the numbers of runs as text, "order" the result of
    `order`; p-values are NaN and the verdict is "". counts: numbers of runs of the two groups.
    """
    return _BLANK | {
        "more": more,
        "less": less,
        "n": " and ".join(map(str, dict.fromkeys(counts))),
        "order": order(claim, more, less),
    }


def of_printed(claim: Claim, printed: Numbers) -> dict[str, Any] | None:
    """Return the test of a claim on the printed numbers, a dict with the keys of _BLANK.

    Only "p" and "against" of the p-values are set, by Welch's test; they are not adjusted. They are
    NaN for claims of tables, for the DI index, and for a single run. None if a number is missing.
    printed: printed numbers by `NumberKey`, see `_numbers`.
    """
    more, less = printed.get(claim.more), printed.get(claim.less)
    if not more or not less:
        return None
    n = more["n"] or 1
    side = _side(claim, more["mean"], less["mean"], counts=[n])
    shares_weight = claim.more.quantity.startswith("di_")
    if n > 1 and claim.whose == TEXT and not shares_weight:
        first = more["mean"] + claim.margin, max(more["std"], _MIN_DEVIATION), n
        second = less["mean"], max(less["std"], _MIN_DEVIATION), n
        side["p"], side["against"] = two_sample.welch(first, second)
    return side


def of_measured(
    claim: Claim, study: DistortionStudy, model: str
) -> dict[str, Any] | None:
    """Return the test of a claim on our networks, with the entries of _BLANK.

    model: the networks' architecture. p-values are not adjusted. None if networks are missing.
    """
    more = study.value(claim.more.quantity, claim.more.key(model))
    less = study.value(claim.less.quantity, claim.less.key(model))
    return tested(claim, more, less) if more and less else None


def tested(claim: Claim, more: QuantityValues, less: QuantityValues) -> dict[str, Any]:
    """Return the test of a claim by exchanging seeds, a dict with the keys of _BLANK.

    "p" is for the claim, "against" for the opposite claim, "least" the smallest possible p, and
    "ranks" the p of the rank-sum test (NaN if seeds have no single value). more, less: measured
    values of the two groups. p-values are not adjusted; they are NaN if a group has fewer than two
    seeds.
    """
    counts = len(more.units), len(less.units)
    side = _side(claim, more.tested, less.tested, counts=counts)
    if min(counts) > 1:
        result = two_sample.exchange(
            more.units, less.units, statistic=more.statistic, margin=claim.margin
        )
        side["p"] = result.greater
        side["against"] = result.less
        side["least"] = result.least
        # For ratios of means, a seed has no value that could be ranked.
        if more.units.ndim == 1:
            side["ranks"] = two_sample.rank_sum(more.runs + claim.margin, less.runs)
    return side


def judged(
    sides: Mapping[tuple[str, Claim], dict[str, Any] | None], alpha: float
) -> dict[tuple[str, Claim], dict[str, Any]]:
    """Return the tests by (model, claim), dicts with the keys of _BLANK.

    The keys "holm", "holm_against" and "holm_least" have p adjusted over each family of claims, NaN
    if a p of the family is NaN. "verdict" is HOLDS, NOT or UNKNOWN, or UNTESTED if p is NaN.

    sides: results of `of_printed` or `tested` by (model, claim); None is left out. alpha: level;
    half of it on each side. Holm's adjustment increases with each p of the family, so the adjusted
    smallest possible p is the smallest possible adjusted p.
    """
    results = {key: side | {"verdict": UNTESTED} for key, side in sides.items() if side}
    families: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for (model, claim), side in results.items():
        if not math.isnan(side["p"]):
            families.setdefault((model, *claim.family), []).append(side)
    for family in families.values():
        for adjusted_name, name in _HOLM.items():
            p = [side[name] for side in family]
            if not np.isnan(p).any():
                adjusted = multiple_testing.adjust(p, "holm").tolist()
                for side, value in zip(family, adjusted, strict=True):
                    side[adjusted_name] = value
        for side in family:
            if side["holm"] <= alpha / 2:
                side["verdict"] = HOLDS
            elif side["holm_against"] <= alpha / 2:
                side["verdict"] = NOT
            else:
                side["verdict"] = UNKNOWN
    return results


def frame(study: DistortionStudy, printed: Printed, *, alpha: float) -> pd.DataFrame:
    """Return a table of the tests, one row per claim and measured model.

    Columns: model ("" without measurements), table, data, claim, whose, family; the entries of
    _BLANK with the prefixes paper_ (without ranks, least and holm_least) and here_; and fdr, the
    two-sided p of our numbers adjusted by Benjamini and Hochberg. Claims with neither printed
    nor measured numbers have no row. alpha: level of the verdicts.
    """
    claims, numbers = list(printed.claims(study.names("data"))), printed.numbers
    models = study.names("model")
    theirs = judged({("", x): of_printed(x, numbers) for x in claims}, alpha)
    measured = {
        (model, claim): of_measured(claim, study, model)
        for model in models
        for claim in claims
    }
    ours = judged(measured, alpha)
    rows = []
    for claim in claims:
        claim_models = [model for model in models if (model, claim) in ours]
        if not claim_models and ("", claim) in theirs:
            claim_models = [""]
        for model in claim_models:
            row = {
                "model": model,
                "table": claim.table,
                "data": claim.more.data,
                "claim": claim.words,
                "whose": claim.whose,
                "family": " ".join((model, *claim.family)),
            }
            paper = theirs.get(("", claim), _BLANK)
            our_test = ours.get((model, claim), _BLANK)
            row |= {f"paper_{name}": value for name, value in paper.items()}
            row |= {f"here_{name}": value for name, value in our_test.items()}
            rows.append(row)
    lead = ["model", "table", "data", "claim", "whose", "family"]
    sides = [f"{side}_{name}" for side in ("paper", "here") for name in _BLANK]
    results = pd.DataFrame(rows, columns=[*lead, *sides])
    two_sided = results[["here_p", "here_against"]].min(axis=1).dropna() * 2
    fdr = multiple_testing.adjust(two_sided.clip(upper=1), "bh")
    results.loc[two_sided.index, "fdr"] = fdr
    return results.drop(columns=["paper_ranks", "paper_least", "paper_holm_least"])


def headline(claims: pd.DataFrame, alpha: float) -> tuple[str, str]:
    """Return (one sentence on the claims of the text, sentences with details), for the page.

    claims: result of `frame`. alpha: false discovery rate, as a fraction.
    """
    if not len(claims):
        return (
            "No ordering of the paper can be tested here.",
            "Its networks are missing.",
        )
    measured = claims[claims["here_verdict"] != ""]
    of_text = measured[measured["whose"] == TEXT]
    of_tables = measured[measured["whose"] == TABLE]
    significant = measured[measured["fdr"] <= alpha]
    num_hold = int((significant["here_p"] < significant["here_against"]).sum())
    distinct = claims.drop_duplicates(["table", "data", "claim"])
    answer = (
        f"Of {len(of_text)} orderings of the paper's text that are measured here "
        f"{_count_verdicts(of_text)}."
    )
    return answer, (
        f"{_count_orders(of_text, 'here')}. Of {len(of_tables)} more that its tables show "
        f"{_count_verdicts(of_tables)}; {_count_orders(of_tables, 'here')}. Over all "
        f"{measured['fdr'].notna().sum()} tests together, at a false discovery rate of "
        f"{alpha:.0%} (Benjamini and Hochberg), {num_hold} hold and "
        f"{len(significant) - num_hold} do not. In the paper "
        f"{_count_orders(distinct, 'paper')}."
    )


def _count_orders(claims: pd.DataFrame, side: str) -> str:
    """Return a phrase with the number of claims whose means are in the claimed order.

    claims: rows of `frame`. side: "here" or "paper".
    """
    counts = claims[f"{side}_order"].value_counts()
    num_known, num_equal = counts.drop("", errors="ignore").sum(), counts.get(EQUAL, 0)
    num_claimed = counts.get(AS_CLAIMED, 0)
    phrase = f"{num_claimed} of {num_known} have the means in the claimed order"
    return phrase + (f", {num_equal} have equal means" if num_equal else "")


def _count_verdicts(claims: pd.DataFrame) -> str:
    """Return a phrase with the number of claims of each verdict on our networks.

    claims: rows of `frame`.
    """
    counts = claims["here_verdict"].value_counts().to_dict()
    phrase = (
        f"{counts.get(HOLDS, 0)} hold, {counts.get(NOT, 0)} do not, and "
        f"{counts.get(UNKNOWN, 0)} cannot be decided"
    )
    num_untested = counts.get(UNTESTED, 0)
    return phrase + (f"; {num_untested} cannot be tested" if num_untested else "")


def claim_caveats(claims: pd.DataFrame, alpha: float) -> Iterator[str]:
    """Yield sentences on the limitations of the tests, up to three.

    The sentences are about claims that cannot be decided with so few seeds, claims without a test,
    and verdicts to expect by chance. claims: result of `frame`. alpha: level of the tests.
    """
    if num_blind := (claims["here_holm_least"] > alpha / 2).sum():
        max_claims = math.floor(alpha / 2 * math.comb(10, 5))
        yield _CAVEATS["blind"].format(num_blind, alpha / 2, max_claims)
    if num_untested := (claims["here_verdict"] == UNTESTED).sum():
        yield _CAVEATS["untested"].format(num_untested)
    with_test = claims[claims["here_p"].notna()]
    if num_families := with_test["family"].nunique():
        expected = alpha * num_families
        yield _CAVEATS["chance"].format(expected, num_families, len(with_test))


def claim_tables(claims: pd.DataFrame, alpha: float) -> Iterator[tables.Table | None]:
    """Yield a table of the measured claims, and a table of the claims without measurements.

    claims: result of `frame`. alpha: level of the tests. None for a table without rows.
    """
    is_measured = claims["here_verdict"] != ""
    yield _claim_table("claims", claims[is_measured], alpha)
    yield _claim_table("claims_unmeasured", claims[~is_measured], alpha)


def _claim_table(name: str, claims: pd.DataFrame, alpha: float) -> tables.Table | None:
    """Return a table of tested claims, one row per claim; None without claims.

    The page has the columns _COLUMNS, and model if there are several models; the files have all
    columns of `claims`. Verdicts are bold for claims that hold, and underlined for claims that do
    not hold. name: key in _CAPTIONS, and name of the table's files. claims: rows of `frame`. alpha:
    level of the tests.
    """
    if claims.empty:
        return None
    rows = claims.replace("", None)
    for side in ("here", "paper"):
        means = claims[[f"{side}_more", f"{side}_less"]].map(distortion_page.number)
        means = means.agg(", ".join, axis=1)
        rows[f"{side}_means"] = means.where(claims[f"{side}_n"] != "")
    least = claims["here_holm_least"]
    least_text = " (p ≥ " + least.map(tables.p_text) + ")"
    rows["here_verdict"] += least_text.where(least > alpha / 2, "")
    has_models = claims["model"].nunique() > 1
    columns = tables.columns(f"model {_COLUMNS}" if has_models else _COLUMNS)
    caption = _CAPTIONS[name].format(what=_CLAIM.format(alpha / 2))
    table = tables.from_rows(name, caption, rows, columns, data=claims)
    cells = np.array(table.rows)
    holds = frozenset(map(tuple, np.argwhere(cells == HOLDS).tolist()))
    fails = frozenset(map(tuple, np.argwhere(cells == NOT).tolist()))
    shade = dict.fromkeys(holds, 0.5)
    return dataclasses.replace(table, bold=holds, under=fails, shade=shade)


ALWAYS = (
    distortion_page.ALWAYS
    + f"""\
Numbers need not equal the printed numbers: batches, masks, precision and the filling of \
occluders differ in the released code. Only orderings are compared.
Black hides with pixels of value 0, as the paper says; its released code with the mean colour.
iOcclusion hides the most salient pixels, as the paper says; its released code draws for each \
image whether the most or the least salient are hidden.
FMix masks here are isotropic; those of the released code vary along one axis alone.
The DI index counts every wrong prediction; the released code counts a class once a batch.
The paper has no number of CutMix on ImageNet, and one network a method there, so no deviation.
The printed Table 4 does not name its data set; it is compared with {UNNAMED}.
""".splitlines()
)


def extended(
    page: document.Report, study: DistortionStudy, printed: Printed, *, alpha: float
) -> document.Report:
    """Return a report of distortion with the paper's tables and claims added.

    The page's headline is replaced by `headline` of the claims, and the page's tables are replaced
    by the paper's tables. Sections on the claims and on missing measurements, with their caveats,
    are added. page: result of distortion_page.report for `study`. printed: result of `read`. alpha:
    level of the tests.
    """
    claims, missing_rows = frame(study, printed, alpha=alpha), missing(study, printed)
    paper_tables = {
        name: distortion_page.comparison(layout, study, printed=printed.numbers)
        for name, layout in printed.layouts(study.names("data")).items()
    }
    claims_shown = [x for x in claim_tables(claims, alpha) if x is not None]
    missing_table = _missing_table(missing_rows)
    notes_on_empty = {
        name: _note_on_empty(name, missing_rows)
        for name, table in paper_tables.items()
        if table is None
    }
    caveats = []
    if notes_on_empty:
        names = tables.join(notes_on_empty)
        caveats.append(
            f"No measurements here for {names}; the last section has the commands."
        )
    caveats += distortion_page.particular_caveats(page, distortion_page.ALWAYS)
    caveats += [*claim_caveats(claims, alpha), *ALWAYS]
    shown = [table for table in paper_tables.values() if table is not None]
    notes = document.Text(list(notes_on_empty.values()))
    missing_tables = [] if missing_table is None else [missing_table]
    sections = [
        document.Section("claims", "Which orderings hold", claims_shown),
        document.Section("tables", "The paper's tables", [*shown, notes]),
    ]
    for section in page.sections:
        if section.id == "caveats":
            section = dataclasses.replace(section, blocks=[document.Text(caveats)])
        sections.append(section)
    sections.append(document.Section("missing", "Missing measurements", missing_tables))
    table_data = {
        table.name: table.data for table in (*shown, *claims_shown, *missing_tables)
    }
    results = page.results | {
        "caveats": caveats,
        "tables": page.results["tables"] | table_data,
    }
    return dataclasses.replace(
        page,
        answer=headline(claims, alpha),
        facts=page.facts | {"Orderings tested": int(claims["here_p"].notna().sum())},
        sections=sections,
        results=results,
        source=f"{page.source} Printed numbers are those of that paper.",
    )


# Missing measurements.

_TITLES = distortion_groups.DATA | distortion_groups.METHODS
_NAMES = {
    **{title: name for name, title in _TITLES.items()},
    STACKED: "stacked",
    "itself": "same",
}


class MissingMeasurement(NamedTuple):
    """Networks or measurements that are missing here for the paper's tables."""

    tables: list[str]  # Keys of TABLES.
    description: str
    command: str  # Makes the networks or measurements.


_NETWORKS = "networks: "  # The start of a description of networks to train.


def missing(study: DistortionStudy, printed: Printed) -> list[MissingMeasurement]:
    """Return the missing networks, then the missing measurements of existing networks.

    A cell of the paper's tables misses a number if one of our models of the cell's data set has no
    measurement for the cell. If we have no model of the data set, the paper's model is missing.
    printed: result of `read`.
    """
    # Tables, in order, by whether the networks exist, description and command.
    tables_by_item: dict[tuple[bool, str, str], dict[str, None]] = {}
    has_models = len(study.names("model")) > 1
    for table, layout in printed.layouts().items():
        cells = itertools.chain.from_iterable(row for _, row in layout.rows)
        for cell in cells:
            models = dict.fromkeys(k.model for k in study.groups if k.data == cell.data)
            for model in models or [_default_model(cell.data)]:
                key = study.match(cell.key(model))
                if study.value(cell.quantity, key) is not None:
                    continue
                if cell.quantity == "affinity":
                    key = key._replace(method="basic")
                has_networks = key in study.groups
                if has_networks:
                    title = QUANTITIES[cell.quantity].title
                    description = f"{title} of {key.words}"
                    command = measure_command(key, cell.quantity)
                else:
                    dropped = "CLASS" if key.training == WITHOUT else ""
                    architecture = f" ({key.model})" if has_models else ""
                    description = f"{_NETWORKS}{key.words}{dropped}{architecture}"
                    command = train_command(key)
                item = (has_networks, description, command)
                tables_by_item.setdefault(item, {})[table] = None
    return [
        MissingMeasurement(
            list(tables_by_item[item]), description=item[1], command=item[2]
        )
        for item in sorted(tables_by_item, key=lambda item: item[0])
    ]


def _missing_table(missing_rows: Sequence[MissingMeasurement]) -> tables.Table | None:
    """Return the table of missing measurements; None if nothing is missing.

    One row per item of `missing_rows`. Columns: of (tables of the paper), missing (description) and
    command.
    """
    rows = [
        {
            "of": tables.join(row.tables),
            "missing": row.description,
            "command": row.command,
        }
        for row in missing_rows
    ]
    columns = tables.columns("of missing command")
    return tables.from_rows("missing", _CAPTIONS["missing"], rows, columns=columns)


def _note_on_empty(table: str, missing_rows: Sequence[MissingMeasurement]) -> str:
    """Return a sentence on a table without measurements, with the command to start with.

    table: a key of TABLES. missing_rows: result of `missing`.
    """
    rows = [row for row in missing_rows if table in row.tables]
    # Measuring existing networks is faster than training.
    first = min(rows, key=lambda row: row.description.startswith(_NETWORKS))
    more = f" and {len(rows) - 1} more in the last section" if len(rows) > 1 else ""
    return f"{table}: no measurements. For {first.description}: {first.command}{more}"


def train_command(key: GroupKey) -> str:
    """Return the command that trains a group's networks, with placeholders DIR and CLASS.

    key: key of the group.
    """
    data, method = _NAMES.get(key.data, key.data), _NAMES.get(key.method, key.method)
    arguments, name = [f"method={method}", f"data={data}", *_roots(data)], method
    if key.model != _default_model(key.data):
        arguments.append(f"model={key.model}")
        name = f"{key.model}-{name}"
    if key.training == WITHOUT:
        arguments.append("drop=CLASS")
        name += "-without-CLASS"
    elif key.training.startswith(OTHER):
        other = key.training.removeprefix(OTHER)
        other = _NAMES.get(other, other)
        arguments.append(f"partner={other}")
        if other != "same":
            arguments.append("partner_root=DIR")
        name += f"-with-{other}"
    command = f"jbias train --config=configs/distortion.py:{','.join(arguments)}"
    return f"{command} --workdir=runs/distortion/{name}-{data}"


def measure_command(key: GroupKey, quantity: str) -> str:
    """Return the command that measures a quantity of a group's networks.

    The command has the placeholders DIR and CLASS. key: key of the group. quantity: a key of
    QUANTITIES.
    """
    data = _NAMES.get(key.data, key.data)
    arguments = [f"data={data}", *_roots(data)]
    if quantity in ("di_other", "di_anywhere", "cut_occlusion", "iocclusion"):
        other = "cifar10" if data == "cifar100" else "cifar100"
        arguments += [f"other={other}", "other_root=DIR"]
    if quantity.startswith("gst_"):
        arguments.append("stimuli=DIR")
    if key.training.startswith(WITHOUT):
        dropped = key.training.removeprefix(WITHOUT).replace(" and ", "+")
        arguments.append(f"drop={dropped or 'CLASS'}")
    suite = f"--suite=configs/suites/distortion.py:{','.join(arguments)}"
    return f"jbias evaluate --runs='runs/distortion/*' {suite}"


def _roots(data: str) -> list[str]:
    """Return the config arguments for the folders of a data set, such as ["root=DIR"].

    data: name of the set in configs.
    """
    roots = [] if data == "shapes" else ["root=DIR"]
    if data == "stacked":
        roots.append("digits=DIR")
    return roots


def _default_model(data: str) -> str:
    """Return the name of the paper's architecture for the data set with the title `data`."""
    return "resnet101" if data == "ImageNet" else "preact_resnet18"
