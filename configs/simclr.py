r"""SimCLR, then a linear head (Chen et al., ICML 2020, arXiv:2002.05709).

Cost: 2 of ERM in the first stage. `--config.stages` may fine-tune instead: name "erm" as
the second stage's algorithm. On ImageNet 100 epochs by LARS at rate 0.075 sqrt(batch),
here of 1024 images (theirs: 4096, to 1000 epochs), then 90 of the head; elsewhere their
augmentation and temperature for CIFAR-10. `inputs` are those of the linear head's stage.

    jbias train --config=configs/simclr.py
    jbias train --config=configs/simclr.py:data=imagenet,root=DIR

The arguments after the colon stand in configs/common.py.
"""

import ml_collections

from jbias import config as jc
from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """The experiment; see configs/common.py for `arg`."""
    large = common.data_name(arg) == "imagenet"
    strength = 0.8 if large else 0.4
    jitter = dict.fromkeys(("brightness", "contrast", "saturation"), strength)
    views = (
        dict(name="views", views=2),
        dict(name="random_resized_crop", area=(0.08, 1.0)),
        dict(name="flip"),
        dict(name="colour_jitter", p=0.8, **jitter, hue=strength / 4),
        dict(name="grayscale", p=0.2),
        *([dict(name="blur", p=0.5)] if large else []),
    )
    c = common.experiment(
        arg,
        dict(name="simclr", temperature=0.1 if large else 0.5),
        imagenet=dict(epochs=100.0, train=dict(batch=1024, crop="device")),
    )
    head = dict(
        algo=dict(name="linear_probe"),
        epochs=c.epochs * 0.9 if large else c.epochs / 2,
        inputs=c.inputs,
        optim=dict(
            c.optim.to_dict(),
            rate=0.4 if large else 0.1,  # 0.1 for 256 images.
            decay=0.0,
            nesterov=large,
            schedule=dict(name="cosine"),
            warmup="",
        ),
    )
    if large:
        c.optim = dict(
            **dict(name="lars", rate=2.4, momentum=0.9, decay=1e-4),
            schedule=dict(name="cosine"),
            warmup="" if "smoke" in jc.explicit_arguments(arg) else "10 epochs",
            average=0.0,
        )
    c.inputs = views
    c.stages = ({}, head)
    return c
