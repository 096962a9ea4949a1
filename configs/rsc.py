r"""RSC (Huang et al., ECCV 2020, arXiv:2007.02454). Cost: 1.0 of ERM.

As in DomainBed: in a third of the images of a batch, a third of the inputs of the last
layer are muted.

    jbias train --config=configs/rsc.py
    jbias train --config=configs/rsc.py:data=pacs,root=DIR,balance=domain

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    return common.experiment(arg, dict(name="rsc", features=1 / 3, examples=1 / 3))
