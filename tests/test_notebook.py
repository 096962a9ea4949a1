"""The notebook is small, shows what it did, and runs."""

import ast
import json
import pathlib

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


@pytest.mark.slow
def test_ten_cells_with_outputs():
    assert len(CELLS) == 10
    assert NOTEBOOK.stat().st_size < 200_000
    assert sum(bool(cell["outputs"]) for cell in CELLS) >= 8
    assert not [o for c in CELLS for o in c["outputs"] if o["output_type"] == "error"]


@pytest.mark.slow
@cases.each("cell", CELLS)
def test_cells_are_python(cell):
    ast.parse(source(cell))


@pytest.mark.slow
def test_its_config_is_one():
    names: dict = {}
    (cell,) = [c for c in CELLS if "def small(" in source(c)]
    exec(source(cell), names)  # noqa: S102
    assert names["small"](names["stylized_erm"]).train.n == 2048


@pytest.mark.slow
def test_it_runs():
    """In a kernel of its own, from the first cell to the last."""
    run = pytest.importorskip("notebooks.run", exc_type=ImportError)
    found = run.executed(NOTEBOOK)
    texts = [str(o) for c in found.cells if c.cell_type == "code" for o in c["outputs"]]
    assert any("iframe" in text for text in texts)
