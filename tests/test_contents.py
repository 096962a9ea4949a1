"""What jbias can do, by name, so that a change of its rooms can lose none of it.

contents.json is written by `python -m tests.test_contents`: a change of it is a change
of what users may ask for, and the changelog says so.
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
from jbias.evals import probe_registry
from jbias.runs import loggers
from jbias.training import optim, seed_axis
from tests import cases

HERE = pathlib.Path(__file__).parent
PINNED = HERE / "contents.json"
COMMANDS = (
    *(
        "main",
        "plan",
        "evaluate",
        "export_stimuli",
        "look",
        "audit",
        "study",
        "launch.sweep",
    ),
    *("report.biases", "report.correlate", "report.distortion", "report.measured"),
    *("report", "report.shifts"),
    *("papers.biases", "papers.distortion", "papers.shifts"),
    *("prepare", *(f"prepare {name}" for name in prepare.COMMANDS)),
)


def options(table: Mapping[str, Callable]) -> dict[str, list[str]]:
    """What each of a table's makers may be told: these are keys of configs."""
    return {
        name: list(inspect.signature(make).parameters) for name, make in table.items()
    }


def set_options() -> dict[str, list[str]]:
    """The options of each data set."""
    return {
        name: ["split", *spec.options, *spec.narrows]
        for name, spec in data.DATASETS.items()
    }


def contents() -> dict[str, Any]:
    """All tables."""
    configs = HERE.parent / "configs"
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
        "probes": options(probe_registry.PROBES),
        "inside": options(probe_registry.INSIDE),
        "strategies": list(seed_axis.STRATEGIES),
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
    """The flags that a command's help lists."""
    module, *rest = command.split()
    run = [sys.executable, "-m", f"jbias.{module}", *rest, "--help"]
    said = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][\w-]*", said)))


@cases.each("kind", contents())
def test_nothing_of_it_is_gone(kind):
    assert contents()[kind] == json.loads(PINNED.read_text())[kind]


@pytest.mark.slow
def test_no_flag_is_gone():
    pinned = json.loads(PINNED.read_text())["flags"]
    assert {command: flags(command) for command in COMMANDS} == pinned


if __name__ == "__main__":
    everything = {**contents(), "flags": {name: flags(name) for name in COMMANDS}}
    text = json.dumps(everything, indent=1)
    # A list stands in one line.
    text = re.sub(r"\[[^][{}]*\]", lambda m: " ".join(m[0].split()), text)
    PINNED.write_text(text + "\n")
