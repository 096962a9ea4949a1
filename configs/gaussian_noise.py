r"""Training with Gaussian noise (Rusak et al., ECCV 2020, arXiv:2001.06057). Cost: 1.0.

Half of the images get noise; the authors fine-tune a trained network (`init`).

    jbias train --config=configs/gaussian_noise.py
    jbias train --config=configs/gaussian_noise.py:data=imagenet,root=DIR

The arguments after the colon stand in configs/common.py.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """The experiment; see configs/common.py for `arg`."""
    gaussian_noise = dict(name="gaussian_noise")
    return common.experiment(arg, dict(name="erm"), inputs=(gaussian_noise,))
