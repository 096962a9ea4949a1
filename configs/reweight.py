r"""Reweighting by the size of groups (such as Sagawa et al., ICML 2020, arXiv:2005.04345).

Cost: 1.0 of ERM. Groups are those of a class and an attribute, which the data must have.

    jbias train --config=configs/reweight.py
    jbias train --config=configs/reweight.py:data=colored_mnist,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    return common.experiment(
        arg, dict(name="reweight", power=1.0, by="class+attribute")
    )
