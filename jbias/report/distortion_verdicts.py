"""What is said of the paper's claimed orderings: in a sentence, in tables, with caution."""

import math
from collections.abc import Iterator

import pandas as pd

from jbias.report import distortion_claims, distortion_tables, tables

HOLDS, NOT = distortion_claims.HOLDS, distortion_claims.NOT
UNKNOWN = distortion_claims.UNKNOWN


def headline(found: pd.DataFrame) -> tuple[str, str]:
    """Gives the answer in one sentence and what it rests on."""
    if not len(found):
        return (
            "No ordering of the paper can be looked at here.",
            "Its networks are missing.",
        )
    there = found[found["here_verdict"] != ""]
    known = there[there["here_more"].notna() & there["here_less"].notna()]
    as_claimed = int((known["here_more"] > known["here_less"]).sum())
    once = found.drop_duplicates(["table", "data", "claim"])
    both = ["here_verdict", "paper_verdict"]
    told = there[~there[both].isin(["", UNKNOWN]).any(axis=1)]
    alike = int((told["here_verdict"] == told["paper_verdict"]).sum())
    agreed = f" Of {len(told)} that can be told in both {alike} are alike."
    return (
        f"Of {len(there)} orderings that can be looked at here {_counted(there, 'here')}.",
        (
            f"{as_claimed} of {len(known)} have the means in the claimed order. In the paper's "
            f"own numbers {_counted(once, 'paper')}.{agreed if len(told) else ''}"
        ),
    )


def _counted(found: pd.DataFrame, side: str) -> str:
    counts = found[f"{side}_verdict"].value_counts()
    hold, do_not, unknown = (counts.get(words, 0) for words in (HOLDS, NOT, UNKNOWN))
    return f"{hold} hold, {do_not} do not, and of {unknown} it cannot be told"


def caveats(found: pd.DataFrame, alpha: float) -> Iterator[str]:
    """Says what the tests cannot see."""
    if not len(found):
        return
    blind = int((found["here_holm_least"] > alpha).sum())
    if blind:
        ways = math.comb(10, 5)
        yield (
            f"Of {blind} orderings it cannot be told whatever the numbers: so few seeds "
            f"have no p small enough to pass Holm's adjustment at {alpha:g}; the least p that "
            "is possible stands beside each. Five seeds of each have 1/252, which suffices "
            f"for up to {math.floor(alpha * ways)} claims of a table and data set."
        )
    single = (found["here_verdict"] == UNKNOWN) & found["here_p"].isna()
    if single.any():
        yield (
            f"{single.sum()} orderings have fewer than two seeds on a side: their means are "
            "shown, and there is no test."
        )
    if found["here_p"].notna().any():
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
        "that the first mean is above the second. Paper: Welch's t from printed means, "
        "deviations (0.00 taken as 0.005) and five runs. All p are one-sided, for the claim; "
        "p (Holm) is adjusted over the claims of a table and data set, and decides: holds "
        f"(bold, shaded) where it is no more than {alpha:g}, does not hold (underlined) where "
        "the same is true of against (Holm), p of the opposite."
    )
    if here.any():
        yield _claims(
            "claims",
            f"What the paper claims, or its tables show, as orderings: {told} Here: all ways "
            "to exchange n seeds between the two groups, or a sample of them; p (ranks) is "
            "Wilcoxon, Mann and Whitney's; p (Holm, all) is adjusted over every claim here. "
            "In brackets: with so few seeds p (Holm) is never smaller, whatever the numbers.",
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
    "here_n": "n",
    "here_p": "p",
    "here_holm": "p (Holm)",
    "here_holm_against": "against (Holm)",
    "here_ranks": "p (ranks)",
    "holm_all": "p (Holm, all)",
    "paper_means": "paper: means",
    "paper_n": "n",
    "paper_holm": "p (Holm)",
    "paper_holm_against": "against (Holm)",
}


def _claims(name: str, caption: str, frame: pd.DataFrame, alpha: float) -> tables.Table:
    leading = ["model"] if frame["model"].nunique() > 1 else []
    leading += ["table", "data", "claim"]
    sides = [
        side for side in ("here", "paper") if (frame[f"{side}_verdict"] != "").any()
    ]
    heads = {
        key: title
        for key, title in _HEADS.items()
        if key.partition("_")[0] in sides or (key == "holm_all" and "here" in sides)
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
        head=(leading[0].capitalize(), *leading[1:], *heads.values()),
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
        ending = f" (p ≥ {tables.p_text(least)})" if least > alpha else ""
        return f"{row[key]}{ending}" or "–"
    if what == "n":
        return row[key] or "–"
    return "–" if pd.isna(row[key]) else tables.p_text(row[key])
