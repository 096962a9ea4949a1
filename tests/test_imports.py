"""The import rules between rooms: who may know whom, and what stays light."""

import ast
import functools
import pathlib
import subprocess
import sys

from tests import cases, source_files

FILES, inside = source_files.PYTHON, source_files.inside

# From the ground up: a room imports rooms of floors below its own.
FLOORS = (
    ("runtime", "config", "stats", "untrusted"),
    ("extensions",),
    ("run_spec", "data"),
    ("augment", "models"),
    ("algos", "runs"),
    ("build", "launch"),
    ("configs",),
    ("evals",),
    ("training", "report", "torch"),
    ("train", "prepare", "planning", "evaluate", "audit", "look", "export_stimuli"),
    ("checking",),
    ("main", "study", "plan", "papers", "__main__"),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
# Whole rooms, and modules, that commands without JAX import.
WITHOUT_JAX = (
    *("data", "stats", "report", "papers", "untrusted", "config", "run_spec"),
    "extensions",
    *("runs/costs", "runs/status", "runs/results", "runs/selection", "runs/checksums"),
    *("runs/loggers", "runs/tensorboard", "runs/wandb", "runs/mlflow"),
    *("runtime/messages", "runtime/files"),
)
LAZY = {"grain", "tensorflow_datasets", "tensorflow", "torch", "transformers"}


def module(path: pathlib.Path) -> str:
    """A file's dotted name in the package: "evals.human", or "evals"."""
    return ".".join(inside(path).with_suffix("").parts).removesuffix(".__init__")


MODULES = {
    module(path): path for path in FILES if inside(path).parts != ("__init__.py",)
}


def imports(path: pathlib.Path, *, top: bool = False) -> set[str]:
    """Dotted names of all imported modules, or of those at a file's top level."""
    tree = _tree(path)
    nodes = ast.iter_child_nodes(tree) if top else ast.walk(tree)
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@functools.cache
def _tree(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text())


def ours(path: pathlib.Path) -> set[str]:
    """The modules of the package that a file imports, by their names in it."""
    found = set()
    for name in imports(path):
        name = name.removeprefix("jbias.")
        while name and name not in MODULES:
            name = name.rpartition(".")[0]
        found |= {name} - {""}
    return found - {module(path)}


def room(name: str) -> str:
    return name.partition(".")[0]


def test_every_room_has_a_floor_and_every_floor_is_lived_on():
    assert {room(name) for name in MODULES} == set(FLOOR)


def test_no_file_imports_from_its_own_floor_or_upwards():
    wrong = [
        f"{name} imports {other}"
        for name, path in MODULES.items()
        for other in sorted(ours(path))
        if room(other) != room(name) and FLOOR[room(other)] >= FLOOR[room(name)]
    ]
    assert not wrong


def test_no_modules_import_each_other_in_a_circle():
    waiting = {name: ours(path) for name, path in MODULES.items()}
    # A package's __init__ lists what is in it, which may know one another.
    while free := {
        name for name, others in waiting.items() if not others & waiting.keys()
    }:
        waiting = {name: others for name, others in waiting.items() if name not in free}
    assert not waiting


def test_rooms_of_data_and_numbers_know_no_jax():
    light = {
        name: path
        for name, path in MODULES.items()
        if {room(name), name.replace(".", "/")} & {*WITHOUT_JAX}
    }
    assert {one.replace("/", ".") for one in WITHOUT_JAX} <= {
        *light,
        *map(room, light),
    }
    heavy = {"jax", "flax", "optax", "orbax"}
    wrong = {
        name: heavy & {one.partition(".")[0] for one in imports(path)}
        for name, path in light.items()
    }
    assert not {name: found for name, found in wrong.items() if found}


def test_heavy_readers_are_imported_where_used():
    wrong = {
        name: LAZY & {one.partition(".")[0] for one in imports(path, top=True)}
        for name, path in MODULES.items()
        if name != "torch"  # It is imported by those who have it.
    }
    assert not {name: found for name, found in wrong.items() if found}


@cases.each(
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
        "report.distortion",
        "papers.biases",
        "papers.distortion",
        "papers.shifts",
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
