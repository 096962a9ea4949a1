"""BiasBed's own protocol (Kalischek et al., CVPR 2023), for its eight algorithms.

100 epochs of batches of 128, SGD with momentum 0.9 and decay 1e-4, the rate divided by ten
after 30, 60 and 90 epochs, no warm-up. On photographs: random crops of half the area
or more, with aspect ratios of 0.8 to 1.0, at 256 pixels, and flips.
The rate is that of each algorithm's configuration in D1noFuzi/BiasBed at 499b912;
1e-4 for ERM and SagNet cannot train a network from scratch to the accuracies that the
paper reports. Each algorithm is BiasBed's (`variant=biasbed`).
Deviations: validation images are a part of the training set (BiasBed: the test set); all
sets have 256 pixels (BiasBed: 224 out of distribution); SagNet starts from scratch unless
`init` names weights; Stylized ERM is validated on clean images (BiasBed: on stylised
images); DeepAugment's sets contain what their names say (BiasBed's loader of CAE images
appends clean ImageNet).
"""

from collections.abc import Callable

import ml_collections

from jbias import config as jc
from jbias.configs import common

STEPS = dict(name="multistep", milestones=(0.3, 0.6, 0.9), gamma=0.1)
CROPS = (
    dict(name="random_resized_crop", area=(0.5, 1.0), aspect=(0.8, 1.0)),
    dict(name="flip"),
)


def apply(
    get_config: Callable[[str], ml_collections.ConfigDict], arg: str, rate: float
) -> ml_collections.ConfigDict:
    """Return the config of `get_config(arg)`, changed to the protocol.

    rate: the algorithm's learning rate. Epochs and sizes named in `arg` stay, as do those
    of its demo, small and smoke.
    """
    c = get_config(f"variant=biasbed,{arg or ''}")
    explicit = jc.explicit_arguments(arg)
    optim = dict(
        rate=rate,
        momentum=0.9,
        decay=1e-4,
        nesterov=False,
        warmup="",
        schedule=STEPS,
    )
    common.update(c, dict(optim=optim))
    is_short = not explicit.isdisjoint({"smoke", "demo", "small"})
    if not is_short and "epochs" not in explicit:
        c.epochs = 100.0
    if not is_short:
        c.train.batch = 128
    if c.inputs and c.inputs[0]["name"] == "random_resized_crop":
        c.inputs = (*CROPS, *c.inputs[2:])
    if c.size == 224 and "size" not in explicit:
        c.size = 256
    return c
