r"""CutMix (Yun et al., ICCV 2019, arXiv:1905.04899). Cost: 1.0 of ERM.

On ImageNet as its authors: 300 epochs, a tenth of the rate every 75, Nesterov, with
colour jitter and lighting (clovaai/CutMix-PyTorch, README).

    jbias train --config=configs/cutmix.py
    jbias train --config=configs/cutmix.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    cutmix = dict(name="cutmix", alpha=1.0, p=1.0, mix_group=32)
    quarters = dict(name="multistep", milestones=(0.25, 0.5, 0.75), gamma=0.1)
    inputs = (
        dict(name="random_resized_crop", area=(0.08, 1.0)),
        dict(name="flip"),
        dict(name="colour_jitter", p=1.0, hue=0.0),
        dict(name="lighting"),
    )
    return common.experiment(
        arg,
        dict(name="erm"),
        inputs=(cutmix,),
        imagenet=dict(
            epochs=300.0,
            optim=dict(nesterov=True, schedule=quarters),
            inputs=inputs,
        ),
    )
