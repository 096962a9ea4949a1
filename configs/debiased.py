r"""Shape-texture debiased training (Li et al., ICLR 2021, arXiv:2010.05981).

Cost: 2.7 to 5 of ERM with the published style network. On the embedded set each image is
drawn again with the texture of another image. Other data use the published style network,
whose weights `jbias prepare weights --net=vgg_adain` converts (`weights=FILE`), or with
`transfer=small` the compact network of this package.
On ImageNet as its authors: batches of 512, rate 0.2 after 5 epochs of warm-up, 100
epochs, a tenth after 30, 60 and 90, on a grid of three sizes.
`variant=biasbed` is the algorithm as BiasBed released it.

    jbias train --config=configs/debiased.py
    jbias train --config=configs/debiased.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config.

    arg: `transfer`, `weights` and the arguments of configs/common.py.
    """
    transfer, arg, label = common.style_transfer(arg)
    is_drawn = transfer["name"] == "render"
    on_imagenet = common.data_name(arg) == "imagenet"
    algo = dict(
        name="debiased",
        transfer=transfer,
        gamma=0.8,
        alpha=1.0 if is_drawn else 0.5,
        aux_bn=True,
        multi_grid=on_imagenet and not common.is_biasbed(arg),
        min_size=112 if on_imagenet else 0,
        variant="",
        mix_group=32,
    )
    schedule = dict(name="multistep", milestones=(0.3, 0.6, 0.9), gamma=0.1)
    c = common.experiment(
        arg,
        algo,
        train=dict(renders=True) if is_drawn else {},
        imagenet=dict(
            epochs=100.0,
            train=dict(batch=512),
            optim=dict(rate=0.2, warmup="5 epochs", schedule=schedule),
        ),
    )
    common.add_label(c, label)
    return c
