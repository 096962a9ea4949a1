"""The images of a folder that a model is asked about, with their classes.

A folder is one that `jbias export-stimuli` wrote, with its index.csv, or any folder whose images
say their classes: by names such as "airplane1-bicycle2.png" (cue conflicts), by names of
model-vs-human's form, or by the folder of each class.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jbias import errors
from jbias.answers import stimulus_names, table_rows
from jbias.data import sets
from jbias.data.forms import listing

INDEX = "index.csv"
_INDEX_COLUMNS = ("set", "condition", "imagename", "category")


class Stimulus(NamedTuple):
    """An image; the last four are cells of the table of answers, "" for none."""

    name: str  # Path in the folder, with "/".
    label: str
    texture: str
    dataset: str
    condition: str


class StimulusFolder(NamedTuple):
    """The images of a folder, and the classes that a question may offer."""

    folder: str
    stimuli: tuple[Stimulus, ...]  # Ascending by name.
    classes: tuple[str, ...]
    is_exported: bool = False  # By `jbias export-stimuli`.

    def path(self, stimulus: Stimulus) -> str:
        """Return the path of an image."""
        return os.path.join(self.folder, *stimulus.name.split("/"))

    def digest(self) -> str:
        """Return the SHA-256 over the names and the content of all images, as hex digits."""
        total = hashlib.sha256()
        for stimulus in self.stimuli:
            total.update(f"{stimulus.name}\0{stimulus.label}\0".encode())
            with open(self.path(stimulus), "rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
        return total.hexdigest()


def read(folder: str) -> StimulusFolder:
    """Return the images of a folder and their classes.

    ValueError for a folder without images, and for an image whose class is unknown.
    """
    listing.require_folder("--stimuli", folder, "DIR")
    index = os.path.join(folder, INDEX)
    if os.path.isfile(index):
        rows = table_rows.read(index)
        _, header = next(rows, ("", []))
        if {*_INDEX_COLUMNS} <= {*header}:
            return _of_index(folder, header, rows)
    stimulus_names.refuse_sets("--stimuli", folder)
    names = sorted(_find_images(folder))
    if not names:
        must = "hold images whose names or folders say their classes"
        errors.refuse("--stimuli", must, folder, "check the path")
    return _of_names(folder, names)


def draw(
    stimuli: Sequence[Stimulus], *, seed: int, limit: int | None = None
) -> list[Stimulus]:
    """Return stimuli in a drawn order; limit: the number of stimuli, None for all.

    The first stimuli are the same for every limit.
    """

    def key(stimulus: Stimulus) -> str:
        return hashlib.sha256(f"{seed}\0image\0{stimulus.name}".encode()).hexdigest()

    return sorted(stimuli, key=key)[:limit]


def _find_images(folder: str) -> Iterator[str]:
    """Yield the path in the folder, with "/", of each image at any depth."""
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not listing.is_junk(name))
        for name in names:
            if listing.is_image(name) and not listing.is_junk(name):
                path = os.path.relpath(os.path.join(parent, name), folder)
                yield path.replace(os.sep, "/")


def _of_names(folder: str, names: Sequence[str]) -> StimulusFolder:
    """Return images whose names or folders say their classes."""
    plain = [
        stimulus_names.Row(os.path.join(folder, name), name, "", "") for name in names
    ]
    dataset = ""
    if stimulus_names.own_set(plain, stem="", dataset=""):
        dataset = _published_set(os.path.basename(os.path.abspath(folder)))
        plain = [row._replace(label=_folder_label(row.image)) for row in plain]
    try:
        known = stimulus_names.recognise(plain, stem="", dataset=dataset)
    except ValueError as error:
        # The remedies of a table's reader are about columns.
        fault = str(error).partition("; ")[0]
        raise ValueError(
            f"--stimuli: {fault}; name the images as cue conflicts (airplane1-bicycle2.png), put "
            "those of a class into a folder of its name, or use jbias export-stimuli"
        ) from None
    repeated = [name for name in known.images if known.images.count(name) > 1][:1]
    errors.refuse_some(
        repeated,
        "--stimuli: every image must have its own name",
        which="is there twice",
        remedy="remove one of the two files",
    )
    stimuli = [
        Stimulus(name, row.label, "", dataset, "")
        for name, row in zip(names, plain, strict=True)
    ]
    return StimulusFolder(folder, tuple(stimuli), known.classes)


def _published_set(folder_name: str) -> str:
    """Return the published set that a folder is named after, such as "edge" for "edges"; or ""."""
    by_folder = {
        name: split
        for split, names in sets.DATASETS["geirhos"].folders.items()
        for name in names
    }
    name = by_folder.get(folder_name) or stimulus_names.set_name(folder_name)
    return name if name in stimulus_names.PUBLISHED_SETS else ""


def _folder_label(name: str) -> str:
    """Return the class that an image's name or else its first folder says; "" if neither does."""
    folder = name.rpartition("/")[0].partition("/")[0]
    return stimulus_names.label_in_name(name) or folder


def _of_index(
    folder: str, header: Sequence[str], rows: Iterator[tuple[str, list[str]]]
) -> StimulusFolder:
    """Return the images of an index.csv of `jbias export-stimuli`."""
    stimuli, classes = [], set()
    for where, cells in rows:
        row = dict(zip(header, cells, strict=True))
        name = row["imagename"]
        is_inside = listing.is_below(folder, name)
        errors.check(is_inside, where, "name a file in the folder", name)
        path = os.path.join(folder, name)
        must = "name a file in the folder"
        errors.check(os.path.isfile(path), where, must, name, "export again")
        label, texture = row["category"], row.get("texture", "")
        stimuli.append(Stimulus(name, label, texture, row["set"], row["condition"]))
        classes |= {label, texture} - {""}
    index = os.path.join(folder, INDEX)
    errors.check(bool(stimuli), index, "name images", "none", "export again")
    is_16 = classes <= {*stimulus_names.CLASSES16}
    names = stimulus_names.CLASSES16 if is_16 else tuple(sorted(classes))
    return StimulusFolder(folder, tuple(sorted(stimuli)), names, is_exported=True)
