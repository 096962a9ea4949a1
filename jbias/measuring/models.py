"""Functions that open the MODEL of `jbias measure` and choose the classes of its outputs."""

import argparse
import glob
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jbias import errors
from jbias.data import class_maps
from jbias.evals import described_preprocessing, networks, predictors
from jbias.runtime import console, hub, messages

TIMM = "timm:"
_INSTALL = "pip install torch torchvision timm"
_TABLES = (".csv", ".parquet")
FOLDERS = "folders"  # Value of --classes: the folders of the user's images.
OF_FOLDERS = "the folders of --data, in alphabetical order"


class Settings(NamedTuple):
    """Options of a model, as `jbias measure --help` lists them; None if not given."""

    random_weights: bool = False  # For timm:NAME.
    classes: str | Sequence[str] | Mapping[str, str] | None = None  # See Predictor.
    columns: str | None = None  # Names of a table's columns, "key=name,...".
    dataset: str = ""  # Name of the set of a table's images; "": by their names.
    parse: str = "published"  # Or "raw", see answers.tables.read.
    letters: str = ""  # Value of --options: options of a table's question.
    mean: float | Sequence[float] | None = None  # Per channel, for images in [0, 1].
    std: float | Sequence[float] | None = None
    model: str | None = None  # A name of models.MODELS, for a file of weights.
    step: str | None = None  # Checkpoint of a run: "best", "latest" or a number.
    trained: str | None = None  # Name of the training set, for records.
    method: str | None = None  # Name of the training method, for records.


class Model(NamedTuple):
    """A model of one of three kinds: a predictor, loaded networks, or a table of decisions."""

    predictor: predictors.Predictor | None = None
    loaded: tuple[networks.Network, ...] = ()
    decisions: str = ""  # Path of the tables.
    # For a predictor, the result of its `resolve`: mean and std, and other values that the model
    # describes, such as size and crop. Empty for the other two kinds.
    described: described_preprocessing.Preprocessing = (
        described_preprocessing.Preprocessing()
    )


def read(
    model: Any,
    settings: Settings,
    *,
    options: Mapping[str, Any],
    say: console.Say,
    refuse: Callable[[str, str], None],
) -> Model:
    """Open a model, given as text or as an object, and return it as a Model.

    model: the MODEL of `jbias measure --help`; or a module of PyTorch, a Predictor or a
    function of images. A table of decisions is not read: the Model has its path only.
    options: keyword arguments of Predictor or jbias.torch.wrap. say: called with lines for the
    user. refuse: called with (path, reason) for weights that cannot be read, which are left
    out. ValueError for an invalid model, for options with a file, run or table, and for
    random_weights with a text other than timm:NAME.
    """
    if not isinstance(model, str | os.PathLike):
        return _of_object(model, settings, options)
    text = os.fspath(model)
    if settings.random_weights and not text.startswith(TIMM):
        raise ValueError(f"--random-weights: is for timm:NAME, got {text!r}")
    if text.startswith(TIMM):
        module, name = _make_timm(text, is_random=settings.random_weights)
        return _of_object(module, settings, {"name": name, **options})
    path, _, name = text.rpartition(":")
    if text.endswith(".py") or path.endswith(".py"):
        reference = f"{text}:predict" if text.endswith(".py") else text
        loaded = predictors.load_object(reference, "MODEL")
        if not (isinstance(loaded, predictors.Predictor) and loaded.name):
            options = {"name": _name_of_object(reference), **options}
        return _of_object(loaded, settings, options)
    for key in options:
        must = "be left out for files, runs and tables of decisions"
        raise ValueError(f"{key}: must {must}, got it for {text!r}")
    if is_table(text):
        return Model(decisions=text)
    return Model(loaded=_read_networks(text, settings, say, refuse))


def _name_of_object(reference: str) -> str:
    """Return a network's name for FILE.py:NAME: NAME, or FILE if NAME is `predict`."""
    path, _, name = reference.rpartition(":")
    stem = os.path.splitext(os.path.basename(path))[0]
    return stem if name == "predict" else name


def is_table(model: Any) -> bool:
    """Return True if a model is the path of a .csv or .parquet file, or a folder or glob of these.

    Other files must not be among these; hidden files of a folder do not count. False for a run's
    workdir, an empty folder, a path or glob without files, and a model that is not a path.
    """
    if not isinstance(model, str | os.PathLike) or hub.is_hub(os.fspath(model)):
        return False
    path = os.fspath(model)
    if glob.has_magic(path) and not os.path.exists(path):
        matches = glob.glob(path)
        return bool(matches) and all(x.lower().endswith(_TABLES) for x in matches)
    if os.path.isfile(path):
        return path.lower().endswith(_TABLES)
    if not os.path.isdir(path) or networks.is_run(path):
        return False
    names = [name for name in os.listdir(path) if name[0] != "."]
    return bool(names) and all(name.lower().endswith(_TABLES) for name in names)


def _read_networks(
    text: str, settings: Settings, say: console.Say, refuse: Callable[[str, str], None]
) -> tuple[networks.Network, ...]:
    """Return the networks of the files and runs at a path, glob or repository on the hub.

    Networks that cannot be read are left out. text: MODEL. say, refuse: see `read`.
    ValueError if nothing is at the path, or for an invalid setting.
    """
    if not (hub.is_hub(text) or "://" in text or _may_exist(text)):
        raise ValueError(
            f"MODEL: nothing is at {text!r}; give a file of weights, a run, timm:NAME, "
            "hf:OWNER/NAME@COMMIT, FILE.py:NAME or a table of decisions"
        )
    if settings.classes == FOLDERS:
        raise ValueError(
            "--classes: folders is for functions and modules; for weights and runs give a "
            "file with a name a line"
        )
    args = argparse.Namespace(
        checkpoint=[text],
        model=settings.model,
        classes=settings.classes,
        mean=settings.mean,
        std=settings.std,
        trained=settings.trained,
        method=settings.method,
        step=settings.step,
        zoo=None,
    )
    paths = networks.check_arguments(args, ".", {})
    return tuple(networks.open_networks(paths, args, say, refuse))


def _may_exist(path: str) -> bool:
    """Return True if a path exists or is a glob."""
    return os.path.exists(os.path.expanduser(path)) or any(x in path for x in "*?[")


def _of_object(model: Any, settings: Settings, options: Mapping[str, Any]) -> Model:
    """Return the Model of a module of PyTorch, a Predictor or a function.

    settings: its mean, std and classes are used if not None, except for the classes "folders"
    and "geirhos16", which `settle_classes` sets later. options: keyword arguments of Predictor
    or jbias.torch.wrap, which take precedence over settings.
    """
    settled = {"mean": settings.mean, "std": settings.std}
    if not _depends_on_folders(settings):
        settled["classes"] = settings.classes
    settled = {key: value for key, value in settled.items() if value is not None}
    options = {**settled, **options}
    if hasattr(model, "named_modules") and hasattr(model, "state_dict"):
        from jbias import torch

        predictor = torch.wrap(model, **options)
    else:
        predictor = predictors.as_predictor(model, **options)
    return Model(predictor=predictor, described=predictor.resolve())


def _depends_on_folders(settings: Settings) -> bool:
    """Return True if settings.classes is "folders" or "geirhos16" (see `settle_classes`)."""
    classes = settings.classes
    return isinstance(classes, str) and classes in (class_maps.GEIRHOS16, FOLDERS)


def settle_classes(
    predictor: predictors.Predictor,
    settings: Settings,
    *,
    size: int,
    folder_classes: Sequence[str],
    folders_in_words: str = OF_FOLDERS,
    has_stimuli: bool,
) -> tuple[str | Sequence[str] | Mapping[str, str], str]:
    """Return (classes of the predictor's outputs, message on the choice of these classes).

    Classes that the caller gave are returned, with the names in place of "folders" and
    "geirhos16"; a function that returns class names has the predictor's classes. The message is
    then "". Otherwise the model is called once, and the known list whose length is the number of
    outputs is returned: "imagenet", or a tuple of names. size: image side in pixels, for that
    call. folder_classes: the classes of the user's own images, in order; folders_in_words: the
    name of these classes in messages. has_stimuli: whether Geirhos' 16 are a known list.
    ValueError if no list has that length or several different lists have it, and for "folders"
    without folder_classes.
    """
    lists = {
        class_maps.IMAGENET: (
            "ImageNet's 1000",
            class_maps.resolve_outputs(class_maps.IMAGENET),
        ),
        FOLDERS: (folders_in_words, tuple(folder_classes)),
        class_maps.GEIRHOS16: (
            "Geirhos' 16, in alphabetical order",
            tuple(class_maps.geirhos16()) if has_stimuli else (),
        ),
    }
    if _depends_on_folders(settings):
        if settings.classes == class_maps.GEIRHOS16:
            return tuple(class_maps.geirhos16()), ""
        if not folder_classes:
            raise ValueError("--classes: folders are those of --data; give it")
        return tuple(folder_classes), ""
    if settings.classes is not None or predictor.classes != class_maps.IMAGENET:
        return predictor.classes, ""
    count = predictors.count_outputs(predictor, size)
    if not count:
        return predictor.classes, ""
    readings = {key: x for key, x in lists.items() if len(x[1]) == count}
    if len({tuple(names) for _, names in readings.values()}) > 1:
        options = " or ".join(
            f"{words} (--classes={key})" for key, (words, _) in readings.items()
        )
        raise ValueError(f"MODEL: its {count} outputs may be {options}; say which")
    if not readings:
        raise ValueError(
            f"MODEL: must say what its {count:,} outputs are; give --classes=FILE with "
            "a name a line, in their order (classes= in Python)"
        )
    key, (words, names) = next(iter(readings.items()))
    value = key if key == class_maps.IMAGENET else names
    return value, f"its {count:,} outputs are taken for {words}; --classes changes it"


def _make_timm(text: str, *, is_random: bool) -> tuple[Any, str]:
    """Return (module of timm, name of the network): NAME, or NAME-random with random weights.

    text: MODEL, timm:NAME with or without ?pretrained=... With is_random or ?pretrained=false
    the weights are random, from seed 0; else they are read from the Hugging Face cache.
    ValueError if timm is not installed or lacks the network, if the weights are not in the cache,
    and for ?pretrained=true with is_random.
    """
    name, _, query = text.removeprefix(TIMM).partition("?")
    if query not in ("", "pretrained=false", "pretrained=true"):
        must = "end with ?pretrained=false, ?pretrained=true or neither"
        remedy = (
            f"for other options write my.py with net = timm.create_model({name!r}, ...), "
            "and give my.py:net"
        )
        errors.refuse("MODEL", must, text, remedy)
    if query == "pretrained=true" and is_random:
        raise ValueError(f"MODEL: {text} is pretrained; leave --random-weights out")
    is_random = is_random or query == "pretrained=false"
    try:
        import timm
        import torch
    except ModuleNotFoundError as error:
        raise ValueError(
            f"MODEL: {text} needs the package timm, and {error.name} is not installed; "
            f"{_INSTALL}"
        ) from None
    except Exception as error:  # Builds that do not fit raise errors of any type.
        raise ValueError(
            f"MODEL: {text} needs the package timm, which cannot be imported "
            f"({messages.describe_error(error)}); install builds of torch and torchvision "
            f"that belong together: {_INSTALL}"
        ) from error
    if not name or not timm.is_model(name):
        close = errors.nearest(name, timm.list_models())
        hint = f"did you mean timm:{close}?" if close else "timm.list_models() has all"
        raise ValueError(f"MODEL: timm has no network {name!r}; {hint}")
    try:
        if is_random:
            torch.manual_seed(0)  # The same weights each time, so that a call resumes.
            return timm.create_model(name, pretrained=False), f"{name}-random"
        overlay = {"file": _cached_weights(name)}
        module = timm.create_model(
            name, pretrained=True, pretrained_cfg_overlay=overlay
        )
    except RuntimeError as error:  # An unknown tag, or weights of other shapes.
        raise ValueError(f"MODEL: {text}: {error}") from None
    return module, name


def _cached_weights(name: str) -> str:
    """Return the path of a timm network's weights in the Hugging Face cache.

    ValueError if timm has no weights of that name on the hub, and if they are not in the cache;
    the message then has the command that fetches them.
    """
    import huggingface_hub
    import timm

    config = timm.models.get_pretrained_cfg(name)
    repository = getattr(config, "hf_hub_id", None) or ""
    if repository.endswith("/"):
        architecture = config.architecture or name.partition(".")[0]
        repository += f"{architecture}.{config.tag}" if config.tag else architecture
    by_hand = f"use timm:{name}?pretrained=false for random weights"
    if not repository:
        raise ValueError(f"MODEL: timm has no weights of {name} on the hub; {by_hand}")
    file = getattr(config, "hf_hub_filename", None) or "model.safetensors"
    path = huggingface_hub.try_to_load_from_cache(repository, file)
    is_cached = isinstance(path, str)  # Else None, or an object for a known absence.
    if not is_cached:
        raise ValueError(
            f"MODEL: the weights of timm:{name} are not in the Hugging Face cache; fetch "
            f"them by `hf download {repository} {file}`, or {by_hand}"
        )
    return path
