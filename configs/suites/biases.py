r"""Biases and generalisation of networks, as in "Can Biases in ImageNet Models Explain
Generalization?" (Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509).

    jbias evaluate --checkpoint='runs/*' --suite=configs/suites/biases.py
    jbias evaluate --checkpoint=zoo/ \
        --suite=configs/suites/biases.py:data=imagenet,root=/data/imagenet,more=/data

:data=shapes        the embedded set (the default), for networks that were trained on it
:data=imagenet,root=...
                    for networks of ImageNet's 1000 classes; root has val/
:more=DIR           where the other sets of ImageNet's classes lie: imagenetv2/,
                    imagenet-a/, imagenet-r/, sketch/, stylized-imagenet/
:real=FILE          real.json, all the right classes of the validation images
:stimuli=DIR        edge/, silhouette/ and cue-conflict/ of Geirhos et al. 2019
:humans=DIR         people's answers to these, raw-data of model-vs-human
:others=DIR         the other fourteen sets of model-vs-human, such as contrast/ and stylized/
:textures=DIR       texture/<class>/, images of nothing but texture, for Geirhos' 16 classes
:backgrounds=DIR    ImageNet-9 (Xiao et al., ICLR 2021), original/, mixed_same/,
                    mixed_rand/, only_fg/ and only_bg_t/, and classes.csv, which says whose
                    WordNet ids answer for its nine classes (docs/data.md, "Classes")
:corrupted=DIR      ImageNet-C as published; without it the corruptions are made here
:data=tiny_imagenet,root=...
                    for networks of Tiny ImageNet's classes, at 64 pixels
:correlation=0.99   of the embedded set, as in training
:subset             of root's classes some are absent
:data=stimuli,stimuli=DIR
                    Geirhos' stimuli alone, also with humans= and others=: shape bias, and
                    accuracy by either cue
:data=folder,root=DIR
                    images of your own, root/<split>/<class>/
:split=test         of such a folder; several as split=test+sketches, of which probes change
                    the first
:data=pacs,root=DIR the four styles of PACS
:style=photo        of PACS, which probes change
:data=cifar10,root=DIR
                    or cifar100: their test images
:size=0             pixels; 0 is 32 for shapes and CIFAR, 64 for Tiny ImageNet and PACS, else
                    224
:images=0           how many images of the validation set are shown by the probes that change
                    them (spectral, critical band, corruptions, attacks), and for receptive
                    fields; 0 is all, and 64 for these. What shows images as they are, such
                    as accuracy and calibration, shows whole sets;
                    --suite.measures.accuracy.images=1000 shows fewer of each
:attacked=0         how many are attacked; 0 is `images`
:suppression        also without shape, texture and colour, in 69 conditions, 62 up to 64
                    pixels (the suite `suppression` has these alone)
:smoke              16 images where they are changed, 240 of each set as it is: every part
                    once

What is not there is told about, and the rest is measured. `--only=accuracy,spectral`
measures some; `--suite.measures.pgd.steps=10` changes one.
"""

import math
import types
from collections.abc import Mapping

import ml_collections

from jbias import config as jc
from jbias import data
from jbias.configs import datasets, suites
from jbias.data import corruptions

AGGREGATES = ("mean_prob", "sum_prob", "max_prob", "mean_logit")
# Name in records, and split; stylized is not Stylized-ImageNet, which has all classes.
OTHERS = types.MappingProxyType(
    {
        "stylized16" if split == "stylized" else split: split
        for split in data.DATASETS["model_vs_human"].splits
    }
)
BACKGROUNDS = ("original", "mixed_same", "mixed_rand", "only_fg", "only_bg_t")
SMOKE = 240  # Images of each set; a multiple of what shapes draws together.
SHARED_ARGUMENTS = types.MappingProxyType(
    dict(suites.SHARED_ARGUMENTS, attacked=0, suppression=False)
)
_LARGE = ("more", "real", "textures", "backgrounds", "corrupted")
_PEOPLE = ("stimuli", "humans", "others")
_TINY = ("root", *_PEOPLE)
ARGUMENTS = types.MappingProxyType(
    {
        "shapes": ("correlation",),
        "tiny_imagenet": _TINY,
        "stimuli": _PEOPLE,
        "folder": (*_TINY, "split"),
        "pacs": ("root", "style"),
        **dict.fromkeys(("cifar10", "cifar100"), ("root",)),
        "imagenet": (*_TINY, *_LARGE, "subset"),
    }
)
# Arguments of some data, by their defaults.
OWN = types.MappingProxyType(
    {
        **dict.fromkeys((*_TINY, *_LARGE), ""),
        **dict(subset=False, correlation=0.99, split="test", style="photo"),
    }
)
BUDGETS = tuple(eps / 255 for eps in (0.25, 0.5, 1.0, 2.0, 4.0))

# The arguments without which the suite has not these.
NEEDS = types.MappingProxyType(
    {
        "human": "humans=DIR, and stimuli=DIR or others=DIR,",
        "shape_bias": "stimuli=DIR",
        "decoding": "stimuli=DIR",
        "critical_band_original": "data=imagenet",
    }
)
SETS_NEED = types.MappingProxyType(
    {
        **dict.fromkeys(datasets.STIMULI, "stimuli=DIR"),
        **dict.fromkeys(OTHERS, "others=DIR"),
        **dict.fromkeys(BACKGROUNDS, "backgrounds=DIR"),
        "texture": "textures=DIR",
    }
)


def get_config(text: str = "") -> ml_collections.ConfigDict:
    """The suite; see the top of this file for `text`."""
    return make(suites.parse_arguments(text, ARGUMENTS, SHARED_ARGUMENTS, **OWN))


def make(
    arg: types.SimpleNamespace, own: Mapping[str, Mapping] = types.MappingProxyType({})
) -> ml_collections.ConfigDict:
    """Return the suite of arguments that are read, such as SHARED_ARGUMENTS | OWN.

    own: by name, options of further sets of labelled images, which probes change too.
    """
    if arg.humans and not (arg.stimuli or arg.others):
        raise ValueError(
            "suite argument: humans are compared on stimuli and others; give "
            "stimuli=DIR, others=DIR or both"
        )
    if arg.smoke:
        arg.images = arg.images or 16
    c = ml_collections.ConfigDict()
    c.run = suites.run_options()
    c.size, c.sets, first, conflict = PRESETS[arg.data](arg)
    if arg.suppression and first:
        c.sets.update(suites.people_sets(arg.data, c.sets[first]))
    c.sets.update(own)
    clean = (*([first] if first else ()), *own)
    c.measures = _measures(arg, c.size, tuple(c.sets), clean, conflict)
    c.needs = dict(measures=dict(NEEDS), sets=dict(SETS_NEED))
    if arg.data == "shapes":
        c.needs.measures.human += " with data=imagenet or data=tiny_imagenet,"
    return c


def _measures(
    arg, size: int, names: tuple, clean: tuple[str, ...], conflict: str | None
) -> dict:
    """The measures of a family of sets: `clean` are those that probes change."""
    whole = dict(images=SMOKE) if arg.smoke else {}
    found = dict(accuracy=dict(probe="plain", sets=names, **whole))
    if clean:
        found |= _changed(arg, size, clean, whole)
    if conflict:
        rules = ("mean_prob",) if arg.data == "shapes" else AGGREGATES
        found["shape_bias"] = dict(sets=(conflict,), aggregates=rules, **whole)
    if conflict and clean:
        found["decoding"] = dict(sets=(conflict,), folds=3, strengths=(1e-2, 1e-4))
        if arg.smoke:
            found["decoding"] |= dict(width=32, strengths=(1e-2,))
    if arg.suppression and clean:
        found |= suites.suppression_measures(arg, clean[0], size)
    if arg.humans:
        people = tuple(name for name in names if name in (*datasets.STIMULI, *OTHERS))
        found["human"] = dict(probe="human", sets=people, root=arg.humans, **whole)
    return found


def _changed(arg, size: int, clean: tuple[str, ...], whole: dict) -> dict:
    """The measures of sets of labelled images, most of which change these."""
    few = dict(sets=clean, images=arg.images)
    # Settings of corruptions are published for three sizes; the nearest is taken.
    near = min(corruptions.SIDES, key=lambda side: abs(math.log(side / size)))
    table = {} if size in corruptions.SIDES else dict(table=near)
    few_attacked = dict(few, images=arg.attacked or arg.images)
    found = dict(
        calibration=dict(probe="calibration", sets=clean, **whole),
        classes=dict(probe="classes", sets=clean, **whole),
        receptive_field=dict(sets=clean, images=arg.images or 64),
        spectral=dict(probe="spectral", **few),
        critical_band=dict(probe="critical_band", **few),
        imagenet_c=dict(probe="corruptions", names="imagenet_c", **table, **few),
        imagenet_c_bar=dict(probe="corruptions", names="imagenet_c_bar", **few),
        pgd=dict(probe="pgd", **few_attacked),
        pgd_l2=dict(probe="pgd", norm="l2", eps=0.5, steps=10, **few_attacked),
        fgsm=dict(probe="fgsm", eps=BUDGETS, **few_attacked),
    )
    if arg.corrupted:
        del found["imagenet_c"]
    # Sixteen classes, as the test was made for.
    sixteen = {"shapes": clean[0], "imagenet": "imagenet16"}.get(arg.data)
    if sixteen:
        found["critical_band_original"] = dict(
            probe="critical_band", variant="original", **{**few, "sets": (sixteen,)}
        )
    if arg.smoke:
        found["pgd"]["steps"] = found["pgd_l2"]["steps"] = 2
        for name in {"imagenet_c", "imagenet_c_bar"} & set(found):
            found[name]["severities"] = (3,)
    return found


def shapes(arg) -> tuple[int, dict, str, str]:
    """The embedded set's own test sets, and probes on its images of many scenes."""
    few = dict(n=SMOKE) if arg.smoke else {}
    common = dict(data="shapes", correlation=arg.correlation, **few)
    found = {name: dict(split=name, **common) for name in datasets.SHAPES_TESTS}
    return arg.size or 32, found, "test", "cue_conflict"


def tiny_imagenet(arg) -> tuple[int, dict, str, str | None]:
    """Its validation images, and Geirhos' stimuli."""
    found = {"val": dict(data="tiny_imagenet", split="val", root=arg.root)}
    found |= _stimuli(arg)
    return arg.size or 64, found, "val", "cue-conflict" if arg.stimuli else None


def stimuli(arg) -> tuple[int, dict, str, str | None]:
    """Geirhos' stimuli alone, which no probe changes."""
    conflict = "cue-conflict" if arg.stimuli else None
    return arg.size or 224, _stimuli(arg), "", conflict


def folder(arg) -> tuple[int, dict, str, str | None]:
    """A user's own folders, root/<split>/<class>/<image>, and Geirhos' stimuli."""
    splits = arg.split.split("+")
    found = {x: dict(data="folder", split=x, root=arg.root) for x in splits}
    found |= _stimuli(arg)
    return arg.size or 224, found, splits[0], "cue-conflict" if arg.stimuli else None


def pacs(arg) -> tuple[int, dict, str, None]:
    """The four styles; probes change the one that a network was trained on."""
    jc.check_known(suites.WHERE, arg.style, datasets.STYLES, "style")
    found = {x: dict(data="pacs", split=x, root=arg.root) for x in datasets.STYLES}
    return arg.size or 64, found, arg.style, None


def cifar(arg) -> tuple[int, dict, str, None]:
    """The test images of CIFAR-10 or CIFAR-100."""
    found = {"test": dict(data=arg.data, split="test", root=arg.root)}
    return arg.size or 32, found, "test", None


def imagenet(arg) -> tuple[int, dict, str, str | None]:
    """The ten benchmarks of the study, of those that are named."""
    own = dict(root=arg.root, **(dict(subset=True) if arg.subset else {}))
    found = {"imagenet": dict(data="imagenet", split="val", **own)}
    # 1,060 images, of which the test counts 1,050.
    found["imagenet16"] = dict(data="imagenet16", split="val", each=70, **own)
    if arg.real:
        found["imagenet_real"] = dict(
            data="imagenet_real", split="val", root=arg.root, real=arg.real
        )
    if arg.more:
        for name, (data, split, folder) in RELATIVES.items():
            root = f"{arg.more}/{folder}".rstrip("/")
            found[name] = dict(data=data, split=split, root=root)
    if arg.textures:
        found["texture"] = dict(
            data="folder", split="texture", root=arg.textures, space="entry16"
        )
    for name in BACKGROUNDS if arg.backgrounds else ():
        found[name] = dict(
            data="folder",
            split=name,
            root=arg.backgrounds,
            mapping=f"{arg.backgrounds}/classes.csv",
        )
    if arg.corrupted:
        found |= datasets.corrupted("imagenet_c", arg.corrupted, extra=True)
    found |= _stimuli(arg)
    return arg.size or 224, found, "imagenet", "cue-conflict" if arg.stimuli else None


def _stimuli(arg) -> dict:
    """Geirhos' stimuli, and the other sets of model-vs-human, where they are named."""
    others = OTHERS if arg.others else {}
    return datasets.stimuli(arg.stimuli) | {
        name: dict(data="model_vs_human", split=split, root=arg.others)
        for name, split in others.items()
    }


# Name in records: the data set, its split, and its folder below `more`.
RELATIVES = types.MappingProxyType(
    {
        "imagenet_v2": ("imagenet_v2", "matched-frequency", "imagenetv2"),
        "imagenet_a": ("imagenet_a", "imagenet-a", ""),
        "imagenet_r": ("imagenet_r", "imagenet-r", ""),
        "imagenet_sketch": ("imagenet_sketch", "sketch", ""),
        "stylized1000": ("stylized_imagenet", "val", "stylized-imagenet"),
    }
)
PRESETS = types.MappingProxyType(
    {
        "shapes": shapes,
        "imagenet": imagenet,
        "tiny_imagenet": tiny_imagenet,
        "stimuli": stimuli,
        "folder": folder,
        "pacs": pacs,
        "cifar10": cifar,
        "cifar100": cifar,
    }
)
