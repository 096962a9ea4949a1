"""Published sets that a card may name: how many images they have, and the names of the images.

The names of the 1,280 cue conflicts are those of jbias.data.tables. Edges and silhouettes have ten
images of each of the 16 classes, airplane1 to airplane10 and so on; source: stimuli/edges and
stimuli/filled-silhouettes of rgeirhos/texture-vs-shape at bbdfbf7.
"""

import functools
import re
import unicodedata
from collections.abc import Sequence

from jbias import data
from jbias.answers import stimulus_names
from jbias.data import tables as data_tables
from jbias.data.sets import geirhos

CUE_CONFLICT = "geirhos/cue-conflict"
_PICTURES = ("geirhos/edge", "geirhos/silhouette")
_PER_CLASS = 10  # Edges and silhouettes.
_MODEL_VS_HUMAN = "model_vs_human"
# A published name, and a part of the images, such as "[:10%]".
_NAME = re.compile(r"([^\[\]]+?)(\[[^\[\]]*\])?")
# Of files of ImageNet's validation set.
_IMAGENET = re.compile(r"ilsvrc2012_val_\d{8}")


def count(name: str) -> int | None:
    """Return the number of images of a published set or split; None for other names.

    name: such as "geirhos/edge". Parts of a split, such as "imagenet/val[:10%]", have the number of
    the whole split.
    """
    data_set, _, split = whole(name).partition("/")
    if data_set == _MODEL_VS_HUMAN:
        split, _, condition = split.partition("/")
        total = geirhos.MODEL_VS_HUMAN_COUNTS.get(split)
        return total // len(geirhos.CONDITIONS[split]) if total and condition else total
    if data_set not in data.DATASETS:
        return None
    images = data.DATASETS[data_set].images
    return (images if isinstance(images, int) else images.get(split, 0)) or None


def whole(name: str) -> str:
    """Return the name of a whole split, "imagenet/val" for "imagenet/val[:10%]".

    Names in another form are returned unchanged.
    """
    match = _NAME.fullmatch(name)
    return match[1] if match else name


def plain(name: str) -> str:
    """Return the letters and digits of a name in lower case, in which look-alikes agree."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(letter for letter in folded if letter.isalnum())


def is_imitated(name: str) -> bool:
    """Return True for a name that looks like a published one with a list of images, but is none.

    Such as " geirhos/cue-conflict", "Geirhos/cue_conflict" or "geirhos/cue-conflict/x".
    """
    listed = (CUE_CONFLICT, *_PICTURES)
    if whole(name) in listed:
        return False
    return plain(name).startswith(tuple(map(plain, listed)))


def image_names(name: str) -> frozenset[str] | None:
    """Return the names of a published set's images, without endings; None without a list.

    name: a part, such as "geirhos/edge[:50%]", has the names of the whole split.
    """
    return _listed_names(whole(name))


@functools.cache
def _listed_names(name: str) -> frozenset[str] | None:
    """Return the names of the images of a whole split; None without a list."""
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
