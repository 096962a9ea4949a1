r"""Networks under chosen shifts of colour, on Colored MNIST in four colours.

Hu et al. (2021, arXiv:2111.09190) train standard networks on images of 32 pixels and
report neither optimiser nor rate; batches have 16 images, as in their learning curves.
Here: Adam at rate 5e-4, cosine schedule, four epochs; SqueezeNets, whose last ReLU dies at
that rate, use 1e-4. Cost: 1.0 of ERM.

    jbias study --config=configs/colored_mnist.py:root=DIR,images=5000 \
        --models=resnet18,squeezenet1_0 --levels=M4,C6,J4
    jbias train --config=configs/colored_mnist.py:root=DIR,shift=C6,images=5120

configs/common.py lists the arguments after the colon. The default of `data` is
colored_mnist; without `shift` every digit appears in every colour.
"""

import ml_collections

from jbias.configs import common

RATE = 5e-4
RATES = {"squeezenet1_0": 1e-4, "squeezenet1_1": 1e-4}


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    defaults = dict(data="colored_mnist", form="uniform", epochs=4.0)
    chosen, other_arguments = common.take_arguments(arg, **defaults)
    arguments = [f"data={chosen.data}", f"epochs={chosen.epochs}"]
    if chosen.data == "colored_mnist":
        arguments.append(f"form={chosen.form}")
    if other_arguments:
        arguments.insert(0, other_arguments)
    c = common.experiment(",".join(arguments), dict(name="erm"))
    common.use_adam(c, RATES.get(c.model.name, RATE))
    c.train.batch = 16
    return c
