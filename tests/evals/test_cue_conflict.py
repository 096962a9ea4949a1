import math
import pathlib

import numpy as np
import pytest
import scipy.stats

from jbias import evals
from jbias.data import labels
from jbias.evals import cue_conflict
from tests import cases

ORACLE = np.load(pathlib.Path(__file__).parents[1] / "oracles" / "human.npz")
CLASSES = [*labels.geirhos16()]
PEOPLE = [f"subject-{i:02d}" for i in range(1, 11)]


def published(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Decision, shape and texture per image; -1 is the answer "na"."""
    which = ORACLE["cue-conflict/subject"].tolist().index(name)
    columns = (ORACLE[f"cue-conflict/{of}"] for of in ("category", "texture"))
    return ORACLE["cue-conflict/response"][which], *columns


def decisions(name: str) -> evals.Decisions:
    decided, shape, texture = published(name)
    return evals.Decisions(decided, {"label": shape, "texture": texture})


@cases.each(
    ("name", "n_shape", "n_texture", "value"),
    [
        ("resnet50", 162, 572, 0.2207),
        ("densenet121", 163, 597, 0.2145),
        ("resnet50-train-60-epochs", 586, 141, 0.8061),
    ],
)
def test_published_answers_of_networks(name, n_shape, n_texture, value):
    bias = evals.shape_bias(*published(name))
    assert (bias.n_shape, bias.n_texture) == (n_shape, n_texture)
    assert bias.value == pytest.approx(value, abs=5e-5)


def test_published_answers_of_people():
    biases = [evals.shape_bias(*published(one)) for one in PEOPLE]
    n_shape = sum(bias.n_shape for bias in biases)
    n_texture = sum(bias.n_texture for bias in biases)
    assert (n_shape, n_texture) == (9236, 398)
    assert n_shape / (n_shape + n_texture) == float(ORACLE["people/shape-bias"])
    values = [bias.value for bias in biases]
    assert np.mean(values) == pytest.approx(0.9576, abs=5e-5)
    assert min(values) == pytest.approx(0.9191, abs=5e-5)
    assert max(values) == pytest.approx(0.9866, abs=5e-5)


def test_per_class_values_of_resnet50():
    values = cue_conflict.by_class(*published("resnet50"))
    named = {CLASSES[one]: bias for one, bias in values.items()}
    assert len(named) == 16
    assert named["airplane"].value == named["knife"].value == 0.0
    assert named["bottle"].value == pytest.approx(0.562, abs=5e-4)
    assert named["clock"].value == pytest.approx(0.712, abs=5e-4)
    assert sum(bias.n_shape for bias in named.values()) == 162
    assert np.mean([bias.value for bias in named.values()]) != pytest.approx(162 / 734)


def test_numbers_of_resnet50():
    """Fractions and accuracies are of all 1,280; 80 of these agree in their cues."""
    made = cue_conflict.make(classes=CLASSES)
    assert list(made.conditions) == [""]
    found = {
        (n.metric, n.condition): n for n in made.numbers({"": decisions("resnet50")})
    }
    assert found["shape_bias", ""][1:4] == (162 / 734, 162, 734)
    assert found["fraction_shape", ""][1:4] == (162 / 1280, 162, 1280)
    assert found["fraction_texture", ""][1:4] == (572 / 1280, 572, 1280)
    # Where the cues agree, a decision is right by both: 62 of the 80.
    assert found["accuracy_shape", ""][2:4] == (224, 1280)
    assert found["accuracy_texture", ""][2:4] == (634, 1280)
    assert found["shape_bias", "class=knife"].value == 0
    clock = found["shape_bias", "class=clock"]
    assert clock.value == clock.count / clock.n
    assert found["shape_bias_undefined", ""][1:4] == (0, 0, 16)
    ends = [found[f"shape_bias_{end}", ""].value for end in ("lower", "upper")]
    test = scipy.stats.binomtest(162, 734)
    assert ends == pytest.approx([*test.proportion_ci(method="wilson")], abs=1e-12)


def test_each_rule_of_decision_is_told_apart():
    by = {"": decisions("resnet50"), "mean_logit": decisions("densenet121")}
    found = cue_conflict.make().numbers(by)
    pooled = {n.condition: n.count for n in found if n.metric == "shape_bias"}
    assert pooled[""] == 162 and pooled["mean_logit"] == 163
    assert "class=0" in pooled and "mean_logit class=0" in pooled


def test_classes_without_a_decision_for_either_cue_are_counted():
    columns = {"label": np.array([0, 0, 1, 2]), "texture": np.array([1, 1, 0, 2])}
    decided = evals.Decisions(np.array([2, 3, 0, 2]), columns)
    found = {(n.metric, n.condition): n for n in cue_conflict.numbers({"": decided})}
    assert found["shape_bias", "class=0"][1:4] == (None, 0, 0)
    assert found["shape_bias", "class=1"][1:4] == (0.0, 0, 1)
    assert ("shape_bias", "class=2") not in found  # Its cues agree.
    assert found["shape_bias_undefined", ""][1:4] == (0.5, 1, 2)


def test_accuracy_by_either_cue_counts_what_cannot_be_answered():
    columns = {"label": np.array([0, -1, 1]), "texture": np.array([-1, 0, 1])}
    decided = evals.Decisions(np.array([0, 0, 1]), columns)
    found = {n.metric: n for n in cue_conflict.numbers({"": decided})}
    assert found["accuracy_shape"][1:4] == (2 / 3, 2, 3)
    assert found["accuracy_texture"][1:4] == (2 / 3, 2, 3)
    assert found["shape_bias"].value is None
    assert "shape_bias_lower" not in found


def test_a_set_without_textures_is_refused():
    decided = evals.Decisions(np.zeros(2, int), {"label": np.zeros(2, int)})
    with pytest.raises(ValueError, match="must have a column texture, got label"):
        cue_conflict.make().numbers({"": decided})
    with pytest.raises(ValueError, match="sequence of names, got 'cat'"):
        cue_conflict.make(classes="cat")


def test_agreeing_and_unanswerable_images_count_for_nothing():
    decided = np.array([0, 1, 0, 1, 2])
    shape = np.array([0, 1, 0, 0, 0])
    texture = np.array([1, 1, -1, 1, 1])
    bias = evals.shape_bias(decided, shape, texture)
    assert (bias.n_shape, bias.n_texture, bias.value) == (1, 1, 0.5)


def test_no_decision_for_either_cue_is_nan_and_recorded_as_null():
    columns = {"label": np.array([0, 0]), "texture": np.array([1, 1])}
    nothing = evals.shape_bias(np.array([2, 3]), columns["label"], columns["texture"])
    assert math.isnan(nothing.value)
    (number,) = cue_conflict.measure(evals.Decisions(np.array([2, 3]), columns))
    assert (number.value, number.count, number.n) == (None, 0, 0)


def test_unequal_lengths_are_refused():
    with pytest.raises(ValueError, match="one length"):
        evals.shape_bias(np.zeros(3), np.zeros(3), np.zeros(2))


@cases.each("name", ["resnet50", "densenet121"])
def test_the_interval_is_scipys(name):
    bias = evals.shape_bias(*published(name))
    test = scipy.stats.binomtest(bias.n_shape, bias.n_shape + bias.n_texture)
    expected = test.proportion_ci(0.95, method="wilson")
    assert bias.interval == pytest.approx((expected.low, expected.high), rel=1e-9)
    low, high = bias.interval
    told = f"{bias.value:.3f} (95 %: {low:.3f} to {high:.3f}; {bias.n_shape} shape and"
    assert told in repr(bias)


def test_classes_may_be_names():
    ids = np.array([[0, 1, 0, 1, 2, 0], [0, 1, 0, 0, 0, 2], [1, 1, -1, 1, 1, 2]])
    names = np.array(["cat", "dog", "owl", ""])[ids]
    for given in (names, names.astype(object), np.where(ids < 0, None, names)):
        assert evals.shape_bias(*given) == evals.shape_bias(*ids)
    assert evals.shape_bias(*map(list, names)).n_shape == 1
    with pytest.raises(ValueError, match="must be all names, or all class ids"):
        evals.shape_bias(names[0], ids[1], ids[2])
