"""Malformed folders of runs, for `python -m jbias.report --status`."""

import json
import pathlib

from hypothesis import strategies as st

from benchmarks.fuzz import attempts, mutations, records
from jbias.report import status as report_status
from jbias.runs import status

_FILES = (
    *("config.json", "progress.json", "log.txt", "lock", "evals/20.jsonl"),
    *("stopped.json", "done"),
)
_RUNS = {"failed", "padain", "stopped"}
_LOG = (
    "2026-01-01 00:00:00 epoch 1.00/2, step 10/20, 1.50 steps/s, ETA 00:10, loss 0.3\n"
    "2026-01-01 00:00:10 jbias: disk: full; empty it\n"
)


def made(folder: pathlib.Path) -> None:
    """Three runs: done, failed, and stopped by a search."""
    records.made(folder)
    (folder / "erm").rename(folder / "stopped")
    for name in ("padain", "stopped"):
        (folder / name / "log.txt").write_text(_LOG)
        (folder / name / "lock").write_text("host 7 2026-01-01\n")
        sign = status.Heartbeat(folder / name, print)
        told = dict(step=12, total=20, rate=1.5, images=96.0, eta_seconds=5.0)
        sign.update("stepping", devices="1 cpu", log_seconds=10.0, **told)
    (folder / "stopped/done").unlink()
    _failed(folder / "failed")
    (folder / "stopped/stopped.json").write_text(json.dumps({"reason": "too low"}))


def _failed(workdir: pathlib.Path) -> None:
    workdir.mkdir()
    (workdir / "log.txt").write_text(_LOG)
    (workdir / "lock").touch()


@st.composite
def runs(draw: st.DrawFn, folder: pathlib.Path, out: pathlib.Path) -> attempts.Case:
    """One file of a run with other bytes, or another value in its JSON."""
    held = [p for p in sorted(folder.glob("*/**/*")) if p.is_file()]
    held = [p for p in held if str(p.relative_to(folder)).partition("/")[2] in _FILES]
    path = draw(st.sampled_from(held))
    data, words = path.read_bytes(), ""
    if path.suffix == ".json" and draw(st.integers(0, 2)):
        tree, words = draw(mutations.changed(json.loads(data)))
        data = mutations.dumped(tree)
    else:
        data = draw(mutations.edited(data))
    more = draw(st.sampled_from(([], ["--json"])))
    file = str(path.relative_to(folder))
    argv = ("--status", f"--runs={folder}", *more)
    return attempts.Case(f"{file} {words} {data!r:.80}", argv, file, data)


def wrong(case: attempts.Case) -> str:
    """What is wrong with what was told of the runs; "" where nothing is."""
    folder = case.argv[1].partition("=")[2]
    rows = report_status.rows([folder])
    told = json.loads(report_status.as_json(rows), parse_constant=lambda word: word)
    if {pathlib.Path(one["workdir"]).name for one in told["runs"]} != _RUNS:
        return f"not all runs are told of: {told}"
    odd = [
        one for one in told["runs"] if {"NaN", "Infinity"} & {*map(str, one.values())}
    ]
    return f"a number is none: {odd[0]}" if odd else ""
