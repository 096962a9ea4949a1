"""Search for runs that have the same results, such as copies of one run."""

import collections
import contextlib
import functools
import hashlib
import itertools
import pathlib
from collections.abc import Iterator

import numpy as np
import pandas as pd

from jbias.evals import decision_files
from jbias.runs import results

_SEED_COLUMNS = ["label", "workdir", "seed"]
_EVALUATION_COLUMNS = ["stage", "step", "dataset", "condition", "metric"]
_SAME_SCORES = "have the same accuracies and losses in every evaluation"


def twins_of_runs(frame: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Yield (first, second, reason) for pairs of algorithms, or of seeds, with the same results.

    Results are the same if accuracies and losses are equal in all evaluations, and stored
    decisions are equal, too. Two algorithms must agree in every shared seed. Seeds without an
    accuracy are left out.

    first, second: the names of two algorithms, ERM first, or "ERM seed 0" and "seed 1".
    reason: a phrase to follow the two names, such as "have the same accuracies and losses in every
    evaluation".
    frame: records of evaluations with a column `label`, the name of the algorithm; stored
    decisions are read from the folders in its column `workdir`.
    """
    frame = frame[[*_SEED_COLUMNS, *_EVALUATION_COLUMNS, "value"]]
    is_missing = frame["value"].isna()
    if is_missing.any():
        frame = frame[~is_missing]
    digest = _digests(frame)
    metric = frame["metric"]
    seed_numbers = results.number_rows(frame, _SEED_COLUMNS)
    losses = [name for name in metric.unique() if name.startswith("loss")]
    kinds = {"accuracy": metric == "accuracy", "loss": metric.isin(losses)}
    # Sums of digests do not depend on the order of the rows.
    sums = pd.DataFrame(
        {
            kind: pd.Series(np.where(is_kind, digest, 0))
            .groupby(seed_numbers, sort=False)
            .sum()
            for kind, is_kind in kinds.items()
        }
    )
    seed_names = frame[_SEED_COLUMNS].take(results.first_rows(frame, _SEED_COLUMNS))
    sums.index = pd.MultiIndex.from_frame(seed_names)
    is_doubled = (sums["accuracy"] != 0) & sums.duplicated("accuracy", keep=False)
    reasons_by_names = collections.defaultdict(list)
    for _, group in sums[is_doubled].groupby("accuracy", sort=False):
        for first, second in itertools.combinations(group["loss"].items(), 2):
            (first_key, first_loss), (second_key, second_loss) = first, second
            names = _twin_names(first_key, second_key)
            if names and first_loss == second_loss:
                reason = _reason_of_twins(first_key, second_key)
                if reason:
                    reasons_by_names[tuple(names)].append(reason)
    seeds = sums.reset_index().groupby("label", observed=True)["seed"].agg(set)
    for (first, second), reasons in reasons_by_names.items():
        if first not in seeds or len(reasons) == len(seeds[first] & seeds[second]):
            # For seeds without stored decisions, only accuracies and losses are compared.
            yield first, second, _SAME_SCORES if _SAME_SCORES in reasons else reasons[0]


def _digests(frame: pd.DataFrame) -> np.ndarray:
    """Return a uint64 digest per row of the stage, step, data set, condition, metric and value."""
    digests = pd.util.hash_array(results.number_rows(frame, _EVALUATION_COLUMNS))
    digests += pd.util.hash_array(frame["value"].to_numpy())
    return pd.util.hash_array(digests)


def _twin_names(first: tuple, second: tuple) -> list[str]:
    """Return [first name, second name] of two possible twins; [] if the two are not candidates.

    first, second: (label, workdir, seed). Candidates are two seeds of one algorithm, or the same
    seed of two algorithms; ERM is named first.
    """
    first_label, _, first_seed = first
    second_label, _, second_seed = second
    if first_label == second_label:
        return [f"{first_label} seed {first_seed}", f"seed {second_seed}"]
    if first_seed != second_seed:
        return []
    return sorted((first_label, second_label), key=lambda name: name.lower() != "erm")


def _reason_of_twins(first: tuple, second: tuple) -> str:
    """Return the phrase on equal results of two seeds; "" if their stored decisions differ.

    If no evaluation has stored decisions of both seeds, the phrase is `_SAME_SCORES`. Otherwise the
    phrase is about decisions. first, second: (label, workdir, seed).
    """
    (_, first_workdir, first_seed), (_, second_workdir, second_seed) = first, second
    first_digests = _decision_digests(first_workdir).get(first_seed, {})
    second_digests = _decision_digests(second_workdir).get(second_seed, {})
    shared = first_digests.keys() & second_digests.keys()
    if not shared:
        return _SAME_SCORES
    if any(first_digests[name] != second_digests[name] for name in shared):
        return ""
    return "made the same decisions on every image of every data set"


@functools.lru_cache(maxsize=1000)
def _decision_digests(workdir: str) -> dict[int, dict[str, bytes]]:
    """Return SHA-256 digests of stored decisions, by seed, then by path below decisions/.

    A path is such as "test/1200.parquet". Damaged files are skipped; {} if no decisions were
    stored.
    """
    folder = pathlib.Path(workdir) / "decisions"
    digests = collections.defaultdict(dict)
    for path in folder.glob("*/*.parquet"):
        # The check of files reports damaged files.
        with contextlib.suppress(ValueError, OSError):
            for seed, stored in decision_files.read(path).items():
                digest = hashlib.sha256(stored.prediction.tobytes()).digest()
                digests[seed][f"{path.parent.name}/{path.name}"] = digest
    return digests
