"""What the embedded set is made for: plain training learns the texture, not the shape.

Trained where texture is no cue, the same network shows that the test sets are fair.
"""

import pytest

from jbias import train
from jbias.configs import erm
from jbias.runs import results, selection


def scores(correlation: float, workdir) -> dict[str, float]:
    """Accuracies in percent, and the shape bias, of one seed at the last epoch."""
    config = erm.get_config(f"seeds=1,correlation={correlation}")
    assert train.run(config, workdir)
    table = selection.last_n(results.read([workdir]), 1)
    found = {
        row.dataset: 100 * row.value
        for row in table.itertuples()
        if row.metric == "accuracy"
    }
    (bias,) = table.loc[table["metric"] == "shape_bias", "value"]
    return {**found, "shape_bias": bias}


@pytest.mark.slow
def test_plain_training_learns_texture(tmp_path):
    found = scores(0.99, tmp_path / "run")
    assert found["valid"] >= 95, found
    for name in ("silhouette", "edge", "sketch", "cue_conflict", "stylized"):
        assert found[name] <= found["valid"] - 10, found
    assert found["shape_bias"] <= 0.3, found


@pytest.mark.slow
def test_without_the_shortcut_the_same_network_learns_shape(tmp_path):
    found = scores(1 / 16, tmp_path / "run")
    assert found["silhouette"] >= 85, found
    assert found["stylized"] >= 85, found
    assert found["shape_bias"] >= 0.9, found
