"""Decisions and their correctness."""

import numpy as np

from jbias.measures import decisions


def test_no_answer_to_an_image_without_a_label_is_not_right():
    """-1 means no answer, or no label."""
    label = np.array([0, -1, 1])
    decided = decisions.Decisions(np.array([0, -1, -1]), {"label": label})
    assert decided.right.tolist() == [True, False, False]
