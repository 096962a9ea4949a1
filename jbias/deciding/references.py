"""The reference of a comparison: a config, or finished runs of one method."""

import dataclasses
import itertools
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from etils import epath

from jbias import config as jc
from jbias import run_spec
from jbias.deciding import comparison as comparison_lib
from jbias.deciding import seed_scores, state_file
from jbias.runs import results
from jbias.runtime import files, messages, xla

_CONFIG_NAME = re.compile(r"(jbias:|[^:]*\.py(:|$))")


class Reference(NamedTuple):
    """The reference of a comparison.

    argument: --config=..., which names its config; "" for runs. runs: workdirs of finished runs;
    empty if the reference is a config.
    """

    config: Mapping[str, Any]
    argument: str
    runs: Sequence[pathlib.Path]


def is_config(text: str) -> bool:
    """Return True if a reference is a config such as jbias:erm, not a path of runs."""
    return bool(_CONFIG_NAME.match(text))


def read(text: str) -> Reference:
    """Return the reference that --until-decided names.

    ValueError for an unknown config or path, for a config with vary, for runs that have not ended,
    and for runs of different configs.
    """
    try:
        if is_config(text):
            return Reference(_read_config(text), f"--config={text}", ())
        runs = _finished_runs(text)
        return Reference(_common_config(runs), "", runs)
    except (ValueError, OSError) as error:
        line = files.describe_error(error).removeprefix("--config: ")
        raise ValueError(f"--until-decided: {line}") from error


def _read_config(text: str) -> dict[str, Any]:
    """Return the config that a text FILE:ARGUMENTS names; ValueError if it is invalid."""
    with xla.naming_variables():  # Config files may import jax.
        config = jc.to_dict(jc.load(text, flag="config"))
    run_spec.RunSpec.from_config(config)
    if config["vary"]:
        raise ValueError(f"{text} must not have vary; leave it out")
    return config


def _finished_runs(text: str) -> list[pathlib.Path]:
    """Return the workdirs of runs that a path or glob names; ValueError if some have not ended."""
    runs, empty = results.find_workdirs(text)
    started = [path for path in empty if (path / "config.json").exists()]
    for path in (*runs, *started):
        if not seed_scores.is_finished(path):
            raise ValueError(
                f"{path} has not ended; end it by its own command, then run this command again"
            )
    if not runs:
        raise ValueError(f"{text} has no run; name a run's workdir or a config")
    return runs


def _common_config(runs: Sequence[pathlib.Path]) -> dict[str, Any]:
    """Return the config of runs that differ only in seeds; ValueError if they differ otherwise."""
    configs = [
        run_spec.check_trusted(seed_scores.config_of(path), path) for path in runs
    ]
    first = state_file.pinned_config(configs[0])
    for path, config in zip(runs, configs, strict=True):
        differing = jc.diff(first, state_file.pinned_config(config))
        if differing:
            raise ValueError(
                f"must name runs of one method, but {runs[0]} and {path} differ: "
                f"{messages.join_differences(differing)}; name fewer"
            )
    return configs[0]


def folders(
    comparison: comparison_lib.Comparison,
    workdir: str | os.PathLike,
    runs: Sequence[pathlib.Path],
) -> dict[str, list[pathlib.Path]]:
    """Return the workdirs of each method and of the reference, by name; see `read_scores`."""
    by_name: dict[str, list[pathlib.Path]] = {
        name: [] for name in (*comparison.methods, comparison.reference)
    }
    by_name[comparison.reference] += runs
    for batch in comparison.batches:
        by_name[batch.method].append(pathlib.Path(workdir) / batch.folder)
    return by_name


def read_scores(
    comparison: comparison_lib.Comparison,
    workdir: str | os.PathLike,
    runs: Sequence[pathlib.Path],
) -> dict[str, dict[int, float | None]]:
    """Return the scores of finished batches and of the reference's runs, by name and seed.

    workdir: of the comparison. runs: trained runs of the reference.
    ValueError as `seed_scores.read`, if runs of one method were trained on different data or code,
    and if the images of the compared test set differ between runs.
    """
    scores = seed_scores.read_batches(workdir, comparison)
    by_name = folders(comparison, workdir, runs)
    for runs_of_name in by_name.values():
        _check_same_data(runs_of_name)
    _check_same_images(comparison.settings.dataset, itertools.chain(*by_name.values()))
    if comparison.are_trained:
        trained = seed_scores.read(runs, comparison.settings)
        scores[comparison.reference] |= {
            seed: trained[seed] for seed in comparison.first_seeds if seed in trained
        }
    return scores


def _check_same_images(dataset: str, folders: Iterable[pathlib.Path]) -> None:
    """Raise ValueError if finished runs were tested on different images of a test set."""
    from jbias.runs import workdirs

    first: tuple[pathlib.Path, Mapping[str, Any]] | None = None
    for folder in folders:
        if not (folder / "done").exists():
            continue
        recorded = workdirs.data_identity(workdirs.provenance(epath.Path(folder)))
        entry = recorded["data"].get(dataset)
        images = entry and {key: entry[key] for key in ("n", "fingerprint")}
        if first and images and first[1] != images:
            raise ValueError(
                f"{folder}: the images of {dataset} differ from those of {first[0]}, so that the "
                "scores cannot be compared; use the same images"
            )
        if images and not first:
            first = folder, images


def fit_memory(
    limits: comparison_lib.Limits,
    batches: Iterable[comparison_lib.Batch],
    workdir: str | os.PathLike,
) -> comparison_lib.Limits:
    """Return limits with as many seeds per batch as the devices have computed together.

    A run trains the seeds of a batch in waves if the memory of its devices is too small for all of
    them. Then later batches have the seeds of one wave. workdir: of the comparison.
    """
    from jbias.runs import workdirs

    sizes = dict(limits.batch_seeds)
    for batch in batches:
        recorded = workdirs.provenance(epath.Path(workdir) / batch.folder)
        layout = recorded.get("layout") or {}
        for waves in layout.get("waves", ()):  # Seeds per wave, by stage.
            if batch.method in sizes and len(waves) > 1:
                sizes[batch.method] = min(sizes[batch.method], max(waves))
    return dataclasses.replace(limits, batch_seeds=sizes)


def _check_same_data(folders: Iterable[pathlib.Path]) -> None:
    """Raise ValueError if finished runs of a method were trained on different data or code."""
    from jbias.runs import workdirs  # Late: imports jax.

    identities = []
    for folder in folders:
        if (folder / "done").exists():
            recorded = workdirs.provenance(epath.Path(folder))
            # The initial weights of different seeds differ.
            identity = workdirs.data_identity(recorded) | {"init": None}
            if recorded:
                identities.append((folder, identity))
    for folder, identity in identities[1:]:
        first_folder, first = identities[0]
        differing = jc.diff(first, identity)
        if differing:
            raise ValueError(
                f"{folder}: its data or code differ from those of {first_folder}: "
                f"{messages.join_differences(differing)}; restore them, or start again in another "
                "--workdir"
            )
