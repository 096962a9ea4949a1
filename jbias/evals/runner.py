"""Measures networks by a suite, one after the other; what is done is never done again.

Results lie in a folder that belongs to one network alone:

    config.json  provenance.json  done
    evals/<measure>@<set>.jsonl            records, renamed into place when complete
    measures/<measure>@<set>.json          by which options, on what, how fast, among what
    decisions/<set>/<measure>.parquet      what it decided, by condition
    underway/<measure>@<set>.npy           what it answered so far, until that is stored

as in a run's workdir, so that report reads both.
"""

import contextlib
import dataclasses
import hashlib
import json
import operator
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from etils import epath

from jbias import config as jc
from jbias import extensions
from jbias.data import loader, splits
from jbias.evals import (
    decisions,
    inference,
    journals,
    networks,
    prepared_sets,
    probe,
    probe_registry,
    suites,
)
from jbias.runs import costs, results, workdirs
from jbias.runtime import console, files, mesh, messages, signals

# Its records have no measure's name among their conditions: a run's own look the same.
_PLAIN = "accuracy"
_NAMED = ("train", "variant")  # Of a network's config.json: another is another network.
_SAME_CONFIDENCE = 1e-6  # Probabilities that differ by less, as by rounding, are equal.
_NO_AGREEMENT = "not made: the algorithm answers in its own way, in its run's precision"


# The folder of a network is <out>/<name>.
_OTHER_FOLDER = (
    "name another --out (out= in Python), or give a function or module another name "
    "(jbias measure --name=NAME, name= in Python)"
)


def run_suite(
    network: networks.Network, asked: suites.Suite, out: epath.Path, say, *, whole=True
) -> list[str]:
    """Measures one network; says and returns what could not be, and why, a line each.

    `whole`: whether these are all measures, so that it is done then. ValueError where the
    folder holds another network, or a measure of the same name with other options.
    """
    one = Measuring(network, asked, out / network.name, say)
    # A set's measures follow one another.
    order = list(asked.sources)
    tasks = sorted(asked.tasks(), key=lambda task: order.index(task.dataset))
    if "train" in {task.dataset for task in tasks} and one.otherwise():
        say(f"{network.name}: {one.otherwise()}")
    with one.claim_folder():
        left = [task for task in tasks if not one.is_done(task)]
        if count := len(tasks) - len(left):
            told = "1 measure is" if count == 1 else f"{count} measures are"
            say(f"{network.name}: {told} there already")
        one.run(one.prepare(left))
        if whole and not one.refused and not asked.missing:
            (one.folder / "done").touch()
    return one.refused


def _constant_answer(found: decisions.ByName, classes: Sequence[str]) -> str:
    """Return a note on a network that answers all images alike; "" where it does not.

    It does where every image, under all conditions, has the same decided class with the
    same probability, as where the logits do not depend on the image.
    """
    predictions = np.concatenate([one.prediction for one in found.values()])
    probable = [one.columns.get("confidence", [np.nan]) for one in found.values()]
    confidence = np.concatenate(probable)
    if len(predictions) < 2 or len({*predictions.tolist()}) > 1:
        return ""
    if not np.ptp(confidence) <= _SAME_CONFIDENCE:  # Nor where one is NaN.
        return ""
    return (
        f"note: answers all {len(predictions):,} images alike, class "
        f"{classes[predictions[0]]!r} with probability {confidence[0]:.4g}; check its "
        "weights and preprocessing"
    )


def _constant_class(by_name: decisions.ByName, classes: Sequence[str]) -> str:
    """Return the class that all unchanged images of several classes are called, or ""."""
    unchanged = by_name.get("")
    if unchanged is None or len(np.unique(unchanged.columns.get("label", ()))) < 2:
        return ""
    decided = np.unique(unchanged.prediction)
    is_constant = len(decided) == 1 and decided[0] != inference.UNDECIDED
    return classes[decided[0]] if is_constant else ""


class _Job(NamedTuple):
    """A measure that is to be made, and the images of a set that it may show."""

    task: suites.Task
    whole: prepared_sets.PreparedSet
    images: int  # So many it shows, under all its conditions.
    # By which rules answers are decisions, by what tells conditions apart. "" is the
    # first. Others are the same as it where no class has several members.
    rules: Mapping[str, str]
    ranked: Mapping[str, str]  # Of the probe.
    # What measures have in common that need the same answers; None: nobody else's.
    same: tuple | None


@dataclasses.dataclass(frozen=True, eq=False)
class Measuring:
    """A network before a suite: its sets are prepared, measures run, findings stored."""

    network: networks.Network
    asked: suites.Suite
    folder: epath.Path
    say: probe.Say
    refused: list[str] = dataclasses.field(default_factory=list)

    def refuse(self, why: str) -> None:
        self.refused.append(why)
        self.say(f"not measured: {self.network.name}: {why}")

    @contextlib.contextmanager
    def claim_folder(self) -> Iterator[None]:
        """Holds the network's folder for this process; ValueError where it is another's."""
        network, folder = self.network, self.folder
        jc.check_folder_name("a network's name", network.name)
        fields, own = network.fields, networks.identity(network)
        about = {key: value for key, value in network.about.items() if key != "path"}
        made_by = {key: fields[key] for key in ("algorithm", "variant")}
        made_by["model"] = {"name": fields["model"]}
        made_by["train"] = {"data": fields["train_data"]}
        run = {**own, "path": str(network.about.get("path", ""))}
        whole = {**made_by, **about, "seeds": [fields["seed"]], "run": run}
        whole = jc.to_dict(whole)
        if folder.exists() and not folder.is_dir():
            must = "must be a folder of measures, is a file"
            raise ValueError(f"{folder}: {must}; {_OTHER_FOLDER}")
        now = {**own, **{key: whole[key] for key in _NAMED}}
        self._check_same(now)
        folder.mkdir(parents=True, exist_ok=True)
        with workdirs.claim_evaluation(folder):
            self._check_same(now)  # Another process may have been here.
            files.write(folder / "config.json", json.dumps(whole, indent=1) + "\n")
            facts = self._known(workdirs.provenance(folder)) | workdirs.environment()
            files.write(folder / "provenance.json", json.dumps(facts, indent=1))
            yield

    def _check_same(self, now: Mapping[str, Any]) -> None:
        """Refuses a folder of another network; one without an answer is anybody's."""
        held = self.folder / "config.json"
        kept = ("evals/*", "underway/*")
        begun = any(path for each in kept for path in self.folder.glob(each))
        if not begun:
            self._check_own()
        if begun and held.exists():
            before = files.read_json(held, dict, "restore it or name another --out")
            before = {**before.get("run", {}), **{k: before.get(k) for k in _NAMED}}
            if differing := jc.diff({key: before.get(key) for key in now}, now):
                raise ValueError(
                    f"{self.folder}: holds measures of another network (then != now): "
                    f"{messages.join_differences(differing)}; {_OTHER_FOLDER}"
                )

    def _check_own(self) -> None:
        """Raise ValueError where config.json or provenance.json is of somebody else."""
        config = self.folder / "config.json"
        foreign = not config.exists() and (self.folder / "provenance.json").exists()
        if config.exists():
            try:
                tree = json.loads(config.read_text("utf-8"))
            except (OSError, ValueError, RecursionError):
                tree = None
            foreign = not isinstance(tree, dict) or not {"run", "seeds"} <= tree.keys()
        if foreign:
            raise ValueError(
                f"{self.folder}: has a config.json or provenance.json that jbias did not "
                f"write; {_OTHER_FOLDER}"
            )

    def _known(self, before: dict[str, Any]) -> dict[str, Any]:
        """The sets of all calls for a network, what lacked and what was asked for.

        Of the same name the latest counts. What --only leaves out nobody asked for.
        """
        old, config = before.get("suite", {}), self.asked.config
        now = {name: splits.describe(one) for name, one in self.asked.sources.items()}
        mine = {one.name for one in self.asked.measures}
        mine = {key: one for key, one in config["measures"].items() if key in mine}
        missing = {**before.get("missing", {}), **self.asked.missing}
        return {
            "data": {**before.get("data", {}), **now},
            "missing": {name: why for name, why in missing.items() if name not in now},
            "suite": {
                **config,
                "sets": {**old.get("sets", {}), **config["sets"]},
                "measures": {**old.get("measures", {}), **mine},
            },
        }

    def is_done(self, task: suites.Task) -> bool:
        """Whether a measure is there; ValueError where it was made in another way."""
        if not (self.folder / "evals" / f"{task.name}.jsonl").exists():
            return False
        path = self.folder / "measures" / f"{task.name}.json"
        remedy = f"restore it, or delete evals/{task.name}.jsonl to measure again"
        held = files.read_json(path, dict, remedy)
        # What is as usual may have been said, and is the same measure.
        if "options" in (before := held.get("measure", {})):
            options = suites.unusual_options(before.get("probe", ""), before["options"])
            held["measure"] = {**before, "options": options}
        now = self.describe(task)
        if differing := jc.diff({key: held.get(key) for key in now}, now):
            raise ValueError(
                f"{self.folder}: {task.name} was measured otherwise (then != now): "
                f"{messages.join_differences(differing)}; name another --out, or the measure differently"
            )
        return True

    def describe(self, task: suites.Task) -> dict[str, Any]:
        """How a measure is made, on what, and what it computes in."""
        asked, measure = self.asked, task.measure
        source, made, counted = asked.sources[task.dataset], asked.make_probe(*task), {}
        if made.include_unknown:
            # Of all that have a class, whatever the network's are.
            known = np.asarray(source.columns["label"]) >= 0
            answered = self.network.answered(task.dataset, made.conditions)
            n = int((known if answered is None else known & answered).sum())
            counted = {"images": min(n, measure.images or n) * len(made.conditions)}
        dtype = asked.dtype if made.inside else self.network.dtype(asked.dtype)
        others = measure.others and asked.sources[measure.others].fingerprint
        told, options = measure.description, asked.config["sets"][task.dataset]
        names = [measure.probe] if measure.probe not in suites.MAKERS else []
        code = extensions.digests([told, options], names)
        return {
            "measure": told,
            **({"own_code": code} if code else {}),
            **({"read": made.digest} if made.digest else {}),
            **counted,
            "precision": str(jnp.dtype(dtype)),
            "dataset": {
                **({"others": others} if others else {}),
                "fingerprint": source.fingerprint,
                "n": len(source),
                "preprocessing": source.preprocessing,
                **({"measures": source.measures} if "measures" in options else {}),
                **splits.class_map_options(options),
            },
        }

    def otherwise(self) -> str:
        """How the set `train` of a suite is another than a run was trained on, or ""."""
        own = self.network.about.get("config", {}).get("train", {})
        given = self.asked.config["sets"]["train"]
        differing = [
            f"{key} {own.get(key, '')!r}, shown {given.get(key, '')!r}"
            for key in (("data", "split", "drop", "keep") if own else ())
            if own.get(key, "") != given.get(key, "")
        ]
        return f"trained on {'; '.join(differing)}" if differing else ""

    def prepare(self, tasks: Sequence[suites.Task]) -> list[_Job]:
        """Prepares the sets of measures; those without one are refused."""
        jobs, all_made = [], [self.asked.make_probe(*task) for task in tasks]
        wanted = [(t.dataset, made.include_unknown) for t, made in zip(tasks, all_made)]
        measures: dict[prepared_sets.Wanted, list[str]] = {}
        for task, key in zip(tasks, wanted, strict=True):
            measures.setdefault(key, []).append(task.measure.name)
        of = self.network, self.asked, measures, self.say
        prepared, faults = prepared_sets.prepare_all(*of, networks.MEASURE_ERRORS)
        for fault in faults:
            self.refuse(fault)
        for task, made, of in zip(tasks, all_made, wanted, strict=True):
            if of not in prepared:
                continue
            most = task.measure.images
            whole = prepared_sets.answered(prepared[of], self.network, made.conditions)
            n = len(whole.index)
            first, *others = task.measure.aggregates
            own = {x: x for x in others if whole.rules[x].matrix is not None}
            plain = made.show is probe.identity and not made.move and not made.inside
            alone = not plain or {*made.conditions} != {""}
            same = None if alone else (task.dataset, n, most)
            images = min(n, most or n) * len(made.conditions)
            of = {"": first, **own}, dict(made.ranked), same
            jobs.append(_Job(task, whole, images, *of))
        return jobs

    def run(self, jobs: Sequence[_Job]) -> None:
        """Makes measures one after the other, stores them, and refuses what cannot be."""
        if not jobs:
            return
        network, asked, say = self.network, self.asked, self.say
        bound = network.bind(asked.dtype, asked.devices)
        assumed = costs.parse_energy("suite.run.energy", asked.run["energy"])
        # An algorithm of its own that computes in less: float32 cannot answer beside it.
        kind, alone = jnp.dtype(network.dtype(jnp.float32)), {}
        if asked.run["agree"] and kind != jnp.float32:
            alone = {"agreement": _NO_AGREEMENT}
            own = f"answers in its own way in {kind}"
            say(f"{network.name}: {own}; agreement is not made")
        known: dict[tuple, dict[str, decisions.Decisions]] = {}
        # Rules by which any of them decides, and what any of them ranks.
        shared: dict[tuple, tuple[dict[str, str], dict[str, str]]] = {}
        for job in filter(operator.attrgetter("same"), jobs):
            rules, ranked = shared.setdefault(job.same, ({}, {}))
            rules |= {name: name for name in job.rules.values()}
            ranked |= job.ranked
        total = sum(job.images for job in jobs)
        with console.count_images(say, network.name, total) as hears:
            for job in jobs:
                task, began, again = job.task, time.monotonic(), job.same in known
                try:
                    of = job, bound, known, shared, *hears
                    numbers, found, earlier = self._find(*of)
                except networks.MEASURE_ERRORS as error:
                    signals.raise_interrupt(error)
                    self.refuse(f"{task.name}: {self._explain(error)}")
                    continue
                seconds = time.monotonic() - began + earlier
                # None where another measure of the set had asked for the same decisions.
                told = {"images": job.images, "seconds": None}
                if not again:
                    told["seconds"] = round(seconds, 2)
                    devices = workdirs.billed_devices(asked.devices)
                    told["cost"] = costs.estimate(seconds, devices, assumed)
                if not task.measure.inside:
                    told |= {"classes": job.whole.classes, **alone}
                    constant = _constant_class(found, job.whole.classes)
                    told |= {"constant": constant} if constant else {}
                if task.dataset == "train" and (differing := self.otherwise()):
                    told["otherwise"] = differing  # No gap to tests is known of these.
                self.store(task, numbers, asked.run["decisions"] and found, told)
                words = probe_registry.summarize(task.measure.probe, numbers)
                took = "decided before" if again else f"{seconds:.1f} s"
                unit = "images" if task.measure.inside else "answers"
                of = f"{network.name}: {task.name}"
                say(f"{of}, {words} ({job.images} {unit}, {took})")

    def _explain(self, error: BaseException) -> str:
        """Return in one line why a measure failed, and what may help."""
        why = networks.describe_error(error)
        if messages.lacks_memory(error):
            return f"{why}; --suite.run.batch=N with less at once"
        if isinstance(error, probe.NotFiniteError):
            dtype = jnp.dtype(self.network.dtype(self.asked.dtype))
            if dtype != jnp.float32:
                remedy = "measure it by --suite.run.precision=float32"
                return f"{why}, in {dtype}; {remedy}"
        return why

    def _find(self, job: _Job, bound, known, shared, tell, aside) -> tuple:
        """A measure's numbers, and the decisions that it counts; others know them, too.

        And the seconds that answers took which it had before it was stopped.
        """
        task, same, again, found = job.task, job.same, job.same in known, None
        earlier = 0.0
        given = prepared_sets.subsample(job.whole, task.measure.images)
        made = self.asked.make_probe(*task, given.classes)
        prepared_sets.check_needs(task.measure.probe, made, bound, given)
        columns = {**given.columns, "index": given.index}
        if made.inside:
            images = given.images
            if isinstance(images, loader.EncodedImages):
                images = loader.LazyImages(images, self.asked.reading)
            with aside("looking inside"):
                numbers = made.numbers(bound.net, bound.variables, images, columns)
        else:
            if not again:
                both = shared[same] if same else (job.rules, job.ranked)
                rules, ranked = both if bound.graded else (both[0], {})
                journal = self._journal(task, given, rules, ranked)
                earlier = journal.seconds
                by = {}
                for key, name in rules.items():
                    rule = given.rules[name]
                    matrix = mesh.replicate(rule.matrix, self.asked.devices)
                    by[key] = rule._replace(matrix=matrix)
                batches = prepared_sets.device_batches(self.asked, given, ranked)
                found = inference.run_probe(
                    bound,
                    made,
                    batches,
                    by,
                    tell=tell,
                    compiling=aside,
                    journal=journal,
                    classes=len(self.network.classes),
                )
                found = inference.to_decisions(found, columns)
                if note := _constant_answer(found, given.classes):
                    self.say(f"{self.network.name}: {task.name}: {note}")
            if same:
                known.setdefault(same, found)
                found = {key: known[same][name] for key, name in job.rules.items()}
            with aside("computing its numbers"):
                numbers = made.numbers(found) + self._agreement(bound, made, given)
        if made.inside or again:
            tell(job.images, counted=False)
        return numbers, found, earlier

    def _journal(self, task: suites.Task, given, rules, ranked) -> journals.Journal:
        """The answers that a measure got before it was stopped, and place for more."""
        asked = self.describe(task), rules, prepared_sets.batch_size(self.asked, given)
        asked += (ranked,) * bool(ranked)
        text = json.dumps([*asked, self.network.name, len(given.index)])
        of = hashlib.sha256(text.encode()).hexdigest()
        return journals.Journal(self._underway(task), of)

    def _underway(self, task: suites.Task) -> epath.Path:
        return self.folder / "underway" / f"{task.name}.npy"

    def _agreement(self, bound, made, given) -> decisions.Numbers:
        """How often float32 answers as the network does, where that is another."""
        count, devices = self.asked.run["agree"], self.asked.devices
        exact, own = map(self.network.dtype, (jnp.float32, self.asked.dtype))
        if not count or jnp.dtype(exact) == jnp.dtype(own):
            return []
        few = prepared_sets.subsample(given, count)
        batches = prepared_sets.device_batches(self.asked, few)
        other = self.network.bind(exact, devices)
        return inference.agreement(bound, other, made, batches)

    def store(self, task: suites.Task, numbers, decided, told: Mapping) -> None:
        """Writes decisions, then how they were made, then records, which say it is done.

        decided: to be kept, if any. told: what else is told of the measure.
        """
        if decided:
            path = self.folder / "decisions" / task.dataset
            path = path / f"{task.measure.name}.parquet"
            decisions.write_conditions(path, decided)
        told = self.describe(task) | told | {"environment": workdirs.environment()}
        path = self.folder / "measures" / f"{task.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, json.dumps(told, indent=1))
        own = {**self.network.fields, "dataset": task.dataset}
        prefix = "" if task.measure.name == _PLAIN else task.measure.name
        records = []
        for one in numbers:
            condition = "/".join(filter(None, (prefix, one.condition)))
            number = one._replace(condition=condition)._asdict()
            records.append(results.Record(**own, **number))
        results.write(self.folder / "evals" / f"{task.name}.jsonl", records)
        journals.remove(self._underway(task))
