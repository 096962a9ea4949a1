"""Runs a notebook in place, and keeps what is small of its outputs.

python notebooks/run.py notebooks/start.ipynb

Tables and plots are kept, so that the notebook can be read where it is not run; what is
larger than 100 kB, such as a whole report, is not.
"""

import json
import pathlib
import re
import sys

import nbclient
import nbformat

LARGEST = 100_000  # Bytes of one output.


def executed(path: pathlib.Path, *, timeout_seconds: int = 1800):
    """The notebook with its outputs; an error in a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(path.parent)}}
    nbclient.NotebookClient(
        notebook, timeout=timeout_seconds, kernel_name="python3", resources=where
    ).execute()
    return notebook


def small(notebook):
    """The notebook without what changes from run to run, and without large outputs."""
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [one for one in map(_cleaned, cell.outputs) if _kept(one)]
    return notebook


def _cleaned(output):
    """An output without its count, its temporary folder, and what no reader needs."""
    if output.output_type == "execute_result":
        output.execution_count = None
    if output.output_type == "stream":
        lines = output.text.splitlines(keepends=True)
        if output.name == "stderr":
            lines = [line for line in lines if line.startswith("step ")]
        output.text = re.sub(r"/\S*/tmp\w+", "<folder>", "".join(lines))
    return output


def _kept(output) -> bool:
    """Whether there is something in it, and not too much."""
    return output.get("text") != "" and len(json.dumps(output)) < LARGEST


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1])
    nbformat.write(small(executed(target)), target)
