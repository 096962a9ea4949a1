"""BiasBed's own protocol (Kalischek et al., CVPR 2023), for its eight algorithms.

100 epochs of batches of 128, SGD with momentum 0.9 and decay 1e-4, a tenth of the rate
after 30, 60 and 90 epochs and no warm-up. On photographs: random crops of half the area
or more and of aspects 0.8 to 1.0, at 256 pixels; no other augmentation than the flip.
The rate is that of each algorithm's own configuration, in D1noFuzi/BiasBed at 499b912;
1e-4 for ERM and SagNet cannot train a network from scratch to the accuracies that the
paper reports. Each algorithm is BiasBed's (`variant=biasbed`).
Deviations: validation is a part of the training set, not the test set; all sets have one
size, 256, where BiasBed tests out of distribution at 224; SagNet starts from scratch
unless `init` says otherwise; Stylized ERM is validated on clean images, there on stylised
ones; DeepAugment's sets are what they are named after, where the release's loader
of CAE's appends clean ImageNet.
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
    """An algorithm's config for `arg` under the protocol; `rate` is the algorithm's.

    Epochs and sizes that `arg` names stay, and those of its demo, small and smoke.
    """
    c = get_config(f"variant=biasbed,{arg or ''}")
    named = jc.explicit_arguments(arg)
    plain = dict(rate=rate, momentum=0.9, decay=1e-4, nesterov=False, warmup="")
    common.update(c, dict(optim=dict(plain, schedule=STEPS)))
    short = {"smoke", "demo", "small"}
    if not named & {*short, "epochs"}:
        c.epochs = 100.0
    if not named & short:
        c.train.batch = 128
    if c.inputs and c.inputs[0]["name"] == "random_resized_crop":
        c.inputs = (*CROPS, *c.inputs[2:])
    if c.size == 224 and "size" not in named:
        c.size = 256
    return c
