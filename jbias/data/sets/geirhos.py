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
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from jbias.data import base, labels, sources, tables
from jbias.data.forms import listing
from jbias.data.sets import folder


def _further(where: str, split: str, files: listing.Files) -> dict[str, Any]:
    """Of cue conflict, the columns of the other cue and the measure of both."""
    if split != "cue-conflict":
        return {}
    extra = cues(where, files.names, tuple(labels.geirhos16()))
    return {"extra": extra, "measures": ("accuracy", "shape_bias")}


def cues(
    where: str, names: Sequence[str], classes: Sequence[str]
) -> dict[str, Int[np.ndarray, "n"]]:
    """Of each image the texture's class, and which pictures its two cues are from.

    "cat/cat7-elephant1.png" has the shape of cat7 and the texture of elephant1; equal
    ones have equal numbers in shape_exemplar and texture_exemplar.
    """
    found = {"texture": texture_labels(where, names, classes)}
    stems = [posixpath.splitext(posixpath.basename(name))[0] for name in names]
    for column, pictures in (
        ("shape_exemplar", [re.split("[-_]", stem)[-2] for stem in stems]),
        ("texture_exemplar", [stem.rpartition("-")[2] for stem in stems]),
    ):
        numbers = {picture: i for i, picture in enumerate(sorted(set(pictures)))}
        found[column] = np.array([numbers[one] for one in pictures], np.int32)
    return found


def texture_labels(
    where: str, names: Sequence[str], classes: Sequence[str]
) -> Int[np.ndarray, "n"]:
    """Reads texture classes from names such as "cat/cat7-elephant1.png"."""
    stems = [posixpath.splitext(posixpath.basename(name))[0] for name in names]
    tokens = [re.sub(r"\d", "", stem.rpartition("-")[2]) for stem in stems]
    ids = {name: label for label, name in enumerate(classes)}
    wrong = [i for i, token in enumerate(tokens) if token not in ids]
    wrong += [i for i, stem in enumerate(stems) if "-" not in stem and i not in wrong]
    if wrong:
        raise ValueError(
            f"{where}: files must be named <shape><i>-<texture><j>, got {len(wrong)}"
            f" without a known texture, first {names[wrong[0]]!r};"
            f" {base.did_you_mean(tokens[wrong[0]], classes)}"
        )
    return np.array([ids[token] for token in tokens], np.int32)


_SETS = tables.read("model_vs_human")["sets"]
CONDITIONS: Mapping[str, tuple[str, ...]] = {
    name: tuple(row["conditions"]) for name, row in _SETS.items()
}
MODEL_VS_HUMAN_COUNTS: Mapping[str, int] = {
    name: row["images"] for name, row in _SETS.items()
}


def model_vs_human(
    request: folder.Request, *, condition: str = "", ignore: Sequence[str] = ()
) -> sources.EncodedSource:
    """Lists one set, or its images under one condition such as "c05" of contrast.

    Without `condition` the column of that name says which each image is under.
    """
    where, known = request.where, CONDITIONS[request.part.base]
    place = _sessions(where, folder.find_folder(request))
    sessions = listing.class_folders(where, place)
    files = listing.scan(where, place, {name: name for name in sessions}, ignore)
    classes = tuple(labels.geirhos16())
    found, levels = read_trial_names(where, files.names, classes, known)
    kept = _under(where, str(condition), levels, known)
    kept = kept[np.argsort(found[kept], kind="stable")]
    files, levels = files._replace(labels=found).take(kept), levels[kept]
    one, split = condition != "", request.split
    several = not one and len(known) > 1
    count = MODEL_VS_HUMAN_COUNTS[request.part.base] // (len(known) if one else 1)
    return folder.build(
        request._replace(
            split=f"{split}/{condition}" if one else split, published=count
        ),
        folder.in_folder(place, files, classes),
        space="entry16",
        extra={"condition": levels} if several else None,
        values={"condition": known} if several else {},
    )


def _under(where, condition, levels, known) -> Int[np.ndarray, "m"]:
    """Indices of the images under one condition, or of all if it is ""."""
    if not condition:
        return np.arange(len(levels))
    chosen = condition_index(condition, known)
    if chosen is None:
        raise ValueError(
            f"{where}: condition must be one of {', '.join(known)}, got {condition!r}"
        )
    (kept,) = np.nonzero(levels == chosen)
    if not kept.size:
        raise ValueError(
            f"{where}: some images must be under condition {known[chosen]!r}, none of"
            f" {len(levels):,} is; unpack the archive again"
        )
    return kept


def read_trial_names(
    where: str, names: Sequence[str], classes: Sequence[str], conditions: Sequence[str]
) -> tuple[Int[np.ndarray, "n"], Int[np.ndarray, "n"]]:
    """Reads classes and conditions, by number, from names such as
    "session-1/0001_cop_dnn_c30_knife_10_n03041632_7380.png".
    """
    ids = {name: label for label, name in enumerate(classes)}
    rows = []
    for name in names:
        cells = posixpath.basename(name).split("_")
        degree = condition_index(cells[3], conditions) if len(cells) > 4 else None
        if degree is None or cells[4] not in ids:
            raise ValueError(
                f"{where}: files must be named <number>_<experiment>_dnn_<condition>_"
                f"<class>_*.png, with a condition of {', '.join(conditions)} and one of"
                f" the 16 classes, got {name!r}; take the published files as they are"
            )
        rows.append((ids[cells[4]], degree))
    found, levels = np.array(rows, np.int32).T
    return found, levels


def _sessions(where: str, path: str) -> str:
    """The folder of the sessions that networks see."""
    inner = os.path.join(path, "dnn")
    place = inner if os.path.isdir(inner) else path
    if not any(name.startswith("session-") for name in os.listdir(place)):
        raise base.Missing(
            f"{where}: {path!r} must have folders dnn/session-1 and so on, got none"
        )
    return place


def condition_index(text: str, known: Sequence[str]) -> int | None:
    """The number of a condition; "0.10" is "0.1", and "true" is "True"."""
    for i, name in enumerate(known):
        if text.casefold() == name.casefold() or _same_number(text, name):
            return i
    return None


def _same_number(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return False


_SIXTEEN = tuple(labels.geirhos16())
SPECS: Mapping[str, base.Spec] = {
    "geirhos": folder.spec(
        "geirhos",
        folder.read_known(_SIXTEEN, space="entry16", further=_further),
        native=True,
    ),
    "model_vs_human": folder.spec(
        "model_vs_human",
        model_vs_human,
        CONDITIONS,
        native=True,
        narrows=("condition",),
    ),
}
