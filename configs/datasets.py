"""Data presets: what `data=NAME` in a config's argument sets.

PRESETS lists the data sets with a preset of their own; GENERAL is the preset of all other sets
in files.
"""

import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import ml_collections

from jbias import data as data_sets
from jbias import errors
from jbias.data import corruptions
from jbias.data.sets import colored_mnist as colored_mnist_set
from jbias.data.sets import tfds as tfds_set

STYLES = ("photo", "art_painting", "cartoon", "sketch")
# Sets whose splits are domains: the same classes in other images.
DOMAIN_SETS = ("pacs", "office_home", "vlcs", "terra_incognita", "domain_net")
STIMULI = ("edge", "silhouette", "cue-conflict")  # Of Geirhos et al. 2019.
SHAPES_TESTS = (
    "test",
    "silhouette",
    "edge",
    "sketch",
    "cue_conflict",
    "stylized",
    "recoloured",
    "corrupted",
)


def shapes(c: ml_collections.ConfigDict, arg) -> None:
    """Set the embedded set, with a small network that learns it on a CPU."""
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

    def evaluated(split: str, correlation: float = arg.correlation) -> dict:
        options = dict(data="shapes", split=split, correlation=correlation)
        if arg.demo or arg.smoke:
            options["n"] = 240
        return options

    c.train = dict(
        data="shapes", split="train", n=n, batch=batch, correlation=arg.correlation
    )
    c.valid = evaluated("valid")
    c.tests = {split: evaluated(split) for split in SHAPES_TESTS}
    if arg.more:
        chance = 1 / 16  # Texture and class are independent.
        c.tests["uncorrelated"] = evaluated("test", chance)
        c.tests["corrupted_uncorrelated"] = evaluated("corrupted", chance)


def imagenet(c: ml_collections.ConfigDict, arg) -> None:
    """Set ResNet-50 at 224 pixels, 90 epochs; 2 % of the training images validate."""
    _photographs(c, arg, size=224, epochs=90.0)
    c.model.name = arg.model or "resnet50"

    def part(split: str) -> dict:
        options = dict(data="imagenet", split=split, root=arg.root)
        if arg.subset:
            options["subset"] = True
        return options

    c.train = dict(part("train[:98%]"), batch=256)
    c.valid = part("train[98%:]")
    c.tests = {"val": part("val"), **stimuli(arg.stimuli)}
    c.inputs = (dict(name="random_resized_crop", area=(0.08, 1.0)), dict(name="flip"))
    c.optim.update(rate=0.1, decay=1e-4)
    c.optim.schedule = dict(name="multistep", milestones=(1 / 3, 2 / 3), gamma=0.1)


def pacs(c: ml_collections.ConfigDict, arg) -> None:
    """Train on 90 % of one style, validate on its other 10 %, test on other styles.

    With `held_out`, train on all styles but one, and test on that style; see `_hold_out`.
    """
    _photographs(c, arg, size=64, epochs=30.0)
    if arg.held_out:
        _hold_out(c, arg)
        return
    errors.check_known("config argument", arg.style, STYLES, "style")
    other_styles = [style for style in STYLES if style != arg.style]
    _split(c, arg, train=arg.style, tests=other_styles)
    c.train.batch = 32  # There are 1,503 photographs: larger batches leave few steps.
    c.optim.update(rate=0.05, warmup="1 epoch")


def _hold_out(c: ml_collections.ConfigDict, arg) -> None:
    """Train on 90 % of all domains but one, validate on their other 10 %, test on that domain.

    Batches have 32 images of each domain, and a column "domain" numbers the domains in the order
    of the data set's splits, as in DomainBed (https://github.com/facebookresearch/DomainBed at
    026d588, which trains on 80 %). The validation accuracy is that of all validation images
    together, so that large domains weigh more; DomainBed averages the accuracies of the domains.
    """
    if arg.data not in DOMAIN_SETS:
        must = f"be used with a set of domains ({', '.join(DOMAIN_SETS)})"
        errors.refuse("config argument: held_out", must, f"data={arg.data}")
    domains = data_sets.DATASETS[arg.data].splits
    errors.check_known("config argument", arg.held_out, domains, "domain")
    training_domains = [domain for domain in domains if domain != arg.held_out]

    def part(split: str) -> dict:
        return dict(data=arg.data, split=split, root=arg.root)

    first, *other_domains = training_domains
    c.train = dict(
        part(f"{first}[:90%]"),
        also=tuple(part(f"{domain}[:90%]") for domain in other_domains),
        shares=(1 / len(training_domains),) * len(training_domains),
        batch=(4 if arg.smoke else 32) * len(training_domains),
    )
    c.valid = dict(
        part(f"{first}[90%:]"),
        also=tuple(part(f"{domain}[90%:]") for domain in other_domains),
    )
    c.tests = {_name_of_set(arg.held_out): part(arg.held_out)}


def tiny_imagenet(c: ml_collections.ConfigDict, arg) -> None:
    """Set 200 classes of photographs; test on validation images and Geirhos' stimuli."""
    _photographs(c, arg, size=64, epochs=30.0)
    _split(c, arg, train="train", tests=["val"])
    c.tests.update(stimuli(arg.stimuli))


def stimuli(root: str, **options) -> dict[str, dict]:
    """Return entries of config.tests for Geirhos' stimuli; empty if `root` is "".

    options: further options of each set.
    """
    if not root:
        return {}
    return {
        split: dict(data="geirhos", split=split, root=root, **options)
        for split in STIMULI
    }


def mnist(c: ml_collections.ConfigDict, arg) -> None:
    """Set digits of 28 pixels and a network of two convolutions, two epochs."""
    _require_root(arg)
    c.size, c.epochs = 28, 2.0
    _use_cnn(c, arg)
    _split(c, arg, train="train", tests=["test"])
    c.optim.update(rate=0.02)


def colored_mnist(c: ml_collections.ConfigDict, arg) -> None:
    """Set digits whose colour predicts the class in training and misleads in `reversed`.

    A network of two convolutions, two epochs. Digits trained in a single colour are tested
    in each of the four colours.
    """
    palette = colored_mnist_set.PALETTE
    _require_root(arg)
    errors.check_known("config argument", arg.form, colored_mnist_set.FORMS, "form")
    c.size, c.epochs = colored_mnist_set.SIZES[arg.form], 2.0
    _use_cnn(c, arg)
    _split(c, arg, train="train", tests=[])
    for options in (c.train, c.valid):
        options.update(form=arg.form, grey=arg.grey)
    test = dict(c.valid, split="test")
    c.tests = dict(reversed=test, uncorrelated=dict(test, correlation=0.5))
    if arg.form in palette:
        c.tests = {colour: dict(test, form=colour) for colour in palette}
    elif arg.form == "uniform":
        c.tests = dict(test=test)
    c.optim.update(rate=0.02)


def cifar(c: ml_collections.ConfigDict, arg) -> None:
    """Set small photographs, shifted and flipped."""
    _small_photographs(c, arg)
    if arg.corrupted:
        c.tests.update(corrupted(f"{arg.data}_c", arg.corrupted))
    c.inputs = (dict(name="pad_crop"), dict(name="flip"))


def stacked(c: ml_collections.ConfigDict, arg) -> None:
    """Set a digit above each photograph; test by the class of either half.

    In each epoch a photograph is paired with another digit of its class. Only the
    photographs are shifted and flipped.
    """
    _require_root(arg)
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
    """Set photographs of 32 pixels, and a network that a CPU can train."""
    _require_root(arg)
    c.size, c.epochs = 32, 1.0 if arg.smoke else 30.0
    c.model.update(width=8 if arg.smoke else 16, stem="small")
    _split(c, arg, train="train", tests=["test"])
    c.train.batch = 128


def corrupted(
    data: str, root: str, *, extra: bool = False, part: str = ""
) -> dict[str, dict]:
    """Return entries of config.tests for all corruptions of a set at all severities.

    data: imagenet_c, cifar10_c, cifar100_c (15 corruptions, 19 with `extra`) or
    imagenet_c_bar (10). part: a share of each set such as "[:2%]", for evaluations after
    every epoch. Keys are such as "fog-3".

        c.tests.update(datasets.corrupted("imagenet_c", DIR, part="[:2%]"))
    """
    tests = {}
    for split in data_sets.DATASETS[data].splits:
        name, _, severity = split.partition("/")
        corruption = corruptions.CORRUPTIONS.get(name)
        if extra or corruption is None or not corruption.extra:
            key = f"{name}-{severity}"
            tests[key] = dict(data=data, split=f"{split}{part}", root=root)
    return tests


def folder(c: ml_collections.ConfigDict, arg) -> None:
    """Set a user's own folders: root/<split>/<class>/<image>."""
    _named_splits(c, arg, {})


def tfds(c: ml_collections.ConfigDict, arg) -> None:
    """Set data prepared by `jbias prepare tfds --name=...`."""
    if not arg.name:
        raise ValueError(
            "config argument: data=tfds needs name=<set>, such as imagenette/320px"
        )
    arg.root = arg.root or tfds_set.default_root()
    _named_splits(c, arg, {"builder": arg.name})


def attributed(c: ml_collections.ConfigDict, arg) -> None:
    """Set a user's own tables root/<split>.csv, or folders inside those of the classes."""
    _named_splits(c, arg, _label_options(arg))


def celeba(c: ml_collections.ConfigDict, arg) -> None:
    """Set faces, cropped to squares: one attribute is the class, another the shortcut."""
    _photographs(c, arg, size=64, epochs=10.0)

    def part(split: str) -> dict:
        options = dict(data="celeba", split=split, root=arg.root)
        options.update(_label_options(arg))
        if arg.shift and not arg.columns:
            options["flags"] = "all"
            if "+" in arg.attribute:  # Images with exactly one of these attributes.
                options["attribute"] = arg.attribute
        return options

    c.train = dict(part("train"), batch=64)
    c.valid = part("valid")
    c.tests = {"test": part("test")}


def general(c: ml_collections.ConfigDict, arg) -> None:
    """Set a data set in files, with images of its default size.

    Splits that the user did not name are train, valid and test if the set has them.
    """
    _require_root(arg)
    data_set = data_sets.DATASETS[arg.data]
    if arg.held_out:
        _photographs(c, arg, size=data_set.options["size"].default, epochs=30.0)
        _hold_out(c, arg)
        return
    splits = data_set.splits
    arg.valid = arg.valid or ("valid" if "valid" in splits else "")
    arg.tests = arg.tests or ("test" if "test" in splits else "")
    named = [arg.train, arg.valid, *arg.tests.split("+")]
    for split in (text.partition("[")[0] for text in named):
        if splits and split not in ("", _SPLITS["train"]):
            errors.check_known("config argument", split, splits, "split")
    needed = []
    if splits and arg.train.partition("[")[0] not in splits:
        needed.append("train=<split>")
    if splits and not arg.tests and not arg.shift:
        needed.append("tests=<split>+<split>")
    if needed:
        ending = f" and {len(splits) - 9} others" if len(splits) > 9 else ""
        raise ValueError(
            f"config argument: data={arg.data} needs {' and '.join(needed)}, of "
            f"{', '.join(splits[:9])}{ending}"
        )
    _named_splits(c, arg, {}, size=data_set.options["size"].default)


def _label_options(arg) -> dict[str, str]:
    """Return the options of a set that choose the columns of class and attribute.

    With a shift or further `columns`, the attribute is chosen by the shift instead.
    """
    options = {}
    if arg.label:
        options["label"] = arg.label
    if arg.attribute != "attribute" and not arg.columns and not arg.shift:
        options["attribute"] = arg.attribute
    return options


def _named_splits(
    c: ml_collections.ConfigDict, arg, options: dict[str, str], *, size: int = 64
) -> None:
    """Set the splits that the user named.

    Without a split for validation, a tenth of the training images validates. options: further
    options of the data set. size: side of the images in pixels.
    """
    _photographs(c, arg, size=size, epochs=30.0)
    _split(c, arg, train=arg.train, tests=filter(None, arg.tests.split("+")))
    if arg.valid:
        c.train.split, c.valid.split = arg.train, arg.valid
    for part in (c.train, c.valid, *c.tests.values()):
        part.update(options)


def _split(
    c: ml_collections.ConfigDict, arg, *, train: str, tests: Iterable[str]
) -> None:
    """Train on the first 90 % of a split, validate on the other 10 %, test on `tests`."""

    def part(split: str) -> dict:
        return dict(data=arg.data, split=split, root=arg.root)

    c.train = dict(part(f"{train}[:90%]"), batch=64)
    c.valid = part(f"{train}[90%:]")
    c.tests = {_name_of_set(test): part(test) for test in tests}


def _name_of_set(split: str) -> str:
    """Return the name in config.tests of a split, "fog-3" for "fog/3".

    Names have no slash and no dot, as folders and entries of the config are named after them.
    """
    return split.replace("/", "-").replace(".", "_")


def _use_cnn(c: ml_collections.ConfigDict, arg) -> None:
    """Set a network of two convolutions, unless the user named another network."""
    if arg.model in ("", "cnn"):
        c.model = dict(name="cnn", width=8 if arg.smoke else 32, norm_group=0)
    elif arg.smoke:
        c.model.width = 8


def _require_root(arg) -> None:
    """Raise ValueError if the argument `root` is missing."""
    if not arg.root:
        raise ValueError(f"config argument: data={arg.data} needs root=<directory>")


def _photographs(
    c: ml_collections.ConfigDict, arg, *, size: int, epochs: float
) -> None:
    """Set crops and flips; below 128 pixels a narrower network that a CPU can train."""
    _require_root(arg)
    c.size, c.epochs = size, 1.0 if arg.smoke else epochs
    if (arg.size or size) < 128:
        # On a CPU the gradient of a 7x7 stem takes longer than all of this network.
        c.model.update(width=8 if arg.smoke else 16, stem="small")
    c.inputs = (dict(name="random_resized_crop", area=(0.3, 1.0)), dict(name="flip"))


class Preset(NamedTuple):
    """The effect of `data=NAME` on a config.

    set_entries: the function that changes the config, its first argument, in place; the second
    has the values of all arguments. arguments: names of the arguments that only some data use,
    with their defaults.
    """

    set_entries: Callable[[ml_collections.ConfigDict, Any], None]
    arguments: Mapping[str, Any]


_ROOT = types.MappingProxyType({"root": ""})
_SPLITS = types.MappingProxyType({"train": "train", "valid": "", "tests": ""})
_LABELS = types.MappingProxyType({"label": "", "attribute": "attribute"})
PRESETS: Mapping[str, Preset] = types.MappingProxyType(
    {
        "shapes": Preset(
            shapes,
            {"correlation": 0.99, "demo": False, "small": False, "more": False},
        ),
        "imagenet": Preset(imagenet, {**_ROOT, "stimuli": "", "subset": False}),
        "pacs": Preset(pacs, {**_ROOT, "style": "photo", "held_out": ""}),
        "tiny_imagenet": Preset(tiny_imagenet, {**_ROOT, "stimuli": ""}),
        "mnist": Preset(mnist, _ROOT),
        "fashion_mnist": Preset(mnist, _ROOT),
        "colored_mnist": Preset(colored_mnist, {**_ROOT, "form": "irm", "grey": False}),
        "cifar10": Preset(cifar, {**_ROOT, "corrupted": ""}),
        "cifar100": Preset(cifar, {**_ROOT, "corrupted": ""}),
        "stacked": Preset(stacked, {**_ROOT, "digits": ""}),
        "celeba": Preset(celeba, {**_ROOT, **_LABELS}),
        "folder": Preset(folder, {**_ROOT, **_SPLITS}),
        "tfds": Preset(tfds, {"name": "", **_ROOT, **_SPLITS}),
        "attributed": Preset(attributed, {**_ROOT, **_SPLITS, **_LABELS}),
    }
)
GENERAL = Preset(general, {**_ROOT, **_SPLITS, "held_out": ""})
# The arguments that only some data use, with their defaults.
ARGUMENTS: Mapping[str, Any] = types.MappingProxyType(
    {
        name: default
        for preset in (*PRESETS.values(), GENERAL)
        for name, default in preset.arguments.items()
    }
)


def find(name: str) -> Preset:
    """Return the preset of a data set: its own, or GENERAL for other sets in files.

    ValueError for an unknown name, and for a set that needs other options than a folder.
    """
    if name in PRESETS:
        return PRESETS[name]
    errors.check_known("config argument", name, data_sets.DATASETS, "data")
    options = data_sets.DATASETS[name].options.values()
    required = [o.name for o in options if o.default is inspect.Parameter.empty]
    if required != ["root"]:
        raise ValueError(
            f"config argument: data={name} has no preset; name it in a config of your "
            "own, as docs/data.md shows"
        )
    return GENERAL
