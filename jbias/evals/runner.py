"""Evaluation of a network on a suite, whose finished measures are stored and not repeated.

Each network has a folder of results of its own:

    config.json  provenance.json  done
    evals/<measure>@<set>.jsonl            records, renamed into place when complete
    measures/<measure>@<set>.json          options, data, duration and classes of a measure
    decisions/<set>/<measure>.parquet      the network's decisions, by condition
    decisions/<set>/images.json            names of the set's images, if they have names
    underway/<measure>@<set>.npy           decisions of an unfinished measure

A run's workdir has the same layout, so that reports read both.
"""

import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from etils import epath

from jbias import config as jc
from jbias import errors, extensions
from jbias.data import config_sets, loader, sources
from jbias.evals import (
    decision_files,
    inference,
    journals,
    model_inputs,
    networks,
    registry,
    set_batches,
    suites,
)
from jbias.evals.activations import inside
from jbias.measures import counting, decisions
from jbias.runs import costs, results, workdirs
from jbias.runtime import console, files, mesh, messages, signals
from jbias.stimuli import shown

# The measure whose conditions do not begin with its name, as in the records of runs.
_PLAIN = "accuracy"
# Entries of config.json that, besides "run", identify a network.
_IDENTIFYING = ("train", "variant")
_SAME_CONFIDENCE = 1e-6  # Probabilities that differ by less, as by rounding, are equal.
_NO_AGREEMENT = "not made: the algorithm answers in its own way, in its run's precision"


# The folder of a network is <out>/<name>.
_OTHER_FOLDER = (
    "name another --out (out= in Python), or give a function or module another name "
    "(jbias measure --name=NAME, name= in Python)"
)


def run_suite(
    network: networks.Network,
    suite: suites.Suite,
    out: epath.Path,
    say: console.Say,
    *,
    has_all_measures: bool = True,
) -> list[str]:
    """Evaluate one network and write its results; return messages on failed measures and sets.

    Measures whose results are stored are skipped. out: the parent of the network's folder. say:
    called with lines for the user, including these messages. has_all_measures: whether these are
    all of the suite's measures; if so, the network is marked as done, unless a measure failed or a
    set is missing.
    ValueError if the folder has results of another network, or of a measure of the same name with
    other settings, or if another process evaluates there. After an interrupt, the journal has the
    decisions so far, and the next call continues from there.
    """
    evaluation = NetworkEvaluation(network, suite, out / network.name, say)
    # Keep the measures of a set together.
    order = list(suite.sources)
    tasks = sorted(suite.tasks(), key=lambda task: order.index(task.dataset))
    if "train" in {task.dataset for task in tasks}:
        difference = evaluation.describe_train_difference()
        if difference:
            say(f"{network.name}: {difference}")
    with evaluation.claim_folder():
        remaining = [task for task in tasks if not evaluation.is_done(task)]
        num_done = len(tasks) - len(remaining)
        if num_done:
            measures = "1 measure is" if num_done == 1 else f"{num_done} measures are"
            say(f"{network.name}: {measures} there already")
        evaluation.run(evaluation.prepare(remaining))
        if has_all_measures and not evaluation.failures and not suite.missing:
            (evaluation.folder / "done").touch()
    return evaluation.failures


def _describe_constant_answer(
    by_condition: decisions.ByName, classes: Sequence[str]
) -> str:
    """Return a message if all decisions are the same, with the same probability; else "".

    Probabilities may differ by _SAME_CONFIDENCE. "" also for fewer than two decisions, or if a
    probability is not finite. by_condition: decisions under all conditions and rules. classes: names by
    class id.
    """
    all_decisions = by_condition.values()
    predictions = np.concatenate([decided.prediction for decided in all_decisions])
    confidence = np.concatenate(
        [decided.columns.get("confidence", [np.nan]) for decided in all_decisions]
    )
    if len(predictions) < 2 or len({*predictions.tolist()}) > 1:
        return ""
    if not np.isfinite(confidence).all() or np.ptp(confidence) > _SAME_CONFIDENCE:
        return ""
    return (
        f"note: answers all {len(predictions):,} images alike, class "
        f"{classes[predictions[0]]!r} with probability {confidence[0]:.4g}; check its "
        "weights and preprocessing"
    )


def _constant_class(by_condition: decisions.ByName, classes: Sequence[str]) -> str:
    """Return the name of the class that all unchanged images are decided as, or "".

    classes: names by class id. "" if there are several classes or no condition "", if its images
    have a single label, or if all of them are undecided.
    """
    unchanged = by_condition.get("")
    if unchanged is None or len(np.unique(unchanged.columns.get("label", ()))) < 2:
        return ""
    decided = np.unique(unchanged.prediction)
    is_constant = len(decided) == 1 and decided[0] != inference.UNDECIDED
    return classes[decided[0]] if is_constant else ""


class _Job(NamedTuple):
    """A measure to run, and the prepared images of its set."""

    task: suites.Task
    prepared: set_batches.PreparedSet
    num_images: int  # Shown images, counted once per condition.
    # Rules that turn answers into decisions, by the suffix of a condition's name; "" is the
    # first rule. Rules that equal the first, because no class has several members, are left
    # out.
    rules: Mapping[str, str]
    ranked: Mapping[str, str]  # See counting.Counting.
    looks_inside: bool  # Whether the measure reads activations instead of decisions.
    # Equal for measures that need the same network outputs; None: outputs are not shared.
    shared_key: tuple | None


class _Shared(NamedTuple):
    """All decision rules and rank columns of the measures that share network outputs."""

    rules: dict[str, str]  # See _Job.
    ranked: dict[str, str]  # See counting.Counting.


class _Findings(NamedTuple):
    """The numbers of a measure and the decisions that they were computed from."""

    numbers: decisions.Numbers
    decisions: decisions.ByName | None  # None for a measure of activations.
    earlier_seconds: (
        float  # Time of the answers that an earlier, stopped call computed.
    )


@dataclasses.dataclass(frozen=True, eq=False)
class NetworkEvaluation:
    """The evaluation of one network on one suite: preparation of sets, measures and results.

    folder: the folder of the network's results. say: called with lines for the user. failures:
    messages on measures that failed.
    """

    network: networks.Network
    suite: suites.Suite
    folder: epath.Path
    say: console.Say
    failures: list[str] = dataclasses.field(default_factory=list)

    def report_failure(self, reason: str) -> None:
        """Add a message, without the network's name, to `failures` and print it."""
        self.failures.append(reason)
        self.say(f"not measured: {self.network.name}: {reason}")

    @contextlib.contextmanager
    def claim_folder(self) -> Iterator[None]:
        """Return a context that locks the network's folder and writes its config and provenance.

        ValueError if the folder has results of another network or files of another program, if
        it is a file, if its name is not a valid one, or if another process has locked it.
        """
        network, folder = self.network, self.folder
        errors.check_folder_name("a network's name", network.name)
        fields, identity = network.fields, networks.identity(network)
        extra_fields = {
            key: value for key, value in network.about.items() if key != "path"
        }
        config = jc.to_dict(
            {
                "algorithm": fields["algorithm"],
                "variant": fields["variant"],
                "model": {"name": fields["model"]},
                "train": {"data": fields["train_data"]},
                **extra_fields,
                "seeds": [fields["seed"]],
                "run": {**identity, "path": str(network.about.get("path", ""))},
            }
        )
        if folder.exists() and not folder.is_dir():
            must = "must be a folder of measures, is a file"
            raise ValueError(f"{folder}: {must}; {_OTHER_FOLDER}")
        expected = {**identity, **{key: config[key] for key in _IDENTIFYING}}
        self._check_same_network(expected)
        folder.mkdir(parents=True, exist_ok=True)
        with workdirs.claim_evaluation(folder):
            # Another process may have written to the folder meanwhile.
            self._check_same_network(expected)
            files.write(folder / "config.json", json.dumps(config, indent=1) + "\n")
            stored = workdirs.provenance(folder)
            provenance = self._merge_provenance(stored) | workdirs.environment()
            files.write(folder / "provenance.json", json.dumps(provenance, indent=1))
            yield

    def _check_same_network(self, expected: Mapping[str, Any]) -> None:
        """Raise ValueError if the folder has results of another network.

        expected: entries of this network's config.json that identify it. A folder without
        results passes, unless its config.json or provenance.json is from another program; so
        does a folder with results but no config.json.
        """
        path = self.folder / "config.json"
        has_answers = any(
            True
            for pattern in ("evals/*", "underway/*")
            for _ in self.folder.glob(pattern)
        )
        if not has_answers:
            self._check_written_by_us()
        if has_answers and path.exists():
            config = files.read_json(path, dict, "restore it or name another --out")
            stored = {
                **config.get("run", {}),
                **{key: config.get(key) for key in _IDENTIFYING},
            }
            differing = jc.diff({key: stored.get(key) for key in expected}, expected)
            if differing and self.network.fields["model"] == "decisions":
                raise ValueError(
                    f"{self.folder}: holds measures of other decisions under this name; the file "
                    f"{self.network.about.get('path', '')} has changed since, or another file has "
                    "this name: name another --out, or remove this folder (then != now: "
                    f"{messages.join_differences(differing)})"
                )
            if differing:
                raise ValueError(
                    f"{self.folder}: holds measures of another network (then != now): "
                    f"{messages.join_differences(differing)}; {_OTHER_FOLDER}"
                )

    def _check_written_by_us(self) -> None:
        """Raise ValueError if config.json or provenance.json is not from this program.

        A config.json from this program has the keys "run" and "seeds". A provenance.json must be
        in the same folder as such a config.json.
        """
        config = self.folder / "config.json"
        is_foreign = not config.exists() and (self.folder / "provenance.json").exists()
        if config.exists():
            try:
                tree = json.loads(config.read_text("utf-8"))
            except (OSError, ValueError, RecursionError):
                tree = None
            is_foreign = (
                not isinstance(tree, dict) or not {"run", "seeds"} <= tree.keys()
            )
        if is_foreign:
            raise ValueError(
                f"{self.folder}: has a config.json or provenance.json that jbias did not "
                f"write; {_OTHER_FOLDER}"
            )

    def _merge_provenance(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Return the provenance of this call merged with that of earlier calls.

        Keys: "data" (sets, with the short side of image files that are smaller than the suite's
        size as "enlarged_from"), "missing" (reasons by set or task) and "suite" (config). stored:
        the provenance of earlier calls; entries of this call replace stored entries of the same
        name, and sets that are open now are no longer missing. Measures that --only leaves out are
        not added.
        """
        old_suite, config = stored.get("suite", {}), self.suite.config
        data = {
            name: config_sets.describe(source)
            for name, source in self.suite.sources.items()
        }
        for name, source in self.suite.sources.items():
            pixels = model_inputs.enlarged_sides(source, self.suite.size)
            if pixels:
                data[name]["enlarged_from"] = pixels
        used_names = {measure.name for measure in self.suite.measures}
        measures = {
            name: options
            for name, options in config["measures"].items()
            if name in used_names
        }
        missing = {**stored.get("missing", {}), **self.suite.missing}
        return {
            "data": {**stored.get("data", {}), **data},
            "missing": {
                name: reason for name, reason in missing.items() if name not in data
            },
            "suite": {
                **config,
                "sets": {**old_suite.get("sets", {}), **config["sets"]},
                "measures": {**old_suite.get("measures", {}), **measures},
            },
        }

    def is_done(self, task: suites.Task) -> bool:
        """Return True if a task's results are stored.

        ValueError if the results have other settings, or if their settings cannot be read.
        """
        if not (self.folder / "evals" / f"{task.name}.jsonl").exists():
            return False
        path = self.folder / "measures" / f"{task.name}.json"
        remedy = f"restore it, or delete evals/{task.name}.jsonl to measure again"
        stored = files.read_json(path, dict, remedy)
        measure = stored.get("measure", {})
        # Stored options may name defaults: such a measure is the same.
        if "options" in measure:
            probe_name = measure.get("probe", "")
            options = suites.changed_options(probe_name, measure["options"])
            stored["measure"] = {**measure, "options": options}
        expected = self.describe(task)
        differing = jc.diff({key: stored.get(key) for key in expected}, expected)
        if differing:
            raise ValueError(
                f"{self.folder}: {task.name} was measured with other settings (then != now): "
                f"{messages.join_differences(differing)}; name another --out, or the "
                "measure differently"
            )
        return True

    def describe(self, task: suites.Task) -> dict[str, Any]:
        """Return the settings of a task that are stored with its results.

        Keys: "measure" (Measure.description), "precision" (name of a dtype) and "dataset"
        (fingerprint, number of images, preprocessing, and how classes are mapped); and, if they
        apply, "own_code" (digests of the user's files), "read" (digest of files that the probe
        read) and "images" (number of decisions, for a probe with include_unknown).
        """
        suite, measure = self.suite, task.measure
        source = suite.sources[task.dataset]
        built = suite.make_probe(measure, task.dataset)
        description: dict[str, Any] = {"measure": measure.description}
        set_options = suite.config["sets"][task.dataset]
        own_names = [] if measure.probe in registry.PROBES else [measure.probe]
        code = extensions.digests([description["measure"], set_options], own_names)
        if code:
            description["own_code"] = code
        is_inside = isinstance(built, inside.Inside)
        if not is_inside and built.digest:
            description["read"] = built.digest
        if suites.includes_unknown(built):
            conditions = suites.conditions(built)
            # All images that have a class, whether the network knows it or not.
            is_shown = np.asarray(source.columns["label"]) >= 0
            answered = self.network.answered(task.dataset, conditions)
            if answered is not None:
                is_shown = is_shown & answered
            count = int(is_shown.sum())
            per_condition = min(count, measure.images or count)
            description["images"] = per_condition * len(conditions)
        dtype = suite.dtype
        if not is_inside:
            dtype = self.network.dtype(suite.dtype)
        description["precision"] = str(jnp.dtype(dtype))
        dataset = {}
        if measure.others:
            dataset["others"] = suite.sources[measure.others].fingerprint
        dataset["fingerprint"] = source.fingerprint
        dataset["n"] = len(source)
        dataset["preprocessing"] = source.preprocessing
        if "measures" in set_options:
            dataset["measures"] = source.measures
        description["dataset"] = dataset | config_sets.class_map_options(set_options)
        return description

    def describe_train_difference(self) -> str:
        """Return a phrase on how the suite's set `train` differs from the run's training set.

        The options "data", "split", "drop" and "keep" are compared. "" if they are equal, or if
        the network is not from a run trained here.
        """
        trained_on = self.network.about.get("config", {}).get("train", {})
        if not trained_on:
            return ""
        shown_options = self.suite.config["sets"]["train"]
        differing = [
            f"{key} {trained_on.get(key, '')!r}, shown {shown_options.get(key, '')!r}"
            for key in ("data", "split", "drop", "keep")
            if trained_on.get(key, "") != shown_options.get(key, "")
        ]
        return f"trained on {'; '.join(differing)}" if differing else ""

    def prepare(self, tasks: Sequence[suites.Task]) -> list[_Job]:
        """Return the jobs of the tasks whose set can be prepared, in the order of the tasks.

        Other sets are reported as failures: one failure for all sets of which the network has no
        class, and one failure for each further set.
        """
        probes, set_requests = [], []
        measures: dict[set_batches.SetRequest, list[str]] = {}
        for task in tasks:
            built = self.suite.make_probe(task.measure, task.dataset)
            keeps_unknown = suites.includes_unknown(built)
            request = set_batches.SetRequest(task.dataset, keeps_unknown)
            probes.append(built)
            set_requests.append(request)
            measures.setdefault(request, []).append(task.measure.name)
        prepared, faults = set_batches.prepare_all(
            self.network, self.suite, measures, self.say, networks.MEASURE_ERRORS
        )
        for fault in faults:
            self.report_failure(fault)
        return [
            self._make_job(task, built, prepared[request])
            for task, built, request in zip(tasks, probes, set_requests, strict=True)
            if request in prepared
        ]

    def _make_job(
        self,
        task: suites.Task,
        built: suites.Built,
        prepared: set_batches.PreparedSet,
    ) -> _Job:
        """Return the job of a task with its probe and prepared set.

        Images are left out for which a table of decisions lacks a row under a condition of the
        probe.
        """
        max_images = task.measure.images
        conditions = suites.conditions(built)
        answerable = set_batches.answered(prepared, self.network, conditions)
        n = len(answerable.index)
        first_rule, *more_rules = task.measure.aggregates
        rules = {"": first_rule}
        for rule in more_rules:
            if answerable.rules[rule].matrix is not None:
                rules[rule] = rule
        is_counting = isinstance(built, counting.Counting)
        return _Job(
            task=task,
            prepared=answerable,
            num_images=min(n, max_images or n) * len(conditions),
            rules=rules,
            ranked=dict(built.ranked) if is_counting else {},
            looks_inside=isinstance(built, inside.Inside),
            shared_key=(task.dataset, n, max_images) if is_counting else None,
        )

    def run(self, jobs: Sequence[_Job]) -> None:
        """Run measures one after the other and store their results; failures are reported.

        Measures that need the same decisions share them. errors.NotFiniteError if a weight of the
        network is NaN or infinite.
        """
        if not jobs:
            return
        network, suite, say = self.network, self.suite, self.say
        bound = network.bind(suite.dtype, suite.devices)
        # An algorithm with its own `decide` may compute in a lower precision, whatever is
        # requested: then float32 cannot answer for comparison.
        exact_dtype, agreement_note = jnp.dtype(network.dtype(jnp.float32)), {}
        if suite.run["agree"] and exact_dtype != jnp.float32:
            agreement_note = {"agreement": _NO_AGREEMENT}
            say(
                f"{network.name}: answers in its own way in {exact_dtype}; agreement with "
                "float32 is not measured"
            )
        known: dict[tuple, decisions.ByName] = {}  # By shared key.
        shared: dict[tuple, _Shared] = {}
        for job in jobs:
            if job.shared_key:
                needs = shared.setdefault(job.shared_key, _Shared({}, {}))
                needs.rules.update({name: name for name in job.rules.values()})
                needs.ranked.update(job.ranked)
        total = sum(job.num_images for job in jobs)
        with console.count_images(say, network.name, total) as (advance, untimed):
            for job in jobs:
                start_time, is_known = time.monotonic(), job.shared_key in known
                try:
                    findings = self._measure(
                        job, bound, known, shared, advance=advance, untimed=untimed
                    )
                except networks.MEASURE_ERRORS as error:
                    signals.raise_interrupt(error)
                    self.report_failure(f"{job.task.name}: {self._explain(error)}")
                    continue
                seconds = time.monotonic() - start_time + findings.earlier_seconds
                details = self._details(
                    job, findings, None if is_known else seconds, agreement_note
                )
                self.store(
                    job.task,
                    findings.numbers,
                    findings.decisions if suite.run["decisions"] else None,
                    details,
                )
                duration = f"{seconds:.1f} s"
                if is_known:
                    duration = "shared with an earlier measure"
                self._say_numbers(job, findings.numbers, duration)

    def _details(
        self,
        job: _Job,
        findings: _Findings,
        seconds: float | None,
        agreement_note: Mapping[str, str],
    ) -> dict[str, Any]:
        """Return entries on duration, cost and classes, to store together with `describe`.

        Keys: "images" (their number) and "seconds", and, if they apply, "cost", "classes",
        "constant" (`_constant_class`), "otherwise" (`describe_train_difference`) and the key of
        agreement_note. seconds: duration; None, and then no "cost", if the decisions were already
        computed for another measure. agreement_note: an entry on agreement that cannot be measured,
        or empty.
        """
        details: dict[str, Any] = {"images": job.num_images, "seconds": None}
        if seconds is not None:
            assumptions = costs.parse_energy(
                "suite.run.energy", self.suite.run["energy"]
            )
            details["seconds"] = round(seconds, 2)
            num_devices = workdirs.billed_devices(self.suite.devices)
            details["cost"] = costs.estimate(seconds, num_devices, assumptions)
        if not job.looks_inside:
            classes = job.prepared.classes
            details["classes"] = classes
            details |= agreement_note
            constant = _constant_class(findings.decisions, classes)
            if constant:
                details["constant"] = constant
        if job.task.dataset == "train":
            difference = self.describe_train_difference()
            if difference:
                # Reports then show no gap between training and test images.
                details["otherwise"] = difference
        return details

    def _say_numbers(
        self, job: _Job, numbers: decisions.Numbers, duration: str
    ) -> None:
        """Print "<network>: <measure>@<set>, <main numbers> (<n> answers, <duration>)".

        n: the number of decisions; a probe of activations prints "<n> images". duration: text such
        as "3.1 s".
        """
        summary = registry.summarize(job.task.measure.probe, numbers)
        unit = "images" if job.looks_inside else "answers"
        self.say(
            f"{self.network.name}: {job.task.name}, {summary} ({job.num_images} {unit}, "
            f"{duration})"
        )

    def _explain(self, error: BaseException) -> str:
        """Return one line of text: the reason why a measure failed, and a remedy if known.

        Remedies are a smaller batch if memory was lacking, and float32 if numbers were not finite
        in a lower precision.
        """
        reason = networks.describe_error(error)
        if messages.lacks_memory(error):
            return f"{reason}; --suite.run.batch=N with less at once"
        if isinstance(error, errors.NotFiniteError):
            dtype = jnp.dtype(self.network.dtype(self.suite.dtype))
            if dtype != jnp.float32:
                remedy = "measure it by --suite.run.precision=float32"
                return f"{reason}, in {dtype}; {remedy}"
        return reason

    def _measure(
        self,
        job: _Job,
        bound: inference.BoundNetwork,
        known: dict[tuple, decisions.ByName],
        shared: Mapping[tuple, _Shared],
        *,
        advance: Callable[..., None],
        untimed: Callable[..., contextlib.AbstractContextManager],
    ) -> _Findings:
        """Return the numbers of a measure, by running the network if that is necessary.

        known: decisions by `_Job.shared_key`, which is equal for measures that need the same
        outputs of the network; new decisions are added. shared: by the same key, the decision
        rules and ranks that these measures need together. advance, untimed: functions from
        console.count_images.
        """
        task, is_known = job.task, job.shared_key in known
        prepared = set_batches.subsample(job.prepared, task.measure.images)
        built = self.suite.make_probe(task.measure, task.dataset, prepared.classes)
        set_batches.check_needs(task.measure.probe, built, bound, prepared)
        columns = {**prepared.columns, "index": prepared.index}
        if isinstance(built, inside.Inside):
            images = prepared.images
            if isinstance(images, loader.EncodedImages):
                images = loader.LazyImages(images, self.suite.reader_options)
            with untimed("looking inside"):
                numbers = built.numbers(bound.net, bound.variables, images, columns)
            advance(job.num_images, counted=False)
            return _Findings(numbers, None, 0.0)
        shown_probe, earlier_seconds = suites.as_stimuli(built), 0.0
        if is_known:
            by_condition = known[job.shared_key]
        else:
            needs = _Shared(job.rules, job.ranked)
            if job.shared_key:
                needs = shared[job.shared_key]
            if not bound.graded:
                needs = _Shared(needs.rules, {})
            journal = self._open_journal(task, prepared, needs)
            earlier_seconds = journal.seconds
            by_condition = self._decide(
                task,
                bound,
                shown_probe,
                prepared,
                needs,
                journal,
                advance=advance,
                untimed=untimed,
            )
        if job.shared_key:
            known.setdefault(job.shared_key, by_condition)
            by_condition = {key: by_condition[name] for key, name in job.rules.items()}
        with untimed("computing its numbers"):
            numbers = shown_probe.numbers(by_condition)
            numbers = numbers + self._agreement(bound, shown_probe, prepared)
        if is_known:
            advance(job.num_images, counted=False)
        return _Findings(numbers, by_condition, earlier_seconds)

    def _decide(
        self,
        task: suites.Task,
        bound: inference.BoundNetwork,
        shown_probe: shown.Stimuli,
        prepared: set_batches.PreparedSet,
        needs: _Shared,
        journal: journals.Journal,
        *,
        advance: Callable[..., None],
        untimed: Callable[..., contextlib.AbstractContextManager],
    ) -> decisions.ByName:
        """Return the network's decisions about a prepared set, by "condition rule".

        Prints a note if all decisions are the same. needs: the rules and ranks to compute.
        journal: see inference.run_probe. advance, untimed: functions from console.count_images.
        """
        rules = {}
        for suffix, name in needs.rules.items():
            rule = prepared.rules[name]
            matrix = mesh.replicate(rule.matrix, self.suite.devices)
            rules[suffix] = rule._replace(matrix=matrix)
        answers = inference.run_probe(
            bound,
            shown_probe,
            set_batches.device_batches(self.suite, prepared, needs.ranked),
            rules,
            tell=advance,
            compiling=untimed,
            journal=journal,
            classes=len(self.network.classes),
        )
        columns = {**prepared.columns, "index": prepared.index}
        by_condition = inference.to_decisions(answers, columns)
        note = _describe_constant_answer(by_condition, prepared.classes)
        if note:
            self.say(f"{self.network.name}: {task.name}: {note}")
        return by_condition

    def _open_journal(
        self,
        task: suites.Task,
        prepared: set_batches.PreparedSet,
        needs: _Shared,
    ) -> journals.Journal:
        """Return the journal of a task, with the decisions of an earlier, stopped call, if any.

        Decisions with other settings, rules or batches are not used.
        """
        inputs = [
            self.describe(task),
            needs.rules,
            set_batches.batch_size(self.suite, prepared),
        ]
        if needs.ranked:
            inputs.append(needs.ranked)
        inputs += [self.network.name, len(prepared.index)]
        identity = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()
        return journals.Journal(self._journal_path(task), identity)

    def _write_names(self, dataset: str) -> None:
        """Write the names of a set's images, in their order, into the network's folder.

        The column "index" of decisions is a place in this list. Nothing is written for a set whose
        images have no names.
        """
        source = self.suite.sources[dataset]
        has_files = isinstance(source, sources.ArraySource | sources.EncodedSource)
        if has_files and source.files:
            path = self.folder / "decisions" / dataset / decision_files.NAMES
            files.write(path, json.dumps(source.files))

    def _journal_path(self, task: suites.Task) -> epath.Path:
        """Return the path of a task's journal."""
        return self.folder / "underway" / f"{task.name}.npy"

    def _agreement(
        self,
        bound: inference.BoundNetwork,
        shown_probe: shown.Stimuli,
        prepared: set_batches.PreparedSet,
    ) -> decisions.Numbers:
        """Return the agreement of the network with itself in float32; see inference.agreement.

        It is measured on suite.run["agree"] images. [] if that number is 0, or if the network
        computes in the same precision when float32 is requested.
        """
        count, devices = self.suite.run["agree"], self.suite.devices
        exact_dtype = self.network.dtype(jnp.float32)
        own_dtype = self.network.dtype(self.suite.dtype)
        if not count or jnp.dtype(exact_dtype) == jnp.dtype(own_dtype):
            return []
        few = set_batches.subsample(prepared, count)
        batches = set_batches.device_batches(self.suite, few)
        exact = self.network.bind(exact_dtype, devices)
        return inference.agreement(bound, exact, shown_probe, batches)

    def store(
        self,
        task: suites.Task,
        numbers: decisions.Numbers,
        by_condition: decisions.ByName | None,
        details: Mapping[str, Any],
    ) -> None:
        """Write a task's decisions, description and, last, records, which mark the task as done.

        numbers: the numbers for the records. by_condition: decisions; None to write none.
        details: entries that are added to the description. The task's journal is deleted.
        """
        if by_condition:
            path = self.folder / "decisions" / task.dataset
            path = path / f"{task.measure.name}.parquet"
            decision_files.write_conditions(path, by_condition)
            self._write_names(task.dataset)
        description = self.describe(task)
        description |= details
        description["environment"] = workdirs.environment()
        description["ended"] = messages.utc_now()
        path = self.folder / "measures" / f"{task.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, json.dumps(description, indent=1))
        fields = {**self.network.fields, "dataset": task.dataset}
        prefix = "" if task.measure.name == _PLAIN else task.measure.name
        records = []
        for number in numbers:
            condition = "/".join(filter(None, (prefix, number.condition)))
            values = number._replace(condition=condition)._asdict()
            records.append(results.Record(**fields, **values))
        results.write(self.folder / "evals" / f"{task.name}.jsonl", records)
        journals.remove(self._journal_path(task))
