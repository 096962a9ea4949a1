r"""CORAL (Sun and Saenko, ECCV 2016 workshops, arXiv:1607.01719). Cost: 1.0 of ERM.

Between all environments of a batch, as in DomainBed: the sources or the data's "domain",
otherwise the "attribute".

    jbias train --config=configs/coral.py
    jbias train --config=configs/coral.py:data=colored_mnist,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    return common.experiment(arg, dict(name="coral", gamma=1.0, by=""))
