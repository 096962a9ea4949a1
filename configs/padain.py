r"""Permuted AdaIN (Nuriel et al., CVPR 2021).

    python -m jbias.main --config=configs/padain.py
    python -m jbias.main --config=configs/padain.py:data=pacs,root=DIR,seeds=2

The arguments after the colon stand in configs/common.py.
"""

import ml_collections

from configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """The experiment; see configs/common.py for `arg`."""
    return common.experiment(arg, dict(name="padain", p=0.01, mix_group=32))
