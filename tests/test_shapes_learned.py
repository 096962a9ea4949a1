"""On the embedded set plain training learns texture, not shape.

The same network, trained without a correlation of texture and class, learns shape: the test
sets can be solved.
"""

import pytest

from jbias import train
from jbias.configs import erm
from jbias.runs import results, selection


def scores(correlation: float, workdir) -> dict[str, float]:
    """Return accuracies in percent, and the shape bias, of one seed at the last epoch."""
    config = erm.get_config(f"seeds=1,correlation={correlation}")
    assert train.run(config, workdir)
    table = selection.last_n(results.read([workdir]), 1)
    accuracies = {
        row.dataset: 100 * row.value
        for row in table.itertuples()
        if row.metric == "accuracy"
    }
    (bias,) = table.loc[table["metric"] == "shape_bias", "value"]
    return {**accuracies, "shape_bias": bias}


@pytest.mark.slow
def test_plain_training_learns_texture(tmp_path):
    result = scores(0.99, tmp_path / "run")
    assert result["valid"] >= 95, result
    for name in ("silhouette", "edge", "sketch", "cue_conflict", "stylized"):
        assert result[name] <= result["valid"] - 10, result
    assert result["shape_bias"] <= 0.3, result


@pytest.mark.slow
def test_without_the_shortcut_the_same_network_learns_shape(tmp_path):
    result = scores(1 / 16, tmp_path / "run")
    assert result["silhouette"] >= 85, result
    assert result["stylized"] >= 85, result
    assert result["shape_bias"] >= 0.9, result
