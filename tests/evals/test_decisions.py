"""Decisions: what counts as right."""

import numpy as np

from jbias.evals import decisions


def test_no_answer_to_an_image_without_a_label_is_not_right():
    """-1 is no answer, and no label."""
    found = decisions.Decisions(np.array([0, -1, -1]), {"label": np.array([0, -1, 1])})
    assert found.right.tolist() == [True, False, False]
