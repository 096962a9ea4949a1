"""Biases and generalisation of a network, as "Can Biases in ImageNet Models Explain
Generalization?" (Gavrikov and Keuper, CVPR 2024) measured them.

    python -m jbias.evaluate --checkpoint=... --suite=configs/suites/biases.py

:data=shapes        the embedded set, for networks trained on it (the default)
:smoke              a few images of each set, every part once
"""

import ml_collections

from jbias import config as jc

_SHAPES = (
    "test",
    "silhouette",
    "edge",
    "sketch",
    "cue_conflict",
    "stylized",
    "recoloured",
    "corrupted",
)


def get_config(text: str = "") -> ml_collections.ConfigDict:
    arg = jc.parse_arg(
        text, data="shapes", size=0, correlation=0.99, images=0, smoke=False
    )
    c = ml_collections.ConfigDict()
    c.size = arg.size or 32
    c.run = dict(batch=0)
    few = dict(n=240) if arg.smoke else {}
    common = dict(data="shapes", correlation=arg.correlation, **few)
    c.sets = {name: dict(split=name, **common) for name in _SHAPES}
    c.measures = dict(accuracy=dict(probe="plain", sets=_SHAPES))
    return c
