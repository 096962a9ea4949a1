r"""DSU, uncertain feature statistics (Li et al., ICLR 2022, arXiv:2202.03958). Cost: 1.0.

Its authors gave no recipe for ImageNet; ERM's is used there.

    jbias train --config=configs/dsu.py
    jbias train --config=configs/dsu.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    return common.experiment(arg, dict(name="dsu", p=0.5, mix_group=32))
