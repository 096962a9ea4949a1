"""Observers of measured networks, from the decisions about cue conflicts in their folders.

A folder of `jbias measure` or `jbias evaluate` has decisions/<set>/shape_bias.parquet. Images of the
published cue conflicts have the names of the published files, as in tables of decisions; images of
other sets are numbered.
"""

import collections
import dataclasses
import glob
import hashlib
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from jbias import errors
from jbias.answers import observers, stimulus_names, tables
from jbias.data import tables as data_tables
from jbias.data.sets import geirhos
from jbias.evals import decision_files
from jbias.measures import decisions
from jbias.report import network_records, workdirs

_MEASURE = "shape_bias"
_NAMED = ("texture", "shape_exemplar", "texture_exemplar")  # Told by names of files.
_FACTORS = ("model", "task", "prompt")


def split_paths(paths: Sequence[str]) -> tuple[list[pathlib.Path], list[str]]:
    """Return (folders of measured networks, other paths) of the paths of --decisions.

    paths: folders of measured networks, folders that contain them, or tables of decisions and
    folders of these; or globs.
    """
    folders: dict[pathlib.Path, None] = {}
    other_paths = []
    for path in paths:
        matches = [pathlib.Path(x) for x in sorted(glob.glob(path))]
        matches = [x for x in matches if x.is_dir()] or [pathlib.Path(path)]
        measured = [x for x in matches if _is_measured(x)]
        measured += [
            child
            for folder in matches
            if folder.is_dir() and not _is_measured(folder)
            for child in sorted(folder.iterdir())
            if _is_measured(child)
        ]
        folders.update(dict.fromkeys(measured))
        if not measured:
            other_paths.append(path)
    return [*folders], other_paths


def _is_measured(folder: pathlib.Path) -> bool:
    """Return True for the folder of a measured network."""
    return (folder / "config.json").is_file() and (folder / "measures").is_dir()


def read(folders: Sequence[pathlib.Path]) -> list[observers.Observer]:
    """Return the observers of measured networks, with a name of their own each.

    Networks of one model with several prompts are named "model, prompt". ValueError for a folder
    without decisions about cue conflicts, and for two networks of one name.
    """
    read_observers = [observer for folder in folders for observer in _read(folder)]
    named = tables.name_prompts(read_observers)
    counts = collections.Counter((x.name, x.dataset) for x in named)
    unique = [
        dataclasses.replace(x, name=pathlib.Path(x.path).name)
        if counts[x.name, x.dataset] > 1
        else x
        for x in named
    ]
    check_unique(unique)
    return unique


def check_unique(read_observers: Sequence[observers.Observer]) -> None:
    """Raise ValueError if two observers of a set have one name."""
    first_path: dict[tuple[str, str], str] = {}
    for observer in read_observers:
        key = observer.name, observer.dataset
        if key in first_path:
            raise ValueError(
                f"{observer.path}: observers of the set {observer.dataset} must have different "
                f"names, got {observer.name!r} again after {first_path[key]}; leave one of them out"
            )
        first_path[key] = observer.path


def _read(folder: pathlib.Path) -> list[observers.Observer]:
    """Return the observers of a folder, one for each set of cue conflicts."""
    config = workdirs.read_json(folder / "config.json")
    read_observers = []
    for key, description in network_records.read_measures(str(folder)).items():
        path = folder / "decisions" / key.dataset / f"{key.measure}.parquet"
        if key.measure == _MEASURE and path.exists():
            observer = _observer(folder, path, key.dataset, description=description)
            factors = config.get("factors", {})
            factors = {name: factors.get(name, "") for name in _FACTORS} | {"group": ""}
            factors["model"] = factors["model"] or folder.name
            name = factors["model"] if factors["prompt"] else folder.name
            read_observers.append(
                dataclasses.replace(observer, name=name, factors=factors)
            )
    must = (
        f"have decisions/SET/{_MEASURE}.parquet, as `jbias measure --stimuli` writes it"
    )
    errors.check(bool(read_observers), str(folder), must, errors.Words("none"))
    return read_observers


def _observer(
    folder: pathlib.Path,
    path: pathlib.Path,
    dataset: str,
    *,
    description: Mapping,
) -> observers.Observer:
    """Return the observer of a file of decisions; description: of its measure."""
    by_condition = decision_files.read_conditions(path)
    decided = next(iter(by_condition.values()))
    names = tuple(description["classes"])
    is_published = {*names} <= {*stimulus_names.CLASSES16}
    classes = stimulus_names.CLASSES16 if is_published else names
    ids = np.array([classes.index(name) for name in names] + [observers.NO_ANSWER])
    index = np.asarray(decided.columns.get("index", np.arange(len(decided.prediction))))
    label, texture = (ids[np.asarray(decided.columns[x])] for x in ("label", "texture"))
    images = [f"{number:06d}" for number in index.tolist()]
    if description.get("dataset", {}).get("n") == len(data_tables.cue_conflicts()):
        images = _published_names(decided, index, texture=texture, classes=classes)
    order = sorted(range(len(images)), key=images.__getitem__)
    return observers.Observer(
        name=folder.name,
        dataset=dataset,
        classes=classes,
        images=tuple(images[i] for i in order),
        label=label[order].astype(np.int32),
        texture=texture[order].astype(np.int32),
        decision=ids[np.asarray(decided.prediction)][order].astype(np.int32),
        path=str(folder),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )


def _published_names(
    decided: decisions.Decisions,
    index: np.ndarray,
    *,
    texture: np.ndarray,
    classes: tuple[str, ...],
) -> list[str]:
    """Return the names of images: published names if these are the cue conflicts, else numbers.

    The texture's class, and the pictures that images share, must be those of the names. texture:
    class ids of `classes`.
    """
    published = data_tables.cue_conflicts()
    is_equal = {*_NAMED} <= {*decided.columns} and classes == geirhos.CLASSES
    if is_equal:
        expected = geirhos.cues("cue-conflict", published, geirhos.CLASSES)
        columns = {**decided.columns, "texture": texture}
        is_equal = all(np.array_equal(columns[x], expected[x][index]) for x in _NAMED)
    if not is_equal:
        return [f"{number:06d}" for number in index.tolist()]
    return [published[i] for i in index.tolist()]
