"""Runs of planted networks: seeds of one plan share a run, and none is trained again."""

import pytest

from jbias import train
from jbias.planting import plans, training

PLAN = plans.Plan("t", "trained", 0.25)


@pytest.fixture
def trained(monkeypatch):
    """Return a list of the seeds and folders of runs, which end at once."""
    calls = []

    def run(config, workdir):
        calls.append((tuple(config.seeds), workdir.name))
        workdir.mkdir(parents=True, exist_ok=True)
        (workdir / "done").touch()

    monkeypatch.setattr(train, "run", run)
    return calls


def test_networks_that_differ_in_their_seed_share_a_run():
    planned = [PLAN._replace(seed=seed) for seed in (1, 0)]
    planned.append(PLAN._replace(dial=0.5))
    planned.append(plans.Plan("m", "mixed_logits", 0.5))
    runs = training.runs_of(planned)
    assert sorted((run.dial, run.seeds) for run in runs) == [
        (0.0, (0,)),
        (0.25, (0, 1)),
        (0.5, (0,)),
        (1.0, (0,)),
    ]
    assert len({run.name for run in runs}) == 4


def test_only_missing_seeds_are_trained(trained, tmp_path):
    run = training.run_of(PLAN)
    training.train_run(run._replace(seeds=(0, 1)), tmp_path, plans.SMOKE)
    training.train_run(run, tmp_path, plans.SMOKE)
    training.train_run(run._replace(seeds=(1, 12)), tmp_path, plans.SMOKE)
    assert [seeds for seeds, _ in trained] == [(0, 1), (12,)]
    assert training.find_workdir(tmp_path, run, 12).name == trained[1][1]
    assert training.find_workdir(tmp_path, run, 2) is None
    with pytest.raises(ValueError, match="seed 2 is not trained"):
        training.open_seed(tmp_path, run, 2)


def test_an_interrupted_run_continues_with_all_its_seeds(trained, tmp_path):
    run = training.run_of(PLAN)._replace(seeds=(0, 1))
    training.train_run(run, tmp_path, plans.SMOKE)
    (training.find_workdir(tmp_path, run, 1) / "done").unlink()
    training.train_run(run._replace(seeds=(1,)), tmp_path, plans.SMOKE)
    assert trained[1] == trained[0]


def test_labels_of_a_run_follow_its_plan():
    plan = PLAN._replace(shortcut="colour", strength=0.5)
    config = training.config_of(training.run_of(plan), plans.FULL)
    for options in (config.train, config.valid):
        assert (options.data, options.dial) == ("cues", 0.25)
        assert (options.shortcut, options.strength, options.noise) == ("colour", 0.5, 0)
    shuffled = plans.Plan("s", "none", None, level="shuffled")
    assert training.config_of(training.run_of(shuffled), plans.FULL).train.noise == 1
    assert training.run_of(plans.Plan("u", "none", None, level="untrained")) is None
