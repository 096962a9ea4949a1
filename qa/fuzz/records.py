"""Malformed records of runs, files next to them, and tables of scores."""

import csv
import io
import json
import math
import pathlib

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from jbias.runs import results
from qa.fuzz import attempts, mutations

_SETS = ("valid", "edge", "sketch")
_ADJACENT = ("config.json", "provenance.json", "costs.json")


def write_inputs(folder: pathlib.Path) -> None:
    """Write two runs of two seeds and two evaluations, and a table of scores twice."""
    for number, name in enumerate(("erm", "padain")):
        _write_run(folder / name, name, number)
    (folder / "scores.csv").write_text(_table())
    pd.read_csv(io.StringIO(_table())).to_parquet(folder / "scores.parquet")


def _write_run(workdir: pathlib.Path, name: str, number: int) -> None:
    """Write a finished run; number: seed of its scores."""
    for step in (10, 20):
        rng = np.random.default_rng((number, step))
        records = []
        for seed, dataset in ((s, d) for s in (0, 1) for d in _SETS):
            count = int(rng.integers(30, 90))
            record = results.Record(
                run=name,
                algorithm=name,
                variant="",
                model="cnn",
                train_data="shapes",
                stage=0,
                seed=seed,
                step=step,
                epoch=step / 10,
                dataset=dataset,
                condition="",
                metric="accuracy",
                value=count / 100,
                count=count,
                n=100,
            )
            records.append(record)
        results.write(workdir / "evals" / f"{step}.jsonl", records)
    config = {
        "algo": {"name": name},
        "seeds": [0, 1],
        "train": {"data": "shapes"},
        "tests": {"edge": {"data": "shapes", "split": "edge"}},
    }
    data = {d: {"n": 100, "fingerprint": d, "cite": "", "note": ""} for d in _SETS}
    provenance = {"data": data, "packages": {"jax": "0"}, "device": {"kind": "cpu"}}
    start = {
        "at": "now",
        "devices": 2,
        "device": "cpu",
        "watts": 6.0,
        "share": 1.0,
        "pue": 1.0,
        "source": "rated",
        "intensity": 0.0,
        "hours": {"stepping": 0.1},
    }
    total = {
        "hours": {"stepping": 0.1},
        "device_hours": 0.1,
        "energy_kwh": 0.1,
        "kg_co2e": None,
    }
    costs = {"starts": [start], "total": total}
    for file, tree in zip(_ADJACENT, (config, provenance, costs), strict=True):
        (workdir / file).write_text(json.dumps(tree))
    (workdir / "done").write_text("finished\n")


def _table() -> str:
    """Return a table of random scores as CSV."""
    rng = np.random.default_rng(0)
    rows = ["algorithm,dataset,run,score,trained_on"]
    for algorithm, dataset, run in (
        (a, d, r) for a in ("ERM", "SagNet", "pAdaIN") for d in "xyz" for r in "01"
    ):
        rows.append(f"{algorithm},{dataset},{run},{rng.uniform(20, 90):.2f},no")
    return "\n".join([*rows, ""])


def _change_a_line(draw: st.DrawFn, text: str) -> bytes:
    """Return JSON lines with another value or key in one line."""
    lines = text.splitlines()
    at = draw(st.integers(0, len(lines) - 1))
    tree, _ = draw(mutations.changed(json.loads(lines[at])))
    lines[at] = mutations.to_json(tree).decode()
    return "\n".join([*lines, ""]).encode()


@st.composite
def records(draw: st.DrawFn, folder: pathlib.Path, out: pathlib.Path) -> attempts.Case:
    """Draw a file of records with other bytes, or with another value in one record."""
    data = (folder / "erm/evals/20.jsonl").read_bytes()
    if draw(st.booleans()):
        data = draw(mutations.edited(data))
    else:
        data = _change_a_line(draw, data.decode())
    argv = (f"--runs={folder}/erm", f"--runs={folder}/padain", f"--out={out}/page")
    return attempts.Case("erm/evals/20.jsonl", argv, "erm/evals/20.jsonl", data)


@st.composite
def adjacent_files(
    draw: st.DrawFn, folder: pathlib.Path, out: pathlib.Path
) -> attempts.Case:
    """Draw a malformed config.json, provenance.json or costs.json of a run, for a report."""
    file = f"erm/{draw(st.sampled_from(_ADJACENT))}"
    data = (folder / file).read_bytes()
    words = file
    if draw(st.integers(0, 3)):
        tree, words = draw(mutations.changed(json.loads(data)))
        data = mutations.to_json(tree)
    else:
        data = draw(mutations.edited(data))
    argv = (f"--runs={folder}/erm", f"--runs={folder}/padain", f"--out={out}/page")
    # With one data set the report has no tests, which would take seconds.
    argv = (*argv, "--datasets=edge")
    return attempts.Case(f"{file} {words}", argv, file, data)


@st.composite
def scores(draw: st.DrawFn, folder: pathlib.Path, out: pathlib.Path) -> attempts.Case:
    """Draw a table of scores, as CSV or Parquet, with other bytes or another field."""
    file = draw(st.sampled_from(("scores.csv", "scores.csv", "scores.parquet")))
    data = (folder / file).read_bytes()
    if file == "scores.csv" and draw(st.booleans()):
        rows = list(csv.reader(io.StringIO(data.decode())))
        at = draw(st.integers(0, len(rows) - 1))
        rows[at][draw(st.integers(0, 4))] = draw(st.sampled_from(mutations.TEXTS))
        text = io.StringIO()
        csv.writer(text).writerows(rows)
        data = text.getvalue().encode()
    else:
        data = draw(mutations.edited(data))
    return attempts.Case(
        file, (f"--scores={folder}/{file}", f"--out={out}/page"), file, data
    )


def find_error_in_records(case: attempts.Case) -> str:
    """Return why the bytes of a case are no valid records, or ""."""
    keys = set()
    for number, line in enumerate(case.data.decode().splitlines(), 1):
        pairs = json.loads(
            line, object_pairs_hook=list, parse_constant=lambda _: math.nan
        )
        fields = dict(pairs)
        if len(fields) < len(pairs):
            return f"line {number} has a field twice"
        if set(fields) != set(results.Record._fields):
            return f"line {number} has wrong fields"
        if any(type(v) is float and not math.isfinite(v) for v in fields.values()):
            return f"line {number} has a number that is not finite"
        key = tuple(fields[name] for name in results.KEY)
        if key in keys:
            return f"line {number} repeats a key"
        keys.add(key)
    return ""


def find_error_in_scores(case: attempts.Case) -> str:
    """Return why the bytes of a case are no valid table of scores, or ""."""
    if case.file.endswith(".parquet"):
        return ""
    text = case.data.decode("utf-8-sig")
    first = text.splitlines()[0]
    delimiter = max((",", ";", "\t"), key=first.count)
    head, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    head = [name.strip().lower() for name in head]
    keys = set()
    for row in rows:
        if not any(field.strip() for field in row):
            continue
        fields = dict(zip(head, (field.strip() for field in row), strict=True))
        key = (fields["algorithm"], fields["dataset"], fields.get("run", ""))
        if key in keys:
            return f"{key} is in two rows"
        keys.add(key)
        if not math.isfinite(float(fields["score"])):
            return f"{key} has no finite score"
    return ""
