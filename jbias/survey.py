"""Measures networks by a suite, one after the other; what is done is never done again.

A network's folder holds

    config.json  provenance.json  done
    evals/<measure>@<set>.jsonl            records, renamed into place when whole
    measures/<measure>@<set>.json          by which options, on what, how fast, among what
    decisions/<set>/<measure>.parquet      what it decided, by condition

as a run's workdir does, so that report reads both.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from etils import epath
from flax import errors

from jbias import config as jc
from jbias import console, costs, feed, mesh, results, sets, shown, subjects, suite
from jbias import workdir as workdirs
from jbias.data import spec
from jbias.evals import brief, decisions, probe, show

# Its records have no measure's name among their conditions: a run's own look the same.
PLAIN = "accuracy"
# Of one measure: its options, shapes, memory. Others may be made.
_OWN_FAULT = (ValueError, MemoryError, errors.FlaxError, jax.errors.JaxRuntimeError)
_ALONE = {
    "agreement": "not made: the algorithm answers in its own way, in its run's precision"
}
_LETTERS = 500  # Of a fault: allocators print tables.


class Task(NamedTuple):
    """One measure on one set."""

    measure: suite.Measure
    dataset: str

    @property
    def name(self) -> str:
        return f"{self.measure.name}@{self.dataset}"


def run(
    subject: subjects.Subject,
    asked: suite.Suite,
    out: epath.Path,
    say: Callable[[str], None],
    *,
    whole: bool = True,
) -> list[str]:
    """Measures one network; says and returns what could not be, and why, a line each.

    `whole`: whether these are all measures, so that it is done then. ValueError where the
    folder holds another network, or a measure of the same name with other options.
    """
    folder = out / subject.name
    tasks = [Task(*one) for one in asked.tasks()]
    # A set's measures follow one another.
    order = list(asked.sources)
    tasks.sort(key=lambda task: order.index(task.dataset))
    if "train" in {task.dataset for task in tasks} and (
        differing := _otherwise(subject, asked)
    ):
        say(differing)
    with _claimed(folder, subject, asked):
        left = [task for task in tasks if not _is_done(folder, subject, task, asked)]
        if len(left) < len(tasks):
            say(f"{subject.name}: {len(tasks) - len(left)} measures are there already")
        refused = []

        def refuse(why: str) -> None:
            refused.append(why)
            say(f"not measured: {subject.name}: {why}")

        if left:
            _measure(subject, asked, folder, left, say, refuse)
        if whole and not refused and not asked.missing:
            (folder / "done").touch()
    return refused


def line(error: BaseException) -> str:
    """What went wrong, in one line."""
    return " ".join(str(error).split())[:_LETTERS] or type(error).__name__


def _line(error: BaseException) -> str:
    """What went wrong with a measure, and what needs less where memory lacks."""
    told = line(error)
    short = isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in told
    return f"{told}; --suite.run.batch=N with less at once" if short else told


def _otherwise(subject: subjects.Subject, asked: suite.Suite) -> str:
    """How the set `train` of a suite differs from what a run was trained on, or ""."""
    own = subject.about.get("config", {}).get("train", {})
    given = asked.config["sets"]["train"]
    keys = ("data", "split", "drop", "keep") if own else ()
    differing = [
        f"{key} {own.get(key, '')!r}, shown {given.get(key, '')!r}"
        for key in keys
        if own.get(key, "") != given.get(key, "")
    ]
    return f"{subject.name}: trained on {'; '.join(differing)}" if differing else ""


def _measure(subject, asked, folder, tasks, say, refuse) -> None:
    """Measures what is left, and keeps each at once; what cannot be is refused."""
    prepared, foreign = {}, []
    for dataset in dict.fromkeys(task.dataset for task in tasks):
        try:
            prepared[dataset] = shown.prepare(subject, asked, dataset, say)
        except spec.Mismatch:
            foreign.append(dataset)
        except _OWN_FAULT as error:
            refuse(f"{dataset}: {line(error)}")
    if foreign:
        refuse(shown.foreign(subject, asked, foreign))
    if not prepared:
        return
    devices = mesh.make(asked.run["devices"])
    network = subject.network(mesh.dtype(asked.run["precision"]))
    network = network._replace(variables=mesh.replicate(network.variables, devices))
    tasks = [task for task in tasks if task.dataset in prepared]
    if _is_alone(subject, asked):
        kind = jnp.dtype(subject.net.dtype)
        say(f"{subject.name}: answers in its own way in {kind}; agreement is not made")
    total = sum(_asked(asked, task, prepared[task.dataset]) for task in tasks)
    known: dict[tuple, dict[str, decisions.Decisions]] = {}
    shared: dict[tuple, dict[str, str]] = {}  # Rules by which any of them decides.
    for task in tasks:
        if same := _same(asked, task):
            rules = _rules(task, prepared[task.dataset]).values()
            shared.setdefault(same, {}).update(zip(rules, rules, strict=True))
    with console.counted(say, subject.name, total) as tell:
        for task in tasks:
            began = time.monotonic()
            given = shown.some(prepared[task.dataset], task.measure.images)
            of = (subject, network, asked, task, given)
            images = _asked(asked, task, given)
            same = _same(asked, task)
            again = same in known
            try:
                found = None
                if task.measure.inside:
                    numbers = _looked(*of)
                else:
                    rules = _rules(task, given)
                    if same and not again:
                        known[same] = _decided(*of[1:], shared[same], devices, tell)
                    if same:
                        found = {key: known[same][name] for key, name in rules.items()}
                    else:
                        found = _decided(*of[1:], rules, devices, tell)
                    numbers = asked.made(*task, given.classes).numbers(found)
                    numbers += _agreement(*of, devices)
            except _OWN_FAULT as error:
                refuse(f"{task.name}: {_line(error)}")
                continue
            if task.measure.inside or again:
                tell(images)
            if found and asked.run["decisions"]:
                _keep_decisions(folder, task, found)
            seconds = time.monotonic() - began
            # None where another measure of the set had asked for the same decisions.
            told = {"images": images, "seconds": None if again else round(seconds, 2)}
            if not again:
                told["cost"] = costs.of(seconds, workdirs.paid(devices))
            if not task.measure.inside:
                told["classes"] = given.classes
            _keep(folder, subject, asked, task, numbers, told)
            words = brief.words(task.measure.probe, numbers)
            took = "decided before" if again else f"{seconds:.1f} s"
            unit = "images" if task.measure.inside else "answers"
            say(f"{subject.name}: {task.name}, {words} ({images} {unit}, {took})")


def _same(asked: suite.Suite, task: Task) -> tuple | None:
    """What measures have in common that need the same answers; None: nobody else's."""
    if task.measure.inside:
        return None
    made = asked.made(*task)
    if made.show is not probe.as_it_is or made.move or set(made.conditions) != {""}:
        return None
    return task.dataset, task.measure.images


def _rules(task: Task, given: shown.Shown) -> dict[str, str]:
    """By which rules answers are decisions, by what tells conditions apart.

    "" is the first. Others are the same as it where no class has several members.
    """
    first, *others = task.measure.aggregates
    own = {name: name for name in others if given.rules[name].matrix is not None}
    return {"": first, **own}


def _keep_decisions(folder, task: Task, found) -> None:
    path = folder / "decisions" / task.dataset / f"{task.measure.name}.parquet"
    decisions.write_conditions(path, found)


def _agreement(subject, network, asked, task: Task, given, devices) -> list:
    """How often float32 answers as the network does, where that is another."""
    exact, count = subject.network(jnp.float32), asked.run["agree"]
    if not count or exact.apply is network.apply:
        return []
    exact = exact._replace(variables=network.variables)
    batches = shown.batches(asked, shown.some(given, count), devices)
    return show.agreement(network, exact, asked.made(*task, given.classes), batches)


def _asked(asked: suite.Suite, task: Task, given: shown.Shown) -> int:
    """How many images a measure shows, under all its conditions."""
    n = min(len(given.index), task.measure.images or len(given.index))
    if task.measure.inside:
        return n
    return n * len(asked.made(*task).conditions)


def _looked(subject, network, asked, task: Task, given: shown.Shown) -> list:
    """What a measure finds inside the network."""
    images = given.images
    if isinstance(images, feed.Kept):
        reading = feed.Reading(asked.run["threads"] or suite.cores())
        images = feed.Unread(images, reading)
    net = subject.net.clone(dtype=mesh.dtype(asked.run["precision"]))
    columns = {**given.columns, "index": given.index}
    return suite.inside(task.measure)(net, network.variables, images, columns)


def _decided(
    network,
    asked,
    task: Task,
    given: shown.Shown,
    rules: Mapping[str, str],
    devices,
    tell,
) -> dict[str, decisions.Decisions]:
    """The decisions by condition, under each of these rules."""
    made = asked.made(*task, given.classes)
    shown.check(made, given)
    chosen = {key: given.rules[name] for key, name in rules.items()}
    chosen = {
        key: rule._replace(matrix=mesh.replicate(rule.matrix, devices))
        for key, rule in chosen.items()
    }
    batches = shown.batches(asked, given, devices)
    found = show.decide(network, made, batches, chosen, tell=tell)
    columns = {**given.columns, "index": given.index}
    return show.of(found, columns)


def _keep(folder, subject, asked, task: Task, numbers, told) -> None:
    """Writes what a measure found: first how, then the records, which say it is done."""
    told = {
        **_told(task, asked, _precision(subject, task, asked)),
        **told,
        **(_ALONE if _is_alone(subject, asked) and not task.measure.inside else {}),
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


def _precision(subject, task: Task, asked: suite.Suite) -> str:
    """What a measure computes in."""
    dtype = mesh.dtype(asked.run["precision"])
    return str(jnp.dtype(dtype if task.measure.inside else subject.dtype(dtype)))


def _is_alone(subject, asked: suite.Suite) -> bool:
    """Whether float32 cannot answer beside it, though it computes in less."""
    exact = jnp.dtype(subject.net.dtype) == jnp.float32
    return bool(asked.run["agree"]) and not subject.is_plain and not exact


def _told(task: Task, asked: suite.Suite, precision: str) -> dict[str, Any]:
    source, others = asked.sources[task.dataset], task.measure.others
    beside = {"others": asked.sources[others].fingerprint} if others else {}
    read = "" if task.measure.inside else asked.made(*task).digest
    return {
        "measure": task.measure.told,
        **({"read": read} if read else {}),
        "precision": precision,
        "dataset": {
            **beside,
            "fingerprint": source.fingerprint,
            "n": len(source),
            "preprocessing": source.preprocessing,
            **sets.answering(asked.config["sets"][task.dataset]),
        },
    }


def _is_done(folder: epath.Path, subject, task: Task, asked: suite.Suite) -> bool:
    """Whether a measure is there; ValueError where it was made in another way."""
    if not (folder / "evals" / f"{task.name}.jsonl").exists():
        return False
    held = json.loads((folder / "measures" / f"{task.name}.json").read_text())
    now = _told(task, asked, _precision(subject, task, asked))
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
        "run": {**subject.identity, "path": str(subject.about.get("path", ""))},
    }
    if folder.exists() and not folder.is_dir():
        raise ValueError(
            f"{folder}: must be a folder of measures, is a file; name another --out"
        )
    held = folder / "config.json"
    if held.exists():
        before = json.loads(held.read_text()).get("run", {})
        now = subject.identity
        differing = jc.differing({key: before.get(key) for key in now}, now)
        if differing:
            raise ValueError(
                f"{folder}: holds measures of another network (then != now): "
                f"{'; '.join(differing)}; name another --out"
            )
    folder.mkdir(parents=True, exist_ok=True)
    with workdirs.follow(folder):
        workdirs.write_text(held, json.dumps(jc.plain(identity), indent=1) + "\n")
        facts = {**_known(asked, workdirs.provenance(folder)), **workdirs.environment()}
        workdirs.write_text(folder / "provenance.json", json.dumps(facts, indent=1))
        yield


def _known(asked: suite.Suite, before: dict[str, Any]) -> dict[str, Any]:
    """The sets of all calls for a network, what lacked and what was asked for.

    Of the same name the latest counts.
    """
    old, missing = before.get("suite", {}), before.get("missing", {})
    now = {name: sets.describe(one) for name, one in asked.sources.items()}
    entries = {
        key: {**old.get(key, {}), **asked.config[key]} for key in ("sets", "measures")
    }
    return {
        "data": {**before.get("data", {}), **now},
        "missing": {
            name: why
            for name, why in {**missing, **asked.missing}.items()
            if name not in now
        },
        "suite": {**asked.config, **entries},
    }
