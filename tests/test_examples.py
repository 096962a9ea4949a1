"""The example algorithm trains, and the documentation shows its file."""

import pathlib
import re

import jax
import numpy as np
import pytest

from jbias import config as jc
from jbias.training import stages
from tests import smoke_runs

ROOT = pathlib.Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "own_algorithm.py"


@pytest.fixture(scope="module")
def config() -> dict:
    """Return a tiny config with the example's algorithm."""
    return jc.to_dict(smoke_runs.small(algo={"name": f"{EXAMPLE}:make"}))


def stage(config: dict, **options) -> stages.Stage:
    """Return the stage of a config, with changed options of the algorithm."""
    return smoke_runs.stage({**config, "algo": {**config["algo"], **options}})


def train(stage: stages.Stage) -> tuple:
    """Return one seed's state after two steps, and the metrics of both steps."""
    (state,), metrics_by_step = smoke_runs.trained(stage, (0,), "auto", steps=2)
    return state, [metrics for (metrics,) in metrics_by_step]


@pytest.mark.slow
def test_the_algorithm_trains_and_its_penalty_acts(config):
    plain, plain_metrics = train(stage(config, strength=0.0))
    state, metrics = train(stage(config, strength=0.5))
    assert int(state.step) == 2
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((state.params, metrics)))
    # At the first step the weights are the same: the losses differ by the penalty.
    expected = plain_metrics[0]["loss_class"] + 0.5 * metrics[0]["penalty"]
    assert metrics[0]["loss_class"] == pytest.approx(float(expected), rel=1e-5)
    assert metrics[0]["penalty"] > 0
    first, second = (s.params["net"]["fc"]["kernel"] for s in (plain, state))
    assert np.abs(first - second).max() > 1e-4


def test_the_documents_show_the_file():
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/own-algorithm.md").read_text(), re.DOTALL
    )
    assert EXAMPLE.read_text() in blocks


def test_a_whole_algorithm_is_20_lines():
    assert len(EXAMPLE.read_text().splitlines()) <= 20
