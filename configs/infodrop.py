r"""InfoDrop (Shi et al., ICML 2020, arXiv:2008.04254). Cost: 1.2 of ERM at 224 pixels.

Two stages, as its authors: with InfoDrop, then a fifth as many epochs without it. They
gave no recipe for ImageNet; ERM's is used there, with their decay of 5e-4.
`variant=biasbed` is BiasBed's: no second stage, and dropout active in evaluation.

    jbias train --config=configs/infodrop.py
    jbias train --config=configs/infodrop.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    c = common.experiment(
        arg,
        dict(name="infodrop", rate=1.5, temperature=0.03, sampling="exact", variant=""),
        imagenet=dict(optim=dict(decay=5e-4)),
    )
    if not common.is_biasbed(arg):
        c.stages = ({}, dict(algo=dict(name="erm"), epochs=c.epochs / 5))
    return c
