"""Readers of ImageNet-1k (ILSVRC-2012) and of data sets that share its classes or some of them.

Layout of ImageNet: <root>/{train,val}/<wnid>/*.JPEG, numbered folders, or shards. The
validation images may also be in one folder, as the challenge's archive unpacks, with
labels=<file>: a WordNet id per line for images 1 to 50,000, or lines with an image's name and
the WordNet id of its class or the index of this id in the order of WordNet.

`read_wordnet` reads any data set of these classes, with classes named on disk by WordNet ids;
by the numbers 0 to 999, as folders or as labels of shards; or by the English names of Hugging
Face's copies. The order of classes is always that of tables.wnids(): folder "10" is class 10,
although the folder is the third in sorted order.

"imagenet_real" has all correct classes of each validation image (ReaL); some images have none.
Source: Beyer, Hénaff, Kolesnikov, Zhai and van den Oord: Are we done with ImageNet?
2020, https://arxiv.org/abs/2006.07159; their file is real.json. It has 50,000 lists of class
indices in the WordNet order; list i - 1 is for the image with the number i in its name.

Data sets with all 1000 classes (new photos, sketches, corruptions, styles) are in
<root>/<split>/<class>/*, in class folders or shards; the folder names of the authors' archives
are accepted, too. imagenet_c and imagenet_c_bar have a split for each corruption and severity,
"fog/3". Images of imagenet_c, imagenet_c_bar and stylized_imagenet are published at 224 pixels
and not resized again. Sources: modestyachts/ImageNetV2 at 0b0c3fe, HaohanWang/ImageNet-Sketch
at 03b2038, hendrycks/robustness at 8190fe3, facebookresearch/augmentation-corruption at
ba4d5a5, rgeirhos/Stylized-ImageNet at 3d58825, hendrycks/imagenet-r at 3131cac, DeepAugment.
The listed sizes of imagenet_c and imagenet_c_bar are for images from `prepare corrupt`.

ImageNet-A and ImageNet-R have 200 of the 1000 classes each, as unpacked:
<root>/imagenet-a/<wnid>/*.jpg, <root>/imagenet-r/<wnid>/*.jpg; the split is the folder's
name. By the authors' rule a network chooses among the 200 classes; `restrict=False` in a
config's entry lets the network choose among all its classes.

"imagenet16" has the images of ImageNet whose class is a member of one of Geirhos' 16 classes
(Geirhos et al., ICLR 2019; 207 of the 1,000 classes are members). The labels are the 16
classes. The data set is for measures on clean images of 16 classes, such as the critical band
of Subramanian et al. (NeurIPS 2023).

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

from jbias import errors, numerals
from jbias.data import base, class_maps, sets, sources, tables
from jbias.data.base import Column, Columns, Names
from jbias.data.forms import listing
from jbias.data.sets import folder, split_files
from jbias.data.sets.split_files import SplitFiles
from jbias.untrusted import opening

VALIDATION_IMAGES = sets.DATASETS["imagenet"].images["val"]
_STEM = "ILSVRC2012_val_"
_ROW = re.compile(rf"(?:({_STEM}\d{{8}})\S*?[\s,])?\s*(n\d{{8}}|\d{{1,3}})\b")
# Starts of Hugging Face's names of the first and the last class.
_HUGGING_FACE_NAMES = {0: "tench", 999: "toilet tissue"}


def read(
    files: SplitFiles,
    *,
    subset: bool = False,
    classes: str = "",
    labels: str = "",
    ignore: Names = (),
) -> base.Source:
    """Return the source of "train", "val", or a part such as "train[:98%]".

    subset: True allows that some of the 1000 classes are missing on disk.
    classes: a file with a WordNet id per line, for shards with class indices of their own.
    labels: a file of labels for validation images in one folder, see the module's docstring.
    ignore: patterns of files to skip.
    ValueError for `labels` together with `classes`, and as `read_wordnet` does.
    """
    if labels and classes:
        must = f"{files.where}: labels must come without classes"
        got = f"got {labels!r} and {classes!r}; labels are for images in one folder"
        raise ValueError(f"{must}, {got}, classes for shards: remove one")
    if not labels:
        _refuse_flat(files)
        return read_wordnet(files, subset=subset, classes=classes, ignore=ignore)
    images = _list_flat(files, labels, ignore)
    images = order_by_wordnet(files.where, images, images.labels, subset=subset)
    return files.build(images, space="wnid")


def read_wordnet(
    files: SplitFiles, *, subset: bool = False, classes: str = "", ignore: Names = ()
) -> base.Source:
    """Return the source of a split of ImageNet classes, in the order of WordNet ids.

    subset, classes, ignore: see `read`. ValueError for a class outside the 1000, and for
    missing classes unless `subset` is True and classes have names, not numbers. With
    `subset`, labels are indices in the classes that occur. base.Missing without the split.
    """
    where, images = files.where, files.find(ignore)
    wordnet_ids, are_numbers = _wordnet_indices(where, images, classes)
    images = order_by_wordnet(
        where,
        images,
        wordnet_ids[images.labels],
        subset=subset,
        numbered=are_numbers,
    )
    return files.build(images, space="wnid")


def _refuse_flat(files: SplitFiles) -> None:
    """Raise ValueError if the validation images are in one folder without class folders.

    The split's folder then has no folders, and its first file in sorted order is
    "ILSVRC2012_val_...".
    """
    path = next(filter(os.path.isdir, files.folders.values()), "")
    if not path or listing.has_folders(path):
        return
    first = min((name for name in os.listdir(path) if name[0] != "."), default="")
    if first.startswith(_STEM):
        must = f"{files.where}: images must lie in class folders"
        remedy = "move them, or give labels=<file>, a WordNet id a line for images 1 to"
        got = f"got {first!r} directly in {path!r}; {remedy} {VALIDATION_IMAGES:,}"
        raise ValueError(f"{must}, {got}")


def _list_flat(files: SplitFiles, path: str, ignore: Names) -> listing.Listing:
    """Return the listing of validation images in one folder, with labels of the file `path`.

    ignore: patterns of files to skip. ValueError for an image without a label.
    Names start with the split's name instead of the folder's.
    """
    images = files.find_flat(ignore)
    name = images.classes[0]
    table, stems = read_labels(path), _stems(images.names)
    errors.refuse_missing(
        stems,
        table,
        f"{files.where}: every image must have a label in {path!r}",
        which="have none",
        remedy="keep the published names",
    )
    names = tuple(files.part.base + x.removeprefix(name) for x in images.names)
    labels = tables.positions([table[stem] for stem in stems])
    return images._replace(names=names, labels=labels, classes=tables.wnids())


def _stems(names: Names) -> list[str]:
    """Return file names without folders, up to the first dot."""
    return [posixpath.basename(name).partition(".")[0] for name in names]


def read_labels(path: str) -> dict[str, str]:
    """Return {name of a validation image without ending: WordNet id} from a text file.

    Its forms: see the module's docstring; a header "ImageId,..." is skipped. ValueError for
    lines of a different form, two different labels of an image, and a wrong number of lines
    without names.
    """
    lines = listing.text_lines(path, f"{path}: labels must be a text file: ")
    if lines and lines[0].startswith("ImageId,"):  # Header of LOC_val_solution.csv.
        lines = lines[1:]
    wnids, known = tables.wnids(), {*tables.wnids()}
    table, all_named = {}, True
    for i, line in enumerate(lines, start=1):
        row = _ROW.match(line)
        stem, label = row.groups() if row else (None, None)
        all_named = all_named and stem is not None
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
    if not all_named and len(table) != VALIDATION_IMAGES:
        must = f"{path}: without names there must be {VALIDATION_IMAGES:,} lines"
        raise ValueError(f"{must}, got {len(lines):,}")
    return table


def order_by_wordnet(
    where: str,
    images: listing.Listing,
    ids: Column,
    *,
    subset: bool,
    numbered: bool = False,
) -> listing.Listing:
    """Return the listing with the classes in the order of WordNet ids, sorted by class.

    ids: index of each image's class among the 1000 of ImageNet. subset: True allows that
    classes are missing; labels are then indices in the classes that occur. numbered: True if
    classes are identified by numbers only, so that none may be missing even with `subset`.
    ValueError if a required class is missing. where: start of error messages.
    """
    known, present = tables.wnids(), np.unique(ids)
    missing = np.setdiff1d(np.arange(len(known)), present)
    if len(missing) and (numbered or not subset):
        remedy = "where some are meant, set subset=True (`prepare check` has --options)"
        if subset:
            remedy = "numbers identify classes only if all are there: name them by"
            remedy += " folders, or for shards by classes=<file>, a WordNet id a line"
        must = f"{where}: all {len(known):,} classes must be there"
        first = f"first {known[missing[0]]!r} (number {missing[0]})"
        raise ValueError(f"{must}, {len(missing):,} are missing, {first}; {remedy}")
    labels = np.searchsorted(present, ids).astype(np.int32)
    return images.by_class(labels, [known[i] for i in present])


def _wordnet_indices(
    where: str, images: listing.Listing, path: str
) -> tuple[Int[np.ndarray, "k"], bool]:
    """Return the index of each label's class among the 1000, and True if classes have no names.

    Classes have no names if labels or folders are only numbers. path: the option `classes`, a
    file; "" for none. ValueError for classes that are not among the 1000.
    where: start of error messages.
    """
    known = tables.wnids()
    identity = np.arange(len(known))
    if not path and images.classes is None:
        if images.labels.max() >= len(known):
            must = f"{where}: labels must be 0 to {len(known) - 1}, as WordNet sorts"
            remedy = "name the classes by classes=<file>, a WordNet id a line"
            raise ValueError(f"{must}, got {images.labels.max()}; {remedy}")
        return identity, True
    names = split_files.class_names(where, images, path)
    if all(map(numerals.is_count, names)):
        ids = np.array([int(name) for name in names])
        if len(np.unique(ids)) < len(ids) or ids.max() >= len(known):
            must = f"{where}: folders with numbers must be 0 to 999, each once"
            got = f"got {len(ids):,} from {ids.min()} to {ids.max()}"
            raise ValueError(f"{must}, {got}; number them from 0, as WordNet sorts")
        return ids, True
    if len(names) == len(known) and all(
        names[i].startswith(text) for i, text in _HUGGING_FACE_NAMES.items()
    ):
        return identity, False
    wrong = [name for name in names if name not in known]
    hint = "name classes by WordNet ids, or by the numbers 0 to 999 in their order"
    if wrong and re.fullmatch(r"n\d{8}", wrong[0]):
        hint = errors.suggest(wrong[0], known)
    must = f"{where}: classes must be among the {len(known):,} of ILSVRC-2012"
    errors.refuse_some(wrong, must, which=f"of {len(names):,} are not", remedy=hint)
    return tables.positions(names), False


def read_with_real(files: SplitFiles, *, real: str, ignore: Names = ()) -> base.Source:
    """Return the source of validation images with ReaL's labels in further columns.

    real: path of real.json. The column "label" has the original labels; `real_columns`
    describes the columns of ReaL's labels. ignore: patterns of files to skip.
    ValueError for images that ReaL does not have.
    """
    source = folder.read(files, space="wnid", ignore=ignore)
    accepted = real_columns(files.where, real, source.files, classes=source.classes)
    num_without = int((accepted["accepted_0"] < 0).sum())
    return dataclasses.replace(
        source,
        columns={**source.columns, **accepted},
        measures=("accuracy", "real_accuracy"),
        note=f"{num_without:,} images without a right class count for accuracy alone",
        cite=files.cite,
    )


def read_real(path: str) -> dict[str, tuple[str, ...]]:
    """Return {name of an image without ending: WordNet ids} of ReaL's real.json.

    The first name is "ILSVRC2012_val_00000001". An image without a correct class has ().
    ValueError if the file has a different form.
    """
    with (
        base.explain_errors(
            f"{path}: must be the real.json of ReaL, got ",
            OSError,
            ValueError,
            RecursionError,
            remedy="; fetch it again",
        ),
        opening.open_text(os.path.expanduser(path)) as file,
    ):
        entries = json.load(file)
    if not isinstance(entries, list) or len(entries) != VALIDATION_IMAGES:
        size = f"{len(entries):,}" if isinstance(entries, list) else "no list"
        must = f"{path}: must be a list of {VALIDATION_IMAGES:,} lists, got {size}"
        remedy = "take the real.json of google-research/reassessed-imagenet"
        raise ValueError(f"{must}; {remedy}")
    wnids, table = tables.wnids(), {}
    for i, labels in enumerate(entries):
        if not isinstance(labels, list) or not all(
            type(label) is int and 0 <= label < len(wnids) for label in labels
        ):
            must = f"{path}: entry {i} must be a list of whole numbers below"
            got = f"got {labels!r}; fetch the file again"
            raise ValueError(f"{must} {len(wnids)}, {got}")
        table[f"{_STEM}{i + 1:08}"] = tuple(wnids[label] for label in labels)
    return table


def real_columns(where: str, path: str, names: Names, classes: Names) -> Columns:
    """Return {"accepted_0", "accepted_1", ...: column}, all correct classes of each image.

    Values are indices into `classes`, -1 where an image has fewer. path: path of real.json.
    names: names of the images. ValueError for a name that ReaL lacks, and a correct class that
    is not in `classes`. where: start of error messages.
    """
    table, stems = read_real(path), _stems(names)
    errors.refuse_some(
        [name for name, stem in zip(names, stems) if stem not in table],
        f"{where}: files must be named {_STEM}00000001 to {VALIDATION_IMAGES:08}",
        which="are unknown to ReaL",
        remedy="take the validation images under their published names",
    )
    ids = {name: label for label, name in enumerate(classes)}
    errors.refuse_missing(
        sorted({wnid for stem in stems for wnid in table[stem]}),
        ids,
        f"{where}: every right class of ReaL must be among the class folders",
        which="are not",
        remedy="take all 1,000 folders",
    )
    max_labels = max(1, *(len(table[stem]) for stem in stems))
    accepted = np.full((max_labels, len(names)), -1, np.int32)
    for i, stem in enumerate(stems):
        accepted[: len(table[stem]), i] = [ids[wnid] for wnid in table[stem]]
    return {f"accepted_{j}": row for j, row in enumerate(accepted)}


def read_sixteen(
    files: SplitFiles,
    *,
    subset: bool = False,
    classes: str = "",
    ignore: Names = (),
    each: int = 0,
) -> base.Source:
    """Return the source of the images that belong to Geirhos' 16 classes.

    The images keep their order; labels are 0 to 15.

    subset: True allows that some of the 1000 classes are missing on disk.
    classes: a file with a WordNet id per line, for shards with class indices of their own.
    ignore: patterns of files to skip.
    each: largest number of images per class of the 16, evenly spaced over the class's
      images; 0: all images, more than half of them dogs.
    ValueError if no image belongs to the 16 classes, if `each` is negative, and as `read` does.
    """
    where, sixteen = files.where, class_maps.geirhos16()
    errors.check_whole(where, each, low=0, name="each")
    source = read(files, subset=subset, classes=classes, ignore=ignore)
    number = {wnid: i for i, wnids in enumerate(sixteen.values()) for wnid in wnids}
    class_of_label = [number.get(wnid, -1) for wnid in source.classes]
    labels = np.array(class_of_label, np.int32)[source.columns["label"]]
    index = _evenly_spaced(labels, each)
    if not len(index):
        must = f"{where}: some images must be of Geirhos' 16 classes"
        raise ValueError(f"{must}, none of {len(source):,} in {files.root!r} is")
    selected = sources.take(source, index, digest="")
    fingerprint = f"{source.fingerprint} of 16 classes, {each or 'all'} of each"
    return dataclasses.replace(
        selected,
        columns={**selected.columns, "label": labels[index]},
        classes=tuple(sixteen),
        space="entry16",
        note=f"the members' {len(index):,} of {len(source):,} images",
        fingerprint=fingerprint,
    )


def _evenly_spaced(labels: Column, num_per_class: int) -> Int[np.ndarray, "m"]:
    """Return ascending indices of at most `num_per_class` images of each of 16 classes.

    labels: 0 to 15; images with the label -1 are left out. num_per_class: 0: all images.
    The images are evenly spaced over all images of their class.
    """
    selected = []
    for label in range(16):
        index = np.flatnonzero(labels == label)
        if 0 < num_per_class < len(index):
            spread = np.linspace(0, len(index) - 1, num_per_class).round().astype(int)
            index = index[np.unique(spread)]
        selected.append(index)
    return np.sort(np.concatenate(selected))


def read_subset(files: SplitFiles, *, ignore: Names = ()) -> base.Source:
    """Return the source of ImageNet-A or ImageNet-R, with decisions among its 200 classes.

    ignore: patterns of files to skip. ValueError if the class folders differ from the published
    classes.
    """
    source = folder.read(files, space="wnid", ignore=ignore)
    listing.match_classes(files.where, source.classes, tables.subset(files.name))
    return dataclasses.replace(source, restrict=True, cite=files.cite)


def read_tiny(files: SplitFiles, *, ignore: Names = ()) -> base.Source:
    """Return the source of Tiny ImageNet's "train", "val", or a part such as "train[:90%]".

    ignore: patterns of files to skip. ValueError for a different layout.
    """
    where, path = files.where, files.find_folder()
    classes = tuple(sorted(_lines(where, os.path.join(files.root, "wnids.txt"))))
    if files.part.base == "train":
        listing.match_classes(where, listing.class_folders(where, path), classes)
        images = listing.scan(
            where, path, classes=classes, ignore=ignore, below="{}/images"
        )
    else:
        images = _list_tiny_val(where, path, classes=classes, ignore=ignore)
    return files.build(images, space="wnid")


def _list_tiny_val(
    where: str, path: str, *, classes: Names, ignore: Names
) -> listing.Listing:
    """Return the listing of <path>/images with the labels of <path>/val_annotations.txt.

    classes: WordNet ids. ValueError for an image without a line, a line without an image,
    another WordNet id, and an image with two different labels.
    where: start of error messages.
    """
    images = listing.scan(where, path, classes=("val",), ignore=ignore, below="images")
    annotations, wnid_of = os.path.join(path, "val_annotations.txt"), {}
    for number, line in enumerate(_lines(where, annotations), start=1):
        name, wnid, *_ = *line.split("\t"), ""
        if wnid not in classes:
            must = "a line must read <file> tab <wnid of wnids.txt> ..."
            raise ValueError(f"{annotations}:{number}: {must}, got {line!r}")
        image = f"images/{name}"
        labels = (("a line above", wnid_of.get(image, wnid)), ("this line", wnid))
        wnid_of[image] = listing.agreed_label(f"{annotations}:{number}", name, labels)
    errors.refuse_missing(
        images.names,
        wnid_of,
        f"{where}: every validation image must have a line in val_annotations.txt",
        which="do not",
        remedy="unpack the archive again",
    )
    errors.refuse_missing(
        wnid_of,
        {*images.names},
        f"{where}: every validation image must exist in val/images",
        which="do not",
        remedy="unpack the archive again",
    )
    ids = {name: label for label, name in enumerate(classes)}
    labels = np.array([ids[wnid_of[name]] for name in images.names], np.int32)
    return images.by_class(labels, classes)


def _lines(error_prefix: str, path: str) -> list[str]:
    """Return the non-empty lines of a text file of Tiny ImageNet, trimmed.

    base.Missing, a ValueError, if there is no such file.
    error_prefix: start of error messages.
    """
    if not os.path.exists(path):
        must = (
            f"{error_prefix}: the published layout must be whole, {path!r} is missing"
        )
        remedy = "unpack the archive again, or use data set 'folder' with space='wnid'"
        raise base.Missing(f"{must}; {remedy}")
    return listing.text_lines(path, f"{error_prefix}: {path!r} must be a text file: ")
