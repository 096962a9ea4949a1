r"""What distortion does to analysis, as in "On the effects of data distortion on model
analysis and training" (Marcu and Pruegel-Bennett, https://arxiv.org/abs/2110.13968).

    jbias evaluate --runs='runs/distortion/*' --suite=configs/suites/distortion.py
    jbias evaluate --runs='runs/distortion/*' \
        --suite=configs/suites/distortion.py:data=cifar10,root=DIR,other=cifar100,other_root=DIR

For networks that configs/distortion.py trains, and others.

:data=shapes        the embedded set (the default), for networks that were trained on it
:data=cifar10,root=...
                    cifar100, mnist, fashion_mnist, tiny_imagenet or imagenet
:data=stacked,root=...,digits=...
                    for networks of MNIST above CIFAR-10: which half they answer; root is
                    CIFAR-10's, digits MNIST's
:train=             the training images, shown without augmentation; "" is what the
                    config trains on, train[:98%]
:drop=truck         of networks that were trained without a class, or several: truck+ship
:keep=FILE          of networks that were trained on these images alone
:small              what `small` of the config trains on, train[:10%]
:other=NAME         whose images hide parts of others: a data set such as cifar100, or
                    fractals, which needs no files and is that of shapes
:other_root=DIR     where it lies
:other_split=train  which of it
:stimuli=DIR        edge/, silhouette/ and cue-conflict/ of Geirhos et al. 2019, for
                    networks of ImageNet's and Tiny ImageNet's classes; for ImageNet's
                    enlarged to 256 pixels of which the middle 224 are shown, as in the
                    paper's code (the suite of biases shows them whole)
:correlation=0.99   of the embedded set, as in training
:subset             of ImageNet's classes some are absent
:size=0             pixels; 0 is as usual: 28, 32, 64 or 224. Images of 28 pixels are
                    padded by black to 32, as for VGG
:images=0           how many images of a set each probe shows; 0 is all, and 50,000 of
                    ImageNet's training images; fewer are evenly spaced
:smoke              a few images of each set, every part once; train[:1%]

The published protocol: networks after their last epoch (`run.step`, which --step changes);
grids of 2 x 2 for MNIST and Fashion-MNIST, 4 x 4 for CIFAR and Tiny ImageNet and 8 x 8 for
ImageNet, of which all are shown everywhere; boxes with areas of Beta(2, 1) anywhere
for the DI index; 30 % of the pixels hidden by another set's for the table of measures.
`--only=grid_shuffle,cut_occlusion` measures some.
"""

import types

import ml_collections

from jbias.configs import datasets, suites

CIFAR = (0.4914, 0.4822, 0.4465)
GREY = (0.1307,) * 3  # MNIST's, of which the published Fashion-MNIST is taken, too.
PHOTOS = (0.485, 0.456, 0.406)
# The colour "mean"; of other data that of photographs.
MEANS = types.MappingProxyType(
    dict(cifar10=CIFAR, cifar100=CIFAR, mnist=GREY, fashion_mnist=GREY)
)
IMAGES = types.MappingProxyType({"imagenet": 50_000})  # Where all would be too many.
_PARTS = ("train", "drop", "keep", "other", "other_root", "other_split")
_FILES = ("root", "small", *_PARTS)
ARGUMENTS = types.MappingProxyType(
    {
        "shapes": ("correlation", *_PARTS),
        **dict.fromkeys(("cifar10", "cifar100", "mnist", "fashion_mnist"), _FILES),
        "tiny_imagenet": ("stimuli", *_FILES),
        "imagenet": ("root", "stimuli", "subset", *_PARTS),
        "stacked": ("root", "digits"),
    }
)

# The arguments without which the suite has not these measures.
NEEDS = types.MappingProxyType(
    {
        "shape_bias": "stimuli=DIR",
        **dict.fromkeys(("cut_occlusion_other", "occlusion_other"), "other=NAME"),
    }
)


def get_config(text: str = "") -> ml_collections.ConfigDict:
    """The suite; see the top of this file for `text`."""
    arg = suites.parse_arguments(
        text,
        ARGUMENTS,
        **dict.fromkeys(("root", "digits", "stimuli"), ""),
        **dict(dict.fromkeys(_PARTS, ""), other_split="train"),
        **dict(small=False, subset=False, correlation=0.99),
    )
    _check(arg)
    arg.images = arg.images or (16 if arg.smoke else IMAGES.get(arg.data, 0))
    c = ml_collections.ConfigDict()
    c.run = suites.run_options(step="latest")  # The last epoch, as published.
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
    if arg.data == "stacked" and not arg.digits:
        raise ValueError("suite argument: data=stacked needs digits=<directory>")
    if (arg.other_root or arg.other_split != "train") and not (
        arg.other or arg.data == "shapes"
    ):
        raise ValueError(
            "suite argument: other_root and other_split have no say without other; add "
            "other=<data set>"
        )


def _sets(arg) -> dict:
    test, train = suites.SETS[arg.data][0], "train"
    own = dict(data=arg.data)
    if arg.data == "shapes":
        own |= dict(correlation=arg.correlation, **(dict(n=240) if arg.smoke else {}))
    else:
        own |= dict(root=arg.root, **(dict(subset=True) if arg.subset else {}))
        short = "[:1%]" if arg.smoke else "[:10%]" if arg.small else ""
        train += short or "[:98%]"  # What our configs train on.
        test = f"{test}[:5%]" if arg.smoke else test
        own |= _padded(arg.data, arg)
    own |= dict(drop=arg.drop) if arg.drop else {}
    kept = dict(keep=arg.keep) if arg.keep else {}
    found = {
        "test": dict(split=test, **own),
        "train": dict(split=arg.train or train, **own, **kept),
    }
    other = arg.other or ("fractals" if arg.data == "shapes" else "")
    if other:
        more = dict(root=arg.other_root) if arg.other_root else {}
        if other == "fractals" and arg.smoke:
            more["n"] = 16  # Each takes a tenth of a second to draw.
        more |= _padded(other, arg)
        found["other"] = dict(data=other, split=arg.other_split, **more)
    whole = arg.data != "imagenet" or arg.size not in (0, 224)
    cut = {} if whole else dict(resize=256)
    return found | datasets.stimuli(arg.stimuli, **cut)


def _padded(data: str, arg) -> dict:
    """Digits and clothes among images of 32 pixels get a black frame, as in training."""
    small = data in ("mnist", "fashion_mnist")
    return dict(pad=2) if small and (arg.size or suites.SETS[arg.data][1]) == 32 else {}


def _stacked(arg) -> dict:
    """The same stacked images, asked for the class of either half."""
    own = dict(data="stacked", split="test", root=arg.root, digits=arg.digits)
    return {
        f"stacked_{half}": dict(answer=answer, **own)
        for half, answer in (("cifar", "cifar10"), ("mnist", "mnist"))
    }


def _measures(arg, names: tuple[str, ...]) -> dict:
    test = dict(sets=("test",), images=arg.images)
    both = dict(sets=("test", "train"), images=arg.images)
    beside = dict(others="other") if "other" in names else {}
    fills = ("black", "mean", *(["other"] * bool(beside)))
    instead = dict(mean=MEANS.get(arg.data, PHOTOS), **beside)
    boxes = dict(fills=fills, **instead, **test)
    site = dict(site="stage3")  # Of Grad-CAM; docs/measures.md names those of VGG.
    fractions = tuple(i / 10 for i in range(1, 10))
    curves = dict(fractions=(0.3,) if arg.smoke else fractions)
    found = dict(
        grid_shuffle=dict(grids=(2, 4, 8), **test),
        cut_occlusion=dict(area="beta", placement="unrestricted", **boxes),
        cut_occlusion_uniform=dict(
            probe="cut_occlusion", area="uniform", placement="restricted", **boxes
        ),
        occlusion=dict(fill="black", **instead, **site, **curves, **both),
        mixing=dict(**test),
        # Of a network trained with mixing, over augmented training images.
        mixing_train=dict(
            probe="mixing", sets=("train",), images=arg.images, **_moved(arg)
        ),
    )
    if beside:
        box = dict(area=0.3, placement="restricted", fills=("other",))
        most = dict(fractions=(0.3,), orders=("most",), fill="other")
        found |= dict(
            cut_occlusion_other=dict(probe="cut_occlusion", **box, **instead, **test),
            occlusion_other=dict(probe="occlusion", **most, **instead, **site, **both),
        )
    if "cue-conflict" in names:
        found["shape_bias"] = dict(sets=("cue-conflict",))
    return found


def _moved(arg) -> dict:
    """Crops and mirrors of the published training, which diversity is counted over."""
    if arg.data == "shapes":
        return {}  # Trained as it is.
    return dict(mirror=True, crop=0 if arg.data in ("tiny_imagenet", "imagenet") else 4)
