import csv
import math
import os
import pathlib

import numpy as np
import pytest

from jbias import evals
from jbias.evals import cue_conflict

PAPER = (
    pathlib.Path(
        os.environ.get(
            "JBIAS_TEST_DATA", pathlib.Path(__file__).parents[3] / "shared" / "data"
        )
    ).parent
    / "paper"
    / "decisions"
)
CLASSES = [
    "airplane",
    "bear",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "car",
    "cat",
    "chair",
    "clock",
    "dog",
    "elephant",
    "keyboard",
    "knife",
    "oven",
    "truck",
]


def published(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Decision, shape and texture per image; -1 is the answer "na"."""
    path = PAPER / f"cue-conflict_{name}.csv"
    if not path.exists():
        pytest.skip(f"{path} is absent: published answers on the cue-conflict set")
    ids = {word: i for i, word in enumerate([*CLASSES, "na"])}
    ids["na"] = -1
    with path.open() as file:
        rows = list(csv.DictReader(file))
    texture = [row["imagename"].split("-")[-1].split(".")[0] for row in rows]
    return (
        np.array([ids[row["object_response"]] for row in rows]),
        np.array([ids[row["category"]] for row in rows]),
        np.array([ids[word.rstrip("0123456789")] for word in texture]),
    )


# specs: recomputed from the published per-image answers of Geirhos et al.
@pytest.mark.parametrize(
    ("name", "n_shape", "n_texture", "value"),
    [
        ("resnet50", 162, 572, 0.2207),
        ("densenet121", 163, 597, 0.2145),
        ("resnet50_train_60_epochs", 586, 141, 0.8061),
    ],
)
def test_published_answers_of_networks(name, n_shape, n_texture, value):
    bias = evals.shape_bias(*published(name))
    assert (bias.n_shape, bias.n_texture) == (n_shape, n_texture)
    assert bias.value == pytest.approx(value, abs=5e-5)


def test_published_answers_of_people():
    people = [published(f"subject-{i:02d}_session_1") for i in range(1, 11)]
    biases = [evals.shape_bias(*one) for one in people]
    n_shape = sum(bias.n_shape for bias in biases)
    n_texture = sum(bias.n_texture for bias in biases)
    assert (n_shape, n_texture) == (9236, 398)
    assert np.mean([bias.value for bias in biases]) == pytest.approx(0.9576, abs=5e-5)


def test_per_class_values_of_resnet50():
    decided, shape, texture = published("resnet50")
    values = {
        name: evals.shape_bias(*(x[shape == i] for x in (decided, shape, texture)))
        for i, name in enumerate(CLASSES)
    }
    assert values["airplane"].value == values["knife"].value == 0.0
    assert values["bottle"].value == pytest.approx(0.562, abs=5e-4)
    assert values["clock"].value == pytest.approx(0.712, abs=5e-4)


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
