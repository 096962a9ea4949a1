"""Measures networks by a suite, one after the other; what is done is never done again.

A network's folder holds

    config.json  provenance.json  log.txt  done
    evals/<measure>@<set>.jsonl            records, renamed into place when whole
    measures/<measure>@<set>.json          by which options, on what, how fast
    decisions/<set>/<measure>.parquet      what it decided, by condition

as a run's workdir does, so that report reads both.
"""

import contextlib
import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from jbias import config as jc
from jbias import console, feed, mesh, results, sets, subjects, suite
from jbias import workdir as workdirs
from jbias.data import labels, spec
from jbias.evals import decisions, predict, show

# Its records have no measure's name among their conditions: a run's own look the same.
PLAIN = "accuracy"


class Task(NamedTuple):
    """One measure on one set."""

    measure: suite.Measure
    dataset: str

    @property
    def name(self) -> str:
        return f"{self.measure.name}@{self.dataset}"


class Shown(NamedTuple):
    """The images of a set that a network can answer, and how it answers them."""

    images: Any  # Resident, or in their files.
    index: np.ndarray  # Each image's number in its set.
    columns: Mapping[str, np.ndarray]
    target: np.ndarray  # In the network's own classes.
    rules: Mapping[str, predict.Rule]


def run(
    subject: subjects.Subject,
    asked: suite.Suite,
    out: epath.Path,
    say: Callable[[str], None],
    *,
    only: tuple[str, ...] = (),
) -> list[str]:
    """Measures one network; returns what could not be measured, and why, a line each.

    `only`: names of measures; none is all. ValueError where the folder holds another
    network, or a measure of the same name with other options.
    """
    folder = out / subject.name
    tasks = [
        Task(measure, dataset)
        for measure in asked.measures
        for dataset in measure.datasets
        if dataset in asked.sources and (not only or measure.name in only)
    ]
    # A set's measures follow one another.
    order = list(asked.sources)
    tasks.sort(key=lambda task: order.index(task.dataset))
    with _claimed(folder, subject, asked):
        left = [task for task in tasks if not _is_done(folder, task, asked)]
        if len(left) < len(tasks):
            say(f"{subject.name}: {len(tasks) - len(left)} measures are there already")
        refused = _measured(subject, asked, folder, left, say) if left else []
        if not refused and not only:
            (folder / "done").touch()
    return [f"{subject.name}: {line}" for line in refused]


def _measured(subject, asked, folder, tasks, say) -> list[str]:
    devices = mesh.make(asked.run["devices"])
    precision = mesh.dtype(asked.run["precision"])
    network = subject.network(precision)
    network = network._replace(variables=mesh.replicate(network.variables, devices))
    prepared, refused = {}, {}
    for dataset in dict.fromkeys(task.dataset for task in tasks):
        try:
            prepared[dataset] = _shown(subject, asked, dataset, say)
        except ValueError as error:
            refused[dataset] = f"{dataset}: {' '.join(str(error).split())}"
    tasks = [task for task in tasks if task.dataset in prepared]
    total = sum(
        _count(task, prepared[task.dataset])
        * len(asked.made(task.measure, task.dataset).conditions)
        for task in tasks
    )
    with console.counted(say, subject.name, total) as tell:
        for task in tasks:
            began = time.monotonic()
            given = _some(prepared[task.dataset], task.measure.images)
            found, asks = _decided(network, asked, task, given, devices, tell)
            numbers = asked.made(task.measure, task.dataset).numbers(found)
            if precision != jnp.float32 and asked.run["agree"]:
                numbers.append(_agreement(subject, network, asked, given, devices))
            seconds = time.monotonic() - began
            if asked.run["decisions"]:
                path = (
                    folder / "decisions" / task.dataset / f"{task.measure.name}.parquet"
                )
                decisions.write_conditions(path, found)
            _keep(folder, subject, asked, task, numbers, asks, seconds)
            say(
                f"{subject.name}: {task.name}, {_words(numbers)} "
                f"({asks} answers, {seconds:.1f} s)"
            )
    return list(refused.values())


def _shown(subject, asked: suite.Suite, dataset: str, say) -> Shown:
    """Brings a set into the network's classes; ValueError where it has none of them."""
    source = asked.sources[dataset]
    where = f"suite.sets.{dataset}"
    options = asked.config["sets"][dataset]
    wanted = dict.fromkeys(
        aggregate
        for measure in asked.measures
        if dataset in measure.datasets
        for aggregate in measure.aggregates
    )
    maps = {name: _answers(where, options, source, subject, name) for name in wanted}
    first = next(iter(maps.values()))
    test = sets.test_set(dataset, source, first, asked.images[dataset], say)
    index = np.flatnonzero(first.relabel[np.asarray(source.columns["label"])] >= 0)
    return Shown(
        images=test.images,
        index=index.astype(np.int32),
        columns=test.columns,
        target=_targets(first)[test.columns["label"]],
        rules={
            name: predict.Rule(len(index), one.matrix, one.aggregate)
            for name, one in maps.items()
        },
    )


def _answers(
    where: str, options: Mapping, test: spec.Source, subject, aggregate: str
) -> labels.ClassMap:
    train = _Named(subject.classes, subject.space)
    return sets.answers(where, options, test, train, aggregate)


class _Named(NamedTuple):
    """Of a training set, all that a class map asks."""

    classes: tuple[str, ...]
    space: str


def _targets(answer: labels.ClassMap) -> np.ndarray:
    """The network's class for each decision class, -1 where it is not just one."""
    if answer.matrix is None:
        return np.arange(len(answer.classes), dtype=np.int32)
    members = answer.matrix > 0
    one = members.sum(0) == 1
    return np.where(one, members.argmax(0), -1).astype(np.int32)


def _some(shown: Shown, count: int) -> Shown:
    """So many of the images, evenly spaced; all if that is 0, or more than there are."""
    n = len(shown.index)
    if not 0 < count < n:
        return shown
    rows = np.linspace(0, n - 1, count).round().astype(np.int64)
    kept = isinstance(shown.images, feed.Kept)
    return Shown(
        feed.Kept(shown.images.source, shown.images.index[rows])
        if kept
        else shown.images[rows],
        shown.index[rows],
        {name: column[rows] for name, column in shown.columns.items()},
        shown.target[rows],
        {name: rule._replace(n=count) for name, rule in shown.rules.items()},
    )


def _count(task: Task, shown: Shown) -> int:
    n = len(shown.index)
    return min(n, task.measure.images) if task.measure.images else n


def _batches(asked: suite.Suite, given: Shown, devices) -> Iterator[show.Batch]:
    shards = devices.shape["data"]
    usual = 32 if jax.default_backend() == "cpu" else 256
    size = -(-(asked.run["batch"] or usual) // shards) * shards
    reading = feed.Reading(asked.run["threads"] or suite.cores())
    place = functools.partial(mesh.split, mesh=devices)
    first = 0
    for images in feed.batches([given.images], size, reading):
        rows = np.arange(first, min(first + size, len(given.index)))
        first += size
        filled = np.pad(rows, (0, size - len(rows)), mode="edge")
        yield show.Batch(
            image=place(images),
            index=place(given.index[filled]),
            label=place(given.columns["label"][filled].astype(np.int32)),
            target=place(given.target[filled]),
            count=len(rows),
        )


def _decided(
    network, asked, task: Task, given: Shown, devices, tell
) -> tuple[dict[str, decisions.Decisions], int]:
    """The decisions by condition, and how many answers that took."""
    made = asked.made(task.measure, task.dataset)
    chosen = {
        "" if i == 0 else name: given.rules[name]
        for i, name in enumerate(task.measure.aggregates)
    }
    chosen = {
        name: rule._replace(matrix=mesh.replicate(rule.matrix, devices))
        for name, rule in chosen.items()
        if not name or rule.matrix is not None
    }
    batches = _batches(asked, given, devices)
    found = show.decide(network, made, batches, chosen, tell=tell)
    columns = {**given.columns, "index": given.index}
    return show.of(found, columns), len(given.index) * len(made.conditions)


def _agreement(subject, network, asked, given: Shown, devices) -> decisions.Number:
    """How often float32 answers likewise."""
    exact = subject.network()
    exact = exact._replace(variables=network.variables)
    some = _some(given, asked.run["agree"])
    return show.agreement(network, exact, _batches(asked, some, devices))


def _keep(folder, subject, asked, task: Task, numbers, answers: int, seconds) -> None:
    """Writes what a measure found: first how, then the records, which say it is done."""
    told = {
        **_told(task, asked),
        "answers": answers,
        "seconds": round(seconds, 2),
        "environment": workdirs.environment(),
    }
    path = folder / "measures" / f"{task.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    workdirs.write_text(path, json.dumps(told, indent=1))
    prefix = "" if task.measure.name == PLAIN else task.measure.name
    records = [
        results.Record(
            **subject.fields,
            dataset=task.dataset,
            **number._replace(
                condition="/".join(filter(None, (prefix, number.condition)))
            )._asdict(),
        )
        for number in numbers
    ]
    results.write(folder / "evals" / f"{task.name}.jsonl", records)


def _told(task: Task, asked: suite.Suite) -> dict[str, Any]:
    source = asked.sources[task.dataset]
    return {
        "measure": task.measure.told,
        "precision": str(jnp.dtype(mesh.dtype(asked.run["precision"]))),
        "dataset": {"fingerprint": source.fingerprint, "n": len(source)},
    }


def _is_done(folder: epath.Path, task: Task, asked: suite.Suite) -> bool:
    """Whether a measure is there; ValueError where it was made in another way."""
    if not (folder / "evals" / f"{task.name}.jsonl").exists():
        return False
    held = json.loads((folder / "measures" / f"{task.name}.json").read_text())
    now = _told(task, asked)
    differing = jc.differing({key: held.get(key) for key in now}, now)
    if differing:
        raise ValueError(
            f"{folder}: {task.name} was measured otherwise (then != now): "
            f"{'; '.join(differing)}; name another --out, or the measure differently"
        )
    return True


@contextlib.contextmanager
def _claimed(folder: epath.Path, subject, asked: suite.Suite) -> Iterator[None]:
    """Holds a network's folder for this process; ValueError where it is another's."""
    fields = subject.fields
    about = {key: value for key, value in subject.about.items() if key != "path"}
    identity = {
        "algorithm": fields["algorithm"],
        "variant": fields["variant"],
        "model": {"name": fields["model"]},
        "train": {"data": fields["train_data"]},
        **about,
        "seeds": [fields["seed"]],
        "run": {"digest": subject.digest, "path": str(subject.about.get("path", ""))},
    }
    held = folder / "config.json"
    if held.exists():
        before = json.loads(held.read_text()).get("run", {}).get("digest")
        if before != subject.digest:
            raise ValueError(
                f"{folder}: holds measures of other weights ({before}, now "
                f"{subject.digest}); name another --out"
            )
    folder.mkdir(parents=True, exist_ok=True)
    with workdirs.follow(folder):
        workdirs.write_text(held, json.dumps(jc.plain(identity), indent=1) + "\n")
        facts = {
            "data": {name: sets.describe(one) for name, one in asked.sources.items()},
            "missing": dict(asked.missing),
            "suite": asked.config,
            **workdirs.environment(),
        }
        workdirs.write_text(folder / "provenance.json", json.dumps(facts, indent=1))
        yield


def _words(numbers: list[decisions.Number]) -> str:
    """The probe's own numbers, or the first few, in short."""
    own = [number for number in numbers if not number.condition] or numbers
    told = [
        f"{one.metric.replace('_', ' ')} "
        + ("none" if one.value is None else f"{one.value:.4g}")
        for one in own[:4]
    ]
    return ", ".join(told)
