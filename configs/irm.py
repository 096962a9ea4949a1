r"""IRMv1 (Arjovsky et al., 2019, arXiv:1907.02893). Cost: 1.0 of ERM.

Environments are the sources or the data's "domain", otherwise the "attribute". The weight
is DomainBed's, for batches, whose penalty multiplies the gradients of two halves of a
batch; the authors' 10,000 is for a whole set as one batch. Adam at the authors' rate of
1e-3: by SGD with the presets' rates the penalty diverges.

    jbias train --config=configs/irm.py
    jbias train --config=configs/irm.py:data=colored_mnist,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    c = common.experiment(arg, dict(name="irm", weight=100.0, anneal=0.1, by=""))
    common.use_adam(c, 1e-3)
    return c
