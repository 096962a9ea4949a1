"""Observers on one set are aligned by image; disagreeing files are refused."""

import numpy as np
import pytest

from jbias.answers import observers

CLASSES = ("bear", "cat", "dog")


def observer(name, images, decision, label=None, texture=None):
    """Return an observer of images whose labels and textures default to 0, 1, 2, ... and 1."""
    n = len(images)
    return observers.Observer(
        name=name,
        dataset="toy",
        classes=CLASSES,
        images=tuple(images),
        label=np.array(label if label is not None else np.arange(n) % 3),
        texture=np.array(texture if texture is not None else np.ones(n, int)),
        decision=np.array(decision),
    )


def test_shape_bias_and_accuracy_by_hand():
    # Labels 0 1 2, textures 1 1 1: the second image has no conflict.
    a = observer("a", ["i", "j", "k"], [0, 1, 1])
    assert a.shape_bias.n_shape == 1
    assert a.shape_bias.n_texture == 1
    assert a.accuracy == 2 / 3
    assert a.is_conflict.tolist() == [True, False, True]


def test_no_answer_is_wrong_and_for_neither_cue():
    a = observer("a", ["i", "j", "k"], [0, observers.NO_ANSWER, observers.NO_ANSWER])
    assert (a.shape_bias.n_shape, a.shape_bias.n_texture) == (1, 0)
    assert a.accuracy == 1 / 3
    assert a.is_unanswered.tolist() == [False, True, True]


def test_a_panel_has_a_column_for_each_image_of_any_observer():
    a = observer("a", ["i", "j"], [0, 1])
    b = observer("b", ["j", "k"], [2, 2], label=[1, 2])
    panel = observers.panels([a, b])["toy"]
    assert panel.images == ("i", "j", "k")
    assert panel.label.tolist() == [0, 1, 2]
    none = observers.NO_ROW
    assert panel.decision.tolist() == [[0, 1, none], [none, 2, 2]]
    assert panel.has_row.tolist() == [[True, True, False], [False, True, True]]


def test_files_that_disagree_about_a_label_are_refused():
    a, b = observer("a", ["i"], [0]), observer("b", ["i"], [0], label=[2])
    with pytest.raises(ValueError, match=r"b: the label of 'i' must be the same"):
        observers.panels([a, b])
