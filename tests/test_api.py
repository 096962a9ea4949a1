"""docs/api.md lists the public modules and names, as the code has them."""

import ast
import importlib
import inspect
import pathlib
import tomllib
import types
from collections.abc import Iterator, Mapping

from jbias import __main__ as command
from tests import source_files

ROOT = pathlib.Path(__file__).parents[1]
COMMANDS = (
    *(
        "main",
        "plan",
        "evaluate",
        "export_stimuli",
        "ask",
        "look",
        "audit",
        "study",
        "submit",
        "calibrate",
        "observing",
        "prepare",
    ),
    "report",
    *("report.biases", "report.correlate", "report.decisions", "report.distortion"),
    "report.measured",
    *("report.shifts", "papers.biases", "papers.distortion", "papers.shifts"),
    "launch.sweep",
)
# In the order of a reader; each is checked by pyright, too.
MODULES = (
    *("jbias.train", "jbias.config", "jbias.errors"),
    *("jbias.configs.common", "jbias.launch.search_space"),
    *(
        "jbias.runs.results",
        "jbias.runs.selection",
        "jbias.stats",
        "jbias.stats.score_table",
        "jbias.stats.consistency",
        "jbias.scores",
    ),
    *("jbias.data", "jbias.data.base", "jbias.data.sources", "jbias.data.class_maps"),
    *("jbias.models", "jbias.models.backbone", "jbias.models.taps"),
    *(
        "jbias.algos",
        "jbias.algos.base",
        "jbias.augment",
        "jbias.augment.batch_permutations",
        "jbias.augment.random_numbers",
    ),
    *("jbias.evals", "jbias.evals.decision_files"),
    *(
        "jbias.measures.decisions",
        "jbias.measures.counting",
        "jbias.stimuli.shown",
        "jbias.evals.activations.inside",
    ),
    *("jbias.evals.registry", "jbias.evals.predictors", "jbias.evals.measured"),
    "jbias.runs.loggers",
)
HEAD = """# The public API

What others may build on: [commands](#commands), and these modules with the names that begin with no underscore. All else
may change at any time; before 1.0 these may, too, and the [changelog](../CHANGELOG.md) says so. `help(...)` describes each,
the [reference](reference/index.md) the most used. `jbias.measure` returns a `Measured` of `jbias.evals.measured`,
`jbias.read_scores` gives the frame of `jbias.scores.read`;
`jbias.torch.wrap` needs [PyTorch](measure-a-model.md). Made by `python -m tests.lists api`.
"""


def spelled(module: str) -> str:
    """Return the command of a module as a user types it: "jbias report measured"."""
    for name, (known, _) in command.COMMANDS.items():
        if known == f"jbias.{module}":
            return f"jbias {name}"
    return f"jbias {module.replace('.', ' ')}"


def line(documented: object) -> str:
    """Return the first paragraph of an object's docstring as one line of Markdown."""
    text = inspect.getdoc(documented) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("*", "\\*")


def names(module: types.ModuleType) -> Iterator[str]:
    """Yield a module's public names: `__all__`, else its own code and tables."""
    declared = getattr(module, "__all__", None)
    for name in declared or vars(module):
        value = getattr(module, name)
        defined_in = getattr(value, "__module__", "")
        is_own = f"{defined_in}.".startswith(f"{module.__name__}.")
        is_code = inspect.isclass(value) or inspect.isfunction(value)
        is_table = name.isupper() and isinstance(value, Mapping)
        if name[0] != "_" and (
            name in declared if declared else is_table or is_own and is_code
        ):
            yield name


def page() -> str:
    """Return the document."""
    lines = [HEAD, "## Commands\n"]
    for name in COMMANDS:
        is_top_level = name.partition(".")[0] in source_files.BESIDE
        path = ROOT.joinpath(*([] if is_top_level else ["jbias"]), *name.split("."))
        path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        lines.append(f"- `{spelled(name)}`: {docstring.partition(chr(10))[0]}")
    for name in MODULES:
        module = importlib.import_module(name)
        lines.append(f"\n## {name}\n\n{line(module)}\n")
        lines.append(", ".join(f"`{public_name}`" for public_name in names(module)))
    return "\n".join(lines) + "\n"


def test_the_page_lists_the_public_names_of_the_code():
    assert (ROOT / "docs/api.md").read_text(encoding="utf-8") == page()


def test_every_public_name_has_a_docstring():
    for name in MODULES:
        module = importlib.import_module(name)
        public = {
            public_name: getattr(module, public_name) for public_name in names(module)
        }
        for public_name, value in public.items():
            assert isinstance(value, Mapping) or line(value), f"{name}.{public_name}"


def test_public_modules_are_checked_for_types():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    checked = settings["tool"]["pyright"]["include"]
    for name in MODULES:
        path = pathlib.Path(importlib.import_module(name).__file__)
        path = path.relative_to(ROOT).as_posix()
        assert any(
            path == included or path.startswith(f"{included}/") for included in checked
        ), name
