"""The numbers that loggers get while a run trains."""

import math

from jbias import run_spec
from jbias.training import monitoring, scalars

BRANCH = run_spec.Branch((), {}, "")
NAME = run_spec.member_name(0, "")


def read(monitor, step, *values):
    """Add the metrics of a step, and read them."""
    monitor.add(step, values)
    monitor.flush()


def test_each_mean_is_over_the_steps_since_the_last_call_that_have_the_metric():
    monitor = monitoring.Monitor((NAME,))
    recent_means = scalars.RecentMeans(monitor, run_spec.members((0,), (BRANCH,)))
    assert recent_means() == {}
    read(monitor, 1, {"loss_class": 1.0})
    read(monitor, 2, {"loss_class": 3.0, "loss_style": 5.0})
    first = {"progress/loss_class": 2.0, "progress/loss_style": 5.0}
    assert recent_means() == {"seed-0": first}
    read(monitor, 3, {"loss_class": 7.0})
    assert recent_means() == {"seed-0": {"progress/loss_class": 7.0}}
    assert recent_means() == {}
    monitor.reset()
    read(monitor, 4, {"loss_class": 11.0})
    assert recent_means() == {"seed-0": {"progress/loss_class": 11.0}}


def test_seeds_that_diverged_have_no_recent_mean():
    other = run_spec.member_name(1, "")
    monitor = monitoring.Monitor((NAME, other))
    recent_means = scalars.RecentMeans(monitor, run_spec.members((0, 1), (BRANCH,)))
    read(monitor, 1, {"loss_class": 1.0}, {"loss_class": 1.0})
    read(monitor, 2, {"loss_class": 2.0}, {"loss_class": math.nan})
    assert recent_means() == {"seed-0": {"progress/loss_class": 1.5}}
