r"""EoA, simple moving averages (Arpit et al., NeurIPS 2022, arXiv:2110.10832). Cost: 1.0 of ERM.

Evaluates the mean of the weights after step 100 and all later steps; training is ERM's. The
authors fine-tune pretrained ResNets with frozen batch norms, by Adam at 5e-5 without
augmentation schedules; here the presets' recipe is used, whose batch norms are trained: their
running statistics are averaged like the weights. No recipe for ImageNet was published.

    jbias train --config=configs/eoa.py
    jbias train --config=configs/eoa.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias import config as jc
from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    c = common.experiment(arg, dict(name="erm"))
    is_smoke = "smoke" in jc.explicit_arguments(arg)
    common.use_average(c, name="uniform", first="1 step" if is_smoke else "100 steps")
    common.add_label(c, "eoa")
    return c
