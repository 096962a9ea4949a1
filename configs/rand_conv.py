r"""RandConv, random convolutions (Xu et al., ICLR 2021, arXiv:2007.13003).

Cost: 3.0 of ERM with the consistency loss, 1.0 without.

    jbias train --config=configs/rand_conv.py
    jbias train --config=configs/rand_conv.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    rand_conv = dict(name="rand_conv")
    return common.experiment(arg, dict(name="erm"), inputs=(rand_conv,))
