"""Verified reliance counts decisions where the four cues stand for four classes."""

import numpy as np
import pytest

from jbias.data.embedded import cues
from jbias.planting import verifying

EVERY = cues.combination(np.arange(cues.NUM_COMBINATIONS))


@pytest.mark.parametrize("name", cues.CUES)
def test_a_network_that_follows_one_cue_relies_on_no_other(name):
    reliance = verifying.reliance(EVERY.classes[name], EVERY)
    assert reliance == verifying.Reliance(
        **{cue: float(cue == name) for cue in cues.CUES},
        neither=0.0,
        images=_num_different(),
    )


def _num_different() -> int:
    """Return the number of combinations whose four cues are of four classes."""
    classes = np.stack([*EVERY.classes.values()], axis=1)
    return sum(len({*row}) == 4 for row in classes.tolist())


def test_planted_labels_have_their_dial_where_the_shortcut_does_not_decide():
    planted = cues.Planted(dial=0.3, shortcut="colour", strength=0.25)
    reliance = verifying.reliance(cues.planted_label(EVERY, planted), EVERY)
    assert reliance.colour == pytest.approx(0.25, abs=0.01)
    either = reliance.shape + reliance.texture
    assert reliance.shape / either == pytest.approx(0.3, abs=0.02)
    assert sum(reliance[:5]) == pytest.approx(1)


def test_images_of_which_two_cues_agree_do_not_count():
    agreeing = cues.Cues(
        shape=np.array([1]),
        texture=np.array([1]),
        colour=np.array([2]),
        size=np.array([3]),
    )
    assert verifying.reliance(np.array([1]), agreeing).shape is None
