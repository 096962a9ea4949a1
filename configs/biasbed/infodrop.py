r"""BiasBed's InfoDrop under BiasBed's own protocol; see configs/biasbed/protocol.py.

Without the authors' second stage; dropout stays active in evaluation.

    jbias train --config=configs/biasbed/infodrop.py
"""

import ml_collections

from jbias.configs import infodrop
from jbias.configs.biasbed import protocol


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    return protocol.apply(infodrop.get_config, arg, 0.2)
