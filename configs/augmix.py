r"""AugMix with the Jensen-Shannon loss (Hendrycks et al., ICLR 2020, arXiv:1912.02781).

Cost: 3.0 of ERM and the image operations. On ImageNet as its authors: 90 epochs, a tenth
of the rate after a third and two thirds, severity 1.

    jbias train --config=configs/augmix.py
    jbias train --config=configs/augmix.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    severity = 1 if common.data_name(arg) == "imagenet" else 3
    augmix = dict(name="augmix", severity=severity)
    return common.experiment(arg, dict(name="erm"), inputs=(augmix,))
