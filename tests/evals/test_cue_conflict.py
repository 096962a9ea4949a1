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
    assert found["fraction_neither", ""][1:4] == (466 / 1200, 466, 1200)
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
    told = cue_conflict.measure(evals.Decisions(np.array([2, 3]), columns))
    assert [number[:4] for number in told] == [
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


# Of the authors' code: two classes answer for "clock".
MEMBERS = [[0], [1, 2], [3], [4]]
SCORES = np.array(
    [[2, 1, 3, 0, -1], [0, 5, 4, 3, 2], [1, 2, 3, 4, 5], [5, 4, 3, 2, 1]], float
)


def test_ranks_of_the_authors_code():
    ranks = cue_conflict.label_ranks(SCORES, [0, 2, 1, 1], members=MEMBERS)
    assert ranks.tolist() == [2, 3, 3, 2]
    assert cue_conflict.mean_reciprocal_rank(ranks) == pytest.approx(0.416667, abs=1e-6)


def test_ranks_are_those_of_a_flipped_sort():
    """Ranks, also of ties, equal scipy's in the authors' order; monotone maps change nothing."""
    random = np.random.default_rng(0)
    scores = random.integers(6, size=(200, 12)) / 2
    label = random.integers(-1, 12, size=200)
    ranks = cue_conflict.label_ranks(scores, label)
    order = np.argsort(scores, axis=1, kind="stable")[:, ::-1]
    expected = 1 + np.argmax(order == label[:, None], axis=1)
    assert (ranks == np.where(label < 0, 0, expected)).all()
    assert (cue_conflict.label_ranks(np.exp(scores), label) == ranks).all()
    smooth = random.random((50, 12))
    places = scipy.stats.rankdata(-smooth, axis=1)
    assert (cue_conflict.label_ranks(smooth, np.full(50, 3)) == places[:, 3]).all()


@cases.each("members, chance", [(1, 0.0074855), (2, 0.0129839), (3, 0.0179924)])
def test_chance_of_a_thousand_classes(members, chance):
    """Over random orders; published of 1, 2 and 3 classes that answer for the label."""
    scores = np.random.default_rng(members).random((20_000, 1000), np.float32)
    of = [range(members)]
    ranks = cue_conflict.label_ranks(scores, np.zeros(20_000, int), members=of)
    spread = (1 / ranks).std() / math.sqrt(20_000)
    assert abs(cue_conflict.mean_reciprocal_rank(ranks) - chance) < 4 * spread


def test_sensitivity_is_counted_where_cues_conflict():
    shape, texture = np.array([0, 1, 2, 0, -1]), np.array([1, 0, 2, 1, 0])
    scores = np.random.default_rng(1).random((5, 3))
    cues = dict(shape=shape, texture=texture)
    ranks = {f"rank_{k}": cue_conflict.label_ranks(scores, v) for k, v in cues.items()}
    decided = evals.Decisions(
        scores.argmax(1), {"label": shape, "texture": texture, **ranks}
    )
    found = {n.metric: n for n in cue_conflict.numbers({"": decided})}
    here = [0, 1, 3]
    mrr = {cue: np.mean(1 / ranks[f"rank_{cue}"][here]) for cue in cues}
    for cue, value in mrr.items():
        assert found[f"mrr_{cue}"][1:4] == (pytest.approx(value), None, 3)
    relative = mrr["shape"] / (mrr["shape"] + mrr["texture"])
    assert found["mrr_relative"].value == pytest.approx(relative)
    either = np.isin(decided.prediction, shape) & (decided.prediction == shape)
    # The first place is that of the decision; two cues share no place.
    assert mrr["shape"] >= either[here].mean() and sum(mrr.values()) <= 1.5
    assert found["fraction_neither"].n == 3


def test_what_has_no_rank_counts_as_nothing_among_all_conflicts():
    """Answers of NaN must not leave an average over the images that are answered."""
    cues = {"label": np.array([0, 1, 2, 0]), "texture": np.array([1, 0, 1, 0])}

    def told(shape, texture):
        ranks = {"rank_shape": np.array(shape), "rank_texture": np.array(texture)}
        decided = evals.Decisions(cues["label"], {**cues, **ranks})
        found = {one.metric: one for one in cue_conflict.numbers({"": decided})}
        assert {found[f"mrr_{cue}"].n for cue in ("shape", "texture")} == {3}
        return [found[f"mrr_{end}"].value for end in ("shape", "texture", "relative")]

    assert told([1, 2, 0, 1], [2, 4, 0, 1]) == pytest.approx([1 / 2, 1 / 4, 2 / 3])
    assert told([0, 0, 0, 1], [0, 0, 0, 1]) == [0, 0, None]


@cases.each(
    "call, why",
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
def test_ranks_that_cannot_be_are_refused(call, why):
    with pytest.raises(ValueError, match=why):
        call()
