"""Meanings of the column names of tables of scores: algorithm, data set, run, score and so on.

A name is any label of a column of a pandas frame; its text is compared in lower case, with
"_" between words. `known_names.json` has common names of algorithms and data sets, which are used
to decide whether rows or columns are algorithms if the headers leave this open.
"""

import functools
import json
import re
from collections.abc import Sequence
from importlib import resources
from typing import Any, Literal

from jbias.stats.reading import score_cells

ROLES = ("algorithm", "dataset", "run", "score", "deviation", "trained_on", "ignore")
NAMES = {  # Synonyms of each role, in lower case with "_" between words.
    "algorithm": (
        "algorithm",
        "algorithms",
        "algo",
        "method",
        "methods",
        "model",
        "models",
        "approach",
        "approaches",
        "classifier",
        "network",
        "net",
        "backbone",
        "technique",
        "strategy",
        "defense",
        "defence",
        "learner",
        "architecture",
        "arch",
    ),
    "dataset": (
        "dataset",
        "datasets",
        "data_set",
        "data_sets",
        "data",
        "test_set",
        "test_sets",
        "task",
        "tasks",
        "benchmark",
        "benchmarks",
        "domain",
        "domains",
        "environment",
        "env",
        "target",
        "test_domain",
        "test_env",
        "testset",
        "eval_set",
        "corruption",
        "target_domain",
        "test_dataset",
        "eval_dataset",
        "evaluated_on",
        "tested_on",
    ),
    "run": (
        "run",
        "runs",
        "seed",
        "seeds",
        "fold",
        "folds",
        "trial",
        "trials",
        "repeat",
        "repeats",
        "repetition",
        "replicate",
        "replication",
        "run_id",
        "seed_id",
        "rep",
        "random_seed",
        "rng_seed",
        "trial_seed",
    ),
    "deviation": (
        "std",
        "stdev",
        "std_dev",
        "stddev",
        "sd",
        "sem",
        "se",
        "stderr",
        "std_err",
        "standard_deviation",
        "standard_error",
        "deviation",
        "±",
        "+_",
        "ci",
        "ci95",
        "error_bar",
    ),
    "trained_on": ("trained_on",),
}
STATISTICS = {  # Names of statistics over runs, by kind.
    "mean": ("mean", "avg", "average"),
    "deviation": ("std", "stdev", "std_dev", "stddev", "sd", "standard_deviation", "±"),
    "error": (
        "sem",
        "se",
        "stderr",
        "std_err",
        "std_error",
        "standard_error",
        "ci",
        "ci95",
        "95_ci",
    ),
    "count": ("count", "n", "size", "nunique", "num"),
    "other": ("min", "max", "median", "var", "variance", "sum", "amin", "amax"),
}
_KIND_OF_STATISTIC = {
    word: kind for kind, words in STATISTICS.items() for word in words
}
_NO_PREFIXES = ("se", "n", "num", "size", "ci")  # SE-ResNet, N-Caltech.
_MARGINS = ("all", "total", "average", "mean", "avg", "overall")
_METRICS = frozenset(
    (
        "score",
        "scores",
        "value",
        "values",
        "acc",
        "accuracy",
        "accuracies",
        "top1",
        "top5",
        "acc1",
        "acc5",
        "acc_1",
        "acc_5",
        "accuracy_top1",
        "metric",
        "result",
        "results",
        "performance",
        "perf",
        "f1",
        "f1_score",
        "auc",
        "auroc",
        "error",
        "err",
        "loss",
        "nll",
        "ece",
        "mean",
        "mean_acc",
        "mean_accuracy",
        "precision",
        "recall",
        "map",
        "mce",
        "error_rate",
        "balanced_accuracy",
        "bacc",
        "worst_group_accuracy",
        "shape_bias",
    )
)
_METRIC_EXTRAS = frozenset(
    (
        "test",
        "val",
        "valid",
        "validation",
        "train",
        "eval",
        "ood",
        "id",
        "iid",
        "final",
        "best",
        "last",
        "avg",
        "average",
        "mean",
        "worst",
        "group",
        "top",
        "in",
        "out",
        "percent",
        "pct",
    )
)
_BOOKKEEPING = frozenset(
    (
        "id",
        "index",
        "idx",
        "epoch",
        "epochs",
        "step",
        "steps",
        "iteration",
        "iterations",
        "iter",
        "lr",
        "learning_rate",
        "rate",
        "weight_decay",
        "wd",
        "batch_size",
        "batch",
        "params",
        "parameters",
        "n_params",
        "num_params",
        "flops",
        "gflops",
        "macs",
        "gmacs",
        "runtime",
        "time",
        "duration",
        "timestamp",
        "created",
        "year",
        "date",
        "n",
        "count",
        "num_images",
        "n_images",
        "images",
        "rank",
        "avg_rank",
        "average_rank",
        "mean_rank",
        "momentum",
        "dropout",
        "gpu",
        "gpus",
        "hours",
        "gpu_hours",
        "params_m",
        "flops_g",
        "size",
        "image_size",
        "res",
        "resolution",
        "support",
        "nr",
        "no",
        "num",
        "line",
        "version",
        "commit",
        "job_id",
        "walltime",
        "p_value",
        "pvalue",
        "memory",
        "throughput",
        "width",
        "depth",
        "_step",
        "_runtime",
    )
)
INDEX = re.compile(r"unnamed(:.*)?|level_[0-9]+|\(no name\)")
_RUN = re.compile(
    r"(?:(?:seed|run|fold|trial|rep|repeat)[ _#-]*)([0-9]+)", re.IGNORECASE
)
_TRAINING = ("train", "training", "val", "valid", "validation", "dev")
_SETTING = re.compile(
    r"(?:config|params|hparams|hyperparameters|summary)[./]", re.IGNORECASE
)
RUN_NAME = re.compile(  # A name with its run at the end, such as ERM_seed0.
    r"(.+?)[ _/.,;:-]*\(?((?:seed|run|fold|trial|rep)[ _=#:-]*[0-9]+)\)?", re.IGNORECASE
)
WHOLE = re.compile(r"[0-9]{1,6}(?:\.0)?")
_KNOWN_NAMES = resources.files("jbias.stats.reading") / "known_names.json"


def meaning(name: Any) -> str:
    """Return the role of a column from its name: one of `ROLES`, or "" if unknown.

    The role is never "ignore", which only the user can choose. Prefixes of settings (config.,
    params/) and words such as name or id are ignored: "algorithm_name" and "algo.name" are
    "algorithm".
    """
    name = _SETTING.sub("", str(name).strip())
    word = word_of(name)
    if not word:
        return ""
    for role, names in NAMES.items():
        if word in names:
            return role
    if is_metric(name):
        return "score"
    words = [
        part for part in word.split("_") if part not in ("name", "names", "id", "label")
    ]
    joined = "_".join(words)
    for role, names in NAMES.items():
        if joined in names and role != "deviation":
            return role
    last = re.split(r"[._/]", str(name).strip().lower())[-1]
    if "." in str(name) and last == "name":  # algo.name of a config.
        return meaning(str(name).strip()[: -len("name") - 1])
    return ""


def is_metric(name: Any) -> bool:
    """Return True if a name denotes a metric, such as accuracy, test_acc or top1_err.

    Words such as test, val, avg and top are removed first; the remaining name must be a metric, or
    consist of metrics only. Upper case is ignored.
    """
    word = re.sub(r"@", "", word_of(str(name).replace("/", " ")))
    word = re.sub(r"(?<![^_])top_(?=\d)", "top", word)  # Top-1 accuracy.
    if word in _METRICS:
        return True
    words = [part for part in word.split("_") if part not in _METRIC_EXTRAS]
    return "_".join(words) in _METRICS or bool(words) and set(words) <= _METRICS


def core_of_metric(name: Any) -> str:
    """Return the name of a metric without words such as test, OOD or average.

    The result is in lower case, with "_" between words: "OOD acc" is "accuracy". "" if no word
    remains.
    """
    words = word_of(str(name).replace("/", " ")).split("_")
    core = [word for word in words if word not in _METRIC_EXTRAS]
    return "_".join("accuracy" if word == "acc" else word for word in core)


def is_of_training(name: Any) -> bool:
    """Return True if a name denotes a loss, or a score of training or validation, such as val_acc.

    Such names have the word loss, or the first word train, training, val, valid, validation or
    dev. Upper case is ignored.
    """
    words = word_of(str(name).replace("/", " ")).split("_")
    return words[0] in _TRAINING or "loss" in words


def is_setting(name: Any) -> bool:
    """Return True if a name denotes a setting of a run, such as config.lr of W&B."""
    return bool(_SETTING.match(str(name).strip()))


def is_average(name: Any) -> bool:
    """Return True if a name is mean, avg, average or overall, without other words."""
    return word_of(name) in ("mean", "avg", "average", "overall")


def statistic(name: Any) -> str:
    """Return the kind of a statistic from its name: a key of `STATISTICS`, or "" for other names.

    A percentile, such as 25%, is "other".
    """
    if re.fullmatch(r"[0-9.]+\s*%", str(name).strip()):
        return "other"  # A percentile, as of pandas' describe().
    return _KIND_OF_STATISTIC.get(word_of(name), "")


def split_statistic(name: Any) -> tuple[str, str]:
    """Return (name without the statistic at its start or end, statistic).

    "std_PACS" is ("PACS", "std"), "std" is ("", "std") and "PACS" is ("PACS", ""). A statistic
    after a metric is also removed: "acc_std_PACS" is ("acc_PACS", "std"). The words se, n, num,
    size and ci at the start are part of the name: "SE-ResNet" is ("SE-ResNet", "").
    """
    text = str(name).strip()
    if statistic(text):
        return "", text
    match = re.fullmatch(r"(?P<word>[^\W_]+)[\s_\-./:]+(?P<base>.+)", text)
    is_name = bool(match) and match["word"].lower() in _NO_PREFIXES
    if match and statistic(match["word"]) and not is_name:
        return match["base"], match["word"]
    match = re.fullmatch(r"(?P<base>.+?)[\s_\-./:(\[]+(?P<word>[^\W_]+)[)\]]?", text)
    if match and statistic(match["word"]):
        return match["base"], match["word"]
    words = re.split(r"[\s_/]+", text)
    for i in range(1, len(words) - 1):  # acc_std_PACS
        if statistic(words[i]) and is_metric("_".join(words[:i])):
            return "_".join(words[:i] + words[i + 1 :]), words[i]
    return text, ""


def split_metric(name: Any) -> tuple[str, str]:
    """Return (metric at the start or end of a name, remaining name).

    "test_acc_PACS" is ("test_acc", "PACS"), and "PACS" is ("", "PACS"). The remaining name is
    not empty: "accuracy" alone is ("", "accuracy").
    """
    words = re.split(r"([\s_/]+)", str(name).strip())
    for end in range(len(words) - 2, 0, -2):
        if is_metric("".join(words[:end])):
            return "".join(words[:end]), "".join(words[end + 1 :])
    for start in range(2, len(words), 2):
        if is_metric("".join(words[start:])):
            return "".join(words[start:]), "".join(words[: start - 1])
    return "", str(name)


def is_measure(name: Any) -> bool:
    """Return True if a name is a metric (acc), a statistic (std), or both (acc_std)."""
    base, word = split_statistic(name)
    return bool(word) and not base or is_metric(base)


def is_standard_error(name: Any) -> bool:
    """Return True if a name starts or ends with the name of a standard error or of an interval.

    Such names are sem, se, stderr, ci and so on (`STATISTICS`); at the start, se and ci do not
    count. The text after a comma is ignored. True for acc_stderr,none and sem_PACS, false for
    SE-ResNet, a network.
    """
    word = word_of(re.sub(r"[()\[\]]", " ", str(name).partition(",")[0]))
    errors = STATISTICS["error"]
    return any(word == error or word.endswith(f"_{error}") for error in errors) or any(
        word.startswith(f"{error}_") for error in errors if error not in _NO_PREFIXES
    )


def is_margin(name: Any) -> bool:
    """Return True if a name is all, total, average, mean, avg or overall, without other words."""
    return word_of(name) in _MARGINS


def word_of(name: Any) -> str:
    """Return a name in lower case, with "_" between words, without units, arrows and footnotes."""
    text = score_cells.bare_name(str(name))
    text = re.sub(r"\((?:%|↑|↓|in %|m|g|k)\)|\[(?:%|↑|↓)\]|[%↑↓#]", " ", text.lower())
    return re.sub(r"[\s_\-.]+", "_", text.strip()).strip("_")


def is_bookkeeping(name: str) -> bool:
    """Return True if a name denotes a count, setting or id, such as epoch, lr or run_id.

    The whole name must be in `_BOOKKEEPING`, be a name such as img_size, or end in _id.
    """
    word = word_of(name)
    return (
        word in _BOOKKEEPING
        or f"_{word}" in _BOOKKEEPING
        or bool(
            re.fullmatch(r"(\w+_)?id|param_count|img_size|input_size|crop_pct", word)
        )
    )


def is_difference(name: str) -> bool:
    """Return True if a name is Δ, delta, diff, difference, gain, gap or improvement.

    Upper case, units and arrows are ignored (`word_of`).
    """
    return word_of(name) in (
        "δ",
        "∆",
        "delta",
        "diff",
        "difference",
        "gain",
        "gap",
        "improvement",
    )


def is_run_name(name: Any) -> bool:
    """Return True if a name denotes a run, such as "seed 3"; false for a bare number."""
    return bool(_RUN.fullmatch(str(name).strip()))


def run_of(name: Any) -> str:
    """Return the digits in the name of a run: "3" for "seed 3" and for 3; "" for other names."""
    text = str(name).strip()
    match = _RUN.fullmatch(text)
    if match:
        return match[1]
    return text.removesuffix(".0") if WHOLE.fullmatch(text) else ""


@functools.cache
def _known_names() -> dict[str, frozenset[str]]:
    """Return common names, as lower-case letters and digits, by kind.

    Kinds are "algorithms" and "datasets".
    """
    words = json.loads(_KNOWN_NAMES.read_text("utf-8"))
    return {kind: frozenset(map(_letters, names)) for kind, names in words.items()}


def count_known(names: Sequence[str], kind: Literal["algorithms", "datasets"]) -> int:
    """Return the number of names that are in the list of common names of this kind.

    kind: "algorithms" or "datasets". Upper case, spaces and punctuation are ignored.
    """
    return sum(_letters(name) in _known_names()[kind] for name in names)


def _letters(name: Any) -> str:
    """Return the letters and digits of a name, in lower case."""
    return re.sub(r"[\W_]+", "", str(name).lower())
