"""The stimuli of the page: the embedded cue conflicts and outlines, or a folder of images.

Images are shown in blocks of one image of each class, so that a session of any number of blocks
is balanced. The page draws the order of the blocks and of the images inside them.
"""

import base64
import collections
import dataclasses
import functools
import io
import os
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int, UInt8

from jbias import data, errors
from jbias.answers import stimulus_names, table_rows
from jbias.data import decoding
from jbias.data.forms import listing

SIDE = 64  # Pixels of the embedded stimuli.
SHAPES = "shapes"
# Sets of the embedded data set, with their titles and numbers of images.
_EMBEDDED = {
    "cue_conflict": ("Cue conflicts", 240),
    "silhouette": ("Silhouettes", 16),
    "edge": ("Outlines", 16),
}
# Factors of the images on the buttons: large, with strong contrasts, on a plain background.
_CLEAR = {"size": 1, "margin": 1, "contrast": 1, "echo": 0}
_INDEX = "index.csv"  # Of a folder of `jbias export-stimuli`.
_MAX_CLASSES = 26  # A letter each.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # Begin of a cell that is a formula.


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Group:
    """Images of one kind, whose results the page shows together."""

    title: str
    dataset: str  # Name in the column "set" of the exported file; "" for no column.
    images: tuple[str, ...]  # Names in the exported file.
    ids: tuple[str, ...]  # Names in files of decisions that are read.
    pictures: tuple[str, ...]  # Data URLs.
    label: Int[np.ndarray, "n"]
    texture: Int[np.ndarray, "n"] | None  # None: images without texture.
    blocks: tuple[tuple[int, ...], ...]  # Image numbers, one of each class.
    fingerprint: str = ""  # Of the embedded set that the images are of.

    @property
    def has_conflicts(self) -> bool:
        """Return True if shape and texture of some images have different classes."""
        return self.texture is not None and bool((self.label != self.texture).any())


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Stimuli:
    """The groups of images of a page, and the classes of its buttons."""

    name: str
    classes: tuple[str, ...]
    groups: tuple[Group, ...]
    # Data URLs of training images, shown on the buttons in place of names; () for names.
    examples: tuple[str, ...] = ()
    note: str = ""  # A message about images that are left out.


def embedded() -> Stimuli:
    """Return the stimuli of the embedded data set "shapes".

    The buttons show the class's texture on its shape, as nearly all training images of a network
    do: the training image of each class that is easiest to see. Cue conflicts are all 240 pairs of a shape and the texture of another class.
    """
    groups = [_embedded_group(split) for split in _EMBEDDED]
    source = data.load(SHAPES, "train", size=SIDE, n=256, correlation=1.0, factors=True)
    num_clear = np.sum([source.columns[x] == y for x, y in _CLEAR.items()], axis=0)
    label = np.asarray(source.columns["label"])
    numbers = [
        int(np.where(label == class_id, num_clear, -1).argmax())
        for class_id in range(len(source.classes))
    ]
    return Stimuli(
        name=SHAPES,
        classes=tuple(source.classes),
        groups=tuple(groups),
        examples=tuple(to_url(source.images[number]) for number in numbers),
    )


def _embedded_group(split: str) -> Group:
    """Return the images of a split of the embedded data set."""
    title, num_images = _EMBEDDED[split]
    source = data.load(SHAPES, split, size=SIDE, n=num_images)
    label = np.asarray(source.columns["label"])
    names = tuple(f"{split}/{i:06d}.png" for i in range(num_images))
    return Group(
        title=title,
        dataset=f"{SHAPES}-{split}",
        images=names,
        ids=names,
        pictures=tuple(to_url(image) for image in source.images),
        label=label,
        texture=source.columns.get("texture"),
        blocks=_blocks(label, np.arange(num_images)),
        fingerprint=source.fingerprint,
    )


def _blocks(
    label: Int[np.ndarray, "n"], order: Int[np.ndarray, "n"]
) -> tuple[tuple[int, ...], ...]:
    """Return image numbers in blocks: block j has the j-th image of each class in an order.

    label: class of each image. order: all image numbers. Images beyond the number of the smallest
    class are in no block.
    """
    by_class: dict[int, list[int]] = collections.defaultdict(list)
    for number in order.tolist():
        by_class[int(label[number])].append(number)
    num_blocks = min(map(len, by_class.values()))
    return tuple(
        tuple(by_class[class_id][j] for class_id in sorted(by_class))
        for j in range(num_blocks)
    )


def to_url(image: UInt8[np.ndarray, "h w ..."]) -> str:
    """Return an image as a PNG file in a data URL."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def from_folder(
    path: str,
    *,
    set_name: str = "",
    num_images: int = 240,
    size: int = 256,
    seed: int = 0,
) -> Stimuli:
    """Return the stimuli of a folder, a random sample with equally many images of each class.

    path: a folder of images whose names say the classes ("cat7-elephant1.png"), of folders named
    for classes, or a folder of `jbias export-stimuli`. set_name: the set of the latter, if there
    are several. num_images: the largest number of images. size: larger images are reduced to
    this side. seed: of the sample. ValueError for a folder without stimuli, with too many classes
    or fewer images than classes, and for damaged images.
    """
    path = os.path.expanduser(path)
    if not os.path.isdir(path):
        raise ValueError(f"--stimuli: must be a folder, got {path!r}; check the path")
    has_index = os.path.isfile(os.path.join(path, _INDEX))
    if set_name and not has_index:
        raise ValueError(
            f"--set: is for a folder of `jbias export-stimuli`, and {path} has no "
            f"{_INDEX}; remove it"
        )
    if not has_index:
        stimulus_names.refuse_sets("--stimuli", path)
    rows = _index_rows(path, set_name) if has_index else _image_rows(path)
    if not rows:
        raise ValueError(
            f"--stimuli: {path} must have images, got none; check the path"
        )
    try:
        recognised = stimulus_names.recognise(rows, stem="")
    except ValueError as error:
        # The remedies of a table's reader are about columns.
        raise ValueError(
            f"--stimuli: {str(error).partition('; ')[0]}; name the images as cue conflicts "
            "(airplane1-bicycle2.png), or put those of a class into a folder of its name"
        ) from None
    label, texture, names = (
        recognised.label,
        recognised.texture,
        [x.image for x in rows],
    )
    order = np.random.default_rng(seed).permutation(len(rows))
    _check_classes(path, recognised.classes, label, num_images)
    blocks = _blocks(label, order)[: num_images // len({*label.tolist()})]
    chosen = [number for block in blocks for number in block]
    place = {number: i for i, number in enumerate(chosen)}
    reduce = functools.partial(_reduce, size=size)
    pictures = [
        to_url(decoding.read(os.path.join(path, names[number]), reduce))
        for number in chosen
    ]
    group = Group(
        title="Cue conflicts" if texture is not None else "Images",
        dataset="",
        images=tuple(names[number] for number in chosen),
        ids=tuple(recognised.images[number] for number in chosen),
        pictures=tuple(pictures),
        label=label[chosen],
        texture=None if texture is None else texture[chosen],
        blocks=tuple(tuple(place[number] for number in block) for block in blocks),
    )
    left_out = len(rows) - len(chosen)
    return Stimuli(
        name=os.path.basename(os.path.abspath(path)),
        classes=recognised.classes,
        groups=(group,),
        note=f"{left_out:,} of {len(rows):,} images are left out" if left_out else "",
    )


def _check_classes(
    path: str,
    classes: Sequence[str],
    label: Int[np.ndarray, "n"],
    num_images: int,
) -> None:
    """Raise ValueError for too few or too many classes, or for fewer images than classes.

    Also for a class whose name a spreadsheet reads as a formula in the exported file.
    """
    if not 2 <= len(classes) <= _MAX_CLASSES:
        remedy = "more" if len(classes) < 2 else "fewer"
        raise ValueError(
            f"--stimuli: {path} must have 2 to {_MAX_CLASSES} classes, got {len(classes)}; "
            f"give a folder with {remedy}"
        )
    for name in classes:
        if name.startswith(_FORMULA):
            raise ValueError(
                f"--stimuli: a class may not begin with {name[0]!r}, which spreadsheets read "
                f"as a formula, got {errors.abbreviate(name)}; rename it"
            )
    num_labels = len({*label.tolist()})
    if num_images < num_labels:
        raise ValueError(
            f"--images: must be at least {num_labels}, one for each class, got {num_images}"
        )


def _image_rows(path: str) -> list[stimulus_names.Row]:
    """Return the images of a folder; the label is the folder of images whose names say no class.

    ValueError for such an image that is in no folder of a class.
    """
    names = []
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inner = os.path.relpath(folder, path)
        for name in sorted(files):
            if listing.is_image(name) and not name.startswith("."):
                names.append(os.path.normpath(os.path.join(inner, name)))
    return [_image_row(path, name) for name in names]


def _image_row(path: str, name: str) -> stimulus_names.Row:
    """Return the row of an image; name: its path in the folder."""
    image = name.replace(os.sep, "/")
    stem = stimulus_names.stimulus(image).casefold()
    is_named = (
        stimulus_names.pictures(stem) is not None
        or stimulus_names.label_in_name(image) != ""
    )
    folder = os.path.basename(os.path.dirname(name))
    if not (is_named or folder):
        raise ValueError(
            f"--stimuli: images must be named such as cat7-elephant1.png, or be in a folder "
            f"for each class, got {errors.abbreviate(name)} in {path} itself; move it"
        )
    return stimulus_names.Row(
        where=os.path.join(path, name),
        image=image,
        label="" if is_named else folder,
        condition="",
    )


def _index_rows(path: str, set_name: str) -> list[stimulus_names.Row]:
    """Return the images that index.csv lists, of one set and condition.

    set_name: the set, or "<set>/<condition>"; "" for the only one. ValueError if several fit.
    """
    index = os.path.join(path, _INDEX)
    table = table_rows.read(index)
    where, header = next(table, (f"{index}:1", []))
    lacking = {"set", "condition", "imagename", "category"} - {*header}
    if lacking:
        raise ValueError(
            f"{where}: must have the column(s) {', '.join(sorted(lacking))} of "
            "`jbias export-stimuli`, got others; give a folder that it wrote"
        )
    by_set: dict[str, list[stimulus_names.Row]] = collections.defaultdict(list)
    for row_where, cells in table:
        row = dict(zip(header, cells, strict=True))
        name = f"{row['set']}/{row['condition']}".removesuffix("/")
        by_set[name].append(_index_row(path, row_where, row))
    chosen = [
        name
        for name in by_set
        if not set_name or set_name in (name, name.split("/")[0])
    ]
    if len(chosen) != 1:
        known = ", ".join(chosen or by_set)
        errors.refuse(
            "--set",
            "name one set of the folder",
            set_name or "none",
            f"{index} has {known}; give one of them",
        )
    return by_set[chosen[0]]


def _index_row(path: str, where: str, row: Mapping[str, str]) -> stimulus_names.Row:
    """Return a row of index.csv; ValueError for an image outside of the folder."""
    image = stimulus_names.plain_path(row["imagename"])
    if os.path.isabs(image) or image.startswith(".."):
        raise ValueError(f"{where}: must be a file in {path}, got {image!r}")
    return stimulus_names.Row(
        where=where,
        image=image,
        label=row["category"],
        condition="",
        texture=row.get("texture", ""),
    )


def _reduce(image, size: int):
    """Return a Pillow image whose sides are at most `size` pixels; smaller ones are unchanged."""
    from PIL import Image

    largest = max(image.size)
    if largest <= size:
        return image
    sides = tuple(max(1, round(side * size / largest)) for side in image.size)
    return image.resize(sides, Image.Resampling.BICUBIC)
