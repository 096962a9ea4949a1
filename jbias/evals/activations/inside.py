"""Inside: the type of measures of activations inside a network, which make no decisions."""

from collections.abc import Callable
from typing import NamedTuple

from jbias.measures import decisions


class Inside(NamedTuple):
    """A measure of a network's activations; images are shown unchanged.

    numbers: called as numbers(net, variables, images, columns) -> numbers, whose conditions are
      sites. `images` may be a loader.LazyImages, which has a shape and reads files when it is
      indexed; `columns` are the set's columns, with "index", the number of each image in its set.
    """

    numbers: Callable[..., decisions.Numbers]
