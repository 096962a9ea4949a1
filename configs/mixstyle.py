r"""MixStyle (Zhou et al., ICLR 2021, arXiv:2104.02008). Cost: 1.0 of ERM.

After stages 1 and 2; its authors use 1, 2 and 3 for PACS. They gave no recipe for
ImageNet; ERM's is used there.

    jbias train --config=configs/mixstyle.py
    jbias train --config=configs/mixstyle.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    algo = dict(name="mixstyle", p=0.5, alpha=0.1, stages=(1, 2), mix_group=32)
    return common.experiment(arg, algo)
