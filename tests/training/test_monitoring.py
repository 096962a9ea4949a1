import json
import math

from jbias.training import monitoring


def metrics(*losses):
    return tuple({"loss_class": loss} for loss in losses)


def test_means_are_over_the_steps_since_the_reset():
    eyes = monitoring.Monitor((0, 1))
    for step, loss in enumerate([1.0, 2.0, 3.0], start=1):
        eyes.add(step, metrics(loss, 10 * loss))
    eyes.flush()
    assert eyes.means(0) == {"loss_class": 2.0}
    assert eyes.means(1) == {"loss_class": 20.0}
    assert eyes.latest == 16.5
    eyes.reset()
    eyes.add(4, metrics(5.0, 6.0))
    eyes.flush()
    assert eyes.means(0) == {"loss_class": 5.0}


def test_the_first_step_that_is_not_finite_is_reported_once():
    eyes = monitoring.Monitor((7, 8))
    news = []
    for step, loss in enumerate([1.0, math.inf, math.nan, 2.0], start=1):
        news += eyes.add(step, metrics(1.0, loss))
    news += eyes.flush()
    assert news == [monitoring.Divergence(8, 2, "loss", False)]
    assert eyes.diverged == {8: 2}
    assert not eyes.all_diverged
    assert eyes.means(7) == {"loss_class": 1.0}


def test_any_loss_counts():
    eyes = monitoring.Monitor((0,))
    eyes.add(1, ({"loss_class": 1.0, "loss_style": math.nan},))
    assert eyes.flush() == [monitoring.Divergence(0, 1, "loss", False)]
    assert eyes.all_diverged


def test_state_goes_through_json_to_the_bit():
    eyes = monitoring.Monitor((0, 1))
    for step in range(1, 8):
        eyes.add(step, metrics(0.1 * step, math.nan if step > 3 else 1 / 3))
    eyes.flush()
    other = monitoring.Monitor((0, 1))
    other.load(json.loads(json.dumps(eyes.state())))
    assert other.state() == eyes.state()
    assert other.means(0) == eyes.means(0)


def test_a_metric_that_is_no_loss_may_be_anything():
    eyes = monitoring.Monitor((0,))
    eyes.add(1, ({"loss_class": 1.0, "ratio": math.nan},))
    assert eyes.flush() == []
    assert eyes.latest == 1.0


def test_a_metric_of_some_steps_has_the_mean_of_these_steps():
    """Steps of an algorithm that alternates have different metrics."""
    eyes = monitoring.Monitor((0,))
    for step in range(1, 7):
        values = {"loss_class": float(step)}
        values["gradient_norm_even" if step % 2 == 0 else "odd"] = float(step)
        eyes.add(step, (values,))
    eyes.flush()
    expected = {"loss_class": 3.5, "gradient_norm_even": 4.0, "odd": 3.0}
    assert eyes.means(0) == {**expected, "gradient_norm_even_max": 6.0}


def test_counts_of_old_checkpoints_hold_for_each_metric():
    """Older checkpoints have a count per seed, or one count of all seeds."""
    old = {"sums": {"0": {"loss_class": 6.0, "x": 3.0}, "1": {"loss_class": 9.0}}}
    for counts in ({"counts": {"0": 3, "1": 3}}, {"count": 3}):
        eyes = monitoring.Monitor((0, 1))
        eyes.load({**old, **counts})
        assert eyes.means(0) == {"loss_class": 2.0, "x": 1.0}
        assert eyes.means(1) == {"loss_class": 3.0}
