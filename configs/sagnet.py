r"""SagNet (Nam et al., CVPR 2021, arXiv:1910.11645). Cost: 1.9 to 2.5 of ERM.

Its authors fine-tune pretrained networks on domains (rate 0.004, cosine, batches of 32
a domain, style head copied from the same weights: --config.algo.copy_net=True with
`init`). They gave no recipe for ImageNet; ERM's is used there.
`variant=biasbed` is the algorithm as BiasBed released it, without dropout; its runs
start from weights trained on ImageNet (`init`), where all its others start from scratch.

    jbias train --config=configs/sagnet.py
    jbias train --config=configs/sagnet.py:data=imagenet,root=DIR

The arguments after the colon stand in configs/common.py.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """The experiment; see configs/common.py for `arg`."""
    algo = dict(
        **dict(name="sagnet", w_adv=0.1, clip=0.1),
        dropout=0.0 if common.is_biasbed(arg) else 0.5,
        **dict(style_stage=3, double_decay=True, copy_net=False),
        **dict(variant="", mix_group=32),
    )
    return common.experiment(arg, algo)
