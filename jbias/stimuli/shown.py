"""Stimuli: the type of probes that show a set's images under several conditions.

The images are decoded once, the stimuli are made on the device, and the network is compiled once
for all conditions. Numbers are functions of the decisions under all conditions.
"""

import dataclasses
import types
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8

from jbias.measures import counting, decisions

Array = Any  # jaxtyping's Array would import jax, which metrics do not need.
PyTree = Any
Images = Float[Array, "b h w 3"]  # In [0, 1].


class Rows(NamedTuple):
    """A batch of a set's images, with everything else that stimuli may depend on."""

    image: Images
    # Number of the image in its set; random draws are keyed by it.
    index: Int[Array, "b"]
    label: Int[Array, "b"]  # Right class among the network's own; -1 if it has none.
    logits: Callable[[Images], Float[Array, "b k"]]  # Differentiable.
    # (images, site) -> (activations at a site of models.taps.sites, gradient of each image's
    # largest logit with respect to these).
    at: Callable[[Images, str], tuple[Array, Array]] | None = None
    seen: PyTree = None  # Result of `NetworkSteps.look`, for `move`.


@dataclasses.dataclass(frozen=True)
class Partners:
    """Partner images of a set, which a probe combines with the images that it shows.

    name, fingerprint: the set's name and fingerprint. read: returns the images as bytes, on
    the suite's devices.
    """

    name: str
    fingerprint: str
    read: Callable[[], UInt8[Array, "n h w 3"]] = dataclasses.field(compare=False)


class NetworkSteps(NamedTuple):
    """Steps in which the network's gradients change stimuli, such as those of an attack.

    move: (rows, params, stimuli) -> stimuli: one step, applied repeatedly to the result of
      `show`. On a CPU each step is one call of a compiled program, because gradients of
      convolutions are slow inside loops there; elsewhere all steps are a loop inside one program.
    counts: by condition, the number of steps; default 0.
    look: (rows) -> the value of `rows.seen` in `move`, such as a saliency map of the unchanged
      images. Called once per batch for all conditions. None: there is no such value.
    """

    move: Callable[[Rows, PyTree, Array], Images]
    counts: Mapping[str, int]
    look: Callable[[Rows], PyTree] | None = None


class Stimuli(NamedTuple):
    """Stimuli of a set under several conditions, and a function from decisions to numbers.

    conditions: by name, as in records, the arrays that `show` takes. All have the same tree,
      shapes and types, so that `show` is compiled once. "" is the name for unchanged images, or
      for the only condition.
    show: (rows, params) -> stimuli in [0, 1], of the images' shape. A pure function; its
      random draws are keyed by the image's index and the condition, never by the batch. It
      must not call rows.logits, so that it is compiled once for all networks.
    numbers: decisions by condition -> numbers. Numbers with condition "" belong to the whole
      probe, such as a bias.
    static: condition -> a hashable value that `show` needs at compile time, such as the name
      of a corruption; `show` is then called as show(rows, params, static(condition)), and
      compiled once for each value.
    onto: by condition, another condition whose stimuli `show` gets instead of the images.
      The stimuli of that condition must be bytes / 255.
    slow: conditions whose `show` takes longer than running a network. Their stimuli are cached
      for the networks that follow, as far as memory allows.
    graded: whether `numbers` needs probabilities, not only decided classes.
    digest: hash of everything that was read apart from the options; "" if nothing was read.
    network_steps: for stimuli that depend on the network; else None.
    """

    conditions: Mapping[str, PyTree]
    show: Callable[..., Images]
    numbers: Callable[[decisions.ByName], decisions.Numbers]
    static: Callable[[str], Hashable] | None = None
    onto: Mapping[str, str] = types.MappingProxyType({})
    slow: Collection[str] = ()
    graded: bool = False
    digest: str = ""
    network_steps: NetworkSteps | None = None


def identity(rows: Rows, params: Any) -> Images:
    """Return the unchanged images: the function `show` of stimuli that are the images."""
    return rows.image


def unchanged(measure: counting.Counting) -> Stimuli:
    """Return the unchanged images as the only condition "", with the numbers of a measure."""
    return Stimuli(
        {"": np.float32(0)}, identity, measure.numbers, graded=measure.graded
    )
