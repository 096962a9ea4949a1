r"""CORAL (Sun and Saenko, ECCV 2016 workshops, arXiv:1607.01719). Cost: 1.0 of ERM.

As DomainBed has it, between all environments of a batch: the sources or the data's own
"domain", else the "attribute".

    jbias train --config=configs/coral.py
    jbias train --config=configs/coral.py:data=colored_mnist,root=DIR

The arguments after the colon stand in configs/common.py.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """The experiment; see configs/common.py for `arg`."""
    return common.experiment(arg, dict(name="coral", gamma=1.0, by=""))
