r"""Effects of distorted images on analyses, as in "On the effects of data distortion on model
analysis and training" (Marcu and Pruegel-Bennett, https://arxiv.org/abs/2110.13968).

    jbias evaluate --runs='runs/distortion/*' --suite=configs/suites/distortion.py
    jbias evaluate --runs='runs/distortion/*' \
        --suite=configs/suites/distortion.py:data=cifar10,root=DIR,other=cifar100,other_root=DIR

The networks may be runs of configs/distortion.py or any other networks for the same classes.

:data=shapes        the embedded set (the default), for networks that were trained on it
:data=cifar10,root=...
                    cifar100, mnist, fashion_mnist, tiny_imagenet or imagenet
:data=stacked,root=...,digits=...
                    for networks of MNIST digits above CIFAR-10 images: accuracy by the class
                    of either half; root is the folder of CIFAR-10, digits that of MNIST
:train=             split of the training images, which are measured without augmentation;
                    "": the split that the config trains on, train[:98%]
:drop=truck         the class, or classes such as truck+ship, that networks were trained
                    without
:keep=FILE          list of the images that networks were trained on, if not all images
:small              for networks trained with the argument `small` of the config, on
                    train[:10%]
:other=NAME         a second data set, whose images cover parts of the images of the first,
                    such as cifar100, or fractals, which needs no files (default for shapes)
:other_root=DIR     folder of the second data set
:other_split=train  split of the second data set
:stimuli=DIR        folder of edge/, silhouette/ and cue-conflict/ of Geirhos et al. 2019, for
                    networks of ImageNet's and Tiny ImageNet's classes; for ImageNet, images
                    are enlarged to 256 pixels and cropped to the middle 224, as in the
                    paper's code (the suite of biases uses the whole images)
:correlation=0.99   for data=shapes: fraction of the images, 0 to 1, whose texture agrees with
                    their class; use the value of training
:subset             allows a root that has only some of ImageNet's classes
:size=0             image side in pixels; 0: 28, 32, 64 or 224, depending on the data set. At
                    size=32, images of 28 pixels get a black frame, as VGG needs
:images=0           number of images of each set per measure, taken at even distances; 0: all,
                    but 50,000 for ImageNet
:smoke              runs every part once, with a few images of each set; train[:1%]

The published protocol: networks after their last epoch (`run.step`, which --step changes);
grids of 2 x 2 for MNIST and Fashion-MNIST, 4 x 4 for CIFAR and Tiny ImageNet and 8 x 8 for
ImageNet (all three are measured on all data); for the DI index, boxes anywhere with areas
from Beta(2, 1); for the table of measures, 30 % of the pixels covered by another set's.
`--only=grid_shuffle,cut_occlusion` measures some.
"""

import types
from typing import Any

import ml_collections

from jbias.configs import datasets, suites

CIFAR = (0.4914, 0.4822, 0.4465)
GREY = (0.1307,) * 3  # MNIST's, of which the published Fashion-MNIST is taken, too.
PHOTOS = (0.485, 0.456, 0.406)
# The fill colour "mean"; other data than these have that of photographs.
MEANS = types.MappingProxyType(
    dict(cifar10=CIFAR, cifar100=CIFAR, mnist=GREY, fashion_mnist=GREY)
)
# The default of `images` for data of which showing all would take too long.
IMAGES = types.MappingProxyType({"imagenet": 50_000})
_TRAINING = ("train", "drop", "keep", "other", "other_root", "other_split")
_FILES = ("root", "small", *_TRAINING)
ARGUMENTS = types.MappingProxyType(
    {
        "shapes": ("correlation", *_TRAINING),
        "cifar10": _FILES,
        "cifar100": _FILES,
        "mnist": _FILES,
        "fashion_mnist": _FILES,
        "tiny_imagenet": ("stimuli", *_FILES),
        "imagenet": ("root", "stimuli", "subset", *_TRAINING),
        "stacked": ("root", "digits"),
    }
)

# Measures that the suite has only with these arguments.
NEEDS = types.MappingProxyType(
    {
        "shape_bias": "stimuli=DIR",
        "cut_occlusion_other": "other=NAME",
        "occlusion_other": "other=NAME",
    }
)


def get_config(text: str = "") -> ml_collections.ConfigDict:
    """Return the suite; the top of this file documents `text`."""
    arg = suites.parse_arguments(
        text,
        ARGUMENTS,
        root="",
        digits="",
        stimuli="",
        train="",
        drop="",
        keep="",
        other="",
        other_root="",
        other_split="train",
        small=False,
        subset=False,
        correlation=0.99,
    )
    _check(arg)
    arg.images = arg.images or (16 if arg.smoke else IMAGES.get(arg.data, 0))
    c = ml_collections.ConfigDict()
    # The last epoch, as published.
    c.run = dict(suites.run_options(), step="latest")
    c.size = arg.size or suites.SETS[arg.data][1]
    c.sets = _stacked(arg) if arg.data == "stacked" else _sets(arg)
    names = tuple(name for name in c.sets if name != "other")
    c.measures = dict(accuracy=dict(probe="plain", sets=names, images=arg.images))
    if arg.data != "stacked":
        c.measures.update(_measures(arg, tuple(c.sets)))
    c.needs = dict(
        measures=dict(NEEDS), sets=dict.fromkeys(datasets.STIMULI, "stimuli=DIR")
    )
    return c


def _check(arg) -> None:
    """Raise ValueError for arguments that need another argument."""
    if arg.data == "stacked" and not arg.digits:
        raise ValueError("suite argument: data=stacked needs digits=<directory>")
    if (arg.other_root or arg.other_split != "train") and not (
        arg.other or arg.data == "shapes"
    ):
        raise ValueError(
            "suite argument: other_root and other_split are not used without other; "
            "add other=<data set>"
        )


def _sets(arg) -> dict[str, dict]:
    """Return the sets of all data but stacked: test, train, other and the stimuli."""
    test_split, train_split = suites.SETS[arg.data][0], "train"
    common: dict[str, Any] = dict(data=arg.data)
    if arg.data == "shapes":
        common["correlation"] = arg.correlation
        if arg.smoke:
            common["n"] = 240
    else:
        common["root"] = arg.root
        if arg.subset:
            common["subset"] = True
        if arg.smoke:
            train_split, test_split = "train[:1%]", f"{test_split}[:5%]"
        elif arg.small:
            train_split = "train[:10%]"
        else:
            train_split = "train[:98%]"
        common.update(_frame(arg.data, arg))
    if arg.drop:
        common["drop"] = arg.drop
    train = dict(common, split=arg.train or train_split)
    if arg.keep:
        train["keep"] = arg.keep
    sets = {"test": dict(common, split=test_split), "train": train}
    other_data = arg.other or ("fractals" if arg.data == "shapes" else "")
    if other_data:
        other = dict(data=other_data, split=arg.other_split)
        if arg.other_root:
            other["root"] = arg.other_root
        if other_data == "fractals" and arg.smoke:
            other["n"] = 16  # Drawing a fractal takes a tenth of a second.
        other.update(_frame(other_data, arg))
        sets["other"] = other
    if arg.data == "imagenet" and arg.size in (0, 224):
        sets.update(datasets.stimuli(arg.stimuli, resize=256))
    else:
        sets.update(datasets.stimuli(arg.stimuli))
    return sets


def _frame(data: str, arg) -> dict[str, int]:
    """Return the option for a black frame around digits and clothes shown at 32 pixels."""
    size = arg.size or suites.SETS[arg.data][1]
    if data in ("mnist", "fashion_mnist") and size == 32:
        return dict(pad=2)
    return {}


def _stacked(arg) -> dict[str, dict]:
    """Return two sets of the same stacked images: the answer is the class of one half."""
    options = dict(data="stacked", split="test", root=arg.root, digits=arg.digits)
    return {
        "stacked_cifar": dict(options, answer="cifar10"),
        "stacked_mnist": dict(options, answer="mnist"),
    }


def _measures(arg, names: tuple[str, ...]) -> dict[str, dict]:
    """Return the measures of all data but stacked; `names` are those of the sets."""
    has_other = "other" in names
    # Colours and images that replace hidden pixels.
    fill_sources: dict[str, Any] = dict(mean=MEANS.get(arg.data, PHOTOS))
    if has_other:
        fill_sources["others"] = "other"
    on_test = dict(sets=("test",), images=arg.images)
    boxes = dict(
        on_test,
        **fill_sources,
        fills=("black", "mean", "other") if has_other else ("black", "mean"),
    )
    by_saliency = dict(
        fill_sources,
        sets=("test", "train"),
        images=arg.images,
        site="stage3",  # Layer of Grad-CAM; docs/measures.md names those of VGG.
    )
    fractions = (0.3,) if arg.smoke else tuple(i / 10 for i in range(1, 10))
    measures = dict(
        grid_shuffle=dict(on_test, grids=(2, 4, 8)),
        cut_occlusion=dict(boxes, area="beta", placement="unrestricted"),
        cut_occlusion_uniform=dict(
            boxes, probe="cut_occlusion", area="uniform", placement="restricted"
        ),
        occlusion=dict(by_saliency, fill="black", fractions=fractions),
        mixing=dict(on_test),
        # For networks trained with mixing: over augmented training images.
        mixing_train=dict(
            _augmentation(arg), probe="mixing", sets=("train",), images=arg.images
        ),
    )
    if has_other:
        measures["cut_occlusion_other"] = dict(
            boxes,
            probe="cut_occlusion",
            area=0.3,
            placement="restricted",
            fills=("other",),
        )
        measures["occlusion_other"] = dict(
            by_saliency,
            probe="occlusion",
            fractions=(0.3,),
            orders=("most",),
            fill="other",
        )
    if "cue-conflict" in names:
        measures["shape_bias"] = dict(sets=("cue-conflict",))
    return measures


def _augmentation(arg) -> dict[str, Any]:
    """Return the crops and flips of the published training, for counts of diversity."""
    if arg.data == "shapes":
        return {}  # Trained without augmentation.
    return dict(mirror=True, crop=0 if arg.data in ("tiny_imagenet", "imagenet") else 4)
