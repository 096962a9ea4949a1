r"""RandConv, random convolutions (Xu et al., ICLR 2021, arXiv:2007.13003).

Cost: 3.0 of ERM with the consistency loss, 1.0 without.

    jbias train --config=configs/rand_conv.py
    jbias train --config=configs/rand_conv.py:data=imagenet,root=DIR

The arguments after the colon stand in configs/common.py.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """The experiment; see configs/common.py for `arg`."""
    rand_conv = dict(name="rand_conv")
    return common.experiment(arg, dict(name="erm"), inputs=(rand_conv,))
