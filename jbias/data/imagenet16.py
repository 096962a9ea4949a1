"""Images of ImageNet that belong to Geirhos' 16 classes, labelled by these.

Layout as of imagenet. An image is there if its class is a member of one of the 16 (Geirhos
et al., ICLR 2019; 207 of the 1,000 are), so that what is made for 16 classes, such as the
critical band of Subramanian et al. (NeurIPS 2023), can be asked of clean images.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from jbias.data import imagenet, labels, sources, spec

CITE = (
    "Geirhos, Rubisch, Michaelis, Bethge, Wichmann and Brendel: ImageNet-trained CNNs are"
    " biased towards texture. ICLR 2019, https://openreview.net/forum?id=Bygh9j09KX;"
    " images from ImageNet, https://doi.org/10.1007/s11263-015-0816-y"
)


def make(
    split: str,
    *,
    root: str,
    size: int = 224,
    resize: int | None = None,
    crop: bool = True,
    subset: bool = False,
    classes: str = "",
    ignore: Sequence[str] = (),
    each: int = 0,
) -> sources.EncodedSource:
    """Lists the members' images of "train", "val" or a part of one.

    each: at most so many images of one of the 16, evenly spaced over its members'; 0 is
      all, of which more than half are dogs. The other options are those of `imagenet`.
    ValueError where no image is of a member.
    """
    if type(each) is not int or each < 0:
        raise ValueError(
            f"data.imagenet16 {split}: each must be 0 (all) or more, got {each!r}"
        )
    found = imagenet.make(
        split,
        root=root,
        size=size,
        resize=resize,
        crop=crop,
        subset=subset,
        classes=classes,
        ignore=ignore,
    )
    table = labels.geirhos16()
    number = {wnid: i for i, wnids in enumerate(table.values()) for wnid in wnids}
    of = np.array([number.get(wnid, -1) for wnid in found.classes], np.int32)
    label = of[found.columns["label"]]
    kept = _kept(label, each)
    if not len(kept):
        raise ValueError(
            f"data.imagenet16 {split}: some images must be of Geirhos' 16 classes, none of"
            f" {len(found):,} in {root!r} is"
        )
    columns = {name: column[kept] for name, column in found.columns.items()}
    return dataclasses.replace(
        found,
        store=found.store.take(kept),
        classes=tuple(table),
        space="entry16",
        columns={**columns, "label": label[kept]},
        arrays={name: array[kept] for name, array in found.arrays.items()},
        name=f"imagenet16/{split}",
        note=f"the members' {len(kept):,} of {len(found):,} images",
        cite=CITE,
        fingerprint=f"{found.fingerprint} of 16 classes, {each or 'all'} of each",
    )


def _kept(label: Int[np.ndarray, "n"], each: int) -> Int[np.ndarray, "m"]:
    """Places of the images of a class, at most so many of each, in their order."""
    places = [np.flatnonzero(label == number) for number in range(16)]
    if each:
        places = [
            place[np.unique(np.linspace(0, len(place) - 1, each).round().astype(int))]
            if len(place) > each
            else place
            for place in places
        ]
    return np.sort(np.concatenate(places))


SPEC = spec.Spec(
    make,
    splits=tuple(imagenet.COUNTS),
    cite=CITE,
    licence=imagenet.LICENCE,
    about=(
        "16 classes, of ImageNet's the members, val 10,350: <root>/{train,val}/<wnid>/*.JPEG"
    ),
    size="155 GB packed",
    where="https://image-net.org/download-images after registration",
)
