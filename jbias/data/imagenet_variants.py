"""Sets that share classes with ImageNet: new photos, sketches, corruptions, styles, subsets.

Those of _RELATIVES share its 1000 classes and lie in <root>/<split>/<class>/*, in class folders or
shards as imagenet.py reads them; the folder names of the authors' archives are known too.
imagenet_c and imagenet_c_bar have a split for each corruption and severity, "fog/3",
published at 224 pixels and not resized again, nor are those of stylized_imagenet. Sources:
modestyachts/ImageNetV2 at 0b0c3fe, HaohanWang/ImageNet-Sketch at 03b2038,
hendrycks/robustness at 8190fe3, facebookresearch/augmentation-corruption at ba4d5a5,
rgeirhos/Stylized-ImageNet at 3d58825, hendrycks/imagenet-r at 3131cac, DeepAugment.
Sizes of imagenet_c and imagenet_c_bar are of images that `prepare corrupt` made.

Two are ImageNet-A and ImageNet-R, with 200 of the 1000 classes each, as unpacked:
<root>/imagenet-a/<wnid>/*.jpg, <root>/imagenet-r/<wnid>/*.jpg; the split is the folder's
name. By the authors' rule a network chooses among the 200 classes; `restrict=False` in a
config's entry lets it choose among all of its own.

"imagenet16" has the images of ImageNet that belong to Geirhos' 16 classes, labelled by these:
an image is there if its class is a member of one of the 16 (Geirhos et al., ICLR 2019; 207 of
the 1,000 are), so that what is made for 16 classes, such as the critical band of Subramanian
et al. (NeurIPS 2023), can be asked of clean images.

"tiny_imagenet" has 200 classes at 64 pixels, in the published layout: <root>/wnids.txt,
<root>/train/<wnid>/images/*.JPEG, <root>/val/images/*.JPEG with
<root>/val/val_annotations.txt. The published test split has no labels.
"""

import dataclasses
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from jaxtyping import Int

from jbias.data import (
    base,
    corruptions,
    decoding,
    folder,
    imagenet,
    labels,
    listing,
    sources,
    tables,
)
from jbias.untrusted import opening


def imagenet16(
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
    kept = _evenly_spaced(label, each)
    if not len(kept):
        raise ValueError(
            f"data.imagenet16 {split}: some images must be of Geirhos' 16 classes, none of"
            f" {len(found):,} in {root!r} is"
        )
    taken = sources.take(found, kept, digest="")
    return dataclasses.replace(
        taken,
        classes=tuple(table),
        space="entry16",
        columns={**taken.columns, "label": label[kept]},
        name=f"imagenet16/{split}",
        note=f"the members' {len(kept):,} of {len(found):,} images",
        cite=tables.cite("imagenet16"),
        fingerprint=f"{found.fingerprint} of 16 classes, {each or 'all'} of each",
    )


def _evenly_spaced(label: Int[np.ndarray, "n"], each: int) -> Int[np.ndarray, "m"]:
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


def _relative(
    name: str,
    native: bool = False,
    folders: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> base.Spec:
    """The row of one set.

    `native` says that all images have one size; `folders` are splits that the tables do
    not have, and where else each may lie.
    """

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
    ) -> sources.EncodedSource:
        """Lists a split, or a part of one; options as those of `imagenet`."""
        where = f"data.{name} {split}"
        found, part = imagenet.find_wordnet_split(
            where,
            root,
            split,
            spellings=folders.get(split.partition("[")[0])
            or tables.folders(name, split),
            ignore=ignore,
            classes=classes,
            subset=subset,
        )
        return folder.build(
            where,
            part,
            found,
            space="wnid",
            transform=decoding.preprocess(size, resize, crop, native=native),
            **tables.published(name, split),
        )

    return base.spec(name, make, folders)


def _severities(
    names: Mapping[str, corruptions.Corruption],
) -> dict[str, tuple[str, ...]]:
    """Splits such as "fog/3", and the folders of the archive that they may lie in."""
    found = {}
    for name, level in itertools.product(names, corruptions.SEVERITIES):
        entry = names[name]
        archive = "extra" if entry.extra else entry.family
        found[f"{name}/{level}"] = (f"{archive}/{name}/{level}",)
    return found


_RELATIVES = {
    row[0]: _relative(*row)
    for row in (
        ("imagenet_v2",),
        ("imagenet_sketch",),
        ("imagenet_c", True, _severities(corruptions.CORRUPTIONS)),
        ("imagenet_c_bar", True, _severities(corruptions.BAR)),
        ("stylized_imagenet", True),
        ("deepaugment",),
    )
}


def _subset(name: str) -> Callable[..., sources.EncodedSource]:
    """Makes the function that lists a set of 200 classes, and holds choices to them."""

    def make(
        split: str,
        *,
        root: str,
        size: int = 224,
        resize: int | None = None,
        crop: bool = True,
        ignore: Sequence[str] = (),
    ) -> sources.EncodedSource:
        """Lists a split, or a part of one; options as those of `folder`."""
        own = dict(root=root, size=size, resize=resize, crop=crop, ignore=ignore)
        found = folder.make(split, space="wnid", **own)
        split = found.name.rpartition("/")[2]
        where = f"data.{name} {split}"
        listing.match_classes(where, found.classes, tables.subset(name))
        known = tables.published(name, split)
        count = listing.count_note(len(found), known.pop("published"))
        note = found.note if "[" in split else count or found.note
        return dataclasses.replace(found, restrict=True, note=note, **known)

    return make


imagenet_a = _subset("imagenet_a")
imagenet_r = _subset("imagenet_r")


def tiny_imagenet(
    split: str,
    *,
    root: str,
    size: int = 64,
    resize: int | None = None,
    crop: bool = True,
    ignore: Sequence[str] = (),
) -> sources.EncodedSource:
    """Lists "train", "val", or a part of one such as "train[:90%]"."""
    where = f"data.tiny_imagenet {split}"
    path, part = folder.find_folder(where, root, split)
    wnids = _tiny_lines(where, os.path.join(os.path.expanduser(root), "wnids.txt"))
    classes = tuple(sorted(wnids))
    read = _tiny_train if part.base == "train" else _tiny_val
    files = read(where, path, classes, ignore)
    return folder.build(
        where,
        part,
        folder.in_folder(path, files, classes),
        space="wnid",
        transform=decoding.preprocess(size, resize, crop, native=True),
        **tables.published("tiny_imagenet", split),
    )


def _tiny_train(where, path, classes, ignore) -> listing.Files:
    listing.match_classes(where, listing.class_folders(where, path), classes)
    return listing.scan(where, path, {c: f"{c}/images" for c in classes}, ignore)


def _tiny_val(where, path, classes, ignore) -> listing.Files:
    """Lists val/images, with labels from val_annotations.txt."""
    files = listing.scan(where, path, {"val": "images"}, ignore)
    table = os.path.join(path, "val_annotations.txt")
    numbered = enumerate(_tiny_lines(where, table), start=1)
    rows = dict(_tiny_row(table, i, row, classes) for i, row in numbered)
    for names, others, what in (
        (files.names, rows, "have a line in val_annotations.txt"),
        (rows, set(files.names), "exist in val/images"),
    ):
        lost = [name for name in names if name not in others]
        if lost:
            raise ValueError(
                f"{where}: every validation image must {what}, {len(lost)} do not,"
                f" first {lost[0]!r}; unpack the archive again"
            )
    ids = {name: label for label, name in enumerate(classes)}
    found = np.array([ids[rows[name]] for name in files.names], np.int32)
    return files._replace(labels=found).take(np.argsort(found, kind="stable"))


def _tiny_row(table: str, number: int, line: str, classes) -> tuple[str, str]:
    cells = line.split("\t")
    if len(cells) < 2 or cells[1] not in classes:
        raise ValueError(
            f"{table}:{number}: a line must read <file> tab <wnid of wnids.txt> ...,"
            f" got {line!r}"
        )
    return f"images/{cells[0]}", cells[1]


def _tiny_lines(where: str, path: str) -> list[str]:
    try:
        with opening.text(path) as file:
            return [line for line in file.read().splitlines() if line.strip()]
    except FileNotFoundError:
        raise base.Missing(
            f"{where}: the published layout must be whole, {path!r} is missing; unpack"
            " the archive again, or use data set 'folder' with space='wnid'"
        ) from None


SPECS: Mapping[str, base.Spec] = MappingProxyType(
    {
        "imagenet16": base.spec("imagenet16", imagenet16, ("train", "val")),
        "imagenet_real": imagenet.REAL_SPEC,
        **_RELATIVES,
        "imagenet_a": base.spec("imagenet_a", imagenet_a),
        "imagenet_r": base.spec("imagenet_r", imagenet_r),
        "tiny_imagenet": base.spec("tiny_imagenet", tiny_imagenet),
    }
)
