"""The evaluator records ranks of one cue (cue_rank) for a run in training."""

import numpy as np
import pytest
from PIL import Image

from jbias import train
from jbias.data import tables
from jbias.runs import results
from tests import smoke_runs


@pytest.mark.slow
def test_a_run_records_the_ranks_of_refined_bias(tmp_path):
    """Mean reciprocal ranks among 20 classes: between 1 / 20 and 1, by image and class."""
    refined = tables.read("refined_bias")
    rng = np.random.default_rng(0)
    for cue in ("shape", "texture"):
        for name in refined[cue]:
            for folder in (f"refined_bias_{cue}", "train", "valid"):
                path = tmp_path / folder / name / f"{folder}.png"
                path.parent.mkdir(parents=True)
                pixels = rng.integers(0, 256, (8, 8, 3), np.uint8)
                Image.fromarray(pixels).save(path)
    config = smoke_runs.small()
    with config.unlocked():
        config.train = dict(data="folder", split="train", root=str(tmp_path), batch=20)
        config.valid = dict(data="folder", split="valid", root=str(tmp_path))
        config.tests = {
            "refined": dict(data="refined_bias", split="both", root=str(tmp_path))
        }
        config.size = 8
    assert train.run(config, tmp_path / "run")
    records = results.read([str(tmp_path / "run")])
    rows = records[records["dataset"] == "refined"]
    for metric in ("mrr_shape", "mrr_texture"):
        values = rows[(rows["metric"] == metric) & (rows["condition"] == "")]["value"]
        assert len(values) and values.between(1 / 20, 1).all()
        by_class = rows[(rows["metric"] == metric) & (rows["condition"] != "")]
        for seed, step in {*zip(by_class["seed"], by_class["step"], strict=True)}:
            of_seed = (rows["seed"] == seed) & (rows["step"] == step)
            chosen = rows[of_seed & (rows["metric"] == metric)]
            overall = chosen[chosen["condition"] == ""]["value"].item()
            means = chosen[chosen["condition"] != ""]["value"]
            assert len(means) == 10
            np.testing.assert_allclose(means.mean(), overall)
    assert "mrr_relative" in set(rows["metric"])
