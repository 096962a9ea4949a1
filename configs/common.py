"""What the experiments share: the arguments after the colon, data presets, recipe.

:data=shapes        the embedded set (the default; needs no download)
:data=imagenet,root=...
                    ImageNet, train/ and val/ (docs/data.md); each algorithm's own
                    recipe where its authors gave one; `subset` if only some classes
                    are there
:data=pacs,root=... PACS; trains on `style`, tests on the other three
:data=tiny_imagenet,root=...,stimuli=...
                    Tiny ImageNet; tests on Geirhos' stimuli where given
:data=cifar10,root=..., cifar100, mnist, fashion_mnist
                    tests on their test images, and for CIFAR on CIFAR-10-C or
                    CIFAR-100-C where `corrupted` says that it lies
:data=colored_mnist,root=...,form=...
                    MNIST's digits in colours that tell the class; tests on reversed
                    ones; `grey` shows no colours
:data=stacked,root=...,digits=...
                    a digit of MNIST (`digits`) above each image of CIFAR-10 (`root`),
                    of the same class; tests by the class of either
:data=folder,root=...,train=...,valid=...,tests=a+b
                    class folders of images; without `valid`, a tenth of the
                    training images is held out
:data=tfds,name=imagenette/320px,train=...,valid=...,tests=a+b
                    what `jbias prepare tfds --name=...` prepared, below `root`
                    or where TFDS has its sets; likewise
:data=attributed,root=...,train=...,valid=...,tests=a+b,label=...,attribute=...
                    a user's own tables <root>/<split>.csv; which columns are the class
                    and the attribute ("hair+smile" is both together)
:data=celeba,root=...,label=Male,attribute=Black_Hair+Blond_Hair
                    CelebA; which of its attributes are the class and the attribute
:shift=C6,attribute=...,images=...,shift_seed=...
                    trains under a chosen shift of an attribute, M0 to M4 (marginal), C0
                    to C6 (conditional) or J0 to J4 (joint), or on one of its values,
                    only-red; tests in and out of distribution (docs/shifts.md)
:columns=clusters/train.csv
                    further attributes of the training images, such as the clusters of
                    `jbias prepare clusters`
:balance=group      batches with equal shares of all groups of a class and an attribute,
                    or by `class`, `attribute` or another column
:inputs=mixup+blur  batch transforms, with their default options, after the recipe's;
                    stylize takes `render` on shapes and `small` elsewhere
:variant=biasbed    the algorithm as BiasBed's release has it, where that differs
:vary=optim.rate=0.03+0.1
                    one run trains all seeds with each of these values; more keys after
                    a semicolon make a grid
:init=runs/...      starts from the nets of another run
:seeds=3            how many seeds, all trained in one process
:model=resnet18     resnet18, 34, 50, 101, 152, resnext50, preact_resnet18, cnn,
                    vgg11, 16, 19 (and vgg11_bn ...), alexnet, densenet121,
                    squeezenet1_0, squeezenet1_1, mobilenetv3_large,
                    mobilenetv3_small, bagnet9, 17, 33; "" is the data preset's own
:size=0             pixels; 0 is the data preset's own
:epochs=0           0 is the recipe's own
:crop=host          streams the training set from its files, each seed with random crops
                    of its own (the default for imagenet); `device` decodes once for all
                    seeds, in windows; `memory` holds the set, as for other data
:skip=damaged.json  leaves the images out that `prepare check --list` found damaged
:demo               a first look: the embedded set, half of its images, a narrower
                    network, 6 epochs; a minute or two on two cores
:small              the embedded set in 5 epochs, which docs/results.md has the scores
                    of; 5 to 12 minutes on two cores
:more               the embedded set with two more tests, in which texture tells nothing
:smoke              every part once, seconds
"""

import inspect
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import ml_collections
from ml_collections import config_dict

from jbias import config as jc
from jbias import data, models, run_spec
from jbias.configs import datasets
from jbias.data import set_options
from jbias.data.embedded import shapes
from jbias.data.sets import colored_mnist


def experiment(
    text: str,
    algo: Mapping,
    *,
    inputs: Sequence[Mapping] = (),
    train: Mapping = types.MappingProxyType({}),
    imagenet: Mapping = types.MappingProxyType({}),
) -> ml_collections.ConfigDict:
    """The config of one algorithm on the data that the arguments name.

    `inputs` come after the crops and flips of the data preset, `train` is added to the
    training set's options, `imagenet` is the recipe there: entries of the config.
    """
    arg, given = parse_arguments(text), jc.explicit_arguments(text)
    c = _defaults(arg)
    c.algo = dict(algo)
    if arg.shift:
        _choose_form(arg, given)
    datasets.PRESETS[arg.data](c, arg)
    for part in (c.train, c.valid) if arg.columns else ():
        if _base_split(part) == _base_split(c.train):
            part.columns = arg.columns
    if arg.shift:
        _apply_shift(c, arg, given)
    _fit(c.model)
    short = c.epochs
    if arg.data == "imagenet":
        c.train.crop = "host"
        update(c, imagenet)
    for part in (c.train, c.valid, *c.tests.values()) if arg.skip else ():
        if part.get("root") == arg.root:
            part.skip = arg.skip
    if arg.crop:
        c.train.crop = True if arg.crop == "memory" else arg.crop
    if arg.smoke:
        c.epochs, c.optim.warmup = short, ""
    update(c.train, dict(accumulate=1, **train))  # Micro-batches a step.
    if arg.balance:
        update(c.train, dict(balance=arg.balance))
    if "other" in c.train and "inputs" not in c.train.other:
        c.train.other.inputs = c.inputs  # The same crops and flips, by its own draws.
    c.size = arg.size or c.size
    c.epochs = arg.epochs or c.epochs
    added = (*(dict(one) for one in inputs), *_named(c, arg))
    c.inputs = (*c.inputs, *added)
    if c.train.get("crop") == "device":
        cut = [one for one in c.inputs if one["name"] == "random_resized_crop"]
        canvas = dict(canvas=round(c.size * 256 / 224)) if cut else {}
        update(c.train, dict(window=16384, **canvas))
    add_label(c, *(one["name"] for one in added))
    add_label(c, f"balance-{arg.balance.replace('+', '-')}" if arg.balance else "")
    if arg.variant == "biasbed":
        c.aggregate = "mean_logit"
        if "variant" in algo:
            update(c, dict(algo=dict(variant="biasbed")))
    return c


def _named(c: ml_collections.ConfigDict, arg) -> list[dict]:
    """The transforms of `inputs=a+b`, with what they need beside their defaults."""
    named = [dict(name=name) for name in filter(None, arg.inputs.split("+"))]
    for one in named:
        if one["name"] == "stylize":
            one["transfer"] = dict(name="render" if arg.data == "shapes" else "small")
            if arg.data == "shapes":
                update(c.train, dict(renders=True))
        if one["name"] == "pixmix" and "other" not in c.train:
            update(c.train, dict(other=dict(data="fractals", split="train", inputs=())))
    return named


def _varied(text: str) -> tuple[dict, ...]:
    """Reads `optim.rate=0.03+0.1;algo.p=0.1+0.5`."""
    found = []
    for one in filter(None, text.split(";")):
        key, _, values = one.partition("=")
        try:
            found.append(dict(key=key, values=tuple(map(float, values.split("+")))))
        except ValueError:
            raise ValueError(
                "config argument: vary must be like optim.rate=0.03+0.1, more keys "
                f"after a semicolon, got {one!r}"
            ) from None
    return tuple(found)


def _fit(model: ml_collections.ConfigDict) -> None:
    """Drops what the presets say of a ResNet where the network has no such option."""
    make = models.MODELS.get(model.name)
    taken = inspect.signature(make).parameters if make else model
    for option in set(model) - set(taken) - {"name"}:
        del model[option]


def _defaults(arg: types.SimpleNamespace) -> ml_collections.ConfigDict:
    """What holds whatever the data and the algorithm."""
    c = ml_collections.ConfigDict()
    c.variant = arg.variant  # Tells runs of one algorithm apart in a report.
    c.label = ""  # What a report calls the run; "": as papers do, with the variant.
    c.seeds = tuple(range(arg.seeds))
    c.model = dict(
        **dict(name=arg.model or "resnet18", width=64, stem="imagenet"),
        norm_group=0,  # Images that batch norm takes together; 0 is the batch.
    )
    c.init = arg.init  # The workdir of a run to start from.
    # Seeds that all seeds take for one source of randomness: init, order, augment or
    # algorithm (docs/statistics-seeds.md#where-the-variance-comes-from).
    c.fix = {name: config_dict.placeholder(int) for name in run_spec.SOURCES}
    c.inputs = ()
    c.optim = dict(
        **dict(name="sgd", rate=0.1, momentum=0.9, decay=5e-4, nesterov=False),
        schedule=dict(name="cosine"),
        warmup="",
        average=0.0,  # Decay of a moving average of the net, which is evaluated.
    )
    c.precision = "auto"
    c.stages = ()
    c.vary = _varied(arg.vary)
    c.eval_every = "1 epoch"
    c.save_every = "1 epoch"
    # How often a seed that diverged goes back to its state of the latest multiple of
    # `every`, with `factor` times its rate; 0: it is frozen.
    c.rollback = dict(times=0, factor=0.5, every="1 epoch")
    c.aggregate = "mean_prob"  # How many classes answer for one of a coarser set.
    c.run = dict(
        strategy="auto",
        steps_per_dispatch=8,
        devices=1 if arg.data == "shapes" else 0,  # 0 is all; shapes are too small.
        spread=0,  # Shares of the devices, each with seeds of its own; 0: as many as may be.
        together=0,  # Seeds on the devices at once; 0: as many as fit.
        memory=0.0,  # GiB of each device to use; 0: what it has.
        eval_batch=256,
        # Batch norm in evaluation: folded into convolutions, which rounds differently, or
        # exact; auto is exact on a CPU and folded elsewhere.
        eval_norm="auto",
        decisions=False,
        deterministic=False,  # Slower on a GPU, and the same bits at each start.
        evaluate="here",  # Or "elsewhere": by jbias evaluate --follow.
        keep=2,
        log_seconds=10.0,
        profile=False,
        loading=dict(gib=8.0, threads=0, workers=0),  # 0 threads: one a core.
        # What costs.json assumes: watts of a device (0: as rated), the share in use, the
        # building's factor, and kg of CO2e a kWh (0: not told).
        energy=dict(watts=0.0, share=1.0, pue=1.0, intensity=0.0),
        write="",  # tensorboard, wandb, mlflow, joined by + (docs/observing.md).
        wandb=dict(mode="offline", project="jbias", entity=""),
        log="text",  # Or "json": one JSON object a line, for collectors of logs.
    )
    return c


def add_label(c: ml_collections.ConfigDict, *names: str) -> None:
    """Adds to what tells runs of one algorithm apart in a report."""
    c.variant = "+".join(filter(None, (c.variant, *names)))


def style_transfer(text: str) -> tuple[dict, str, str]:
    """Takes `transfer` and `weights` out of the text; the rest comes second.

    By itself a style transfer is the exact one on the embedded set, elsewhere the
    published network. The third is what labels another.
    """
    mine, rest = take_arguments(text, transfer="", weights="")
    usual = "render" if data_name(rest) == "shapes" else "vgg"
    chosen = dict(name=mine.transfer or usual)
    if mine.weights and chosen["name"] == "render":
        raise ValueError(
            "config argument: weights need transfer=small or transfer=vgg, got render,"
            " which draws exactly; add one"
        )
    if mine.weights:
        chosen["weights"] = mine.weights
    return chosen, rest, "" if chosen["name"] == usual else mine.transfer


def use_adam(c: ml_collections.ConfigDict, rate: float) -> None:
    """Trains by Adam, whose options are others than SGD's, without decay."""
    kept = {key: c.optim[key] for key in ("warmup", "average")}
    schedule = c.optim.schedule.to_dict()
    c.optim = dict(name="adam", rate=rate, decay=0.0, schedule=schedule, **kept)


def update(c: ml_collections.ConfigDict, entries: Mapping) -> None:
    """Changes a config in place; a schedule is replaced as a whole."""
    with c.unlocked():
        for key, value in entries.items():
            if isinstance(value, Mapping) and key in c and key != "schedule":
                update(c[key], value)
            else:
                c[key] = dict(value) if isinstance(value, Mapping) else value


# What all data read, by its default; the others are those of datasets.ARGUMENTS.
SHARED_ARGUMENTS: Mapping[str, Any] = types.MappingProxyType(
    {
        **dict(data="shapes", seeds=3, size=0, epochs=0.0, smoke=False),
        **dict.fromkeys(("balance", "inputs", "variant", "init", "vary", "model"), ""),
        **dict.fromkeys(("crop", "skip", "columns", "shift"), ""),
        **dict(attribute="attribute", images=0, shift_seed=0),
    }
)


def parse_arguments(text: str) -> types.SimpleNamespace:
    """All arguments; ValueError, one line, for what is wrong with them."""
    arg = jc.parse_arg(text, **SHARED_ARGUMENTS, **datasets.DEFAULTS)
    if arg.data in data.DATASETS and arg.data not in datasets.PRESETS:
        raise ValueError(
            f"config argument: data={arg.data} has no preset; name it in a config of "
            "your own, as docs/data.md shows"
        )
    jc.check_known("config argument", arg.data, datasets.PRESETS, "data")
    given, own = jc.explicit_arguments(text), datasets.ARGUMENTS[arg.data]
    if arg.variant not in ("", "biasbed"):
        raise ValueError(
            f"config argument: variant must be biasbed or nothing, got {arg.variant!r}; "
            "a label of your own is --config.variant"
        )
    if arg.crop not in ("", "host", "device", "memory"):
        raise ValueError(
            f"config argument: crop must be host, device or memory, got {arg.crop!r}"
        )
    if arg.demo + arg.small + arg.smoke > 1:
        raise ValueError("config argument: take one of demo, small and smoke")
    of_shift = {"attribute", "images", "shift_seed"} - own
    if not arg.shift and (lone := given & of_shift):
        raise ValueError(
            f"config argument: {min(lone)!r} has a say with shift=... alone, e.g. shift=C6"
        )
    if useless := given - SHARED_ARGUMENTS.keys() - own:
        raise ValueError(
            f"config argument: {min(useless)!r} has no say with data={arg.data}; "
            f"these have: {', '.join(sorted(SHARED_ARGUMENTS.keys() | own))}"
        )
    return arg


def take_arguments(text: str, **defaults) -> tuple[types.SimpleNamespace, str]:
    """Takes a config's own arguments out of the text: their values, and the rest."""
    items = [item for item in (text or "").split(",") if item]
    mine = [item for item in items if item.partition("=")[0] in defaults]
    rest = ",".join(item for item in items if item not in mine)
    return jc.parse_arg(",".join(mine), **defaults), rest


def data_name(text: str) -> str:
    """Which data the arguments name, for recipes that depend on it."""
    return parse_arguments(text).data


def is_biasbed(text: str) -> bool:
    """Whether the arguments ask for BiasBed's variant."""
    return parse_arguments(text).variant == "biasbed"


_POOL = 8192  # Scenes of the embedded set that parts are taken from.


def _choose_form(arg, given: Collection[str]) -> None:
    """Chooses the form of a set in which every class has every value alike.

    ValueError for an attribute that the embedded set has not.
    """
    known = ("attribute", *shapes.FACTOR_NAMES)
    plain = {*arg.attribute.split("+")} <= {*known} or arg.columns
    if arg.data == "shapes" and not plain:
        raise ValueError(
            f"config argument: the embedded set has no attribute {arg.attribute!r};"
            f" {jc.suggest(arg.attribute, known)}"
        )
    if arg.data == "colored_mnist":
        if "form" in given and arg.form != "uniform":
            raise ValueError(
                "config argument: shift needs form=uniform, where every digit has every"
                f" colour, got {arg.form}; leave the form out"
            )
        arg.form = "uniform"


def _apply_shift(c: ml_collections.ConfigDict, arg, given: Collection[str]) -> None:
    """Changes train, valid and tests of a config; `given` are the arguments' names."""
    whole = dict(c.train.items())
    fed = dict(batch=whole.pop("batch"))
    whole |= dict(split=_base_split(whole), **_shift_options(arg, given))
    told = dict(attribute=arg.attribute, images=arg.images, seed=arg.shift_seed)

    def part(name: str) -> dict:
        return {**whole, "shift": dict(level=arg.shift, part=name, **told)}

    c.train = {**part("train"), **fed}
    c.valid = part("valid")
    c.tests = {name: part(name) for name in ("id", *_ood_parts(arg))}


def _base_split(part: Mapping[str, Any]) -> str:
    """The split that a set is a part of."""
    return part["split"].partition("[")[0]


def _ood_parts(arg) -> tuple[str, ...]:
    """The parts out of distribution; of a single value, each of the others."""
    if not arg.shift.startswith("only-"):
        return ("ood",)
    values: dict[str, Collection[str]] = {}
    if arg.data == "colored_mnist":
        values["attribute"] = colored_mnist.PALETTE
    values |= shapes.FACTORS if arg.data == "shapes" else {}
    values |= set_options.read_values(arg.columns) if arg.columns else {}
    own = arg.shift.removeprefix("only-")
    others = [one for one in values.get(arg.attribute, ()) if one != own]
    return tuple(f"ood-{one}" for one in others) or ("ood",)


def _shift_options(arg, given: Collection[str]) -> dict:
    """What a preset must have so that attribute and class can be told apart."""
    if arg.data != "shapes":
        return {}
    by_texture = arg.attribute in ("attribute", "pattern")
    own: dict[str, Any] = dict(n=(2048 if by_texture else 512) if arg.smoke else _POOL)
    if by_texture and "correlation" not in given:
        own["correlation"] = 1 / len(shapes.CLASSES)
    if {*arg.attribute.split("+")} & {*shapes.FACTOR_NAMES}:
        own["factors"] = True
    return own
