"""The notebook is small, has stored outputs, and runs."""

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
    """Return a cell's Python code, without `%pip` lines."""
    lines = "".join(cell["source"]).splitlines()
    return "\n".join(line.replace("%pip", "pass  #") for line in lines)


def outputs(kind: str) -> list[dict]:
    """Return the outputs of a kind, such as "image/png", of all cells."""
    return [o for c in CELLS for o in c["outputs"] if kind in o.get("data", {})]


def test_cells_have_outputs():
    assert len(CELLS) == 11
    assert NOTEBOOK.stat().st_size < 200_000
    assert sum(bool(cell["outputs"]) for cell in CELLS) >= 8
    assert len(outputs("image/png")) == 2
    assert not [o for c in CELLS for o in c["outputs"] if o["output_type"] == "error"]


def test_the_measured_model_decides_by_texture():
    """The stored output has a low shape bias and a high accuracy, as the text says."""
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
def test_the_notebook_runs():
    """All cells run in a new kernel."""
    run = pytest.importorskip("notebooks.run", exc_type=ImportError)
    notebook = run.executed(NOTEBOOK)
    images = [
        o for c in notebook.cells for o in c.get("outputs", ()) if "image/png" in str(o)
    ]
    assert len(images) == 2
