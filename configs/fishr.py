r"""Fishr (Rame et al., ICML 2022, arXiv:2109.02934). Cost: 1.0 of ERM.

Environments are the sources or the data's "domain", otherwise the "attribute". Decay of the
averages and the share of the steps without penalty are DomainBed's. The weight is the
smallest of its search: its default, 1,000, is for pretrained networks, and too strong for
new ones with few examples of each environment in a batch. The cycles predicted for a TPU v5e are
1.04 of ERM's.

    jbias train --config=configs/fishr.py
    jbias train --config=configs/fishr.py:data=pacs,root=DIR,held_out=sketch

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    algo = dict(name="fishr", weight=10.0, anneal=0.3, ema=0.95, by="")
    return common.experiment(arg, algo)
