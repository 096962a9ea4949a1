r"""RM: three FMix masks, drawn once a run (Marcu and Pruegel-Bennett, ICML 2022,
arXiv:2110.13968). Cost: 1.0 of ERM.

    jbias train --config=configs/random_masks.py
    jbias train --config=configs/random_masks.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    random_masks = dict(name="random_masks", spectrum="released", mix_group=32)
    return common.experiment(arg, dict(name="erm"), inputs=(random_masks,))
