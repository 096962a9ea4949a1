r"""EFDMix, exact feature distributions (Zhang et al., CVPR 2022, arXiv:2203.07740).

Cost: 1.0 of ERM in operations, and a sort: 1.5 to 2 for small nets on a CPU. Its authors
gave no recipe for ImageNet; ERM's is used there.

    jbias train --config=configs/efdmix.py
    jbias train --config=configs/efdmix.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    algo = dict(name="efdmix", p=0.5, alpha=0.1, stages=(1, 2), mix_group=32)
    return common.experiment(arg, algo)
