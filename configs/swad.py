r"""SWAD, flat minima by averages of weights (Cha et al., NeurIPS 2021, arXiv:2102.08604).

Cost: 1.0 to 1.1 of ERM per step (1.1 predicted for a TPU v5e); nine copies of the network per seed; at each evaluation, the validation
set once more and a forward pass over 100 training batches. Evaluates the mean of the weights over
the stretch of training in which the validation loss is low; training is ERM's. The options are
the authors'; `eval_every` sets the length of a segment, and four evaluations are needed.
If the validation loss does not converge, the average is of the last segment alone. A log line says
so, and the metrics `swad_*` of training records have the averaged stretch.
The authors fine-tune pretrained ResNets by Adam at 5e-5 and evaluate every 50 to 500 steps; here
the presets' recipe is used. They recompute batch norms, unless frozen, from 500 batches, once.
No recipe for ImageNet was published. Report the last evaluation (`jbias report --selection=last_n --last=1`),
as the validation set has chosen the stretch already.

    jbias train --config=configs/swad.py
    jbias train --config=configs/swad.py:data=imagenet,root=DIR --config.eval_every='2 %'

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias import config as jc
from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    c = common.experiment(arg, dict(name="erm"))
    explicit = jc.explicit_arguments(arg)
    common.use_average(
        c,
        name="swad",
        n_converge=3,
        n_tolerance=6,
        tolerance_ratio=0.3,
        statistics="recompute",
        batches=2 if "smoke" in explicit else 100,
    )
    if not explicit.isdisjoint({"smoke", "demo"}):
        c.eval_every = "20 %"  # A segment: five are enough for the loss to converge.
    common.add_label(c, "swad")
    return c
