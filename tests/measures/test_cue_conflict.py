"""Cue conflict: shape bias and ranks of published decisions, and undefined numbers."""

import math
import pathlib

import numpy as np
import pytest
import scipy.stats

from jbias import evals
from jbias.data import class_maps
from jbias.measures import cue_conflict
from jbias.stimuli import shown
from tests import cases

ORACLE = np.load(pathlib.Path(__file__).parents[1] / "oracles" / "human.npz")
CLASSES = [*class_maps.geirhos16()]
PEOPLE = [f"subject-{i:02d}" for i in range(1, 11)]


def published(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return decision, shape and texture per image; -1 is the answer "na"."""
    subject = ORACLE["cue-conflict/subject"].tolist().index(name)
    columns = (ORACLE[f"cue-conflict/{column}"] for column in ("category", "texture"))
    return ORACLE["cue-conflict/response"][subject], *columns


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
    biases = [evals.shape_bias(*published(person)) for person in PEOPLE]
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
    biases = {CLASSES[label]: bias for label, bias in values.items()}
    assert len(biases) == 16
    assert biases["airplane"].value == biases["knife"].value == 0.0
    assert biases["bottle"].value == pytest.approx(0.562, abs=5e-4)
    assert biases["clock"].value == pytest.approx(0.712, abs=5e-4)
    assert sum(bias.n_shape for bias in biases.values()) == 162
    assert np.mean([bias.value for bias in biases.values()]) != pytest.approx(162 / 734)


def test_numbers_of_resnet50():
    """Fractions and accuracies are of all 1,280 images; the cues of 80 images agree."""
    cue_probe = cue_conflict.make(classes=CLASSES)
    assert list(shown.unchanged(cue_probe).conditions) == [""]
    numbers = {
        (n.metric, n.condition): n
        for n in cue_probe.numbers({"": decisions("resnet50")})
    }
    assert numbers["shape_bias", ""][1:4] == (162 / 734, 162, 734)
    assert numbers["fraction_shape", ""][1:4] == (162 / 1280, 162, 1280)
    assert numbers["fraction_texture", ""][1:4] == (572 / 1280, 572, 1280)
    assert numbers["fraction_neither", ""][1:4] == (466 / 1200, 466, 1200)
    # If the cues agree, a correct decision counts for both: 62 of 80 images.
    assert numbers["accuracy_shape", ""][2:4] == (224, 1280)
    assert numbers["accuracy_texture", ""][2:4] == (634, 1280)
    assert numbers["shape_bias", "class=knife"].value == 0
    clock = numbers["shape_bias", "class=clock"]
    assert clock.value == clock.count / clock.n
    assert numbers["shape_bias_undefined", ""][1:4] == (0, 0, 16)
    ends = [numbers[f"shape_bias_{end}", ""].value for end in ("lower", "upper")]
    test = scipy.stats.binomtest(162, 734)
    assert ends == pytest.approx([*test.proportion_ci(method="wilson")], abs=1e-12)


def test_each_decision_rule_has_its_own_numbers():
    decisions_by_rule = {
        "": decisions("resnet50"),
        "mean_logit": decisions("densenet121"),
    }
    numbers = cue_conflict.make().numbers(decisions_by_rule)
    pooled = {n.condition: n.count for n in numbers if n.metric == "shape_bias"}
    assert pooled[""] == 162 and pooled["mean_logit"] == 163
    assert "class=0" in pooled and "mean_logit class=0" in pooled


def test_classes_without_a_decision_for_either_cue_are_counted():
    columns = {"label": np.array([0, 0, 1, 2]), "texture": np.array([1, 1, 0, 2])}
    decided = evals.Decisions(np.array([2, 3, 0, 2]), columns)
    numbers = {(n.metric, n.condition): n for n in cue_conflict.numbers({"": decided})}
    assert numbers["shape_bias", "class=0"][1:4] == (None, 0, 0)
    assert numbers["shape_bias", "class=1"][1:4] == (0.0, 0, 1)
    assert ("shape_bias", "class=2") not in numbers  # Its cues agree.
    assert numbers["shape_bias_undefined", ""][1:4] == (0.5, 1, 2)


def test_accuracy_by_either_cue_counts_images_of_unknown_classes():
    columns = {"label": np.array([0, -1, 1]), "texture": np.array([-1, 0, 1])}
    decided = evals.Decisions(np.array([0, 0, 1]), columns)
    numbers = {n.metric: n for n in cue_conflict.numbers({"": decided})}
    assert numbers["accuracy_shape"][1:4] == (2 / 3, 2, 3)
    assert numbers["accuracy_texture"][1:4] == (2 / 3, 2, 3)
    assert numbers["shape_bias"].value is None
    assert "shape_bias_lower" not in numbers


def test_a_set_without_textures_is_refused():
    decided = evals.Decisions(np.zeros(2, int), {"label": np.zeros(2, int)})
    with pytest.raises(ValueError, match="must have a column texture, got label"):
        cue_conflict.make().numbers({"": decided})
    with pytest.raises(ValueError, match="sequence of names, got 'cat'"):
        cue_conflict.make(classes="cat")


def test_images_with_agreeing_or_unknown_cues_do_not_count():
    decided = np.array([0, 1, 0, 1, 2])
    shape = np.array([0, 1, 0, 0, 0])
    texture = np.array([1, 1, -1, 1, 1])
    bias = evals.shape_bias(decided, shape, texture)
    assert (bias.n_shape, bias.n_texture, bias.value) == (1, 1, 0.5)


def test_no_decision_for_either_cue_is_nan_and_recorded_as_null():
    columns = {"label": np.array([0, 0]), "texture": np.array([1, 1])}
    bias = evals.shape_bias(np.array([2, 3]), columns["label"], columns["texture"])
    assert math.isnan(bias.value)
    numbers = cue_conflict.measure(evals.Decisions(np.array([2, 3]), columns))
    assert [number[:4] for number in numbers] == [
        ("shape_bias", None, 0, 0),
        ("fraction_neither", 1, 2, 2),
    ]


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
    text = f"{bias.value:.3f} (95 %: {low:.3f} to {high:.3f}; {bias.n_shape} shape and"
    assert text in repr(bias)


def test_classes_may_be_names():
    ids = np.array([[0, 1, 0, 1, 2, 0], [0, 1, 0, 0, 0, 2], [1, 1, -1, 1, 1, 2]])
    names = np.array(["cat", "dog", "owl", ""])[ids]
    for columns in (names, names.astype(object), np.where(ids < 0, None, names)):
        assert evals.shape_bias(*columns) == evals.shape_bias(*ids)
    assert evals.shape_bias(*map(list, names)).n_shape == 1
    with pytest.raises(ValueError, match="must be all names, or all class ids"):
        evals.shape_bias(names[0], ids[1], ids[2])


# From the authors' code: two classes belong to "clock".
MEMBERS = [[0], [1, 2], [3], [4]]
SCORES = np.array(
    [[2, 1, 3, 0, -1], [0, 5, 4, 3, 2], [1, 2, 3, 4, 5], [5, 4, 3, 2, 1]], float
)


def test_ranks_of_the_authors_code():
    ranks = cue_conflict.label_ranks(SCORES, [0, 2, 1, 1], members=MEMBERS)
    assert ranks.tolist() == [2, 3, 3, 2]
    assert cue_conflict.mean_reciprocal_rank(ranks) == pytest.approx(0.416667, abs=1e-6)


def test_ranks_equal_those_of_a_reversed_sort():
    """Ranks, also of ties, equal scipy's in the authors' order; monotone maps change nothing."""
    random = np.random.default_rng(0)
    scores = random.integers(6, size=(200, 12)) / 2
    label = random.integers(-1, 12, size=200)
    ranks = cue_conflict.label_ranks(scores, label)
    order = np.argsort(scores, axis=1, kind="stable")[:, ::-1]
    expected = 1 + np.argmax(order == label[:, None], axis=1)
    assert (ranks == np.where(label < 0, 0, expected)).all()
    assert (cue_conflict.label_ranks(np.exp(scores), label) == ranks).all()
    distinct_scores = random.random((50, 12))
    expected_ranks = scipy.stats.rankdata(-distinct_scores, axis=1)
    assert (
        cue_conflict.label_ranks(distinct_scores, np.full(50, 3))
        == expected_ranks[:, 3]
    ).all()


@cases.each("members, chance", [(1, 0.0074855), (2, 0.0129839), (3, 0.0179924)])
def test_the_chance_level_of_the_reciprocal_rank_for_a_thousand_classes(
    members, chance
):
    """Published for labels with 1, 2 and 3 classes; scores are in random order."""
    scores = np.random.default_rng(members).random((20_000, 1000), np.float32)
    label_members = [range(members)]
    ranks = cue_conflict.label_ranks(
        scores, np.zeros(20_000, int), members=label_members
    )
    standard_error = (1 / ranks).std() / math.sqrt(20_000)
    assert abs(cue_conflict.mean_reciprocal_rank(ranks) - chance) < 4 * standard_error


def test_sensitivity_is_counted_where_cues_conflict():
    shape, texture = np.array([0, 1, 2, 0, -1]), np.array([1, 0, 2, 1, 0])
    scores = np.random.default_rng(1).random((5, 3))
    cues = dict(shape=shape, texture=texture)
    ranks = {f"rank_{k}": cue_conflict.label_ranks(scores, v) for k, v in cues.items()}
    decided = evals.Decisions(
        scores.argmax(1), {"label": shape, "texture": texture, **ranks}
    )
    numbers = {n.metric: n for n in cue_conflict.numbers({"": decided})}
    conflicts = [0, 1, 3]
    mrr = {cue: np.mean(1 / ranks[f"rank_{cue}"][conflicts]) for cue in cues}
    for cue, value in mrr.items():
        assert numbers[f"mrr_{cue}"][1:4] == (pytest.approx(value), None, 3)
    relative = mrr["shape"] / (mrr["shape"] + mrr["texture"])
    assert numbers["mrr_relative"].value == pytest.approx(relative)
    is_shape = np.isin(decided.prediction, shape) & (decided.prediction == shape)
    # The decision has rank 1, and two cues cannot have the same rank.
    assert mrr["shape"] >= is_shape[conflicts].mean() and sum(mrr.values()) <= 1.5
    assert numbers["fraction_neither"].n == 3


def test_images_without_a_rank_count_as_0_among_all_conflicts():
    """Images with NaN answers must not be left out of the average."""
    cues = {"label": np.array([0, 1, 2, 0]), "texture": np.array([1, 0, 1, 0])}

    def reciprocal_ranks(shape, texture):
        ranks = {"rank_shape": np.array(shape), "rank_texture": np.array(texture)}
        decided = evals.Decisions(cues["label"], {**cues, **ranks})
        numbers = {
            number.metric: number for number in cue_conflict.numbers({"": decided})
        }
        assert {numbers[f"mrr_{cue}"].n for cue in ("shape", "texture")} == {3}
        return [numbers[f"mrr_{end}"].value for end in ("shape", "texture", "relative")]

    assert reciprocal_ranks([1, 2, 0, 1], [2, 4, 0, 1]) == pytest.approx(
        [1 / 2, 1 / 4, 2 / 3]
    )
    assert reciprocal_ranks([0, 0, 0, 1], [0, 0, 0, 1]) == [0, 0, None]


@cases.each(
    "call, message",
    [
        (lambda: cue_conflict.label_ranks(SCORES, [0, 1]), "a label for each image"),
        (
            lambda: cue_conflict.label_ranks(SCORES, [0, 1, 5, 2]),
            "labels must be below 5",
        ),
        (
            lambda: cue_conflict.label_ranks(SCORES * math.nan, [0] * 4),
            "scores must be",
        ),
        (
            lambda: cue_conflict.label_ranks(SCORES, [0] * 4, members=[[0], [7]]),
            "each label must stand for some of 5 classes",
        ),
    ],
)
def test_invalid_labels_and_scores_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
