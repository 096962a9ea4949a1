r"""FMix (Harris et al., arXiv:2002.12047). Cost: 1.0 of ERM, and a sort of the pixels.

On ImageNet as its authors (who train ResNet-101): 90 epochs, rate 0.4 after 5 epochs of
warm-up, a tenth after 30, 60 and 80. Theirs warms up from 0.1, epoch by epoch; here
from 0, step by step.

    jbias train --config=configs/fmix.py
    jbias train --config=configs/fmix.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    fmix = dict(name="fmix", alpha=1.0, decay=3.0, mix_group=32)
    steps = dict(name="multistep", milestones=(1 / 3, 2 / 3, 8 / 9), gamma=0.1)
    optim = dict(rate=0.4, warmup="5 epochs", schedule=steps)
    return common.experiment(
        arg, dict(name="erm"), inputs=(fmix,), imagenet=dict(optim=optim)
    )
