r"""Training with Gaussian noise (Rusak et al., ECCV 2020, arXiv:2001.06057). Cost: 1.0.

Half of the images get noise; the authors fine-tune a trained network (`init`).

    jbias train --config=configs/gaussian_noise.py
    jbias train --config=configs/gaussian_noise.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    gaussian_noise = dict(name="gaussian_noise")
    return common.experiment(arg, dict(name="erm"), inputs=(gaussian_noise,))
