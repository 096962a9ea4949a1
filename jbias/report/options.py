"""What one can ask of a report."""

import dataclasses

# Which evaluation of a seed counts: rules of results.py.
SELECTIONS = (
    *("best_validation", "last_n", "at_epoch", "best_on", "worst_class", "oracle"),
)
DROPS = ("datasets", "algorithms", "runs")


@dataclasses.dataclass(frozen=True)
class Options:
    """What the user asked for."""

    selection: str = "best_validation"
    last: int | None = None  # Of last_n; None is 30 % of the evaluations.
    epoch: float | None = None  # Of at_epoch; None is the last that all have.
    best_on: str = ""  # The data set of best_on.
    alpha: float = 0.05
    datasets: tuple[str, ...] = ()  # () is all of them.
    algorithms: tuple[str, ...] = ()  # () is all of them.
    drop: str = ""  # What to leave out for missing cells; "" refuses them.
    trained_on: str = ""  # A file that tells who trained on which test set.
    strict: bool = False
    # The smallest difference that matters, as scores are shown; None: 1, of fractions 0.01.
    points: float | None = None
    metric: str = "accuracy"
    larger_is_better: bool = True
    reference: str | None = None
    blocks: int | None = None  # Of data sets that are alike; None: those with r >= 0.5.
