"""Published sets that a card may name: how many images they have, and the names of the images.

The names of the 1,280 cue conflicts are those of jbias.data.tables. Edges and silhouettes have ten
images of each of the 16 classes, airplane1 to airplane10 and so on; source: stimuli/edges and
stimuli/filled-silhouettes of rgeirhos/texture-vs-shape at bbdfbf7.
"""

import functools
import re
from collections.abc import Sequence

from jbias import data
from jbias.answers import stimulus_names
from jbias.data import tables as data_tables
from jbias.data.sets import geirhos

CUE_CONFLICT = "geirhos/cue-conflict"
_PICTURES = ("geirhos/edge", "geirhos/silhouette")
_PER_CLASS = 10  # Edges and silhouettes.
_MODEL_VS_HUMAN = "model_vs_human"
# Of files of ImageNet's validation set.
_IMAGENET = re.compile(r"ilsvrc2012_val_\d{8}")


def count(name: str) -> int | None:
    """Return the number of images of a published set or split; None for other names.

    name: such as "geirhos/edge". Parts of a split, such as "imagenet/val[:10%]", have the number of
    the whole split.
    """
    data_set, _, split = name.partition("/")
    split, _, condition = split.partition("[")[0].partition("/")
    if data_set == _MODEL_VS_HUMAN:
        total = geirhos.MODEL_VS_HUMAN_COUNTS.get(split)
        return total // len(geirhos.CONDITIONS[split]) if total and condition else total
    if data_set not in data.DATASETS:
        return None
    images = data.DATASETS[data_set].images
    return (images if isinstance(images, int) else images.get(split, 0)) or None


@functools.cache
def image_names(name: str) -> frozenset[str] | None:
    """Return the names of a published set's images, without endings; None without a list."""
    if name == CUE_CONFLICT:
        return frozenset(data_tables.cue_conflicts())
    if name in _PICTURES:
        numbers = range(1, _PER_CLASS + 1)
        return frozenset(f"{label}{i}" for label in geirhos.CLASSES for i in numbers)
    return None


def image_id(file: str) -> str:
    """Return the published name of a file, "cat7-elephant1" for "cat/cat7-elephant1.png"."""
    return stimulus_names.stimulus(file).casefold()


def is_of(name: str, images: Sequence[str]) -> bool:
    """Return True if images may be those of a published set, all or a part of them.

    name: of the set. images: different names, as `image_id` returns them. Sets with a list have
    no other names; of ImageNet's validation set, the form of names is checked; of other sets, the
    number of images alone.
    """
    total, known = count(name), image_names(name)
    if total is None or not len(images) <= total:
        return False
    if known is not None:
        return known.issuperset(images)
    if name.startswith("imagenet/val"):
        return all(_IMAGENET.fullmatch(image) for image in images)
    return True


def cues(image: str) -> tuple[str, str]:
    """Return the classes of shape and texture that a published name says.

    The texture is "" for an edge or a silhouette.
    """
    shape, _, texture = image.partition("-")
    return shape.rstrip("0123456789"), texture.rstrip("0123456789")
