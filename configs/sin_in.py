r"""ERM on images and stylised images, then on images alone (Geirhos et al., ICLR 2019).

    jbias train --config=configs/sin_in.py
    jbias train --config=configs/sin_in.py:share=0.25

Source: arXiv:1811.12231, "SIN+IN" and its fine-tuning. `share` of each batch is stylised
in the first stage; a half is the authors' union. Three fifths of the epochs are the
first stage's. Styles, `transfer` and `weights` are those of configs/stylized_erm.py. On
ImageNet as the authors: 45 epochs of the union, 90 of the images, at 0.1 (a tenth every
third), then 60 at 0.01 (a tenth after 30); they start from trained weights (`init`).
Cost: 1.0 of ERM.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """The experiment; `share` beside the arguments of configs/common.py."""
    mine, rest = common.take_arguments(arg, share=0.5)
    transfer, rest, label = common.style_transfer(rest)
    c = common.experiment(
        rest,
        dict(name="erm"),
        train=dict(renders=True) if transfer["name"] == "render" else {},
        imagenet=dict(epochs=150.0),
    )
    plain, optim = c.inputs, c.optim.to_dict()
    stylize = dict(name="stylize", transfer=transfer, p=mine.share, mix_group=32)
    c.inputs = (*plain, stylize)
    c.epochs, second = c.epochs * 3 / 5, c.epochs * 2 / 5
    if common.data_name(rest) == "imagenet":
        half = dict(name="multistep", milestones=(0.5,), gamma=0.1)
        optim = dict(optim, rate=0.01, schedule=half)
    common.add_label(c, "sin_in", label)
    c.stages = ({}, dict(epochs=second, inputs=plain, optim=optim))
    return c
