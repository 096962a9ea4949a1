"""Data presets: what `data=` in a config's argument sets, and which others it reads."""

import ml_collections

from jbias import config as jc
from jbias import data as known
from jbias.data import corruptions
from jbias.data.sets import colored_mnist as forms
from jbias.data.sets import tfds as prepared

STYLES = ("photo", "art_painting", "cartoon", "sketch")
STIMULI = ("edge", "silhouette", "cue-conflict")  # Of Geirhos et al. 2019.
SHAPES_TESTS = (
    *("test", "silhouette", "edge", "sketch", "cue_conflict", "stylized"),
    *("recoloured", "corrupted"),
)


def shapes(c: ml_collections.ConfigDict, arg) -> None:
    """The embedded set, with the small network that learns it on a CPU."""
    c.size, c.epochs = 32, 15.0
    c.model.update(width=16, stem="small")
    n, batch = 4096, 64
    if arg.small:
        c.epochs, batch, c.optim.rate = 5.0, 32, 0.05
    if arg.demo:
        c.epochs, c.eval_every, c.optim.rate = 6.0, "2 epochs", 0.02
        n, batch = 2048, 32
    if arg.smoke:
        c.epochs, n = 2.0, 128
    if arg.demo or arg.smoke:
        c.model.width = 8
    common = dict(data="shapes", correlation=arg.correlation)
    few = dict(n=240) if arg.demo or arg.smoke else {}
    c.train = dict(split="train", n=n, batch=batch, **common)
    c.valid = dict(split="valid", **few, **common)
    c.tests = {name: dict(split=name, **few, **common) for name in SHAPES_TESTS}
    if arg.more:
        free = dict(common, correlation=1 / 16)  # Texture tells nothing of the class.
        c.tests["uncorrelated"] = dict(split="test", **few, **free)
        c.tests["corrupted_uncorrelated"] = dict(split="corrupted", **few, **free)


def imagenet(c: ml_collections.ConfigDict, arg) -> None:
    """ResNet-50 at 224 pixels, 90 epochs; a fiftieth of training validates."""
    _photographs(c, arg, size=224, epochs=90.0)
    c.model.name = arg.model or "resnet50"
    common = dict(data="imagenet", root=arg.root)
    if arg.subset:
        common["subset"] = True
    c.train = dict(split="train[:98%]", batch=256, **common)
    c.valid = dict(split="train[98%:]", **common)
    c.tests = {"val": dict(split="val", **common), **stimuli(arg.stimuli)}
    c.inputs = (dict(name="random_resized_crop", area=(0.08, 1.0)), dict(name="flip"))
    c.optim.update(rate=0.1, decay=1e-4)
    c.optim.schedule = dict(name="multistep", milestones=(1 / 3, 2 / 3), gamma=0.1)


def pacs(c: ml_collections.ConfigDict, arg) -> None:
    """Trains on nine tenths of one style, validates on the rest, tests on the others."""
    _photographs(c, arg, size=64, epochs=30.0)
    jc.check_known("config argument", arg.style, STYLES, "style")
    _part(c, arg, arg.style, *(style for style in STYLES if style != arg.style))
    c.train.batch = 32  # Of 1,503 photographs: larger ones leave few steps.
    c.optim.update(rate=0.05, warmup="1 epoch")


def tiny_imagenet(c: ml_collections.ConfigDict, arg) -> None:
    """200 classes of photographs; tested on its own images and on Geirhos' stimuli."""
    _photographs(c, arg, size=64, epochs=30.0)
    _part(c, arg, "train", "val")
    c.tests.update(stimuli(arg.stimuli))


def stimuli(root: str, **options) -> dict[str, dict]:
    """The sets of Geirhos' stimuli, where it is said that they are there."""
    return {
        split: dict(data="geirhos", split=split, root=root, **options)
        for split in (STIMULI if root else ())
    }


def mnist(c: ml_collections.ConfigDict, arg) -> None:
    """Digits of 28 pixels and a network of two convolutions, two epochs."""
    _rooted(arg)
    c.size, c.epochs = 28, 2.0
    _small(c, arg)
    _part(c, arg, "train", "test")
    c.optim.update(rate=0.02)


def colored_mnist(c: ml_collections.ConfigDict, arg) -> None:
    """Digits whose colour tells the label in training, and misleads in `reversed`.

    Two convolutions, two epochs. A single colour is tested on each of the four.
    """
    _rooted(arg)
    jc.check_known("config argument", arg.form, forms.FORMS, "form")
    c.size, c.epochs = forms.SIZES[arg.form], 2.0
    _small(c, arg)
    _part(c, arg, "train")
    for part in (c.train, c.valid):
        part.update(form=arg.form, grey=arg.grey)
    test = dict(c.valid, split="test")
    c.tests = dict(reversed=test, uncorrelated=dict(test, correlation=0.5))
    if arg.form in forms.PALETTE:
        c.tests = {colour: dict(test, form=colour) for colour in forms.PALETTE}
    elif arg.form == "uniform":
        c.tests = dict(test=test)
    c.optim.update(rate=0.02)


def cifar(c: ml_collections.ConfigDict, arg) -> None:
    """Small photographs, shifted and flipped."""
    _small_photographs(c, arg)
    if arg.corrupted:
        c.tests.update(corrupted(f"{arg.data}_c", arg.corrupted))
    c.inputs = (dict(name="pad_crop"), dict(name="flip"))


def stacked(c: ml_collections.ConfigDict, arg) -> None:
    """A digit above each photograph; tested by the class of either half.

    In each epoch photographs meet other digits of their class. Only they are shifted and
    flipped.
    """
    _rooted(arg)
    if not arg.digits:
        raise ValueError("config argument: data=stacked needs digits=<MNIST's folder>")
    _small_photographs(c, arg)
    digits = dict(data="mnist", split="train[:90%]", root=arg.digits)
    c.train.other = dict(digits, pad=2, pair="class", inputs=())
    test = dict(data="stacked", split="test", root=arg.root, digits=arg.digits)
    c.train.digits = c.valid.digits = arg.digits
    c.tests = dict(stacked_cifar=test, stacked_mnist=dict(test, answer="mnist"))
    c.inputs = (
        dict(name="half", which="bottom", mix=dict(name="pad_crop")),
        dict(name="half", which="bottom", mix=dict(name="flip")),
        dict(name="half", which="top", mix=dict(name="replace")),
    )


def _small_photographs(c: ml_collections.ConfigDict, arg) -> None:
    """Those of 32 pixels, and a network that a CPU can train."""
    _rooted(arg)
    c.size, c.epochs = 32, 1.0 if arg.smoke else 30.0
    c.model.update(width=8 if arg.smoke else 16, stem="small")
    _part(c, arg, "train", "test")
    c.train.batch = 128


def corrupted(
    data: str, root: str, *, extra: bool = False, part: str = ""
) -> dict[str, dict]:
    """Entries of config.tests, "fog-3": all corruptions of a set at all severities.

    `data` is imagenet_c, cifar10_c, cifar100_c (15 corruptions, 19 with `extra`) or
    imagenet_c_bar (10). `part` such as "[:2%]" takes some of each, for evaluations that
    come after every epoch.

        c.tests.update(datasets.corrupted("imagenet_c", DIR, part="[:2%]"))
    """
    left = [name for name, one in corruptions.CORRUPTIONS.items() if one.extra]
    return {
        split.replace("/", "-"): dict(data=data, split=f"{split}{part}", root=root)
        for split in known.DATASETS[data].splits
        if extra or split.partition("/")[0] not in left
    }


def folder(c: ml_collections.ConfigDict, arg) -> None:
    """A user's own folders: root/<split>/<class>/<image>."""
    _users(c, arg, {})


def tfds(c: ml_collections.ConfigDict, arg) -> None:
    """A set that `jbias prepare tfds --name=...` prepared."""
    if not arg.name:
        example = "name=<set>, such as imagenette/320px"
        raise ValueError(f"config argument: data=tfds needs {example}")
    arg.root = arg.root or prepared.default_root()
    _users(c, arg, {"builder": arg.name})


def attributed(c: ml_collections.ConfigDict, arg) -> None:
    """A user's own table, root/<split>.csv, or folders inside those of the classes."""
    _users(c, arg, _chosen(arg))


def celeba(c: ml_collections.ConfigDict, arg) -> None:
    """Faces, cropped to squares: one attribute is the class, another the shortcut."""
    _photographs(c, arg, size=64, epochs=10.0)
    common = dict(data="celeba", root=arg.root, **_chosen(arg))
    if arg.shift and not arg.columns:
        common["flags"] = "all"
        if "+" in arg.attribute:  # Which of them holds: other images are left out.
            common["attribute"] = arg.attribute
    c.train = dict(split="train", batch=64, **common)
    c.valid = dict(split="valid", **common)
    c.tests = {"test": dict(split="test", **common)}


def _chosen(arg) -> dict[str, str]:
    """The set's own options: its class, and what its column "attribute" is.

    A shift names a column itself, and one of `columns` may be meant.
    """
    usual = arg.columns or arg.shift or arg.attribute == "attribute"
    chosen = {"label": arg.label, "attribute": "" if usual else arg.attribute}
    return {key: value for key, value in chosen.items() if value}


def _users(c: ml_collections.ConfigDict, arg, options: dict[str, str]) -> None:
    _photographs(c, arg, size=64, epochs=30.0)
    _part(c, arg, arg.train, *filter(None, arg.tests.split("+")))
    if arg.valid:
        c.train.split, c.valid.split = arg.train, arg.valid
    for part in (c.train, c.valid, *c.tests.values()):
        part.update(options)


def _part(c: ml_collections.ConfigDict, arg, split: str, *tests: str) -> None:
    """Trains on nine tenths of a split and validates on the rest."""
    own = dict(data=arg.data, root=arg.root)
    c.train = dict(split=f"{split}[:90%]", batch=64, **own)
    c.valid = dict(split=f"{split}[90%:]", **own)
    c.tests = {test: dict(split=test, **own) for test in tests}


def _small(c: ml_collections.ConfigDict, arg) -> None:
    """A network of two convolutions, or the one asked for as it was published."""
    if arg.model in ("", "cnn"):
        c.model = dict(name="cnn", width=8 if arg.smoke else 32, norm_group=0)
    elif arg.smoke:
        c.model.width = 8


def _rooted(arg) -> None:
    if not arg.root:
        raise ValueError(f"config argument: data={arg.data} needs root=<directory>")


def _photographs(
    c: ml_collections.ConfigDict, arg, *, size: int, epochs: float
) -> None:
    """Crops and flips; below 128 pixels a narrower net that a CPU can train."""
    _rooted(arg)
    c.size, c.epochs = size, 1.0 if arg.smoke else epochs
    if (arg.size or size) < 128:
        # On CPU the 7x7 stem's gradient alone takes longer than all of this net.
        c.model.update(width=8 if arg.smoke else 16, stem="small")
    c.inputs = (dict(name="random_resized_crop", area=(0.3, 1.0)), dict(name="flip"))


# What some data read beside what all do: by its default, and by data.
DEFAULTS = {
    **dict(correlation=0.99, style="photo", form="irm", train="train"),
    **dict.fromkeys(("root", "stimuli", "corrupted", "digits"), ""),
    **dict.fromkeys(("valid", "tests", "label", "name"), ""),
    **dict.fromkeys(("subset", "grey", "demo", "small", "more"), False),
}
ARGUMENTS = {
    "shapes": {"correlation", "demo", "small", "more"},
    "imagenet": {"root", "stimuli", "subset"},
    "pacs": {"root", "style"},
    "tiny_imagenet": {"root", "stimuli"},
    **{name: {"root"} for name in ("mnist", "fashion_mnist")},
    **{name: {"root", "corrupted"} for name in ("cifar10", "cifar100")},
    "colored_mnist": {"root", "form", "grey"},
    "stacked": {"root", "digits"},
    "celeba": {"root", "label", "attribute"},
    "folder": {"root", "train", "valid", "tests"},
    "tfds": {"name", "root", "train", "valid", "tests"},
    "attributed": {"root", "train", "valid", "tests", "label", "attribute"},
}
PRESETS = {
    "shapes": shapes,
    "imagenet": imagenet,
    "pacs": pacs,
    "tiny_imagenet": tiny_imagenet,
    "mnist": mnist,
    "fashion_mnist": mnist,
    "colored_mnist": colored_mnist,
    "cifar10": cifar,
    "cifar100": cifar,
    "stacked": stacked,
    "celeba": celeba,
    "folder": folder,
    "tfds": tfds,
    "attributed": attributed,
}
