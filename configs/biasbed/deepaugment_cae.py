r"""DeepAugment ERM with CAE under BiasBed's own protocol; see configs/biasbed/protocol.py.

jbias train --config=configs/biasbed/deepaugment_cae.py:prepared=DIR
"""

import ml_collections

from jbias.configs import deepaugment
from jbias.configs.biasbed import protocol


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    get_deepaugment = lambda text: deepaugment.get_config(f"nets=cae,{text}")
    c = protocol.apply(get_deepaugment, arg, 1e-4)
    c.train.shares = (0.5, 0.5)  # An epoch has twice as many steps as with ERM.
    return c
