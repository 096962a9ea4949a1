r"""RSC (Huang et al., ECCV 2020, arXiv:2007.02454). Cost: 1.0 of ERM.

As in DomainBed: in a third of the images of a batch, a third of the inputs of the last
layer are muted. DomainBed fine-tunes trained networks; networks with random weights are first
trained for half of the steps without muting (`anneal`), or their features would vanish
(jbias/algos/rsc.py has figures). With `init=...` all steps mute. The cycles predicted for a TPU
v5e are 1.01 of ERM's.

    jbias train --config=configs/rsc.py
    jbias train --config=configs/rsc.py:data=pacs,root=DIR,held_out=sketch

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias import config as jc
from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    is_trained = "init" in jc.explicit_arguments(arg)
    algo = dict(
        name="rsc",
        features=1 / 3,
        examples=1 / 3,
        anneal=0.0 if is_trained else 0.5,
    )
    return common.experiment(arg, algo)
