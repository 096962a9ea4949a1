r"""Measures of shape other than cue conflict: order of parts, edges, configuration.

    jbias evaluate --checkpoint='runs/*' --suite=configs/suites/shape.py
    jbias evaluate --checkpoint=zoo/ \
        --suite=configs/suites/shape.py:data=imagenet,root=/data/imagenet,images=200

    configural          pairs of pictures that show two shapes with the same sixteen tiles
    tile_order          images whose sixteen tiles are permuted
    cue_decomposition   images after edge-enhancing diffusion, and images of shuffled cells
    odd_one_out         whether features separate an image from two images with swapped tiles

:data=shapes        the embedded set (the default), for networks that were trained on it
:data=imagenet,root=...
                    or tiny_imagenet, cifar10, cifar100. The measure `configural` is left
                    out, because its pictures show shapes of the embedded set
:correlation=0.99   for data=shapes: fraction of the images, 0 to 1, whose texture agrees with
                    their class; use the value of training
:subset             allows a root that has only some of ImageNet's classes
:size=0             image side in pixels; 0: 32, 64 or 224, depending on the data set
:images=0           number of images per measure; 0: all. `configural` always uses its whole set
:smoke              for a test: few images and steps

The authors used 512 to 5792 steps of diffusion; the defaults are 2048 at 32 and 64 pixels, and
512 at 224, where steps are slow. `--suite.measures.cue_decomposition.steps=5792` changes them.
"""

import types

import ml_collections

from jbias.configs import suites

SMOKE = 240  # Images of each set; a multiple of what shapes and anagrams draw together.
ARGUMENTS = types.MappingProxyType(
    {
        "shapes": ("correlation",),
        "cifar10": ("root",),
        "cifar100": ("root",),
        "tiny_imagenet": ("root",),
        "imagenet": ("root", "subset"),
    }
)


def get_config(text: str = "") -> ml_collections.ConfigDict:
    """Return the suite; the top of this file documents `text`."""
    arg = suites.parse_arguments(
        text, ARGUMENTS, root="", subset=False, correlation=0.99
    )
    is_drawn = arg.data == "shapes"
    split, default_size = suites.SETS[arg.data]
    steps = 512 if arg.data == "imagenet" else 2048
    if arg.smoke:
        steps = 8
    # Shuffled cells: 16 of 8 by 8 pixels at 32 pixels, otherwise 64 as published.
    points = 16 if default_size == 32 else 64
    options = dict(data=arg.data, split=split)
    for name in ARGUMENTS[arg.data]:
        options[name] = getattr(arg, name)
    if arg.smoke and is_drawn:
        options["n"] = SMOKE
    shown = dict(sets=(split,), images=arg.images or (16 if arg.smoke else 0))
    c = ml_collections.ConfigDict()
    c.run = suites.run_options()
    c.size = arg.size or default_size
    c.sets = {split: options}
    c.measures = dict(
        accuracy=dict(shown, probe="plain"),
        tile_order=dict(shown),
        cue_decomposition=dict(shown, steps=steps, points=points),
        odd_one_out=dict(shown),
    )
    if is_drawn:
        anagrams = dict(data="anagrams", split="test")
        if arg.smoke:
            anagrams["n"] = SMOKE
        c.sets["anagrams"] = anagrams
        c.measures["configural"] = dict(sets=("anagrams",))
    return c
