"""Presets by name and by path; names of their runs stay the same between versions."""

import json
import pathlib

import ml_collections
import pytest

from jbias import config as jc
from tests import cases

ROOT = pathlib.Path(__file__).parents[1]
# With default arguments; written by `python -m tests.lists presets`.
KNOWN = ROOT / "tests/oracles/presets.json"
NEEDED = {"colored_mnist": "root=DIR"}


def load(name: str, *, flag: str = "config") -> ml_collections.ConfigDict:
    """Return a preset's config with default arguments; flag: "config" or "suite"."""
    text = f"{jc.PRESET_PREFIX}{name}:{NEEDED.get(name, '')}"
    return jc.load(text, flag=flag)


def identities() -> dict[str, str]:
    """Return the names of the presets' runs, and the hashes of suites, by preset."""
    identity_by_preset = {}
    for flag in ("config", "suite"):
        for name in jc.preset_names(flag):
            config = load(name, flag=flag)
            identify = jc.run_name if flag == "config" else jc.digest
            identity_by_preset[name] = identify(jc.to_dict(config))
    return identity_by_preset


def test_identities_of_presets_have_not_changed():
    """If an identity changes, earlier runs cannot be resumed."""
    assert identities() == json.loads(KNOWN.read_text())


@cases.each(
    ("flag", "name", "arguments"),
    [
        ("config", "sagnet", ":demo,seeds=2"),
        ("config", "biasbed/sagnet", ""),
        ("suite", "suites/biases", ":images=100"),
    ],
)
def test_a_path_and_a_name_give_the_same_config(flag, name, arguments, monkeypatch):
    by_name = jc.load(f"jbias:{name}{arguments}", flag=flag)
    monkeypatch.chdir(ROOT)
    assert jc.load(f"configs/{name}.py{arguments}", flag=flag) == by_name


@cases.each(
    ("text", "flag", "message"),
    [
        ("jbias:sagnt:demo", "config", "no preset jbias:sagnt; did you mean 'sagnet'"),
        (
            "jbias:",
            "suite",
            "name one of suites/biases, suites/calibration, suites/distortion, suites/shape, suites/suppression$",
        ),
        ("jbias:", "sweep", "name one of sweeps/eight, sweeps/rates$"),
        ("jbias:common", "config", "no preset jbias:common"),
        ("jbias:../configs/erm", "config", "no preset"),
    ],
)
def test_unknown_presets_are_refused(text, flag, message):
    with pytest.raises(ValueError, match=message):
        jc.resolve_preset(text, flag)


def test_a_file_that_is_not_python_is_refused(tmp_path):
    path = tmp_path / "suite.txt"
    path.write_text("")
    with pytest.raises(ValueError, match="--suite: must be a Python file"):
        jc.load(str(path), flag="suite")


def test_changes_are_separated_from_other_arguments():
    words = ["--config", "jbias:erm", "--config.a=1", "-config.b=2", "--config.c", "3"]
    words += ["--config.d", "--noconfig.e", "--workdir=x", "--", "--config.f=4"]
    remaining, changes = jc.split_changes(words, flag="config")
    assert remaining == ["--config", "jbias:erm", "--workdir=x", "--", "--config.f=4"]
    expected = ["--config.a=1", "--config.b=2", "--config.c=3", "--config.d"]
    assert changes == [*expected, "--config.e=False"]
