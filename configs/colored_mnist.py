r"""Networks under chosen shifts of colour, on Colored MNIST in four colours.

Hu et al. (2021, arXiv:2111.09190) train standard networks of images of 32
pixels and give neither optimiser nor rate; batches are of 16, as in their learning
curves. Here Adam with 5e-4, cosine, four epochs; SqueezeNets, whose last ReLU dies at
that rate, take 1e-4. Cost: 1.

    jbias study --config=configs/colored_mnist.py:root=DIR,images=5000 \
        --models=resnet18,squeezenet1_0 --levels=M4,C6,J4
    jbias train --config=configs/colored_mnist.py:root=DIR,shift=C6,images=5120

The arguments after the colon stand in configs/common.py; `data` is colored_mnist here,
and without `shift` all digits are in all colours.
"""

import ml_collections

from jbias.configs import common

RATE = 5e-4
RATES = {"squeezenet1_0": 1e-4, "squeezenet1_1": 1e-4}


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """The experiment; see configs/common.py for `arg`."""
    mine, rest = common.take_arguments(
        arg, data="colored_mnist", form="uniform", epochs=4.0
    )
    chosen = f"data={mine.data},epochs={mine.epochs}"
    if mine.data == "colored_mnist":
        chosen += f",form={mine.form}"
    c = common.experiment(",".join(filter(None, (rest, chosen))), dict(name="erm"))
    common.use_adam(c, RATES.get(c.model.name, RATE))
    c.train.batch = 16
    return c
