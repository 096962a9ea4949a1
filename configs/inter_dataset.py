r"""Mixing with a second set whose labels are ignored (Marcu and Pruegel-Bennett, ICML 2022,
arXiv:2110.13968). Cost: 1.0 of ERM and a second stream.

The second set is the embedded one of fractals; any other is `--config.train.other`.

    jbias train --config=configs/inter_dataset.py
    jbias train --config=configs/inter_dataset.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    c = common.experiment(
        arg,
        dict(name="erm"),
        inputs=(dict(name="mixup", reformulated=True, partner="other"),),
        train=dict(other=dict(data="fractals", split="train")),
    )
    c.variant = "inter_dataset"
    return c
