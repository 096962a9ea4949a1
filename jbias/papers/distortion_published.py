"""The data-distortion paper: what it printed, its claims, and both beside what was measured.

Source: Marcu and Pruegel-Bennett, On the Effects of Artificial Data Modification, ICML 2022,
https://arxiv.org/abs/2110.13968; means and deviations over five runs, of ImageNet one.

A claim says that one mean is larger than another. The paper's text makes some; others were
read off its tables, so those numbers cannot test them. Of the printed numbers the test is
Welch's t, from means, deviations and five runs, but not of the DI index, whose runs share a
weight. Ours are tested by exchanging seeds between the two groups. p is one-sided, for and
against the claim, each at half the level, and adjusted after Holm over a family: the claims
of a measure and data set, those of the text and those of tables apart.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from jbias import numerals
from jbias.papers import printed_numbers
from jbias.report import distortion_page, distortion_study, document, tables
from jbias.stats import multiple_testing, two_sample

Study, Key = distortion_study.Study, distortion_study.Key
Cell, Values = distortion_study.Cell, distortion_study.Values
QUANTITIES, STACKED = distortion_study.QUANTITIES, distortion_study.STACKED
PLAIN, OTHER = distortion_study.PLAIN, distortion_study.OTHER
WITHOUT = distortion_study.WITHOUT
Numbers = Mapping[Cell, Mapping]  # Mean, std and n.
RUNS = 5
UNNAMED = "CIFAR-10"  # Beside which tables are set that name no data set.
MARGIN = 1.0  # Percentage points that count as no harm.
TEXT, TABLE = "text", "table"  # What a claim was taken from.


class Source(NamedTuple):
    """A table of the paper: what it is of, and how it is laid out."""

    name: str  # Ours; the file's is its first word.
    # Of the data set, if it is named, of the method, and beginnings of those of numbers.
    columns: tuple[str, ...]
    quantity: str = ""  # Or the column that says it; "": what its number's begins with.
    lead: tuple[str, ...] = ("Data",)
    head: tuple[str, ...] = ("method",)
    training: str = PLAIN
    methods: tuple[str, ...] = ()  # That are here alone.


_INDEX, _EACH = ("dataset", "model", "di_index_"), ("Data", "measure")
_STYLES = ("train_dataset", "model", "shape_", "texture_")
_MIXED, _WITH = ("target_dataset", "augmentation", "accuracy_"), ("Data", "mixed with")
_DIGITS, _METHOD = ("", "training_msda", "accuracy_"), ("method",)
_MIXING, _CUTMIX = ("", "augmentation", ""), ("CutMix",)
TABLES = {
    "Table 1": Source("table1_grid_shuffle", _INDEX, "di_grid"),
    "Table 2": Source("table2_style_transfer", _STYLES, head=("method", "measure")),
    "Table 3": Source("table3_cut_occlusion", _INDEX, "di_black"),
    "Table 4": Source("table4_occlusion", ("", "model", ""), "measure", _EACH),
    "Table 5": Source("table5_affinity", _MIXING, "measure", _EACH, methods=_CUTMIX),
    "Table 6": Source("table6_without_class", _INDEX, "di_anywhere", training=WITHOUT),
    "Table 7": Source("table7_inter_dataset", _MIXED, lead=_WITH, training=OTHER),
    STACKED: Source("mnist_cifar", _DIGITS, "evaluated_label", _METHOD, ("measure",)),
}
_CAPTIONS = {
    "Table 1": "DI index in % when tiles are shuffled: 2 × 2 of FashionMNIST, 8 × 8 of ImageNet, "
    "4 × 4 of the others.",
    "Table 2": "Accuracy in % on Geirhos' style transfer images by the label of the shape and of "
    "the texture; all images, those whose labels agree among them.",
    "Table 3": "DI index in % under a black rectangle of an area drawn from Beta(2, 1), anywhere "
    "and cut off at the edges.",
    "Table 4": "What images of another data set do as occluders that hide 30 %: the DI index in "
    "% and accuracy in % where a rectangle hides them (CutOcclusion), and iOcclusion where the "
    f"most salient by Grad-CAM are hidden. The printed table is set beside {UNNAMED}.",
    "Table 5": "Affinity: accuracy on mixed test images, less that on plain ones, of networks "
    "that were trained without mixing, in points. Diversity: cross-entropy on mixed training "
    "images of networks trained with this mixing, by the larger part's label; MixDiversity: by "
    "both labels.",
    "Table 6": "DI index in % where images of another data set hide a part: of networks trained "
    "and tested without the class that errors of the basic ones gather in. The paper does not "
    "say how large the part is; rectangles as in Table 3 are a choice made here.",
    "Table 7": "Accuracy in % on the test images where training images are mixed with those of a "
    "set whose labels are not used, and keep their own label.",
    STACKED: "Accuracy in % on a digit stacked with a photograph, paired at random, by the label "
    "of either. Basic networks, and those trained with FMix on the half of the digit.",
    "claims": "What the paper claims, or its tables show, as orderings: {what} Here: all ways to "
    "exchange n seeds between the two groups, or a sample of them; ranks: Wilcoxon, Mann and "
    "Whitney's p. Of the DI index a seed's part and growth of the class that its method's errors "
    "gather in are exchanged, of iOcclusion its gaps by the mean gap: means are ratios of mean "
    "gaps. fdr: p of both sides, adjusted over every test here after Benjamini and Hochberg. In "
    "brackets: no holm of so few seeds is smaller.",
    "claims_unmeasured": "Orderings of the paper that nothing here is of: {what}",
    "missing": "What is missing in the tables of the paper, and what makes it; networks are "
    "measured once they are trained. CLASS: the class that errors of the basic networks gather "
    "in; DIR: where a set lies. What was measured is not measured again.",
}
_CAVEATS = {
    "blind": "Of {} orderings it cannot be told whatever the numbers: so few seeds have no p small "
    "enough to pass Holm's adjustment at {:g}, half the level on each side; the least that is "
    "possible stands beside each. Five seeds of each have 1/252, enough for up to {} claims of a "
    "measure and data set.",
    "untested": "{} orderings have fewer than two seeds on a side of which the measure can be "
    "told: their means are shown, and there is no test.",
    "chance": "If all methods were alike, up to {:.2g} of the {} families of orderings ({} tests) "
    "would say something by chance, on average. Seeds that begin alike are taken as independent, "
    "and seeds of two methods as exchangeable where these are alike.",
}
_COLUMNS = (
    "table data claim whose here_verdict paper_verdict here_means here_order here_n "
    "here_p:p here_holm:p here_holm_against:p here_ranks:p fdr:p paper_means paper_order "
    "paper_n paper_holm:p paper_holm_against:p"
)
_CLAIM = (
    "that the first mean is above the second. Whose: the paper's text, or one of its tables. "
    "Paper: Welch's t from printed means, deviations (0.00 taken as 0.005) and five runs; no "
    "test of what was read off these numbers, nor of the DI index, whose runs share a "
    "weight. p is one-sided, for the claim; holm: adjusted over the claims of a measure and "
    "data set, text and table apart; holm against: of the opposite. Holds (bold, shaded): "
    "holm is no more than {:g}; does not hold (underlined): holm against is."
)
# What files call quantities and methods.
_CALLED = {one.title: name for name, one in QUANTITIES.items()}
_CALLED |= {"shape_": "gst_shape", "texture_": "gst_texture", "cifar10": "cifar"}
_CALLED |= {"accuracy_": "accuracy", "DI index": "di_other"}
_CALLED |= {"none": "basic", "fmix_on_mnist_half": "FMix"}


class Claim(NamedTuple):
    """That the mean of `more` is above that of `less`, or below by no more than a margin."""

    table: str
    words: str
    more: Cell
    less: Cell
    whose: str = TABLE
    margin: float = 0.0

    @property
    def family(self) -> tuple[str, ...]:
        """What claims that are adjusted together share."""
        return self.table, self.more.quantity, self.more.data, self.whose


class Printed(NamedTuple):
    """Mean, std and n by table and cell, none where a cell is empty; and rows of claims."""

    tables: Mapping[str, Mapping[Cell, Mapping | None]]
    claimed: Sequence[Mapping[str, str]]

    @property
    def numbers(self) -> Numbers:
        every = [pair for cells in self.tables.values() for pair in cells.items()]
        return {cell: number for cell, number in every if number}

    def data(self, table: str, others: Sequence[str]) -> list[str]:
        """Gives the data sets of a table, and then those of one's own."""
        own = [name for name in others if name != STACKED] if table != STACKED else []
        return list(dict.fromkeys([*(cell.data for cell in self.tables[table]), *own]))

    def layouts(self, others: Sequence[str] = ()) -> dict[str, distortion_page.Layout]:
        """Gives the tables as they lie in the paper; others: data sets for more rows."""
        found = {}
        for table, source in TABLES.items():
            cells = list(self.tables[table])
            first = [cell for cell in cells if cell.method == cells[0].method]
            cells += [c._replace(method=x) for x in source.methods for c in first]
            rows: dict[tuple[str, ...], dict[str, Cell]] = {}
            for data in self.data(table, others):
                mine = [cell for cell in cells if cell.data == data]
                like = [x._replace(data=data) for x in cells if x.data == cells[0].data]
                for cell in mine or like:
                    words = {"Data": data, "method": cell.method}
                    words["measure"] = QUANTITIES[cell.quantity].title
                    words["mixed with"] = cell.training.removeprefix(OTHER)
                    row = rows.setdefault(tuple(words[x] for x in source.lead), {})
                    row[": ".join(words[x] for x in source.head)] = cell
            head = (*source.lead, *next(iter(rows.values())))
            shown = [(words, list(row.values())) for words, row in rows.items()]
            caption = f"{table}. {_CAPTIONS[table]}"
            found[table] = distortion_page.Layout(source.name, caption, head, shown)
        return found

    def claims(self, others: Sequence[str] = ()) -> Iterator[Claim]:
        """Gives the claims by table; others: data sets that they are made for, too."""
        by_table = itertools.groupby(self.claimed, key=lambda row: row["table"])
        for table, each in by_table:
            rows = list(each)
            for data in self.data(table, others if rows[0]["data"] == "all" else ()):
                for row in rows:
                    yield from _claims(row, data)


def _claims(row: Mapping[str, str], data: str) -> Iterator[Claim]:
    """Reads "A > B > C", of methods, or "A: X ≥ Y", of what a method was mixed with."""
    table, quantity = row["table"], row["quantity"]
    method, _, order = row["claim"].rpartition(": ")
    sign, margin = ("≥", MARGIN) if "≥" in order else (">", 0.0)
    training = TABLES[table].training
    title = "DI" if quantity.startswith("di_") else QUANTITIES[quantity].title
    for pair in itertools.pairwise(order.split(f" {sign} ")):
        how = [(method, training + x) if method else (x, training) for x in pair]
        more, less = (Cell(quantity, data, *of) for of in how)
        ends = [x.training if method else x.method for x in (more, less)]
        words = f"{method or title}: {f' {sign} '.join(ends)}"
        words += f" less {margin:g} point" if margin else ""
        yield Claim(table, words, more, less, row["from"], margin)


def read(folder: str) -> Printed:
    """Reads distortion_*.csv of a folder. Raises ValueError where one is missing or amiss."""
    found: dict[str, dict[Cell, Mapping | None]] = {}
    for table, source in TABLES.items():
        name = "simplicity" if table == STACKED else source.name.partition("_")[0]
        numbers = functools.partial(_numbers, table, source)
        rows = printed_numbers.read(folder, f"distortion_{name}", numbers)
        found[table] = dict(itertools.chain(*rows))
    return Printed(found, list(printed_numbers.read(folder, "distortion_claims", dict)))


def _numbers(table: str, source: Source, row: Mapping[str, str]) -> list[tuple]:
    column, whose, *prefixes = source.columns
    data = row[column] if column else STACKED if table == STACKED else UNNAMED
    method, training, found = row[whose], source.training, []
    if training == OTHER:
        training += "itself" if row["row"] == "baseline" else row["mixed_with"]
    for prefix in prefixes:
        of = row.get(source.quantity, source.quantity) or prefix
        mean, std = row[f"{prefix}mean"], row[f"{prefix}std"]
        n, std = (RUNS, numerals.real(std)) if std else (None, math.nan)
        cell = Cell(_CALLED.get(of, of), data, _CALLED.get(method, method), training)
        found.append(
            (cell, dict(mean=numerals.real(mean), std=std, n=n) if mean else None)
        )
    return found


# What the paper claims.

HOLDS, NOT, UNKNOWN = "holds", "does not hold", distortion_page.UNKNOWN
UNTESTED = "no test"
AS_CLAIMED, EQUAL, OPPOSITE = "as claimed", "equal", "opposite"
_ROUNDED = 0.005  # No printed deviation is known to be smaller.
# What a row says of a claim by the numbers of one side, the paper's or ours. p: that the first
# mean is not larger; against: that it is not smaller; ranks: as p, by ranks; least: no p can
# be smaller; then these adjusted. NaN: no test.
_HOLM = {"holm": "p", "holm_against": "against", "holm_least": "least"}
_BLANK = {"more": math.nan, "less": math.nan, "n": "", "order": ""}
_BLANK |= dict.fromkeys(("p", "against", "ranks", "least", *_HOLM), math.nan)
_BLANK |= {"verdict": ""}


def order(claim: Claim, more: float, less: float) -> str:
    """Says how two means stand, "" where one is not known."""
    if math.isnan(more) or math.isnan(less):
        return ""
    if math.isclose(more + claim.margin, less, rel_tol=1e-9, abs_tol=1e-9):
        return AS_CLAIMED if claim.margin else EQUAL
    return AS_CLAIMED if more + claim.margin > less else OPPOSITE


def _side(claim: Claim, more: float, less: float, *n: int) -> dict:
    words = " and ".join(map(str, dict.fromkeys(n)))
    return _BLANK | dict(more=more, less=less, n=words, order=order(claim, more, less))


def of_printed(claim: Claim, printed: Numbers) -> dict | None:
    """Tests a claim by printed means and deviations; None where they are not there."""
    more, less = printed.get(claim.more), printed.get(claim.less)
    if not more or not less:
        return None
    n = more["n"] or 1
    side = _side(claim, more["mean"], less["mean"], n)
    shared = claim.more.quantity.startswith("di_")
    if n > 1 and claim.whose == TEXT and not shared:
        first = more["mean"] + claim.margin, max(more["std"], _ROUNDED), n
        second = less["mean"], max(less["std"], _ROUNDED), n
        side["p"], side["against"] = two_sample.welch(first, second)
    return side


def of_measured(claim: Claim, study: Study, model: str) -> dict | None:
    """Tests a claim by the networks of one model; None where they are not there."""
    both = [study.value(x.quantity, x.key(model)) for x in (claim.more, claim.less)]
    return tested(claim, *both) if all(both) else None


def tested(claim: Claim, more: Values, less: Values) -> dict:
    """Tests a claim by all ways to exchange seeds."""
    n = len(more.units), len(less.units)
    side = _side(claim, more.tested, less.tested, *n)
    if min(n) > 1:
        units = more.units, less.units
        one = two_sample.exchange(*units, more.statistic, margin=claim.margin)
        side |= {"p": one.greater, "against": one.less, "least": one.least}
        if more.units.ndim == 1:  # Else seeds have no values of their own to rank.
            side["ranks"] = two_sample.rank_sum(more.runs + claim.margin, less.runs)
    return side


def judged(sides: Mapping[tuple[str, Claim], dict | None], alpha: float) -> dict:
    """Adjusts p over each family, and says what is known at alpha, half of it on each side.

    sides: by model and claim. Holm's p of a claim grows with every p of its family, so of
    the least it is the least.
    """
    found = {key: side | {"verdict": UNTESTED} for key, side in sides.items() if side}
    families: dict[tuple, list[dict]] = {}
    for (model, claim), side in found.items():
        if not math.isnan(side["p"]):
            families.setdefault((model, *claim.family), []).append(side)
    for each in families.values():
        for name, of in _HOLM.items():
            p = [side[of] for side in each]
            if not np.isnan(p).any():
                adjusted = multiple_testing.adjust(p, "holm").tolist()
                for side, value in zip(each, adjusted, strict=True):
                    side[name] = value
        for side in each:
            against = NOT if side["holm_against"] <= alpha / 2 else UNKNOWN
            side["verdict"] = HOLDS if side["holm"] <= alpha / 2 else against
    return found


def frame(study: Study, printed: Printed, *, alpha: float) -> pd.DataFrame:
    """Gives a row a claim and model, in the paper's numbers and in ours."""
    claims, numbers = list(printed.claims(study.names("data"))), printed.numbers
    theirs = judged({("", x): of_printed(x, numbers) for x in claims}, alpha)
    pairs = itertools.product(study.names("model"), claims)
    ours = judged({(m, x): of_measured(x, study, m) for m, x in pairs}, alpha)
    rows = []
    for claim in claims:
        models = [model for model in study.names("model") if (model, claim) in ours]
        for model in models or [""] * (("", claim) in theirs):
            lead = [model, claim.table, claim.more.data, claim.words, claim.whose]
            family = " ".join((model, *claim.family))
            sides = theirs.get(("", claim), _BLANK), ours.get((model, claim), _BLANK)
            rows.append([*lead, family, *sides[0].values(), *sides[1].values()])
    lead = ("model", "table", "data", "claim", "whose", "family")
    sides = (f"{side}_{name}" for side in ("paper", "here") for name in _BLANK)
    found = pd.DataFrame(rows, columns=[*lead, *sides])
    both = found[["here_p", "here_against"]].min(axis=1).dropna() * 2
    found.loc[both.index, "fdr"] = multiple_testing.adjust(both.clip(upper=1), "bh")
    return found.drop(columns=["paper_ranks", "paper_least", "paper_holm_least"])


def headline(claims: pd.DataFrame, alpha: float) -> tuple[str, str]:
    """Gives the answer in one sentence, of claims of the text, and what it rests on."""
    if not len(claims):
        answer = "No ordering of the paper can be looked at here."
        return answer, "Its networks are missing."
    there = claims[claims["here_verdict"] != ""]
    text, shown = (there[there["whose"] == x] for x in (TEXT, TABLE))
    sure = there[there["fdr"] <= alpha]
    hold = int((sure["here_p"] < sure["here_against"]).sum())
    once = claims.drop_duplicates(["table", "data", "claim"])
    whose = "orderings of the paper's text that can be looked at here"
    return f"Of {len(text)} {whose} {_counted(text)}.", (
        f"{_ordered(text, 'here')}. Of {len(shown)} more that its tables show "
        f"{_counted(shown)}; {_ordered(shown, 'here')}. Over all "
        f"{there['fdr'].notna().sum()} tests at once, of what is told no more than "
        f"{alpha:.0%} false (Benjamini and Hochberg), {hold} hold and "
        f"{len(sure) - hold} do not. In the paper {_ordered(once, 'paper')}."
    )


def _ordered(claims: pd.DataFrame, side: str) -> str:
    counts = claims[f"{side}_order"].value_counts()
    known, equal = counts.drop("", errors="ignore").sum(), counts.get(EQUAL, 0)
    told = f"{counts.get(AS_CLAIMED, 0)} of {known} have the means in the claimed order"
    return told + (f", {equal} have equal ones" if equal else "")


def _counted(claims: pd.DataFrame) -> str:
    counts = claims["here_verdict"].value_counts().to_dict()
    hold, do_not, unknown = (counts.get(x, 0) for x in (HOLDS, NOT, UNKNOWN))
    told = f"{hold} hold, {do_not} do not, and of {unknown} it cannot be told"
    lost = counts.get(UNTESTED, 0)
    return told + (f"; {lost} cannot be tested" if lost else "")


def claim_caveats(claims: pd.DataFrame, alpha: float) -> Iterator[str]:
    """Says what the tests cannot see."""
    if blind := (claims["here_holm_least"] > alpha / 2).sum():
        most = math.floor(alpha / 2 * math.comb(10, 5))
        yield _CAVEATS["blind"].format(blind, alpha / 2, most)
    if lost := (claims["here_verdict"] == UNTESTED).sum():
        yield _CAVEATS["untested"].format(lost)
    tested = claims[claims["here_p"].notna()]
    if families := tested["family"].nunique():
        yield _CAVEATS["chance"].format(alpha * families, families, len(tested))


def claim_tables(claims: pd.DataFrame, alpha: float) -> Iterator[tables.Table | None]:
    """Shows what the paper's numbers and ours say of each claim; apart what has none here."""
    here = claims["here_verdict"] != ""
    yield _claim_table("claims", claims[here], alpha)
    yield _claim_table("claims_unmeasured", claims[~here], alpha)


def _claim_table(name: str, claims: pd.DataFrame, alpha: float) -> tables.Table | None:
    if claims.empty:
        return None
    shown = claims.replace("", None)
    for side in ("here", "paper"):
        both = claims[[f"{side}_more", f"{side}_less"]].map(distortion_page.number)
        both = both.agg(", ".join, axis=1)
        shown[f"{side}_means"] = both.where(claims[f"{side}_n"] != "")
    least = claims["here_holm_least"]
    blind = " (p ≥ " + least.map(tables.p_text) + ")"
    shown["here_verdict"] += blind.where(least > alpha / 2, "")
    model = "model " * (claims["model"].nunique() > 1)
    columns = tables.columns(model + _COLUMNS)
    caption = _CAPTIONS[name].format(what=_CLAIM.format(alpha / 2))
    table = tables.from_rows(name, caption, shown, columns, data=claims)
    cells = np.array(table.rows)
    found = (np.argwhere(cells == verdict).tolist() for verdict in (HOLDS, NOT))
    holds, fails = (frozenset(map(tuple, places)) for places in found)
    shade = dict.fromkeys(holds, 0.5)
    return dataclasses.replace(table, bold=holds, under=fails, shade=shade)


# The page.

SECTIONS = {"claims": "Which orderings hold", "tables": "The paper's tables"}
SECTIONS |= distortion_page.SECTIONS | {"missing": "What is missing"}
ALWAYS = (
    distortion_page.ALWAYS
    + f"""\
Numbers need not be equal to the printed ones: batches, masks, precision and the filling of \
occluders differ in the released code. Orderings are what can be compared.
Black hides with pixels of value 0, as the paper says; its released code with the mean colour.
iOcclusion hides the most salient pixels, as the paper says; its released code draws for each \
image whether the most or the least salient are hidden.
FMix masks here are isotropic; those of the released code vary along one axis alone.
The DI index counts every wrong prediction; the released code counts a class once a batch.
The paper has no number of CutMix on ImageNet, and one network a method there, so no deviation.
The printed Table 4 does not say of which data set it is; it is set beside {UNNAMED}.
""".splitlines()
)


def extended(page: document.Report, study: Study, printed: Printed, *, alpha: float):
    """Gives a report of distortion with the paper's tables and claims."""
    claims, lacking = frame(study, printed, alpha=alpha), missing(study, printed)
    layouts = printed.layouts(study.names("data")).items()
    compare = functools.partial(distortion_page.comparison, printed=printed.numbers)
    shown = {name: compare(layout, study) for name, layout in layouts}
    made = [("tables", table) for table in shown.values()]
    made += [("claims", table) for table in claim_tables(claims, alpha)]
    made.append(("missing", _missing_table(lacking)))
    empty = {x: _begin(x, lacking) for x, table in shown.items() if table is None}
    names = tables.join(empty)
    lost = f"Nothing here is of {names}; the last section has the commands."
    caveats = [lost] * bool(empty)
    caveats += distortion_page.particular(page, distortion_page.ALWAYS)
    caveats += [*claim_caveats(claims, alpha), *ALWAYS]
    words = {"tables": list(empty.values()), "caveats": caveats}
    texts = [(section, document.Text(lines)) for section, lines in words.items()]
    kept = [one for one in page.sections if one.id not in words]
    before = [(one.id, block) for one in kept for block in one.blocks]
    every = {table.name: table.data for _, table in made if table}
    own = {"caveats": caveats, "tables": page.results["tables"] | every}
    return dataclasses.replace(
        page,
        answer=headline(claims, alpha),
        facts=page.facts | {"Orderings tested": int(claims["here_p"].notna().sum())},
        sections=document.sections(SECTIONS, before, made, texts),
        results=page.results | own,
        source=f"{page.source} Printed numbers are those of that paper.",
    )


# What is missing.

_TITLES = distortion_study.DATA | distortion_study.METHODS
_NAMES = {title: name for name, title in _TITLES.items()}
_NAMES |= {STACKED: "stacked", "itself": "same"}


def missing(study: Study, printed: Printed) -> list[tuple[list[str], str, str]]:
    """Gives what would fill which tables, and a command: networks before measures."""
    found: dict[tuple[bool, str, str], dict[str, None]] = {}
    for table, layout in printed.layouts().items():
        for cell in (cell for _, row in layout.rows for cell in row):
            models = dict.fromkeys(k.model for k in study.groups if k.data == cell.data)
            for model in models or [_model(cell.data)]:
                key = study.match(cell.key(model))
                if study.value(cell.quantity, key) is not None:
                    continue
                if cell.quantity == "affinity":
                    key = key._replace(method="basic")
                ending = "CLASS" * (key.training == WITHOUT)
                ending += f" ({key.model})" * (len(study.names("model")) > 1)
                what = f"networks: {key.words}{ending}", train(key)
                if there := key in study.groups:
                    title = QUANTITIES[cell.quantity].title
                    what = f"{title} of {key.words}", measure(key, cell.quantity)
                found.setdefault((there, *what), {})[table] = None
    return [(list(found[x]), *x[1:]) for x in sorted(found, key=lambda x: x[0])]


def _missing_table(lacking: list) -> tables.Table | None:
    rows = [{"of": tables.join(of), "missing": x, "command": y} for of, x, y in lacking]
    columns = tables.columns("of missing command")
    return tables.from_rows("missing", _CAPTIONS["missing"], rows, columns)


def _begin(table: str, lacking: list) -> str:
    """Names a table that nothing here is of, and a command that begins it."""
    mine = [row for row in lacking if table in row[0]]
    # What only needs to be measured is made sooner than what must be trained.
    _, what, command = min(mine, key=lambda row: row[1].startswith("networks: "))
    more = f" and {len(mine) - 1} more in the last section" if mine[1:] else ""
    return f"{table}: nothing here. For {what}: {command}{more}"


def train(key: Key) -> str:
    """Gives the command that trains a group's networks."""
    data, method = _NAMES.get(key.data, key.data), _NAMES.get(key.method, key.method)
    words, name = [f"method={method}", f"data={data}", *_roots(data)], method
    if key.model != _model(key.data):
        words.append(f"model={key.model}")
        name = f"{key.model}-{name}"
    if key.training == WITHOUT:
        words.append("drop=CLASS")
        name += "-without-CLASS"
    elif key.training.startswith(OTHER):
        other = key.training.removeprefix(OTHER)
        other = _NAMES.get(other, other)
        words += [f"partner={other}"] + ["partner_root=DIR"] * (other != "same")
        name += f"-with-{other}"
    command = f"jbias train --config=configs/distortion.py:{','.join(words)}"
    return f"{command} --workdir=runs/distortion/{name}-{data}"


def measure(key: Key, quantity: str) -> str:
    """Gives the command that measures a group's networks."""
    data = _NAMES.get(key.data, key.data)
    words = [f"data={data}", *_roots(data)]
    if quantity in ("di_other", "di_anywhere", "cut_occlusion", "iocclusion"):
        other = "cifar10" if data == "cifar100" else "cifar100"
        words += [f"other={other}", "other_root=DIR"]
    if quantity.startswith("gst_"):
        words.append("stimuli=DIR")
    if key.training.startswith(WITHOUT):
        dropped = key.training.removeprefix(WITHOUT).replace(" and ", "+")
        words.append(f"drop={dropped or 'CLASS'}")
    suite = f"--suite=configs/suites/distortion.py:{','.join(words)}"
    return f"jbias evaluate --runs='runs/distortion/*' {suite}"


def _roots(data: str) -> list[str]:
    return ["root=DIR"] * (data != "shapes") + ["digits=DIR"] * (data == "stacked")


def _model(data: str) -> str:
    return "resnet101" if data == "ImageNet" else "preact_resnet18"
