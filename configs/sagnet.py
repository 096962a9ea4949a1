r"""SagNet (Nam et al., CVPR 2021, arXiv:1910.11645). Cost: 1.9 to 2.5 of ERM.

Its authors fine-tune pretrained networks on domains (rate 0.004, cosine, batches of 32
a domain, style head copied from the same weights: --config.algo.copy_net=True with
`init`). They published no recipe for ImageNet; ERM's is used for it.
`variant=biasbed` is the algorithm as BiasBed released it, without dropout; BiasBed starts
it from weights trained on ImageNet (`init`) and all its other methods from scratch.

    jbias train --config=configs/sagnet.py
    jbias train --config=configs/sagnet.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    algo = dict(
        name="sagnet",
        w_adv=0.1,
        clip=0.1,
        dropout=0.0 if common.is_biasbed(arg) else 0.5,
        style_stage=3,
        double_decay=True,
        copy_net=False,
        variant="",
        mix_group=32,
    )
    return common.experiment(arg, algo)
