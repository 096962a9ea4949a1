"""Which test sets an algorithm trained on: what the strict setting leaves out.

A comparison is strict (BiasBed, section 4.2) if no algorithm saw a test set's distribution in
training while others did not. Runs say so themselves by their settings; a table of scores has
a column `trained_on` or a file beside it.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jbias.report import csv_rows, workdirs

# Splits that are parts of one distribution; all others are distributions of their own.
_PARTS = frozenset({"train", "valid", "validation", "val", "test"})
# Options of a data set that make another distribution of it.
_FORMS = ("correlation", "form", "style", "condition")
# Readers that show class folders as they lie: with the same root they show the same.
_FOLDERS = frozenset(
    ("folder", "imagenet", "stylized_imagenet", "tiny_imagenet", "pacs", "deepaugment")
)


class _Kind(NamedTuple):
    """Images that differ from their source in one way."""

    drawn_by: str  # The input transform that makes them.
    called: str  # The name, reader, split or folder of a set of them, as a pattern.


_STYLISED = _Kind("stylize", r"styli[sz]ed")
_KINDS = (
    _STYLISED,
    _Kind("gaussian_noise", r"corrupted|gaussian.?noise"),
    _Kind("blur", r"corrupted|blur"),
    _Kind("", r"(?<![a-z])cae(?![a-z])"),  # Of DeepAugment, made before.
    _Kind("", r"(?<![a-z])edsr(?![a-z])"),
)

Pairs = frozenset[tuple[str, str]]  # (algorithm, data set)


def of_runs(runs: Sequence[workdirs.Run], datasets: Sequence[str]) -> Pairs:
    """Gives the pairs where some but not all algorithms trained on the data set's kind.

    A run without settings, or without settings of a test set, has no say about it.
    """
    saw, judged = set(), set()
    for run in runs:
        sources = list(_sources(run.settings))
        tests = next(iter(_listed([run.settings.get("tests")])), {})
        for name in datasets:
            test = tests.get(name)
            if isinstance(test, Mapping):
                judged.add((run.label, name))
                if any(one.shows(name, test) for one in sources):
                    saw.add((run.label, name))
    some = {name for _, name in judged - saw}
    return frozenset(pair for pair in saw if pair[1] in some)


def read(path: str, algorithms: Sequence[str], datasets: Sequence[str]) -> Pairs:
    """Reads a CSV file with the columns algorithm and dataset: one trained on the other."""
    head, lines = csv_rows.read(path)
    if not {"algorithm", "dataset"} <= set(head):
        raise ValueError(
            f"{path}:1: must name the columns algorithm and dataset, got "
            f"{', '.join(head) or 'nothing'}"
        )
    pairs = set()
    for place, row in lines:
        pair = row["algorithm"], row["dataset"]
        for name, known in zip(pair, (algorithms, datasets), strict=True):
            if name not in known:
                raise ValueError(
                    f"{place}: must be one of {', '.join(known)}, got {name!r}; correct or "
                    "remove the line"
                )
        pairs.add(pair)
    return frozenset(pairs)


class _Source(NamedTuple):
    """A set whose labels a run learned from, and what happened to its images."""

    part: Mapping[str, Any]
    kinds: frozenset[_Kind]
    clean: bool  # Whether images were shown as they are, too.

    def shows(self, name: str, test: Mapping[str, Any]) -> bool:
        if self.clean and _alike(self.part, test):
            return True
        return bool(self.kinds & _kinds_of(test, name))


def _sources(config: Mapping[str, Any]) -> Iterator[_Source]:
    """All sets of all stages; a stage has the settings that it does not name itself."""
    for changed in _listed(config.get("stages")) or [{}]:
        stage = {**config, **changed}
        train, algo = (
            next(iter(_listed([stage.get(key)])), {}) for key in ("train", "algo")
        )
        stylises = algo.get("transfer") or train.get("renders")
        inside = {_STYLISED} if stylises and algo.get("stylised", True) else set()
        for part in (train, *_listed(train.get("also"))):
            inputs = _listed(stage.get("inputs")) + _listed(part.get("inputs"))
            names = {one.get("name") for one in inputs if one.get("p", 1) != 0}
            drawn = {kind for kind in _KINDS if kind.drawn_by in names}
            clean = not any(
                one.get("name") == "stylize" and one.get("p", 1) == 1 for one in inputs
            )
            yield _Source(part, frozenset(drawn | inside | _kinds_of(part)), clean)


def _kinds_of(part: Mapping[str, Any], name: str = "") -> set[_Kind]:
    root = (part.get("root") or "") if part.get("data") in _FOLDERS else ""
    folder = os.path.basename(os.path.normpath(root))  # As it was called, not resolved.
    called = f"{name}/{part.get('data', '')}/{part.get('split', '')}/{folder}".lower()
    return {kind for kind in _KINDS if re.search(kind.called, called)}


def _alike(part: Mapping[str, Any], test: Mapping[str, Any]) -> bool:
    """Whether two sets are of one distribution, as far as their settings tell."""
    readers = {part.get("data"), test.get("data")}
    same = [len(readers) == 1 or (readers <= _FOLDERS and bool(_root(test)))]
    same += [_root(part) == _root(test), _distribution(part) == _distribution(test)]
    same += [part.get(key) == test[key] for key in _FORMS if key in test]
    return all(same)


def _root(part: Mapping[str, Any]) -> str:
    root = part.get("root")
    return os.path.realpath(root) if root else ""


def _distribution(part: Mapping[str, Any]) -> str:
    split = str(part.get("split", "")).partition("[")[0]
    return "" if split in _PARTS else split


def _listed(values: Any) -> list[Mapping[str, Any]]:
    values = values if isinstance(values, list | tuple) else []
    return [one for one in values if isinstance(one, Mapping)]
