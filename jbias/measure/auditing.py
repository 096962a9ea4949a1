"""What `python -m jbias.audit` does: shows networks a set once, and tests its columns."""

import argparse
import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import ml_collections
import numpy as np
from etils import epath

from jbias import config_files, mesh
from jbias.data import wordnet
from jbias.evals import decisions, reliance, sides, suspects
from jbias.measure import (
    candidates,
    checkpoint_paths,
    measuring,
    stimuli,
    subjects,
    suite,
    survey,
)
from jbias.models import runs
from jbias.report import audit_page, audited
from jbias.terminal import console

_SET, _MEASURE = "audited", "accuracy"
_SIZE = 224  # Of files, which do not say theirs.


class Answers(NamedTuple):
    """What one network decided, by the images' numbers in the set."""

    model: str
    network: str
    index: np.ndarray
    decided: decisions.Decisions
    classes: tuple[str, ...]


def run(args: argparse.Namespace, options: Sequence[str]) -> int:
    """Audits what the arguments name; returns the exit code."""
    out, say = epath.Path(args.out), console.logger(None)
    config = ml_collections.ConfigDict({"run": {"devices": args.devices}})
    paths = measuring.checked(args, out, config)
    beside = checkpoint_paths.find(args.reference)
    config = _suite(args, options, [*paths, *beside])
    asked = _opened(config, say)
    columns = candidates.find(asked.sources[_SET], args.attributes)
    models: dict[str, list[Answers]] = {}
    refused = []
    for answers, why in _answered(paths, args, asked, out, say):
        if why:
            refused.append(f"not audited: {why}")
        else:
            models.setdefault(answers.model, []).append(answers)
    reference = []
    for answers, why in _answered(beside, args, asked, out, say):
        if why:
            raise ValueError(f"--reference: {why}")
        reference.append(answers)
    if not models:
        raise ValueError("--checkpoint: no network could be audited; above stands why")
    found = [
        _audited(name, several, reference, asked, columns, args, say)
        for name, several in models.items()
    ]
    for line in audit_page.write(found, pathlib.Path(args.out), refused):
        say(line)
    return 1 if refused else 0


def _suite(
    args: argparse.Namespace, options: Sequence[str], paths: Sequence[str]
) -> ml_collections.ConfigDict:
    """A suite of one set and one measure."""
    given = {"root": args.root} if args.root else {}
    for text in options:
        key, _, value = text.removeprefix("--data.").partition("=")
        given[key] = config_files.value(value)
    config = ml_collections.ConfigDict()
    config.size = args.size or _size(paths)
    config.sets = {_SET: {"data": args.data, "split": args.split, **given}}
    measure = dict(probe="plain", sets=(_SET,), images=args.images)
    config.measures = {_MEASURE: measure}
    config.run = dict(devices=args.devices, step=args.step or "best")
    return config


def _opened(
    config: ml_collections.ConfigDict, say: Callable[[str], None]
) -> suite.Suite:
    """Opens the set; ValueError, in the words of the flags, where it cannot be."""
    lines: list[str] = []
    try:
        asked = suite.open(config, lines.append)
    except ValueError as error:
        _, absent, why = "".join(lines[-1:]).partition("not here, so not measured: ")
        told = why if absent else str(error)
        raise ValueError(told.replace(f"suite.sets.{_SET}", "--data")) from error
    for line in lines:
        say(line)
    return asked


def _size(paths: Sequence[str]) -> int:
    """The pixels that all runs were trained with, and that files are taken to want."""
    sizes = {
        runs.stored(epath.Path(path) / "config.json", ("size",))["size"]
        if checkpoint_paths.is_trained(path)
        else _SIZE
        for path in paths
    }
    if len(sizes) > 1:
        raise ValueError(
            f"--size: must be given for networks of {', '.join(map(str, sorted(sizes)))}"
            " pixels together"
        )
    return sizes.pop()


def _answered(
    paths: Sequence[str],
    args: argparse.Namespace,
    asked: suite.Suite,
    out: epath.Path,
    say: Callable[[str], None],
) -> Iterator[tuple[Answers | None, str]]:
    """Shows the set to each network; gives its answers, or why there are none."""
    folder = out / "networks"
    for name, subject, refused in measuring.networks(
        paths, args, asked.run["step"], say
    ):
        if subject:
            try:
                lacking = survey.run(subject, asked, folder, say)
                refused = "; ".join(lacking)
            except measuring.OWN_FAULT as error:
                refused = f"{name}: {survey.line(error)}"
        if refused:
            say(f"not audited: {refused}")
            yield None, refused
            continue
        task = f"{_MEASURE}@{_SET}.json"
        told = json.loads((folder / name / "measures" / task).read_text())
        path = folder / name / "decisions" / _SET / f"{_MEASURE}.parquet"
        decided = decisions.read_conditions(path)[""]
        index = decided.columns["index"]
        model = _model(subject, args.apart)
        yield Answers(model, name, index, decided, tuple(told["classes"])), ""


def _model(subject: subjects.Subject, apart: bool) -> str:
    """What a network is a copy of: the seeds of one run are one model."""
    if apart or not subject.is_trained:
        return subject.name
    where = epath.Path(subject.about["path"]).name
    run = subject.fields["run"]
    return where if where == run else f"{where} {run}"


def _audited(
    name: str,
    several: Sequence[Answers],
    reference: Sequence[Answers],
    asked: suite.Suite,
    given: candidates.Candidates,
    args: argparse.Namespace,
    say: Callable[[str], None],
) -> audited.Audited:
    """Tests every candidate on one model, by the images that all its networks answer."""
    source, notes = asked.sources[_SET], list(given.notes)
    index = functools.reduce(
        np.intersect1d, [one.index for one in (*several, *reference)]
    )
    if len(index) < len(source):
        notes.append(f"{len(index):,} of {len(source):,} images of the set are shown.")
    label = np.asarray(source.columns["label"])[index]
    columns = {key: column[index] for key, column in given.columns.items()}
    classes = tuple(map(wordnet.readable, source.classes))
    answers = _stacked(several, index)
    of = answers["correct"], label
    against = _stacked(reference, index)["correct"] if reference else None
    names = {key: (classes, values) for key, values in given.values.items()}
    tested = _tested(name, *of, against, columns, names, args)
    say(f"{name}: {len(columns)} attribute{'s' * (len(columns) != 1)} tested")
    made = audited.Audited(
        model=name,
        networks=tuple(one.network for one in several),
        reference=tuple(one.network for one in reference),
        dataset=source.name,
        classes=classes,
        answers=tuple(map(wordnet.readable, several[0].classes)),
        index=index,
        label=label,
        columns=columns,
        values=given.values,
        **answers,
        suspects=suspects.rank(
            *(*of, columns, tested),
            against=against,
            tau=args.tau / 100,
            alpha=args.alpha,
        ),
        examples={},
        notes=notes,
        tau=args.tau / 100,
        **{key: getattr(args, key) for key in ("alpha", "draws", "seed")},
    )
    examples = dict(_examples(made, asked, args.pairs))
    return dataclasses.replace(made, examples=examples)


def _stacked(several: Sequence[Answers], index: np.ndarray) -> dict[str, np.ndarray]:
    """The answers of several networks to the same images, a row each."""
    found: dict[str, list] = {}
    for one in several:
        rows, decided = np.searchsorted(one.index, index), one.decided
        each = {
            "prediction": decided.prediction,
            "correct": decided.prediction == decided.columns["label"],
            "likelihood": decided.columns["likelihood"],
            "confidence": decided.columns["confidence"],
        }
        for key, column in each.items():
            found.setdefault(key, []).append(column[rows])
    return {key: np.stack(columns) for key, columns in found.items()}


def _tested(
    name, correct, label, against, columns, names, args
) -> dict[str, reliance.Reliance]:
    """Every candidate's drops, with a bar."""
    tested = {}
    with console.bar(f"{name}: testing", len(columns)) as tell:
        for key, column in columns.items():
            tested[key] = reliance.measure(
                *(correct, label, column),
                against=against,
                names=names[key],
                kinds=args.kinds,
                draws=args.draws,
                seed=args.seed,
            )
            tell(len(tested), 0)
    return tested


def _examples(
    found: audited.Audited, asked: suite.Suite, count: int
) -> Iterator[tuple[str, audited.Examples]]:
    """Pairs of images that flip, of what is shown."""
    devices = mesh.make(asked.run["devices"])
    hurt = {one.name for one in found.shown}
    for one in found.shown if count else ():
        column, n = found.columns[one.name], len(found.label)
        others = {key: c for key, c in found.columns.items() if key != one.name}
        bugs = [c for key, c in others.items() if key in hurt]
        pairs = sides.pairs(
            found.correct[0],
            found.likelihood[0],
            sides.of(one.found, one.kind, found.label, column),
            found.label,
            np.array([*others.values()]).reshape(-1, n),
            count,
            first=np.array(bugs).reshape(-1, n),
        )
        if not pairs:
            continue
        numbers = [[pair.agrees, pair.disagrees] for pair in pairs]
        index = found.index[np.array(numbers).T.ravel()].astype(np.int32)
        shown = stimuli.images(asked, stimuli.rows(asked, _SET, index), devices)
        half = len(pairs)
        yield one.name, audited.Examples(pairs, shown[:half], shown[half:])
