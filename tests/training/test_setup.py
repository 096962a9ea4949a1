"""Data sets and checkpoints that a run opens before training."""

import shutil

import pytest

from jbias import data, train
from tests import cases, smoke_runs
from tests.training import test_input_plan


@pytest.mark.slow
def test_a_run_is_done_only_for_the_same_images_in_any_folder(tmp_path, capsys):
    first = tmp_path / "photos"
    config = test_input_plan.config(test_input_plan.draw(first))
    config.epochs = 1.0

    def train_on(root):
        config.train.root = config.valid.root = str(root)
        return train.run(config, tmp_path / "run")

    assert train_on(first)
    moved, other = tmp_path / "moved", tmp_path / "other"
    for root in (moved, other):
        shutil.copytree(first, root)
    assert train_on(moved)
    assert "is done: nothing to do" in capsys.readouterr().err
    image = other / "valid" / "star" / "00.png"
    shutil.copy(other / "valid" / "heart" / "00.png", image)
    with pytest.raises(ValueError, match="is done, with other data.*valid"):
        train_on(other)
    with pytest.raises((ValueError, OSError), match="gone"):
        train_on(tmp_path / "gone")
    assert train_on(first)


@cases.each(
    ("change", "message"),
    [
        (lambda c: c.model.update(name="resnet81"), "config.model.name: .*'resnet18'"),
        (lambda c: c.algo.update(name="sagnett"), "config.algo.name: .*'sagnet'"),
        (lambda c: c.algo.update(name="no.py:make"), "algo.name: no file 'no.py'"),
        (lambda c: c.optim.update(name="sdg"), "config.optim.name: .*'sgd'"),
        (lambda c: c.optim.schedule.update(name="cosin"), "schedule.name: .*'cosine'"),
        (lambda c: setattr(c, "inputs", ({"name": "flop"},)), "inputs.0..name: .*flip"),
        (lambda c: c.train.update(data="shape"), "config.train: .*'shapes'"),
        (lambda c: c.tests.edge.update(data="shape"), "config.tests.edge: .*'shapes'"),
    ],
)
def test_unknown_names_are_refused_before_a_set_is_opened(
    change, message, tmp_path, monkeypatch
):
    def load(*args, **options):
        raise AssertionError("a set is opened")

    monkeypatch.setattr(data, "load", load)
    config = smoke_runs.small()
    change(config)
    with pytest.raises(ValueError, match=message):
        train.run(config, tmp_path / "run")
