r"""Feature suppression: accuracy without shape, texture or colour, as in "ImageNet-trained
CNNs are not biased towards texture" (Burgert et al., https://arxiv.org/abs/2509.20234).

    jbias evaluate --checkpoint='runs/*' --suite=configs/suites/suppression.py
    jbias evaluate --checkpoint=resnet50.pth --model=resnet50 \
        --suite=configs/suites/suppression.py:data=imagenet,root=/data/imagenet,images=1000

:data=shapes        the embedded set (the default), for networks that were trained on it
:data=imagenet,root=...
                    for networks of ImageNet's 1000 classes; root has val/. Includes the
                    conditions of the study with people, on 50 images of each of 16 classes
:data=tiny_imagenet,root=...
                    cifar10, cifar100, or folder: your own images, root/<split>/<class>/
:split=             split whose images are used; "": val for ImageNet and Tiny ImageNet,
                    test for other data sets
:correlation=0.99   for data=shapes: fraction of the images, 0 to 1, whose texture agrees with
                    their class; use the value of training
:subset             allows a root that has only some of ImageNet's classes
:size=0             image side in pixels, at least 32; 0: 32 for shapes and CIFAR, 64 for
                    Tiny ImageNet, 224 for others
:images=0           number of images per set, taken at even distances; 0: all. Each image is
                    measured in all 69 conditions
:smoke              for a test: 16 images

Lengths in pixels, such as that of the bilateral filter, are scaled with the image side from
the published 224 pixels. Scaled in this way, they would hardly change small images: up to 64
pixels the blur is left out, which leaves 62 conditions, and lengths are scaled from a side of 64
(`--suite.measures.suppression.reference=224` restores the published scaling).
`--suite.measures.suppression.families="('people',)"` selects conditions
(docs/measures.md).
"""

import types

import ml_collections

from jbias.configs import suites

ARGUMENTS = types.MappingProxyType(
    {
        "shapes": ("correlation",),
        "imagenet": ("root", "split", "subset"),
        "tiny_imagenet": ("root", "split"),
        "cifar10": ("root", "split"),
        "cifar100": ("root", "split"),
        "folder": ("root", "split"),
    }
)


def get_config(text: str = "") -> ml_collections.ConfigDict:
    """Return the suite; the top of this file documents `text`."""
    arg = suites.parse_arguments(
        text, ARGUMENTS, root="", split="", subset=False, correlation=0.99
    )
    if arg.smoke:
        arg.images = arg.images or 16
    default_split, default_size = suites.SETS[arg.data]
    split = arg.split or default_split
    c = ml_collections.ConfigDict()
    c.run = suites.run_options()
    c.size = arg.size or default_size
    options = dict(data=arg.data, split=split)
    if arg.data == "shapes":
        options["correlation"] = arg.correlation
    else:
        options["root"] = arg.root
        if arg.subset:
            options["subset"] = True
    clean = "imagenet" if arg.data == "imagenet" else split.partition("[")[0]
    c.sets = {clean: options, **suites.people_sets(arg.data, options)}
    c.measures = dict(
        accuracy=dict(probe="plain", sets=tuple(c.sets), images=arg.images)
    )
    c.measures.update(suites.suppression_measures(arg, clean, c.size))
    return c
