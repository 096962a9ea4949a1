"""The Probe class: stimuli made from a set's images on the device, and their metrics.

A probe shows a network each image of a set under several conditions. The images are
decoded once, the stimuli are made on the device, and the network is compiled once for
all conditions. Metrics are functions of the decisions under all conditions.
"""

import dataclasses
import types
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxtyping import Float, Int, UInt8

from jbias import errors
from jbias.measures import decisions

Array = Any  # jaxtyping's Array would import jax, which metrics do not need.
PyTree = Any
Say = Callable[[str], None]  # Called with lines for the user.
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
    seen: PyTree = None  # Result of the probe's `look`, for `move`.


@dataclasses.dataclass(frozen=True)
class Partners:
    """Partner images of a set, which a probe combines with the images that it shows.

    name, fingerprint: the set's name and fingerprint. read: returns the images as bytes, on
    the suite's devices.
    """

    name: str
    fingerprint: str
    read: Callable[[], UInt8[Array, "n h w 3"]] = dataclasses.field(compare=False)


class Probe(NamedTuple):
    """Stimuli of a set under several conditions, and a function from decisions to numbers.

    conditions: by name, as in records, the arrays that `show` takes. All have the same tree,
      shapes and types, so that `show` is compiled once. "" is the name for unchanged images, or
      for the only condition of a probe.
    show: (rows, params) -> stimuli in [0, 1], of the images' shape. A pure function; its
      random draws are keyed by the image's index and the condition, never by the batch. It
      must not call rows.logits, so that it is compiled once for all networks.
    numbers: decisions by condition -> numbers. Numbers with condition "" belong to the whole
      probe, such as a bias.
    move: (rows, params, stimuli) -> stimuli: one step of an attack, applied repeatedly to
      the result of `show`. On a CPU each step is one call of a compiled program, because
      gradients of convolutions are slow inside loops there; elsewhere all steps are a loop
      inside one program.
    look: (rows) -> the value of `rows.seen` in `move`, such as a saliency map of the unchanged
      images. Called once per batch for all conditions.
    steps: by condition, the number of times that `move` is applied; default 0.
    static: condition -> a hashable value that `show` needs at compile time, such as the name
      of a corruption; `show` is then called as show(rows, params, static(condition)), and
      compiled once for each value.
    onto: by condition, another condition whose stimuli `show` gets instead of the images.
      The stimuli of that condition must be bytes / 255.
    slow: conditions whose `show` takes longer than running a network. Their stimuli are cached
      for the networks that follow, as far as memory allows.
    include_unknown: whether images of classes that the network lacks are shown, too, with label
      -1, so that no decision is correct; otherwise such images are left out.
    inside: whether the probe reads activations of the network instead of decisions: images are
      shown unchanged, and `numbers` is called as numbers(net, variables, images, columns).
    graded: whether the probe needs probabilities, not only decided classes.
    ranked: by the name of a column of ranks, the name of the column of classes that are ranked
      among the network's logits; only for networks with logits or probabilities.
    digest: hash of everything that the probe read apart from its options, such as human answers; ""
      if it read nothing.
    """

    conditions: Mapping[str, PyTree]
    show: Callable[..., Images]
    numbers: Callable[[decisions.ByName], decisions.Numbers]
    move: Callable[[Rows, PyTree, Array], Images] | None = None
    steps: Mapping[str, int] = types.MappingProxyType({})
    static: Callable[[str], Hashable] | None = None
    digest: str = ""
    look: Callable[[Rows], PyTree] | None = None
    include_unknown: bool = False
    inside: bool = False
    graded: bool = False
    ranked: Mapping[str, str] = types.MappingProxyType({})
    onto: Mapping[str, str] = types.MappingProxyType({})
    slow: Collection[str] = ()


class NotFiniteError(ValueError):
    """Error for outputs, gradients or weights of a network that are NaN or infinite."""


def check_class_names(where: str, classes: Sequence[str]) -> None:
    """Raise ValueError unless `classes` is a sequence of strings; where: start of the message."""
    is_valid = not isinstance(classes, str) and all(
        isinstance(name, str) for name in classes
    )
    errors.check(is_valid, where, "be a sequence of names", classes, name="classes")


def identity(rows: Rows, params: Any) -> Images:
    """Return the unchanged images: the function `show` of a probe that changes no image."""
    return rows.image
