r"""Three measures of shape beside cue conflict: the order of parts, edges, the whole.

    jbias evaluate --checkpoint='runs/*' --suite=configs/suites/shape.py
    jbias evaluate --checkpoint=zoo/ \
        --suite=configs/suites/shape.py:data=imagenet,root=/data/imagenet,images=200

    configural          pairs of pictures of the same sixteen tiles, which show two shapes
    tile_order          images with each of their sixteen tiles in the place of another
    cue_decomposition   images after edge-enhancing diffusion, and in shuffled cells
    odd_one_out         whether features tell an image from two with swapped tiles

:data=shapes        the embedded set (the default), for networks that were trained on it
:data=imagenet,root=...
                    or tiny_imagenet, cifar10, cifar100. Without configural, whose
                    pictures show the embedded set's shapes
:correlation=0.99   of the embedded set, as in training
:subset             of ImageNet's classes some are absent
:size=0             pixels; 0 is as usual: 32, 64 or 224
:images=0           how many images are shown, of configural the whole set; 0 is all
:smoke              few images and steps: every part once

Published are 512 to 5792 steps of diffusion; here they are 2048 at 32 and 64 pixels, and 512
at 224, where they take long. `--suite.measures.cue_decomposition.steps=5792` changes them.
"""

import types

import ml_collections

from jbias.configs import suites

SMOKE = 240  # Images of each set; a multiple of what shapes and anagrams draw together.
ARGUMENTS = types.MappingProxyType(
    {
        "shapes": ("correlation",),
        **dict.fromkeys(("cifar10", "cifar100", "tiny_imagenet"), ("root",)),
        "imagenet": ("root", "subset"),
    }
)


def get_config(text: str = "") -> ml_collections.ConfigDict:
    """The suite; see the top of this file for `text`."""
    own = dict(root="", subset=False, correlation=0.99)
    arg = suites.parse_arguments(text, ARGUMENTS, **own)
    drawn = arg.data == "shapes"
    split, size = suites.SETS[arg.data]
    steps = 512 if arg.data == "imagenet" else 2048
    points = 16 if size == 32 else 64  # Cells of 8 by 8 pixels, or as published.
    options = {key: getattr(arg, key) for key in ARGUMENTS[arg.data]}
    few = dict(n=SMOKE) if arg.smoke and drawn else {}
    images = arg.images or (16 if arg.smoke else 0)
    c = ml_collections.ConfigDict()
    c.run, c.size = suites.run_options(), arg.size or size
    c.sets = {split: dict(data=arg.data, split=split, **options, **few)}
    shown = dict(sets=(split,), images=images)
    c.measures = dict(
        accuracy=dict(probe="plain", **shown),
        tile_order=dict(shown),
        cue_decomposition=dict(steps=8 if arg.smoke else steps, points=points, **shown),
        odd_one_out=dict(shown),
    )
    if drawn:
        c.sets["anagrams"] = dict(data="anagrams", split="test", **few)
        c.measures["configural"] = dict(sets=("anagrams",))
    return c
