"""A report of your own: three sections about a table of scores.

python examples/own_report.py examples/biasbed_table2.csv report-own

The function computes data frames, and declares sections of text, tables and figures. jbias
writes the page, CSV, Parquet, LaTeX, Markdown, SVG (and PDF, PNG: figures=) and results.json.
"""

import pathlib
import sys

import pandas as pd

from jbias.report import document, plots, tables


def report(path: str) -> document.Report:
    """Return the report of a CSV file with the columns algorithm, dataset and score."""
    scores = pd.read_csv(path)
    summary = scores.groupby("algorithm")["score"].agg(["mean", "min", "max"])
    summary = summary.sort_values("mean", ascending=False).reset_index()
    best, sets = summary.iloc[0], scores["dataset"].nunique()
    means = tables.from_rows(
        "means",
        f"Mean, worst and best score over {sets} data sets. Bold: the best mean.",
        summary,
        {"algorithm": ("Algorithm", str)}
        | {name: (name, tables.digits(1)) for name in ("mean", "min", "max")},
        bold=lambda row: ["mean"] if row["mean"] == best["mean"] else [],
    )
    spread = plots.intervals(
        list(summary["algorithm"]),
        summary["mean"].to_numpy(),
        summary["min"].to_numpy(),
        summary["max"].to_numpy(),
        digits=1,
    )
    caption = "Mean score, and the range over data sets."
    figure = document.Figure("spread", caption, spread)
    warning = "Means give a point the same weight on every data set; ranks do not."
    caveats = [document.Text([warning])]
    return document.Report(
        title="Scores",
        heading=f"{len(summary)} algorithms",
        subtitle=path,
        answer=(f"{best['algorithm']} has the best mean.", f"{best['mean']:.1f}"),
        facts={"Algorithms": len(summary), "Data sets": sets},
        sections=[
            document.Section("means", "Means", [means]),
            document.Section("spread", "Spread", [figure]),
            document.Section("caveats", "What to keep in mind", caveats),
        ],
        results={"means": summary},
    )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python examples/own_report.py SCORES.csv FOLDER")
    print(document.write(report(sys.argv[1]), pathlib.Path(sys.argv[2])))
