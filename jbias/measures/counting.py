"""Counting: the type of measures that need a network's decisions on unchanged images only."""

import types
from collections.abc import Callable, Mapping
from typing import NamedTuple

from jbias.measures import decisions


class Counting(NamedTuple):
    """A measure of the decisions on the unchanged images of a set.

    numbers: decisions by rule -> numbers; the key of the first rule is "".
    graded: whether the measure needs probabilities, not only decided classes.
    include_unknown: whether images of classes that the network lacks are shown, too, with label
      -1, so that no decision is correct; otherwise such images are left out.
    ranked: by the name of a column of ranks, the name of the column of classes that are ranked
      among the network's logits; only for networks with logits or probabilities.
    digest: hash of everything that the measure read apart from its options, such as human
      answers; "" if it read nothing.
    """

    numbers: Callable[[decisions.ByName], decisions.Numbers]
    graded: bool = False
    include_unknown: bool = False
    ranked: Mapping[str, str] = types.MappingProxyType({})
    digest: str = ""
