"""Reader of frequency cue conflicts: low frequencies of one class, high frequencies of another.

Images of 224 pixels with Geirhos' 16 classes in both bands, five for each pair of classes; 80 of
1,280 have one class. Two forms, as published: image files in any folders below <root>/test or
<root>, whose names end in <low class><i>-<high class><j> ("airplane1-bear2.png"), or Parquet files
with the columns image, lf_label and hf_label.

The low frequencies are the label and the high frequencies the column "texture", so that
"shape_bias" is the share of decisions by low frequencies. Source: Gavrikov, Lukasik, Jung, Geirhos,
Mirza, Keuper and Keuper, Can We Talk Models Into Seeing the World Differently?, ICLR 2025,
https://arxiv.org/abs/2403.09193; paulgavrikov/vlm_shapebias at 459198f, README.md and
code/upload_hf_freq_cue_conflict.py, which takes the two classes from the last part of a file's name
behind "_", without digits, and publishes the split test as Parquet files. The Parquet files themselves,
and the folders of the image files before that, were not compared: they are read at any depth.
"""

import dataclasses
import os
import posixpath
import re

import numpy as np

from jbias.data import base
from jbias.data.base import Column, Names
from jbias.data.forms import listing, shards
from jbias.data.sets import geirhos
from jbias.data.sets.split_files import SplitFiles

_LOW, _HIGH = "lf_label", "hf_label"  # Columns of the Parquet files.
_STEM = re.compile(r"(?:.*_)?([a-z]+)\d*-([a-z]+)\d*")


def read(files: SplitFiles, *, ignore: Names = ()) -> base.Source:
    """Return the source of the split, with the column "texture", the class of the high frequencies.

    ignore: patterns of files to skip. base.Missing without images; ValueError for a name or a row
    without two of the 16 classes.
    """
    paths = files.find_shards("parquet")
    if paths:
        images, texts = shards.read_texts(files.where, paths, (_LOW, _HIGH))
        low, high = (_ids(files.where, images.names, texts[x]) for x in (_LOW, _HIGH))
    else:
        files = _find_files(files)
        _check_some(files.where, files.find_folder())
        images = files.find_flat(ignore)
        pairs = _pairs(files.where, images.names)
        low, high = (_ids(files.where, images.names, side) for side in zip(*pairs))
    order = np.argsort(low, kind="stable")
    images = images._replace(labels=low, classes=geirhos.CLASSES)
    return files.build(
        images.take(order),
        space="entry16",
        extra={"texture": high[order]},
        measures=("accuracy", "shape_bias"),
    )


def _find_files(files: SplitFiles) -> SplitFiles:
    """Return the files with the root as the split's folder, unless the split has a folder."""
    if any(os.path.isdir(path) for path in files.folders.values()):
        return files
    return dataclasses.replace(files, spellings=(*files.spellings, "."))


def _check_some(where: str, folder: str) -> None:
    """Raise base.Missing if no image is in the folder, at any depth. where: as in messages."""
    for _, _, names in os.walk(folder):
        if any(map(listing.is_image, names)):
            return
    must = f"{where}: {folder!r} must have images or test-*.parquet, got none"
    raise base.Missing(must)


def _pairs(where: str, names: Names) -> list[tuple[str, str]]:
    """Return the two words in the name of each image file.

    ValueError for a name of another form. where: start of error messages.
    """
    stems = [posixpath.splitext(posixpath.basename(name))[0] for name in names]
    matches = [_STEM.fullmatch(stem) for stem in stems]
    for name, match in zip(names, matches):
        if match is None:
            must = f"{where}: files must be named <low class><i>-<high class><j>"
            raise ValueError(f"{must}, got {name!r}; keep the published names")
    return [match.groups() for match in matches]


def _ids(where: str, names: Names, words: Names) -> Column:
    """Return the number of each word among the 16 classes.

    ValueError for another word; names: the images, for the message. where: its start.
    """
    ids = {name: number for number, name in enumerate(geirhos.CLASSES)}
    for name, word in zip(names, words):
        if word not in ids:
            must = f"{where}: both classes of {name!r} must be among Geirhos' 16"
            raise ValueError(f"{must}, got {word!r}; take the published files")
    return np.array([ids[word] for word in words], np.int32)
