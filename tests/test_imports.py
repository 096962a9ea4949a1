"""The import rules between rooms, and packages that must not be imported at start."""

import ast
import collections
import functools
import pathlib
import subprocess
import sys

from jbias import __main__ as command
from tests import source_files

FILES, inside = source_files.PYTHON, source_files.inside

# From the ground up: a room may import only rooms of lower floors.
FLOORS = (
    ("errors", "numerals", "signatures"),
    ("runtime",),
    ("config", "stats", "untrusted"),
    ("extensions", "scores"),
    ("run_spec", "seals", "data"),
    ("augment", "models"),
    ("algos", "runs", "measures"),
    ("answers", "calibrating", "deciding"),
    ("asking", "build", "launch", "stimuli"),
    ("evals",),
    ("configs",),
    ("training", "report", "torch"),
    ("timm_networks",),
    (
        "train",
        "prepare",
        "run_estimates",
        "evaluate",
        "measuring",
        "audit",
        "look",
        "export_stimuli",
        "ask",
        "submit",
        "observing",
    ),
    ("checking", "cards", "planting", "until_decided"),
    ("main", "study", "plan", "papers", "calibrate", "__main__"),
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
# Rooms and modules that commands without JAX import.
WITHOUT_JAX = (
    "data",
    "stats",
    "scores",
    "report",
    "papers",
    "answers",
    "ask",
    "asking",
    "deciding",
    "cards",
    "calibrating",
    "observing",
    "measures",
    "stimuli/shown",
    "evals/registry",
    "evals/activations/inside",
    "untrusted",
    "errors",
    "config",
    "run_spec",
    "seals",
    "extensions",
    "runs/costs",
    "runs/status",
    "runs/results",
    "runs/selection",
    "runs/checksums",
    "runs/loggers",
    "runs/tensorboard",
    "runs/wandb",
    "runs/mlflow",
    "runtime/messages",
    "runtime/files",
)
LAZY = {
    "grain",
    "tensorflow_datasets",
    "tensorflow",
    "torch",
    "timm",
    "transformers",
    "huggingface_hub",
    "openai",
}


def module(path: pathlib.Path) -> str:
    """Return a file's dotted name in the package: "evals.human", or "evals"."""
    return ".".join(inside(path).with_suffix("").parts).removesuffix(".__init__")


MODULES = {
    module(path): path for path in FILES if inside(path).parts != ("__init__.py",)
}


def imports(path: pathlib.Path, *, top: bool = False) -> set[str]:
    """Return the dotted names of a file's imports; top: only of those at the top level."""
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


def imported_modules(path: pathlib.Path) -> set[str]:
    """Return the names in the package of the modules of jbias that a file imports."""
    module_names = set()
    for name in imports(path):
        name = name.removeprefix("jbias.")
        while name and name not in MODULES:
            name = name.rpartition(".")[0]
        module_names |= {name} - {""}
    return module_names - {module(path)}


def room(name: str) -> str:
    return name.partition(".")[0]


def test_every_room_has_a_floor_and_every_floor_has_a_room():
    assert {room(name) for name in MODULES} == set(FLOOR)


def test_no_file_imports_from_its_own_floor_or_upwards():
    wrong_imports = [
        f"{name} imports {other}"
        for name, path in MODULES.items()
        for other in sorted(imported_modules(path))
        if room(other) != room(name) and FLOOR[room(other)] >= FLOOR[room(name)]
    ]
    assert not wrong_imports


def test_no_modules_import_each_other_in_a_circle():
    waiting = {name: imported_modules(path) for name, path in MODULES.items()}
    # Modules that import no waiting module are removed until none remains.
    while free := {
        name for name, imported in waiting.items() if not imported & waiting.keys()
    }:
        waiting = {
            name: imported for name, imported in waiting.items() if name not in free
        }
    assert not waiting


def test_no_folder_has_more_than_thirty_files():
    """configs/ is left out: it has a preset for each algorithm."""
    paths = [path for path in FILES if inside(path).parts[0] != "configs"]
    counts = collections.Counter(str(path.parent) for path in paths)
    assert max(counts.values()) <= 30, counts.most_common(3)


def test_rooms_of_data_and_numbers_do_not_import_jax():
    light_files = {
        name: path
        for name, path in MODULES.items()
        if {room(name), name.replace(".", "/")} & {*WITHOUT_JAX}
    }
    assert {entry.replace("/", ".") for entry in WITHOUT_JAX} <= {
        *light_files,
        *map(room, light_files),
    }
    heavy_packages = {"jax", "flax", "optax", "orbax"}
    heavy_imports = {
        name: heavy_packages & {entry.partition(".")[0] for entry in imports(path)}
        for name, path in light_files.items()
    }
    assert not {name: packages for name, packages in heavy_imports.items() if packages}


def test_heavy_readers_are_imported_where_used():
    top_level_imports = {
        name: LAZY
        & {import_name.partition(".")[0] for import_name in imports(path, top=True)}
        for name, path in MODULES.items()
        if name != "torch"  # Only users with PyTorch import it.
    }
    assert not {
        name: packages for name, packages in top_level_imports.items() if packages
    }


def test_one_module_imports_orbax_and_tensorstore():
    """Therefore a change to another version of orbax changes one file."""
    packages = {"orbax", "tensorstore"}
    importers = {
        name
        for name, path in MODULES.items()
        if packages & {entry.partition(".")[0] for entry in imports(path)}
    }
    assert importers == {"runtime.checkpoint_files"}


COMMANDS = [
    "measuring",
    "evaluate",
    "export_stimuli",
    "ask",
    "look",
    "submit",
    "cards",
    "calibrate",
    "observing",
    "audit",
    "plan",
    "study",
    "launch.sweep",
    "prepare",
    "report",
    "report.correlate",
    "report.decisions",
    "report.biases",
    "report.shifts",
    "report.distortion",
    "report.measured",
    "papers.biases",
    "papers.distortion",
    "papers.shifts",
    "main",  # Last, as its flags need absl and ml_collections.
]
SLOW = {
    "absl",
    "asyncio",
    "etils",
    "grain",
    "importlib.metadata",
    "jax",
    "matplotlib",
    "ml_collections",
    "numpy",
    "pandas",
    "scipy",
    "tqdm",
    "unittest",
}
# Runs --help of each command in one process, and prints the slow imports so far.
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


def test_help_imports_nothing_slow():
    """Therefore --help takes a tenth or two of a second."""
    code = HELP.replace("SLOW", repr(sorted(SLOW)))
    names = [f"jbias.{name}" for name in COMMANDS]
    process = subprocess.run(
        [sys.executable, "-c", code, *names],
        check=True,
        capture_output=True,
        text=True,
    )
    lines = [line.split() for line in process.stdout.splitlines()]
    assert [name for name, *_ in lines] == names
    assert not [line for line in lines[:-1] if line[1:]]
    assert {*lines[-1][1:]} <= {"absl", "ml_collections"}


def test_training_starts_without_statistics():
    code = "import sys, jbias.train; print(*{'scipy.stats', 'scipy.optimize'} & {*sys.modules})"
    process = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True
    )
    assert not process.stdout.split()


def test_help_is_tested_for_every_command():
    commands = {module for module, _ in command.COMMANDS.values()} - {"jbias.papers"}
    for name, subcommands in command.GROUPS.items():
        commands |= {
            f"{command.COMMANDS[name][0]}.{subcommand}" for subcommand in subcommands
        }
    assert commands == {f"jbias.{name}" for name in COMMANDS}


def test_report_starts_without_jax():
    """No import of `report`, direct or indirect, is jax."""
    code = (
        "import sys, jbias.report.__main__, jbias.evals; sys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
