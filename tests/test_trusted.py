"""A workdir is untrusted: code that it names is not run."""

import json
import types

import pytest
from etils import epath

from jbias import evaluate, measure, run_spec
from jbias.evals import runner
from jbias.measuring import cli
from tests import cases, smoke_runs

EVIL = """
import pathlib
pathlib.Path(__file__).with_name("ran").touch()

def make(net):
    raise SystemExit
"""


@pytest.fixture
def foreign(tmp_path):
    """Return the workdir of a run whose config names a Python file."""
    (tmp_path / "evil.py").write_text(EVIL)
    (workdir := tmp_path / "run").mkdir()
    config = smoke_runs.small().to_dict()
    config["algo"] = {"name": f"{tmp_path}/evil.py:make"}
    (workdir / "config.json").write_text(json.dumps(config))
    provenance = {"data": {"train/0": {"space": "names", "names": ["a", "b"]}}}
    (workdir / "provenance.json").write_text(json.dumps(provenance))
    (workdir / "checkpoints" / "1").mkdir(parents=True)
    return workdir


@pytest.mark.parametrize("flag", ["--checkpoint", "--follow"])
def test_code_that_a_run_names_is_not_run(foreign, flag, capsys):
    argv = [f"{flag}={foreign}", *(["--once"] if flag == "--follow" else [])]
    if flag == "--checkpoint":
        (suite := foreign.parent / "suite.py").write_text(
            "import ml_collections\n"
            "def get_config(text=''):\n"
            "    c = ml_collections.ConfigDict(dict(size=32))\n"
            "    c.sets = dict(edge=dict(data='shapes', split='edge', n=48))\n"
            "    c.measures = dict(accuracy=dict(probe='plain', sets=('edge',)))\n"
            "    return c\n"
        )
        argv += [f"--suite={suite}", f"--out={foreign.parent}/out"]
    assert evaluate.main(argv) == 2
    assert "evil.py:make', a file that would be run" in capsys.readouterr().err
    assert not (foreign.parent / "ran").exists()


def test_measure_gives_the_own_code_as_its_only_error(foreign, tmp_path, capsys):
    assert cli.main([str(foreign), f"--out={tmp_path}/out"]) == 2
    *_, line = lines = capsys.readouterr().err.splitlines()
    assert f"not measured: {foreign}: " in line
    assert line.endswith("if you trust it, set JBIAS_OWN_CODE=1")
    assert "nothing to measure with" not in " ".join(lines)
    with pytest.raises(ValueError, match="nothing was measured: .*JBIAS_OWN_CODE=1$"):
        measure(str(foreign), out=tmp_path / "out")


def test_a_user_may_trust_it(foreign, monkeypatch):
    config = json.loads((foreign / "config.json").read_text())
    monkeypatch.setenv("JBIAS_OWN_CODE", "1")
    assert run_spec.check_trusted(config, foreign) is config


@cases.each("name", ["../x", "a/b", "..", "", "a\\b"])
def test_a_network_is_kept_in_a_folder_of_its_name(tmp_path, name):
    subject = types.SimpleNamespace(name=name)
    with pytest.raises(ValueError, match="must be a plain name"):
        folder = epath.Path(tmp_path) / name
        runner.NetworkEvaluation(
            subject, None, folder, print
        ).claim_folder().__enter__()
    assert not list(tmp_path.iterdir())
