"""Reasons why a network's measures of shape cannot be trusted, such as accuracy at chance.

A network with a flag is listed with its reasons, and is not ranked. Flags are computed from counts,
so that the study of planted networks and the page of measured networks use the same rules.
"""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from scipy import stats

from jbias import errors
from jbias.calibrating import rows

AT_CHANCE = "at chance"
CUES_AT_CHANCE = "cues at chance"
FEW_DECISIONS = "few decisions"
SHORTCUT = "shortcut suspected"
NO_ACCURACY = "no accuracy"
NOT_VERIFIED = "not verified"
KINDS = (
    NO_ACCURACY,
    AT_CHANCE,
    CUES_AT_CHANCE,
    FEW_DECISIONS,
    SHORTCUT,
    NOT_VERIFIED,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits beyond which a network is flagged.

    chance_p: largest p-value at which a count is above chance; see `exceeds_chance`.
    least_decisions: smallest number of decisions for either cue.
    most_shortcut: largest share of decisions by colour or size on factorial stimuli.
    """

    chance_p: float = 0.001
    least_decisions: int = 100
    most_shortcut: float = 0.2

    def __post_init__(self):
        errors.check_share("flags: chance_p", self.chance_p)
        errors.check_at_least("flags: least_decisions", self.least_decisions)
        errors.check_share("flags: most_shortcut", self.most_shortcut)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence:
    """Counts of one network; None: not measured, and then nothing is concluded from it.

    correct, images: number of correct decisions, and of images of the test set.
    chance: accuracy of guessing on the test set, such as 1/16.
    by_cue, conflicts: number of decisions for either cue, and of images with conflicting cues.
    cue_chance: share of conflicts on which a guess matches a cue, such as 2/16.
    guesses: number of the decisions for either cue that are guesses, 0 if it is not known.
    shortcuts: share of decisions for the class of another cue, by the cue's name, such as
      {"colour": 0.4}, about images of all combinations of cues. Accuracy that is lost without a
      cue is no such share.
    has_dial: for planted networks, False if a dial was planned and could not be verified.
    """

    correct: int | None = None
    images: int | None = None
    chance: float | None = None
    by_cue: int | None = None
    conflicts: int | None = None
    cue_chance: float | None = None
    guesses: float = 0.0
    shortcuts: Mapping[str, float] = dataclasses.field(default_factory=dict)
    has_dial: bool | None = None


class Flag(NamedTuple):
    """A reason against a network's measures: one of KINDS, and the numbers behind it in words."""

    kind: str
    text: str


def exceeds_chance(count: int, n: int, *, chance: float, largest_p: float) -> bool:
    """Return True if a count is above chance by the exact one-sided binomial test.

    p = P(X >= count), X ~ Binomial(n, chance); above chance if p <= largest_p. With n = 0, or with
    chance of 1, p is 1. ValueError unless count is in 0 ... n.
    """
    errors.check_range("flags", 0, n, count=count)
    return bool(stats.binom.sf(count - 1, n, chance) <= largest_p)


def flags(evidence: Evidence, limits: Limits) -> list[Flag]:
    """Return the flags of a network, in the order of KINDS; [] for a network to be ranked."""
    raised = [
        _accuracy_flag(evidence, limits),
        _cue_flag(evidence, limits),
        _decisions_flag(evidence, limits),
        *_shortcut_flags(evidence, limits),
        _dial_flag(evidence),
    ]
    return [flag for flag in raised if flag is not None]


def of_network(network: rows.PlantedNetwork) -> Evidence:
    """Return the evidence in a row of the study's networks.csv.

    Decisions for either cue, and by a shortcut, are those about the images of the set "factorial".
    Colour and size are one shortcut, whose share of decisions is less guesses. A network with a
    planned dial should have a dial.
    """
    correct = (
        0 if network.accuracy is None else round(network.accuracy * network.images)
    )
    evidence = Evidence(
        correct=correct,
        images=network.images,
        chance=network.chance,
        has_dial=network.dial is not None or network.planned_dial is None,
    )
    n = network.verified_images
    if not n or network.verified_shape is None:
        return evidence
    either = network.verified_shape + network.verified_texture
    by_shortcut = network.verified_colour + network.verified_size - 2 * network.guesses
    return dataclasses.replace(
        evidence,
        by_cue=round(either * n),
        conflicts=n,
        cue_chance=min(1.0, 2 / network.classes),
        guesses=2 * network.guesses * n,
        shortcuts={"colour or size": max(0.0, by_shortcut)},
    )


def _accuracy_flag(evidence: Evidence, limits: Limits) -> Flag | None:
    """Return the flag of a network whose accuracy is at chance, or None.

    None, too, if accuracy was not measured.
    """
    if evidence.correct is None or evidence.chance is None:
        return None
    if not evidence.images:
        return Flag(NO_ACCURACY, "no image was decided")
    count, n = evidence.correct, evidence.images
    if exceeds_chance(count, n, chance=evidence.chance, largest_p=limits.chance_p):
        return None
    return Flag(
        AT_CHANCE,
        f"{count:,} of {n:,} images correct is no more than guessing gives "
        f"({100 * evidence.chance:.3g} %)",
    )


def _cue_flag(evidence: Evidence, limits: Limits) -> Flag | None:
    """Return the flag of a network that decides for either cue no more often than a guess.

    None, too, without conflicts, and if every guess matches a cue.
    """
    if not evidence.conflicts or evidence.by_cue is None:
        return None
    chance = evidence.cue_chance
    if chance is None or chance >= 1:
        return None
    count, n = evidence.by_cue, evidence.conflicts
    if exceeds_chance(count, n, chance=chance, largest_p=limits.chance_p):
        return None
    return Flag(
        CUES_AT_CHANCE,
        f"{count:,} of {n:,} conflicts decided for either cue is no more than guessing gives "
        f"({100 * chance:.3g} %)",
    )


def _decisions_flag(evidence: Evidence, limits: Limits) -> Flag | None:
    """Return the flag of a network with too few decisions for either cue, or None."""
    if evidence.by_cue is None:
        return None
    decided = max(0, round(evidence.by_cue - evidence.guesses))
    if decided >= limits.least_decisions:
        return None
    return Flag(
        FEW_DECISIONS,
        f"{decided:,} decisions for either cue; at least {limits.least_decisions:,} are needed",
    )


def _shortcut_flags(evidence: Evidence, limits: Limits) -> list[Flag]:
    """Return a flag for each cue besides shape and texture that decides too often."""
    return [
        Flag(SHORTCUT, f"{100 * share:.3g} % of decisions depend on {cue}")
        for cue, share in evidence.shortcuts.items()
        if share > limits.most_shortcut
    ]


def _dial_flag(evidence: Evidence) -> Flag | None:
    """Return the flag of a planted network whose dial could not be verified, or None."""
    if evidence.has_dial is None or evidence.has_dial:
        return None
    return Flag(
        NOT_VERIFIED,
        "on all combinations of cues, no more decisions for shape or texture than guessing gives",
    )
