r"""Adversarial training by PGD (Madry et al., ICLR 2018, arXiv:1706.06083).

Cost: (2 steps + 4) / 3 of ERM with `keep_best`, (2 steps + 3) / 3 without.
On ImageNet as the models of Salman et al. (NeurIPS 2020, arXiv:2007.08489): 3 steps of
2/3 eps, batches of 512, 90 epochs, a tenth of the rate every 30.

    jbias train --config=configs/pgd.py
    jbias train --config=configs/pgd.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    algo = dict(name="pgd", norm="linf", eps=4 / 255, steps=3, keep_best=True)
    return common.experiment(arg, algo, imagenet=dict(train=dict(batch=512)))
