"""Which small faults, put into the code at random, the tests notice.

    python -m benchmarks.mutants [--count=80] [--seed=0] [--marks="not slow"] [--out=DIR]
        [--again]

Each mutant is one change in one of the modules below: a comparison, an operator, a constant,
a condition or a statement that goes. It is made in a copy of the checkout, and the tests
run until the first fails: files that bear its module's name first, then those that name it
and all of its room (for the path of training those of both rooms, and what a run as a whole
shows). The test that fails must pass without the mutant, or all ends there. A mutant that
changes no behaviour (an equivalent one) survives rightly; whoever reads the table decides.
Tests that were written for mutants of one seed flatter that seed: take another. Writes
mutants.json as it goes on, from which a run that was stopped goes on, and mutants.md. With
--again those that were not killed are judged anew, as after tests were added.
"""

import argparse
import ast
import datetime
import fnmatch
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
AREAS = {
    "step": ("training/step.py", "training/divergence.py"),
    "seeds": ("training/seed_axis.py", "training/prng.py"),
    "order": ("training/samplers.py",),
    "checkpoint": ("runs/checkpoints.py", "training/checkpointing.py"),
    "records": ("runs/results.py", "runs/evaluations.py", "runs/checksums.py"),
    "algos": ("algos/*.py",),
    "evals": ("evals/*.py",),
    "stats": ("stats/*.py",),
}
# Beside those that name a module: what a run as a whole shows.
WHOLE = (
    "tests/test_train.py",
    "tests/test_resume.py",
    "tests/test_preemption.py",
    "tests/test_damage.py",
)
RUNS = ("step", "seeds", "order", "checkpoint", "records")
_COMPARE = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
_OPERATE = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "%",
    ast.Mod: "//",
    ast.Pow: "*",
    ast.BitAnd: "|",
    ast.BitOr: "&",
}


def main() -> None:
    parser = argparse.ArgumentParser("mutants", description=__doc__)
    parser.add_argument("--count", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--marks", default="not slow", help="of the tests that run")
    parser.add_argument("--seconds", type=float, default=300.0, help="for each mutant")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/mutants")
    parser.add_argument("--again", action="store_true")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "mutants.json"
    kept = json.loads(path.read_text()) if path.exists() else []
    before = {_which(row): row for row in kept}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "jbias"
        shutil.copytree(ROOT, copy, ignore=_left_out)
        for row in mutants(args.count, args.seed):
            found = before.get(_which(row))
            if found is None or (args.again and _alive(found)):
                found = {**row, **_judge(copy, row, args.marks, args.seconds)}
                print(len(rows) + 1, row["file"], row["line"], found["end"], flush=True)
            rows.append(found)
            path.write_text(json.dumps(rows, indent=1))
    asked = f"--count={args.count} --seed={args.seed} --seconds={args.seconds:g}"
    made = f"`python -m benchmarks.mutants {asked}`, {datetime.date.today()}."
    (args.out / "mutants.md").write_text(f"{_page(rows)}\n{made}\n")


def _which(row: dict[str, Any]) -> tuple[Any, ...]:
    """What tells a mutant from others, also where the code around it has changed."""
    return tuple(row[key] for key in ("area", "file", "start", "end_at", "old", "new"))


def _alive(row: dict[str, Any]) -> bool:
    return not row["end"].startswith("killed")


def _left_out(folder: str, names: list[str]) -> set[str]:
    """What no test needs, of the checkout's top."""
    patterns = (".git", ".venv*", "build", "runs", "*.egg-info")
    top = pathlib.Path(folder) == ROOT
    return {n for p in patterns for n in fnmatch.filter(names, p)} if top else set()


def mutants(count: int, seed: int) -> list[dict[str, Any]]:
    """As many of each area, each at a random place of all that its files have."""
    draw, chosen = random.Random(seed), []
    for area, patterns in AREAS.items():
        files = [f for p in patterns for f in sorted((ROOT / "jbias").glob(p))]
        places = [(f, *one) for f in files for one in _places(f.read_text())]
        for file, line, start, end, new in draw.sample(places, count // len(AREAS)):
            name = file.relative_to(ROOT).as_posix()
            old = file.read_text()[start:end]
            where = dict(area=area, file=name, line=line, start=start, end_at=end)
            chosen.append({**where, "old": old, "new": new})
    return chosen


def _places(text: str) -> Iterator[tuple[int, int, int, str]]:
    """Line, span and replacement of each change that could be made."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: ast.AST) -> tuple[int, int]:
        first = starts[node.lineno - 1] + node.col_offset
        return first, starts[node.end_lineno - 1] + node.end_col_offset

    tree = ast.parse(text)
    documents = {
        id(node.body[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and ast.get_docstring(node, clean=False) is not None
    }
    inside = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    for node in {
        id(n): n for f in inside for b in f.body for n in ast.walk(b)
    }.values():
        if id(node) in documents or not hasattr(node, "lineno"):
            continue
        a, b = span(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = span(node.left)[1], span(node.comparators[0])[0]
            sign = _COMPARE[type(node.ops[0])]
            if re.fullmatch(r"[\s<>=!a-z]+", text[left:right]):
                yield node.lineno, left, right, f" {sign} "
        elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATE:
            left, right = span(node.left)[1], span(node.right)[0]
            if re.fullmatch(r"[\s+*/%&|-]+", text[left:right]):
                yield node.lineno, left, right, f" {_OPERATE[type(node.op)]} "
        elif isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
            new = not node.value if type(node.value) is bool else node.value + 1
            yield node.lineno, a, b, repr(new)
        elif isinstance(node, ast.BoolOp):
            first, second = node.values[:2]
            left, right = span(first)[1], span(second)[0]
            sign = "or" if isinstance(node.op, ast.And) else "and"
            if re.fullmatch(r"\s*(and|or)\s*", text[left:right]):
                yield node.lineno, left, right, f" {sign} "
        elif isinstance(node, ast.If | ast.IfExp):
            a, b = span(node.test)
            yield node.lineno, a, b, f"(not ({text[a:b]}))"
        elif isinstance(node, ast.Expr | ast.AugAssign):
            yield node.lineno, a, b, "pass"


def _judge(
    copy: pathlib.Path, row: dict[str, Any], marks: str, seconds: float
) -> dict[str, Any]:
    """How the tests of a mutant end, and after how long."""
    path = copy / row["file"]
    text = path.read_text()
    path.write_text(text[: row["start"]] + row["new"] + text[row["end_at"] :])
    tests = _tests(copy, row)
    began = time.monotonic()
    try:
        done = _pytest(copy, marks, tests, seconds)
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        end = f"killed by {failed[1]}" if failed else "survived"
        if done.returncode not in (0, 1, 2) or done.returncode and not failed:
            end = f"killed: pytest ended with {done.returncode}"
    except subprocess.TimeoutExpired:
        failed, end = None, f"no failure in {seconds:.0f} s"
    finally:
        path.write_text(text)
    took = round(time.monotonic() - began)
    if failed and failed[1] not in _SOUND:
        if _pytest(copy, marks, [failed[1].partition("[")[0]], None).returncode:
            raise SystemExit(f"mutants: {failed[1]} fails without a mutant; mend it")
        _SOUND.add(failed[1])
    return {"end": end, "tests": len(tests), "seconds": took}


_SOUND: set[str] = set()  # Tests that were seen to pass without a mutant.


def _pytest(
    copy: pathlib.Path, marks: str, tests: list[str], seconds: float | None
) -> subprocess.CompletedProcess:
    """Runs tests of the copy until the first fails."""
    command = [sys.executable, "-m", "pytest", "-xq", "-m", marks]
    paths = dict(PYTHONPATH=str(copy), JAX_PLATFORMS="cpu", PYTHONDONTWRITEBYTECODE="1")
    fast = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", *tests],
        cwd=copy,
        env={**os.environ, **paths, "XLA_FLAGS": fast},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def _tests(copy: pathlib.Path, row: dict[str, Any]) -> list[str]:
    """The test files of a mutant's module, those that bear its name first."""
    module = pathlib.Path(row["file"])
    room, name = module.parent.name, module.stem
    word = re.compile(rf"\b{re.escape(name)}\b")
    rooms = ("training", "runs") if row["area"] in RUNS else (room,)
    found = [
        path.relative_to(copy).as_posix()
        for path in sorted((copy / "tests").rglob("test_*.py"))
        if path.parent.name in rooms or word.search(path.read_text())
    ]
    whole = WHOLE if row["area"] in RUNS else ()
    own = [f for f in found if name in f]
    return list(dict.fromkeys([*own, *found, *whole]))


def _page(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| area | mutants | killed | not killed |",
        "|---|---:|---:|---|",
    ]
    for area in AREAS:
        of_area = [row for row in rows if row["area"] == area]
        alive = [row for row in of_area if _alive(row)]
        places = ", ".join(f"{r['file']}:{r['line']} ({r['end']})" for r in alive)
        killed = len(of_area) - len(alive)
        lines.append(f"| {area} | {len(of_area)} | {killed} | {places} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
