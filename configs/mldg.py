r"""MLDG (Li et al., AAAI 2018, arXiv:1710.03463). Cost: 2.0 of ERM.

Environments are the sources or the data's "domain", otherwise the "attribute". Each step draws
one of them for meta-test, and 8 of the 16 textures of the embedded set: a loss of few examples is
noisy. The inner step has the preset's rate: with another `optim.rate` set `algo.inner_rate`, too.
`variant=domainbed` has DomainBed's inner steps for pairs of environments, and its Adam at 1e-3,
its rate for small images, in both kinds of steps. It has one environment for meta-test, too;
DomainBed's default is two (--config.algo.meta_test=2). Its cost is up to 2 for each environment for
meta-train. The cycles predicted for a TPU v5e are 1.93 of ERM's.

    jbias train --config=configs/mldg.py
    jbias train --config=configs/mldg.py:data=pacs,root=DIR,held_out=sketch

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    chosen, other_arguments = common.take_arguments(arg, variant="")
    is_embedded = common.data_name(other_arguments) == "shapes"
    algo = dict(
        name="mldg",
        beta=1.0,
        inner_rate=0.0,  # See below.
        meta_test=8 if is_embedded else 1,
        variant=chosen.variant,
        by="",
    )
    c = common.experiment(other_arguments, algo)
    if chosen.variant == "domainbed":
        common.use_adam(c, 1e-3)
    c.algo.inner_rate = c.optim.rate
    common.add_label(c, chosen.variant)
    return c
