"""Scores of a comparison are read from runs on the same data only."""

import json

import pytest

from jbias.deciding import comparison as comparison_lib
from jbias.deciding import references
from tests.deciding import test_seed_scores as scores_lib

PLAN = comparison_lib.Comparison(
    settings=scores_lib.SETTINGS,
    methods=("new",),
    reference="old",
    first_seeds=(0, 1, 2),
    are_trained=True,
).with_batches([comparison_lib.Batch("new", (0, 1, 2))])


def write(workdir, train="t", edge="e", waves=()):
    """Write a run with these fingerprints of the training set and of a test set."""
    run = scores_lib.write_run(workdir, scores_lib.SCORES)
    data = {
        name: {"n": 9, "fingerprint": text}
        for name, text in (("train/0", train), ("edge", edge))
    }
    content = {"data": data, "layout": {"waves": waves}}
    (run / "provenance.json").write_text(json.dumps(content))
    return run


def test_methods_must_be_tested_on_the_same_images(tmp_path):
    """The training images may differ between methods."""
    reference = write(tmp_path / "old", train="other")
    write(tmp_path / "new-seeds-0-2")
    scores = references.read_scores(PLAN, tmp_path, [reference])
    assert scores == {name: {0: 0.1, 1: 0.8, 2: None} for name in ("new", "old")}
    changed = write(tmp_path / "changed", edge="other")
    with pytest.raises(ValueError, match="the images of edge differ") as raised:
        references.read_scores(PLAN, tmp_path, [changed])
    assert "\n" not in str(raised.value)


def test_later_batches_have_the_seeds_that_fit_into_memory(tmp_path):
    write(tmp_path / "new-seeds-0-2", waves=[[2, 1]])
    limits = comparison_lib.Limits(batch_seeds={"new": 3, "third": 3})
    fitting = references.fit_memory(limits, PLAN.batches, tmp_path)
    assert fitting.batch_seeds == {"new": 2, "third": 3}
