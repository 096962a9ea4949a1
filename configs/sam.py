r"""SAM (Foret et al., ICLR 2021, arXiv:2010.01412). Cost: 2 of ERM.

Sharpness-aware minimisation: every step takes its gradient where the loss is higher, at a
distance of `radius` from the weights (jbias/training/perturbing/sharpness.py). The radius
is the authors' for CIFAR-10 (google-research/sam, README); ASAM's authors use 0.1 for
CIFAR-100. All else is ERM's. Other methods take it by a flag:

    jbias train --config=configs/sam.py
    jbias train --config=configs/sam.py:data=imagenet,root=DIR
    jbias train --config=configs/sagnet.py --config.optim.sharpness.radius=0.05

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    c = common.experiment(arg, dict(name="erm"))
    c.optim.sharpness.radius = 0.05
    common.add_label(c, "sam")
    return c
