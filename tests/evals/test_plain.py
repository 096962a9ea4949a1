"""A set as it is: whatever fits it is counted, under each rule."""

import types

import numpy as np

from jbias import evals
from jbias.evals import probe_registry


def test_conditions_of_a_measure_stay_beside_the_rule(monkeypatch):
    """A measure that counts by class keeps its conditions under several rules."""

    def halves(decided):
        n = len(decided.prediction)
        return [evals.Number("share", 0.5, None, n, c) for c in ("", "other 3")]

    known = types.MappingProxyType({**evals.MEASURES, "halves": halves})
    monkeypatch.setattr(evals, "MEASURES", known)
    one = evals.Decisions(np.zeros(4, int), {"label": np.zeros(4, int)})
    made = probe_registry.make_plain(measures=("accuracy", "halves"))
    told = made.numbers({"": one, "mean_logit": one})
    assert [(number.metric, number.condition) for number in told] == [
        ("accuracy", ""),
        ("share", ""),
        ("share", "other 3"),
        ("accuracy", "mean_logit"),
        ("share", "mean_logit"),
        ("share", "mean_logit other 3"),
    ]
