"""Runs whose files were damaged, and are then resumed or reported."""

import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

from qa.hostile import attempt

_MAIN = (
    "-m",
    "jbias.main",
    "--config=configs/erm.py:smoke,seeds=1",
    "--config.run.decisions=True",
    "--config.eval_every=1 step",
)
_REPORT = ("-m", "jbias.report", "--runs={root}/*", "--out={root}/../out")


@functools.cache
def _pristine() -> pathlib.Path:
    """Train a run with decisions, and return its workdir; cached in this process."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="hostile-"))
    command = [sys.executable, *_MAIN, f"--workdir={folder}/run"]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "run"


def _make_resumable(run: pathlib.Path) -> None:
    """Change a finished run to a run that was killed after its second to last checkpoint."""
    (run / "done").unlink()
    last = max(map(int, os.listdir(run / "checkpoints")))
    shutil.rmtree(run / "checkpoints" / str(last))


def _halve(path: pathlib.Path) -> None:
    """Cut a file to half of its bytes."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flip(path: pathlib.Path) -> None:
    """Change a bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 64
    path.write_bytes(data)


def _empty(path: pathlib.Path) -> None:
    """Delete the contents of a file."""
    path.write_bytes(b"")


def _swap(path: pathlib.Path) -> None:
    """Replace a file by that of another step: intact, but wrong."""
    other = next(p for p in sorted(path.parent.iterdir()) if p != path)
    shutil.copy(other, path)


def _grow(path: pathlib.Path) -> None:
    """Append a line feed to a file."""
    path.write_bytes(path.read_bytes() + b"\n")


def _direct(path: pathlib.Path) -> None:
    """Replace a file by a folder."""
    path.unlink()
    path.mkdir()


def _zero(path: pathlib.Path) -> None:
    """Replace all bytes of a file by zeros."""
    path.write_bytes(bytes(path.stat().st_size))


def _link(path: pathlib.Path) -> None:
    """Replace a file by a link to a missing file."""
    path.unlink()
    path.symlink_to("nowhere")


def _better(path: pathlib.Path) -> None:
    """Change the first accuracy to 99 %, but not its count."""
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        record = json.loads(line)
        if record["metric"] == "accuracy":
            lines[number] = json.dumps(record | {"value": 0.99})
            break
    path.write_text("\n".join([*lines, ""]))


def _shorter(path: pathlib.Path) -> None:
    """Delete the last record."""
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


_DAMAGE = (_halve, _flip, _empty, _swap, _grow, _zero, pathlib.Path.unlink)
_FILES = ("decisions/edge/{step}.parquet", "evals/{step}.jsonl")


def cases() -> Iterator[attempt.Case]:
    """Yield every damage of finished runs, of runs to resume, and of runs to report."""
    for damage in (*_DAMAGE, _direct, _link):
        for file in _FILES:
            for done in (True, False):
                yield _case(file, damage, done, _MAIN)
    for damage in (*_DAMAGE, _better, _shorter):
        yield _case("evals/{step}.jsonl", damage, True, _REPORT)
    for damage in (_better, _shorter):
        yield _case("evals/{step}.jsonl", damage, True, _MAIN)
        yield _case("evals/{step}.jsonl", damage, False, _MAIN)
    for damage in (_halve, _flip, _empty, pathlib.Path.unlink):
        for file in ("config.json", "provenance.json"):
            yield _case(file, damage, True, _MAIN)
            yield _case(file, damage, False, _MAIN)
            yield _case(file, damage, True, _REPORT)
    for name in ("decisions", "evals", "decisions/edge"):
        yield _case(name, shutil.rmtree, True, _MAIN)
        yield _case(name, shutil.rmtree, False, _MAIN)
    for name in ("traceback.txt", "log.txt", "lock", "progress.json", "costs.json"):
        yield _early(name)


def _case(file: str, damage: Callable, done: bool, command: tuple) -> attempt.Case:
    """Return an input with a damaged file of a run.

    file: path in the workdir, with {step} for the first step. done: False for a run to
    resume. command: _MAIN or _REPORT.
    """

    def write(root: pathlib.Path) -> list[str]:
        run = root / "run"
        shutil.copytree(_pristine(), run)
        first = min(int(p.stem) for p in (run / "evals").iterdir())
        if not done:
            _make_resumable(run)
        damage(run / file.format(step=first))
        workdir = [f"--workdir={run}"] if command is _MAIN else []
        return [*(word.format(root=root) for word in command), *workdir]

    name = "main" if command is _MAIN else "report"
    words = f"{name}: {file}, {damage.__name__}, {'done' if done else 'killed'}"
    return attempt.Case(words, write, file.partition("{")[0].partition("/")[0])


def _early(name: str) -> attempt.Case:
    """Return an input whose workdir has only file `name`, left by a start that failed."""

    def write(root: pathlib.Path) -> list[str]:
        (root / "run").mkdir()
        (root / "run" / name).write_text("left by a start that failed\n")
        return [*_MAIN, "--config.algo.name=emr", f"--workdir={root}/run"]

    return attempt.Case(f"main: {name} alone", write, "did you mean 'erm'|erm")
