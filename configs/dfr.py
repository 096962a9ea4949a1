r"""DFR (Kirichenko et al., ICLR 2023, arXiv:2204.02937). Cost: 0.8 of ERM, then 0.3 a step.

Plain training on four fifths of the training images of each class and attribute; then the
linear layer is fitted anew to the fifth that is held out, in batches with equal shares of
the groups of a class and an attribute, which the data must have. `held` is that share
in percent, `l1` the strength of its penalty; the authors search theirs, mostly between
0.002 and 0.2 in these terms.

    jbias train --config=configs/dfr.py
    jbias train --config=configs/dfr.py:data=colored_mnist,root=DIR,held=10

The other arguments after the colon stand in configs/common.py.
"""

import ml_collections

from jbias import config as jc
from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """The experiment; see configs/common.py for `arg`."""
    mine, rest = common.take_arguments(arg, held=20.0, l1=0.003)
    if not 0 < mine.held < 100:
        raise ValueError(
            f"config argument: held must be a percentage above 0 and below 100, got {mine.held:g}"
        )
    c = common.experiment(rest, dict(name="erm"))
    border = f"{100 - mine.held:g}%"
    common.update(c.train, dict(portion=f"[:{border}]"))
    batch = 16 if "smoke" in jc.explicit_arguments(rest) else c.train.batch
    held = dict(portion=f"[{border}:]", balance="group", batch=batch)
    fit = dict(
        algo=dict(name="dfr"),
        train={**c.train.to_dict(), **held},
        epochs=c.epochs * 2,
        inputs=(),
        optim=dict(
            **dict(name="sgd", rate=0.01, momentum=0.9, decay=0.0, l1=mine.l1),
            schedule=dict(name="cosine"),
            warmup="",
            average=0.0,
        ),
    )
    c.stages = ({}, fit)
    return c
