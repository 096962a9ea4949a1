"""What tests of pairs give: all pairs of k algorithms, or all others against a control."""

import dataclasses

import numpy as np
from jaxtyping import Float

from jbias.stats import adjustment
from jbias.stats import scores as score_table


@dataclasses.dataclass(frozen=True, eq=False)
class PairsResult:
    """A test of all pairs of k algorithms over n data sets.

    `least` bounds what any scores could give: where `least_adjusted` is above alpha, so
    few data sets can never reject.
    """

    statistics: Float[np.ndarray, "k k"]  # Positive where the row is the better.
    pvalues: Float[np.ndarray, "k k"]  # Of each pair alone; symmetric, diagonal 1.
    adjusted: Float[np.ndarray, "k k"]  # For all pairs.
    ranks: Float[np.ndarray, "k"]  # Means over data sets; 1 is the best.
    algorithms: tuple[str, ...]
    n: int  # Data sets.
    adjustment: str
    exact: bool  # Whether p is from the exact distribution, or from an approximation.
    least: float  # No p can be smaller.
    least_adjusted: float  # No adjusted p can be smaller.

    def cliques(self, alpha: float) -> tuple[tuple[int, ...], ...]:
        """Gives the largest groups of which no pair has an adjusted p <= alpha.

        Members are indices, the best mean rank first. A group may leave out an algorithm
        whose rank lies between: these p-values need not grow with ranks apart.
        """
        checked(alpha)
        return largest_groups(self.adjusted > alpha, self.ranks)


@dataclasses.dataclass(frozen=True, eq=False)
class ControlResult:
    """A test of k - 1 algorithms against a control over n data sets; fields as above."""

    control: str
    control_rank: float
    statistics: Float[np.ndarray, "k-1"]  # Positive where better than the control.
    pvalues: Float[np.ndarray, "k-1"]
    adjusted: Float[np.ndarray, "k-1"]  # For k - 1 comparisons.
    ranks: Float[np.ndarray, "k-1"]
    algorithms: tuple[str, ...]  # Without the control.
    n: int
    adjustment: str
    exact: bool
    least: float
    least_adjusted: float


def all_pairs(
    scores: score_table.Scores,
    ranks: Float[np.ndarray, "k"],
    statistics: Float[np.ndarray, "m"],
    pvalues: Float[np.ndarray, "m"],
    *,
    adjust: str,
    exact: bool,
    least: float,
) -> PairsResult:
    """Lays out the statistics and p-values of the pairs i < j, and adjusts them."""
    n, k, _ = scores.values.shape
    adjusted = adjustment.adjust(pvalues, adjust)
    return PairsResult(
        statistics=square(statistics, k, diagonal=0.0, sign=-1),
        pvalues=square(pvalues, k),
        adjusted=square(adjusted, k),
        ranks=ranks,
        algorithms=scores.algorithms,
        n=n,
        adjustment=adjust,
        exact=exact,
        least=least,
        least_adjusted=_floor(least, len(pvalues), adjust),
    )


def with_control(
    scores: score_table.Scores,
    ranks: Float[np.ndarray, "k"],
    at: int,
    statistics: Float[np.ndarray, "k-1"],
    pvalues: Float[np.ndarray, "k-1"],
    *,
    adjust: str,
    exact: bool,
    least: float,
) -> ControlResult:
    """Adjusts the p-values of all algorithms but the one at `at`, in their order."""
    if adjustment.known(adjust) == "shaffer":
        raise ValueError("adjust: shaffer is for all pairs, not a control; take holm")
    names = scores.algorithms
    return ControlResult(
        control=names[at],
        control_rank=float(ranks[at]),
        statistics=statistics,
        pvalues=pvalues,
        adjusted=adjustment.adjust(pvalues, adjust),
        ranks=np.delete(ranks, at),
        algorithms=names[:at] + names[at + 1 :],
        n=len(scores.datasets),
        adjustment=adjust,
        exact=exact,
        least=least,
        least_adjusted=_floor(least, len(pvalues), adjust),
    )


def _floor(least: float, m: int, adjust: str) -> float:
    """Bounds an adjusted p: all methods grow with every p, so none is below this one."""
    return float(adjustment.adjust(np.full(m, least), adjust).min())


def checked(alpha: float) -> float:
    """Gives alpha back; refuses what is no chance."""
    if not 0 < alpha < 1:
        raise ValueError(f"alpha: must lie between 0 and 1, got {alpha}")
    return alpha


def place(control: str | int, scores: score_table.Scores) -> int:
    """Gives the index of a control; the algorithms of a bare matrix are "0", "1", ..."""
    name = score_table.known(str(control), scores.algorithms, "control")
    return scores.algorithms.index(name)


def square(
    upper: Float[np.ndarray, "m"], k: int, *, diagonal: float = 1.0, sign: int = 1
) -> Float[np.ndarray, "k k"]:
    """Lays values of the pairs i < j out; those of j, i are `sign` times theirs."""
    filled = np.full((k, k), diagonal)
    rows, columns = np.triu_indices(k, 1)
    filled[rows, columns], filled[columns, rows] = upper, sign * upper
    return filled


def largest_groups(
    together: np.ndarray, ranks: Float[np.ndarray, "k"]
) -> tuple[tuple[int, ...], ...]:
    """Gives the maximal cliques of a symmetric relation, of two members or more.

    Bron and Kerbosch 1973 with a pivot; members and groups in the order of ranks.
    """
    place_of = np.argsort(np.argsort(ranks, kind="stable"), kind="stable")
    near = [set(np.flatnonzero(row)) - {i} for i, row in enumerate(together)]
    found: list[list[int]] = []

    def grow(members: list[int], open_: set[int], done: set[int]) -> None:
        if not open_ and not done:
            found.append(sorted((int(i) for i in members), key=place_of.__getitem__))
            return
        pivot = max(open_ | done, key=lambda i: len(near[i] & open_))
        for i in sorted(open_ - near[pivot]):
            grow([*members, i], open_ & near[i], done & near[i])
            open_, done = open_ - {i}, done | {i}

    grow([], set(range(len(near))), set())
    groups = [tuple(group) for group in found if len(group) > 1]
    return tuple(sorted(groups, key=lambda group: [int(place_of[i]) for i in group]))
