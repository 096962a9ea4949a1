"""Runs that start from the networks of another run."""

import jax
import numpy as np
import pytest

from jbias import train
from jbias.models import trained
from jbias.training import initial_nets
from tests import smoke_runs


@pytest.fixture(scope="module")
def first_run(tmp_path_factory):
    """Return the workdir of a finished run of seeds 0 and 1."""
    workdir = tmp_path_factory.mktemp("first") / "run"
    config = smoke_runs.small(epochs=1.0)
    config.optim.average = 0.5
    assert train.run(config, workdir)
    return workdir


@pytest.mark.slow
def test_a_run_starts_from_the_evaluated_network_of_the_same_seed(first_run, tmp_path):
    """With a rate too small to change a weight, the evaluated networks stay equal."""
    config = smoke_runs.small(init=str(first_run), epochs=1.0)
    config.optim.rate, config.optim.decay = 1e-30, 0.0
    assert train.run(config, tmp_path / "run")
    old, new = (
        initial_nets.load_initial_nets(path, (0, 1))
        for path in (first_run, tmp_path / "run")
    )
    for a, b in zip(old, new, strict=True):
        jax.tree.map(np.testing.assert_array_equal, a["params"], b["params"])
    first, second = (net["params"]["fc"]["kernel"] for net in old)
    assert (first != second).any()


def test_other_classes_get_a_new_linear_layer(first_run):
    (loaded,) = initial_nets.load_initial_nets(first_run, (0,))
    drawn = jax.tree.map(np.array, loaded)
    drawn["params"]["fc"] = {"kernel": np.ones((32, 5)), "bias": np.ones(5)}
    lines = []
    net = initial_nets.graft_head(drawn, loaded, lines.append)
    assert net["params"]["fc"] is drawn["params"]["fc"]
    assert net["params"]["conv1"] is loaded["params"]["conv1"]
    assert "drawn anew" in lines[0]
    assert initial_nets.graft_head(loaded, loaded, lines.append) is loaded


@pytest.mark.slow
def test_another_model_is_refused(first_run, tmp_path):
    config = smoke_runs.small(init=str(first_run))
    config.model.width = 8
    with pytest.raises(ValueError, match="the model differs from config.model"):
        train.run(config, tmp_path / "run")


@pytest.mark.parametrize(
    ("path", "seeds", "message"),
    [
        ("nowhere", (0,), "workdir of a run"),
        ("vary/optim.rate=0.1", (0,), "workdir of a run"),
        ("run/vary/optim.rate=0.1", (0,), "must be one branch of the run"),
        ("run", (5,), "has the seeds .* not 5"),
    ],
)
def test_missing_runs_branches_and_seeds_are_refused(first_run, path, seeds, message):
    with pytest.raises(ValueError, match=f"config.init: .*{message}"):
        initial_nets.load_initial_nets(first_run.parent / path, seeds)


@pytest.mark.slow
def test_the_digest_of_weights_depends_on_the_weights_only(first_run):
    nets = initial_nets.load_initial_nets(first_run, (0, 1))
    assert trained.weights_digest(nets[:1]) != trained.weights_digest(nets[1:])
    assert trained.weights_digest(nets) == trained.weights_digest(
        initial_nets.load_initial_nets(first_run, (0, 1))
    )
