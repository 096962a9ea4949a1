r"""ERM on stylised images alone (Geirhos et al., ICLR 2019, arXiv:1811.12231). Cost: 1.

On the embedded set each image is drawn again with the texture of another: the exact
counterpart. Elsewhere every batch is stylised by its own images, with the published
network (theirs: by paintings, once and for all), whose weights `jbias prepare
weights --net=vgg_adain` converts (`weights=FILE`), or with `transfer=small` by the compact
one of the package. On ImageNet the recipe of their "SIN" model: 60 epochs, a tenth of
the rate every 20; they start from weights trained on ImageNet (`init`). A
Stylized-ImageNet made before is trained on with configs/erm.py and its `root`.

    jbias train --config=configs/stylized_erm.py
    jbias train --config=configs/stylized_erm.py:data=imagenet,root=DIR

The arguments after the colon stand in configs/common.py.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """The experiment; `transfer`, `weights` beside the arguments of configs/common.py."""
    transfer, rest, label = common.style_transfer(arg)
    stylize = dict(name="stylize", transfer=transfer, mix_group=32)
    thirds = dict(name="multistep", milestones=(1 / 3, 2 / 3), gamma=0.1)
    c = common.experiment(
        rest,
        dict(name="erm"),
        inputs=(stylize,),
        train=dict(renders=True) if transfer["name"] == "render" else {},
        imagenet=dict(epochs=60.0, optim=dict(schedule=thirds)),
    )
    common.add_label(c, label)
    return c
