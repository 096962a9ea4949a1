"""Ensembles of seeds: their logits are means, and reports read their results."""

import dataclasses

import jax
import numpy as np
import pytest

from jbias import __main__ as command
from jbias import evaluate, models, train
from jbias.evals import ensembles, inference, networks
from jbias.runs import results
from jbias.runtime import mesh
from tests import smoke_runs

IMAGES = np.random.default_rng(0).random((6, 32, 32, 3), np.float32)
ORIGIN = inference.StimulusOrigin("edge", "", np.arange(6), None)
SUITE = """
import ml_collections

def get_config(text=""):
    c = ml_collections.ConfigDict()
    c.size = 32
    c.run = dict(batch=100)
    c.sets = dict(edge=dict(data="shapes", split="edge", n=48))
    c.measures = dict(accuracy=dict(probe="plain", sets=("edge",)))
    return c
"""


def seed_network(seed, run="erm-shapes-1"):
    """Return the network of a seed of a run, with drawn weights."""
    net = models.MODELS["cnn"](5, width=2)
    fields = dict(run=run, variant="", seed=seed, step=10 + seed, epoch=1.0)
    return networks.FlaxNetwork(
        name=f"{run}-seed{seed}",
        classes=tuple("abcde"),
        space="names",
        digest=f"{run}{seed}",
        fields={"algorithm": "erm", "model": "cnn", "train_data": "shapes", **fields},
        about={"path": run, "config": {}},
        net=net,
        variables=net.init(jax.random.key(seed), IMAGES[:1]),
    )


def predict(network):
    """Return the logits of a network for the test images."""
    bound = network.bind(np.float32, mesh.make(1))
    return np.asarray(bound.predict(IMAGES, ORIGIN))


def test_the_logits_of_an_ensemble_are_the_mean_of_its_members_logits():
    members = [seed_network(seed) for seed in range(3)]
    expected = np.mean([predict(member) for member in members], axis=0)
    ensemble = ensembles.of_seeds(members)
    np.testing.assert_allclose(predict(ensemble), expected, rtol=1e-6, atol=1e-6)
    bound = ensemble.bind(np.float32, mesh.make(1))
    np.testing.assert_allclose(
        bound.apply(bound.variables, IMAGES), expected, rtol=1e-5, atol=1e-5
    )


def test_the_probabilities_of_an_ensemble_are_the_mean_of_its_members():
    members = [seed_network(seed) for seed in range(3)]
    softmax = lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    expected = np.mean([softmax(predict(member)) for member in members], axis=0)
    ensemble = ensembles.of_seeds(members, "probabilities")
    np.testing.assert_allclose(softmax(predict(ensemble)), expected, rtol=1e-5)


@pytest.mark.parametrize("rule", ensembles.RULES)
def test_an_ensemble_of_one_member_is_the_member_to_the_bit(rule):
    member = seed_network(0)
    ensemble = ensembles.of_seeds([member], rule)
    np.testing.assert_array_equal(predict(ensemble), predict(member))


def test_an_ensemble_of_equal_members_decides_as_the_member_to_the_bit():
    """The mean of two equal floats is exact."""
    member = seed_network(0)
    ensemble = ensembles.of_seeds([member, member])
    np.testing.assert_array_equal(predict(ensemble), predict(member))


def test_each_run_and_branch_with_several_seeds_has_an_ensemble():
    file = seed_network(0, "file")
    file = dataclasses.replace(file, about={"path": "file.pth"})
    opened = [seed_network(0, "a"), seed_network(1, "a"), file, seed_network(0, "b")]
    names = [network.name for network in ensembles.with_ensembles(opened, "logits")]
    assert names == ["a-seed0", "a-seed1", "a-ensemble-of-2", "file-seed0", "b-seed0"]


def test_ensembles_are_told_from_their_members_and_from_each_other():
    members = [seed_network(0), seed_network(1), seed_network(2)]
    all_ensembles = [
        ensembles.of_seeds(members),
        ensembles.of_seeds(members[:2]),
        ensembles.of_seeds(members, "probabilities"),
    ]
    named = [*members, *all_ensembles]
    assert len({network.name for network in named}) == 6
    assert len({network.digest for network in named}) == 6
    assert len({network.fields["variant"] for network in all_ensembles}) == 3


def test_members_with_other_classes_are_refused():
    other = dataclasses.replace(seed_network(1), classes=tuple("vwxyz"))
    with pytest.raises(ValueError, match="must have the same classes"):
        ensembles.of_seeds([seed_network(0), other])


@pytest.mark.slow
def test_the_command_measures_the_ensemble_and_a_report_reads_it(tmp_path):
    config = smoke_runs.small(epochs=1.0)
    train.run(config, tmp_path / "run")
    (tmp_path / "suite.py").write_text(SUITE)
    out = tmp_path / "measured"
    arguments = [f"--checkpoint={tmp_path / 'run'}", f"--suite={tmp_path / 'suite.py'}"]
    arguments += ["--ensemble=logits", f"--out={out}", "--step=latest"]
    assert evaluate.main(arguments) == 0
    records = results.read(f"{out}/*")
    accuracies = records[records["metric"] == "accuracy"]
    assert sorted(accuracies["variant"]) == ["", "", "ensemble-of-2"]
    assert (accuracies["n"] == 48).all()
    page = tmp_path / "report"
    words = ["report", "measured", f"--measured={out}/*", f"--out={page}"]
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 0
    assert "ensemble-of-2" in (page / "index.html").read_text()
