r"""Biases and generalisation of networks, as in "Can Biases in ImageNet Models Explain
Generalization?" (Gavrikov and Keuper, CVPR 2024, https://arxiv.org/abs/2404.01509).

    jbias evaluate --checkpoint='runs/*' --suite=configs/suites/biases.py
    jbias evaluate --checkpoint=zoo/ \
        --suite=configs/suites/biases.py:data=imagenet,root=/data/imagenet,more=/data

:data=shapes        the embedded set (the default), for networks that were trained on it
:data=imagenet,root=...
                    for networks of ImageNet's 1000 classes; root has val/
:more=DIR           folder of other sets of ImageNet's classes: imagenetv2/, imagenet-a/,
                    imagenet-r/, sketch/, stylized-imagenet/
:objectnet=DIR      ObjectNet, images/, accuracy on its 113 classes that overlap with ImageNet's
:refined=DIR        REFINED-BIAS, refined_bias_shape/ and refined_bias_texture/
:frequency=DIR      frequency cue conflicts: shape bias is the share of decisions by low
                    frequencies
:real=FILE          real.json, with all correct classes of each validation image
:stimuli=DIR        folder of edge/, silhouette/ and cue-conflict/ of Geirhos et al. 2019
:humans=DIR         folder raw-data of model-vs-human, with people's answers to these stimuli
:others=DIR         folder of the other fourteen sets of model-vs-human, such as contrast/ and
                    stylized/
:textures=DIR       folder of texture/<class>/, images of texture only, for Geirhos' 16 classes
:backgrounds=DIR    ImageNet-9 (Xiao et al., ICLR 2021), original/, mixed_same/,
                    mixed_rand/, only_fg/ and only_bg_t/, and classes.csv, which maps
                    WordNet ids to its nine classes (docs/data.md, "Classes")
:corrupted=DIR      folder of the published ImageNet-C; without this folder, the corruptions
                    are computed
:data=tiny_imagenet,root=...
                    for networks of Tiny ImageNet's classes, at 64 pixels
:correlation=0.99   for data=shapes: fraction of the images, 0 to 1, whose texture agrees with
                    their class; use the value of training
:subset             allows a root that has only some of the classes
:data=stimuli,stimuli=DIR
                    only Geirhos' stimuli, also with humans= and others=: shape bias, and
                    accuracy by shape and by texture
:data=folder,root=DIR
                    images of your own, root/<split>/<class>/
:split=test         split of such a folder; of several, as in split=test+sketches, measures
                    that change images use only the first
:data=pacs,root=DIR the four styles of PACS
:style=photo        the style of PACS that measures that change images use
:data=cifar10,root=DIR
                    or cifar100: their test images
:size=0             image side in pixels; 0: 32 for shapes and CIFAR, 64 for Tiny ImageNet
                    and PACS, 224 for others
:images=0           number of validation images for measures that change images (spectral,
                    critical band, corruptions, attacks) and for receptive fields; 0: all,
                    and 64 for receptive fields. Measures of unchanged images, such as
                    accuracy and calibration, use whole sets;
                    --suite.measures.accuracy.images=1000 uses fewer images
:attacked=0         number of images to attack; 0: as many as `images`
:suppression        adds images without shape, texture or colour, in 69 conditions, 62 up to
                    64 pixels (the suite `suppression` has only these)
:smoke              for a test: 16 images for measures that change images, 240 images of each
                    set for other measures

Missing test sets are listed, and all other sets are measured. `--only=accuracy,spectral`
selects measures; `--suite.measures.pgd.steps=10` changes an option of a measure.
"""

import math
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

import ml_collections

from jbias import data, errors
from jbias.configs import datasets, suites
from jbias.data import corruptions
from jbias.evals import registry
from jbias.measures import counting

AGGREGATES = ("mean_prob", "sum_prob", "max_prob", "mean_logit")
# Name in records: split. `stylized` has 16 classes, unlike Stylized-ImageNet.
OTHERS = types.MappingProxyType(
    {
        "stylized16" if split == "stylized" else split: split
        for split in data.DATASETS["model_vs_human"].splits
    }
)
BACKGROUNDS = ("original", "mixed_same", "mixed_rand", "only_fg", "only_bg_t")
FREQUENCY = "frequency_cue_conflict"
SMOKE = 240  # Images of each set; a multiple of what shapes draws together.
SHARED_ARGUMENTS = types.MappingProxyType(
    dict(suites.SHARED_ARGUMENTS, attacked=0, suppression=False)
)
ARGUMENTS = types.MappingProxyType(
    {
        "shapes": ("correlation",),
        "tiny_imagenet": ("root", "stimuli", "humans", "others", "frequency"),
        "stimuli": ("stimuli", "humans", "others", "frequency"),
        "folder": ("root", "stimuli", "humans", "others", "frequency", "split"),
        "pacs": ("root", "style"),
        "cifar10": ("root",),
        "cifar100": ("root",),
        "imagenet": (
            "root",
            "stimuli",
            "humans",
            "others",
            "frequency",
            "more",
            "objectnet",
            "refined",
            "real",
            "textures",
            "backgrounds",
            "corrupted",
            "subset",
        ),
    }
)
# Defaults of the arguments that only some data use.
OWN = types.MappingProxyType(
    {
        "root": "",
        "stimuli": "",
        "humans": "",
        "others": "",
        "more": "",
        "objectnet": "",
        "refined": "",
        "frequency": "",
        "real": "",
        "textures": "",
        "backgrounds": "",
        "corrupted": "",
        "subset": False,
        "correlation": 0.99,
        "split": "test",
        "style": "photo",
    }
)
BUDGETS = tuple(eps / 255 for eps in (0.25, 0.5, 1.0, 2.0, 4.0))

# Measures and sets that the suite has only with these arguments.
NEEDS = types.MappingProxyType(
    {
        "human": "humans=DIR, and stimuli=DIR or others=DIR,",
        "shape_bias": "stimuli=DIR or frequency=DIR",
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
        "objectnet": "objectnet=DIR",
        "refined_bias": "refined=DIR",
        FREQUENCY: "frequency=DIR",
    }
)


def get_config(text: str = "") -> ml_collections.ConfigDict:
    """Return the suite; the top of this file documents `text`."""
    return make(suites.parse_arguments(text, ARGUMENTS, SHARED_ARGUMENTS, **OWN))


def make(
    arg: types.SimpleNamespace,
    more_sets: Mapping[str, Mapping] = types.MappingProxyType({}),
    *,
    shown_sets: Mapping[str, Mapping] = types.MappingProxyType({}),
) -> ml_collections.ConfigDict:
    """Return the suite of parsed arguments, such as SHARED_ARGUMENTS | OWN.

    more_sets: names and options of further sets of labelled images, which are also used by
    the probes that change images. shown_sets: further sets that no probe changes.
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
    preset = PRESETS[arg.data](arg)
    c.size = preset.size
    c.sets = preset.sets
    if arg.suppression and preset.changed:
        c.sets.update(suites.people_sets(arg.data, c.sets[preset.changed]))
    c.sets.update(more_sets)
    c.sets.update(shown_sets)
    clean = (preset.changed, *more_sets) if preset.changed else tuple(more_sets)
    c.measures = _measures(
        arg,
        size=preset.size,
        names=tuple(c.sets),
        clean=clean,
        conflict=preset.conflict,
    )
    c.needs = dict(measures=dict(NEEDS), sets=dict(SETS_NEED))
    if arg.data == "shapes":
        c.needs.measures.human += " with data=imagenet or data=tiny_imagenet,"
    return c


def _measures(
    arg,
    *,
    size: int,
    names: tuple[str, ...],
    clean: tuple[str, ...],
    conflict: str,
) -> dict[str, dict]:
    """Return the measures of the suite.

    size: image side in pixels. names: of all sets. clean: sets whose images are changed by
    probes. conflict: the cue-conflict set, "" for none.
    """
    measures = dict(accuracy=_on_whole_sets(arg, names, probe="plain"))
    if clean:
        measures.update(_measures_of_clean(arg, size, clean))
    conflicts = tuple(name for name in names if name in (conflict, FREQUENCY))
    if conflicts:
        rules = ("mean_prob",) if arg.data == "shapes" else AGGREGATES
        measures["shape_bias"] = _on_whole_sets(arg, conflicts, aggregates=rules)
    if conflict and clean:
        decoding = dict(sets=(conflict,), folds=3, strengths=(1e-2, 1e-4))
        if arg.smoke:
            decoding.update(width=32, strengths=(1e-2,))
        measures["decoding"] = decoding
    if arg.suppression and clean:
        measures.update(suites.suppression_measures(arg, clean[0], size))
    if arg.humans:
        shown_to_people = (*datasets.STIMULI, *OTHERS)
        sets = tuple(name for name in names if name in shown_to_people)
        measures["human"] = _on_whole_sets(arg, sets, probe="human", root=arg.humans)
    return measures


def _on_whole_sets(arg, sets: tuple[str, ...], **options) -> dict[str, Any]:
    """Return the options of a measure that shows whole sets; in a smoke run SMOKE images."""
    measure = dict(options, sets=sets)
    if arg.smoke:
        measure["images"] = SMOKE
    return measure


def _measures_of_clean(arg, size: int, clean: tuple[str, ...]) -> dict[str, dict]:
    """Return the measures of sets of labelled images; most of them change the images.

    Those with default options are the rows of registry.PROBES with `in_default_suite`.
    """
    few = dict(sets=clean, images=arg.images)
    few_attacked = dict(few, images=arg.attacked or arg.images)
    imagenet_c = dict(few, probe="corruptions", names="imagenet_c")
    if size not in corruptions.SIDES:
        # Settings of corruptions are published for three sizes; take the nearest.
        distance = lambda side: abs(math.log(side / size))
        imagenet_c["table"] = min(corruptions.SIDES, key=distance)
    on_whole_sets, on_few = {}, {}
    for name, row in registry.PROBES.items():
        if row.in_default_suite and row.kind is counting.Counting:
            on_whole_sets[name] = _on_whole_sets(arg, clean, probe=name)
        elif row.in_default_suite:
            on_few[name] = dict(few, probe=name)
    fields = dict(sets=clean, images=arg.images or 64)
    measures = dict(on_whole_sets, receptive_field=fields)
    measures.update(
        on_few,
        imagenet_c=imagenet_c,
        imagenet_c_bar=dict(few, probe="corruptions", names="imagenet_c_bar"),
        pgd=dict(few_attacked, probe="pgd"),
        pgd_l2=dict(few_attacked, probe="pgd", norm="l2", eps=0.5, steps=10),
        fgsm=dict(few_attacked, probe="fgsm", eps=BUDGETS),
    )
    if arg.corrupted:
        del measures["imagenet_c"]
    # The original test has sixteen classes.
    sixteen = {"shapes": clean[0], "imagenet": "imagenet16"}.get(arg.data)
    if sixteen:
        measures["critical_band_original"] = dict(
            few, probe="critical_band", variant="original", sets=(sixteen,)
        )
    if arg.smoke:
        measures["pgd"]["steps"] = measures["pgd_l2"]["steps"] = 2
        for name in ("imagenet_c", "imagenet_c_bar"):
            if name in measures:
                measures[name]["severities"] = (3,)
    return measures


class Preset(NamedTuple):
    """The sets of the suite for one value of `data`."""

    size: int  # Image side in pixels.
    sets: dict[str, dict]  # Options by name.
    changed: str  # The set whose images are changed by probes; "" for none.
    conflict: str  # The cue-conflict set; "" for none.


def shapes(arg) -> Preset:
    """Return the embedded set's test sets; probes change its set `test`."""
    options: dict[str, Any] = dict(data="shapes", correlation=arg.correlation)
    if arg.smoke:
        options["n"] = SMOKE
    sets = {split: dict(options, split=split) for split in datasets.SHAPES_TESTS}
    return Preset(arg.size or 32, sets, changed="test", conflict="cue_conflict")


def tiny_imagenet(arg) -> Preset:
    """Return Tiny ImageNet's validation images and Geirhos' stimuli."""
    sets = {"val": dict(data="tiny_imagenet", split="val", root=arg.root)}
    sets.update(_stimuli(arg))
    return Preset(arg.size or 64, sets, changed="val", conflict=_conflict(arg))


def stimuli(arg) -> Preset:
    """Return Geirhos' stimuli, which no probe changes."""
    sets = _stimuli(arg)
    return Preset(arg.size or 224, sets, changed="", conflict=_conflict(arg))


def folder(arg) -> Preset:
    """Return a user's folders root/<split>/<class>/<image>, and Geirhos' stimuli."""
    splits = arg.split.split("+")
    sets = {split: dict(data="folder", split=split, root=arg.root) for split in splits}
    sets.update(_stimuli(arg))
    return Preset(arg.size or 224, sets, changed=splits[0], conflict=_conflict(arg))


def pacs(arg) -> Preset:
    """Return the four styles; probes change the one that a network was trained on."""
    errors.check_known(suites.WHERE, arg.style, datasets.STYLES, "style")
    sets = {
        style: dict(data="pacs", split=style, root=arg.root)
        for style in datasets.STYLES
    }
    return Preset(arg.size or 64, sets, changed=arg.style, conflict="")


def cifar(arg) -> Preset:
    """Return the test images of CIFAR-10 or CIFAR-100."""
    sets = {"test": dict(data=arg.data, split="test", root=arg.root)}
    return Preset(arg.size or 32, sets, changed="test", conflict="")


def imagenet(arg) -> Preset:
    """Return those of the study's ten benchmarks whose folders are given."""
    common = dict(split="val", root=arg.root)
    if arg.subset:
        common["subset"] = True
    sets = {"imagenet": dict(common, data="imagenet")}
    # 1,060 images, of which the test counts 1,050.
    sets["imagenet16"] = dict(common, data="imagenet16", each=70)
    if arg.real:
        sets["imagenet_real"] = dict(
            data="imagenet_real", split="val", root=arg.root, real=arg.real
        )
    if arg.more:
        for name, (data, split, folder) in RELATIVES.items():
            root = f"{arg.more}/{folder}".rstrip("/")
            sets[name] = dict(data=data, split=split, root=root)
    if arg.objectnet:
        sets["objectnet"] = dict(data="objectnet", split="test", root=arg.objectnet)
    if arg.refined:
        sets["refined_bias"] = dict(data="refined_bias", split="both", root=arg.refined)
    if arg.textures:
        sets["texture"] = dict(
            data="folder", split="texture", root=arg.textures, space="entry16"
        )
    if arg.backgrounds:
        mapping = f"{arg.backgrounds}/classes.csv"
        for name in BACKGROUNDS:
            sets[name] = dict(
                data="folder", split=name, root=arg.backgrounds, mapping=mapping
            )
    if arg.corrupted:
        sets.update(datasets.corrupted("imagenet_c", arg.corrupted, extra=True))
    sets.update(_stimuli(arg))
    return Preset(arg.size or 224, sets, changed="imagenet", conflict=_conflict(arg))


def _conflict(arg) -> str:
    """Return the name of Geirhos' cue-conflict set; "" if `stimuli` is not given."""
    return "cue-conflict" if arg.stimuli else ""


def _stimuli(arg) -> dict[str, dict]:
    """Return Geirhos' stimuli, other sets of model-vs-human and frequency cues, if given."""
    sets = datasets.stimuli(arg.stimuli)
    if arg.others:
        for name, split in OTHERS.items():
            sets[name] = dict(data="model_vs_human", split=split, root=arg.others)
    if arg.frequency:
        sets[FREQUENCY] = dict(data=FREQUENCY, split="test", root=arg.frequency)
    return sets


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
