r"""ERM++ (Teterwak et al., WACV 2025, arXiv:2304.01973). Cost: 4 of ERM.

A stronger baseline for domains: it starts from a good network (`init`), first trains the
linear layer alone (warm start), then all weights with trained batch norms, four times as
long as usual, by Adam at a constant 5e-5 without weight decay. It evaluates the mean of the
weights from step 100 of that stage on. Reference code:
https://github.com/piotr-teterwak/erm_plusplus at 2535f5d, main_erm.py, util.py, README.md.

The authors train twice: first on 80 % of the training images, to choose the number of steps
by validation; then on all images for that long. Here `epochs=N,full` is the second run. It
also trains on the images that validate, so report its last evaluation (`--selection=last_n:1`)
and evaluate its last checkpoint (`--step=latest`): the best validation accuracy, the default of
both, is that of training images.

    jbias train --config=configs/erm_plusplus.py
    jbias train --config=configs/erm_plusplus.py:data=pacs,root=DIR,held_out=sketch
    jbias train --config=configs/erm_plusplus.py:data=pacs,root=DIR,held_out=sketch,epochs=40,full

Add init=runs/x, and the model and size of that run (docs/models.md: published weights become
such a run). configs/common.py lists the other arguments after the colon.

Deviations:
- Four times the epochs of the data preset; theirs are 60,000 steps on DomainNet, four times
  DomainBed's. The warm start takes 1/120 of the epochs, theirs 500 of 60,000 steps.
- During the warm start batch norms are in evaluation mode; theirs normalise by the batch and
  update their running statistics. Their backbone's gradients of the warm start are never set
  to zero, and all enter the first step of the second stage; here none does.
- The running statistics are averaged like the weights; theirs come from forward passes of the
  averaged network. In their mean the weights after its first step count twice, because until
  then the averaged network shares the arrays of the trained one; here each step counts once.
- Crops, flips, jitter and grey images are the authors' on photographs; other data have those
  of their preset. Their initial network is a ResNet-50 trained with AugMix (timm).
- Without `init` the rate is 1e-3, because 5e-5 is for fine-tuning. The first run trains on
  90 % of the images.
"""

import ml_collections

from jbias import config as jc
from jbias.configs import common

LENGTH = 4  # Times the epochs of the data preset.
WARM_START = 1 / 120  # Share of the epochs.
INPUTS = (
    dict(name="random_resized_crop", area=(0.7, 1.0)),
    dict(name="flip"),
    dict(name="colour_jitter", brightness=0.3, contrast=0.3, saturation=0.3, hue=0.3),
    dict(name="grayscale", p=0.1),
)


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; arg: `full`, and those of configs/common.py."""
    chosen, arg = common.take_arguments(arg, full=False)
    explicit = jc.explicit_arguments(arg)
    c = common.experiment(arg, dict(name="erm"))
    is_short = not explicit.isdisjoint({"epochs", "smoke", "demo", "small"})
    c.epochs = c.epochs if is_short else LENGTH * c.epochs
    if c.inputs and c.inputs[0]["name"] == "random_resized_crop":
        c.inputs = (*INPUTS, *c.inputs[2:])
    common.use_adam(c, 5e-5 if c.init else 1e-3)
    c.optim.warmup, c.optim.schedule = "", dict(name="constant")
    warm_start = dict(
        algo=dict(name="linear_probe"),
        epochs=c.epochs * WARM_START,
        optim=c.optim.to_dict(),
    )
    c.stages = (warm_start, {})
    first = "1 step" if "smoke" in explicit else "100 steps"
    common.use_average(c, name="uniform", first=first)
    common.add_label(c, "erm_plusplus")
    if chosen.full:
        for options in (c.train, *c.train.get("also", ())):
            options["split"] = options["split"].partition("[")[0]
        common.add_label(c, "full")
    return c
