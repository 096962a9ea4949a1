"""The page on the data-distortion paper: which orderings hold, its tables, what is missing.

A claim says that one mean is larger than another. The paper's text makes some; others were
read off its tables, so those numbers cannot test them. Of the printed numbers the test is
Welch's t, from means, deviations and five runs, but not of the DI index, whose runs share a
weight. Ours are tested by exchanging seeds between the two groups. p is one-sided, for and
against the claim, each at half the level, and adjusted after Holm over a family: the claims
of a measure and data set, those of the text and those of tables apart.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from jbias.papers import distortion_published as published
from jbias.report import distortion_page, distortion_study, document, tables
from jbias.stats import multiple_testing, two_sample

Study, Claim = distortion_study.Study, published.Claim
Numbers = Mapping[published.Cell, Mapping]
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
_NAMES = {
    title: name
    for known in (distortion_study.DATA, distortion_study.METHODS)
    for name, title in known.items()
} | {distortion_study.STACKED: "stacked", "itself": "same"}
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
The printed Table 4 does not say of which data set it is; it is set beside {published.UNNAMED}.
""".splitlines()
)


def extended(
    page: document.Report, study: Study, printed: published.Printed, *, alpha: float
) -> document.Report:
    """Gives a report of distortion with the paper's tables and claims."""
    claims, lacking = frame(study, printed, alpha=alpha), missing(study, printed)
    layouts = printed.layouts(study.data).items()
    shown = {
        x: distortion_page.comparison(layout, study, printed.numbers)
        for x, layout in layouts
    }
    made = [("tables", table) for table in shown.values()]
    made += [("claims", table) for table in claim_tables(claims, alpha)]
    made.append(("missing", _missing_table(lacking)))
    made = [(section, table) for section, table in made if table is not None]
    empty = {x: _begin(x, lacking) for x, table in shown.items() if table is None}
    lost = (
        f"Nothing here is of {tables.join(empty)}; the last section has the commands."
    )
    caveats = [lost] * bool(empty)
    caveats += distortion_page.particular(page, distortion_page.ALWAYS)
    caveats += [*claim_caveats(claims, alpha), *ALWAYS]
    words = {"tables": list(empty.values()), "caveats": caveats}
    texts = [(section, document.Text(lines)) for section, lines in words.items()]
    before = [
        (x.id, one) for x in page.sections if x.id not in words for one in x.blocks
    ]
    every = page.results["tables"] | {table.name: table.data for _, table in made}
    return dataclasses.replace(
        page,
        answer=headline(claims, alpha),
        facts=page.facts | {"Orderings tested": int(claims["here_p"].notna().sum())},
        sections=document.sections(SECTIONS, before, made, texts),
        results=page.results | {"caveats": caveats, "tables": every},
        source=f"{page.source} Printed numbers are those of that paper.",
    )


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
    if n > 1 and claim.whose == published.TEXT and not shared:
        side["p"], side["against"] = two_sample.welch(
            (more["mean"] + claim.margin, max(more["std"], _ROUNDED), n),
            (less["mean"], max(less["std"], _ROUNDED), n),
        )
    return side


def of_measured(claim: Claim, study: Study, model: str) -> dict | None:
    """Tests a claim by the networks of one model; None where they are not there."""
    both = [study.value(x.quantity, x.key(model)) for x in (claim.more, claim.less)]
    return tested(claim, *both) if all(both) else None


def tested(
    claim: Claim, more: distortion_study.Values, less: distortion_study.Values
) -> dict:
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
    found = {key: side for key, side in sides.items() if side}
    families: dict[tuple, list[dict]] = {}
    for (model, claim), side in found.items():
        side["verdict"] = UNTESTED
        if not math.isnan(side["p"]):
            families.setdefault((model, *claim.family), []).append(side)
    for each in families.values():
        for name, of in _HOLM.items():
            p = [side[of] for side in each]
            if not np.isnan(p).any():
                holm = multiple_testing.adjust(p, "holm").tolist()
                for side, value in zip(each, holm, strict=True):
                    side[name] = value
        for side in each:
            against = NOT if side["holm_against"] <= alpha / 2 else UNKNOWN
            side["verdict"] = HOLDS if side["holm"] <= alpha / 2 else against
    return found


def frame(study: Study, printed: published.Printed, *, alpha: float) -> pd.DataFrame:
    """Gives a row a claim and model, in the paper's numbers and in ours."""
    claims, numbers = list(printed.claims(study.data)), printed.numbers
    theirs = judged({("", x): of_printed(x, numbers) for x in claims}, alpha)
    pairs = itertools.product(study.models, claims)
    ours = judged({(m, x): of_measured(x, study, m) for m, x in pairs}, alpha)
    rows = []
    for claim in claims:
        models = [model for model in study.models if (model, claim) in ours]
        for model in models or [""] * (("", claim) in theirs):
            row = [model, claim.table, claim.more.data, claim.words, claim.whose]
            row.append(" ".join((model, *claim.family)))
            for side in (theirs.get(("", claim)), ours.get((model, claim))):
                row += (side or _BLANK).values()
            rows.append(row)
    lead = ("model", "table", "data", "claim", "whose", "family")
    sides = (f"{side}_{name}" for side in ("paper", "here") for name in _BLANK)
    found = pd.DataFrame(rows, columns=[*lead, *sides])
    known = found["here_p"].notna()
    both = found.loc[known, ["here_p", "here_against"]].min(axis=1) * 2
    adjusted = multiple_testing.adjust(both.clip(upper=1).to_numpy(), "bh")
    found.loc[known, "fdr"] = adjusted
    return found.drop(columns=["paper_ranks", "paper_least", "paper_holm_least"])


def headline(claims: pd.DataFrame, alpha: float) -> tuple[str, str]:
    """Gives the answer in one sentence, of claims of the text, and what it rests on."""
    if not len(claims):
        answer = "No ordering of the paper can be looked at here."
        return answer, "Its networks are missing."
    there = claims[claims["here_verdict"] != ""]
    text, shown = (
        there[there["whose"] == x] for x in (published.TEXT, published.TABLE)
    )
    sure = there[there["fdr"] <= alpha]
    hold = int((sure["here_p"] < sure["here_against"]).sum())
    once = claims.drop_duplicates(["table", "data", "claim"])
    return (
        f"Of {len(text)} orderings of the paper's text that can be looked at here "
        f"{_counted(text)}."
    ), (
        f"{_ordered(text, 'here')}. Of {len(shown)} more that its tables show "
        f"{_counted(shown)}; {_ordered(shown, 'here')}. Over all "
        f"{there['fdr'].notna().sum()} tests at once, of what is told no more than "
        f"{alpha:.0%} false (Benjamini and Hochberg), {hold} hold and "
        f"{len(sure) - hold} do not. In the paper {_ordered(once, 'paper')}."
    )


def _ordered(claims: pd.DataFrame, side: str) -> str:
    counts = claims[f"{side}_order"].value_counts()
    equal = counts.get(EQUAL, 0)
    return (
        f"{counts.get(AS_CLAIMED, 0)} of {counts.drop('', errors='ignore').sum()} have the "
        "means in the claimed order"
    ) + (f", {equal} have equal ones" if equal else "")


def _counted(claims: pd.DataFrame) -> str:
    counts = claims["here_verdict"].value_counts()
    hold, do_not, unknown, untested = (
        counts.get(words, 0) for words in (HOLDS, NOT, UNKNOWN, UNTESTED)
    )
    told = f"{hold} hold, {do_not} do not, and of {unknown} it cannot be told"
    return told + (f"; {untested} cannot be tested" if untested else "")


def claim_caveats(claims: pd.DataFrame, alpha: float) -> Iterator[str]:
    """Says what the tests cannot see."""
    if blind := int((claims["here_holm_least"] > alpha / 2).sum()):
        yield (
            f"Of {blind} orderings it cannot be told whatever the numbers: so few seeds have no "
            f"p small enough to pass Holm's adjustment at {alpha / 2:g}, half the level on each "
            "side; the least that is possible stands beside each. Five seeds of each have "
            f"1/252, enough for up to {math.floor(alpha / 2 * math.comb(10, 5))} claims of a "
            "measure and data set."
        )
    if lost := int((claims["here_verdict"] == UNTESTED).sum()):
        yield (
            f"{lost} orderings have fewer than two seeds on a side of which the measure can be "
            "told: their means are shown, and there is no test."
        )
    if tests := int(claims["here_p"].notna().sum()):
        families = claims.loc[claims["here_p"].notna(), "family"].nunique()
        yield (
            f"If all methods were alike, up to {alpha * families:.2g} of the {families} families "
            f"of orderings ({tests} tests) would say something by chance, on average. Seeds that "
            "begin alike are taken as independent, and seeds of two methods as exchangeable "
            "where these are alike."
        )


def claim_tables(claims: pd.DataFrame, alpha: float) -> Iterator[tables.Table | None]:
    """Shows what the paper's numbers and ours say of each claim; apart what has none here."""
    what = (
        "that the first mean is above the second. Whose: the paper's text, or one of its tables. "
        "Paper: Welch's t from printed means, deviations (0.00 taken as 0.005) and five runs; no "
        "test of what was read off these numbers, nor of the DI index, whose runs share a "
        "weight. p is one-sided, for the claim; holm: adjusted over the claims of a measure and "
        "data set, text and table apart; holm against: of the opposite. Holds (bold, shaded): "
        f"holm is no more than {alpha / 2:g}; does not hold (underlined): holm against is."
    )
    here = claims["here_verdict"] != ""
    caption = (
        f"What the paper claims, or its tables show, as orderings: {what} Here: all ways to "
        "exchange n seeds between the two groups, or a sample of them; ranks: Wilcoxon, Mann "
        "and Whitney's p. Of the DI index a seed's part and growth of the class that its "
        "method's errors gather in are exchanged, of iOcclusion its gaps by the mean gap: means "
        "are ratios of mean gaps. fdr: p of both sides, adjusted over every test here after "
        "Benjamini and Hochberg. In brackets: no holm of so few seeds is smaller."
    )
    yield _claim_table("claims", caption, claims[here], alpha)
    caption = f"Orderings of the paper that nothing here is of: {what}"
    yield _claim_table("claims_unmeasured", caption, claims[~here], alpha)


def _claim_table(
    name: str, caption: str, claims: pd.DataFrame, alpha: float
) -> tables.Table | None:
    if claims.empty:
        return None
    shown = claims.replace("", None)
    for side in ("here", "paper"):
        more, less = (
            claims[f"{side}_{x}"].map(distortion_page.number) for x in ("more", "less")
        )
        shown[f"{side}_means"] = (more + ", " + less).where(claims[f"{side}_n"] != "")
    least = claims["here_holm_least"]
    blind = " (p ≥ " + least.map(tables.p_text) + ")"
    shown["here_verdict"] += blind.where(least > alpha / 2, "")
    columns = distortion_page.columns(
        (str, "model" * (claims["model"].nunique() > 1)),
        (str, "table data claim whose here_verdict paper_verdict"),
        (format, "here_means here_order here_n"),
        (tables.p_text, "here_p here_holm here_holm_against here_ranks fdr"),
        (format, "paper_means paper_order paper_n"),
        (tables.p_text, "paper_holm paper_holm_against"),
    )
    table = tables.from_rows(name, caption, shown, columns)
    cells = [(i, j, x) for i, row in enumerate(table.rows) for j, x in enumerate(row)]
    holds, fails = (
        frozenset((i, j) for i, j, x in cells if x == verdict)
        for verdict in (HOLDS, NOT)
    )
    shade = dict.fromkeys(holds, 0.5)
    return dataclasses.replace(
        table, data=claims, strong=holds, under=fails, shade=shade
    )


def missing(
    study: Study, printed: published.Printed
) -> list[tuple[list[str], str, str]]:
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
                if there := key in study.groups:
                    title = published.QUANTITIES[cell.quantity].title
                    what = f"{title} of {key.words}", measure(key, cell.quantity)
                else:
                    ending = "CLASS" * (key.training == published.WITHOUT)
                    ending += f" ({key.model})" * (len(study.models) > 1)
                    what = f"networks: {key.words}{ending}", train(key)
                found.setdefault((there, *what), {})[table] = None
    return [(list(found[x]), *x[1:]) for x in sorted(found, key=lambda x: x[0])]


def _missing_table(lacking: list) -> tables.Table | None:
    rows = [{"of": tables.join(of), "missing": x, "command": y} for of, x, y in lacking]
    return tables.from_rows(
        "missing",
        "What is missing in the tables of the paper, and what makes it; networks are measured "
        "once they are trained. CLASS: the class that errors of the basic networks gather in; "
        "DIR: where a set lies. What was measured is not measured again.",
        rows,
        distortion_page.columns((str, "of missing command")),
    )


def _begin(table: str, lacking: list) -> str:
    """Names a table that nothing here is of, and a command that begins it."""
    mine = [row for row in lacking if table in row[0]]
    # What only needs to be measured is made sooner than what must be trained.
    _, what, command = min(mine, key=lambda row: row[1].startswith("networks: "))
    more = f" and {len(mine) - 1} more in the last section" if mine[1:] else ""
    return f"{table}: nothing here. For {what}: {command}{more}"


def train(key: distortion_study.Key) -> str:
    """Gives the command that trains a group's networks."""
    data, method = _NAMES.get(key.data, key.data), _NAMES.get(key.method, key.method)
    words, name = [f"method={method}", f"data={data}", *_roots(data)], method
    if key.model != _model(key.data):
        words.append(f"model={key.model}")
        name = f"{key.model}-{name}"
    if key.training.startswith(published.OTHER):
        other = key.training.removeprefix(published.OTHER)
        other = _NAMES.get(other, other)
        words += [f"partner={other}"] + ["partner_root=DIR"] * (other != "same")
        name += f"-with-{other}"
    elif key.training.startswith(published.WITHOUT):
        words.append("drop=CLASS")
        name += "-without-CLASS"
    return (
        f"python -m jbias.main --config=configs/distortion.py:{','.join(words)} "
        f"--workdir=runs/distortion/{name}-{data}"
    )


def measure(key: distortion_study.Key, quantity: str) -> str:
    """Gives the command that measures a group's networks."""
    data = _NAMES.get(key.data, key.data)
    words = [f"data={data}", *_roots(data)]
    if quantity in ("di_other", "di_anywhere", "cut_occlusion", "iocclusion"):
        other = "cifar10" if data == "cifar100" else "cifar100"
        words += [f"other={other}", "other_root=DIR"]
    if quantity.startswith("gst_"):
        words.append("stimuli=DIR")
    if key.training.startswith(published.WITHOUT):
        dropped = key.training.removeprefix(published.WITHOUT).replace(" and ", "+")
        words.append(f"drop={dropped or 'CLASS'}")
    return (
        "python -m jbias.evaluate --runs='runs/distortion/*' "
        f"--suite=configs/suites/distortion.py:{','.join(words)}"
    )


def _roots(data: str) -> list[str]:
    digits = ["digits=DIR"] if data == "stacked" else []
    return [] if data == "shapes" else ["root=DIR", *digits]


def _model(data: str) -> str:
    return "resnet101" if data == "ImageNet" else "preact_resnet18"
