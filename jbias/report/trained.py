"""Which test sets an algorithm trained on: what the strict setting leaves out.

A comparison is strict (BiasBed, section 4.2) if no algorithm saw a test set's distribution in
training while others did not. Runs say so themselves by their settings; a table of scores has
a column `trained_on` or a file beside it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jbias.report import csv_rows, workdirs

# Splits that are parts of one distribution; all others are distributions of their own.
_PARTS = frozenset({"train", "valid", "validation", "val", "test"})
# Options of a data set that make another distribution of it.
_FORMS = ("correlation", "form", "style", "condition")
# What an input transform draws, by the split or name of the test set that shows it.
_DRAWS: Mapping[str, tuple[str, ...]] = {
    "stylize": ("stylized", "stylised"),
    "gaussian_noise": ("corrupted", "gaussian_noise"),
    "blur": ("corrupted", "blur"),
}

Pairs = frozenset[tuple[str, str]]  # (algorithm, data set)


def of_runs(runs: Sequence[workdirs.Run], datasets: Sequence[str]) -> Pairs:
    """Gives the pairs where some but not all algorithms trained on the data set's kind."""
    found = set()
    for run in runs:
        config = run.settings
        tests = config.get("tests") or {}
        for name in datasets:
            test = tests.get(name)
            if isinstance(test, Mapping) and _saw(config, name, test):
                found.add((run.label, name))
    labels = {run.label for run in runs}
    shared = {d for d in datasets if all((label, d) in found for label in labels)}
    return frozenset(pair for pair in found if pair[1] not in shared)


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


def _saw(config: Mapping[str, Any], name: str, test: Mapping[str, Any]) -> bool:
    if any(_alike(part, test) for part in _sources(config)):
        return True
    shown = f"{name}/{test.get('split', '')}".lower()
    used = {one.get("name") for one in _listed(config.get("inputs"))}
    return any(word in shown for of in used for word in _DRAWS.get(of, ()))


def _sources(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All sets whose labels a run learned from, in all its stages."""
    for stage in (config, *_listed(config.get("stages"))):
        train = stage.get("train")
        if isinstance(train, Mapping):
            yield train
            yield from _listed(train.get("also"))


def _alike(part: Mapping[str, Any], test: Mapping[str, Any]) -> bool:
    same = [part.get(key) == test.get(key) for key in ("data", "root")]
    same += [part.get(key) == test[key] for key in _FORMS if key in test]
    return all(same) and _distribution(part) == _distribution(test)


def _distribution(part: Mapping[str, Any]) -> str:
    split = str(part.get("split", "")).partition("[")[0]
    return "" if split in _PARTS else split


def _listed(values: Any) -> list[Mapping[str, Any]]:
    values = values if isinstance(values, list | tuple) else []
    return [one for one in values if isinstance(one, Mapping)]
