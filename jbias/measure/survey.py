"""Measures networks by a suite, one after the other; what is done is never done again."""

import contextlib
import functools
import time
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from etils import epath
from flax import errors

from jbias.data import base, loader
from jbias.evals import brief, decisions, probe, show
from jbias.measure import findings, shown, subjects, suite, suite_measure
from jbias.runs import costs, workdirs
from jbias.runtime import console, mesh, messages

# Of one measure: its options, shapes, memory. Others may be made.
_OWN_FAULT = (ValueError, MemoryError, errors.FlaxError, jax.errors.JaxRuntimeError)
_ALONE = {
    "agreement": "not made: the algorithm answers in its own way, in its run's precision"
}
_LETTERS = 500  # Of a fault: allocators print tables.


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
    # A set's measures follow one another.
    order = list(asked.sources)
    tasks = sorted(asked.tasks(), key=lambda task: order.index(task.dataset))
    if "train" in {task.dataset for task in tasks} and (
        differing := _otherwise(subject, asked)
    ):
        say(f"{subject.name}: {differing}")
    with findings.claimed(folder, subject, asked):
        left = [
            task for task in tasks if not findings.is_done(folder, subject, task, asked)
        ]
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
    return messages.one_line(error)[:_LETTERS] or type(error).__name__


def _line(error: BaseException) -> str:
    """What went wrong with a measure, and what needs less where memory lacks."""
    told = line(error)
    short = isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in told
    return f"{told}; --suite.run.batch=N with less at once" if short else told


def _otherwise(subject: subjects.Subject, asked: suite.Suite) -> str:
    """How the set `train` of a suite is another than a run was trained on, or ""."""
    own = subject.about.get("config", {}).get("train", {})
    given = asked.config["sets"]["train"]
    keys = ("data", "split", "drop", "keep") if own else ()
    differing = [
        f"{key} {own.get(key, '')!r}, shown {given.get(key, '')!r}"
        for key in keys
        if own.get(key, "") != given.get(key, "")
    ]
    return f"trained on {'; '.join(differing)}" if differing else ""


def _measure(subject, asked, folder, tasks, say, refuse) -> None:
    """Measures what is left, and keeps each at once; what cannot be is refused."""
    prepared, foreign, faults = {}, [], []
    for dataset, whole in dict.fromkeys(_images(asked, task) for task in tasks):
        try:
            given = shown.prepare(subject, asked, dataset, say, whole=whole)
            prepared[dataset, whole] = given
        except base.Mismatch:
            foreign.append(dataset)
        except _OWN_FAULT as error:
            faults.append(f"{dataset}: {line(error)}")
    if foreign:
        refuse(shown.foreign(subject, asked, list(dict.fromkeys(foreign))))
    for fault in dict.fromkeys(faults):
        refuse(fault)
    if not prepared:
        return
    devices = mesh.make(asked.run["devices"])
    network = subject.network(mesh.dtype(asked.run["precision"]))
    network = network._replace(variables=mesh.replicate(network.variables, devices))
    tasks = [task for task in tasks if _images(asked, task) in prepared]
    assumed = costs.parse_energy("suite.run.energy", asked.run["energy"])
    alone = _ALONE if _is_alone(subject, asked) else {}
    if alone:
        kind = jnp.dtype(subject.net.dtype)
        say(f"{subject.name}: answers in its own way in {kind}; agreement is not made")
    all_of = [prepared[_images(asked, task)] for task in tasks]
    total = sum(map(functools.partial(_asked, asked), tasks, all_of))
    known: dict[tuple, dict[str, decisions.Decisions]] = {}
    shared: dict[tuple, dict[str, str]] = {}  # Rules by which any of them decides.
    for task, given in zip(tasks, all_of, strict=True):
        if same := _same(asked, task, given):
            rules = _rules(task, given).values()
            shared.setdefault(same, {}).update(zip(rules, rules, strict=True))
    with console.count_images(say, subject.name, total) as (tell, aside):
        hears = tell, aside
        for task, whole in zip(tasks, all_of, strict=True):
            began = time.monotonic()
            given = shown.some(whole, task.measure.images)
            of = (subject, network, asked, task, given)
            images = _asked(asked, task, given)
            same = _same(asked, task, whole)
            again = same in known
            try:
                found = None
                if task.measure.inside:
                    with aside("looking inside"):
                        numbers = _looked(*of)
                else:
                    rules = _rules(task, given)
                    if same and not again:
                        known[same] = _decided(*of[1:], shared[same], devices, *hears)
                    if same:
                        found = {key: known[same][name] for key, name in rules.items()}
                    else:
                        found = _decided(*of[1:], rules, devices, *hears)
                    with aside("computing its numbers"):
                        numbers = asked.make_probe(*task, given.classes).numbers(found)
                        numbers += _agreement(*of, devices)
            except _OWN_FAULT as error:
                refuse(f"{task.name}: {_line(error)}")
                continue
            if task.measure.inside or again:
                tell(images, counted=False)
            if found and asked.run["decisions"]:
                findings.keep_decisions(folder, task, found)
            seconds = time.monotonic() - began
            # None where another measure of the set had asked for the same decisions.
            told = {"images": images, "seconds": None if again else round(seconds, 2)}
            if not again:
                told["cost"] = costs.estimate(
                    seconds, workdirs.billed_devices(devices), assumed
                )
            if not task.measure.inside:
                told["classes"] = given.classes
                told |= alone
            if task.dataset == "train" and (differing := _otherwise(subject, asked)):
                told["otherwise"] = differing  # No gap to tests is known of these.
            findings.keep(folder, subject, asked, task, numbers, told)
            words = brief.words(task.measure.probe, numbers)
            took = "decided before" if again else f"{seconds:.1f} s"
            unit = "images" if task.measure.inside else "answers"
            say(f"{subject.name}: {task.name}, {words} ({images} {unit}, {took})")


def _images(asked: suite.Suite, task: suite_measure.Task) -> tuple[str, bool]:
    """Which images a measure is of: the set, and whether without a right class, too."""
    return task.dataset, not task.measure.inside and asked.make_probe(
        *task
    ).include_unknown


def _same(
    asked: suite.Suite, task: suite_measure.Task, given: shown.Shown
) -> tuple | None:
    """What measures have in common that need the same answers; None: nobody else's."""
    if task.measure.inside:
        return None
    made = asked.make_probe(*task)
    if made.show is not probe.as_it_is or made.move or set(made.conditions) != {""}:
        return None
    return task.dataset, len(given.index), task.measure.images


def _rules(task: suite_measure.Task, given: shown.Shown) -> dict[str, str]:
    """By which rules answers are decisions, by what tells conditions apart.

    "" is the first. Others are the same as it where no class has several members.
    """
    first, *others = task.measure.aggregates
    own = {name: name for name in others if given.rules[name].matrix is not None}
    return {"": first, **own}


def _agreement(
    subject, network, asked, task: suite_measure.Task, given, devices
) -> list:
    """How often float32 answers as the network does, where that is another."""
    exact, count = subject.network(jnp.float32), asked.run["agree"]
    if not count or exact.apply is network.apply:
        return []
    exact = exact._replace(variables=network.variables)
    batches = shown.batches(asked, shown.some(given, count), devices)
    return show.agreement(
        network, exact, asked.make_probe(*task, given.classes), batches
    )


def _asked(asked: suite.Suite, task: suite_measure.Task, given: shown.Shown) -> int:
    """How many images a measure shows, under all its conditions."""
    n = min(len(given.index), task.measure.images or len(given.index))
    if task.measure.inside:
        return n
    return n * len(asked.make_probe(*task).conditions)


def _looked(
    subject, network, asked, task: suite_measure.Task, given: shown.Shown
) -> list:
    """What a measure finds inside the network."""
    images = given.images
    if isinstance(images, loader.EncodedImages):
        reading = loader.ReaderOptions(asked.run["threads"] or suite.cores())
        images = loader.LazyImages(images, reading)
    net = subject.net.clone(dtype=mesh.dtype(asked.run["precision"]))
    columns = {**given.columns, "index": given.index}
    look = suite_measure.inside(task.measure, given.classes)
    return look(net, network.variables, images, columns)


def _decided(
    network,
    asked,
    task: suite_measure.Task,
    given: shown.Shown,
    rules: Mapping[str, str],
    devices,
    tell: Callable[[int], None],
    compiling: Callable[[], contextlib.AbstractContextManager],
) -> dict[str, decisions.Decisions]:
    """The decisions by condition, under each of these rules."""
    made = asked.make_probe(*task, given.classes)
    shown.check(task.measure.probe, made, given)
    chosen = {key: given.rules[name] for key, name in rules.items()}
    chosen = {
        key: rule._replace(matrix=mesh.replicate(rule.matrix, devices))
        for key, rule in chosen.items()
    }
    batches = shown.batches(asked, given, devices)
    found = show.decide(network, made, batches, chosen, tell=tell, compiling=compiling)
    columns = {**given.columns, "index": given.index}
    return show.of(found, columns)


def _is_alone(subject, asked: suite.Suite) -> bool:
    """Whether float32 cannot answer beside it, though it computes in less."""
    exact = jnp.dtype(subject.net.dtype) == jnp.float32
    return bool(asked.run["agree"]) and not subject.is_plain and not exact
