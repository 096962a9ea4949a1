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
    split = c.train.split.partition("[")[0]
    has_wnids = c.train.data in ("imagenet", "tiny_imagenet")
    space = c.train.get("space", "wnid" if has_wnids else "names")
    c.train.also = tuple(
        dict(data="folder", root=f"{damaged.prepared}/{net}", split=split, space=space)
        for net in nets
    )
    common.add_label(c, damaged.nets)
    return c
