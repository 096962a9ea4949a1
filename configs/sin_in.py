r"""ERM on images and stylised images, then on images alone (Geirhos et al., ICLR 2019).

    jbias train --config=configs/sin_in.py
    jbias train --config=configs/sin_in.py:share=0.25

Source: arXiv:1811.12231, "SIN+IN" and its fine-tuning. In the first stage, three fifths of
the epochs, a share of each batch (`share`) is stylised; 0.5 corresponds to the authors'
union of both sets. configs/stylized_erm.py describes the styles, `transfer` and `weights`.
On ImageNet as the authors: 45 epochs of the union, 90 of the images, at rate 0.1 (divided
by ten every third), then 60 at 0.01 (divided by ten after 30); they start from trained
weights (`init`). Cost: 1.0 of ERM.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config.

    arg: `share`, `transfer`, `weights` and the arguments of configs/common.py.
    """
    sin_in, arg = common.take_arguments(arg, share=0.5)
    transfer, arg, label = common.style_transfer(arg)
    c = common.experiment(
        arg,
        dict(name="erm"),
        train=dict(renders=True) if transfer["name"] == "render" else {},
        imagenet=dict(epochs=150.0),
    )
    fine_tuning = dict(
        epochs=c.epochs * 2 / 5,
        inputs=c.inputs,
        optim=c.optim.to_dict(),
    )
    if common.data_name(arg) == "imagenet":
        schedule = dict(name="multistep", milestones=(0.5,), gamma=0.1)
        fine_tuning["optim"].update(rate=0.01, schedule=schedule)
    stylize = dict(name="stylize", transfer=transfer, p=sin_in.share, mix_group=32)
    c.inputs = (*c.inputs, stylize)
    c.epochs = c.epochs * 3 / 5
    common.add_label(c, "sin_in", label)
    c.stages = ({}, fine_tuning)
    return c
