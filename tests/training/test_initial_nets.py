"""Starting from the nets of another run."""

import jax
import numpy as np
import pytest

from jbias import train
from jbias.models import trained
from jbias.training import checkpointing
from tests import smoke_runs


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """A finished run of seeds 0 and 1, and its config."""
    workdir = tmp_path_factory.mktemp("before") / "run"
    config = smoke_runs.small(epochs=1.0)
    config.optim.average = 0.5
    assert train.run(config, workdir)
    return workdir


@pytest.mark.slow
def test_a_run_goes_on_from_the_same_seeds_evaluated_net(before, tmp_path):
    """At a rate too small to move a weight, what is evaluated stays as it was."""
    config = smoke_runs.small(init=str(before), epochs=1.0)
    config.optim.rate, config.optim.decay = 1e-30, 0.0
    assert train.run(config, tmp_path / "run")
    old, new = (
        checkpointing.load_initial_nets(path, (0, 1))
        for path in (before, tmp_path / "run")
    )
    for a, b in zip(old, new, strict=True):
        jax.tree.map(np.testing.assert_array_equal, a["params"], b["params"])
    first, second = (net["params"]["fc"]["kernel"] for net in old)
    assert (first != second).any()


def test_other_classes_get_a_linear_layer_of_their_own(before):
    (given,) = checkpointing.load_initial_nets(before, (0,))
    drawn = jax.tree.map(np.array, given)
    drawn["params"]["fc"] = {"kernel": np.ones((32, 5)), "bias": np.ones(5)}
    said = []
    net = checkpointing.graft_head(drawn, given, said.append)
    assert net["params"]["fc"] is drawn["params"]["fc"]
    assert net["params"]["conv1"] is given["params"]["conv1"]
    assert "drawn anew" in said[0]
    assert checkpointing.graft_head(given, given, said.append) is given


@pytest.mark.slow
def test_another_model_is_refused(before, tmp_path):
    config = smoke_runs.small(init=str(before))
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
def test_what_is_not_there_is_refused(before, path, seeds, message):
    with pytest.raises(ValueError, match=f"config.init: .*{message}"):
        checkpointing.load_initial_nets(before.parent / path, seeds)


@pytest.mark.slow
def test_other_weights_under_the_same_path_are_told_apart(before):
    nets = checkpointing.load_initial_nets(before, (0, 1))
    assert trained.weights_digest(nets[:1]) != trained.weights_digest(nets[1:])
    assert trained.weights_digest(nets) == trained.weights_digest(
        checkpointing.load_initial_nets(before, (0, 1))
    )
