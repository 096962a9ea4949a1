"""The import rules between rooms: who may know whom."""

import ast
import pathlib
import subprocess
import sys

import pytest

import jbias

ROOT = pathlib.Path(jbias.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

ENTRIES = {"main", "evaluate", "look", "prepare", "study", "audit"}
EVERYTHING = {"*"}
ROOMS = {
    "models": {"kinds", "reads"},
    "data": set(),
    "augment": set(),
    "stats": set(),
    "lines": set(),
    "disk": {"objects", "object_log", "fetched"},
    "objects": set(),
    "object_log": {"objects"},
    "fetched": {"objects"},
    "flags": set(),
    "results": {"lines", "disk"},
    "lock": {"disk", "lock_owner", "object_lock"},
    "lock_owner": set(),
    "object_lock": {"disk", "lock", "lock_owner", "objects"},
    "run_state": {"results", "lock"},
    "selection": {"results"},
    "algos": {"models", "augment"},
    "evals": {"models", "data", "augment", "stats", "disk"},
    "report": {
        *("results", "selection", "stats", "evals", "data"),
        *("run_state", "life", "messages", "disk"),
    },
    "writers": set(),
    "step": {"algos"},
    "guard": {"algos"},
    "feed": {"data"},
    "train": EVERYTHING,
    "configs": {"models", "data", "config", "launch"},
    "launch": EVERYTHING,
    **dict.fromkeys(
        (
            "auditing",
            "candidates",
            "build",
            "checkpoint_paths",
            "checks",
            "command",
            "memory",
            "vary",
            "findings",
            "follow",
            "looking",
            "measuring",
            "saliency",
            "shown",
            "stimuli",
            "studying",
            "subjects",
            "suite",
            "suite_measure",
            "survey",
            "job",
            "loop",
            "observe",
            "recorded",
            "opening",
            "parts",
            "rows",
            "faults",
            "saving",
            "signs",
            "in_memory",
            "sets",
            "sheets",
            "supply",
            "trainer",
            "warmstart",
            "profiling",
        ),
        EVERYTHING,
    ),
    **dict.fromkeys(ENTRIES, EVERYTHING),
}
# Neither rooms nor entries: they know each other, and no room.
CORE = {
    "config",
    "config_files",
    "entries",
    "kinds",
    "messages",
    "presets",
    "reads",
    "seeds",
    "layout",
    "batched",
    "chunked",
    "rewrite",
    "mesh",
    "optim",
    "checkpoint",
    "orbax_errors",
    "seal",
    "retention",
    "guard",
    "watch",
    "console",
    "life",
    "waits",
    "workdir",
    "lock",
    "lock_owner",
    "costs",
    "step",
    "order",
    "balance",
    "pairing",
    "xla",
    "feed",
    "streams",
    "hub",
    "places",
    "wire",
    "signals",
    "team",
    "processes",
}
WITHOUT_JAX = {
    "costs",
    "data",
    "disk",
    "fetched",
    "lines",
    "lock",
    "lock_owner",
    "object_lock",
    "object_log",
    "objects",
    "report",
    "results",
    "run_state",
}
WITHOUT_JAX |= {"entries", "kinds", "messages", "selection", "stats", "life", "writers"}
LAZY = {"grain", "tensorflow_datasets", "tensorflow", "torch", "transformers"}


def room(path: pathlib.Path) -> str:
    """The folder or file right below the package that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(tree: ast.AST, *, top: bool = False) -> set[str]:
    """Dotted names of all imported modules, or of those at a file's top level."""
    nodes = ast.iter_child_nodes(tree) if top else ast.walk(tree)
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def rooms_of(names: set[str]) -> set[str]:
    """The parts of jbias that the names lie in."""
    known = {room(path) for path in FILES}
    parts = {name.split(".")[1] for name in names if name.startswith("jbias.")}
    return parts & known


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_follow_the_way_of_the_data(path):
    here = room(path)
    if here == "__init__":
        assert not rooms_of(imports(ast.parse(path.read_text())))
        return
    names = imports(ast.parse(path.read_text()))
    allowed = ROOMS.get(here, set())
    if allowed is EVERYTHING:
        assert not rooms_of(names) & ENTRIES - {here}
        return
    allowed = allowed | {here} | (CORE | {"disk"} if here in CORE else set())
    assert rooms_of(names) <= allowed
    assert here in ROOMS or here in CORE, f"{here} is no known room"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_rooms_of_data_and_numbers_know_no_jax(path):
    if room(path) not in WITHOUT_JAX:
        return
    names = {name.split(".")[0] for name in imports(ast.parse(path.read_text()))}
    assert not names & {"jax", "flax", "optax", "orbax"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_heavy_readers_are_imported_where_used(path):
    names = imports(ast.parse(path.read_text()), top=True)
    assert not {name.split(".")[0] for name in names} & LAZY


@pytest.mark.parametrize(
    "command",
    [
        "main",
        "evaluate",
        "look",
        "audit",
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
