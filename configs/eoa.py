r"""EoA, simple moving averages (Arpit et al., NeurIPS 2022, arXiv:2110.10832). Cost: 1.0 of ERM.

Evaluates the mean of the weights over the second half of training; training is ERM's. The
authors fine-tune pretrained ResNets with frozen batch norms, by Adam at 5e-5, and average from step
100 of 5,000. Here networks start from random weights, by the presets' recipe: the mean over all
but 100 of 384 steps had a validation accuracy of 61 %, ERM 69 % (the embedded set, one seed).
Batch norms are trained, and their running statistics are averaged like the weights. For the
authors' start add --config.optim.average.first='2 %'. No recipe for ImageNet was published.

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
    first = "1 step" if is_smoke else "50 %"
    common.use_average(c, name="uniform", first=first, statistics="average")
    common.add_label(c, "eoa")
    return c
