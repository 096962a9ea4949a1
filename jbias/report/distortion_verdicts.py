"""What is said of the paper's claimed orderings: in a sentence, in tables, with caution."""

import math
from collections.abc import Iterator

import pandas as pd

from jbias.report import distortion_claims, distortion_tables, tables

HOLDS, NOT = distortion_claims.HOLDS, distortion_claims.NOT
UNKNOWN, UNTESTED = distortion_claims.UNKNOWN, distortion_claims.UNTESTED


def headline(found: pd.DataFrame, alpha: float) -> tuple[str, str]:
    """Gives the answer in one sentence, of claims of the text, and what it rests on."""
    if not len(found):
        return (
            "No ordering of the paper can be looked at here.",
            "Its networks are missing.",
        )
    there = found[found["here_verdict"] != ""]
    text, shown = (
        there[there["whose"] == whose]
        for whose in (distortion_claims.TEXT, distortion_claims.TABLE)
    )
    sure = there[there["fdr"] <= alpha]
    hold = int((sure["here_p"] < sure["here_against"]).sum())
    once = found.drop_duplicates(["table", "data", "claim"])
    answer = (
        f"Of {len(text)} orderings of the paper's text that can be looked at here "
        f"{_counted(text, 'here')}."
    )
    return answer, (
        f"{_ordered(text, 'here')}. Of {len(shown)} more that its tables show "
        f"{_counted(shown, 'here')}; {_ordered(shown, 'here')}. Over all "
        f"{there['fdr'].notna().sum()} tests at once, of what is told no more than "
        f"{alpha:.0%} false (Benjamini and Hochberg), {hold} hold and "
        f"{len(sure) - hold} do not. In the paper {_ordered(once, 'paper')}."
    )


def _ordered(found: pd.DataFrame, side: str) -> str:
    counts = found[f"{side}_order"].value_counts()
    equal = counts.get(distortion_claims.EQUAL, 0)
    return (
        f"{counts.get(distortion_claims.AS_CLAIMED, 0)} of "
        f"{(found[f'{side}_order'] != '').sum()} have the means in the claimed order"
        + (f", {equal} have equal ones" if equal else "")
    )


def _counted(found: pd.DataFrame, side: str) -> str:
    counts = found[f"{side}_verdict"].value_counts()
    hold, do_not, unknown, untested = (
        counts.get(words, 0) for words in (HOLDS, NOT, UNKNOWN, UNTESTED)
    )
    told = f"{hold} hold, {do_not} do not, and of {unknown} it cannot be told"
    return told + (f"; {untested} cannot be tested" if untested else "")


def caveats(found: pd.DataFrame, alpha: float) -> Iterator[str]:
    """Says what the tests cannot see."""
    if not len(found):
        return
    blind = int((found["here_holm_least"] > alpha / 2).sum())
    if blind:
        ways = math.comb(10, 5)
        yield (
            f"Of {blind} orderings it cannot be told whatever the numbers: so few seeds "
            f"have no p small enough to pass Holm's adjustment at {alpha / 2:g}, half the "
            "level on each side; the least p that is possible stands beside each. Five "
            f"seeds of each have 1/252, which suffices for up to "
            f"{math.floor(alpha / 2 * ways)} claims of a measure and data set."
        )
    lost = int((found["here_verdict"] == UNTESTED).sum())
    if lost:
        yield (
            f"{lost} orderings have fewer than two seeds on a side of which the measure can "
            "be told: their means are shown, and there is no test."
        )
    tested = found[found["here_p"].notna()]
    if len(tested):
        families = tested["family"].nunique()
        yield (
            f"If all methods were alike, up to {alpha * families:.2g} of the {families} "
            f"families of orderings ({len(tested)} tests) would say something by chance, "
            "on average."
        )
        yield (
            "Seeds that begin alike are taken as independent in the tests, and the seeds of "
            "one method as exchangeable with those of another where the two are alike."
        )


def of(frame: pd.DataFrame, alpha: float) -> Iterator[tables.Table]:
    """Shows what the paper's numbers and ours say of each claimed ordering.

    Those that nothing here is of have a table of their own.
    """
    if not len(frame):
        return
    here = frame["here_verdict"] != ""
    told = (
        "that the first mean is above the second. From: the paper's text, or one of its "
        "tables. Paper: Welch's t from printed means, deviations (0.00 taken as 0.005) and "
        "five runs; no test of what was read off these numbers, nor of the DI index, whose "
        "runs share a weight. All p are one-sided, for the claim; p (Holm) is adjusted over "
        "the claims of a measure and data set, text and table apart, and decides: holds "
        f"(bold, shaded) where it is no more than {alpha / 2:g}, does not hold (underlined) "
        "where the same is true of against (Holm), p of the opposite; so both together have "
        f"a level of {alpha:g}."
    )
    if here.any():
        yield _claims(
            "claims",
            f"What the paper claims, or its tables show, as orderings: {told} Here: all ways "
            "to exchange n seeds between the two groups, or a sample of them; p (ranks) is "
            "Wilcoxon, Mann and Whitney's. Of the DI index a seed's part and growth of the "
            "class that its method's errors gather in are exchanged, of iOcclusion its gaps by "
            "the mean gap: means are ratios of mean gaps. p (FDR, all) is of both sides, "
            "adjusted over every test here after Benjamini and Hochberg. In brackets: with so "
            "few seeds p (Holm) is never smaller, whatever the numbers.",
            frame[here],
            alpha,
        )
    if not here.all():
        told = f"Orderings of the paper that nothing here is of: {told}"
        yield _claims("claims_unmeasured", told, frame[~here], alpha)


_HEADS = {
    "here_verdict": "here",
    "paper_verdict": "in the paper",
    "here_means": "means",
    "here_order": "order",
    "here_n": "n",
    "here_p": "p",
    "here_holm": "p (Holm)",
    "here_holm_against": "against (Holm)",
    "here_ranks": "p (ranks)",
    "fdr": "p (FDR, all)",
    "paper_means": "paper: means",
    "paper_order": "order",
    "paper_n": "n",
    "paper_holm": "p (Holm)",
    "paper_holm_against": "against (Holm)",
}


def _claims(name: str, caption: str, frame: pd.DataFrame, alpha: float) -> tables.Table:
    leading = ["model"] if frame["model"].nunique() > 1 else []
    leading += ["table", "data", "claim", "whose"]
    sides = [
        side for side in ("here", "paper") if (frame[f"{side}_verdict"] != "").any()
    ]
    heads = {
        key: title
        for key, title in _HEADS.items()
        if key.partition("_")[0] in sides or (key == "fdr" and "here" in sides)
    }
    rows = [
        (*(row[key] for key in leading), *(_cell(row, key, alpha) for key in heads))
        for row in frame.to_dict("records")
    ]
    told = {(i, j): x for i, row in enumerate(rows) for j, x in enumerate(row)}
    holds = [place for place, cell in told.items() if cell == HOLDS]
    return tables.Table(
        name=name,
        caption=caption,
        head=(leading[0].capitalize(), *leading[1:-1], "from", *heads.values()),
        rows=tuple(rows),
        data=frame,
        strong=frozenset(holds),
        under=frozenset(place for place, cell in told.items() if cell == NOT),
        shade=dict.fromkeys(holds, 0.5),
        texts=len(leading) + len([key for key in heads if key.endswith("_verdict")]),
    )


def _cell(row: dict, key: str, alpha: float) -> str:
    side, _, what = key.partition("_")
    if what == "means":
        pair = (row[f"{side}_{name}"] for name in ("more", "less"))
        return (
            ", ".join(map(distortion_tables.number, pair)) if row[f"{side}_n"] else "–"
        )
    if what == "verdict":
        least = row["here_holm_least"] if side == "here" else 0
        ending = f" (p ≥ {tables.p_text(least)})" if least > alpha / 2 else ""
        return f"{row[key]}{ending}" or "–"
    if what in ("n", "order"):
        return row[key] or "–"
    return "–" if pd.isna(row[key]) else tables.p_text(row[key])
