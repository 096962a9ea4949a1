"""Numbers of a run for loggers and for the log: means of training metrics, and evaluations."""

import collections
from collections.abc import Iterable, Mapping, Sequence

from jbias import run_spec
from jbias.runs import loggers, results
from jbias.training import monitoring

# Metrics that are recorded but not part of the log's line about an evaluation.
_UNLOGGED_METRICS = (
    "group_accuracy",
    "group_balanced_accuracy",
    "class_balanced_accuracy",
    "class_accuracy",
    "mrr_shape",
    "mrr_texture",
    "mrr_relative",
)


class RecentMeans:
    """The mean of each training metric since the previous call, by seed."""

    def __init__(self, monitor: monitoring.Monitor, members: Sequence[run_spec.Member]):
        self._monitor, self._members = monitor, members
        # The monitor's resets, counts and sums at the last call, by seed and metric.
        self._last: tuple[int, dict, dict] = (0, {}, {})

    def __call__(self) -> dict[str, dict[str, float]]:
        """Return the mean of each metric of training since the last call of this function.

        The means are by name of the seed in loggers, then by tag, such as "progress/loss_class".
        The means start again after an evaluation. Each metric's mean is over the steps that have
        the metric. Seeds that diverged, and metrics of no step since then, are left out.
        """
        monitor = self._monitor
        resets, last_counts, last_sums = self._last
        if resets != monitor.resets:
            last_counts, last_sums = {}, {}  # An evaluation has reset the sums.
        counts = {name: dict(by_metric) for name, by_metric in monitor.counts.items()}
        sums = {name: dict(by_metric) for name, by_metric in monitor.sums.items()}
        self._last = monitor.resets, counts, sums
        means = {}
        for member in self._members:
            name = member.name
            if name in monitor.diverged:
                continue
            member_means = _means_since(
                sums.get(name, {}),
                counts=counts.get(name, {}),
                last_sums=last_sums.get(name, {}),
                last_counts=last_counts.get(name, {}),
            )
            if member_means:
                means[_scalar_prefix(member.seed, member.branch)] = member_means
        return means


def _means_since(
    sums: Mapping[str, float],
    *,
    counts: Mapping[str, int],
    last_sums: Mapping[str, float],
    last_counts: Mapping[str, int],
) -> dict[str, float]:
    """Return the mean of each metric over the steps since the last sums, by tag.

    counts: number of steps in each sum. last_sums, last_counts: their earlier values; metrics
    that are absent there have a sum of 0 and no step.
    """
    means = {}
    for metric, total in sums.items():
        num_steps = counts[metric] - last_counts.get(metric, 0)
        if num_steps:
            means[f"progress/{metric}"] = (
                total - last_sums.get(metric, 0.0)
            ) / num_steps
    return means


def of_records(
    records: Iterable[results.Record], branches: Sequence[run_spec.Branch]
) -> dict[str, dict[str, float]]:
    """Return the values of an evaluation by name in loggers, then by tag, with means over seeds.

    A tag is "<data set>/<metric>", with "/<condition>" if the record has one. Records
    without a value are left out.
    """
    branches_by_run = {branch.fields["run"]: branch for branch in branches}
    numbers = collections.defaultdict(dict)
    for record in records:
        if record.value is not None:
            tag_parts = (record.dataset, record.metric, record.condition)
            tag = "/".join(filter(None, tag_parts))
            prefix = _scalar_prefix(record.seed, branches_by_run[record.run])
            numbers[prefix][tag] = record.value
    return with_means(numbers)


def _scalar_prefix(seed: int, branch: run_spec.Branch) -> str:
    """Return a seed's name in loggers: seed-0, or optim.rate=0.1/seed-0 in a branch."""
    return "/".join(filter(None, (branch.name, f"seed-{seed}")))


def with_means(
    numbers: Mapping[str, dict[str, float]],
) -> dict[str, dict[str, float]]:
    """Return the numbers with the mean over the seeds of each branch added.

    numbers: by name of the seed in loggers, then by tag. Means have the name
    "<branch>/mean", or "mean" in a run without branches; the tag "train/diverged" has no mean.
    """
    values = collections.defaultdict(lambda: collections.defaultdict(list))
    for name, by_tag in numbers.items():
        branch_name = name.rpartition("/")[0]
        mean_name = "/".join(filter(None, (branch_name, loggers.MEAN)))
        for tag, value in by_tag.items():
            if tag != f"{results.TRAIN}/diverged":
                values[mean_name][tag].append(value)
    with_means = dict(numbers)
    for mean_name, by_tag in values.items():
        with_means[mean_name] = {tag: sum(v) / len(v) for tag, v in by_tag.items()}
    return with_means


def summarise(dataset: str, metric: str, values: list[float]) -> str:
    """Return a metric's name and its mean over seeds as text, such as "valid 91.3".

    values: one fraction per seed. Accuracies are written in percent, other metrics as
    fractions, such as "shape bias 0.31".
    """
    if metric in ("accuracy", "worst_group_accuracy"):
        name = dataset if metric == "accuracy" else "worst group"
        return f"{name} {100 * mean(values):.1f}"
    return f"{metric.replace('_', ' ')} {mean(values):.2f}"


def values_by_metric(
    records: Iterable[results.Record],
) -> dict[tuple[str, str], list[float]]:
    """Return the values of each metric in the log's line, by (data set, metric).

    Records without a value (diverged seeds, logits that are not finite) are left out. Metrics of
    training and `_UNLOGGED_METRICS` are also left out.
    """
    values = {}
    for record in records:
        is_logged = record.metric not in _UNLOGGED_METRICS and record.value is not None
        if record.dataset != results.TRAIN and is_logged:
            key = record.dataset, record.metric
            values.setdefault(key, []).append(record.value)
    return values


def mean(values: Iterable[float]) -> float:
    """Return the mean; NaN without values."""
    values = list(values)
    return sum(values) / len(values) if values else float("nan")
