"""ImageNet-1k: the 1000 classes of ILSVRC-2012, train and val, and ReaL's labels of val.

Layout: <root>/{train,val}/<wnid>/*.JPEG, numbered folders, or shards. The validation images
also as the archive of the challenge unpacks, all in one folder, with labels=<file>: a WordNet
id a line for images 1 to 50,000, or lines with an image's name and its WordNet id or its
number in the order of WordNet.

`read_wordnet` reads any set of these classes, however its classes are named on disk:
by WordNet ids; by the numbers 0 to 999, as folders or as labels of shards; or by the English
names that Hugging Face's copies have. All come to one order, that of tables.wnids(): folder
"10" is class 10 and not the third, as it sorts.

The set "imagenet_real" has all the right classes of each validation image, or none at all.
Source: Beyer, Hénaff, Kolesnikov, Zhai and van den Oord: Are we done with ImageNet?
2020, https://arxiv.org/abs/2006.07159; their file is real.json, a list of 50,000 lists
of positions in the WordNet order, one for each image by the number in its name.

Sets that share classes with ImageNet: new photos, sketches, corruptions, styles, subsets.

Those that share its 1000 classes and lie in <root>/<split>/<class>/*, in class folders or
shards; the folder names of the authors' archives are known too.
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
import json
import os
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Int

from jbias.data import base, corruptions, sources, tables
from jbias.data import labels as spaces
from jbias.data.forms import listing
from jbias.data.sets import folder
from jbias.untrusted import opening

VALIDATION_IMAGES = tables.data_sets()["imagenet"]["images"]["val"]
_STEM = "ILSVRC2012_val_"
_ROW = re.compile(rf"(?:({_STEM}\d{{8}})\S*?[\s,])?\s*(n\d{{8}}|\d{{1,3}})\b")


def read(
    request: folder.Request,
    *,
    subset: bool = False,
    classes: str = "",
    labels: str = "",
    ignore: Sequence[str] = (),
) -> sources.EncodedSource:
    """Lists "train", "val", or a part of one such as "train[:98%]".

    Only some of the classes are taken if `subset` says so. `classes` is a file of
    WordNet ids, a line each, for shards whose labels are numbers of their own, `labels`
    one for validation images that lie in one folder. `ignore` has patterns of files that
    are no images and may be passed over.
    """
    where = request.where
    if labels and classes:
        raise ValueError(
            f"{where}: labels must come without classes, got {labels!r} and {classes!r};"
            " remove one: labels are for images in one folder, classes for shards"
        )
    if labels:
        found = _flat(request, labels, ignore)
        found = order_by_wordnet(where, found, found.files.labels, subset=subset)
        return folder.build(request, found, space="wnid")
    names = request.part.base, *request.spellings
    paths = [os.path.join(request.root, name) for name in names]
    _has_folders(where, next(filter(os.path.isdir, paths), paths[0]))
    return read_wordnet(request, subset=subset, classes=classes, ignore=ignore)


def read_wordnet(
    request: folder.Request,
    *,
    subset: bool = False,
    classes: str = "",
    ignore: Sequence[str] = (),
) -> sources.EncodedSource:
    """Lists a split, or a part of one, whose classes are WordNet ids, in their order.

    Raises ValueError for a class that is none of the 1000, and for one that is missing
    unless `subset` says that some of them are meant.
    """
    where, found = request.where, folder.find_split(request, ignore)
    ids, numbered = _positions(where, found, classes)
    ids = ids[found.files.labels]
    found = order_by_wordnet(where, found, ids, subset=subset, numbered=numbered)
    return folder.build(request, found, space="wnid")


def _has_folders(where: str, path: str) -> None:
    """Refuses validation images as the challenge packed them, without labels."""
    if not os.path.isdir(path) or listing.has_folders(path):
        return
    first = min((name for name in os.listdir(path) if name[0] != "."), default="")
    if first.startswith(_STEM):
        raise ValueError(
            f"{where}: images must lie in class folders, got {first!r} directly in"
            f" {path!r}; move them, or give labels=<file>, a WordNet id a line for"
            f" images 1 to {VALIDATION_IMAGES:,}"
        )


def _flat(request: folder.Request, path: str, ignore: Sequence[str]) -> folder.Listing:
    """Lists images that lie in one folder by the labels of a file.

    They are named by the split, so that how the folder is spelt makes no difference.
    """
    where, place = request.where, folder.find_folder(request)
    parent, name = os.path.split(os.path.abspath(place))
    files = listing.scan(where, parent, {name: name}, ignore)
    store = sources.FileStore(parent, files.names)
    table = read_labels(path)
    stems = [os.path.basename(file).partition(".")[0] for file in files.names]
    strange = [stem for stem in stems if stem not in table]
    if strange:
        raise ValueError(
            f"{where}: every image must have a label in {path!r}, {len(strange):,} have"
            f" none, first {strange[0]!r}; keep the published names"
        )
    files = files._replace(
        names=tuple(request.part.base + one.removeprefix(name) for one in files.names),
        labels=tables.positions([table[stem] for stem in stems]),
    )
    return folder.Listing("flat", store, files, tables.wnids())


def read_labels(path: str) -> dict[str, str]:
    """Reads the WordNet id of each validation image, by its name without the ending."""
    with (
        base.explained(
            f"{path}: labels must be a text file: ", OSError, UnicodeDecodeError
        ),
        open(os.path.expanduser(path), encoding="utf-8") as file,
    ):
        lines = [line for line in file.read().splitlines() if line.strip()]
    if lines and lines[0].startswith("ImageId,"):  # Of Kaggle's LOC_val_solution.csv.
        lines = lines[1:]
    rows = [_ROW.match(line) for line in lines]
    wnids, known, table = tables.wnids(), frozenset(tables.wnids()), {}
    for i, (row, line) in enumerate(zip(rows, lines), start=1):
        stem, label = row.groups() if row else (None, None)
        if row and stem and label.isdecimal():
            label = wnids[int(label)]
        if label not in known:
            raise ValueError(
                f"{path}: line {i} must have a WordNet id of the 1,000, or an image's"
                f" name and a number up to 999, got {line[:60]!r}; the numbers of the"
                " challenge's own ground truth are in another order and are not taken"
            )
        table[stem or f"{_STEM}{i:08}"] = label
    if not all(row[1] for row in rows) and len(table) != VALIDATION_IMAGES:
        raise ValueError(
            f"{path}: without names there must be {VALIDATION_IMAGES:,} lines, got"
            f" {len(lines):,}"
        )
    return table


_WNID = re.compile(r"n\d{8}")
_SPOKEN = {0: "tench", 999: "toilet tissue"}  # How Hugging Face's names begin.


def order_by_wordnet(
    where: str,
    found: folder.Listing,
    ids: Int[np.ndarray, "n"],
    *,
    subset: bool,
    numbered: bool = False,
) -> folder.Listing:
    """Labels images by which of the 1000 each is, and puts them in that order.

    Raises ValueError for a class that is missing, unless `subset` says that some are
    meant and names, rather than numbers, tell which.
    """
    present = np.unique(ids)
    if len(present) < len(tables.wnids()):
        _incomplete(where, present, numbered, subset)
    labels = np.searchsorted(present, ids).astype(np.int32)
    order = np.argsort(labels, kind="stable")
    return found._replace(
        files=found.files._replace(labels=labels),
        classes=tuple(tables.wnids()[i] for i in present),
    ).take(order)


def _positions(where, found, path) -> tuple[Int[np.ndarray, "k"], bool]:
    """Which of the 1000 each label is, and whether numbers alone say so."""
    known = tables.wnids()
    if not path and found.classes is None:
        if found.files.labels.max() >= len(known):
            raise ValueError(
                f"{where}: labels must be 0 to {len(known) - 1}, in the order of"
                f" WordNet, got {found.files.labels.max()}; name the classes by"
                " classes=<file>, a WordNet id a line"
            )
        return np.arange(len(known)), True
    names = folder.class_names(where, found, path)
    if all(name.isdecimal() for name in names):
        return _numbers(where, names), True
    if len(names) == len(known) and all(
        names[i].startswith(text) for i, text in _SPOKEN.items()
    ):
        return np.arange(len(known)), False
    wrong = [name for name in names if name not in known]
    if wrong:
        hint = "name classes by WordNet ids, or by the numbers 0 to 999 in their order"
        if _WNID.fullmatch(wrong[0]):
            hint = base.did_you_mean(wrong[0], known)
        raise ValueError(
            f"{where}: classes must be among the {len(known):,} of ILSVRC-2012,"
            f" {len(wrong):,} of {len(names):,} are not, first {wrong[0]!r}; {hint}"
        )
    return tables.positions(names), False


def _numbers(where: str, names: Sequence[str]) -> Int[np.ndarray, "k"]:
    ids = np.array([int(name) for name in names])
    if len(np.unique(ids)) < len(ids) or ids.max() >= len(tables.wnids()):
        raise ValueError(
            f"{where}: folders with numbers must be 0 to 999, each once, got"
            f" {len(ids):,} from {ids.min()} to {ids.max()}; number them in the order"
            " of WordNet, from 0"
        )
    return ids


def _incomplete(where: str, present, numbered: bool, subset: bool) -> None:
    """Refuses some of the classes, unless they are named and asked for."""
    known = tables.wnids()
    lost = sorted({*range(len(known))} - {*present.tolist()})
    if subset and not numbered:
        return
    remedy = (
        "if only some are meant, set subset=True (an argument of configs, an --options of"
        " `prepare check`)"
    )
    if subset:
        remedy = (
            "numbers tell classes only where all are there, so that some must be named:"
            " by folders, or for shards by classes=<file>, a WordNet id a line"
        )
    raise ValueError(
        f"{where}: all {len(known):,} classes must be there, {len(lost):,} are missing,"
        f" first {known[lost[0]]!r} (number {lost[0]}); {remedy}"
    )


def imagenet_real(
    request: folder.Request, *, real: str, ignore: Sequence[str] = ()
) -> sources.EncodedSource:
    """Lists the images by their original classes, with those of ReaL in columns."""
    found = folder.read(request, space="wnid", ignore=ignore)
    accepted = real_columns(request.where, real, found.files, found.classes)
    none = int((accepted["accepted_0"] < 0).sum())
    return dataclasses.replace(
        found,
        columns={**found.columns, **accepted},
        measures=("accuracy", "real_accuracy"),
        note=f"{none:,} images without a right class count for accuracy alone",
        cite=request.cite,
    )


def read_real(path: str) -> dict[str, tuple[str, ...]]:
    """Reads the WordNet ids of each image, by its name without the ending.

    "ILSVRC2012_val_00000001" is the first. An image without a right class has ().
    """
    what, kinds = "must be the real.json of ReaL, got", (ValueError, RecursionError)
    with (
        base.explained(f"{path}: {what} ", OSError, *kinds, remedy="; fetch it again"),
        open(os.path.expanduser(path), encoding="utf-8") as file,
    ):
        held = json.load(file)
    if not isinstance(held, list) or len(held) != VALIDATION_IMAGES:
        size = f"{len(held):,}" if isinstance(held, list) else "no list"
        raise ValueError(
            f"{path}: must be a list of {VALIDATION_IMAGES:,} lists, got {size}; take the"
            " real.json of google-research/reassessed-imagenet"
        )
    wnids = tables.wnids()
    for i, one in enumerate(held):
        if not isinstance(one, list) or not all(
            type(label) is int and 0 <= label < len(wnids) for label in one
        ):
            raise ValueError(
                f"{path}: entry {i} must be a list of whole numbers below"
                f" {len(wnids)}, got {one!r}; fetch the file again"
            )
    return {
        f"ILSVRC2012_val_{i:08}": tuple(wnids[label] for label in one)
        for i, one in enumerate(held, start=1)
    }


def real_columns(
    where: str, path: str, names: Sequence[str], classes: Sequence[str]
) -> dict[str, Int[np.ndarray, "n"]]:
    """Columns accepted_0, accepted_1, ...: the right classes of each file.

    Class ids of `classes`, -1 where an image has fewer. Refuses a file that ReaL does
    not know, and a right class that `classes` lack.
    """
    table = read_real(path)
    stems = [posixpath.splitext(posixpath.basename(name))[0] for name in names]
    strange = [name for name, stem in zip(names, stems) if stem not in table]
    if strange:
        raise ValueError(
            f"{where}: ReaL knows files named ILSVRC2012_val_00000001 to"
            f" {VALIDATION_IMAGES:08}, got {len(strange)} others, first {strange[0]!r}; take the"
            " validation images under their published names"
        )
    ids = {name: label for label, name in enumerate(classes)}
    lacking = {wnid for stem in stems for wnid in table[stem]} - ids.keys()
    if lacking:
        raise ValueError(
            f"{where}: every right class of ReaL must be among the class folders,"
            f" {len(lacking)} are not, first {min(lacking)!r}; take all 1,000 folders"
        )
    most = max(1, *(len(table[stem]) for stem in stems))
    accepted = np.full((most, len(names)), -1, np.int32)
    for i, stem in enumerate(stems):
        accepted[: len(table[stem]), i] = [ids[wnid] for wnid in table[stem]]
    return {f"accepted_{j}": row for j, row in enumerate(accepted)}


def imagenet16(
    request: folder.Request,
    *,
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
    where = request.where
    if type(each) is not int or each < 0:
        raise ValueError(f"{where}: each must be 0 (all) or more, got {each!r}")
    found = read(request, subset=subset, classes=classes, ignore=ignore)
    table = spaces.geirhos16()
    number = {wnid: i for i, wnids in enumerate(table.values()) for wnid in wnids}
    of = np.array([number.get(wnid, -1) for wnid in found.classes], np.int32)
    label = of[found.columns["label"]]
    kept = _evenly_spaced(label, each)
    if not len(kept):
        raise ValueError(
            f"{where}: some images must be of Geirhos' 16 classes, none of"
            f" {len(found):,} in {request.root!r} is"
        )
    taken = sources.take(found, kept, digest="")
    return dataclasses.replace(
        taken,
        classes=tuple(table),
        space="entry16",
        columns={**taken.columns, "label": label[kept]},
        note=f"the members' {len(kept):,} of {len(found):,} images",
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


def _two_hundred(name: str) -> Callable[..., sources.EncodedSource]:
    """Makes the function that lists a set of 200 classes, and holds choices to them."""

    def read(
        request: folder.Request, *, ignore: Sequence[str] = ()
    ) -> sources.EncodedSource:
        """Lists a split, or a part of one; options as those of `folder`."""
        found = folder.read(request, space="wnid", ignore=ignore)
        listing.match_classes(request.where, found.classes, tables.subset(name))
        return dataclasses.replace(found, restrict=True, cite=request.cite)

    return read


def tiny_imagenet(
    request: folder.Request, *, ignore: Sequence[str] = ()
) -> sources.EncodedSource:
    """Lists "train", "val", or a part of one such as "train[:90%]"."""
    where, path = request.where, folder.find_folder(request)
    classes = tuple(sorted(_tiny_lines(where, os.path.join(request.root, "wnids.txt"))))
    listed = _tiny_train if request.part.base == "train" else _tiny_val
    files = listed(where, path, classes, ignore)
    return folder.build(request, folder.in_folder(path, files, classes), space="wnid")


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


def _corrupted(name: str, names: Mapping[str, corruptions.Corruption]) -> base.Spec:
    """A split such as "fog/3" has a folder of its own, or one of the archive's."""
    places = {
        f"{kind}/{level}": (f"{'extra' if one.extra else one.family}/{kind}/{level}",)
        for kind, one in names.items()
        for level in corruptions.SEVERITIES
    }
    return folder.spec(name, read_wordnet, places, native=True, folders=places)


SPEC = folder.spec("imagenet", read)
VARIANT_SPECS: Mapping[str, base.Spec] = {
    "imagenet16": folder.spec("imagenet16", imagenet16, ("train", "val")),
    "imagenet_real": folder.spec("imagenet_real", imagenet_real),
    "imagenet_v2": folder.spec("imagenet_v2", read_wordnet),
    "imagenet_sketch": folder.spec("imagenet_sketch", read_wordnet),
    "imagenet_c": _corrupted("imagenet_c", corruptions.CORRUPTIONS),
    "imagenet_c_bar": _corrupted("imagenet_c_bar", corruptions.BAR),
    "stylized_imagenet": folder.spec("stylized_imagenet", read_wordnet, native=True),
    "deepaugment": folder.spec("deepaugment", read_wordnet),
    "imagenet_a": folder.spec("imagenet_a", _two_hundred("imagenet_a")),
    "imagenet_r": folder.spec("imagenet_r", _two_hundred("imagenet_r")),
    "tiny_imagenet": folder.spec("tiny_imagenet", tiny_imagenet, size=64, native=True),
}
