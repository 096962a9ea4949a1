"""The plain probe: measures of unchanged images under each decision rule."""

import types

import numpy as np

from jbias import evals
from jbias.evals import plain


def test_conditions_of_a_measure_stay_beside_the_rule(monkeypatch):
    """A measure that counts by class keeps its conditions under several rules."""

    def halves(decided):
        n = len(decided.prediction)
        return [evals.Number("share", 0.5, None, n, c) for c in ("", "other 3")]

    measures = types.MappingProxyType({**evals.MEASURES, "halves": halves})
    monkeypatch.setattr(evals, "MEASURES", measures)
    decided = evals.Decisions(np.zeros(4, int), {"label": np.zeros(4, int)})
    plain_probe = plain.make(measures=("accuracy", "halves"))
    numbers = plain_probe.numbers({"": decided, "mean_logit": decided})
    assert [(number.metric, number.condition) for number in numbers] == [
        ("accuracy", ""),
        ("share", ""),
        ("share", "other 3"),
        ("accuracy", "mean_logit"),
        ("share", "mean_logit"),
        ("share", "mean_logit other 3"),
    ]
