"""The measure of a set's own measures, such as accuracy, on its unchanged images."""

from collections.abc import Sequence

from jbias import evals
from jbias.measures import counting, cue_conflict, cue_ranks, decisions


def make(*, measures: Sequence[str] = ("accuracy",)) -> counting.Counting:
    """Return the numbers of the given measures of decisions on unchanged images.

    measures: names of evals.MEASURES, or the user's own (evals.find_measure). ValueError for
    an unknown name.
    """
    functions = [
        cue_conflict.measure_answers
        if name == "shape_bias"
        else evals.find_measure(name, "plain.measures")
        for name in measures
    ]

    @decisions.per_condition
    def numbers(decided: decisions.Decisions) -> decisions.Numbers:
        """Return the numbers of all measures, and "unanswered" (`decisions.unanswered`)."""
        measured = [number for measure in functions for number in measure(decided)]
        return measured + decisions.unanswered(decided.is_unanswered)

    return counting.Counting(numbers, ranked=cue_ranks.ranked_columns(measures))
