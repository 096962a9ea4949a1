"""Studies of a config: a run for each attribute and level, trained in sequence."""

import json
import types

import numpy as np
import pytest
from etils import epath

from jbias import config as jc
from jbias import study
from jbias.runs import results
from tests import cases

RECIPE = "configs/erm.py:smoke,seeds=2"  # Embedded set: the attribute is the texture.


@pytest.fixture
def at_root(monkeypatch, pytestconfig):
    monkeypatch.chdir(pytestconfig.rootpath)


@pytest.fixture(scope="module")
def studied(tmp_path_factory, pytestconfig):
    """Return the folder of a study of two levels, one of which was trained before."""
    out = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(pytestconfig.rootpath)
        common = [f"--config={RECIPE}", f"--workdir={out}", "--config.epochs=1.0"]
        assert study.main([*common, "--levels=C6"]) == 0
        first = (out / "erm-resnet18/attribute/C6/log.txt").read_bytes()
        assert study.main([*common, "--levels=C0,C6"]) == 0
        assert (out / "erm-resnet18/attribute/C6/log.txt").read_bytes() == first
        assert study.main([*common, "--levels=C0,C6,M4", "--dry-run"]) == 0
    return out


@pytest.mark.slow
def test_every_level_has_a_workdir_with_its_data_sets(studied):
    folders = sorted(path.parent for path in studied.glob("*/*/*/done"))
    assert [path.name for path in folders] == ["C0", "C6"]
    for folder in folders:
        records = results.loads(next(folder.glob("evals/*.jsonl")).read_text())
        assert {r.dataset for r in records} == {"train", "valid", "id", "ood"}
        assert {r.seed for r in records} == {0, 1}
        data_records = json.loads((folder / "provenance.json").read_text())["data"]
        tables = {
            name: np.array(record["tables"]["attribute"])
            for name, record in data_records.items()
        }
        across = tables["train/0"][:8, 8:].sum() + tables["train/0"][8:, :8].sum()
        assert (across == 0) == (folder.name == "C6")
        if folder.name == "C6":
            assert tables["ood"][:8, :8].sum() == 0


@pytest.mark.slow
def test_a_dry_run_shows_the_status_of_every_run(studied, at_root, capfd):
    common = [f"--config={RECIPE}", f"--workdir={studied}", "--config.epochs=1.0"]
    assert study.main([*common, "--levels=C6,M4", "--dry-run"]) == 0
    output = capfd.readouterr().out
    assert "C6: done" in output
    assert "M4: not started" in output
    assert not (studied / "erm-resnet18/attribute/M4").exists()


@cases.each(
    ("arguments", "message"),
    [
        (["--levels=C9"], "--levels: unknown 'C9'; did you mean 'C'"),
        (["--attributes=color"], "the embedded set has no attribute 'color'"),
        (["--levels=only-plaid"], "values must be different ones"),
        (["--config=configs/erm.py:shift=C6"], "must not have shift"),
        (
            ["--config=configs/emr.py"],
            "no file 'configs/emr.py'; did you mean 'erm.py'",
        ),
        ([f"--config={RECIPE},epochs=2"], "are both called erm-resnet18"),
        (["--models=nosuch", "--dry-run"], "config.model.name: unknown 'nosuch'"),
        (["--models=resnet18,resnet19"], "config.model.name: unknown 'resnet19'"),
        (["--config.algo.name=nosuch", "--dry-run"], "algo.name: unknown 'nosuch'"),
        (["--config.train.data=nosuch", "--dry-run"], "unknown data set 'nosuch'"),
        (["--config.optim.name=nosuch", "--dry-run"], "optim.name: unknown 'nosuch'"),
        (["--config.algo.name=no.py:make", "--dry-run"], "algo.name: no file 'no.py'"),
        (["--config.optim.rat.e=3"], "--config.optim.rat.e: no such entry"),
    ],
)
def test_errors_are_reported_before_anything_is_trained(
    arguments, message, at_root, tmp_path, capsys
):
    common = [f"--config={RECIPE}", f"--workdir={tmp_path}"]
    assert study.main([*common, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not [*tmp_path.iterdir()]


def test_a_diverged_run_is_not_trained_again(monkeypatch, tmp_path, capsys):
    for name, outcome in (("a", "diverged"), ("b", "finished")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "done").write_text(f"{outcome}\n")
    planned = [study.ShiftRun(None, epath.Path(tmp_path / name)) for name in "ab"]
    monkeypatch.setattr(study, "plan_runs", lambda *_: (planned, []))
    args = types.SimpleNamespace(dry_run=False, workdir=tmp_path)
    assert study.run(args, ()) == 1
    messages = capsys.readouterr().err
    assert f"{tmp_path / 'a'} diverged, every seed" in messages
    assert f"{tmp_path / 'b'} is done" in messages and "1 networks in" in messages


def test_a_study_without_enough_images_says_so(at_root, tmp_path, capsys):
    small = f"--config={RECIPE},images=100000"
    assert study.main([small, f"--workdir={tmp_path}"]) == 2
    assert "nothing to train: erm-resnet18, attribute, M0: " in capsys.readouterr().err


@cases.each("arguments", [["--levels="], ["--models=a,a"], ["--levels=C6", "more"]])
def test_invalid_flags_end_with_the_usage(arguments):
    with pytest.raises(SystemExit):
        study.main([f"--config={RECIPE}", *arguments])


def test_the_colored_mnist_preset_has_its_rates(at_root):
    preset = "configs/colored_mnist.py:root=x,shift=C6"
    plain = jc.load(preset, flag="config")
    assert plain.optim.rate == 5e-4
    small = jc.load(f"{preset},model=squeezenet1_0", flag="config")
    assert small.optim.rate == 1e-4
    assert plain.train.batch == 16
    assert plain.size == 32


def test_an_unknown_network_is_refused_before_anything_is_listed(capsys, tmp_path):
    words = ["--config=jbias:erm:smoke", f"--workdir={tmp_path / 'w'}", "--dry-run"]
    assert study.main([*words, "--models=resnet19", "--attributes=background"]) == 2
    captured = capsys.readouterr()
    assert "config.model.name: unknown 'resnet19'" in captured.err
    assert not captured.out and not (tmp_path / "w").exists()
