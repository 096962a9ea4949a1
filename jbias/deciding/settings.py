"""The settings of a comparison, checked against the configs before anything is trained."""

from collections.abc import Mapping
from typing import Any

from jbias import errors, numerals
from jbias.deciding import comparison as comparison_lib
from jbias.deciding import seed_scores

_CUE_METRICS = (
    "shape_bias",
    "fraction_neither",
    "mrr_shape",
    "mrr_texture",
    "mrr_relative",
)
# Metrics of a whole test set, by measure. All are shares.
_METRICS: Mapping[str, tuple[str, ...]] = {
    "accuracy": ("accuracy",),
    "real_accuracy": ("real_accuracy",),
    "shape_bias": _CUE_METRICS,
    "halves": ("follows_label", "follows_other"),
    "groups": (
        "worst_group_accuracy",
        "group_balanced_accuracy",
        "class_balanced_accuracy",
    ),
}
SHARES = frozenset(metric for metrics in _METRICS.values() for metric in metrics)


def parse_bounds(text: str) -> tuple[float, float]:
    """Return the two numbers of a text LOW,HIGH; ValueError for another text."""
    low, _, high = text.partition(",")
    try:
        return numerals.real(low), numerals.real(high)
    except ValueError:
        raise ValueError(
            f"--bounds: must be two numbers LOW,HIGH such as 0,1, got {text!r}"
        ) from None


def choose(
    configs: Mapping[str, Mapping[str, Any]],
    *,
    metric: str = "",
    dataset: str = "",
    **entries: Any,
) -> comparison_lib.Settings:
    """Return the settings of a comparison.

    configs: of all methods and the reference, by the words that name them in messages. metric: "":
    shape_bias on a test set of cue conflicts, else accuracy. dataset: "": the only test set that
    has the metric. entries: other fields of `comparison.Settings`.
    ValueError for settings that cannot be compared, and for a metric that a test set does not have.
    """
    tests = next(iter(configs.values()))["tests"]
    if not dataset:
        if not metric and len([*filter(None, map(_has_cues, tests.items()))]) == 1:
            metric = "shape_bias"
        dataset = _only_test_set(tests, metric or "accuracy")
    for name, config in configs.items():
        if dataset not in config["tests"]:
            raise ValueError(
                f"--dataset: {name} has no test set {dataset!r}; "
                f"{errors.suggest(dataset, config['tests'])}"
            )
    if not metric:
        has_cues = _has_cues((dataset, tests[dataset]))
        metric = "shape_bias" if has_cues else "accuracy"
    for name, config in configs.items():
        known = _known_metrics(config["tests"][dataset])
        if known is not None and metric not in known:
            raise ValueError(
                f"--metric: {name} has no {metric} on {dataset}; choose one of "
                f"{', '.join(known)}"
            )
    settings = comparison_lib.Settings(metric=metric, dataset=dataset, **entries)
    low, high = settings.bounds
    if metric in SHARES and low < high and not 0 <= low < high <= 1:
        raise ValueError(
            f"--bounds: must be from 0 to 1, because {metric} is a share, got {low:g},{high:g}"
        )
    seed_scores.check_settings(settings)
    return settings


def _only_test_set(tests: Mapping[str, Mapping[str, Any]], metric: str) -> str:
    """Return the only test set that may have a metric; ValueError if there are several or none."""
    names = [
        name
        for name, entry in tests.items()
        if metric in (_known_metrics(entry) or [metric])
    ]
    if not names:
        known = {metric for x in tests.values() for metric in _known_metrics(x) or ()}
        raise ValueError(
            f"--metric: no test set has {metric!r}; {errors.suggest(metric, sorted(known))}"
        )
    if len(names) > 1:
        raise ValueError(
            f"--dataset is missing: the test set to compare {metric} on, one of "
            f"{', '.join(names)}"
        )
    return names[0]


def _known_metrics(entry: Mapping[str, Any]) -> list[str] | None:
    """Return the metrics of a test set, an entry of config.tests; None if they are not known."""
    measures = entry.get("measures")
    if not measures:
        if entry.get("data") != "shapes":
            return None
        is_conflict = str(entry.get("split", "")).startswith("cue_conflict")
        measures = ("accuracy", "shape_bias") if is_conflict else ("accuracy",)
    if not {*measures} <= {*_METRICS}:
        return None
    return [metric for measure in measures for metric in _METRICS[measure]]


def _has_cues(test: tuple[str, Mapping[str, Any]]) -> bool:
    """Return True if a test set, a name and an entry of config.tests, surely has cue conflicts."""
    name, entry = test
    metrics = _known_metrics(entry)
    return name == "cue_conflict" if metrics is None else "shape_bias" in metrics
