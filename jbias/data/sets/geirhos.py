"""Readers of stimuli with Geirhos' 16 classes: cue conflict, edges, silhouettes, model-vs-human.

The data set "geirhos" (Geirhos et al. 2019) is in <root>/<split>/<shape class>/*.png, 224
pixels as published or smaller; the folder names of the authors' repository are accepted, too.
The folder is the shape; in cue conflict the texture is the last "-" token of the file's stem
without its digits. Of the published 1,280 images, 80 have a texture that agrees with the
shape: they stay in the data set, for accuracy, and are recognised by texture == label. Columns
shape_exemplar and texture_exemplar identify the two pictures from which an image was made.

The data set "model_vs_human" has fourteen splits: photos distorted to several degrees,
sketches and styles, as published in <root>/<split>/dnn/session-1/*.png, 224 pixels, with names
<number>_<experiment>_dnn_<condition>_<class>_<rest>.png. All splits except sketch and stylized
have several conditions, with equally many images. The authors' other three sets, edge,
silhouette and cue-conflict, are splits of "geirhos", with the same folders.

Source of model_vs_human: bethgelab/model-vs-human at 79ed7cd, modelvshuman/datasets:
info_mappings.py for names, experiments.py for conditions; counts are from a subject's trials in
raw-data.
"""

import dataclasses
import os
import posixpath
import re

import numpy as np
from jaxtyping import Int

from jbias import errors
from jbias.data import base, class_maps, sets, tables
from jbias.data.base import Column, Names
from jbias.data.forms import listing
from jbias.data.sets.split_files import SplitFiles

CLASSES = tuple(class_maps.geirhos16())
# The splits of "geirhos".
STIMULI: Names = sets.DATASETS["geirhos"].splits
_SETS = tables.read("model_vs_human")["sets"]
CONDITIONS = {name: tuple(row["conditions"]) for name, row in _SETS.items()}
MODEL_VS_HUMAN_COUNTS = {name: row["images"] for name, row in _SETS.items()}


def read(files: SplitFiles, *, ignore: Names = ()) -> base.Source:
    """Return the source of a split; cue conflict also has columns and measures of shape bias.

    The columns are from `cues`; the measures are "accuracy" and "shape_bias". For cue
    conflict, the root may also be the folder that contains the class folders. ignore: patterns
    of files to skip. ValueError if the class folders are not the 16 classes.
    """
    is_cue_conflict = files.part.base == "cue-conflict"
    has_split = any(os.path.isdir(path) for path in files.folders.values())
    if is_cue_conflict and not has_split and _has_classes(files):
        files = dataclasses.replace(files, spellings=(*files.spellings, "."))
    images = files.find_classes(CLASSES, ignore)
    if not is_cue_conflict:
        return files.build(images, space="entry16")
    return files.build(
        images,
        space="entry16",
        extra=cues(files.where, images.names, CLASSES),
        measures=("accuracy", "shape_bias"),
    )


def _has_classes(files: SplitFiles) -> bool:
    """Return True if the root has a folder for each of the 16 classes."""
    return all(os.path.isdir(os.path.join(files.root, name)) for name in CLASSES)


def cues(where: str, names: Names, classes: Names) -> dict[str, Column]:
    """Return {"texture", "shape_exemplar", "texture_exemplar": column} from file names.

    "cat/cat7-elephant1.png" has the shape of cat7 and the texture of elephant1. "texture" is an
    index in `classes`. Exemplars are numbered from 0; the same picture has the same number
    within a column. ValueError for names without a known texture.
    where: start of error messages.
    """
    columns = {"texture": texture_labels(where, names, classes)}
    exemplars = np.array([re.split("[-_]", stem)[-2:] for stem in _stems(names)]).T
    for name, pictures in zip(("shape_exemplar", "texture_exemplar"), exemplars):
        _, number = np.unique(pictures, return_inverse=True)
        columns[name] = number.astype(np.int32)
    return columns


def _stems(names: Names) -> list[str]:
    """Return file names without folders and the last ending."""
    return [posixpath.splitext(posixpath.basename(name))[0] for name in names]


def texture_labels(where: str, names: Names, classes: Names) -> Column:
    """Return the texture of each image, an index in `classes`, from its name.

    "cat/cat7-elephant1.png" has the texture elephant. ValueError for names without a known
    texture. where: start of error messages.
    """
    stems = [stem.rpartition("-") for stem in _stems(names)]
    tokens = [re.sub(r"\d", "", end) for _, _, end in stems]
    ids = {name: label for label, name in enumerate(classes)}
    wrong = [i for i, token in enumerate(tokens) if token not in ids or not stems[i][1]]
    must = f"{where}: files must be named <shape><i>-<texture><j>"
    hint = errors.suggest(tokens[wrong[0]], classes) if wrong else ""
    errors.refuse_some(
        [names[i] for i in wrong],
        must,
        which="are without a known texture",
        remedy=hint,
    )
    return np.array([ids[token] for token in tokens], np.int32)


def read_trials(
    files: SplitFiles, *, condition: str = "", ignore: Names = ()
) -> base.Source:
    """Return the source of a split, or of one condition such as "c05" of contrast.

    condition: "" for all; if the split has several conditions, the column "condition" then has
    the condition of each image. Classes and conditions are read from the file names; images are
    sorted by class. ignore: patterns of files to skip. ValueError for an unknown condition or
    for file names of a different form.
    """
    where, known = files.where, CONDITIONS[files.part.base]
    path = _find_sessions(where, files.find_folder())
    images = listing.scan_split(where, path, ignore)
    labels, conditions = read_trial_names(
        where, images.names, classes=CLASSES, conditions=known
    )
    index = np.arange(len(conditions))
    if condition != "":
        index = _indices_of(where, str(condition), conditions, known)
    index = index[np.argsort(labels[index], kind="stable")]
    images = images._replace(labels=labels, classes=CLASSES).take(index)
    count, extra, values = MODEL_VS_HUMAN_COUNTS[files.part.base], {}, {}
    if condition != "":
        files = dataclasses.replace(files, split=f"{files.split}/{condition}")
        count //= len(known)
    elif len(known) > 1:
        extra, values = {"condition": conditions[index]}, {"condition": known}
    files = dataclasses.replace(files, published=count)
    return files.build(images, space="entry16", extra=extra, values=values)


def _indices_of(
    where: str, condition: str, conditions: Column, known: Names
) -> Int[np.ndarray, "m"]:
    """Return the ascending indices of the images under one condition.

    ValueError for an unknown condition or if there are no such images. conditions: condition of
    each image, an index in `known`. known: names of the conditions. where: start of error
    messages.
    """
    number = condition_index(condition, known)
    if number is None:
        errors.check_choice(where, condition, known, name="condition")
    index = np.flatnonzero(conditions == number)
    if not index.size:
        must = f"{where}: some images must be under condition {known[number]!r}, none"
        raise ValueError(f"{must} of {len(conditions):,} is; unpack the archive again")
    return index


def read_trial_names(
    where: str, names: Names, classes: Names, conditions: Names
) -> tuple[Column, Column]:
    """Return the class and the condition of each image, from its name.

    The two columns are indices in `classes` and `conditions`. A name is, for example,
    "session-1/0001_cop_dnn_c30_knife_10_n03041632_7380.png". ValueError for a name of a
    different form. where: start of error messages.
    """
    ids, rows = {name: label for label, name in enumerate(classes)}, []
    for name in names:
        cells = posixpath.basename(name).split("_")
        condition = condition_index(cells[3], conditions) if len(cells) > 4 else None
        if condition is None or cells[4] not in ids:
            form = "<number>_<experiment>_dnn_<condition>_<class>_*.png"
            must = f"{where}: files must be named {form}, with one of the 16 classes"
            known = f"a condition of {', '.join(conditions)}"
            got = f"got {name!r}; take the published files as they are"
            raise ValueError(f"{must} and {known}, {got}")
        rows.append((ids[cells[4]], condition))
    return tuple(np.array(rows, np.int32).T)


def _find_sessions(where: str, path: str) -> str:
    """Return the folder of the networks' sessions: <path>/dnn if it exists, else `path`.

    base.Missing if that folder has no folder "session-...". where: start of error messages.
    """
    inner = os.path.join(path, "dnn")
    sessions = inner if os.path.isdir(inner) else path
    if not any(name.startswith("session-") for name in os.listdir(sessions)):
        must = f"{path!r} must have folders dnn/session-1 and so on, got none"
        raise base.Missing(f"{where}: {must}")
    return sessions


def condition_index(text: str, known: Names) -> int | None:
    """Return the index of the condition `text` in `known`; None if it is unknown.

    Numbers are compared by value, "0.10" with "0.1", and words without case.
    """
    keys = [_normalised(name) for name in known]
    return keys.index(_normalised(text)) if _normalised(text) in keys else None


def _normalised(condition: str) -> float | str:
    """Return a condition as a float or, if it is no number, as text in lower case."""
    try:
        return float(condition)
    except ValueError:
        return condition.casefold()
