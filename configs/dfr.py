r"""DFR (Kirichenko et al., ICLR 2023, arXiv:2204.02937). Cost: 0.8 of ERM, then 0.3 a step.

Plain training on four fifths of the training images of each class and attribute; then the
linear layer is trained again on the held-out fifth, in batches with equal shares of the
groups (class and attribute; the data must have both). `held` is the held-out share in
percent, `l1` the strength of the L1 penalty; the authors search it, mostly between
0.002 and 0.2 in these units.

    jbias train --config=configs/dfr.py
    jbias train --config=configs/dfr.py:data=colored_mnist,root=DIR,held=10

configs/common.py lists the other arguments after the colon.
"""

import ml_collections

from jbias import config as jc
from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    dfr, arg = common.take_arguments(arg, held=20.0, l1=0.003)
    if not 0 < dfr.held < 100:
        raise ValueError(
            "config argument: held must be a percentage above 0 and below 100, got "
            f"{dfr.held:g}"
        )
    c = common.experiment(arg, dict(name="erm"))
    border = f"{100 - dfr.held:g}%"
    common.update(c.train, dict(portion=f"[:{border}]"))
    is_smoke = "smoke" in jc.explicit_arguments(arg)
    train = c.train.to_dict()
    train.update(
        portion=f"[{border}:]",
        balance="group",
        batch=16 if is_smoke else c.train.batch,
    )
    last_layer = dict(
        algo=dict(name="dfr"),
        train=train,
        epochs=c.epochs * 2,
        inputs=(),
        optim=dict(
            name="sgd",
            rate=0.01,
            momentum=0.9,
            decay=0.0,
            l1=dfr.l1,
            schedule=dict(name="cosine"),
            warmup="",
            average=0.0,
        ),
    )
    c.stages = ({}, last_layer)
    return c
