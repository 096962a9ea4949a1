r"""MMD (Li et al., CVPR 2018, as in arXiv:2007.01434). Cost: 1.0 of ERM.

Between all environments of a batch, as in DomainBed: the sources or the data's "domain",
otherwise the "attribute". The cost is the number of operations; the cycles predicted for a TPU v5e
are 1.01 of ERM's.

    jbias train --config=configs/mmd.py
    jbias train --config=configs/mmd.py:data=pacs,root=DIR,held_out=sketch

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    gammas = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
    algo = dict(name="mmd", weight=1.0, gammas=gammas, by="")
    return common.experiment(arg, algo)
