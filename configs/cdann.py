r"""CDANN (Li et al., ECCV 2018, as in arXiv:2007.01434). Cost: 0.7 of ERM.

configs/dann.py with a discriminator that knows the class. The cycles predicted for a TPU v5e are
1.03 of ERM's for a step of the network, and 0.39 for a step of the discriminator.

    jbias train --config=configs/cdann.py
    jbias train --config=configs/cdann.py:data=pacs,root=DIR,held_out=sketch

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import dann


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    return dann.get_config(f"conditional=True,{arg}")
