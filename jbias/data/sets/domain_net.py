"""Reader of DomainNet: 345 classes in six domains, with or without its duplicates.

Layout, as published and unpacked: <root>/<domain>/<class>/*.{jpg,png}. The archives have 9,431
images that the published lists leave out as duplicates. If both lists of a domain,
<root>/<domain>_train.txt and <root>/<domain>_test.txt, are there, only the images in the lists are
read, which are those of DomainBed; otherwise all images are read, with a note.

Source: Peng, Bai, Xia, Huang, Saenko and Wang, Moment Matching for Multi-Source Domain Adaptation,
ICCV 2019, https://arxiv.org/abs/1812.01754; facebookresearch/DomainBed at b93c22a,
scripts/download.py and misc/domain_net_duplicates.txt.
"""

import os

import numpy as np

from jbias import errors
from jbias.data import base, tables
from jbias.data.base import Names
from jbias.data.forms import listing
from jbias.data.sets.split_files import SplitFiles


def read(files: SplitFiles, *, ignore: Names = ()) -> base.Source:
    """Return the source of a domain.

    ignore: patterns of files to skip. ValueError if the class folders differ from the published
    classes, if one of the two lists is missing, and if a listed image does not exist.
    """
    images = files.find_classes(tables.class_names(files.name), ignore)
    listed = _read_lists(files)
    if listed:
        errors.refuse_missing(
            sorted(listed),
            {*images.names},
            f"{files.where}: every image of the lists must be in the folder",
            which="are not",
            remedy="unpack the archive again",
        )
        index = [i for i, name in enumerate(images.names) if name in listed]
        images = images.take(np.array(index))
    return files.build(images)


def _read_lists(files: SplitFiles) -> set[str]:
    """Return the images of both lists, "aircraft_carrier/clipart_001_000001.jpg"; {} without lists.

    ValueError if only one list is there, and for a line of another form.
    """
    domain, names = files.part.base, set()
    paths = [os.path.join(files.root, f"{domain}_{x}.txt") for x in ("train", "test")]
    missing = [path for path in paths if not os.path.isfile(path)]
    if len(missing) == len(paths):
        return set()
    if missing:
        must = f"{files.where}: both lists of the domain must be there, or none"
        raise ValueError(f"{must}, {missing[0]!r} is missing; download it")
    for path in paths:
        for i, line in enumerate(
            listing.text_lines(path, f"{path}: must be a list: "), 1
        ):
            name, _, number = line.rpartition(" ")
            folder, _, image = name.partition("/")
            if folder != domain or not image or not number.isdigit():
                must = f"{path}:{i}: a line must read {domain}/<class>/<file> <number>"
                raise ValueError(f"{must}, got {line[:60]!r}; download it again")
            names.add(image)
    return names
