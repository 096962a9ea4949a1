"""Arguments of `jbias train --until-decided`, from the recorded commands of runs."""

import glob
import os
import pathlib
import re
import shlex
from collections.abc import Sequence

from jbias.deciding import comparison as comparison_lib
from jbias.report import workdirs


def config_flags(command: object) -> list[str]:
    """Return the flags that name and change the config in the recorded command of a run.

    Numbers of seeds are left out, because `--until-decided` chooses the seeds. [] for a command
    that is not recorded. command: text such as "--config=configs/erm.py:seeds=3 --config.epochs=9".
    """
    if not isinstance(command, str) or not command.startswith("--config="):
        return []
    words = re.split(r" (?=--config[.=])", command)
    words = [word for word in words if not re.match(r"--config\.seeds\b", word)]
    first = re.sub(r"(?<=[:,])seeds=[^,]*(,|$)", "", words[0]).rstrip(":,")
    return [first, *words[1:]]


def path_pattern(paths: Sequence[str]) -> str | None:
    """Return the path, or a glob that matches exactly the paths; None if there is no such glob."""
    if len(paths) == 1:
        return paths[0]
    parents = {pathlib.Path(path).parent for path in paths}
    if len(parents) != 1:
        return None
    (parent,) = parents
    names = {pathlib.Path(path).name for path in paths}
    prefix = os.path.commonprefix([*names])
    matching = {path.name for path in parent.glob(f"{glob.escape(prefix)}*")}
    return str(parent / f"{prefix}*") if matching == names else None


def continue_comparison(
    folder: pathlib.Path,
    plan: comparison_lib.Comparison,
    runs: Sequence[workdirs.Run],
    *,
    reference_runs: Sequence[workdirs.Run],
    max_seeds: int,
) -> str | None:
    """Return the command that continues the comparison in a folder; None if it is not known.

    plan: as in comparison.json. runs: batches of the method. reference_runs: batches of the
    reference, and runs that were trained before.
    """
    settings = plan.settings
    config = config_flags(runs[0].provenance.get("command"))
    reference = _reference(folder, plan, reference_runs)
    if not config or not reference:
        return None
    flags = [
        *config,
        f"--until-decided={reference}",
        f"--metric={settings.metric}",
        f"--dataset={settings.dataset}",
    ]
    if settings.selection != "best_validation":
        flags.append(f"--selection={settings.selection}")
    if settings.points is not None:
        flags.append(f"--points={settings.points!r}")
    if settings.alpha != 0.05:
        flags.append(f"--alpha={settings.alpha!r}")
    if settings.quantity != "mean":
        flags.append(f"--quantity={settings.quantity}")
    if settings.bounds != (0, 1):
        low, high = settings.bounds
        flags.append(f"--bounds={low!r},{high!r}")
    flags += [f"--max-seeds={max_seeds}", f"--workdir={folder}"]
    return " ".join(["jbias train", *map(shlex.quote, flags)])


def _reference(
    folder: pathlib.Path,
    plan: comparison_lib.Comparison,
    runs: Sequence[workdirs.Run],
) -> str | None:
    """Return the value of --until-decided that started a comparison; None if it is not known."""
    if plan.are_trained:
        trained = [run for run in runs if pathlib.Path(run.workdir).parent != folder]
        seeds = {seed for run in trained for seed in run.seeds}
        if not trained or not {*plan.first_seeds} <= seeds:
            return None
        return path_pattern([run.workdir for run in trained])
    commands = [run.provenance.get("command") for run in runs]
    if not commands or not isinstance(commands[0], str):
        return None
    words = re.split(r" (?=--config[.=])", commands[0])
    words = [word for word in words if not re.match(r"--config\.seeds\b", word)]
    # A reference is a config FILE:ARGUMENTS without changes.
    is_config = len(words) == 1 and words[0].startswith("--config=")
    return words[0].removeprefix("--config=") if is_config else None
