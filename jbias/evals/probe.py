"""What a probe is: stimuli made of a set's images on the device, and what they tell.

A probe shows a network each image of a set under several conditions. The images are
decoded once, the stimuli are made on the device, and the network is compiled once for
all of them. What it decides is kept by condition; numbers are functions of that.
"""

import dataclasses
import types
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxtyping import Float, Int, UInt8

from jbias.evals import decisions

Array = Any  # jaxtyping's import jax, and what counts decisions needs none.
PyTree = Any
Say = Callable[[str], None]  # Hears lines for a person.
Images = Float[Array, "b h w 3"]  # In [0, 1].


class Rows(NamedTuple):
    """A batch of a set's images, and what a stimulus may depend on besides."""

    image: Images
    index: Int[Array, "b"]  # The image's number in its set: what draws are keyed by.
    label: Int[Array, "b"]  # The right class, as the network counts; -1 if it has none.
    logits: Callable[[Images], Float[Array, "b k"]]  # Differentiable.
    # (images, site) -> what passes a site of models.taps.sites, and there the gradient of
    # each image's largest logit.
    at: Callable[[Images, str], tuple[Array, Array]] | None = None
    seen: PyTree = None  # What the probe's `look` found, for `move`.


@dataclasses.dataclass(frozen=True)
class Partners:
    """Images of a set that a probe puts into those of another, or of the same."""

    name: str
    fingerprint: str
    # On the devices where they are shown.
    read: Callable[[], UInt8[Array, "n h w 3"]] = dataclasses.field(compare=False)


class Probe(NamedTuple):
    """How a set is shown, and what is counted.

    conditions: by name, as records have it, the arrays that `show` takes. All have the
      same tree, shapes and types, so that `show` is compiled once. "" is the set as it
      is, or what stands for the whole probe.
    show: (rows, params) -> stimuli in [0, 1], of the images' shape. A pure function; its
      draws are keyed by the image's index and the condition, never by its batch. It
      must not ask for logits: so it is compiled once for all networks.
    numbers: the decisions of all conditions -> numbers. Those whose condition is ""
      are the probe's own, such as a bias.
    move: (rows, params, stimuli) -> stimuli, what is done again and again to what was
      shown: a step of an attack. Apart from `show`, because on a CPU gradients of
      convolutions are slow inside loops and many steps written out compile for minutes:
      there each step is a call of one program, elsewhere all are a loop inside one.
    look: (rows) -> what `move` finds in rows.seen: the network is asked once a batch,
      whatever the number of conditions, such as for a map of the images as they are.
    steps: how often, by the condition's name; one without an entry is not moved.
    static: what `show` must know of a condition before it is compiled, such as which
      corruption it is; then it is called as show(rows, params, static(condition)), and
      compiled for each answer.
    onto: by condition, another whose stimuli it is shown instead of the images: `show` of it
      does the rest. Those stimuli must be bytes / 255.
    slow: conditions whose `show` takes longer than a network's answer. What it made is kept
      for the networks that follow, as far as there is room.
    include_unknown: whether images of classes that the network lacks are shown too; their label is
      -1, so that no answer is right. Without it they are left out.
    inside: whether it looks into the network and decides nothing: the images are shown as they
      are, and it is called as numbers(net, variables, images, columns).
    graded: whether it needs probabilities, not just what is decided.
    ranked: by the names of columns of ranks, the columns of classes whose place among the
      network's logits these are; of networks that give logits or probabilities.
    digest: tells whether what it read beside its options, such as people's answers, is
      still the same; "" where it read nothing.
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
    """Raised where what a network computes is NaN or infinite, and so decides nothing."""


def each_once(values: Sequence) -> bool:
    """Whether an option names one or several things, each of them once."""
    several = not isinstance(values, str) and len(values) > 0
    return several and len(set(values)) == len(values)


def check(holds: bool, where: str, must: str, got: Any) -> None:
    """Refuses an option where it does not hold that it is what it must be."""
    if not holds:
        raise ValueError(f"{where}: {must}, got {got!r}")


def check_some(where: str, what: str, given: Sequence, known: Sequence) -> None:
    """Refuses what is not one or several of those that are known, each of them once."""
    some = each_once(given) and {*given} <= {*known}
    must = f"{what} must be one or more of {', '.join(map(str, known))}, each once"
    check(some, where, must, given)


def check_class_names(where: str, classes: Sequence[str]) -> None:
    """Refuses what does not name classes."""
    named = not isinstance(classes, str) and all(isinstance(x, str) for x in classes)
    check(named, where, "classes must be a sequence of names", classes)


def identity(rows: Rows, params: Any) -> Images:
    """Shows the images themselves."""
    return rows.image
