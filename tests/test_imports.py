"""The import rules between rooms: who may know whom, and what stays light."""

import ast
import functools
import pathlib
import subprocess
import sys

from jbias import __main__ as command
from tests import source_files

FILES, inside = source_files.PYTHON, source_files.inside

# From the ground up: a room imports rooms of floors below its own.
FLOORS = (
    ("numerals", "signatures"),
    ("runtime",),
    ("config", "stats", "untrusted"),
    ("extensions", "scores"),
    ("run_spec", "seals", "data"),
    ("augment", "models"),
    ("algos", "runs"),
    ("build", "launch"),
    ("configs",),
    ("evals",),
    ("training", "report", "torch"),
    (
        "train",
        "prepare",
        "run_estimates",
        "evaluate",
        "measuring",
        "audit",
        "look",
        "export_stimuli",
    ),
    ("checking",),
    ("main", "study", "plan", "papers", "__main__"),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
# Whole rooms, and modules, that commands without JAX import.
WITHOUT_JAX = (
    *("data", "stats", "scores", "report", "papers", "untrusted", "config", "run_spec"),
    "seals",
    "extensions",
    *("runs/costs", "runs/status", "runs/results", "runs/selection", "runs/checksums"),
    *("runs/loggers", "runs/tensorboard", "runs/wandb", "runs/mlflow"),
    *("runtime/messages", "runtime/files"),
)
LAZY = {"grain", "tensorflow_datasets", "tensorflow", "torch", "transformers"}
LAZY |= {"huggingface_hub"}


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


COMMANDS = [
    *(
        "measuring",
        "evaluate",
        "export_stimuli",
        "look",
        "audit",
        "plan",
        "study",
        "launch.sweep",
        "prepare",
        "report",
    ),
    *("report.correlate", "report.biases", "report.shifts", "report.distortion"),
    *("report.measured", "papers.biases", "papers.distortion", "papers.shifts"),
    "main",  # The last: absl's flags are its own, and ml_collections reads some.
]
SLOW = {
    *("absl", "asyncio", "etils", "grain", "importlib.metadata", "jax", "matplotlib"),
    *("ml_collections", "numpy", "pandas", "scipy", "tqdm", "unittest"),
}
# Answers for each command, in one process, and says what it has imported by then.
HELP = """
import contextlib, io, runpy, sys
for name in sys.argv[1:]:
    printed, sys.argv = io.StringIO(), ["jbias", "--help"]
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_module(name, run_name="__main__")
        except SystemExit as ended:
            assert not ended.code, name
    assert printed.getvalue(), name
    print(name, *set(SLOW) & set(sys.modules))
"""


def test_help_waits_for_nothing():
    """It answers before anything slow is imported: in a tenth of a second or two."""
    code = HELP.replace("SLOW", repr(sorted(SLOW)))
    names = [f"jbias.{name}" for name in COMMANDS]
    done = subprocess.run(
        [sys.executable, "-c", code, *names],
        check=True,
        capture_output=True,
        text=True,
    )
    found = [line.split() for line in done.stdout.splitlines()]
    assert [name for name, *_ in found] == names
    assert not [line for line in found[:-1] if line[1:]]
    assert {*found[-1][1:]} <= {"absl", "ml_collections"}


def test_training_starts_without_statistics():
    code = "import sys, jbias.train; print(*{'scipy.stats', 'scipy.optimize'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert not done.stdout.split()


def test_every_command_is_asked_for_help():
    asked = {module for module, _ in command.COMMANDS.values()} - {"jbias.papers"}
    for name, more in command.GROUPS.items():
        asked |= {f"{command.COMMANDS[name][0]}.{one}" for one in more}
    assert asked == {f"jbias.{name}" for name in COMMANDS}


def test_report_starts_without_jax():
    """What `report` imports, directly or through others, holds no jax."""
    code = (
        "import sys, jbias.report.__main__, jbias.evals; sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
