"""Reader of measured/NAME: the facts about a model, and its tables of decisions."""

import dataclasses
import datetime
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from jbias import errors
from jbias.answers import parsing, stimulus_names
from jbias.cards import asked, numbers, published, stimuli, tables, words
from jbias.data import class_maps
from jbias.data import tables as data_tables
from jbias.data.sets import geirhos
from jbias.evals import decision_files, measured
from jbias.measures import decisions
from jbias.runtime import files

_AGAIN = "measure the model again"
# By measure: the default options that its numbers depend on.
_OPTIONS: Mapping[str, Mapping[str, int]] = {
    numbers.SPECTRAL: {"draws": 1000, "seed": 0},
    numbers.BAND: {"draws": 1000, "seed": 0},
}
_MIN_DRAWS = 100  # As in card.schema.json: the ends of an interval of 95 % need them.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Results:
    """The facts about a measured model that its decisions do not tell.

    The mappings are entries of card.json. date: of the last measurement, in UTC. left_out: a line
    for each number that a card cannot have.
    """

    model: Mapping[str, Any]
    preprocessing: str
    date: str
    versions: Mapping[str, str]
    stimuli: Mapping[str, Mapping[str, Any]]  # By set.
    tables: tuple[tables.Table, ...]
    left_out: tuple[str, ...]


def read(path: str) -> Results:
    """Return the facts and decisions of a folder of results.

    ValueError if the folder lacks a file, if it has no decisions about cue conflicts, and if its
    records are not those of its decisions.
    """
    folder = pathlib.Path(path)
    config = files.read_json(folder / "config.json", dict, _AGAIN)
    provenance = files.read_json(folder / "provenance.json", dict, _AGAIN)
    described = {
        file.stem: files.read_json(file, dict, _AGAIN)
        for file in sorted((folder / "measures").glob("*.json"))
        if (folder / "evals" / f"{file.stem}.jsonl").exists()
    }
    card_tables, left_out = [], []
    for task, description in described.items():
        measure, _, dataset = task.partition("@")
        if measure == "accuracy" and f"shape_bias@{dataset}" in described:
            continue  # The same decisions.
        try:
            table = _table(folder, measure, dataset, description, provenance)
        except ValueError as error:
            left_out.append(str(error))
            continue
        if table is None:
            continue
        if f"human@{dataset}" in described and table.texture is not None:
            table, line = _with_people(table)
            left_out += [line] if line else []
        card_tables.append(table)
    card_tables.sort(key=lambda table: table.texture is None)  # Cue conflicts first.
    where = os.fspath(folder)
    has_cues = any(table.texture is not None for table in card_tables)
    must = "have decisions about cue conflicts, for the shape bias of a card"
    lacking = "; ".join(left_out) or "none"
    errors.check(has_cues, where, must, errors.Words(lacking))
    _check_records(folder, card_tables, left_out)
    card_tables, lines = words.add(card_tables, config.get("tables", ()))
    entries = _stimuli(card_tables, described, provenance, config)
    card_tables, entries = stimuli.rename_own(card_tables, entries)
    return Results(
        model=_model(folder.name, config),
        preprocessing=_preprocessing(config),
        date=_date(folder, described),
        versions=_versions(config, provenance),
        stimuli=entries,
        tables=tuple(card_tables),
        left_out=(*left_out, *lines),
    )


def _table(
    folder: pathlib.Path,
    measure: str,
    dataset: str,
    description: Mapping[str, Any],
    provenance: Mapping[str, Any],
) -> tables.Table | None:
    """Return the decisions of a measure on a set; None for a measure that cards do not have.

    description, provenance: content of the measure's file and of provenance.json. ValueError if the
    decisions are missing or cannot be used.
    """
    known = ("accuracy", "shape_bias", numbers.SPECTRAL, numbers.BAND)
    if measure not in known:
        return None
    path = folder / "decisions" / dataset / f"{measure}.parquet"
    must = "exist, because numbers are computed from decisions"
    if not path.exists():
        errors.refuse(os.fspath(path), must, remedy=_AGAIN)
    by_condition = {
        name: decided
        for name, decided in decision_files.read_conditions(path).items()
        if name.rpartition(" ")[2] not in class_maps.AGGREGATES
    }
    first = next(iter(by_condition.values()))
    classes = tuple(description["classes"])
    tables.check_class_names(dataset, classes)
    changes_images = measure in _OPTIONS
    options: dict[str, Any] = {}
    if changes_images:
        stored = description["measure"]["options"]
        options = {key: stored.get(key, x) for key, x in _OPTIONS[measure].items()}
        options["side"] = stored.get("side", provenance["suite"].get("size", 224))
        must = f"have at least {_MIN_DRAWS} draws of its bootstrap"
        where = f"{measure} on {dataset}"
        errors.check(options["draws"] >= _MIN_DRAWS, where, must, options["draws"])
    index = np.asarray(first.columns.get("index", np.arange(len(first.prediction))))
    texture = first.columns.get("texture") if measure == "shape_bias" else None
    label_names = _to_names(first.columns["label"], classes, "")
    texture_names = None if texture is None else _to_names(texture, classes, "")
    source = provenance["data"][dataset]["name"]
    names = _image_names(
        path.parent, source, index, label=label_names, texture=texture_names
    )
    names = names or _published(dataset, description, first, index, classes=classes)
    return tables.Table(
        dataset=dataset,
        measure=measure if changes_images else "",
        num_classes=len(classes),
        images=names
        or tuple(f"{number:0{tables.NUMBER_LENGTH}d}" for number in index.tolist()),
        label=label_names,
        texture=texture_names,
        decided={
            name: _to_names(decided.prediction, classes, tables.NO_ANSWER)
            for name, decided in by_condition.items()
        },
        options=options,
    )


def _to_names(
    ids: np.ndarray, classes: tuple[str, ...], unknown: str
) -> tuple[str, ...]:
    """Return class ids as names; negative ids are `unknown`."""
    return tuple(classes[i] if i >= 0 else unknown for i in np.asarray(ids).tolist())


def _image_names(
    folder: pathlib.Path,
    source: str,
    index: np.ndarray,
    *,
    label: tuple[str, ...],
    texture: tuple[str, ...] | None,
) -> tuple[str, ...]:
    """Return the names of images at `index`; () if they are unknown, or no names for a table.

    folder: of the set's decisions. source: name of the set. label, texture: of the images.
    Images of published sets have their published names.
    """
    path = folder / decision_files.NAMES
    if not path.exists():
        return ()
    names = files.read_json(path, list, _AGAIN)
    must = "have a name for each image of the decisions"
    is_whole = index.max(initial=-1) < len(names)
    errors.check(is_whole, os.fspath(path), must, len(names), _AGAIN)
    chosen = [str(names[i]) for i in index.tolist()]
    ids = [published.image_id(name) for name in chosen]
    if published.is_of(source, ids) and len({*ids}) == len(ids):
        return tuple(ids)
    chosen = [stimulus_names.plain_path(name) for name in chosen]
    is_readable = stimuli.are_readable(chosen, label, texture)
    return tuple(chosen) if is_readable else ()


def _published(
    dataset: str,
    description: Mapping[str, Any],
    decided: decisions.Decisions,
    index: np.ndarray,
    *,
    classes: tuple[str, ...],
) -> tuple[str, ...]:
    """Return the published names of images; () unless the set has the published cue conflicts.

    The classes of both cues and the pictures that images share must be those of the names.
    """
    names = data_tables.cue_conflicts()
    columns = ("texture", "shape_exemplar", "texture_exemplar")
    if description["dataset"]["n"] != len(names) or not {*columns} <= {
        *decided.columns
    }:
        return ()
    expected = geirhos.cues(dataset, names, geirhos.CLASSES)
    texture = np.array([*geirhos.CLASSES, ""])[expected.pop("texture")][index]
    own_texture = _to_names(decided.columns["texture"], classes, "")
    is_equal = all(
        known in (name, "") for known, name in zip(own_texture, texture.tolist())
    ) and all(
        np.array_equal(decided.columns[name], column[index])
        for name, column in expected.items()
    )
    return tuple(names[i] for i in index.tolist()) if is_equal else ()


def _with_people(table: tables.Table) -> tuple[tables.Table, str]:
    """Return the table with the digest of people's answers, or unchanged with the reason."""
    images = [name for name, label in zip(table.images, table.label) if label]
    try:
        digest = numbers.people_digest(images)
    except ValueError:
        return table, (
            f"error consistency on {table.dataset}: only the 1,280 published cue conflicts "
            "are compared with people's published answers"
        )
    return dataclasses.replace(table, options={numbers.PEOPLE: digest}), ""


def _check_records(
    folder: pathlib.Path, card_tables: list[tables.Table], left_out: list[str]
) -> None:
    """Raise ValueError if a number of the decisions is not that of the folder's records.

    If only error consistency differs, people's answers were others: the number is left out, with a
    line in left_out. card_tables, left_out: changed in place.
    """
    recorded = {
        (name, estimate.dataset): estimate
        for name, estimate in measured.read(folder).headlines()
    }
    computed = numbers.compute(card_tables)
    for number in computed:
        estimate = recorded.get((number.name, number.dataset))
        if estimate is None:
            line = f"{number.label} on {number.dataset}: has no record; {_AGAIN}"
            raise ValueError(f"{folder}: {line}")
        value = None if np.isnan(estimate) else float(estimate)
        if numbers.is_close(value, number.value) and estimate.n == number.n:
            continue
        if number.name == "error_consistency":
            left_out.append(
                f"error consistency on {number.dataset}: was measured with other answers of "
                "people than the published"
            )
            i = [table.file for table in card_tables].index(number.file)
            card_tables[i] = dataclasses.replace(card_tables[i], options={})
            continue
        raise ValueError(
            f"{folder}: {number.label} on {number.dataset} must be that of the decisions, "
            f"{number.value}, got {value} in the records; {_AGAIN}"
        )
    computed_keys = {(number.name, number.dataset) for number in computed}
    for name, dataset in recorded:
        is_by_shape = (
            name == "accuracy" and ("accuracy_shape", dataset) in computed_keys
        )
        if (name, dataset) not in computed_keys and not is_by_shape:
            label = measured.HEADLINES[name].label
            left_out.append(f"{label} on {dataset}: is not computed from decisions")


def _model(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of the model; config: content of config.json."""
    run = config.get("run", {})
    is_table = config.get("model", {}).get("name") == "decisions"
    is_run = "config" in config  # Trained by jbias: the seed is the network's.
    factors = config.get("factors", {})
    return {
        "name": name,
        "kind": "decisions" if is_table else "network",
        "file": os.path.basename(str(run.get("path", "")).rstrip("/")),
        "digest": str(run.get("digest", "")),
        "tables": {x["set"]: x["sha256"] for x in config.get("tables", ())},
        "task": factors.get("task", ""),
        "prompt": factors.get("prompt", ""),
        "seed": int(config["seeds"][0]) if is_run else None,
        "asked": _asked(config),
    }


def _asked(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the question of `jbias ask` of which a table has the answers; None for others.

    ValueError for a table beside a question whose answers it does not have.
    """
    digests = {
        str(entry.get("path", "")): str(entry.get("sha256", ""))
        for entry in config.get("tables", ())
    }
    for path, sha256 in digests.items():
        described = asked.describe(os.path.dirname(path))
        if described:
            must = "be the only table of a model, as it is beside its question"
            errors.check(len(digests) == 1, path, must, f"{len(digests)} tables")
            asked.check_table(path, sha256=sha256)
            return described
    return None


def _preprocessing(config: Mapping[str, Any]) -> str:
    """Return what happens to images between the set and the network, in words."""
    text = config.get("preprocessing", "")
    if text:
        return text
    run = config.get("run", {})
    if run.get("model") == "decisions":
        return "unknown: the model ran elsewhere"
    constants = [f"{key} {run[key]}" for key in ("mean", "std") if key in run]
    return ", ".join(constants) or "none beside that of the sets"


def _versions(
    config: Mapping[str, Any], provenance: Mapping[str, Any]
) -> dict[str, str]:
    """Return the versions of jbias that measured and of the parser of a model's words."""
    code = provenance.get("code", {})
    readers = sorted({x.get("reader", "") for x in config.get("tables", ())} - {""})
    has_parser = any(x.get("parser") for x in config.get("tables", ()))
    return {
        "jbias": str(code.get("version", "")),
        "commit": str(code.get("commit") or ""),
        "parser": parsing.VERSION if has_parser else "",
        "reader": ", ".join(readers),
    }


def _date(folder: pathlib.Path, described: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the time in UTC at which the last measure ended.

    Results of older versions have no time: then that of the newest file of records.
    """
    times = [x["ended"] for x in described.values() if "ended" in x]
    if len(times) == len(described):
        return max(times)
    newest = max(path.stat().st_mtime for path in (folder / "evals").glob("*.jsonl"))
    moment = datetime.datetime.fromtimestamp(newest, datetime.UTC)
    return moment.isoformat(timespec="seconds")


def _stimuli(
    card_tables: list[tables.Table],
    described: Mapping[str, Mapping[str, Any]],
    provenance: Mapping[str, Any],
    config: Mapping[str, Any],
) -> dict[str, dict[str, Any]]:
    """Return the sets of the tables by name."""
    files_by_set = {x["set"]: x["path"] for x in config.get("tables", ())}
    entries = {}
    for dataset in dict.fromkeys(table.dataset for table in card_tables):
        task = next(x for x in described if x.partition("@")[2] == dataset)
        source = described[task]["dataset"]
        of_set = [table for table in card_tables if table.dataset == dataset]
        options = provenance.get("suite", {}).get("sets", {}).get(dataset, {})
        described_set = provenance["data"][dataset]
        preprocessing = source["preprocessing"]
        if "enlarged_from" in described_set:
            pixels = described_set["enlarged_from"]
            preprocessing += f"; enlarged from files of {pixels} pixels"
        name = stimuli.name_of(
            described_set["name"],
            of_set,
            data=str(options.get("data", "")),
            root=str(options.get("root", "")),
            table=files_by_set.get(dataset, ""),
        )
        entries[dataset] = stimuli.describe(
            name,
            of_set,
            digest=source["fingerprint"],
            preprocessing=preprocessing,
        )
    return entries
