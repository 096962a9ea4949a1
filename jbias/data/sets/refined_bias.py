"""Reader of REFINED-BIAS: images of one cue, shape without texture or texture without shape.

Layout, as published: <root>/refined_bias_shape/<class>/*.png, white edges on black of 10 classes,
and <root>/refined_bias_texture/<class>/*.png, mosaics of tiles of 10 other classes. The split
"both" has the images of both splits. The column "cue" is 0 for shape and 1 for texture. Classes
consist of classes of ImageNet (class_maps.members("refined_bias")).

No image has conflicting cues: networks are measured by the rank of the cue's class among all of
their classes (jbias/measures/cue_ranks.py). As in the authors' code, the images of 224 pixels are
enlarged to 256 and cropped to 224. Source: Kim, Lee, Park, Han and Yoo, On the Reliability of Cue
Conflict and Beyond, 2026, https://arxiv.org/abs/2603.10834; PumjunKim/REFINED-BIAS at 8655b6b.
"""

import os

import numpy as np

from jbias.data import base, class_maps, tables
from jbias.data.base import Names
from jbias.data.forms import listing
from jbias.data.sets.split_files import SplitFiles

CUES = ("shape", "texture")
BOTH = "both"


def read(files: SplitFiles, *, ignore: Names = ()) -> base.Source:
    """Return the source of a split, with the column "cue".

    ignore: patterns of files to skip. base.Missing without the folder of a cue; ValueError if its
    class folders are not the published ones.
    """
    cues = CUES if files.part.base == BOTH else (files.part.base,)
    table, folders = tables.read("refined_bias"), {}
    for cue in cues:
        folder = f"refined_bias_{cue}"
        path = os.path.join(files.root, folder)
        path = listing.require_folder(files.where, path, f"the images of {cue}")
        names = listing.class_folders(files.where, path)
        listing.match_classes(files.where, names, tuple(table[cue]))
        folders.update({f"{folder}/{name}": name for name in table[cue]})
    images = listing.scan(files.where, files.root, tuple(folders), ignore)
    known = [
        name for name in class_maps.members("refined_bias") if name in folders.values()
    ]
    ids = {folder: known.index(name) for folder, name in folders.items()}
    labels = np.array([ids[images.classes[i]] for i in images.labels], np.int32)
    is_texture = [name.startswith("refined_bias_texture/") for name in images.names]
    return files.build(
        images._replace(labels=labels, classes=tuple(known)),
        space="refined_bias",
        aggregate="max_prob",
        extra={"cue": np.array(is_texture, np.int32)},
        values={"cue": CUES},
        measures=("accuracy", "cue_rank"),
    )
