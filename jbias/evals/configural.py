"""Shape as the order of parts: what changes for a network if the same tiles lie elsewhere.

`make`: pairs of pictures of the same tiles, both of which show a class. After the configural
shape score of Doshi, Fel, Konkle and Alvarez, NeurIPS 2025,
https://arxiv.org/abs/2507.00493: the share of pairs with both right, of nine animals that
a diffusion model painted. Deviation: the stimuli are others (data.embedded.anagrams), so
the number has another name, and is not to be compared with theirs.

`make_tile_order`: any images, beside themselves with each of sixteen tiles in the place of
another. Ours.
"""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from jbias.evals import accuracy, decisions, grid_shuffle, occlusion, probe

GRID = 4


def make() -> probe.Probe:
    """Shows the images as they are; the set tells by a column "pair" which belong together."""
    return probe.Probe({"": ()}, probe.identity, numbers)


@decisions.per_condition
def numbers(decided: decisions.Decisions) -> Iterator[decisions.Number]:
    """What is decided of pairs of which both images were shown.

    configural_substitute: pairs with both right; in [2 accuracy - 1, accuracy], 0 of what
      does not depend on the tiles' order, and by chance 1 / K^2 for K classes.
    accuracy, foil_rate: images decided as labelled, and as the other of the pair is.
    With _lower and _upper, intervals of 95 %: Wilson's of pairs, and of images a bootstrap over
    pairs, whose two images are not independent.
    ValueError without a column "pair", for more than two images of a pair, and where no
    pair has both.
    """
    pair = decided.column("configural", "pair", "show the set anagrams")
    _, which, sizes = np.unique(pair, return_inverse=True, return_counts=True)
    most = int(sizes.max(initial=0))
    probe.check(most <= 2, "configural", "a pair must have two images", most)
    order = np.argsort(which, kind="stable")
    rows = order[sizes[which[order]] == 2].reshape(-1, 2)
    if not len(rows):
        must = "both images of a pair must be shown"
        raise ValueError(f"configural: {must}, got none; show the whole set (images=0)")
    answer, label = decided.prediction[rows], decided.columns["label"][rows]
    right = answer == label
    foil = (answer == label[:, ::-1]) & ~right
    both = decisions.mean("configural_substitute", right.all(1))
    yield from (both, *decisions.wilson_ends(both))
    for metric, marks in (("accuracy", right), ("foil_rate", foil)):
        yield decisions.mean(metric, marks.ravel())
        yield from accuracy.mean_ends(metric, marks.sum(1), 2)


def make_tile_order(*, seed: int = 0) -> probe.Probe:
    """Conditions "", the image as it is, and "swapped": its 4 by 4 tiles in `swaps`."""
    names = {"": 0, "swapped": 1}
    conditions = {name: occlusion.salt(name) for name in names}

    def show(rows: probe.Rows, salt: Any, swap: int) -> probe.Images:
        def swapped(image, key):
            return rearrange(image, swaps(jax.random.permutation(key, GRID**2), swap))

        keys = occlusion.image_keys(seed, salt, rows.index)
        return jax.vmap(swapped)(rows.image, keys)

    return probe.Probe(conditions, show, order_numbers, static=names.get)


def rearrange(image: Array, order: Any) -> Array:
    """As grid_shuffle.arrange has it, but what 16 tiles leave of the sides stays as it is."""
    h, w = (side // GRID * GRID for side in image.shape[:2])
    arranged = grid_shuffle.arrange(image, order, g=GRID)
    return image.at[:h, :w].set(arranged[:h, :w])


def swaps(places: Any, which: int) -> Any:
    """An order of 16 tiles in which pairs of them, of places at random, are swapped.

    places: a permutation of the places, of NumPy or JAX. which: 1 ... 15; 0 is as it was.
    Place s[i] gets the tile of s[i ^ which]. So of three orders by the same places, any two
    differ everywhere, and as for random places all three are alike: nothing but what the
    image shows tells which of them is as it was.
    """
    return places[np.arange(GRID**2) ^ which][places.argsort()]


@decisions.per_rule
def order_numbers(by_condition: decisions.ByName) -> decisions.Numbers:
    """Accuracy by condition, and order_dependence, right only if no tile is swapped.

    order_dependence is at most the accuracy, and 0 of what no order of tiles changes; with
    _lower and _upper, Wilson's interval of 95 %.
    """
    right = {name: decided.right for name, decided in by_condition.items()}
    told = [decisions.mean("accuracy", one, name) for name, one in right.items()]
    lost = decisions.mean("order_dependence", right[""] & ~right["swapped"])
    return [lost, *decisions.wilson_ends(lost), *told]
