"""Functions that check a user's folders of images and make the suite that they allow."""

import os
import types
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import ml_collections

from jbias import data, errors
from jbias.configs import datasets
from jbias.configs.suites import biases
from jbias.data import class_maps, tables
from jbias.measuring import named_sets
from jbias.runtime import model_paths

# Names of splits for training.
_TRAINING = ("train", "training")
SHAPES = "shapes"


class Folders(NamedTuple):
    """The user's folders of images; None for a folder that is not given."""

    stimuli: str | None = None  # Geirhos' stimuli.
    imagenet: str | None = None
    data: str | None = None  # Images of the user's own; NAME:DIR; or SHAPES.
    humans: str | None = None  # People's answers.

    @property
    def is_empty(self) -> bool:
        """Return True if stimuli, imagenet and data are all missing."""
        return not (self.stimuli or self.imagenet or self.data)


class OwnImages(NamedTuple):
    """A user's own labelled images, root/<split>/<class>/*, or a set by its name.

    classes: () for a set whose classes consist of ImageNet's.
    """

    root: str
    splits: tuple[str, ...]
    classes: tuple[str, ...]
    data: str = "folder"  # Name of the data set.


# Measures that need a network's gradients, and those that need its features.
_OF_GRADIENTS = ("pgd", "pgd_l2", "fgsm")
_OF_FEATURES = ("decoding", "receptive_field")


class Plan(NamedTuple):
    """A suite for a user's folders, with messages on measures that need other folders."""

    config: ml_collections.ConfigDict  # The suite's config.
    first: tuple[str, ...]  # Names of its sets of labelled photographs.
    missing: tuple[str, ...]  # Messages on measures that need other folders.


def check(folders: Folders, *, has_table: bool = False) -> Folders:
    """Return the folders with paths as text, "~" expanded, and None for empty paths.

    has_table: whether the model is a table of decisions, which needs no stimuli for a comparison
    with people if no images are given. ValueError for a folder that does not exist, for stimuli without cue conflicts, for the
    data SHAPES together with stimuli or imagenet, and for humans without stimuli.
    """
    checked = {}
    for key, path in folders._asdict().items():
        if path is None or path == "":
            checked[key] = None
            continue
        text = os.path.expanduser(os.fspath(path))
        if key == "data":
            named_sets.check(text)
        else:
            model_paths.check_folders({key: text})
        checked[key] = text
    if checked["stimuli"]:
        find_stimuli(checked["stimuli"])
    if checked["data"] == SHAPES and (checked["stimuli"] or checked["imagenet"]):
        raise ValueError("--data: shapes has stimuli of its own; give it alone")
    needs_stimuli = not has_table or checked["imagenet"] or checked["data"]
    if checked["humans"] and not checked["stimuli"] and needs_stimuli:
        raise ValueError("--humans: people are compared on --stimuli; give both")
    return Folders(**checked)


def find_stimuli(path: str) -> tuple[str, ...]:
    """Return the names of Geirhos' sets in a folder, in the order of datasets.STIMULI.

    Folders may have other known spellings of the names. A folder with the 16 classes counts as
    the cue conflicts themselves, unless it has the name of another set. ValueError if
    cue-conflict is not among the sets.
    """
    splits = _splits_in(path)
    if "cue-conflict" in splits:
        return splits
    whole = os.path.abspath(path)
    above = (os.path.dirname(whole), os.path.dirname(os.path.dirname(whole)))
    parent = next((x for x in above if "cue-conflict" in _splits_in(x)), "")
    split_of_name = _split_by_name(path)
    if split_of_name in datasets.STIMULI and _has_classes(path):
        problem = f"{path} has the set {split_of_name} alone, without cue conflicts"
    else:
        got = ", ".join(_folders_in(path)[:5]) or "no folders"
        problem = (
            f"{path} must have a folder for each of Geirhos' 16 classes (airplane, bear, "
            f"...), or a folder cue-conflict with these, got {got}"
        )
    remedy = f"give {parent}" if parent else "give the folder of the cue conflicts"
    if split_of_name and not parent:
        remedy += f", or measure accuracy on these images by --data={path}"
    raise ValueError(f"--stimuli: {problem}; {remedy}")


def _splits_in(path: str) -> tuple[str, ...]:
    """Return the names of Geirhos' sets in a folder, as `find_stimuli` does; () if none exist."""
    spellings = _spellings()
    splits = [
        split
        for split in datasets.STIMULI
        if any(os.path.isdir(os.path.join(path, name)) for name in spellings[split])
    ]
    is_other = _split_by_name(path) not in ("", "cue-conflict")
    if not splits and not is_other and _has_classes(path):
        return ("cue-conflict",)
    return tuple(splits)


def _spellings() -> dict[str, tuple[str, ...]]:
    """Return the names that folders of Geirhos' sets may have, by set."""
    folders = data.DATASETS["geirhos"].folders
    return {split: (split, *folders.get(split, ())) for split in datasets.STIMULI}


def _split_by_name(path: str) -> str:
    """Return the name of Geirhos' set that a folder is named after; "" for another name."""
    name = os.path.basename(os.path.abspath(path))
    return next((split for split, names in _spellings().items() if name in names), "")


def _has_classes(path: str) -> bool:
    """Return True if a folder contains a folder for each of Geirhos' 16 classes."""
    return {*class_maps.geirhos16()} <= {*_folders_in(path)}


def find_images(path: str) -> OwnImages:
    """Return the root, splits and classes of a user's own images.

    path: NAME:DIR with a set of `named_sets`; or a folder DIR with DIR/<class>/ or
    DIR/<split>/<class>/. In the first form, DIR's name
    is the only split, and its parent the root. In the second, DIR is the root, and the classes are
    the folders of the first split. In this form, folders without subfolders are left out, and so
    are splits for training, if there are other splits. ValueError for a DIR without folders.
    """
    named = named_sets.parse(path)
    if named:
        return _find_named(named)
    inside = _folders_in(path)
    with_folders = [name for name in inside if _folders_in(os.path.join(path, name))]
    if not inside:
        raise ValueError(
            f"--data: {path} must have a folder for each class, got none; arrange images "
            "as DIR/<class>/*.jpg or DIR/<split>/<class>/*.jpg"
        )
    if not with_folders:
        whole = os.path.abspath(path)
        return OwnImages(
            os.path.dirname(whole), (os.path.basename(whole),), tuple(inside)
        )
    splits = [name for name in with_folders if name.lower() not in _TRAINING]
    splits = splits or with_folders
    classes = tuple(_folders_in(os.path.join(path, splits[0])))
    return OwnImages(path, tuple(splits), classes)


def _find_named(named: named_sets.NamedSet) -> OwnImages:
    """Return the splits of a set to measure, those that are in its folder.

    ValueError, with the expected files, if none of them is.
    """
    splits, classes = [], set[tuple[str, ...]]()
    missing: data.base.Missing | None = None
    for split in named_sets.SPLITS.get(named.name, data.DATASETS[named.name].splits):
        try:
            source = data.load(named.name, split, root=named.root)
        except data.base.Missing as error:
            missing = missing or error
            continue
        splits.append(split)
        classes.add(tuple(source.classes) if source.space == "names" else ())
    if not splits:
        raise ValueError(f"--data: {missing}")
    names = classes.pop() if len(classes) == 1 else ()
    return OwnImages(named.root, tuple(splits), names, named.name)


def _folders_in(path: str) -> list[str]:
    """Return the sorted names of the folders in a folder, without hidden ones."""
    names = sorted(os.listdir(path))
    return [
        name
        for name in names
        if name[0] != "." and os.path.isdir(os.path.join(path, name))
    ]


def plan(
    folders: Folders,
    own_images: OwnImages | None,
    *,
    size: int,
    images: int,
    space: str,
) -> Plan:
    """Return a Plan with all measures that are possible with the folders.

    folders: result of `check`, with at least one of stimuli, imagenet and data. own_images: the
    images of folders.data (`find_images`); None without such images, or for SHAPES. size: image
    side in pixels. images: number of images for measures that change images; 0: all. space: the
    label space of the network's classes, which decides the label space of the own images (see
    `_own_sets`). ValueError for a split whose name cannot be the name of a folder of results.
    """
    arguments = types.SimpleNamespace(**{**biases.SHARED_ARGUMENTS, **biases.OWN})
    arguments.data, arguments.size, arguments.images = "stimuli", size, images
    arguments.stimuli = folders.stimuli or ""
    arguments.humans = folders.humans or ""
    if folders.imagenet:
        arguments.data, arguments.root = "imagenet", folders.imagenet
    elif folders.data == SHAPES:
        arguments.data = SHAPES
    own_sets = {} if own_images is None else _own_sets(own_images, space)
    if own_images is not None and own_images.data in named_sets.STIMULI:
        config = biases.make(arguments, shown_sets=own_sets)
    else:
        config = biases.make(arguments, own_sets)
    if folders.stimuli:
        absent = {*datasets.STIMULI} - {*find_stimuli(folders.stimuli)}
        _remove_sets(config, absent)
    labelled = [name for name in ("imagenet", "test") if name in config.sets]
    first = tuple(dict.fromkeys([*labelled, *own_sets]))
    return Plan(config, first, missing(folders))


def _own_sets(own_images: OwnImages, space: str) -> dict[str, dict[str, Any]]:
    """Return the options of the suite's sets of a user's own images, by name of the set.

    Each split is a set with the name of the split, or "own-<split>" if another set of the suite has
    that name. Options are split, root, data and, if known, space: "wnid" if `space`, the network's,
    is "wnid" and all classes are WordNet ids; "entry16" if `space` is "wnid" or "entry16" and all
    classes are among Geirhos' 16. ValueError for a split whose name cannot be the name of a folder
    of results.
    """
    options = {"split": "", "root": own_images.root, "data": own_images.data}
    if own_images.data != "folder":
        return _named_sets(own_images, options)
    if space == "wnid" and {*own_images.classes} <= {*tables.wnids()}:
        options["space"] = "wnid"
    elif space in ("wnid", "entry16") and {*own_images.classes} <= {
        *class_maps.geirhos16()
    }:
        options["space"] = "entry16"
    sets = {}
    for split in own_images.splits:
        errors.check_folder_name("--data: a folder", split)
        is_taken = split in (*datasets.STIMULI, "imagenet", "imagenet16")
        name = f"own-{split}" if is_taken else split
        sets[name] = {**options, "split": split}
    return sets


def _named_sets(
    own_images: OwnImages, options: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the options of the suite's sets of a set by its name, by name of the suite's set.

    A single split has the name of the data set; of several, each has its own name, as
    "terra_incognita-location_38".
    """
    name, splits = own_images.data, own_images.splits
    return {
        name if len(splits) == 1 else f"{name}-{split.replace('/', '-')}": {
            **options,
            "split": split,
        }
        for split in splits
    }


def _remove_sets(config: ml_collections.ConfigDict, absent: Collection[str]) -> None:
    """Remove the sets `absent` from a suite in place, and measures that have no other set."""
    for name in absent:
        if name in config.sets:
            del config.sets[name]
    for name, measure in [*config.measures.items()]:
        measure.sets = tuple(x for x in measure.sets if x not in absent)
        if not measure.sets:
            del config.measures[name]


def remove_impossible(
    config: ml_collections.ConfigDict, *, has_gradients: bool, has_sites: bool
) -> str:
    """Remove measures from a suite if the model lacks the gradients or sites that they need.

    Returns the names of the removed measures, joined by ", "; "" for none. config: the suite's
    config, which is changed in place. has_gradients, has_sites: whether the model provides them.
    """
    names = () if has_gradients else _OF_GRADIENTS
    names += () if has_sites else _OF_FEATURES
    names = [name for name in names if name in config.measures]
    for name in names:
        del config.measures[name]
    return ", ".join(names)


def missing(folders: Folders) -> tuple[str, ...]:
    """Return messages on measures that are not possible, each with the flag of a missing folder.

    () for the embedded data set SHAPES.
    """
    if folders.data == SHAPES:
        return ()
    lacking = []
    if not folders.stimuli:
        lacking.append("shape bias and cue accuracies: give --stimuli=DIR")
    elif not folders.humans:
        lacking.append(
            "consistency with people: give --humans=DIR (raw-data of model-vs-human)"
        )
    named = named_sets.parse(folders.data or "")
    has_stimuli_alone = bool(named) and named.name in named_sets.STIMULI
    if not (folders.imagenet or folders.data) or (
        has_stimuli_alone and not folders.imagenet
    ):
        lacking.append(
            "accuracy on photographs, calibration, corruptions, spectral bias, critical "
            "band and attacks: give --imagenet=DIR or --data=DIR"
        )
    return tuple(lacking)
