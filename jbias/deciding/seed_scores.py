"""The scores of seeds from the records of finished runs, and the device hours of runs."""

import json
import math
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd

from jbias import config as jc
from jbias import errors, numerals
from jbias.deciding import comparison as comparison_lib
from jbias.runs import results, selection

# Rules that need no value, and rules with a value after a colon.
RULES = ("best_validation", "worst_class", "last_n:N", "at_epoch:EPOCH", "best_on:SET")


def check_settings(settings: comparison_lib.Settings) -> None:
    """Raise ValueError for an unknown selection rule, or a data set that the rule has used."""
    _rule(settings.selection)
    if settings.selection == f"best_on:{settings.dataset}":
        raise ValueError(
            f"--selection: {settings.selection} selects on the compared data set, which is then "
            "no test set; name another"
        )


def read(
    workdirs: Iterable[str | os.PathLike], settings: comparison_lib.Settings
) -> dict[int, float | None]:
    """Return the score of each seed of the finished runs.

    workdirs: of runs of one method. Runs that are missing or have not finished are left out,
    because the selected evaluation could still change. The score is None if the seed diverged, or
    if the metric is undefined, such as the shape bias of a network that decides for neither cue.
    ValueError for a seed in two runs, for a seed without a record of the metric on the data set,
    and for damaged records.
    """
    scores: dict[int, float | None] = {}
    sources: dict[int, str] = {}
    for workdir in map(pathlib.Path, workdirs):
        if not is_finished(workdir):
            continue
        for seed, score in _of_run(workdir, settings).items():
            if seed in sources:
                raise ValueError(
                    f"{workdir}: seed {seed} is also in {sources[seed]}; a seed counts once, "
                    "leave one of the two runs out"
                )
            scores[seed], sources[seed] = score, str(workdir)
    return scores


def is_finished(workdir: pathlib.Path) -> bool:
    """Return True if a run, or the run of a branch's folder, has ended."""
    is_branch = workdir.parent.name == "vary"
    return ((workdir.parents[1] if is_branch else workdir) / "done").exists()


def read_batches(
    workdir: str | os.PathLike, comparison: comparison_lib.Comparison
) -> dict[str, dict[int, float | None]]:
    """Return the scores of the finished batches of a comparison, by name and seed.

    workdir: of the comparison; each batch has its workdir `Batch.folder` in it.
    """
    folder = pathlib.Path(workdir)
    return {
        name: read(
            [
                folder / batch.folder
                for batch in comparison.batches
                if batch.method == name
            ],
            comparison.settings,
        )
        for name in (*comparison.methods, comparison.reference)
    }


def device_hours(
    workdir: str | os.PathLike, comparison: comparison_lib.Comparison
) -> float:
    """Return the device hours that all batches of a comparison have used so far."""
    hours = 0.0
    for batch in comparison.batches:
        path = pathlib.Path(workdir) / batch.folder / "costs.json"
        if path.exists():
            try:
                hours += json.loads(path.read_text("utf-8"))["total"]["device_hours"]
            except (ValueError, KeyError, TypeError):
                raise ValueError(
                    f"workdir: {path} is damaged; restore it, or delete it: its hours then do not "
                    "count"
                ) from None
    return hours


def config_of(workdir: str | os.PathLike) -> dict[str, Any]:
    """Return the config of a run; ValueError if the workdir has none."""
    path = pathlib.Path(workdir) / "config.json"
    try:
        return dict(json.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        raise ValueError(f"{workdir}: holds no run (no config.json)") from None
    except (ValueError, TypeError):
        raise ValueError(f"{path} is damaged; restore it") from None


def names(
    configs: Iterable[Mapping[str, Any]], reference: Mapping[str, Any]
) -> list[str]:
    """Return names of methods for folders: of each config in order, and of the reference last.

    A name is the algorithm and the variant, such as "sagnet" or "erm-mixup". Methods of one name
    get the digest of the config without seeds; a reference of the same name as a method is called
    "erm-reference".
    """

    def plain_name(config: Mapping[str, Any]) -> str:
        variant = config.get("variant", "")
        name = "-".join(filter(None, (jc.algorithm_name(config), variant)))
        return name.replace("/", "-")

    configs = list(configs)
    plain = list(map(plain_name, configs))
    method_names = [
        f"{name}-{jc.digest({**config, 'seeds': []})}"
        if plain.count(name) > 1
        else name
        for name, config in zip(plain, configs)
    ]
    reference_name = plain_name(reference)
    if reference_name in plain:
        reference_name += "-reference"
    return [*method_names, reference_name]


def selected(
    workdir: str | os.PathLike, settings: comparison_lib.Settings
) -> pd.DataFrame:
    """Return the records of the selected evaluation of each seed of a run that has records."""
    return _rule(settings.selection)(results.read(workdir))


def _of_run(
    workdir: pathlib.Path, settings: comparison_lib.Settings
) -> dict[int, float | None]:
    """Return the score of each seed of a finished run, None if it diverged or is undefined."""
    seeds = config_of(workdir)["seeds"]
    if not any((workdir / "evals").glob("*.jsonl")):
        if (workdir / "done").read_text("utf-8").strip() == "diverged":
            return dict.fromkeys(seeds)
        raise ValueError(f"{workdir}: has no records in evals; restore them")
    frame = results.read(workdir)
    diverged = {int(seed) for seed in selection.diverged(frame)["seed"]}
    scores: dict[int, float | None] = dict.fromkeys(sorted(diverged))
    if {*seeds} <= diverged:
        return scores
    rows = _rule(settings.selection)(frame)
    rows = rows[(rows["metric"] == settings.metric) & (rows["condition"] == "")]
    if not (rows["dataset"] == settings.dataset).any():
        known = _measured(frame)
        raise ValueError(
            f"{workdir}: has no {settings.metric} on {settings.dataset}; choose --metric and "
            f"--dataset among {known}"
        )
    rows = rows[rows["dataset"] == settings.dataset]
    scores |= {int(seed): float(x) for seed, x in zip(rows["seed"], rows["value"])}
    for seed in seeds:
        if seed not in scores:
            raise ValueError(
                f"{workdir}: has no {settings.metric} on {settings.dataset} of seed {seed}; restore "
                "its records"
            )
        if scores[seed] is not None and math.isnan(scores[seed]):
            scores[seed] = None
    return scores


def _measured(frame: pd.DataFrame) -> str:
    """Return the metrics of the whole test sets in a table of records, as text."""
    rows = selection.evaluations(frame)
    rows = rows[(rows["condition"] == "") & (rows["dataset"] != results.VALID)]
    by_set = rows.astype({"metric": str, "dataset": str}).groupby("metric")["dataset"]
    return "; ".join(
        f"{metric} on {', '.join(sorted(set(sets)))}" for metric, sets in by_set
    )


def _rule(text: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return the function of `runs.selection` that a text such as "last_n:5" names."""
    name, _, value = text.partition(":")
    known = {rule.partition(":")[0]: rule for rule in RULES}
    errors.check_known("--selection", name, known)
    needs_value = ":" in known[name]
    try:
        if needs_value == bool(value):
            match name:
                case "best_validation":
                    return selection.best_validation
                case "worst_class":
                    return selection.worst_class
                case "last_n":
                    number = numerals.whole(value)
                    errors.check_at_least("--selection", number)
                    return lambda frame: selection.last_n(frame, number)
                case "at_epoch":
                    epoch = numerals.real(value)
                    return lambda frame: selection.at_epoch(frame, epoch)
                case "best_on":
                    return lambda frame: selection.best_on(frame, value)
    except ValueError:
        pass
    raise ValueError(f"--selection: must be like {known[name]}, got {text!r}")
