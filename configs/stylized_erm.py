r"""ERM on stylised images alone (Geirhos et al., ICLR 2019, arXiv:1811.12231). Cost: 1.

On the embedded set each image is drawn again with the texture of another image, which is
exact. On other data the images of a batch stylise each other, by the published network,
whose weights `jbias prepare weights --net=vgg_adain` converts (`weights=FILE`), or with
`transfer=small` by the compact network of this package. (The authors stylise once, by
paintings.) On ImageNet the recipe of their "SIN" model: 60 epochs, the rate divided by ten
every 20; they start from weights trained on ImageNet (`init`). To train on an existing
Stylized-ImageNet, use configs/erm.py with its folder as `root`.

    jbias train --config=configs/stylized_erm.py
    jbias train --config=configs/stylized_erm.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config.

    arg: `transfer`, `weights` and the arguments of configs/common.py.
    """
    transfer, arg, label = common.style_transfer(arg)
    stylize = dict(name="stylize", transfer=transfer, mix_group=32)
    thirds = dict(name="multistep", milestones=(1 / 3, 2 / 3), gamma=0.1)
    c = common.experiment(
        arg,
        dict(name="erm"),
        inputs=(stylize,),
        train=dict(renders=True) if transfer["name"] == "render" else {},
        imagenet=dict(epochs=60.0, optim=dict(schedule=thirds)),
    )
    common.add_label(c, label)
    return c
