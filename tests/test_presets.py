"""Presets by name and by path, and that they name the runs that they always named."""

import json
import pathlib

import pytest

from jbias import config as jc
from tests import cases

ROOT = pathlib.Path(__file__).parents[1]
# Of default arguments; made by `python -m tests.test_presets > tests/oracles/presets.json`.
KNOWN = ROOT / "tests/oracles/presets.json"
NEEDED = {"colored_mnist": "root=DIR"}


def identities() -> dict[str, str]:
    """How runs of the presets are called, by the presets' names; suites by their hash."""
    found = {}
    for flag in ("config", "suite"):
        for name in jc.preset_names(flag):
            named = f"{jc.PRESET_PREFIX}{name}:{NEEDED.get(name, '')}"
            config = jc.load(named, flag=flag)
            made = jc.run_name if flag == "config" else jc.digest
            found[name] = made(jc.to_dict(config))
    return found


def test_a_preset_names_the_runs_that_it_always_named():
    """Else runs that were begun before cannot go on: an identity changed."""
    assert identities() == json.loads(KNOWN.read_text())


@cases.each(
    ("flag", "name", "arguments"),
    [
        ("config", "sagnet", ":demo,seeds=2"),
        ("config", "biasbed/sagnet", ""),
        ("suite", "suites/biases", ":images=100"),
    ],
)
def test_a_path_and_a_name_are_one(flag, name, arguments, monkeypatch):
    by_name = jc.load(f"jbias:{name}{arguments}", flag=flag)
    monkeypatch.chdir(ROOT)
    assert jc.load(f"configs/{name}.py{arguments}", flag=flag) == by_name


@cases.each(
    ("named", "flag", "message"),
    [
        ("jbias:sagnt:demo", "config", "no preset jbias:sagnt; did you mean 'sagnet'"),
        (
            "jbias:",
            "suite",
            "name one of suites/biases, suites/distortion, suites/shape, suites/suppression$",
        ),
        ("jbias:", "sweep", "name one of sweeps/eight, sweeps/rates$"),
        ("jbias:common", "config", "no preset jbias:common"),
        ("jbias:../configs/erm", "config", "no preset"),
    ],
)
def test_what_is_no_preset_is_told(named, flag, message):
    with pytest.raises(ValueError, match=message):
        jc.resolve_preset(named, flag)


def test_a_file_of_another_kind_is_told(tmp_path):
    path = tmp_path / "suite.txt"
    path.write_text("")
    with pytest.raises(ValueError, match="--suite: must be a Python file"):
        jc.load(str(path), flag="suite")


def test_changes_are_told_from_other_arguments_in_every_form():
    words = ["--config", "jbias:erm", "--config.a=1", "-config.b=2", "--config.c", "3"]
    words += ["--config.d", "--noconfig.e", "--workdir=x", "--", "--config.f=4"]
    others, changes = jc.split_changes(words, flag="config")
    assert others == ["--config", "jbias:erm", "--workdir=x", "--", "--config.f=4"]
    expected = ["--config.a=1", "--config.b=2", "--config.c=3", "--config.d"]
    assert changes == [*expected, "--config.e=False"]


if __name__ == "__main__":
    print(json.dumps(identities(), indent=1))
