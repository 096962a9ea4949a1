"""What was found of a network, in its folder, which belongs to one network alone.

It holds

    config.json  provenance.json  done
    evals/<measure>@<set>.jsonl            records, renamed into place when whole
    measures/<measure>@<set>.json          by which options, on what, how fast, among what
    decisions/<set>/<measure>.parquet      what it decided, by condition

as a run's workdir does, so that report reads both.
"""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from etils import epath

from jbias import config as jc
from jbias.data import splits
from jbias.evals import decisions
from jbias.measure import suite, suite_measure
from jbias.runs import results, workdirs
from jbias.runtime import files, mesh

# Its records have no measure's name among their conditions: a run's own look the same.
_PLAIN = "accuracy"


@contextlib.contextmanager
def claimed(folder: epath.Path, subject, asked: suite.Suite) -> Iterator[None]:
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
        now = {**subject.identity, **{key: jc.plain(identity)[key] for key in how}}
        differing = jc.differing({key: before.get(key) for key in now}, now)
        if differing:
            raise ValueError(
                f"{folder}: holds measures of another network (then != now): "
                f"{'; '.join(differing)}; name another --out"
            )
    folder.mkdir(parents=True, exist_ok=True)
    with workdirs.claim_evaluation(folder):
        files.write(held, json.dumps(jc.plain(identity), indent=1) + "\n")
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


def is_done(
    folder: epath.Path, subject, task: suite_measure.Task, asked: suite.Suite
) -> bool:
    """Whether a measure is there; ValueError where it was made in another way."""
    if not (folder / "evals" / f"{task.name}.jsonl").exists():
        return False
    path = folder / "measures" / f"{task.name}.json"
    remedy = f"restore it, or delete evals/{task.name}.jsonl to measure again"
    held = files.read_json(path, dict, remedy)
    # What is as usual may have been said, and is the same measure.
    if "options" in (before := held.get("measure", {})):
        options = suite_measure.unusual(before.get("probe", ""), before["options"])
        held["measure"] = {**before, "options": options}
    now = _told(task, asked, _precision(subject, task, asked))
    differing = jc.differing({key: held.get(key) for key in now}, now)
    if differing:
        raise ValueError(
            f"{folder}: {task.name} was measured otherwise (then != now): "
            f"{'; '.join(differing)}; name another --out, or the measure differently"
        )
    return True


def keep(folder, subject, asked, task: suite_measure.Task, numbers, told) -> None:
    """Writes what a measure found: first how, then the records, which say it is done."""
    told = {
        **_told(task, asked, _precision(subject, task, asked)),
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


def keep_decisions(folder, task: suite_measure.Task, found) -> None:
    """Writes what the network decided, by condition."""
    path = folder / "decisions" / task.dataset / f"{task.measure.name}.parquet"
    decisions.write_conditions(path, found)


def _told(
    task: suite_measure.Task, asked: suite.Suite, precision: str
) -> dict[str, Any]:
    """How a measure is made, and on what."""
    source, others = asked.sources[task.dataset], task.measure.others
    beside = {"others": asked.sources[others].fingerprint} if others else {}
    made = None if task.measure.inside else asked.make_probe(*task)
    counted = {}
    if (
        made and made.include_unknown
    ):  # Of all that have a class, whatever the network's are.
        n = int((np.asarray(source.columns["label"]) >= 0).sum())
        n = min(n, task.measure.images or n)
        counted = {"images": n * len(made.conditions)}
    return {
        "measure": task.measure.description,
        **({"read": made.digest} if made and made.digest else {}),
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


def _precision(subject, task: suite_measure.Task, asked: suite.Suite) -> str:
    """What a measure computes in."""
    dtype = mesh.dtype(asked.run["precision"])
    return str(jnp.dtype(dtype if task.measure.inside else subject.dtype(dtype)))
