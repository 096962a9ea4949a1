"""Measures networks by a suite, one after the other; what is done is never done again.

Results lie in a folder that belongs to one network alone:

    config.json  provenance.json  done
    evals/<measure>@<set>.jsonl            records, renamed into place when complete
    measures/<measure>@<set>.json          by which options, on what, how fast, among what
    decisions/<set>/<measure>.parquet      what it decided, by condition

as in a run's workdir, so that report reads both.
"""

import contextlib
import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from etils import epath

from jbias import config as jc
from jbias.data import loader, splits
from jbias.evals import (
    decisions,
    networks,
    predict,
    prepared_sets,
    probe,
    probes,
    suite,
)
from jbias.runs import costs, results, workdirs
from jbias.runtime import console, files, mesh

# Its records have no measure's name among their conditions: a run's own look the same.
_PLAIN = "accuracy"


@contextlib.contextmanager
def claim_folder(folder: epath.Path, subject, asked: suite.Suite) -> Iterator[None]:
    """Holds a network's folder for this process; ValueError where it is another's."""
    if subject.name in ("", ".", "..") or {"/", "\\"} & set(subject.name):
        raise ValueError(
            f"{subject.name}: a network's name must be that of a folder; correct what its "
            "config.json says"
        )
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
        whole = files.read_json(held, dict, "restore it or name another --out")
        how = {"train": whole.get("train"), "variant": whole.get("variant")}
        before = {**whole.get("run", {}), **how}
        now = {**subject.identity, **{key: jc.to_dict(identity)[key] for key in how}}
        differing = jc.diff({key: before.get(key) for key in now}, now)
        if differing:
            raise ValueError(
                f"{folder}: holds measures of another network (then != now): "
                f"{'; '.join(differing)}; name another --out"
            )
    folder.mkdir(parents=True, exist_ok=True)
    with workdirs.claim_evaluation(folder):
        files.write(held, json.dumps(jc.to_dict(identity), indent=1) + "\n")
        facts = {**_known(asked, workdirs.provenance(folder)), **workdirs.environment()}
        files.write(folder / "provenance.json", json.dumps(facts, indent=1))
        yield


def _known(asked: suite.Suite, before: dict[str, Any]) -> dict[str, Any]:
    """The sets of all calls for a network, what lacked and what was asked for.

    Of the same name the latest counts. What --only leaves out nobody asked for.
    """
    old, missing = before.get("suite", {}), before.get("missing", {})
    now = {name: splits.describe(one) for name, one in asked.sources.items()}
    mine = {one.name for one in asked.measures}
    mine = {k: one for k, one in asked.config["measures"].items() if k in mine}
    entries = {
        key: {**old.get(key, {}), **new}
        for key, new in (("sets", asked.config["sets"]), ("measures", mine))
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


def is_done(folder: epath.Path, subject, task: suite.Task, asked: suite.Suite) -> bool:
    """Whether a measure is there; ValueError where it was made in another way."""
    if not (folder / "evals" / f"{task.name}.jsonl").exists():
        return False
    path = folder / "measures" / f"{task.name}.json"
    remedy = f"restore it, or delete evals/{task.name}.jsonl to measure again"
    held = files.read_json(path, dict, remedy)
    # What is as usual may have been said, and is the same measure.
    if "options" in (before := held.get("measure", {})):
        options = suite.unusual_options(before.get("probe", ""), before["options"])
        held["measure"] = {**before, "options": options}
    now = _describe(task, asked, _precision(subject, task, asked))
    differing = jc.diff({key: held.get(key) for key in now}, now)
    if differing:
        raise ValueError(
            f"{folder}: {task.name} was measured otherwise (then != now): "
            f"{'; '.join(differing)}; name another --out, or the measure differently"
        )
    return True


def write_records(folder, subject, asked, task: suite.Task, numbers, told) -> None:
    """Writes what a measure found: first how, then the records, which say it is done."""
    told = {
        **_describe(task, asked, _precision(subject, task, asked)),
        **told,
        "environment": workdirs.environment(),
    }
    path = folder / "measures" / f"{task.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, json.dumps(told, indent=1))
    prefix = "" if task.measure.name == _PLAIN else task.measure.name
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


def _describe(task: suite.Task, asked: suite.Suite, precision: str) -> dict[str, Any]:
    """How a measure is made, and on what."""
    source, others = asked.sources[task.dataset], task.measure.others
    beside = {"others": asked.sources[others].fingerprint} if others else {}
    made, counted = asked.make_probe(*task), {}
    if made.include_unknown:
        # Of all that have a class, whatever the network's are.
        n = int((np.asarray(source.columns["label"]) >= 0).sum())
        n = min(n, task.measure.images or n)
        counted = {"images": n * len(made.conditions)}
    return {
        "measure": task.measure.description,
        **({"read": made.digest} if made.digest else {}),
        **counted,
        "precision": precision,
        "dataset": {
            **beside,
            "fingerprint": source.fingerprint,
            "n": len(source),
            "preprocessing": source.preprocessing,
            **splits.class_map_options(asked.config["sets"][task.dataset]),
        },
    }


def _precision(subject, task: suite.Task, asked: suite.Suite) -> str:
    """What a measure computes in."""
    dtype = mesh.dtype(asked.run["precision"])
    return str(jnp.dtype(dtype if task.measure.inside else subject.dtype(dtype)))


_ALONE = {
    "agreement": "not made: the algorithm answers in its own way, in its run's precision"
}


def run_suite(
    subject: networks.Network,
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
    with claim_folder(folder, subject, asked):
        left = [task for task in tasks if not is_done(folder, subject, task, asked)]
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


def _line(error: BaseException) -> str:
    """What went wrong with a measure, and what needs less where memory lacks."""
    told = networks.describe_error(error)
    short = isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in told
    return f"{told}; --suite.run.batch=N with less at once" if short else told


def _otherwise(subject: networks.Network, asked: suite.Suite) -> str:
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
    prepared, faults = prepared_sets.prepare_all(
        subject,
        asked,
        [_images(asked, task) for task in tasks],
        say,
        networks.MEASURE_ERRORS,
    )
    for fault in faults:
        refuse(fault)
    if not prepared:
        return
    network = prepared_sets.place(subject, asked)
    tasks = [task for task in tasks if _images(asked, task) in prepared]
    assumed = costs.parse_energy("suite.run.energy", asked.run["energy"])
    # An algorithm of its own that computes in less: float32 cannot answer beside it.
    kind, alone = jnp.dtype(subject.net.dtype), {}
    if asked.run["agree"] and not subject.is_plain and kind != jnp.float32:
        alone = _ALONE
        say(f"{subject.name}: answers in its own way in {kind}; agreement is not made")
    all_of = [prepared[_images(asked, task)] for task in tasks]
    total = sum(map(functools.partial(_image_count, asked), tasks, all_of))
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
            given = prepared_sets.subsample(whole, task.measure.images)
            of = (subject, network, asked, task, given)
            images = _image_count(asked, task, given)
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
                        known[same] = _decided(*of[1:], shared[same], *hears)
                    if same:
                        found = {key: known[same][name] for key, name in rules.items()}
                    else:
                        found = _decided(*of[1:], rules, *hears)
                    with aside("computing its numbers"):
                        numbers = asked.make_probe(*task, given.classes).numbers(found)
                        numbers += _agreement(*of)
            except networks.MEASURE_ERRORS as error:
                refuse(f"{task.name}: {_line(error)}")
                continue
            if task.measure.inside or again:
                tell(images, counted=False)
            if found and asked.run["decisions"]:
                place = folder / "decisions" / task.dataset
                path = place / f"{task.measure.name}.parquet"
                decisions.write_conditions(path, found)
            seconds = time.monotonic() - began
            # None where another measure of the set had asked for the same decisions.
            told = {"images": images, "seconds": None if again else round(seconds, 2)}
            if not again:
                told["cost"] = costs.estimate(
                    seconds, workdirs.billed_devices(asked.devices), assumed
                )
            if not task.measure.inside:
                told["classes"] = given.classes
                told |= alone
            if task.dataset == "train" and (differing := _otherwise(subject, asked)):
                told["otherwise"] = differing  # No gap to tests is known of these.
            write_records(folder, subject, asked, task, numbers, told)
            words = probes.summarize(task.measure.probe, numbers)
            took = "decided before" if again else f"{seconds:.1f} s"
            unit = "images" if task.measure.inside else "answers"
            say(f"{subject.name}: {task.name}, {words} ({images} {unit}, {took})")


def _images(asked: suite.Suite, task: suite.Task) -> tuple[str, bool]:
    """Which images a measure is of: the set, and whether without a right class, too."""
    return task.dataset, asked.make_probe(*task).include_unknown


def _same(
    asked: suite.Suite, task: suite.Task, given: prepared_sets.PreparedSet
) -> tuple | None:
    """What measures have in common that need the same answers; None: nobody else's."""
    made = asked.make_probe(*task)
    plain = made.show is probe.identity and not made.move and not made.inside
    if not plain or set(made.conditions) != {""}:
        return None
    return task.dataset, len(given.index), task.measure.images


def _rules(task: suite.Task, given: prepared_sets.PreparedSet) -> dict[str, str]:
    """By which rules answers are decisions, by what tells conditions apart.

    "" is the first. Others are the same as it where no class has several members.
    """
    first, *others = task.measure.aggregates
    own = {name: name for name in others if given.rules[name].matrix is not None}
    return {"": first, **own}


def _agreement(subject, network, asked, task: suite.Task, given) -> list:
    """How often float32 answers as the network does, where that is another."""
    exact, count = subject.network(jnp.float32), asked.run["agree"]
    if not count or exact.apply is network.apply:
        return []
    exact = exact._replace(variables=network.variables)
    few = prepared_sets.subsample(given, count)
    batches = prepared_sets.device_batches(asked, few)
    return predict.agreement(
        network, exact, asked.make_probe(*task, given.classes), batches
    )


def _image_count(
    asked: suite.Suite, task: suite.Task, given: prepared_sets.PreparedSet
) -> int:
    """How many images a measure shows, under all its conditions."""
    n = min(len(given.index), task.measure.images or len(given.index))
    return n * len(asked.make_probe(*task).conditions)


def _looked(
    subject, network, asked, task: suite.Task, given: prepared_sets.PreparedSet
) -> list:
    """What a measure finds inside the network."""
    images = given.images
    if isinstance(images, loader.EncodedImages):
        images = loader.LazyImages(images, asked.reading)
    net = subject.net.clone(dtype=mesh.dtype(asked.run["precision"]))
    columns = {**given.columns, "index": given.index}
    look = asked.make_probe(*task, given.classes).numbers
    return look(net, network.variables, images, columns)


def _decided(
    network,
    asked,
    task: suite.Task,
    given: prepared_sets.PreparedSet,
    rules: Mapping[str, str],
    tell: Callable[[int], None],
    compiling: Callable[[], contextlib.AbstractContextManager],
) -> dict[str, decisions.Decisions]:
    """The decisions by condition, under each of these rules."""
    made = asked.make_probe(*task, given.classes)
    prepared_sets.check_gradients(task.measure.probe, made, given)
    chosen = {}
    for key, rule in ((key, given.rules[name]) for key, name in rules.items()):
        matrix = mesh.replicate(rule.matrix, asked.devices)
        chosen[key] = rule._replace(matrix=matrix)
    batches = prepared_sets.device_batches(asked, given)
    heard = dict(tell=tell, compiling=compiling)
    found = predict.run_probe(network, made, batches, chosen, **heard)
    return predict.to_decisions(found, {**given.columns, "index": given.index})
