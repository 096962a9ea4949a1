"""What one can ask of a report."""

import dataclasses

# Which evaluation of a seed counts: rules of results.py.
SELECTIONS = ("best_validation", "last_n", "oracle")


@dataclasses.dataclass(frozen=True)
class Options:
    """What the user asked for."""

    selection: str = "best_validation"
    last: int | None = None
    alpha: float = 0.05
    datasets: tuple[str, ...] = ()  # () is all of them.
    metric: str = "accuracy"
    larger_is_better: bool = True
    reference: str | None = None
