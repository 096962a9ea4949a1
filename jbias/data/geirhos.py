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
from types import MappingProxyType

import numpy as np
from jaxtyping import Int

from jbias.data import base, folder, labels, listing, sources, transforms

CITE = (
    "Geirhos, Rubisch, Michaelis, Bethge, Wichmann and Brendel: ImageNet-trained CNNs"
    " are biased towards texture; increasing shape bias improves accuracy and"
    " robustness. ICLR 2019, https://arxiv.org/abs/1811.12231"
)
COUNTS: Mapping[str, int] = MappingProxyType(
    {"edge": 160, "silhouette": 160, "cue-conflict": 1280}
)
# The folders of rgeirhos/texture-vs-shape/stimuli.
SPELLINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "edge": ("edges",),
        "silhouette": ("filled-silhouettes",),
        "cue-conflict": ("style-transfer-preprocessed-512",),
    }
)


def make(
    split: str,
    *,
    root: str,
    size: int = 224,
    resize: int | None = None,
    crop: bool = True,
    ignore: Sequence[str] = (),
) -> sources.EncodedSource:
    """Lists one set of stimuli; images of `size` are used as they are.

    resize=256 with size=224 cuts the outer 12.5 % off, as BiasBed did.
    """
    where = f"data.geirhos {split}"
    spellings = SPELLINGS.get(split.partition("[")[0], ())
    path, part = folder.find_folder(where, root, split, spellings)
    classes = tuple(labels.geirhos16())
    listing.match_classes(where, listing.class_folders(where, path), classes)
    files = listing.scan(where, path, {name: name for name in classes}, ignore)
    conflict = part.base == "cue-conflict"
    return folder.build(
        where,
        part,
        store=sources.FileStore(path, files.names),
        files=files,
        name=f"geirhos/{split}",
        classes=classes,
        space="entry16",
        transform=transforms.preprocess(size, resize, crop, native=True),
        extra=cues(where, files.names, classes) if conflict else None,
        published=COUNTS.get(part.base),
        measures=("accuracy", "shape_bias") if conflict else ("accuracy",),
        cite=CITE,
    )


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


SPEC = base.Spec(
    make,
    splits=tuple(COUNTS),
    cite=CITE,
    licence="CC BY 4.0 (DATASET_LICENSE of rgeirhos/texture-vs-shape)",
    about=(
        "16 classes: edge 160, silhouette 160, cue-conflict 1,280 (80 agree):"
        " <root>/<split>/<shape>/*.png"
    ),
    size="at most 0.3 GB",
    where="https://github.com/rgeirhos/texture-vs-shape",
)

MODEL_VS_HUMAN_CITE = (
    "Geirhos, Narayanappa, Mitzkus, Thieringer, Bethge, Wichmann and Brendel: Partial"
    " success in closing the gap between human and machine vision. NeurIPS 2021,"
    " https://arxiv.org/abs/2106.07411; images of Geirhos, Medina Temme, Rauber,"
    " Schütt, Bethge and Wichmann, NeurIPS 2018, https://arxiv.org/abs/1808.08750"
)
_REACH = ("1", "2", "4", "8", "16", "32", "64", "128")
CONDITIONS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "colour": ("cr", "bw"),
        "contrast": ("c100", "c50", "c30", "c15", "c10", "c05", "c03", "c01"),
        "high-pass": ("inf", "3.0", "1.5", "1.0", "0.7", "0.55", "0.45", "0.4"),
        "low-pass": ("0", "1", "3", "5", "7", "10", "15", "40"),
        "phase-scrambling": ("0", "30", "60", "90", "120", "150", "180"),
        "power-equalisation": ("0", "pow"),
        "false-colour": ("True", "False"),
        "rotation": ("0", "90", "180", "270"),
        "eidolonI": tuple(f"{reach}-10-10" for reach in _REACH),
        "eidolonII": tuple(f"{reach}-3-10" for reach in _REACH),
        "eidolonIII": tuple(f"{reach}-0-10" for reach in _REACH),
        "uniform-noise": ("0.0", "0.03", "0.05", "0.1", "0.2", "0.35", "0.6", "0.9"),
        "sketch": ("0",),
        "stylized": ("0",),
    }
)
MODEL_VS_HUMAN_COUNTS: Mapping[str, int] = MappingProxyType(
    dict.fromkeys(CONDITIONS, 1280)
    | dict.fromkeys(("phase-scrambling", "power-equalisation", "false-colour"), 1120)
    | dict.fromkeys(("sketch", "stylized"), 800)
)


def model_vs_human(
    split: str,
    *,
    root: str,
    condition: str = "",
    size: int = 224,
    resize: int | None = None,
    crop: bool = True,
    ignore: Sequence[str] = (),
) -> sources.EncodedSource:
    """Lists one set, or its images under one condition such as "c05" of contrast.

    Without `condition` the column of that name says which each image is under.
    """
    where = f"data.model_vs_human {split}"
    path, part = folder.find_folder(where, root, split)
    known = CONDITIONS[part.base]
    place = _sessions(where, path)
    sessions = listing.class_folders(where, place)
    files = listing.scan(where, place, {name: name for name in sessions}, ignore)
    classes = tuple(labels.geirhos16())
    found, levels = read_trial_names(where, files.names, classes, known)
    kept = _under(where, str(condition), levels, known)
    kept = kept[np.argsort(found[kept], kind="stable")]
    files, levels = files._replace(labels=found).take(kept), levels[kept]
    one = condition != ""
    told = not one and len(known) > 1
    return folder.build(
        where,
        part,
        store=sources.FileStore(place, files.names),
        files=files,
        name=f"model_vs_human/{split}" + (f"/{condition}" if one else ""),
        classes=classes,
        space="entry16",
        transform=transforms.preprocess(size, resize, crop, native=True),
        extra={"condition": levels} if told else None,
        values={"condition": known} if told else {},
        published=MODEL_VS_HUMAN_COUNTS[part.base] // (len(known) if one else 1),
        cite=MODEL_VS_HUMAN_CITE,
    )


def _under(
    where: str, condition: str, levels: Int[np.ndarray, "n"], known: Sequence[str]
) -> Int[np.ndarray, "m"]:
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


MODEL_VS_HUMAN_SPEC = base.Spec(
    model_vs_human,
    splits=tuple(CONDITIONS),
    cite=MODEL_VS_HUMAN_CITE,
    licence=(
        "photos ImageNet's terms of access: non-commercial research and education;"
        " sketch MIT (licenses/LICENSES_OVERVIEW.md of the authors)"
    ),
    about=(
        "16 classes under distortions by degrees, 1,280 images a set (phase-scrambling,"
        " power-equalisation, false-colour 1,120; sketch, stylized 800):"
        " <root>/<set>/dnn/session-1/*.png"
    ),
    size="at most 0.2 GB a set",
    where="https://github.com/bethgelab/model-vs-human/releases/tag/v0.1",
    narrows=("condition",),
)
