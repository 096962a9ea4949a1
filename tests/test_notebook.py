"""The notebook is small, shows what it did, and runs."""

import ast
import json
import pathlib
import re

import pytest

from tests import cases

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOK = ROOT / "notebooks" / "start.ipynb"
CELLS = [
    cell
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    if cell["cell_type"] == "code"
]


def source(cell: dict) -> str:
    """A cell's Python, without what only a notebook understands."""
    lines = "".join(cell["source"]).splitlines()
    return "\n".join(line.replace("%pip", "pass  #") for line in lines)


def outputs(kind: str) -> list[dict]:
    """The outputs of all cells of a kind, such as "image/png"."""
    return [o for c in CELLS for o in c["outputs"] if kind in o.get("data", {})]


def test_cells_show_what_they_did():
    assert len(CELLS) == 11
    assert NOTEBOOK.stat().st_size < 200_000
    assert sum(bool(cell["outputs"]) for cell in CELLS) >= 8
    assert len(outputs("image/png")) == 2
    assert not [o for c in CELLS for o in c["outputs"] if o["output_type"] == "error"]


def test_its_measured_model_decides_by_texture():
    """What the text says of the stored output holds."""
    (text,) = [
        "".join(o["text"])
        for c in CELLS
        for o in c["outputs"]
        if "shape bias  " in "".join(o.get("text", ""))
    ]
    numbers = dict(
        re.findall(r"(shape bias|accuracy) +(?:cue_conflict|test) +(\S+)", text)
    )
    assert float(numbers["shape bias"]) < 0.3
    assert float(numbers["accuracy"]) > 0.95


@cases.each("cell", CELLS)
def test_cells_are_python(cell):
    ast.parse(source(cell))


@pytest.mark.slow
def test_it_runs():
    """In a kernel of its own, from the first cell to the last."""
    run = pytest.importorskip("notebooks.run", exc_type=ImportError)
    found = run.executed(NOTEBOOK)
    images = [
        o for c in found.cells for o in c.get("outputs", ()) if "image/png" in str(o)
    ]
    assert len(images) == 2
