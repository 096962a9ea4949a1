"""The examples run as the documents say, and these show what runs."""

import pathlib
import re

import jax
import numpy as np
import pytest

from jbias import config as jc
from jbias.training import stages
from tests import smoke_runs

ROOT = pathlib.Path(__file__).parents[1]
MINE = ROOT / "examples" / "own_algorithm.py"


@pytest.fixture(scope="module")
def config() -> dict:
    """A tiny run of the example's algorithm."""
    return jc.to_dict(smoke_runs.small(algo={"name": f"{MINE}:make"}))


def stage(config: dict, **options) -> stages.Stage:
    """Its stage, on the embedded set."""
    return smoke_runs.stage({**config, "algo": {**config["algo"], **options}})


def train(stage: stages.Stage) -> tuple:
    """One seed's state after two steps, and the metrics of both."""
    (state,), seen = smoke_runs.trained(stage, (0,), "auto", steps=2)
    return state, [metrics for (metrics,) in seen]


@pytest.mark.slow
def test_the_algorithm_trains_and_its_penalty_acts(config):
    plain, without = train(stage(config, strength=0.0))
    state, seen = train(stage(config, strength=0.5))
    assert int(state.step) == 2
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((state.params, seen)))
    # At the first step the weights are the same: the losses differ by the penalty.
    expected = without[0]["loss_class"] + 0.5 * seen[0]["penalty"]
    assert seen[0]["loss_class"] == pytest.approx(float(expected), rel=1e-5)
    assert seen[0]["penalty"] > 0
    kernels = (s.params["net"]["fc"]["kernel"] for s in (plain, state))
    assert np.abs(np.subtract(*kernels)).max() > 1e-4


def test_the_documents_show_the_file():
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs/own-algorithm.md").read_text(), re.DOTALL
    )
    assert MINE.read_text() in blocks


def test_a_whole_algorithm_is_20_lines():
    assert len(MINE.read_text().splitlines()) <= 20
