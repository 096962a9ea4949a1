"""SWAD averages the segments that its authors' code averages."""

import json
import pathlib

import pytest

from jbias.training.averaging import loss_valley
from tests.oracles import swad

ORACLE = pathlib.Path(__file__).parents[1] / "oracles/swad.json"


def test_the_segments_are_those_of_the_authors_code():
    """1,000 sequences of validation losses; the oracle is their LossValley."""
    answers = json.loads(ORACLE.read_text())
    assert len(answers) == swad.COUNT == 1000
    num_dead = num_unconverged = 0
    for number, (first_step, last_step, counts) in enumerate(answers):
        options, losses = swad.losses_of(number)
        selection = loss_valley.select(losses, loss_valley.Options._make(options))
        evaluated = selection.evaluated
        assert [evaluated.count(i) for i in range(len(losses))] == counts, number
        num_dead += selection.is_dead
        num_unconverged += selection.converged is None
        if first_step == -1:
            assert not selection.added and evaluated == (selection.converged,)
            continue
        assert last_step == swad.STEPS * (evaluated[-1] + 1) - 1, number
        first = swad.STEPS * evaluated[0]
        # Without an added segment, the authors' first step is the last of the first segment.
        is_added = selection.added or selection.converged is None
        assert first_step == (first if is_added else first + swad.STEPS - 1), number
    assert num_dead > 100 and num_unconverged > 50


def test_added_segments_are_never_removed_and_are_in_the_queue_when_added():
    """A device that has the mean of added segments and a queue can follow the decisions."""
    for number in range(300):
        options, losses = swad.losses_of(number)
        options = loss_valley.Options._make(options)
        added = ()
        for count in range(1, len(losses) + 1):
            selection = loss_valley.select(losses[:count], options)
            assert selection.added[: len(added)] == added
            new = selection.added[len(added) :]
            pending = selection.evaluated[len(selection.added) :]
            if not selection.is_dead:
                assert all(i > count - 1 - options.depth for i in (*new, *pending))
            assert selection.evaluated[: len(selection.added)] == selection.added
            added = selection.added


@pytest.mark.parametrize(
    ("losses", "evaluated"),
    [
        ([1.0], (0,)),
        ([3.0, 2.0, 1.0], (2,)),  # Still falling: the latest segment.
        ([1.0, 2.0, 3.0], (1,)),  # The last is above 1.3 times the mean.
        ([1.0, 1.0, 1.0, 1.0], (1, 2, 0, 1, 2, 3)),
    ],
)
def test_short_sequences_have_these_segments(losses, evaluated):
    assert loss_valley.select(losses, loss_valley.Options()).evaluated == evaluated
