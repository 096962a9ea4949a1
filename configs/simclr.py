r"""SimCLR, then a linear head (Chen et al., ICML 2020, arXiv:2002.05709).

Cost: 2 of ERM in the first stage. `--config.stages` may fine-tune instead: name "erm" as
the second stage's algorithm. On ImageNet 100 epochs at rate 0.075 sqrt(batch) and no
more than 1024 images, by SGD (theirs: LARS, batches of 4096, to 1000 epochs).

    python -m jbias.main --config=configs/simclr.py
    python -m jbias.main --config=configs/simclr.py:data=imagenet,root=DIR

The arguments after the colon stand in configs/common.py.
"""

import ml_collections

from configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """The experiment; see configs/common.py for `arg`."""
    # The authors' for ImageNet, and for CIFAR-10.
    strength = 0.8 if common.data_of(arg) == "imagenet" else 0.4
    augment = (
        dict(name="views", views=2),
        dict(name="random_resized_crop", area=(0.08, 1.0)),
        dict(name="flip"),
        dict(
            name="colour_jitter",
            p=0.8,
            brightness=strength,
            contrast=strength,
            saturation=strength,
            hue=strength / 4,
        ),
        dict(name="grayscale", p=0.2),
        dict(name="blur", p=0.5),
    )
    recipe = dict(
        rate=2.4, decay=1e-4, schedule=dict(name="cosine"), warmup="10 epochs"
    )
    c = common.experiment(
        arg,
        dict(name="simclr", temperature=0.1),
        imagenet=dict(epochs=100.0, train=dict(batch=1024), optim=recipe),
    )
    plain = dict(c.optim.to_dict(), rate=0.1, decay=0.0, warmup="")
    head = dict(
        algo=dict(name="linear_probe"),
        epochs=c.epochs / 2,
        inputs=c.inputs,
        optim=plain,
    )
    c.inputs = augment
    c.stages = (dict(epochs=c.epochs), head)
    return c
