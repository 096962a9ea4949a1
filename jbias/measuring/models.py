"""Functions that open the MODEL of `jbias measure` and choose the classes of its outputs."""

import argparse
import glob
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jbias import timm_networks
from jbias.data import class_maps
from jbias.evals import described_preprocessing, networks, predictors
from jbias.runtime import console, hub, model_paths, timm_names

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
    is_timm = timm_names.is_timm(text)
    if settings.random_weights and not is_timm:
        raise ValueError(f"--random-weights: is for timm:NAME, got {text!r}")
    if is_timm:
        module, name = timm_networks.make(
            text, "MODEL", is_random=settings.random_weights
        )
        return _of_object(module, settings, {"name": name, **options})
    if model_paths.is_code(text):
        reference = f"{text}:predict" if text.endswith(".py") else text
        loaded = predictors.load_model(reference, "MODEL")
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
    model_paths.check_model(text)
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
