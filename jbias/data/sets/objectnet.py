"""Reader of ObjectNet: everyday objects in unusual positions, for networks of ImageNet's classes.

Layout, as published: <root>/images/<class>/*.png with 313 class folders. Only the 113 classes are
read that consist of classes of ImageNet (class_maps.members("objectnet")); other folders are
ignored. A network's decision is the class of the most probable of these 125 classes of ImageNet.
Two pixels are cut off at each side of an image, since published images have a red border, and
training on the images is refused, since the licence forbids it.

Sources: objectnet-template-pytorch at 50cc886, objectnet_pytorch_dataloader.py, for the border;
imagenet-testbed at 0170eec, src/eval_settings/objectnet.py, for the rule.
"""

import os

from jbias import errors
from jbias.data import base, class_maps
from jbias.data.base import Names
from jbias.data.forms import listing
from jbias.data.sets.split_files import SplitFiles


def read(files: SplitFiles, *, ignore: Names = ()) -> base.Source:
    """Return the source of the images of 113 classes; the root has the folder "images".

    ignore: patterns of files to skip. base.Missing without the folder; ValueError if one of the
    113 class folders is missing or has no images.
    """
    where, path = files.where, files.find_folder()
    classes = tuple(class_maps.members("objectnet"))
    errors.refuse_missing(
        classes,
        {name for name in os.listdir(path) if os.path.isdir(os.path.join(path, name))},
        f"{where}: all {len(classes)} class folders must exist in {path!r}",
        which="are missing",
        remedy="unpack the archive again",
    )
    images = listing.scan(where, path, classes=classes, ignore=ignore)
    return files.build(images, space="objectnet", aggregate="max_prob")
