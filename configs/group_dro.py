r"""Group DRO (Sagawa et al., ICLR 2020, arXiv:1911.08731). Cost: 1.0 of ERM.

Groups are those of a class and an attribute, which the data must have. Batches have equal
shares of them, as its authors' (--reweight_groups), with their step 0.01; their decay is
strong, up to 1, which --config.optim.decay sets.

    jbias train --config=configs/group_dro.py
    jbias train --config=configs/group_dro.py:data=colored_mnist,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    return common.experiment(
        arg,
        dict(name="group_dro", eta=0.01, adjustment=0.0, by="class+attribute"),
        train=dict(balance="group"),
    )
