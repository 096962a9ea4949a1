r"""ASAM (Kwon et al., ICML 2021, arXiv:2102.11600). Cost: 2 of ERM.

Adaptive SAM: as configs/sam.py, at a distance that is relative to the size of each kernel
and scale. The radius is the authors' for CIFAR-10, on ImageNet theirs for CIFAR-100
(SamsungLabs/ASAM, README); `eta` is the default of their class. All else is ERM's.

    jbias train --config=configs/asam.py
    jbias train --config=configs/asam.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    on_imagenet = common.data_name(arg) == "imagenet"
    c = common.experiment(arg, dict(name="erm"))
    c.optim.sharpness = dict(
        radius=1.0 if on_imagenet else 0.5, adaptive=True, eta=0.01
    )
    common.add_label(c, "asam")
    return c
