r"""Shape-texture debiased training (Li et al., ICLR 2021, arXiv:2010.05981).

Cost: 2.7 to 5 of ERM with the published style network. On the embedded set images are
drawn again with the texture of another; elsewhere the published style network
is used, whose weights `jbias prepare weights --net=vgg_adain` converts
(`weights=FILE`), or with `transfer=small` the compact one of the package.
On ImageNet as its authors: batches of 512, rate 0.2 after 5 epochs of warm-up, 100
epochs, a tenth after 30, 60 and 90, on a grid of three sizes.
`variant=biasbed` is the algorithm as BiasBed released it.

    jbias train --config=configs/debiased.py
    jbias train --config=configs/debiased.py:data=imagenet,root=DIR

The arguments after the colon stand in configs/common.py.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """The experiment; `transfer`, `weights` beside the arguments of configs/common.py."""
    transfer, rest, label = common.style_transfer(arg)
    drawn = transfer["name"] == "render"
    steps = dict(name="multistep", milestones=(0.3, 0.6, 0.9), gamma=0.1)
    recipe = dict(rate=0.2, warmup="5 epochs", schedule=steps)
    large = common.data_name(rest) == "imagenet"
    algo = dict(
        **dict(name="debiased", transfer=transfer, gamma=0.8),
        **dict(alpha=1.0 if drawn else 0.5, aux_bn=True),
        multi_grid=large and not common.is_biasbed(rest),
        **dict(min_size=112 if large else 0, variant="", mix_group=32),
    )
    c = common.experiment(
        rest,
        algo,
        train=dict(renders=True) if drawn else {},
        imagenet=dict(epochs=100.0, train=dict(batch=512), optim=recipe),
    )
    common.add_label(c, label)
    return c
