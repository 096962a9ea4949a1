r"""Empirical risk minimisation: the plain baseline. Cost: 1.

On ImageNet the common recipe of the compared papers: 90 epochs of batches of 256, SGD
0.1 with momentum 0.9, a tenth of it after a third and two thirds, decay 1e-4.

    jbias train --config=configs/erm.py
    jbias train --config=configs/erm.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    return common.experiment(arg, dict(name="erm"))
