"""The last line of a run says how to make a card, or why there is none yet."""

import numpy as np
import pytest

from jbias.answers import observers
from jbias.asking import summary
from jbias.cards import card


@pytest.mark.parametrize("num_either", [99, 100])
def test_a_card_is_offered_from_the_number_of_decisions_that_it_needs(num_either):
    label, texture = np.zeros(150, int), np.ones(150, int)
    decision = np.where(np.arange(150) < num_either, 1, 2)
    observer = observers.Observer(
        name="vlm",
        dataset="cue-conflict",
        classes=("cat", "dog", "elephant"),
        images=tuple(f"{i:03d}" for i in range(150)),
        label=label,
        texture=texture,
        decision=decision,
    )
    line = summary._card_line([observer], "answers")
    has_card = num_either >= card.MIN_DECISIONS
    assert (line == "for a card: jbias card answers") == has_card
    assert line.startswith("no card yet: 99 decisions") == (not has_card)
