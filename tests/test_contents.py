"""Names of algorithms, data sets, options and flags, so that no change removes any.

contents.json is written by `python -m tests.lists contents`: a change of this file is a
change of the interface, and needs an entry in the changelog.
"""

import inspect
import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from jbias import algos, augment, data, evals, models, prepare
from jbias.configs import zoo
from jbias.data import corruptions
from jbias.evals import registry
from jbias.evals.activations import inside
from jbias.measures import counting
from jbias.runs import loggers
from jbias.stimuli import shown
from jbias.training import optim, strategies
from tests import cases

FOLDER = pathlib.Path(__file__).parent
PINNED = FOLDER / "contents.json"
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
        "cards",
        "calibrate",
        "observing",
        "launch.sweep",
    ),
    *("report.biases", "report.correlate", "report.decisions", "report.distortion"),
    "report.measured",
    *("report", "report.shifts"),
    *("papers.biases", "papers.distortion", "papers.shifts"),
    *("prepare", *(f"prepare {name}" for name in prepare.COMMANDS)),
)


def options(table: Mapping[str, Callable]) -> dict[str, list[str]]:
    """Return the options of each function in a table; these are keys of configs."""
    return {
        name: list(inspect.signature(make).parameters) for name, make in table.items()
    }


def set_options() -> dict[str, list[str]]:
    """Return the options of each data set."""
    return {
        name: ["split", *spec.options, *spec.narrows]
        for name, spec in data.DATASETS.items()
    }


def probes(kind: type) -> dict[str, Any]:
    """Return the makers of the measures of a type by name."""
    rows = registry.PROBES.items()
    return {name: row.load() for name, row in rows if row.kind is kind}


def contents() -> dict[str, Any]:
    """Return the names in all tables."""
    configs = FOLDER.parent / "configs"
    return {
        "algorithms": options(algos.ALGOS),
        "networks": options(models.MODELS),
        "transfers": options(models.TRANSFERS),
        "zoo": list(zoo.ZOO),
        "sets": set_options(),
        "options of all sets": list(data.COMMON_OPTIONS),
        "corruptions": [*corruptions.CORRUPTIONS, *corruptions.BAR],
        "augmentations": options(augment.AUGMENTS),
        "measures": list(evals.MEASURES),
        "probes": options(probes(shown.Stimuli) | probes(counting.Counting)),
        "inside": options(probes(inside.Inside)),
        "strategies": list(strategies.STRATEGIES),
        "optimisers": options(optim.OPTIMISERS),
        "schedules": options(optim.SCHEDULES),
        "writers": list(loggers.LOGGERS),
        "configs": sorted(
            path.relative_to(configs).with_suffix("").as_posix()
            for path in configs.rglob("[!_]*.py")
            if "def get_config" in path.read_text()
        ),
    }


def flags(command: str) -> list[str]:
    """Return the flags that a command's help lists."""
    module, *subcommand = command.split()
    run = [sys.executable, "-m", f"jbias.{module}", *subcommand, "--help"]
    usage = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][\w-]*", usage)))


def page() -> str:
    """Return the text of contents.json, a line for each list; written by `python -m tests.lists`."""
    everything = {**contents(), "flags": {name: flags(name) for name in COMMANDS}}
    text = json.dumps(everything, indent=1)
    return re.sub(r"\[[^][{}]*\]", lambda m: " ".join(m[0].split()), text) + "\n"


@cases.each("kind", contents())
def test_no_name_is_gone(kind):
    assert contents()[kind] == json.loads(PINNED.read_text())[kind]


@pytest.mark.slow
def test_no_flag_is_gone():
    pinned = json.loads(PINNED.read_text())["flags"]
    assert {command: flags(command) for command in COMMANDS} == pinned
