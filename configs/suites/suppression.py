r"""Feature suppression: accuracy without shape, texture or colour, as in "ImageNet-trained
CNNs are not biased towards texture" (Burgert et al., https://arxiv.org/abs/2509.20234).

    jbias evaluate --checkpoint='runs/*' --suite=configs/suites/suppression.py
    jbias evaluate --checkpoint=resnet50.pth --model=resnet50 \
        --suite=configs/suites/suppression.py:data=imagenet,root=/data/imagenet,images=1000

:data=shapes        the embedded set (the default), for networks that were trained on it
:data=imagenet,root=...
                    for networks of ImageNet's 1000 classes; root has val/. Also what people
                    saw, on 50 images of each of 16 classes
:data=tiny_imagenet,root=...
                    cifar10, cifar100, or folder: one's own images, root/<split>/<class>/
:split=             which of it; "" is test, for ImageNet and Tiny ImageNet val
:correlation=0.99   of the embedded set, as in training
:subset             of ImageNet's classes some are absent
:size=0             pixels, at least 32; 0 is 32 for shapes and CIFAR, 64 for Tiny ImageNet,
                    224 for others
:images=0           how many images of a set are shown under all 69 conditions; 0 is all,
                    fewer are evenly spaced
:smoke              16 images

Lengths in pixels, such as the bilateral filter's, follow the side from the published 224
pixels. That does next to nothing to small images: up to 64 pixels the blur is left out, which
leaves 62 conditions, and lengths follow the side from 64
(`--suite.measures.suppression.reference=224` takes the published ones).
`--suite.measures.suppression.families="('people',)"` shows some conditions
(docs/measures.md).
"""

import types

import ml_collections

from jbias.configs import suites

_FILES = ("root", "split")
ARGUMENTS = types.MappingProxyType(
    {
        "shapes": ("correlation",),
        "imagenet": (*_FILES, "subset"),
        **dict.fromkeys(("tiny_imagenet", "cifar10", "cifar100", "folder"), _FILES),
    }
)


def get_config(text: str = "") -> ml_collections.ConfigDict:
    """The suite; see the top of this file for `text`."""
    arg = suites.parse_arguments(
        text, ARGUMENTS, root="", split="", subset=False, correlation=0.99
    )
    if arg.smoke:
        arg.images = arg.images or 16
    split, size = suites.SETS[arg.data]
    split = arg.split or split
    c = ml_collections.ConfigDict()
    c.run = suites.run_options()
    c.size, own = arg.size or size, dict(data=arg.data, split=split)
    if arg.data == "shapes":
        own |= dict(correlation=arg.correlation)
    else:
        own |= dict(root=arg.root, **(dict(subset=True) if arg.subset else {}))
    clean = "imagenet" if arg.data == "imagenet" else split.partition("[")[0]
    c.sets = {clean: own, **suites.people_sets(arg.data, own)}
    c.measures = dict(
        accuracy=dict(probe="plain", sets=tuple(c.sets), images=arg.images)
    )
    c.measures.update(suites.suppression_measures(arg, clean, c.size))
    return c
