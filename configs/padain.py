r"""Permuted AdaIN (Nuriel et al., CVPR 2021, arXiv:2010.05785). Cost: 1.0 to 1.1 of ERM.

On ImageNet as its authors: 300 epochs, a tenth of the rate every 75
(onuriel/PermutedAdaIN, classification/training_scripts.sh).

    jbias train --config=configs/padain.py
    jbias train --config=configs/padain.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    quarters = dict(name="multistep", milestones=(0.25, 0.5, 0.75), gamma=0.1)
    return common.experiment(
        arg,
        dict(name="padain", p=0.01, mix_group=32),
        imagenet=dict(epochs=300.0, optim=dict(schedule=quarters)),
    )
