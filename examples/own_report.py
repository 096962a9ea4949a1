r"""A report of one's own: three sections of what any table of scores says.

    python examples/own_report.py examples/biasbed_table2.csv report-own

It reads what it is about, computes frames, and declares sections of text, tables and
figures. The page, CSV, Parquet, LaTeX, Markdown, SVG and results.json follow; PDF and PNG as
well with figures=("pdf", "png") for `document.write`.
"""

import pathlib
import sys

import pandas as pd

from jbias.report import document, plots, tables


def report(path: str) -> document.Report:
    """Of a CSV with the columns algorithm, dataset and score."""
    scores = pd.read_csv(path)
    found = scores.groupby("algorithm")["score"].agg(["mean", "min", "max"])
    found = found.sort_values("mean", ascending=False).reset_index()
    best, sets = found.iloc[0], scores["dataset"].nunique()
    means = tables.from_rows(
        "means",
        f"Mean, worst and best score over {sets} data sets. Bold: the best mean.",
        found,
        {"algorithm": ("Algorithm", str)}
        | {name: (name, tables.digits(1)) for name in ("mean", "min", "max")},
        bold=lambda row: ["mean"] if row["mean"] == best["mean"] else [],
    )
    spread = plots.intervals(
        list(found["algorithm"]), *found[["mean", "min", "max"]].to_numpy().T, digits=1
    )
    caption = "Mean score, and the range over data sets."
    warning = "Means over data sets take a point on each for the same; ranks do not."
    return document.Report(
        title="Scores",
        heading=f"{len(found)} algorithms",
        subtitle=path,
        answer=(f"{best['algorithm']} has the best mean.", f"{best['mean']:.1f}"),
        facts={"Algorithms": len(found), "Data sets": sets},
        sections=[
            document.Section("means", "Means", [means]),
            document.Section(
                "spread", "Spread", [document.Figure("spread", caption, spread)]
            ),
            document.Section(
                "caveats", "What to keep in mind", [document.Text([warning])]
            ),
        ],
        results={"means": found},
    )


if __name__ == "__main__":
    print(document.write(report(sys.argv[1]), pathlib.Path(sys.argv[2])))
