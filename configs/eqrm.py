r"""EQRM (Eastwood et al., NeurIPS 2022, arXiv:2207.09944). Cost: 1.0 of ERM.

Environments are the sources or the data's "domain", otherwise the "attribute". The quantile
and the burn-in, half of the steps, are DomainBed's. The cycles predicted for a TPU v5e are 1.02 of
ERM's.

    jbias train --config=configs/eqrm.py
    jbias train --config=configs/eqrm.py:data=pacs,root=DIR,held_out=sketch

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    return common.experiment(arg, dict(name="eqrm", alpha=0.75, burn_in=0.5, by=""))
