"""Laws of the flags: chance is flagged, planted networks are not, nothing follows from no counts."""

import math

import numpy as np
import pytest
from scipy import stats

from jbias.calibrating import flags as flags_lib
from jbias.calibrating import rows
from jbias.calibrating.flags import Evidence, Limits
from tests.calibrating import simulated

LIMITS = Limits(chance_p=0.01, least_decisions=100, most_shortcut=0.2)


def kinds(**counts) -> list[str]:
    flags = flags_lib.flags(Evidence(**counts), LIMITS)
    return [flag.kind for flag in flags]


def test_networks_that_guess_are_flagged_as_often_as_the_test_allows():
    """At most the share chance_p of guessing networks is taken to be above chance."""
    counts = np.random.default_rng(0).binomial(480, 1 / 16, size=2_000)
    missed = [
        not kinds(correct=int(count), images=480, chance=1 / 16) for count in counts
    ]
    assert 0 < np.mean(missed) <= 0.01 + 3 * math.sqrt(0.01 * 0.99 / 2_000)


@pytest.mark.parametrize("n", [16, 240, 1_200])
def test_the_test_of_chance_is_scipys_exact_binomial_test(n):
    for count in range(0, n + 1, max(1, n // 40)):
        p = stats.binomtest(count, n, 1 / 16, alternative="greater").pvalue
        exceeds = flags_lib.exceeds_chance(count, n, chance=1 / 16, largest_p=0.01)
        assert exceeds == (p <= 0.01)


def test_each_flag_is_raised_by_its_counts_only():
    good = {"correct": 400, "images": 480, "chance": 1 / 16}
    conflicts = {"conflicts": 240, "cue_chance": 1 / 8}
    assert kinds(**good, by_cue=200, shortcuts={"colour": 0.1}, **conflicts) == []
    assert kinds(correct=30, images=480, chance=1 / 16) == ["at chance"]
    assert kinds(correct=0, images=0, chance=1 / 16) == ["no accuracy"]
    assert kinds(**good, by_cue=99, **conflicts) == ["few decisions"]
    assert kinds(**good, by_cue=30, **conflicts) == ["cues at chance", "few decisions"]
    assert kinds(**good, shortcuts={"colour": 0.3, "size": 0.1}) == [
        "shortcut suspected"
    ]


def test_nothing_follows_from_what_was_not_measured():
    assert kinds() == []
    assert kinds(correct=3, images=480) == []
    assert kinds(by_cue=200, conflicts=240) == []
    assert kinds(by_cue=200, conflicts=240, cue_chance=1.0) == []


def network(**changes) -> rows.PlantedNetwork:
    """Return a network of 960 factorial images that guesses in 24 % of them, 2 % per class."""
    (planted, *_) = simulated.networks(families=("trained",))
    shares = {"shape": 0.5, "texture": 0.18, "colour": 0.05, "size": 0.03}
    verified = {f"verified_{name}": share for name, share in shares.items()}
    return planted._replace(**{"verified_neither": 0.24, **verified, **changes})


def test_a_row_of_networks_csv_becomes_evidence():
    evidence = flags_lib.of_network(network(accuracy=0.25, images=480))
    assert evidence.shortcuts == {"colour or size": pytest.approx(0.08 - 2 * 0.02)}
    assert evidence.guesses == pytest.approx(2 * 0.02 * 960)
    assert (evidence.correct, evidence.images) == (120, 480)
    assert (evidence.by_cue, evidence.conflicts) == (round(0.68 * 960), 960)
    assert evidence.has_dial and evidence.cue_chance == 2 / 16
    missing = flags_lib.of_network(network(verified_shape=None, accuracy=None))
    assert missing.by_cue is None and missing.correct == 0 and not missing.shortcuts


def test_colour_and_size_together_are_a_shortcut():
    assert not flags_lib.flags(flags_lib.of_network(network()), LIMITS)
    two = network(verified_shape=0.3, verified_colour=0.19, verified_size=0.19)
    (flag,) = flags_lib.flags(flags_lib.of_network(two), LIMITS)
    assert flag.kind == "shortcut suspected" and "34 % of decisions" in flag.text


def test_guesses_are_no_decisions_for_a_cue():
    """A network that guesses among 16 classes decides for either cue in 1/8 of the images."""
    shares = dict.fromkeys(("shape", "texture", "colour", "size"), 1 / 16)
    verified = {f"verified_{name}": share for name, share in shares.items()}
    guessing = network(verified_neither=0.75, accuracy=0.9, **verified)
    raised = flags_lib.flags(flags_lib.of_network(guessing), LIMITS)
    assert [flag.kind for flag in raised] == ["cues at chance", "few decisions"]
    assert raised[1].text.startswith("0 decisions for either cue")


def test_only_a_planned_dial_that_could_not_be_verified_is_a_reason():
    for dial, planned_dial, expected in (
        (0.3, 0.4, []),
        (None, 0.4, ["not verified"]),
        (None, None, []),
    ):
        changed = network(dial=dial, planned_dial=planned_dial)
        raised = flags_lib.flags(flags_lib.of_network(changed), LIMITS)
        assert [flag.kind for flag in raised] == expected


@pytest.mark.parametrize(
    "wrong", [{"chance_p": 0.0}, {"least_decisions": 0}, {"most_shortcut": 1.0}]
)
def test_limits_are_checked(wrong):
    with pytest.raises(ValueError, match="flags: "):
        Limits(**wrong)
    with pytest.raises(ValueError, match="flags: count must be in"):
        flags_lib.exceeds_chance(5, 4, chance=0.5, largest_p=0.01)
