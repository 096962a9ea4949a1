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

import numpy as np
from jaxtyping import Int

from jbias import numerals
from jbias.data import base, sources, tables
from jbias.data import labels as spaces
from jbias.data.base import Column, Columns, Names
from jbias.data.forms import listing
from jbias.data.sets import folder
from jbias.data.sets.folder import Request
from jbias.untrusted import opening

VALIDATION_IMAGES = tables.data_sets()["imagenet"]["images"]["val"]
_STEM = "ILSVRC2012_val_"
_ROW = re.compile(rf"(?:({_STEM}\d{{8}})\S*?[\s,])?\s*(n\d{{8}}|\d{{1,3}})\b")
_SPOKEN = {0: "tench", 999: "toilet tissue"}  # How Hugging Face's names begin.


def read(
    request: Request,
    *,
    subset: bool = False,
    classes: str = "",
    labels: str = "",
    ignore: Names = (),
) -> base.Source:
    """Lists "train", "val", or a part of one such as "train[:98%]".

    Only some of the classes are taken if `subset` says so. `classes` is a file of
    WordNet ids, a line each, for shards whose labels are numbers of their own, `labels`
    one for validation images that lie in one folder. `ignore` has patterns of files that
    are no images and may be passed over.
    """
    if labels and classes:
        must = f"{request.where}: labels must come without classes"
        got = f"got {labels!r} and {classes!r}; labels are for images in one folder"
        raise ValueError(f"{must}, {got}, classes for shards: remove one")
    if not labels:
        _refuse_flat(request)
        return read_wordnet(request, subset=subset, classes=classes, ignore=ignore)
    found = _flat(request, labels, ignore)
    found = order_by_wordnet(request.where, found, found.labels, subset=subset)
    return folder.build(request, found, space="wnid")


def read_wordnet(
    request: Request, *, subset: bool = False, classes: str = "", ignore: Names = ()
) -> base.Source:
    """Lists a split, or a part of one, whose classes are WordNet ids, in their order.

    Raises ValueError for a class that is none of the 1000, and for one that is missing
    unless `subset` says that some of them are meant.
    """
    where, found = request.where, folder.find_split(request, ignore)
    ids, numbered = _positions(where, found, classes)
    ids = ids[found.labels]
    found = order_by_wordnet(where, found, ids, subset=subset, numbered=numbered)
    return folder.build(request, found, space="wnid")


def _refuse_flat(request: Request) -> None:
    """Refuses validation images as the challenge packed them, without labels."""
    path = next(filter(os.path.isdir, request.folders.values()), "")
    if not path or listing.has_folders(path):
        return
    first = min((name for name in os.listdir(path) if name[0] != "."), default="")
    if first.startswith(_STEM):
        must = f"{request.where}: images must lie in class folders"
        remedy = "move them, or give labels=<file>, a WordNet id a line for images 1 to"
        got = f"got {first!r} directly in {path!r}; {remedy} {VALIDATION_IMAGES:,}"
        raise ValueError(f"{must}, {got}")


def _flat(request: Request, path: str, ignore: Names) -> listing.Listing:
    """Lists images that lie in one folder by the labels of a file.

    They are named by the split, so that how the folder is spelt makes no difference.
    """
    parent, name = os.path.split(os.path.abspath(folder.find_folder(request)))
    found = listing.scan(request.where, parent, (name,), ignore)
    table, stems = read_labels(path), _stems(found.names)
    must = f"{request.where}: every image must have a label in {path!r}"
    base.refuse_missing(stems, table, must, "have none", "keep the published names")
    names = tuple(request.part.base + one.removeprefix(name) for one in found.names)
    labels = tables.positions([table[stem] for stem in stems])
    return found._replace(names=names, labels=labels, classes=tables.wnids())


def _stems(names: Names) -> list[str]:
    return [posixpath.basename(name).partition(".")[0] for name in names]


def read_labels(path: str) -> dict[str, str]:
    """Reads the WordNet id of each validation image, by its name without the ending."""
    lines = listing.text_lines(path, f"{path}: labels must be a text file: ")
    if lines and lines[0].startswith("ImageId,"):  # Of Kaggle's LOC_val_solution.csv.
        lines = lines[1:]
    wnids, known, table, named = tables.wnids(), {*tables.wnids()}, {}, True
    for i, line in enumerate(lines, start=1):
        row = _ROW.match(line)
        stem, label = row.groups() if row else (None, None)
        named = named and stem is not None
        if stem and numerals.is_count(label):
            label = wnids[int(label)]
        if label not in known:
            must = f"{path}: line {i} must have a WordNet id of the 1,000, or an"
            other = "the numbers of the challenge's own ground truth are in another"
            got = f"got {line[:60]!r}; {other} order and are not taken"
            raise ValueError(f"{must} image's name and a number up to 999, {got}")
        stem = stem or f"{_STEM}{i:08}"
        if table.setdefault(stem, label) != label:
            must = f"{path}: line {i} must agree with the other of {stem}"
            raise ValueError(f"{must}, got {label} after {table[stem]}; remove one")
    if not named and len(table) != VALIDATION_IMAGES:
        must = f"{path}: without names there must be {VALIDATION_IMAGES:,} lines"
        raise ValueError(f"{must}, got {len(lines):,}")
    return table


def order_by_wordnet(
    where: str, found: listing.Listing, ids: Column, *, subset: bool, numbered=False
) -> listing.Listing:
    """Labels images by which of the 1000 each is, and puts them in that order.

    Raises ValueError for a class that is missing, unless `subset` says that some are
    meant and names, rather than numbers, tell which.
    """
    known, present = tables.wnids(), np.unique(ids)
    lost = np.setdiff1d(np.arange(len(known)), present)
    if len(lost) and (numbered or not subset):
        remedy = "where some are meant, set subset=True (`prepare check` has --options)"
        if subset:
            remedy = "numbers tell classes only where all are there: name them by"
            remedy += " folders, or for shards by classes=<file>, a WordNet id a line"
        must = f"{where}: all {len(known):,} classes must be there"
        first = f"first {known[lost[0]]!r} (number {lost[0]})"
        raise ValueError(f"{must}, {len(lost):,} are missing, {first}; {remedy}")
    labels = np.searchsorted(present, ids).astype(np.int32)
    return found.by_class(labels, [known[i] for i in present])


def _positions(where, found, path) -> tuple[Int[np.ndarray, "k"], bool]:
    """Which of the 1000 each label is, and whether numbers alone say so."""
    known = tables.wnids()
    every = np.arange(len(known))
    if not path and found.classes is None:
        if found.labels.max() >= len(known):
            must = f"{where}: labels must be 0 to {len(known) - 1}, as WordNet sorts"
            remedy = "name the classes by classes=<file>, a WordNet id a line"
            raise ValueError(f"{must}, got {found.labels.max()}; {remedy}")
        return every, True
    names = folder.class_names(where, found, path)
    if all(map(numerals.is_count, names)):
        ids = np.array([int(name) for name in names])
        if len(np.unique(ids)) < len(ids) or ids.max() >= len(known):
            must = f"{where}: folders with numbers must be 0 to 999, each once"
            got = f"got {len(ids):,} from {ids.min()} to {ids.max()}"
            raise ValueError(f"{must}, {got}; number them from 0, as WordNet sorts")
        return ids, True
    spoken = len(names) == len(known)
    if spoken and all(names[i].startswith(text) for i, text in _SPOKEN.items()):
        return every, False
    wrong = [name for name in names if name not in known]
    hint = "name classes by WordNet ids, or by the numbers 0 to 999 in their order"
    if wrong and re.fullmatch(r"n\d{8}", wrong[0]):
        hint = base.did_you_mean(wrong[0], known)
    must = f"{where}: classes must be among the {len(known):,} of ILSVRC-2012"
    base.refuse_some(wrong, must, f"of {len(names):,} are not", hint)
    return tables.positions(names), False


def read_with_real(request: Request, *, real: str, ignore: Names = ()) -> base.Source:
    """Lists the images by their original classes, with those of ReaL in columns."""
    found = folder.read(request, space="wnid", ignore=ignore)
    accepted = real_columns(request.where, real, found.files, found.classes)
    none = int((accepted["accepted_0"] < 0).sum())
    note = f"{none:,} images without a right class count for accuracy alone"
    about = dict(measures=("accuracy", "real_accuracy"), note=note, cite=request.cite)
    return dataclasses.replace(found, columns={**found.columns, **accepted}, **about)


def read_real(path: str) -> dict[str, tuple[str, ...]]:
    """Reads the WordNet ids of each image, by its name without the ending.

    "ILSVRC2012_val_00000001" is the first. An image without a right class has ().
    """
    must, kinds = "must be the real.json of ReaL, got", (ValueError, RecursionError)
    with (
        base.explain_errors(
            f"{path}: {must} ", OSError, *kinds, remedy="; fetch it again"
        ),
        opening.open_text(os.path.expanduser(path)) as file,
    ):
        held = json.load(file)
    if not isinstance(held, list) or len(held) != VALIDATION_IMAGES:
        size = f"{len(held):,}" if isinstance(held, list) else "no list"
        must = f"{path}: must be a list of {VALIDATION_IMAGES:,} lists, got {size}"
        remedy = "take the real.json of google-research/reassessed-imagenet"
        raise ValueError(f"{must}; {remedy}")
    wnids, table = tables.wnids(), {}
    for i, one in enumerate(held):
        each = one if isinstance(one, list) else [None]
        if not all(type(label) is int and 0 <= label < len(wnids) for label in each):
            must = f"{path}: entry {i} must be a list of whole numbers below"
            raise ValueError(f"{must} {len(wnids)}, got {one!r}; fetch the file again")
        table[f"{_STEM}{i + 1:08}"] = tuple(wnids[label] for label in one)
    return table


def real_columns(where: str, path: str, names: Names, classes: Names) -> Columns:
    """Columns accepted_0, accepted_1, ...: the right classes of each file.

    Class ids of `classes`, -1 where an image has fewer. Refuses a file that ReaL does
    not know, and a right class that `classes` lack.
    """
    table, stems = read_real(path), _stems(names)
    strange = [name for name, stem in zip(names, stems) if stem not in table]
    must = f"{where}: files must be named {_STEM}00000001 to {VALIDATION_IMAGES:08}"
    remedy = "take the validation images under their published names"
    base.refuse_some(strange, must, "are unknown to ReaL", remedy)
    ids = {name: label for label, name in enumerate(classes)}
    right = sorted({wnid for stem in stems for wnid in table[stem]})
    must = f"{where}: every right class of ReaL must be among the class folders"
    base.refuse_missing(right, ids, must, "are not", "take all 1,000 folders")
    most = max(1, *(len(table[stem]) for stem in stems))
    accepted = np.full((most, len(names)), -1, np.int32)
    for i, stem in enumerate(stems):
        accepted[: len(table[stem]), i] = [ids[wnid] for wnid in table[stem]]
    return {f"accepted_{j}": row for j, row in enumerate(accepted)}


def read_sixteen(
    request: Request,
    *,
    subset: bool = False,
    classes: str = "",
    ignore: Names = (),
    each: int = 0,
) -> base.Source:
    """Lists the members' images of "train", "val" or a part of one.

    each: at most so many images of one of the 16, evenly spaced over its members'; 0 is
      all, of which more than half are dogs. The other options are those of `read`.
    ValueError where no image is of a member.
    """
    where, table = request.where, spaces.geirhos16()
    base.check_int(f"{where}: each", each, 0)
    found = read(request, subset=subset, classes=classes, ignore=ignore)
    number = {wnid: i for i, wnids in enumerate(table.values()) for wnid in wnids}
    of = np.array([number.get(wnid, -1) for wnid in found.classes], np.int32)
    label = of[found.columns["label"]]
    kept = _evenly_spaced(label, each)
    if not len(kept):
        must = f"{where}: some images must be of Geirhos' 16 classes"
        raise ValueError(f"{must}, none of {len(found):,} in {request.root!r} is")
    taken = sources.take(found, kept, digest="")
    about = dict(classes=tuple(table), space="entry16")
    about["note"] = f"the members' {len(kept):,} of {len(found):,} images"
    about["fingerprint"] = f"{found.fingerprint} of 16 classes, {each or 'all'} of each"
    columns = {**taken.columns, "label": label[kept]}
    return dataclasses.replace(taken, columns=columns, **about)


def _evenly_spaced(label: Column, each: int) -> Int[np.ndarray, "m"]:
    """Places of the images of a class, at most so many of each, in their order."""
    chosen = []
    for number in range(16):
        places = np.flatnonzero(label == number)
        if 0 < each < len(places):
            spread = np.linspace(0, len(places) - 1, each).round().astype(int)
            places = places[np.unique(spread)]
        chosen.append(places)
    return np.sort(np.concatenate(chosen))


def read_subset(request: Request, *, ignore: Names = ()) -> base.Source:
    """Lists a set of 200 classes, and holds choices to them; options as of `folder`."""
    found = folder.read(request, space="wnid", ignore=ignore)
    listing.match_classes(request.where, found.classes, tables.subset(request.name))
    return dataclasses.replace(found, restrict=True, cite=request.cite)


def read_tiny(request: Request, *, ignore: Names = ()) -> base.Source:
    """Lists "train", "val", or a part of one such as "train[:90%]"."""
    where, path = request.where, folder.find_folder(request)
    classes = tuple(sorted(_lines(where, os.path.join(request.root, "wnids.txt"))))
    if request.part.base == "train":
        listing.match_classes(where, listing.class_folders(where, path), classes)
        found = listing.scan(where, path, classes, ignore, "{}/images")
    else:
        found = _tiny_val(where, path, classes, ignore)
    return folder.build(request, found, space="wnid")


def _tiny_val(where, path, classes, ignore) -> listing.Listing:
    """Lists val/images, with labels from val_annotations.txt."""
    found = listing.scan(where, path, ("val",), ignore, "images")
    table, rows = os.path.join(path, "val_annotations.txt"), {}
    for number, line in enumerate(_lines(where, table), start=1):
        name, wnid, *_ = *line.split("\t"), ""
        if wnid not in classes:
            must = "a line must read <file> tab <wnid of wnids.txt> ..."
            raise ValueError(f"{table}:{number}: {must}, got {line!r}")
        labels = (
            ("a line above", rows.get(f"images/{name}", wnid)),
            ("this line", wnid),
        )
        rows[f"images/{name}"] = listing.agreed_label(f"{table}:{number}", name, labels)
    for names, others, what in (
        (found.names, rows, "have a line in val_annotations.txt"),
        (rows, {*found.names}, "exist in val/images"),
    ):
        must = f"{where}: every validation image must {what}"
        base.refuse_missing(names, others, must, "do not", "unpack the archive again")
    ids = {name: label for label, name in enumerate(classes)}
    labels = np.array([ids[rows[name]] for name in found.names], np.int32)
    return found.by_class(labels, classes)


def _lines(where: str, path: str) -> list[str]:
    if not os.path.exists(path):
        must = f"{where}: the published layout must be whole, {path!r} is missing"
        remedy = "unpack the archive again, or use data set 'folder' with space='wnid'"
        raise base.Missing(f"{must}; {remedy}")
    return listing.text_lines(path, f"{where}: {path!r} must be a text file: ")
