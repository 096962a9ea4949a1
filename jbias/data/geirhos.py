"""Stimuli of Geirhos et al. 2019: edges, filled silhouettes, cue conflict; 16 classes.

Layout: <root>/<split>/<shape class>/*.png, 224 pixels as published or made smaller;
the folder names of the authors' repository are known too. The shape is the folder; in
cue conflict the texture is the last "-" token of the file's stem without its digits.
The published 1,280 have 80 images whose texture agrees with the shape: they stay in
the set, for accuracy, and are told from the others by texture == label. Columns
shape_exemplar and texture_exemplar tell which pictures an image is made of.
"""

import posixpath
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from jaxtyping import Int

from jbias.data import folder, labels, listing, sources, spec, stores, transforms

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
    path, part = folder.find(where, root, split, spellings)
    classes = tuple(labels.geirhos16())
    listing.match_classes(where, listing.class_folders(where, path), classes)
    files = listing.scan(where, path, {name: name for name in classes}, ignore)
    conflict = part.base == "cue-conflict"
    return folder.build(
        where,
        part,
        store=stores.Files(path, files.names),
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
    found = {"texture": textures(where, names, classes)}
    stems = [posixpath.splitext(posixpath.basename(name))[0] for name in names]
    for column, pictures in (
        ("shape_exemplar", [re.split("[-_]", stem)[-2] for stem in stems]),
        ("texture_exemplar", [stem.rpartition("-")[2] for stem in stems]),
    ):
        numbers = {picture: i for i, picture in enumerate(sorted(set(pictures)))}
        found[column] = np.array([numbers[one] for one in pictures], np.int32)
    return found


def textures(
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
            f" {spec.did_you_mean(tokens[wrong[0]], classes)}"
        )
    return np.array([ids[token] for token in tokens], np.int32)


SPEC = spec.Spec(
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
