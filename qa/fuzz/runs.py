"""Malformed folders of runs, for `jbias report --status`."""

import json
import pathlib

from hypothesis import strategies as st

from jbias.report import status as report_status
from jbias.runs import status
from qa.fuzz import attempts, mutations, records

_FILES = (
    "config.json",
    "progress.json",
    "log.txt",
    "lock",
    "evals/20.jsonl",
    "stopped.json",
    "done",
)
_RUNS = {"failed", "padain", "stopped"}
_LOG = (
    "2026-01-01 00:00:00 epoch 1.00/2, step 10/20, 1.50 steps/s, ETA 00:10, loss 0.3\n"
    "2026-01-01 00:00:10 jbias: disk: full; empty it\n"
)


def write_inputs(folder: pathlib.Path) -> None:
    """Write three runs: one finished, one failed, and one stopped by a sweep."""
    records.write_inputs(folder)
    (folder / "erm").rename(folder / "stopped")
    for name in ("padain", "stopped"):
        (folder / name / "log.txt").write_text(_LOG)
        (folder / name / "lock").write_text("host 7 2026-01-01\n")
        heartbeat = status.Heartbeat(folder / name, print)
        heartbeat.update(
            "stepping",
            devices="1 cpu",
            log_seconds=10.0,
            step=12,
            total=20,
            rate=1.5,
            images=96.0,
            eta_seconds=5.0,
        )
    (folder / "stopped/done").unlink()
    _write_failed_run(folder / "failed")
    (folder / "stopped/stopped.json").write_text(json.dumps({"reason": "too low"}))


def _write_failed_run(workdir: pathlib.Path) -> None:
    """Write a run that failed before its first step."""
    workdir.mkdir()
    (workdir / "log.txt").write_text(_LOG)
    (workdir / "lock").touch()


@st.composite
def runs(draw: st.DrawFn, folder: pathlib.Path, out: pathlib.Path) -> attempts.Case:
    """Draw a file of a run with other bytes, or with another value in its JSON."""
    paths = [
        path
        for path in sorted(folder.glob("*/**/*"))
        if path.is_file() and str(path.relative_to(folder)).partition("/")[2] in _FILES
    ]
    path = draw(st.sampled_from(paths))
    data, words = path.read_bytes(), ""
    if path.suffix == ".json" and draw(st.integers(0, 2)):
        tree, words = draw(mutations.changed(json.loads(data)))
        data = mutations.to_json(tree)
    else:
        data = draw(mutations.edited(data))
    flags = draw(st.sampled_from(([], ["--json"])))
    file = str(path.relative_to(folder))
    argv = ("--status", f"--runs={folder}", *flags)
    return attempts.Case(f"{file} {words} {data!r:.80}", argv, file, data)


def find_error(case: attempts.Case) -> str:
    """Return an error in the status of the runs of a case, or ""."""
    folder = case.argv[1].partition("=")[2]
    rows = report_status.rows([folder])
    listed = json.loads(report_status.as_json(rows), parse_constant=lambda word: word)
    runs = listed["runs"]
    if {pathlib.Path(run["workdir"]).name for run in runs} != _RUNS:
        return f"not all runs are listed: {listed}"
    not_finite = [
        run for run in runs if {"NaN", "Infinity"} & {*map(str, run.values())}
    ]
    return f"a value is not a finite number: {not_finite[0]}" if not_finite else ""
