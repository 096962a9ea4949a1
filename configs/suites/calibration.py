r"""All measures of shape bias on one family of drawn scenes, to calibrate them against each other.

    jbias evaluate --checkpoint='runs/*' --suite=configs/suites/calibration.py

The sets are those of the embedded data set `cues`; jbias/calibrating/measures.py lists the sets and
the numbers that each measure is read from. The networks must have its sixteen classes. Their
reliance on each cue is verified on the set `factorial`, on all combinations of the cues.

:images=240         number of images for measures that change images, and for activations
:factorial=4096     number of images of the set `factorial`; 16384: every combination once
:dial=-1            for iOcclusion, the options of the network's training images in the set `cues`:
:shortcut=          dial, shortcut and strength, and its design and noise; dial=-1 leaves
:strength=0.0       iOcclusion out
:design=salience
:noise=0.0
:smoke              for a test: few images, conditions and steps
"""

import types

import ml_collections

from jbias.configs import suites

ARGUMENTS = types.MappingProxyType(
    {"cues": ("factorial", "dial", "shortcut", "strength", "design", "noise")}
)
SHARED_ARGUMENTS = types.MappingProxyType(dict(data="cues", images=240, smoke=False))
SPLITS = (
    "test",
    "cue_conflict",
    "cue_conflict_free",
    "single_cue",
    "silhouette",
    "edge",
    "sketch",
    "texture",
    "stylized",
    "recoloured",
)
SMOKE = 240  # Images of each set; a multiple of what cues and anagrams draw together.


def get_config(text: str = "") -> ml_collections.ConfigDict:
    """Return the suite; the top of this file documents `text`."""
    arg = suites.parse_arguments(
        text,
        ARGUMENTS,
        SHARED_ARGUMENTS,
        factorial=4096,
        dial=-1.0,
        shortcut="",
        strength=0.0,
        design="salience",
        noise=0.0,
    )
    c = ml_collections.ConfigDict()
    c.run = suites.run_options()
    c.size = 32
    c.sets = _sets(arg)
    c.measures = _measures(arg)
    return c


def _sets(arg: types.SimpleNamespace) -> dict[str, dict]:
    """Return the options of the sets by name."""
    shown = {"n": SMOKE} if arg.smoke else {}
    sets = {split: dict(shown, data="cues", split=split) for split in SPLITS}
    if arg.smoke:
        sets["single_cue"]["n"] = 224
    count = 256 if arg.smoke else arg.factorial
    sets["factorial"] = dict(data="cues", split="factorial", n=count)
    sets["anagrams"] = dict(shown, data="anagrams", split="test")
    if arg.dial >= 0:
        planted = dict(
            design=arg.design,
            dial=arg.dial,
            shortcut=arg.shortcut,
            strength=arg.strength,
            noise=arg.noise,
            agrees=(0.9, 0.9, 0.0625, 0.25),
            hidden=(0.0, 0.0),
        )
        for split in ("train", "valid"):
            # As many images as in training: whole blocks are drawn.
            sets[split] = dict(planted, data="cues", split=split, **shown)
    return sets


def _measures(arg: types.SimpleNamespace) -> dict[str, dict]:
    """Return the options of the measures by name."""
    images = min(arg.images, 16) if arg.smoke else arg.images
    few = dict(sets=("test",), images=images)
    decoding = dict(sets=("cue_conflict_free",), images=0, folds=3, strengths=(1e-2,))
    decoding["width"] = 32 if arg.smoke else 128
    measures = dict(
        accuracy=dict(probe="plain", sets=(*SPLITS, "factorial")),
        shape_bias=dict(sets=("cue_conflict", "cue_conflict_free")),
        configural=dict(sets=("anagrams",)),
        suppression=dict(few, families=("people",), reference=64),
        spectral=dict(few),
        critical_band=dict(few),
        grid_shuffle=dict(few, grids=(4,)),
        cut_occlusion=dict(few, fills=("black",)),
        tile_order=dict(few),
        cue_decomposition=dict(few, points=16, steps=8 if arg.smoke else 2048),
        odd_one_out=dict(few),
        decoding=decoding,
    )
    if arg.dial >= 0:
        masks = dict(masks=("rectangle",), fractions=(0.5,))
        measures["occlusion"] = dict(few, **masks, sets=("train", "valid"))
    return measures
