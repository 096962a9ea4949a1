"""What an audit found of one model, as its page shows it."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from jbias.evals import attribute_audit


class Examples(NamedTuple):
    """Pairs of images that flip, of the first network."""

    pairs: Sequence[attribute_audit.Pair]
    agrees: UInt8[np.ndarray, "p h w 3"]
    disagrees: UInt8[np.ndarray, "p h w 3"]


@dataclasses.dataclass(frozen=True, eq=False)
class Audited:
    """One model, of one network or several alike, on one set of images."""

    model: str
    networks: tuple[str, ...]
    # Networks beyond whose drops the drops are; mostly none.
    reference: tuple[str, ...]
    dataset: str
    classes: tuple[str, ...]  # Of the set.
    answers: tuple[str, ...]  # What networks decide among.
    index: Int[np.ndarray, "n"]  # The images' numbers in the set.
    label: Int[np.ndarray, "n"]
    columns: Mapping[str, Int[np.ndarray, "n"]]  # The candidates.
    values: Mapping[str, tuple[str, ...]]
    prediction: Int[np.ndarray, "s n"]  # In `answers`.
    correct: Bool[np.ndarray, "s n"]
    likelihood: Float[np.ndarray, "s n"]
    confidence: Float[np.ndarray, "s n"]
    candidates: Sequence[attribute_audit.Candidate]
    examples: Mapping[str, Examples]  # By candidate.
    notes: Sequence[str]  # What was left out, and why.
    tau: float
    alpha: float
    draws: int
    seed: int

    @property
    def bugs(self) -> list[attribute_audit.Candidate]:
        return [one for one in self.candidates if one.verdict == "bug"]

    @property
    def kinds(self) -> list[str]:
        """The kinds of shift that were asked for; none where nothing could be tested."""
        return next(([*one.result.kinds] for one in self.candidates if one.kind), [])

    @property
    def shown(self) -> list[attribute_audit.Candidate]:
        """Those that figures are drawn of: what hurts, else the first."""
        tested = [one for one in self.candidates if one.kind]
        hurt = [one for one in tested if one.verdict in ("bug", "some")]
        return (hurt or tested[:1])[:4]
