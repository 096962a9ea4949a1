"""Readers of images in class folders or shards: users' own, and sets with published classes."""

import os

from jbias.data import base, tables
from jbias.data.base import Names
from jbias.data.sets import split_files
from jbias.data.sets.split_files import SplitFiles


def read(
    files: SplitFiles, *, space: str = "names", classes: str = "", ignore: Names = ()
) -> base.Source:
    """Return the source of a split in class folders, <root>/<split>/<class>/**, or in shards.

    space: the kind of class names: "names" of their own, WordNet ids ("wnid"), or Geirhos'
      16 ("entry16").
    classes: a file with a class name per line, for shards whose labels are numbers.
    ignore: patterns of files to skip.
    ValueError, also base.Missing, if the split does not exist or is invalid.
    """
    recorded_fields = split_files.provenance(
        os.path.join(files.root, f"{files.part.base}.json")
    )
    images = files.find(ignore)
    return files.build_named(images, space=space, path=classes, **recorded_fields)


def read_known(files: SplitFiles, *, ignore: Names = ()) -> base.Source:
    """Return the source of a split of a data set with published classes, such as PACS.

    ignore: patterns of files to skip. ValueError if the class folders differ from the published
    classes.
    """
    classes = tables.class_names(files.name)
    return files.build(files.find_classes(classes, ignore))
