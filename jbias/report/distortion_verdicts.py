"""What is said of the paper's claimed orderings: in a sentence, in tables, with caution."""

from collections.abc import Iterator, Sequence

import pandas as pd

from jbias.report import distortion_claims, distortion_tables, tables


def headline(found: pd.DataFrame) -> tuple[str, str]:
    """Gives the answer in one sentence and what it rests on."""
    if not len(found):
        return (
            "No ordering of the paper can be looked at here.",
            "Its networks are missing.",
        )
    there = found[found["here_verdict"] != ""]
    counts = there["here_verdict"].value_counts()
    told = [
        f"{counts.get(distortion_claims.HOLDS, 0)} hold",
        f"{counts.get(distortion_claims.NOT, 0)} do not",
    ]
    told.append(f"of {counts.get(distortion_claims.UNKNOWN, 0)} it cannot be told")
    once = found.drop_duplicates(["table", "data", "claim"])
    paper = once["paper_verdict"].value_counts()
    as_claimed = int((there["here_more"] > there["here_less"]).sum())
    return (
        f"Of {len(there)} orderings that can be looked at here {', '.join(told)}.",
        (
            f"{as_claimed} of {len(there)} have the means in the claimed order. In the paper's own "
            f"numbers {paper.get(distortion_claims.HOLDS, 0)} hold, {paper.get(distortion_claims.NOT, 0)} do not, and of "
            f"{paper.get(distortion_claims.UNKNOWN, 0)} it cannot be told."
        ),
    )


def caveats(found: pd.DataFrame, alpha: float) -> Iterator[str]:
    """Says what the tests cannot see."""
    if not len(found):
        return
    few = found[
        (found["here_verdict"] == distortion_claims.UNKNOWN)
        & found["here_least"].notna()
    ]
    sizes = found.groupby(["model", "table", "data"])["here_p"].transform("count")
    blind = few[few["here_least"] * sizes[few.index] > alpha]
    if len(blind):
        yield (
            f"Of {len(blind)} orderings it cannot be told whatever the numbers: so few seeds "
            f"have no p small enough to pass Holm's adjustment at {alpha:g}. Five seeds of each "
            "suffice for up to 12 claims of a table and data set."
        )
    single = found[
        (found["here_verdict"] == distortion_claims.UNKNOWN)
        & found["here_least"].isna()
    ]
    if len(single):
        yield (
            f"{len(single)} orderings have one seed on a side: their means are shown, and "
            "there is no test."
        )
    if (found["here_p"].notna()).any():
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
        f"where it is no more than {alpha:g}, does not hold where the same is true of "
        "against (Holm), p of the opposite. Bold: what can be told."
    )
    if here.any():
        yield _claims(
            "claims",
            f"What the paper claims, or its tables show, as orderings: {told} Here: all ways "
            "to exchange seeds between the two groups, or a sample of them; p (ranks) is "
            "Wilcoxon, Mann and Whitney's; p (Holm, all) is adjusted over every claim here.",
            frame[here],
            ("here", "paper"),
        )
    if not here.all():
        yield _claims(
            "claims_unmeasured",
            f"Orderings of the paper that nothing here is of: {told}",
            frame[~here],
            ("paper",),
        )


# Titles, and whether it is a p.
_CLAIM = {
    "verdict": ("", False),
    "means": ("means", False),
    "n": ("n", False),
    "p": ("p", True),
    "holm": ("p (Holm)", True),
    "holm_against": ("against (Holm)", True),
    "ranks": ("p (ranks)", True),
}


def _claims(
    name: str, caption: str, frame: pd.DataFrame, sides: Sequence[str]
) -> tables.Table:
    shown, rows, strong = distortion_tables.number, [], set()
    leading = ["table", "data", "claim"]
    if frame["model"].nunique() > 1:
        leading.insert(0, "model")
    columns = [
        (side, key)
        for side in sides
        for key in _CLAIM
        if side == "here" or key not in ("p", "ranks")
    ]
    for i, row in enumerate(frame.to_dict("records")):
        cells = [row[key] for key in leading]
        for side, key in columns:
            if not row[f"{side}_verdict"]:
                cells.append("–")
            elif key == "means":
                pair = row[f"{side}_more"], row[f"{side}_less"]
                cells.append(", ".join(map(shown, pair)))
            else:
                value = row[f"{side}_{key}"]
                cells.append(_p(value) if _CLAIM[key][1] else value)
            if cells[-1] in (distortion_claims.HOLDS, distortion_claims.NOT):
                strong.add((i, len(cells) - 1))
        rows.append((*cells, *([_p(row["holm_all"])] if "here" in sides else [])))
    titles = {"here": "here", "paper": "in the paper"}
    return tables.Table(
        name=name,
        caption=caption,
        head=(
            *(key.capitalize() if not i else key for i, key in enumerate(leading)),
            *(_CLAIM[key][0] or titles[side] for side, key in columns),
            *(["p (Holm, all)"] if "here" in sides else []),
        ),
        rows=tuple(rows),
        data=frame,
        strong=frozenset(strong),
        texts=len(leading) + 1,
    )


def _p(p: float) -> str:
    return "–" if pd.isna(p) else tables.p_text(p)
