"""Names merged over several rows, in LaTeX and in Excel, apply to each of these rows."""

import pandas as pd
import pytest

from jbias import scores
from tests import cases

ROWS = (
    ("R18", "ERM", 70.1, 71.5),
    ("R18", "RSC", 72.1, 73.5),
    ("R50", "ERM", 74.1, 75.5),
    ("R50", "RSC", 76.1, 77.5),
    ("R50", "Ours", 78.1, 79.5),
)


def latex(*, is_up=False):
    """Return the table in LaTeX, with the names of networks over several rows."""
    sizes = {"R18": 2, "R50": 3}
    lines = [
        r"\multirow{2}{*}{Backbone} & \multirow{2}{*}{Method} & \multicolumn{2}{c}{Test} \\",
        r" & & PACS & VLCS \\ \midrule",
    ]
    for i, (network, method, first, second) in enumerate(ROWS):
        neighbour = ROWS[i - 1 if not is_up else (i + 1) % len(ROWS)]
        count = -sizes[network] if is_up else sizes[network]
        is_marked = neighbour[0] != network
        cell = rf"\multirow{{{count}}}{{*}}{{{network}}}" if is_marked else ""
        lines.append(rf"{cell} & {method} & {first} & {second} \\")
    body = "\n".join(lines)
    return f"\\begin{{tabular}}{{llcc}}\n{body}\n\\end{{tabular}}\n"


@cases.each("form", ["below", "above", "excel"])
def test_a_name_over_several_rows_applies_to_each(tmp_path, form):
    path = tmp_path / ("t.xlsx" if form == "excel" else "t.tex")
    if form == "excel":
        frame = pd.DataFrame(ROWS, columns=["Backbone", "Method", "PACS", "VLCS"])
        frame.set_index(["Backbone", "Method"]).to_excel(path)
    else:
        path.write_text(latex(is_up=form == "above"))
    tidy = scores.read(path, columns="algorithm=Backbone+Method").tidy
    right = {
        (f"{b} {m}", d): x for b, m, *xs in ROWS for d, x in zip(("PACS", "VLCS"), xs)
    }
    assert tidy.set_index(["algorithm", "dataset"])["score"].to_dict() == right


def test_a_blank_part_of_a_name_outside_of_merged_cells_is_refused(tmp_path):
    path = tmp_path / "t.tex"
    path.write_text(latex().replace("{2}{*}{R18}", "{1}{*}{R18}"))
    with pytest.raises(ValueError, match="t.tex:5: 'Backbone' must not be empty"):
        scores.read(path, columns="algorithm=Backbone+Method")
