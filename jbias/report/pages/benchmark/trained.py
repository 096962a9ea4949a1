"""Functions that find the test sets an algorithm was trained on, which --strict leaves out.

A comparison is strict (BiasBed, section 4.2) if, for each test set, either all algorithms or none
were trained on its distribution. The training data are read from the settings of runs or, for a
table of scores, from a column `trained_on` or a separate file.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jbias.report import csv_rows, workdirs

# Splits of one distribution; every other split is a separate distribution.
_COMMON_SPLITS = frozenset({"train", "valid", "validation", "val", "test"})
# Options of a data set that change its distribution.
_FORMS = ("correlation", "form", "style", "condition")
# Readers of class folders: with the same root, they read the same images.
_FOLDERS = frozenset(
    {
        "folder",
        "pacs",
        "deepaugment",
        "imagenet",
        "stylized_imagenet",
        "tiny_imagenet",
    }
)
# Kinds of modified images: (input transform that makes the images, pattern). The pattern matches
# the name, reader, split or folder of a data set of such images.
_KINDS = {
    "stylised": ("stylize", r"styli[sz]ed"),
    "noise": ("gaussian_noise", r"corrupted|gaussian.?noise"),
    "blur": ("blur", r"corrupted|blur"),
    # DeepAugment, whose images are made before training.
    "cae": ("", r"(?<![a-z])cae(?![a-z])"),
    "edsr": ("", r"(?<![a-z])edsr(?![a-z])"),
}

Pairs = frozenset[tuple[str, str]]  # (algorithm, data set)


def of_runs(runs: Sequence[workdirs.Run], datasets: Sequence[str]) -> Pairs:
    """Return the pairs (algorithm, test set) in which training images are like the test images.

    In these pairs, a run of the algorithm saw unmodified images of a training set with the
    distribution of the test set, or a kind of modified images that the test set also has. Test sets
    that all algorithms were trained on are left out. A run without settings, or without settings of
    a test set, is ignored for this test set. The algorithm is the label of the run. datasets: names
    of the test sets.
    """
    trained = set()
    known = set()
    for run in runs:
        sources = list(_sources(run.settings))
        tests = _mapping(run.settings, "tests")
        for name in datasets:
            test = tests.get(name)
            if not isinstance(test, Mapping):
                continue
            known.add((run.label, name))
            if any(
                source.shows_originals
                and _have_same_distribution(source.settings, test)
                or source.kinds & _kinds_of(test, name)
                for source in sources
            ):
                trained.add((run.label, name))
    not_by_all = {name for _, name in known - trained}
    return frozenset(pair for pair in trained if pair[1] in not_by_all)


def read(path: str, algorithms: Sequence[str], datasets: Sequence[str]) -> Pairs:
    """Return the pairs (algorithm, data set) of a CSV file with the columns algorithm and dataset.

    Raises ValueError with file and line for a name that is not in `algorithms` or `datasets`, and
    as `csv_rows.read` does. Other columns are ignored.
    """
    _, lines = csv_rows.read(path, ("algorithm", "dataset"))
    pairs = set()
    for place, row in lines:
        pair = row["algorithm"], row["dataset"]
        for name, known in zip(pair, (algorithms, datasets), strict=True):
            if name not in known:
                raise ValueError(
                    f"{place}: there are no scores of {name!r}; use one of "
                    f"{', '.join(known)}, or remove the line"
                )
        pairs.add(pair)
    return frozenset(pairs)


class _Source(NamedTuple):
    """A training set of a run, with the kinds of images that the run saw."""

    settings: Mapping[str, Any]
    kinds: set[str]  # Kinds of modified images that the run saw, keys of `_KINDS`.
    shows_originals: bool  # The run also saw unmodified images.


def _sources(config: Mapping[str, Any]) -> Iterator[_Source]:
    """Yield a `_Source` for each training set of each stage of a run.

    A stage has the set of its `train` and the sets of `train.also`. config: settings of the run.
    """
    for changed in _mappings(config, "stages") or [{}]:
        stage = {**config, **changed}
        train = _mapping(stage, "train")
        algo = _mapping(stage, "algo")
        stylises = algo.get("transfer") or train.get("renders")
        in_algorithm = set()
        if stylises and algo.get("stylised", True):
            in_algorithm = {"stylised"}
        for settings in (train, *_mappings(train, "also")):
            inputs = _mappings(stage, "inputs") + _mappings(settings, "inputs")
            transforms = [(item.get("name"), item.get("p", 1)) for item in inputs]
            active = {name for name, p in transforms if p != 0}
            by_transform = {
                kind for kind, (transform, _) in _KINDS.items() if transform in active
            }
            yield _Source(
                settings,
                by_transform | in_algorithm | _kinds_of(settings),
                shows_originals=("stylize", 1) not in transforms,
            )


def _kinds_of(settings: Mapping[str, Any], name: str = "") -> set[str]:
    """Return the kinds of modified images of a data set, keys of `_KINDS`.

    settings: settings of the data set. name: name of the data set, if known.
    """
    root = (settings.get("root") or "") if settings.get("data") in _FOLDERS else ""
    # The name in the settings: a symbolic link is not resolved.
    folder = os.path.basename(os.path.normpath(root))
    reader = settings.get("data", "")
    split = settings.get("split", "")
    names = f"{name}/{reader}/{split}/{folder}".lower()
    return {kind for kind, (_, pattern) in _KINDS.items() if re.search(pattern, names)}


def _have_same_distribution(train: Mapping[str, Any], test: Mapping[str, Any]) -> bool:
    """Return True if two data sets have the same distribution according to their settings.

    The readers must be equal, or both readers must be in `_FOLDERS` and the test set must have a
    root. Folders and splits (`_location`), and each of `_FORMS` that the test set has, must be
    equal, too.
    """
    readers = {train.get("data"), test.get("data")}
    if len(readers) > 1 and not (readers <= _FOLDERS and test.get("root")):
        return False
    has_same_form = all(train.get(key) == test[key] for key in _FORMS if key in test)
    return has_same_form and _location(train) == _location(test)


def _location(settings: Mapping[str, Any]) -> tuple[str, str]:
    """Return (folder, split) of a data set; split is "" for splits of one distribution.

    Training, validation and test splits have the same distribution. The folder is resolved; it is
    "" without a root.
    """
    root = settings.get("root")
    split = str(settings.get("split", ""))
    split = split.partition("[")[0]
    folder = os.path.realpath(root) if root else ""
    return folder, "" if split in _COMMON_SPLITS else split


def _mappings(tree: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the mappings in the list `tree[key]`; [] if the value is missing or not a list."""
    values = tree.get(key)
    values = values if isinstance(values, list | tuple) else []
    return [value for value in values if isinstance(value, Mapping)]


def _mapping(tree: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping `tree[key]`; {} if the value is missing or not a mapping."""
    value = tree.get(key)
    return value if isinstance(value, Mapping) else {}
