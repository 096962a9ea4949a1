r"""Random frozen filters (Gavrikov and Keuper, arXiv:2301.11360). Cost: 0.85 of ERM.

All spatial convolutions keep their random weights. The recipe of the authors' ImageNet
model is not published; ERM's is used there.

    jbias train --config=configs/frozen_filters.py
    jbias train --config=configs/frozen_filters.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    return common.experiment(arg, dict(name="frozen_filters"))
