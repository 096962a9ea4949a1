r"""Debiased under BiasBed's own protocol; see configs/biasbed/protocol.py.

jbias train --config=configs/biasbed/debiased.py
"""

import ml_collections

from jbias.configs import debiased
from jbias.configs.biasbed import protocol


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    return protocol.apply(debiased.get_config, arg, 0.2)
