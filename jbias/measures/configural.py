"""Measures of configural shape: how much decisions depend on the order of an image's tiles.

`make`: for pairs of pictures that have the same tiles, in two orders that show two classes.
After the configural shape score of Doshi, Fel, Konkle and Alvarez, NeurIPS 2025,
https://arxiv.org/abs/2507.00493: the share of pairs with both images classified correctly, for nine
animals that a diffusion model painted. Deviation: other stimuli (data.embedded.anagrams), so the
metric has another name, and must not be compared with the published scores.

`order_numbers`: for any images, unchanged and with all sixteen tiles moved (`stimuli.tile_order`).
A measure of this project.
"""

from collections.abc import Iterator

import numpy as np

from jbias import errors
from jbias.measures import accuracy, decisions

GRID = 4
from jbias.measures import counting


def make() -> counting.Counting:
    """Return a probe that shows unchanged images and measures accuracy on pairs of images.

    The set must have a column "pair", the index of each image's pair. Metrics: see `numbers`.
    """
    return counting.Counting(numbers)


@decisions.per_condition
def numbers(decided: decisions.Decisions) -> Iterator[decisions.Number]:
    """Return configural_substitute, accuracy and foil_rate of the pairs with both images shown.

    The first argument is a mapping from condition to decisions (`decisions.per_condition`);
    all numbers are in one list.

    configural_substitute: the share of pairs with both images classified correctly; in [2 accuracy
      - 1, accuracy]. It is 0 for decisions that do not depend on the tiles' order, and 1 / K^2 by
      chance for K classes.
    accuracy: the share of images decided as their own label.
    foil_rate: the share of images decided as the label of the pair's other image.
    Each metric is followed by _lower and _upper, the ends of its 95 % interval. The interval is
    Wilson's for pairs; for images it is a bootstrap over pairs, because the two images of a pair
    are not independent. ValueError without a column "pair", for more than two images of a pair,
    and if no pair is complete.
    """
    pair = decided.column("configural", "pair", "show the set anagrams")
    _, pair_number, sizes = np.unique(pair, return_inverse=True, return_counts=True)
    largest = int(sizes.max(initial=0))
    errors.check(largest <= 2, "configural", "have two images", largest, name="a pair")
    order = np.argsort(pair_number, kind="stable")
    rows = order[sizes[pair_number[order]] == 2].reshape(-1, 2)
    if not len(rows):
        must = "both images of a pair must be shown"
        raise ValueError(f"configural: {must}, got none; show the whole set (images=0)")
    answer, label = decided.prediction[rows], decided.columns["label"][rows]
    is_right = answer == label
    is_foil = (answer == label[:, ::-1]) & ~is_right
    both_right = decisions.mean("configural_substitute", is_right.all(1))
    yield both_right
    yield from decisions.wilson_ends(both_right)
    for metric, marks in (("accuracy", is_right), ("foil_rate", is_foil)):
        yield decisions.mean(metric, marks.ravel())
        yield from accuracy.mean_ends(metric, marks.sum(1), 2)


@decisions.per_rule
def order_numbers(by_condition: decisions.ByName) -> decisions.Numbers:
    """Return order_dependence and the accuracy by condition.

    by_condition: decisions under "" and "swapped".
    order_dependence: the share of images that are classified correctly only if no tile is swapped;
    at most the accuracy, and 0 for decisions that do not depend on the order of tiles. It is
    followed by order_dependence_lower and _upper, the ends of Wilson's 95 % interval.
    """
    right = {name: decided.right for name, decided in by_condition.items()}
    dependence = decisions.mean("order_dependence", right[""] & ~right["swapped"])
    accuracies = [
        decisions.mean("accuracy", marks, name) for name, marks in right.items()
    ]
    return [dependence, *decisions.wilson_ends(dependence), *accuracies]
