r"""DeepAugment: images through damaged networks (Hendrycks et al., ICCV 2021).

    jbias prepare deepaugment --data=shapes --net=cae --out=prepared/cae
    jbias prepare deepaugment --data=shapes --net=edsr --out=prepared/edsr
    jbias train --config=configs/deepaugment.py
    jbias train --config=configs/deepaugment.py:nets=cae,prepared=DIR

Source: arXiv:2006.16241. `nets` is cae, edsr or cae+edsr; `prepared` is where the images
that `prepare deepaugment` made lie: make them of the part that trains alone, on ImageNet
--split='train[:98%]'. Trains on the union of the clean images and these.
Cost: 1.0 of ERM a step, 2 or 3 times the steps. On ImageNet as the authors: 30 epochs
from trained weights (`init`), batches of 1024, Nesterov, cosine.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """The experiment; `nets` and `prepared` beside the arguments of configs/common.py."""
    mine, rest = common.take_arguments(arg, nets="cae+edsr", prepared="prepared")
    nets = mine.nets.split("+")
    for net in nets:
        if net not in ("cae", "edsr"):
            raise ValueError(
                f"config argument: nets must be cae, edsr or cae+edsr, got {net!r}"
            )
    recipe = dict(nesterov=True, schedule=dict(name="cosine"))
    c = common.experiment(
        rest,
        dict(name="erm"),
        imagenet=dict(epochs=30.0, train=dict(batch=1024), optim=recipe),
    )
    split = c.train.split.partition("[")[0]
    names = "wnid" if c.train.data in ("imagenet", "tiny_imagenet") else "names"
    space = c.train.get("space", names)
    c.train.also = tuple(
        dict(data="folder", root=f"{mine.prepared}/{net}", split=split, space=space)
        for net in nets
    )
    common.add_label(c, mine.nets)
    return c
