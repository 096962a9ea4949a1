r"""SimCLR, then a linear head (Chen et al., ICML 2020, arXiv:2002.05709).

Cost: 2 of ERM in the first stage. To fine-tune instead of training a linear head, name
"erm" as the algorithm of the second stage (`--config.stages`). On ImageNet 100 epochs by
LARS at rate 0.075 sqrt(batch), with batches of 1024 (theirs: 4096, up to 1000 epochs), then
90 epochs of the head; on other data their augmentation and temperature for CIFAR-10.
`inputs` apply to the stage of the linear head.

    jbias train --config=configs/simclr.py
    jbias train --config=configs/simclr.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias import config as jc
from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    on_imagenet = common.data_name(arg) == "imagenet"
    strength = 0.8 if on_imagenet else 0.4
    views = [
        dict(name="views", views=2),
        dict(name="random_resized_crop", area=(0.08, 1.0)),
        dict(name="flip"),
        dict(
            name="colour_jitter",
            p=0.8,
            brightness=strength,
            contrast=strength,
            saturation=strength,
            hue=strength / 4,
        ),
        dict(name="grayscale", p=0.2),
    ]
    if on_imagenet:
        views.append(dict(name="blur", p=0.5))
    c = common.experiment(
        arg,
        dict(name="simclr", temperature=0.1 if on_imagenet else 0.5),
        imagenet=dict(epochs=100.0, train=dict(batch=1024, crop="device")),
    )
    head = dict(
        algo=dict(name="linear_probe"),
        epochs=c.epochs * 0.9 if on_imagenet else c.epochs / 2,
        inputs=c.inputs,
        optim=dict(
            c.optim.to_dict(),
            rate=0.4 if on_imagenet else 0.1,  # 0.1 for 256 images.
            decay=0.0,
            nesterov=on_imagenet,
            schedule=dict(name="cosine"),
            warmup="",
        ),
    )
    if on_imagenet:
        c.optim = dict(
            name="lars",
            rate=2.4,
            momentum=0.9,
            decay=1e-4,
            schedule=dict(name="cosine"),
            warmup="" if "smoke" in jc.explicit_arguments(arg) else "10 epochs",
            average=0.0,
            sharpness=c.optim.sharpness.to_dict(),
        )
    c.inputs = tuple(views)
    c.stages = ({}, head)
    return c
