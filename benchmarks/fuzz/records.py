"""Malformed records of runs, what lies beside them, and tables of scores."""

import csv
import io
import json
import math
import pathlib

import numpy as np
import pandas as pd
from hypothesis import strategies as st

from benchmarks.fuzz import attempts, mutations
from jbias.runs import results

_SETS = ("valid", "edge", "sketch")
_BESIDE = ("config.json", "provenance.json", "costs.json")


def made(folder: pathlib.Path) -> None:
    """Two runs of two seeds, two evaluations each; a table of scores, twice."""
    for number, name in enumerate(("erm", "padain")):
        _run(folder / name, name, number)
    (folder / "scores.csv").write_text(_table())
    pd.read_csv(io.StringIO(_table())).to_parquet(folder / "scores.parquet")


def _run(workdir: pathlib.Path, name: str, number: int) -> None:
    for step in (10, 20):
        rng = np.random.default_rng((number, step))
        found = []
        for seed, dataset in ((s, d) for s in (0, 1) for d in _SETS):
            count = int(rng.integers(30, 90))
            fields = dict(variant="", model="cnn", train_data="shapes", stage=0)
            record = results.Record(
                **dict(run=name, algorithm=name, **fields, seed=seed, step=step),
                **dict(epoch=step / 10, dataset=dataset, condition=""),
                **dict(metric="accuracy", value=count / 100, count=count, n=100),
            )
            found.append(record)
        results.write(workdir / "evals" / f"{step}.jsonl", found)
    config = {"algo": {"name": name}, "seeds": [0, 1], "train": {"data": "shapes"}}
    config["tests"] = {"edge": {"data": "shapes", "split": "edge"}}
    data = {d: {"n": 100, "fingerprint": d, "cite": "", "note": ""} for d in _SETS}
    start = dict(at="now", devices=2, device="cpu", watts=6.0, share=1.0, pue=1.0)
    start |= dict(source="rated", intensity=0.0, hours={"stepping": 0.1})
    total = dict(hours={"stepping": 0.1}, device_hours=0.1, energy_kwh=0.1)
    told = (
        config,
        {"data": data, "packages": {"jax": "0"}, "device": {"kind": "cpu"}},
        {"starts": [start], "total": {**total, "kg_co2e": None}},
    )
    for file, tree in zip(_BESIDE, told, strict=True):
        (workdir / file).write_text(json.dumps(tree))
    (workdir / "done").write_text("finished\n")


def _table() -> str:
    rng = np.random.default_rng(0)
    rows = ["algorithm,dataset,run,score,trained_on"]
    for algorithm, dataset, run in (
        (a, d, r) for a in ("ERM", "SagNet", "pAdaIN") for d in "xyz" for r in "01"
    ):
        rows.append(f"{algorithm},{dataset},{run},{rng.uniform(20, 90):.2f},no")
    return "\n".join([*rows, ""])


def _lines(draw: st.DrawFn, text: str) -> bytes:
    """JSON lines of which one has another value, or another key."""
    lines = text.splitlines()
    at = draw(st.integers(0, len(lines) - 1))
    tree, _ = draw(mutations.changed(json.loads(lines[at])))
    lines[at] = mutations.dumped(tree).decode()
    return "\n".join([*lines, ""]).encode()


@st.composite
def records(draw: st.DrawFn, folder: pathlib.Path, out: pathlib.Path) -> attempts.Case:
    """A file of records with other bytes, or one record with another value."""
    data = (folder / "erm/evals/20.jsonl").read_bytes()
    if draw(st.booleans()):
        data = draw(mutations.edited(data))
    else:
        data = _lines(draw, data.decode())
    argv = (f"--runs={folder}/erm", f"--runs={folder}/padain", f"--out={out}/page")
    return attempts.Case("erm/evals/20.jsonl", argv, "erm/evals/20.jsonl", data)


@st.composite
def beside(draw: st.DrawFn, folder: pathlib.Path, out: pathlib.Path) -> attempts.Case:
    """config.json, provenance.json or costs.json of a run, for a report."""
    file = f"erm/{draw(st.sampled_from(_BESIDE))}"
    data = (folder / file).read_bytes()
    words = file
    if draw(st.integers(0, 3)):
        tree, words = draw(mutations.changed(json.loads(data)))
        data = mutations.dumped(tree)
    else:
        data = draw(mutations.edited(data))
    argv = (f"--runs={folder}/erm", f"--runs={folder}/padain", f"--out={out}/page")
    argv = (*argv, "--datasets=edge")  # Too few to be tested, which takes seconds.
    return attempts.Case(f"{file} {words}", argv, file, data)


@st.composite
def scores(draw: st.DrawFn, folder: pathlib.Path, out: pathlib.Path) -> attempts.Case:
    """A table of scores, as CSV or Parquet, with other bytes or another field."""
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


def wrong_records(case: attempts.Case) -> str:
    """What is wrong with having read these bytes as records; "" where nothing is."""
    seen = set()
    for number, line in enumerate(case.data.decode().splitlines(), 1):
        pairs = json.loads(
            line, object_pairs_hook=list, parse_constant=lambda _: math.nan
        )
        fields = dict(pairs)
        if len(fields) < len(pairs):
            return f"line {number} has a field twice"
        if set(fields) != set(results.Record._fields):
            return f"line {number} has other fields"
        if any(type(v) is float and not math.isfinite(v) for v in fields.values()):
            return f"line {number} has a number that is not finite"
        key = tuple(fields[name] for name in results.KEY)
        if key in seen:
            return f"line {number} has a key again"
        seen.add(key)
    return ""


def wrong_scores(case: attempts.Case) -> str:
    """What is wrong with having read these bytes as scores; "" where nothing is."""
    if case.file.endswith(".parquet"):
        return ""
    text = case.data.decode("utf-8-sig")
    first = text.splitlines()[0]
    mark = max((",", ";", "\t"), key=first.count)
    head, *rows = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
    head = [name.strip().lower() for name in head]
    seen = set()
    for row in rows:
        if not any(field.strip() for field in row):
            continue
        fields = dict(zip(head, (field.strip() for field in row), strict=True))
        key = (fields["algorithm"], fields["dataset"], fields.get("run", ""))
        if key in seen:
            return f"{key} stands there twice"
        seen.add(key)
        if not math.isfinite(float(fields["score"])):
            return f"{key} has no finite score"
    return ""
