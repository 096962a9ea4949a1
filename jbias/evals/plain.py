"""A set as it is: what its source says fits it, such as accuracy and shape bias."""

from collections.abc import Mapping, Sequence

import numpy as np

from jbias import evals
from jbias.evals import decisions, probe


def make(*, measures: Sequence[str] = ("accuracy",)) -> probe.Probe:
    """Shows the images themselves; `measures` are names in jbias.evals.MEASURES."""

    def numbers(found: Mapping[str, decisions.Decisions]) -> list[decisions.Number]:
        return [
            number._replace(condition=f"{condition} {number.condition}".strip())
            for condition, decided in found.items()
            for name in measures
            for number in evals.MEASURES[name](decided)
        ]

    return probe.Probe({"": np.float32(0)}, probe.as_it_is, numbers)
