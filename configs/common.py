"""Arguments, data presets and default recipe of all experiments in configs/.

Arguments follow the colon, separated by commas, as in --config=configs/erm.py:data=pacs,root=DIR.

:data=shapes        the embedded set (the default; needs no download)
:data=imagenet,root=...
                    ImageNet with train/ and val/ (docs/data.md), trained by the recipe of
                    the algorithm's authors if they published one; `subset` if only some
                    of the classes are in root
:data=pacs,root=... PACS: trains on one style (`style`), tests on the other three; with
                    `held_out=sketch` trains on the other three, tests on that one
:data=tiny_imagenet,root=...,stimuli=...
                    Tiny ImageNet: tests on its validation images, and on Geirhos' stimuli
                    if `stimuli` names their folder
:data=cifar10,root=..., cifar100, mnist, fashion_mnist
                    tests on their test images; CIFAR also on CIFAR-10-C or CIFAR-100-C
                    if `corrupted` names its folder
:data=colored_mnist,root=...,form=...
                    MNIST's digits in colours that predict the class in training and
                    mislead in the test set `reversed`; `grey` removes the colours
:data=stacked,root=...,digits=...
                    a digit of MNIST (`digits`) above each image of CIFAR-10 (`root`)
                    of the same class; tests by the class of either half
:data=folder,root=...,train=...,valid=...,tests=a+b
                    class folders of images; without `valid`, a tenth of the
                    training images is used for validation
:data=tfds,name=imagenette/320px,train=...,valid=...,tests=a+b
                    a set prepared by `jbias prepare tfds --name=...`, below `root`
                    or in TFDS's default folder; splits as for data=folder
:data=attributed,root=...,train=...,valid=...,tests=a+b,label=...,attribute=...
                    your own tables <root>/<split>.csv; `label` and `attribute` name the
                    columns of class and attribute ("hair+smile" combines two columns)
:data=celeba,root=...,label=Male,attribute=Black_Hair+Blond_Hair
                    CelebA; `label` and `attribute` name its attributes that serve as
                    class and attribute
:data=NAME,root=...,train=...,valid=...,tests=a+b
                    any other set in files of docs/data.md, such as office_home, at its
                    default size; splits as for data=folder. A set with the splits
                    train, valid and test needs only its root. Sets of domains, such as
                    office_home, may leave out one of them: `held_out=clipart`
:shift=C6,attribute=...,images=...,shift_seed=...
                    trains under a chosen shift of an attribute: M0 to M4 (marginal), C0
                    to C6 (conditional) or J0 to J4 (joint), or on a single value such as
                    only-red; tests in and out of distribution (docs/shifts.md)
:columns=clusters/train.csv
                    further attributes of the training images, such as the clusters of
                    `jbias prepare clusters`
:balance=group      batches with equal shares of all groups (class and attribute),
                    or balanced by `class`, `attribute` or another column
:inputs=mixup+blur  batch transforms with their default options, added after those of the
                    recipe; stylize uses `render` on shapes and `small` on other data
:variant=biasbed    the algorithm as in BiasBed's release, if that differs from the paper
:vary=optim.rate=0.03+0.1
                    trains all seeds with each of these values in one run; further keys
                    after a semicolon make a grid
:init=runs/...      starts from the trained networks in the workdir of another run
:seeds=3            number of seeds, all trained in one process
:model=resnet18     resnet18, 34, 50, 101, 152, resnext50, preact_resnet18, cnn,
                    vgg11, 16, 19 (and vgg11_bn ...), alexnet, densenet121,
                    squeezenet1_0, squeezenet1_1, mobilenetv3_large,
                    mobilenetv3_small, bagnet9, 17, 33; "": the default of the data set
:size=0             image side in pixels; 0: the default of the data set
:epochs=0           number of epochs; 0: the default of the data set and algorithm
:crop=host          reads the training images from their files during training, with random
                    crops for each seed (default for imagenet); `device` decodes each image
                    once for all seeds, in windows; `memory` keeps all images in memory
                    (default for other data sets)
:skip=damaged.json  skips the images that `jbias prepare check --list` found damaged
:demo               a first look: the embedded set with half of its images, a narrower
                    network and 6 epochs; a minute or two on two cores
:small              the embedded set with 5 epochs; docs/results.md has its scores; 5 to 12
                    minutes on two cores
:more               the embedded set with two more test sets, in which texture is
                    uninformative
:smoke              runs every part once, in half a minute; too short to learn anything
"""

import inspect
import types
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import ml_collections
from ml_collections import config_dict

from jbias import config as jc
from jbias import errors, models, run_spec
from jbias.configs import datasets
from jbias.data import set_options
from jbias.data.embedded import shapes
from jbias.data.sets import colored_mnist


def experiment(
    text: str,
    algo: Mapping[str, Any],
    *,
    inputs: Sequence[Mapping[str, Any]] = (),
    train: Mapping[str, Any] = types.MappingProxyType({}),
    imagenet: Mapping[str, Any] = types.MappingProxyType({}),
) -> ml_collections.ConfigDict:
    """Return the config of one algorithm on the data that the arguments name.

    text: the arguments after the colon; see the top of this file.
    algo: `name` and options of the algorithm.
    inputs: batch transforms, applied after the crops and flips of the data preset.
    train: further options of the training set.
    imagenet: config entries of the authors' recipe, applied for data=imagenet.
    """
    arg = parse_arguments(text)
    explicit = jc.explicit_arguments(text)
    c = _defaults(arg)
    c.algo = dict(algo)
    if arg.shift:
        _choose_form(arg, explicit)
    datasets.find(arg.data).set_entries(c, arg)
    if arg.columns:
        for options in (c.train, c.valid):
            if _base_split(options) == _base_split(c.train):
                options.columns = arg.columns
    if arg.shift:
        _apply_shift(c, arg, explicit)
    _drop_unknown_options(c.model)
    preset_epochs = c.epochs
    if arg.data == "imagenet":
        c.train.crop = "host"
        update(c, imagenet)
    if arg.skip:
        for options in (c.train, c.valid, *c.tests.values()):
            if options.get("root") == arg.root:
                options.skip = arg.skip
    if arg.crop:
        c.train.crop = True if arg.crop == "memory" else arg.crop
    if arg.smoke:
        c.epochs, c.optim.warmup = preset_epochs, ""
    update(c.train, {"accumulate": 1, **train})  # Micro-batches per step.
    if arg.balance:
        update(c.train, dict(balance=arg.balance))
    if "other" in c.train and "inputs" not in c.train.other:
        # The same crops and flips, drawn separately.
        c.train.other.inputs = c.inputs
    c.size = arg.size or c.size
    c.epochs = arg.epochs or c.epochs
    added = (*(dict(transform) for transform in inputs), *_named_transforms(c, arg))
    c.inputs = (*c.inputs, *added)
    if c.train.get("crop") == "device":
        update(c.train, dict(window=16384))
        names = [transform["name"] for transform in c.inputs]
        if "random_resized_crop" in names:
            update(c.train, dict(canvas=round(c.size * 256 / 224)))
    add_label(c, *(transform["name"] for transform in added))
    add_label(c, f"balance-{arg.balance.replace('+', '-')}" if arg.balance else "")
    if arg.variant == "biasbed":
        c.aggregate = "mean_logit"
        if "variant" in algo:
            update(c, dict(algo=dict(variant="biasbed")))
    return c


def _named_transforms(
    c: ml_collections.ConfigDict, arg: types.SimpleNamespace
) -> list[dict[str, Any]]:
    """Return the options of the batch transforms of `inputs=a+b`.

    arg: values of all arguments. Training options that a transform needs are added to `c`.
    """
    transforms = [dict(name=name) for name in filter(None, arg.inputs.split("+"))]
    for transform in transforms:
        if transform["name"] == "stylize":
            style = "render" if arg.data == "shapes" else "small"
            transform["transfer"] = dict(name=style)
            if arg.data == "shapes":
                update(c.train, dict(renders=True))
        if transform["name"] == "pixmix" and "other" not in c.train:
            update(c.train, dict(other=dict(data="fractals", split="train", inputs=())))
    return transforms


def _parse_vary(text: str) -> tuple[dict[str, Any], ...]:
    """Return the entries of config.vary in a text, as {"key", "values"}.

    text: such as optim.rate=0.03+0.1;algo.p=0.1+0.5. ValueError for other texts.
    """
    axes = []
    for item in filter(None, text.split(";")):
        key, _, values = item.partition("=")
        try:
            axes.append(dict(key=key, values=tuple(map(float, values.split("+")))))
        except ValueError:
            raise ValueError(
                "config argument: vary must be like optim.rate=0.03+0.1, more keys "
                f"after a semicolon, got {item!r}"
            ) from None
    return tuple(axes)


def _drop_unknown_options(model: ml_collections.ConfigDict) -> None:
    """Remove options, in place, that the chosen network does not have.

    model: config.model, whose options are preset for ResNets.
    """
    make = models.MODELS.get(model.name)
    known = inspect.signature(make).parameters if make else model
    for option in set(model) - set(known) - {"name"}:
        del model[option]


def _defaults(arg: types.SimpleNamespace) -> ml_collections.ConfigDict:
    """Return the config entries that depend neither on the data nor on the algorithm.

    arg: values of all arguments.
    """
    c = ml_collections.ConfigDict()
    c.variant = arg.variant  # Distinguishes runs of one algorithm in a report.
    c.label = ""  # Name of the run in a report; "": the algorithm's and the variant.
    c.seeds = tuple(range(arg.seeds))
    c.model = dict(
        name=arg.model or "resnet18",
        width=64,
        stem="imagenet",
        norm_group=0,  # Images that batch norm normalises together; 0: the batch.
    )
    c.init = arg.init  # The workdir of a run to start from.
    # A value here gives all seeds the same random stream for this source of randomness:
    # init, order, augment or algorithm
    # (docs/statistics-seeds.md#where-the-variance-comes-from).
    c.fix = {name: config_dict.placeholder(int) for name in run_spec.SOURCES}
    c.inputs = ()
    c.optim = dict(
        name="sgd",
        rate=0.1,
        momentum=0.9,
        decay=5e-4,
        nesterov=False,
        schedule=dict(name="cosine"),
        warmup="",
        # An average of the weights, which is evaluated: the decay of a moving average, or
        # entries such as dict(name="uniform", first="100 steps") (training/averaging/averages.py).
        average=0.0,
        # With a positive radius SAM, or ASAM if `adaptive` (training/perturbing/sharpness.py).
        sharpness=dict(radius=0.0, adaptive=False, eta=0.01),
    )
    c.precision = "auto"
    c.stages = ()
    c.vary = _parse_vary(arg.vary)
    c.eval_every = "1 epoch"
    c.save_every = "1 epoch"
    # A seed that diverged is restored up to `times` times to its state at the latest
    # multiple of `every`, and continues with `factor` times its rate; 0: it is frozen.
    c.rollback = dict(times=0, factor=0.5, every="1 epoch")
    # How the probabilities of several classes make that of one class of a coarser set.
    c.aggregate = "mean_prob"
    c.run = dict(
        strategy="auto",
        steps_per_dispatch=8,
        # 0: all devices. The embedded set's images are too small for more than one.
        devices=1 if arg.data == "shapes" else 0,
        spread=0,  # Groups of devices, each with seeds of its own; 0: as many as possible.
        together=0,  # Seeds on the devices at the same time; 0: as many as fit.
        memory=0.0,  # GiB to use of each device; 0: all that it has.
        eval_batch=256,
        # Batch norm in evaluation: "folded" into convolutions, which rounds differently,
        # or "exact"; "auto" is exact on a CPU and folded on other devices.
        eval_norm="auto",
        decisions=False,
        deterministic=False,  # The same bits in every run on a GPU, but slower.
        evaluate="here",  # Or "elsewhere": by jbias evaluate --follow.
        keep=2,
        log_seconds=10.0,
        profile=False,
        loading=dict(gib=8.0, threads=0, workers=0),  # threads=0: one per core.
        # Assumptions of costs.json: watts of a device (0: its rated power), the share of
        # the device in use, the building's PUE, and kg of CO2e per kWh (0: unknown).
        energy=dict(watts=0.0, share=1.0, pue=1.0, intensity=0.0),
        write="",  # tensorboard, wandb, mlflow, joined by + (docs/observing.md).
        wandb=dict(mode="offline", project="jbias", entity=""),
        log="text",  # Or "json": one JSON object per line, for log collectors.
    )
    return c


def add_label(c: ml_collections.ConfigDict, *names: str) -> None:
    """Append names to config.variant, which distinguishes runs of one algorithm."""
    c.variant = "+".join(filter(None, (c.variant, *names)))


def style_transfer(text: str) -> tuple[dict, str, str]:
    """Return the options of a style transfer, the other arguments as text, and a label.

    text: the arguments after the colon; `transfer` and `weights` choose the style transfer.
    The default is the exact transfer ("render") on the embedded set and the published
    network ("vgg") on other data. The label is the transfer's name, or "" for the default.
    """
    arg, other_arguments = take_arguments(text, transfer="", weights="")
    default = "render" if data_name(other_arguments) == "shapes" else "vgg"
    transfer = dict(name=arg.transfer or default)
    if arg.weights and transfer["name"] == "render":
        raise ValueError(
            "config argument: weights need transfer=small or transfer=vgg, got render,"
            " which draws exactly; add one"
        )
    if arg.weights:
        transfer["weights"] = arg.weights
    label = "" if transfer["name"] == default else arg.transfer
    return transfer, other_arguments, label


def use_adam(c: ml_collections.ConfigDict, rate: float) -> None:
    """Replace the config's optimiser by Adam without weight decay, with the same schedule.

    rate: the learning rate.
    """
    c.optim = dict(
        name="adam",
        rate=rate,
        decay=0.0,
        schedule=c.optim.schedule.to_dict(),
        warmup=c.optim.warmup,
        average=c.optim.average,
        sharpness=c.optim.sharpness.to_dict(),
    )


def use_average(c: ml_collections.ConfigDict, **options: Any) -> None:
    """Replace config.optim.average in place by an average with these options."""
    with c.unlocked():
        del c.optim.average  # A number, which a dict may not replace.
        c.optim.average = options


def update(c: ml_collections.ConfigDict, entries: Mapping[str, Any]) -> None:
    """Merge entries into a config in place; a schedule is replaced as a whole."""
    with c.unlocked():
        for key, value in entries.items():
            if isinstance(value, Mapping) and key in c and key != "schedule":
                update(c[key], value)
            else:
                c[key] = dict(value) if isinstance(value, Mapping) else value


# Arguments of all data, with their defaults; those of some data: datasets.PRESETS.
SHARED_ARGUMENTS: Mapping[str, Any] = types.MappingProxyType(
    {
        "data": "shapes",
        "seeds": 3,
        "size": 0,
        "epochs": 0.0,
        "smoke": False,
        "balance": "",
        "inputs": "",
        "variant": "",
        "init": "",
        "vary": "",
        "model": "",
        "crop": "",
        "skip": "",
        "columns": "",
        "shift": "",
        "attribute": "attribute",
        "images": 0,
        "shift_seed": 0,
    }
)


def parse_arguments(text: str) -> types.SimpleNamespace:
    """Return the values of all arguments, as attributes.

    text: the arguments after the colon. ValueError of one line for a wrong argument.
    """
    defaults = {**SHARED_ARGUMENTS, **datasets.ARGUMENTS}
    arg = jc.parse_arg(text, **defaults)
    explicit = jc.explicit_arguments(text)
    arguments_of_data = datasets.find(arg.data).arguments.keys()
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
    needs_shift = {"attribute", "images", "shift_seed"} - arguments_of_data
    without_shift = explicit & needs_shift
    if without_shift and not arg.shift:
        raise ValueError(
            f"config argument: {min(without_shift)!r} is used only with shift=...; "
            "add a shift, such as shift=C6"
        )
    known = SHARED_ARGUMENTS.keys() | arguments_of_data
    unused = explicit - known
    if unused:
        raise ValueError(
            f"config argument: {min(unused)!r} is not used with data={arg.data}; "
            f"take from: {', '.join(sorted(known))}"
        )
    return arg


def take_arguments(text: str, **defaults) -> tuple[types.SimpleNamespace, str]:
    """Return the values of some arguments as attributes, and the other arguments as text.

    text: the arguments after the colon. defaults: names and defaults of the arguments.
    """
    items = [item for item in (text or "").split(",") if item]
    taken = [item for item in items if item.partition("=")[0] in defaults]
    other_arguments = ",".join(item for item in items if item not in taken)
    return jc.parse_arg(",".join(taken), **defaults), other_arguments


def data_name(text: str) -> str:
    """Return the value of the argument `data`, for recipes that depend on the data set."""
    return parse_arguments(text).data


def is_biasbed(text: str) -> bool:
    """Return True if the arguments have variant=biasbed."""
    return parse_arguments(text).variant == "biasbed"


_POOL = 8192  # Scenes of the embedded set from which the parts of a shift are drawn.


def _choose_form(arg: types.SimpleNamespace, explicit: Collection[str]) -> None:
    """Set `arg.form` so that every class of Colored MNIST has every colour equally often.

    arg: values of all arguments, with a shift. explicit: names of the arguments that the
    user wrote. ValueError for another form, and for an attribute that the embedded set does
    not have.
    """
    known = ("attribute", *shapes.FACTOR_NAMES)
    is_known = set(arg.attribute.split("+")) <= set(known) or arg.columns
    if arg.data == "shapes" and not is_known:
        raise ValueError(
            f"config argument: the embedded set has no attribute {arg.attribute!r};"
            f" {errors.suggest(arg.attribute, known)}"
        )
    if arg.data == "colored_mnist":
        if "form" in explicit and arg.form != "uniform":
            raise ValueError(
                "config argument: shift needs form=uniform, where every digit has every"
                f" colour, got {arg.form}; leave the form out"
            )
        arg.form = "uniform"


def _apply_shift(
    c: ml_collections.ConfigDict,
    arg: types.SimpleNamespace,
    explicit: Collection[str],
) -> None:
    """Replace train, valid and tests of a config by the parts of a shifted set.

    arg: values of all arguments. explicit: names of the arguments that the user wrote.
    """
    options = dict(c.train.items())
    batch = options.pop("batch")
    options["split"] = _base_split(options)
    options.update(_shift_options(arg, explicit))

    def part(name: str) -> dict[str, Any]:
        """Return the options of one part of the shifted set, such as "train" or "ood"."""
        shift = dict(
            level=arg.shift,
            part=name,
            attribute=arg.attribute,
            images=arg.images,
            seed=arg.shift_seed,
        )
        return {**options, "shift": shift}

    c.train = {**part("train"), "batch": batch}
    c.valid = part("valid")
    c.tests = {name: part(name) for name in ("id", *_ood_parts(arg))}


def _base_split(options: Mapping[str, Any]) -> str:
    """Return the name of a set's split without the range: "train" for "train[:98%]".

    options: of the data set.
    """
    return options["split"].partition("[")[0]


def _ood_parts(arg: types.SimpleNamespace) -> tuple[str, ...]:
    """Return the names of a shifted set's parts out of distribution.

    ("ood",); with a single training value such as only-red, one part per other value, such
    as "ood-green". arg: values of all arguments.
    """
    if not arg.shift.startswith("only-"):
        return ("ood",)
    values: dict[str, Collection[str]] = {}
    if arg.data == "colored_mnist":
        values["attribute"] = colored_mnist.PALETTE
    if arg.data == "shapes":
        values.update(shapes.FACTORS)
    if arg.columns:
        values.update(set_options.read_values(arg.columns))
    trained = arg.shift.removeprefix("only-")
    unseen = [value for value in values.get(arg.attribute, ()) if value != trained]
    return tuple(f"ood-{value}" for value in unseen) or ("ood",)


def _shift_options(
    arg: types.SimpleNamespace, explicit: Collection[str]
) -> dict[str, Any]:
    """Return options of the embedded set that make class and attribute independent.

    arg: values of all arguments. explicit: names of the arguments that the user wrote. Empty
    for other data.
    """
    if arg.data != "shapes":
        return {}
    by_texture = arg.attribute in ("attribute", "pattern")
    options: dict[str, Any] = dict(n=_POOL)
    if arg.smoke:
        options["n"] = 2048 if by_texture else 512
    if by_texture and "correlation" not in explicit:
        options["correlation"] = 1 / len(shapes.CLASSES)
    if set(arg.attribute.split("+")) & set(shapes.FACTOR_NAMES):
        options["factors"] = True
    return options
