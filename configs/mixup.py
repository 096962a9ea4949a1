r"""MixUp (Zhang et al., ICLR 2018, arXiv:1710.09412). Cost: 1.0 of ERM.

alpha is 1 as in the authors' code for CIFAR; 0.2 is usual on ImageNet.

    jbias train --config=configs/mixup.py
    jbias train --config=configs/mixup.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    mixup = dict(name="mixup", alpha=1.0, mix_group=32)
    return common.experiment(arg, dict(name="erm"), inputs=(mixup,))
