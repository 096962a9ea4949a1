"""Data sets that --data names, as in --data=vlcs:DIR; imports no large package.

docs/data.md says what each folder has.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

from jbias import errors

# Stimuli, whose images no measure changes; other sets are photographs.
STIMULI = ("frequency_cue_conflict", "refined_bias", "barebones")
PHOTOGRAPHS = (
    "pacs",
    "office_home",
    "vlcs",
    "terra_incognita",
    "domain_net",
    "waterbirds",
    "objectnet",
)
NAMES = (*PHOTOGRAPHS, *STIMULI)
# Splits to measure, where these are not all splits of the set.
SPLITS: Mapping[str, tuple[str, ...]] = {
    "waterbirds": ("test",),
    "refined_bias": ("both",),
}
# Sets that the suite of biases measures.
_OF_SUITE = ("cifar10", "cifar100", "tiny_imagenet")
_SHAPES = "shapes"


class NamedSet(NamedTuple):
    """A data set by its name in docs/data.md, and its folder."""

    name: str
    root: str


def parse(text: str) -> NamedSet | None:
    """Return the set of NAME:DIR; None for a text of another form, and for an existing folder."""
    name, colon, root = text.partition(":")
    if not colon or name not in NAMES or os.path.isdir(text):
        return None
    return NamedSet(name, os.path.expanduser(root))


def check(text: str) -> None:
    """Raise ValueError unless --data is a folder, "shapes", or NAME:DIR with a folder DIR."""
    path = os.path.expanduser(text)
    if text == _SHAPES or os.path.isdir(path):
        return
    named = parse(text)
    if named:
        if not os.path.isdir(named.root):
            raise ValueError(
                f"--data: {named.name} must have a folder, got {named.root!r}; check the path"
            )
        return
    name = text.partition(":")[0]
    if name in NAMES:
        remedy = f"give the folder of {name}, --data={name}:DIR"
    elif name in _OF_SUITE:
        remedy = (
            "measure it by jbias evaluate --checkpoint=MODEL "
            f"--suite=jbias:suites/biases:data={name},root=DIR"
        )
    else:
        close = errors.nearest(name, NAMES, cutoff=0.7)
        remedy = f"check the path, or give NAME:DIR with a set of {', '.join(NAMES)}"
        if close:
            remedy = f"did you mean {close}:DIR? Sets: {', '.join(NAMES)}"
    raise ValueError(f"--data: must be a folder, got {path!r}; {remedy}")
