r"""PixMix (Hendrycks et al., CVPR 2022, arXiv:2112.05135). Cost: 1.0 and the operations.

The mixing pictures are fractals drawn by code, not the authors' 14,000. On ImageNet as
its authors: rate 0.01, Nesterov, decay 5e-4, cosine, severity 1, beta 4, pictures cropped
by an eighth of their side; elsewhere the severity and beta of their CIFAR-10.

    jbias train --config=configs/pixmix.py
    jbias train --config=configs/pixmix.py:data=imagenet,root=DIR

configs/common.py lists the arguments after the colon.
"""

import ml_collections

from jbias.configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """Return the experiment's config; configs/common.py documents `arg`."""
    large = common.data_name(arg) == "imagenet"
    pixmix = dict(name="pixmix", severity=1 if large else 3, beta=4 if large else 3)
    area = (0.765625, 0.765625)  # 224 pixels of 256.
    crop = dict(name="random_resized_crop", area=area, aspect=(1.0, 1.0))
    pictures = dict(data="fractals", split="train", inputs=(crop,) if large else ())
    cosine = dict(name="cosine")
    optim = dict(rate=0.01, nesterov=True, decay=5e-4, schedule=cosine)
    return common.experiment(
        arg,
        dict(name="erm"),
        inputs=(pixmix,),
        train=dict(other=pictures),
        imagenet=dict(optim=optim),
    )
