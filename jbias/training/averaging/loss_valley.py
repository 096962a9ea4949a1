"""The decision of SWAD: which stretch of training to average, from validation losses alone.

Training is cut into segments, one per evaluation; the mean of the weights after each step of a
segment is kept. `select` chooses the segments whose mean is evaluated.

Source: Cha et al., "SWAD: Domain Generalization by Seeking Flat Minima", NeurIPS 2021
(https://arxiv.org/abs/2102.08604). Code: https://github.com/khanrc/swad at 252190e,
domainbed/swad.py, class LossValley, which is followed to the letter, also where it differs from
the paper's Algorithm 1:
- the segments' means weigh the same, also the last one, which may be shorter;
- with n_tolerance > n_converge, the first segment of the stretch is left out, and a segment that
  was added when the losses converged may be added again, if fewer than n_tolerance segments
  existed then;
- without convergence, the latest segment is the average.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Options(NamedTuple):
    """The options of SWAD.

    n_converge: number of segments; losses have converged once the first of the latest n_converge
      is the smallest. n_tolerance: number of segments; the valley has ended once all of the
      latest n_tolerance losses are above a threshold. tolerance_ratio: the threshold is
      1 + tolerance_ratio times the mean of the n_converge losses at convergence.
    """

    n_converge: int = 3
    n_tolerance: int = 6
    tolerance_ratio: float = 0.3

    @property
    def depth(self) -> int:
        """The number of latest segments that a decision may use."""
        return max(self.n_converge, self.n_tolerance)


class Selection(NamedTuple):
    """The segments that are averaged, by number from 0; a segment may occur twice."""

    added: tuple[int, ...]  # In the average, and never removed.
    evaluated: tuple[int, ...]  # In the average if training ended now.
    converged: int | None = None  # The first segment of the converged losses.
    is_dead: bool = False  # The valley has ended: later losses change nothing.


def select(losses: Sequence[float], options: Options) -> Selection:
    """Return the segments to average, given the validation loss at the end of each segment.

    losses: one or more, the oldest first.
    """
    n_converge, n_tolerance, tolerance_ratio = options
    added: list[int] = []
    converged, threshold = None, 0.0
    for latest in range(len(losses)):
        smooth = range(max(0, latest - n_tolerance + 1), latest + 1)
        if converged is None:
            window = range(latest - n_converge + 1, latest + 1)
            if window.start < 0 or np.argmin([losses[i] for i in window]) != 0:
                continue
            converged = window.start
            threshold = np.mean([losses[i] for i in window]) * (1 + tolerance_ratio)
            if n_tolerance < n_converge:
                added += window[1 : 1 + n_converge - n_tolerance]
            elif n_tolerance > n_converge:
                earlier = smooth[: n_tolerance - n_converge + 1]
                added += _after_last_high(earlier, losses, threshold)
        elif smooth.start >= converged:
            if min(losses[i] for i in smooth) > threshold:
                evaluated = tuple(added) or (converged,)
                return Selection(tuple(added), evaluated, converged, is_dead=True)
            added.append(smooth.start)
    if converged is None:
        return Selection((), (len(losses) - 1,))
    evaluated_list = [*added]
    for i in smooth[1:]:
        if min(losses[i:]) > threshold:
            break
        evaluated_list.append(i)
    evaluated = tuple(evaluated_list) or (converged,)
    return Selection(tuple(added), evaluated, converged)


def _after_last_high(
    segments: Sequence[int], losses: Sequence[float], threshold: float
) -> Sequence[int]:
    """Return the segments after the last one above the threshold, without the first of these.

    Without a loss above the threshold, the segments without their first.
    """
    start = 0
    for place, segment in enumerate(segments):
        if losses[segment] > threshold:
            start = place + 1
    return segments[start + 1 :]
