"""The import rules between rooms: who may know whom."""

import ast
import functools
import pathlib
import subprocess
import sys

import pytest

from tests import source_files

FILES, inside = source_files.PYTHON, source_files.inside

ENTRIES = {"main", "evaluate", "look", "prepare", "study", "audit", "plan"}
EVERYTHING = {"*"}
# The files beside the folders that training is made of: they know each other.
CORE = {
    *("config", "config_files", "presets", "entries", "kinds", "reads", "xla"),
    *("seeds", "strategies", "mesh", "order", "feed", "step", "optim"),
    *("checkpoint", "multihost", "rundir", "store", "terminal"),
}
ROOMS = {
    **{key: set() for key in ("stats", "writers", "lines", "store")},
    "augment": {"xla"},
    "foreign": set(),
    "data": {"foreign"},
    "models": {"kinds", "reads", "foreign", "xla"},
    "algos": {"models", "augment", "xla"},
    "evals": {"models", "data", "augment", "stats", "store", "xla"},
    "results": {"lines", "store"},
    "selection": {"results"},
    "report": {
        *("results", "selection", "stats", "evals", "data"),
        *("rundir", "terminal", "store", "foreign"),
    },
    "terminal": {"store"},
    "rundir": {"config", "results", "store"},
    "multihost": {"config", "rundir", "terminal"},
    "strategies": {"mesh", "xla"},
    "feed": {"order", "data"},
    "feeding": {"data", "order", "feed", "kinds", "terminal"},
    "step": {"algos", "seeds", "optim", "xla"},
    "configs": {"models", "data", "config", "launch"},
    **dict.fromkeys(("train", "training", "measure", "launch"), EVERYTHING),
    **dict.fromkeys(ENTRIES, EVERYTHING),
}
WITHOUT_JAX = {
    *("data", "stats", "results", "selection", "lines", "report", "writers"),
    *("store", "entries", "kinds", "foreign"),
    *("rundir/costs", "rundir/life", "rundir/run_state", "terminal/messages"),
}
LAZY = {"grain", "tensorflow_datasets", "tensorflow", "torch", "transformers"}


def room(path: pathlib.Path) -> str:
    """The folder or file right below the package that a file belongs to."""
    return inside(path).parts[0].removesuffix(".py")


KNOWN = {room(path) for path in FILES}


@functools.cache
def imports(path: pathlib.Path, *, top: bool = False) -> frozenset[str]:
    """Dotted names of all imported modules, or of those at a file's top level."""
    tree = ast.parse(path.read_text())
    nodes = ast.iter_child_nodes(tree) if top else ast.walk(tree)
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)


def rooms_of(names: frozenset[str]) -> set[str]:
    """The parts of jbias that the names lie in."""
    parts = {name.split(".")[1] for name in names if name.startswith("jbias.")}
    return parts & KNOWN


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(inside(p)))
def test_imports_follow_the_way_of_the_data(path):
    here, names = room(path), imports(path)
    if here == "__init__":
        assert not rooms_of(names)
        return
    if ROOMS.get(here) is EVERYTHING:
        assert not rooms_of(names) & ENTRIES - {here}
    else:
        assert here in ROOMS or here in CORE, f"{here} is no known room"
        allowed = ROOMS.get(here, CORE)
        assert rooms_of(names) <= allowed | {here}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(inside(p)))
def test_rooms_of_data_and_numbers_know_no_jax(path):
    whole = str(inside(path).with_suffix(""))
    if not {room(path), whole} & WITHOUT_JAX:
        return
    names = {name.split(".")[0] for name in imports(path)}
    assert not names & {"jax", "flax", "optax", "orbax"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(inside(p)))
def test_heavy_readers_are_imported_where_used(path):
    names = imports(path, top=True)
    assert not {name.split(".")[0] for name in names} & LAZY


@pytest.mark.parametrize(
    "command",
    [
        "main",
        "evaluate",
        "look",
        "audit",
        "plan",
        "report",
        "report.correlate",
        "report.biases",
        "report.shifts",
        "prepare",
        "study",
    ],
)
def test_help_waits_for_nothing(command):
    """It answers before anything slow is imported."""
    code = (
        "import runpy, sys\n"
        "sys.argv = ['jbias', '--help']\n"
        "try:\n"
        f"    runpy.run_module('jbias.{command}', run_name='__main__')\n"
        "except SystemExit as ended:\n"
        "    slow = {'jax', 'pandas', 'scipy', 'matplotlib', 'grain'}\n"
        "    sys.exit(ended.code or bool(slow & set(sys.modules)))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_report_starts_without_jax():
    """What `report` imports, directly or through others, holds no jax."""
    code = (
        "import sys, jbias.report.__main__, jbias.evals; sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
