r"""PixMix (Hendrycks et al., CVPR 2022, arXiv:2112.05135). Cost: 1.0 and the operations.

The mixing pictures are fractals drawn by code, not the authors' 14,000. On ImageNet as
its authors: rate 0.01, Nesterov, decay 5e-4, cosine, severity 1.

    python -m jbias.main --config=configs/pixmix.py
    python -m jbias.main --config=configs/pixmix.py:data=imagenet,root=DIR

The arguments after the colon stand in configs/common.py.
"""

import ml_collections

from configs import common


def get_config(arg: str = "") -> ml_collections.ConfigDict:
    """The experiment; see configs/common.py for `arg`."""
    return common.experiment(
        arg,
        dict(name="erm"),
        inputs=(
            dict(name="pixmix", severity=1 if common.data_of(arg) == "imagenet" else 3),
        ),
        train=dict(other=dict(data="fractals", split="train")),
        imagenet=dict(
            optim=dict(
                rate=0.01, nesterov=True, decay=5e-4, schedule=dict(name="cosine")
            )
        ),
    )
