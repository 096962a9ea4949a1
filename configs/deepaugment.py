r"""DeepAugment: images through damaged networks (Hendrycks et al., ICCV 2021).

    jbias prepare deepaugment --data=shapes --net=cae --out=prepared/cae
    jbias prepare deepaugment --data=shapes --net=edsr --out=prepared/edsr
    jbias train --config=configs/deepaugment.py
    jbias train --config=configs/deepaugment.py:nets=cae,prepared=DIR

Source: arXiv:2006.16241. `nets` is cae, edsr or cae+edsr; `prepared` is the folder of the
images made by `jbias prepare deepaugment`: make them from training images only, on
ImageNet with --split='train[:98%]'. Training uses the union of clean and damaged images.
Cost: 1.0 of ERM a step, 2 or 3 times the steps. On ImageNet as the authors: 30 epochs
from trained weights (`init`), batches of 1024, Nesterov, cosine.
"""

from collections.abc import Mapping
from typing import Any

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config.

    arg: `nets`, `prepared` and the arguments of configs/common.py.
    """
    damaged, arg = common.take_arguments(arg, nets="cae+edsr", prepared="prepared")
    nets = damaged.nets.split("+")
    for net in nets:
        if net not in ("cae", "edsr"):
            raise ValueError(
                f"config argument: nets must be cae, edsr or cae+edsr, got {net!r}"
            )
    recipe = dict(nesterov=True, schedule=dict(name="cosine"))
    c = common.experiment(
        arg,
        dict(name="erm"),
        imagenet=dict(epochs=30.0, train=dict(batch=1024), optim=recipe),
    )
    clean = (c.train, *c.train.get("also", ()))
    images = [
        _damaged_images(options, folder=f"{damaged.prepared}/{net}")
        for net in nets
        for options in clean
    ]
    c.train.also = (*clean[1:], *images)
    if "shares" in c.train:  # Equal shares of all domains and networks.
        num_sources = len(clean) + len(images)
        c.train.shares = (1 / num_sources,) * num_sources
        # Whole numbers of images, at least as many as before.
        c.train.batch = -(-c.train.batch // num_sources) * num_sources
    common.add_label(c, damaged.nets)
    return c


def _damaged_images(options: Mapping[str, Any], *, folder: str) -> dict[str, str]:
    """Return the entry of config.train.also for the damaged images of a training set.

    options: of the training set. folder: of the images of one network.
    """
    has_wnids = options["data"] in ("imagenet", "tiny_imagenet")
    return {
        "data": "folder",
        "root": folder,
        "split": options["split"].partition("[")[0],
        "space": options.get("space", "wnid" if has_wnids else "names"),
    }
