r"""DANN (Ganin et al., JMLR 2016, arXiv:1505.07818). Cost: 0.7 of ERM.

Environments are the sources or the data's "domain", otherwise the "attribute". Steps train the
discriminator and the network in turn, by Adam with DomainBed's moments and its rate for small
images; for pretrained networks DomainBed has the rate 5e-5. The cost is the number of operations:
1.00 of ERM's for a step of the network, 0.34 for a step of the discriminator; the cycles
predicted for a TPU v5e are 1.02 and 0.38 of ERM's.
`conditional=True` is CDANN, as is configs/cdann.py.

    jbias train --config=configs/dann.py
    jbias train --config=configs/dann.py:data=pacs,root=DIR,held_out=sketch

configs/common.py lists the other arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config.

    arg: `conditional` and the arguments of configs/common.py.
    """
    chosen, other_arguments = common.take_arguments(arg, conditional=False)
    algo = dict(
        name="cdann" if chosen.conditional else "dann",
        weight=1.0,
        grad_penalty=0.0,
        d_steps=1,
        d_rate=1.0,
        d_optim=dict(b1=0.5, b2=0.9, decay=0.0),
        width=256,
        depth=3,
        dropout=0.0,
        by="",
    )
    c = common.experiment(other_arguments, algo)
    common.use_adam(c, 1e-3)
    common.update(c, dict(optim=dict(b1=0.5, b2=0.9)))
    return c
