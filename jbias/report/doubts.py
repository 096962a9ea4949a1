"""Runs that are the same run twice, and scores that guessing would give."""

import collections
import contextlib
import functools
import hashlib
import itertools
import pathlib
import re
from collections.abc import Iterator

import pandas as pd

from jbias.evals import decisions
from jbias.report import evidence as evidence_lib
from jbias.report import study as study_lib
from jbias.report import tables

_UNIT = ["label", "workdir", "seed"]
_SAME = ["stage", "step", "dataset", "condition", "metric", "value"]
_TOLD = 6  # Cells at chance; all are in results.json.


def words(
    study: study_lib.Study, evidence: evidence_lib.Evidence | None
) -> Iterator[str]:
    """Says which runs may be one, and of which scores no claim follows."""
    found = twins(study)
    for one, other, how in found:
        ask = "is one a copy" if other.startswith("seed ") else f"did {other} ever act"
        yield f"{one} and {other} {how}: {ask}?"
    for pair in evidence.twins if evidence else ():
        if not any(set(pair) == set(names) for *names, _ in found):
            yield f"{' and '.join(pair)} have the same scores everywhere: are they one?"
    guessed = [f"{one['algorithm']} on {one['dataset']}" for one in at_chance(study)]
    if guessed:
        more = [f"{len(guessed) - _TOLD} more"] if len(guessed) > _TOLD else []
        yield (
            f"Accuracy is at chance, so no claim follows from it, for "
            f"{tables.join([*guessed[:_TOLD], *more])}: its 95 % interval over images holds "
            "what guessing gives, one over the number of classes."
        )


@functools.lru_cache(maxsize=1)
def twins(study: study_lib.Study) -> tuple[tuple[str, str, str], ...]:
    """Two algorithms, with each seed that both have, or seeds of one that did the same.

    That is the same accuracies and losses in all evaluations, and the same decisions where
    these are stored.
    """
    if study.frame is None:
        return ()
    frame = study.frame[study.frame["value"].notna()]
    metric = frame["metric"].astype(str)
    digest = pd.util.hash_pandas_object(frame[_SAME], index=False)
    units = frame[_UNIT].assign(
        right=digest.where(metric == "accuracy", 0),
        loss=digest.where(metric.str.startswith("loss"), 0),
    )
    sums = units.groupby(_UNIT, observed=True, sort=False)[["right", "loss"]].sum()
    found = collections.Counter()
    for _, alike in sums[sums["right"] != 0].groupby("right", sort=False):
        for one, other in itertools.combinations(alike["loss"].items(), 2):
            names = _names(one[0], other[0])
            if names and (how := _alike(*one, *other)):
                found[(*names, how)] += 1
    seeds = sums.reset_index().groupby("label", observed=True)["seed"].agg(set)
    return tuple(
        told
        for told, count in found.items()
        if told[0] not in seeds or count == len(seeds[told[0]] & seeds[told[1]])
    )


def _names(one: tuple, other: tuple) -> list[str]:
    if one[0] == other[0]:
        return [f"{one[0]} seed {one[2]}", f"seed {other[2]}"]
    both = sorted((one[0], other[0]), key=lambda name: name.lower() != "erm")
    return both if one[2] == other[2] else []


def _alike(one: tuple, loss, other: tuple, other_loss) -> str:
    if loss != other_loss:
        return ""
    (_, folder, seed), (_, other_folder, other_seed) = one, other
    first = _decided(folder).get(seed, {})
    second = _decided(other_folder).get(other_seed, {})
    common = first.keys() & second.keys()
    if not common:
        return "have the same accuracies and losses in every evaluation"
    same = "gave the same decisions on every image of every set"
    return same if all(first[name] == second[name] for name in common) else ""


@functools.lru_cache(maxsize=1000)
def _decided(workdir: str) -> dict[int, dict[str, bytes]]:
    """Digests of each seed's stored decisions by file; without those that are damaged."""
    folder, found = pathlib.Path(workdir) / "decisions", collections.defaultdict(dict)
    for path in folder.glob("*/*.parquet"):
        with contextlib.suppress(ValueError, OSError):  # Told where files are checked.
            for seed, one in decisions.read(path).items():
                digest = hashlib.sha256(one.prediction.tobytes()).digest()
                found[seed][f"{path.parent.name}/{path.name}"] = digest
    return found


@functools.lru_cache(maxsize=1)
def at_chance(study: study_lib.Study) -> tuple[dict, ...]:
    """The cells whose mean accuracy its images do not tell from guessing.

    That is where Wilson's interval of it holds 1 / classes; classes are those among which
    the networks decide, where all runs say so.
    """
    return tuple(_guessed(study)) if study.metric == "accuracy" else ()


def _guessed(study: study_lib.Study) -> Iterator[dict]:
    known: dict[str, set] = {}
    for run in study.runs:
        for name, told in (run.provenance.get("data") or {}).items():
            rule = told.get("decision") if isinstance(told, dict) else None
            among = re.search(r"over (?:the network's )?([\d,]+) classes", str(rule))
            known.setdefault(name, set()).add(among and int(among[1].replace(",", "")))
    cells = study.values.groupby(["algorithm", "dataset"], observed=True, sort=False)
    for (algorithm, dataset), rows in cells:
        classes, n, mean = known.get(dataset, ()), set(rows["n"]), rows["value"].mean()
        if (len(classes), len(n)) != (1, 1) or pd.isna([mean, *classes, *n]).any():
            continue
        (among,), (images,) = classes, map(int, n)
        low, high = decisions.wilson_interval(round(mean * images), images)
        if low <= 1 / among <= high:
            names = {"algorithm": str(algorithm), "dataset": str(dataset)}
            yield {**names, "accuracy": mean, "classes": among, "n": images}
