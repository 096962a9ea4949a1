"""Which test sets an algorithm trained on: what the strict setting leaves out.

A comparison is strict (BiasBed, section 4.2) if no algorithm saw a test set's distribution in
training while others did not. Runs say so themselves by their settings; a table of scores has
a column `trained_on` or a file beside it.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jbias.report import csv_rows, workdirs

# Splits that are parts of one distribution; all others are distributions of their own.
_PARTS = frozenset({"train", "valid", "validation", "val", "test"})
# Options of a data set that make another distribution of it.
_FORMS = ("correlation", "form", "style", "condition")
# Readers that show class folders as they lie: with the same root they show the same.
_FOLDERS = frozenset({"folder", "pacs", "deepaugment"})
_FOLDERS |= {"imagenet", "stylized_imagenet", "tiny_imagenet"}
# Images that differ from their source in one way: the input transform that makes them, and
# the name, reader, split or folder of a set of them, as a pattern.
_KINDS = {
    "stylised": ("stylize", r"styli[sz]ed"),
    "noise": ("gaussian_noise", r"corrupted|gaussian.?noise"),
    "blur": ("blur", r"corrupted|blur"),
    "cae": ("", r"(?<![a-z])cae(?![a-z])"),  # Of DeepAugment, made before.
    "edsr": ("", r"(?<![a-z])edsr(?![a-z])"),
}

Pairs = frozenset[tuple[str, str]]  # (algorithm, data set)


def of_runs(runs: Sequence[workdirs.Run], datasets: Sequence[str]) -> Pairs:
    """Gives the pairs where some but not all algorithms trained on the data set's kind.

    A run without settings, or without settings of a test set, has no say about it.
    """
    saw, judged = set(), set()
    for run in runs:
        sources, tests = list(_sources(run.settings)), _part(run.settings, "tests")
        for name in datasets:
            if isinstance(test := tests.get(name), Mapping):
                judged.add((run.label, name))
                if any(
                    clean and _alike(part, test) or kinds & _kinds_of(test, name)
                    for part, kinds, clean in sources
                ):
                    saw.add((run.label, name))
    some = {name for _, name in judged - saw}
    return frozenset(pair for pair in saw if pair[1] in some)


def read(path: str, algorithms: Sequence[str], datasets: Sequence[str]) -> Pairs:
    """Reads a CSV file with the columns algorithm and dataset: one trained on the other."""
    _, lines = csv_rows.read(path, ("algorithm", "dataset"))
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


def _sources(config: Mapping[str, Any]) -> Iterator[tuple[Mapping, set[str], bool]]:
    """All sets of all stages whose labels a run learned from.

    With the kinds of their images, and whether these were shown as they are, too. A stage
    has the settings that it does not name itself.
    """
    for changed in _parts(config, "stages") or [{}]:
        stage = {**config, **changed}
        train, algo = _part(stage, "train"), _part(stage, "algo")
        stylises = algo.get("transfer") or train.get("renders")
        inside = {"stylised"} if stylises and algo.get("stylised", True) else set()
        for part in (train, *_parts(train, "also")):
            inputs = _parts(stage, "inputs") + _parts(part, "inputs")
            acts = [(one.get("name"), one.get("p", 1)) for one in inputs]
            names = {name for name, p in acts if p != 0}
            drawn = {kind for kind, (made_by, _) in _KINDS.items() if made_by in names}
            clean = ("stylize", 1) not in acts
            yield part, drawn | inside | _kinds_of(part), clean


def _kinds_of(part: Mapping[str, Any], name: str = "") -> set[str]:
    root = (part.get("root") or "") if part.get("data") in _FOLDERS else ""
    folder = os.path.basename(os.path.normpath(root))  # As it was called, not resolved.
    called = f"{name}/{part.get('data', '')}/{part.get('split', '')}/{folder}".lower()
    return {kind for kind, (_, pattern) in _KINDS.items() if re.search(pattern, called)}


def _alike(part: Mapping[str, Any], test: Mapping[str, Any]) -> bool:
    """Whether two sets are of one distribution, as far as their settings tell."""
    readers = {part.get("data"), test.get("data")}
    if len(readers) > 1 and not (readers <= _FOLDERS and test.get("root")):
        return False
    same = all(part.get(key) == test[key] for key in _FORMS if key in test)
    return same and _place(part) == _place(test)


def _place(part: Mapping[str, Any]) -> tuple[str, str]:
    """Where a set lies, and which of the distributions there it is."""
    root, split = part.get("root"), str(part.get("split", "")).partition("[")[0]
    return os.path.realpath(root) if root else "", "" if split in _PARTS else split


def _parts(tree: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The mappings of a list; none where it is something else."""
    values = tree.get(key)
    values = values if isinstance(values, list | tuple) else []
    return [one for one in values if isinstance(one, Mapping)]


def _part(tree: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = tree.get(key)
    return value if isinstance(value, Mapping) else {}
