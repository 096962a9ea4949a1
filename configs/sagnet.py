r"""SagNet (Nam et al., CVPR 2021).

    python -m jbias.main --config=configs/sagnet.py
    python -m jbias.main --config=configs/sagnet.py:data=pacs,root=DIR,seeds=2

The arguments after the colon stand in configs/common.py.
"""

import ml_collections

from configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """The experiment; see configs/common.py for `arg`."""
    return common.experiment(
        arg,
        dict(
            name="sagnet",
            w_adv=0.1,
            clip=0.1,
            dropout=0.5,
            style_stage=3,
            double_decay=True,
            mix_group=32,
        ),
    )
