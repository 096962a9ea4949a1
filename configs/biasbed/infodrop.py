r"""InfoDrop as BiasBed has it, under its own protocol; see configs/biasbed/protocol.py.

Without the authors' second stage, and active in evaluation.

    jbias train --config=configs/biasbed/infodrop.py
"""

import ml_collections

from jbias.configs import infodrop
from jbias.configs.biasbed import protocol


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """The experiment; see configs/common.py for `arg`."""
    return protocol.apply(infodrop.get_config, arg, 0.2)
