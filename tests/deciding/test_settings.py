"""Metric and data set are chosen and checked before anything is trained."""

import pytest

from jbias.deciding import settings

SHAPES = {
    name: {"data": "shapes", "split": name} for name in ("cue_conflict", "edge", "test")
}
OTHER = {name: {"data": "pacs", "split": name} for name in ("photo", "sketch")}
# Test sets, metric and data set as given, and as chosen.
CHOSEN = [
    (SHAPES, "", "", ("shape_bias", "cue_conflict")),
    (SHAPES, "shape_bias", "", ("shape_bias", "cue_conflict")),
    (SHAPES, "accuracy", "edge", ("accuracy", "edge")),
    (SHAPES, "", "edge", ("accuracy", "edge")),
    (SHAPES, "", "cue_conflict", ("shape_bias", "cue_conflict")),
    ({"photo": OTHER["photo"]}, "", "", ("accuracy", "photo")),
    (OTHER, "mine", "sketch", ("mine", "sketch")),
    (
        {**OTHER, "groups": {"data": "waterbirds", "measures": ["groups"]}},
        "worst_group_accuracy",
        "groups",
        ("worst_group_accuracy", "groups"),
    ),
]


@pytest.mark.parametrize(("tests", "metric", "dataset", "expected"), CHOSEN)
def test_the_default_is_shape_bias_on_cue_conflicts(tests, metric, dataset, expected):
    configs = {"--config": {"tests": tests}, "the reference": {"tests": tests}}
    chosen = settings.choose(configs, metric=metric, dataset=dataset)
    assert (chosen.metric, chosen.dataset) == expected


REFUSED = [
    (SHAPES, {"metric": "accuracy"}, "--dataset is missing: .* on, one of cue_con"),
    (SHAPES, {"metric": "shape_bais"}, "no test set has 'shape_bais'; did you mean"),
    (SHAPES, {"metric": "shape_bias", "dataset": "edge"}, "no shape_bias on edge"),
    (SHAPES, {"dataset": "egde"}, "did you mean 'edge'"),
    (OTHER, {}, "--dataset is missing"),
    (SHAPES, {"bounds": (40.0, 60.0)}, "because shape_bias is a share, got 40,60"),
    (SHAPES, {"bounds": (-1.0, 1.0)}, "because shape_bias is a share"),
]


@pytest.mark.parametrize(("tests", "arguments", "message"), REFUSED)
def test_impossible_settings_are_refused(tests, arguments, message):
    with pytest.raises(ValueError, match=message) as raised:
        settings.choose({"--config": {"tests": tests}}, **arguments)
    assert "\n" not in str(raised.value)


def test_the_reference_needs_the_metric_too():
    reference = {"edge": {"data": "shapes", "split": "edge", "measures": ["groups"]}}
    configs = {"--config": {"tests": SHAPES}, "the reference": {"tests": reference}}
    with pytest.raises(ValueError, match="the reference has no accuracy on edge"):
        settings.choose(configs, metric="accuracy", dataset="edge")
