"""Opens the networks that flags name: files of weights, finished runs, and runs under way."""

import argparse
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import ml_collections
from etils import epath

from jbias import config as jc
from jbias import data, models
from jbias.evals import networks
from jbias.runs import checkpoints
from jbias.runtime import cli

# Tells when a running job's new checkpoint is whole.
_DONE = "done"
_ZOO = "jbias:zoo"
# Of one network: its files, its shapes, its memory. Others may be measured.
NETWORK_ERRORS = (OSError, *networks.MEASURE_ERRORS)


class Opened(NamedTuple):
    """A network to measure, or what could not be one, and why."""

    name: str
    subject: networks.Network | None
    refused: str = ""


def check_arguments(
    args: argparse.Namespace, out: epath.Path, config: ml_collections.ConfigDict
) -> list[str]:
    """What --checkpoint names; ValueError for what is wrong with any argument.

    Before sets are opened, which may take minutes.
    """
    if args.model:
        jc.check_known("--model", args.model, models.MODELS)
    paths = networks.find_checkpoints(args.checkpoint)
    networks.list_classes(args.classes or networks.IMAGENET)
    trained = {networks.is_trained(path) for path in paths}
    if args.trained:
        jc.check_known("--trained", args.trained, data.DATASETS)
    for key in ("model", "classes", "mean", "std", "trained", "method"):
        if trained == {True} and getattr(args, key) is not None:
            raise ValueError(
                f"--{key}: says nothing of runs that were trained here; leave it out"
            )
    if trained == {False} and args.step:
        raise ValueError("--step: says nothing of files; leave it out")
    try:
        cli.output_folder(str(out))
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"--out: {error}") from None
    if args.zoo and not os.path.isfile(args.zoo):
        raise ValueError(f"--zoo: no file {args.zoo!r}; --zoo= looks in no table")
    _check_step("--step", args.step, paths)
    said = jc.to_dict(config).get("run", {})
    jc.check_type("suite.run", said, dict)
    _check_step("suite.run.step", said.get("step"), paths)
    return paths


def _check_step(where: str, step: str | int | None, paths: Sequence[str]) -> None:
    """Refuses what is no step, and one that is in none of the runs."""
    if step in (None, "", "best", "latest"):
        return
    if not str(step).isdecimal():
        raise ValueError(f"{where}: must be best, latest or a number, got {step!r}")
    if not paths or not all(map(networks.is_trained, paths)):
        return
    held = {s for path in paths for s in checkpoints.steps(f"{path}/checkpoints")}
    if held and int(step) not in held:
        known = ", ".join(map(str, sorted(held)))
        raise ValueError(f"{where}: no run has step {step}; there are {known}")


def open_networks(
    paths: Sequence[str],
    args: argparse.Namespace,
    say: Callable[[str], None],
    step: int | str = "best",
) -> Iterator[Opened]:
    """Opens files and runs, one after the other; or says why one cannot be.

    step: of runs, where --step says none.
    """
    named = _ZOO if args.zoo is None else args.zoo
    zoo = jc.import_file("zoo", jc.resolve_preset(named, "zoo")) if named else None
    stems = [networks.path_stem(path) for path in paths]
    for path, stem in zip(paths, stems, strict=True):
        if zoo and zoo.is_head(path):
            continue  # It is read with its backbone.
        if stems.count(stem) > 1:
            folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
            stem = f"{folder}-{stem}"
        try:
            if networks.is_trained(path):
                if not (epath.Path(path) / _DONE).exists():
                    say(f"{path}: has not ended; what it saved so far is measured")
                for subject in networks.from_run(path, step=str(args.step or step)):
                    yield Opened(subject.name, subject)
            else:
                subject = _from_file(path, stem, args, zoo, say)
                say(_constants(subject))
                yield Opened(subject.name, subject)
        except NETWORK_ERRORS as error:
            line = networks.describe_error(error)
            line = line if path in line else f"{path}: {line}"
            yield Opened(path, None, line)


def _from_file(
    path: str, name: str, args: argparse.Namespace, zoo: Any, say: Callable[[str], None]
) -> networks.Network:
    """Opens a file; of one that the zoo knows, --model may say nothing else."""
    given = {"mean": args.mean, "std": args.std}
    given = {key: value for key, value in given.items() if value is not None}
    origins = {key: f"--{key}" for key in given}
    entry = zoo.find(path) if zoo else None
    if entry:
        subject = _published(path, entry, args, given, origins)
        other = [
            f"{key} {value}, got {getattr(subject.net, key)}"
            for key, value in entry.needs.items()
            if getattr(subject.net, key) != value
        ]
        if not other:
            return subject
        say(
            f"{path}: has the name of {entry.id} and is another, which needs "
            f"{'; '.join(other)}; taken for a file that no table knows"
        )
    return networks.from_file(
        path,
        name=name,
        model=args.model,
        classes=args.classes,
        about={"constants": origins, **_training(args)},
        **given,
    )


def _published(path, entry, args, given, origins) -> networks.Network:
    """A file as an entry of the zoo has it; `given` goes before its constants."""
    if args.model not in (None, entry.model):
        raise ValueError(
            f"--model: {path} has the name of {entry.id}, which is {entry.model}, got "
            f"{args.model!r}; leave --model out, rename the file, or look in no table "
            "by --zoo="
        )
    options = entry.options(os.path.dirname(path) or ".")
    known = {key: f"those of {entry.id}" for key in ("mean", "std") if key in options}
    about = {
        "id": entry.id,
        "name": entry.name,
        "category": entry.category,
        "norm": entry.norm,
        "epsilon": entry.eps,
        "constants": {**known, **origins},
        **_training(args),
    }
    options |= given
    return networks.from_file(
        path, model=entry.model, classes=args.classes, about=about, **options
    )


def _training(args: argparse.Namespace) -> dict[str, str]:
    """What --trained and --method say of files."""
    said = {"train_data": args.trained, "method": args.method}
    return {key: value for key, value in said.items() if value}


def _constants(subject: networks.Network) -> str:
    """What is taken off a file's images, and who says so."""
    numbers, origins = [], subject.about["constants"]
    for key in ("mean", "std"):
        values = getattr(subject.net, key)
        values = values[:1] if len(set(values)) == 1 else values
        numbers.append(f"{key} {' '.join(f'{x:g}' for x in values)}")
    words = list(dict.fromkeys(origins[key] for key in ("mean", "std")))
    if len(words) > 1:
        numbers = [f"{n} ({word})" for n, word in zip(numbers, words, strict=True)]
    told = f": {words[0]}" if len(words) == 1 else ""
    return f"{subject.name}: {', '.join(numbers)}{told}; --mean and --std change it"


def follow_run(
    args: argparse.Namespace, say: Callable[[str], None]
) -> Iterator[Opened]:
    """Opens each checkpoint of a run as it comes, until the run is done."""
    workdir, seen = epath.Path(args.follow), set()
    say(f"following {workdir}")
    while True:
        over = args.once or (workdir / _DONE).exists()
        for step in checkpoints.steps(workdir / "checkpoints"):
            if step in seen:
                continue
            seen.add(step)
            try:
                for subject in networks.from_run(str(workdir), step=str(step)):
                    yield Opened(subject.name, subject)
            except NETWORK_ERRORS as error:
                if step in checkpoints.steps(workdir / "checkpoints"):
                    line = f"step {step}: {networks.describe_error(error)}"
                    yield Opened(f"step {step}", None, line)
        if over:
            return
        time.sleep(args.interval)
