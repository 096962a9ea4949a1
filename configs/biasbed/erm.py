r"""ERM under BiasBed's own protocol; see configs/biasbed/protocol.py.

jbias train --config=configs/biasbed/erm.py
"""

import ml_collections

from jbias.configs import erm
from jbias.configs.biasbed import protocol


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    return protocol.apply(erm.get_config, arg, 1e-4)
