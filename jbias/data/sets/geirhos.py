"""Stimuli with Geirhos' 16 classes: cue conflict, edges, silhouettes, and model-vs-human.

The set "geirhos" (Geirhos et al. 2019) lies in <root>/<split>/<shape class>/*.png, 224
pixels as published or made smaller; the folder names of the authors' repository are known
too. The shape is the folder; in cue conflict the texture is the last "-" token of the file's
stem without its digits. The published 1,280 have 80 images whose texture agrees with the
shape: they stay in the set, for accuracy, and are recognised by texture == label. Columns
shape_exemplar and texture_exemplar say which pictures an image is made of.

The set "model_vs_human" has fourteen sets of photos distorted by degrees, sketches and
styles, as published in <root>/<set>/dnn/session-1/*.png, 224 pixels, where a name reads
<number>_<experiment>_dnn_<condition>_<class>_<rest>.png. Each set but sketch and stylized
shows the same kind of images under several conditions, equally often. Its other three sets,
edge, silhouette and cue-conflict, are those of "geirhos", with the same folders.

Source of the latter: bethgelab/model-vs-human at 79ed7cd, modelvshuman/datasets:
info_mappings.py for names, experiments.py for conditions; counts are those of a subject's
trials in raw-data.
"""

import os
import posixpath
import re

import numpy as np
from jaxtyping import Int

from jbias.data import base, labels, tables
from jbias.data.base import Column, Names
from jbias.data.forms import listing
from jbias.data.sets import folder

CLASSES = tuple(labels.geirhos16())
# The splits of "geirhos".
STIMULI: Names = tuple(tables.data_sets()["geirhos"]["images"])
_SETS = tables.read("model_vs_human")["sets"]
CONDITIONS = {name: tuple(row["conditions"]) for name, row in _SETS.items()}
MODEL_VS_HUMAN_COUNTS = {name: row["images"] for name, row in _SETS.items()}


def read(request: folder.Request, *, ignore: Names = ()) -> base.Source:
    """Lists a split; of cue conflict also the other cue, and the measure of both.

    The root may be the folder of cue conflicts itself, with a folder for each class.
    """
    is_split = any(os.path.isdir(path) for path in request.folders.values())
    if request.part.base == "cue-conflict" and not is_split and _has_classes(request):
        request = request._replace(spellings=(*request.spellings, "."))
    found, more = folder.list_known(request, CLASSES, ignore), {}
    if request.part.base == "cue-conflict":
        extra = cues(request.where, found.names, CLASSES)
        more = {"extra": extra, "measures": ("accuracy", "shape_bias")}
    return folder.build(request, found, space="entry16", **more)


def _has_classes(request: folder.Request) -> bool:
    """Return whether the root has a folder for each of the 16 classes."""
    return all(os.path.isdir(os.path.join(request.root, name)) for name in CLASSES)


def cues(where: str, names: Names, classes: Names) -> dict[str, Column]:
    """Of each image the texture's class, and which pictures its two cues are from.

    "cat/cat7-elephant1.png" has the shape of cat7 and the texture of elephant1; equal
    ones have equal numbers in shape_exemplar and texture_exemplar.
    """
    found = {"texture": texture_labels(where, names, classes)}
    pictures = np.array([re.split("[-_]", stem)[-2:] for stem in _stems(names)]).T
    for column, of in zip(("shape_exemplar", "texture_exemplar"), pictures):
        found[column] = np.unique(of, return_inverse=True)[1].astype(np.int32)
    return found


def _stems(names: Names) -> list[str]:
    return [posixpath.splitext(posixpath.basename(name))[0] for name in names]


def texture_labels(where: str, names: Names, classes: Names) -> Column:
    """Reads texture classes from names such as "cat/cat7-elephant1.png"."""
    parts = [stem.rpartition("-") for stem in _stems(names)]
    tokens = [re.sub(r"\d", "", end) for _, _, end in parts]
    ids = {name: label for label, name in enumerate(classes)}
    wrong = [i for i, token in enumerate(tokens) if token not in ids or not parts[i][1]]
    must = f"{where}: files must be named <shape><i>-<texture><j>"
    hint = base.did_you_mean(tokens[wrong[0]], classes) if wrong else ""
    unknown = [names[i] for i in wrong]
    base.refuse_some(unknown, must, "are without a known texture", hint)
    return np.array([ids[token] for token in tokens], np.int32)


def read_trials(
    request: folder.Request, *, condition: str = "", ignore: Names = ()
) -> base.Source:
    """Lists one set, or its images under one condition such as "c05" of contrast.

    Without `condition` the column of that name says which each image is under.
    """
    where, known = request.where, CONDITIONS[request.part.base]
    place = _sessions(where, folder.find_folder(request))
    found = listing.scan_split(where, place, ignore)
    label, levels = read_trial_names(where, found.names, CLASSES, known)
    kept = np.arange(len(levels))
    if condition != "":
        kept = _under(where, str(condition), levels, known)
    kept = kept[np.argsort(label[kept], kind="stable")]
    found = found._replace(labels=label, classes=CLASSES).take(kept)
    count, more = MODEL_VS_HUMAN_COUNTS[request.part.base], {}
    if condition != "":
        request = request._replace(split=f"{request.split}/{condition}")
        count //= len(known)
    elif len(known) > 1:
        more = dict(extra={"condition": levels[kept]}, values={"condition": known})
    request = request._replace(published=count)
    return folder.build(request, found, space="entry16", **more)


def _under(where, condition, levels, known) -> Int[np.ndarray, "m"]:
    """Indices of the images under one condition."""
    if (chosen := condition_index(condition, known)) is None:
        base.check_choice(f"{where}: condition", condition, known)
    kept = np.flatnonzero(levels == chosen)
    if not kept.size:
        must = f"{where}: some images must be under condition {known[chosen]!r}, none"
        raise ValueError(f"{must} of {len(levels):,} is; unpack the archive again")
    return kept


def read_trial_names(
    where: str, names: Names, classes: Names, conditions: Names
) -> tuple[Column, Column]:
    """Reads classes and conditions, by number, from names such as
    "session-1/0001_cop_dnn_c30_knife_10_n03041632_7380.png".
    """
    ids, rows = {name: label for label, name in enumerate(classes)}, []
    for name in names:
        cells = posixpath.basename(name).split("_")
        degree = condition_index(cells[3], conditions) if len(cells) > 4 else None
        if degree is None or cells[4] not in ids:
            form = "<number>_<experiment>_dnn_<condition>_<class>_*.png"
            must = f"{where}: files must be named {form}, with one of the 16 classes"
            known = f"a condition of {', '.join(conditions)}"
            got = f"got {name!r}; take the published files as they are"
            raise ValueError(f"{must} and {known}, {got}")
        rows.append((ids[cells[4]], degree))
    return tuple(np.array(rows, np.int32).T)


def _sessions(where: str, path: str) -> str:
    """The folder of the sessions that networks see."""
    inner = os.path.join(path, "dnn")
    place = inner if os.path.isdir(inner) else path
    if not any(name.startswith("session-") for name in os.listdir(place)):
        what = f"{path!r} must have folders dnn/session-1 and so on, got none"
        raise base.Missing(f"{where}: {what}")
    return place


def condition_index(text: str, known: Names) -> int | None:
    """The number of a condition; "0.10" is "0.1", and "true" is "True"."""
    keys = [_plain(name) for name in known]
    return keys.index(_plain(text)) if _plain(text) in keys else None


def _plain(condition: str) -> float | str:
    try:
        return float(condition)
    except ValueError:
        return condition.casefold()
