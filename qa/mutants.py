"""Mutation test: put small faults into the code at random, and count those that tests detect.

    python -m qa.mutants
    python -m qa.mutants --count=160 --seed=1
    python -m qa.mutants --again
    python -m qa.mutants --files=algos/mmd.py,algos/rsc.py --tests=tests/algos/test_mmd.py

Each mutant is one change in a module of the eight AREAS of qa/mutants.py (step, seeds, order,
checkpoint, records, algos, evals, stats): a comparison, an operator, a constant, a condition, or a
deleted statement. It is made in a copy of the checkout, where tests run until the first failure:

- First come the test files named after the module, then those that mention it and all of its
  folder in tests.
- For the areas of the training path (step, seeds, order, checkpoint, records), the last are all
  files of tests/training and tests/runs, and the tests of whole runs.

--files replaces the areas by one area, `files`. --tests replaces the test files of all mutants.

A test that fails is run again without the mutant and must pass; if it fails, the command ends.
A mutant that changes no behaviour (an equivalent mutant) survives rightly; the reader of the table
must decide. Tests written for the mutants of one seed bias the result for that seed, so use
another seed.

Writes OUT/mutants.json after each mutant, from which the same command continues after an
interruption, and OUT/mutants.md. --again retests the mutants that survived, for example after
tests were added.

Takes one to two hours on two cores.
"""

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jbias import errors
from qa import command

ROOT = pathlib.Path(__file__).parents[1]
AREAS = {
    "step": (
        "training/step.py",
        "training/divergence.py",
        "training/averaging/*.py",
        "training/perturbing/sharpness.py",
    ),
    "seeds": ("training/seed_axis.py", "training/prng.py"),
    "order": ("training/samplers.py",),
    "checkpoint": (
        "runs/checkpoints.py",
        "runtime/checkpoint_files.py",
        "training/store.py",
    ),
    "records": ("runs/results.py", "runs/record_store.py", "runs/checksums.py"),
    "algos": ("algos/*.py",),
    "evals": (
        "measures/*.py",
        "stimuli/*.py",
        "evals/*.py",
        "evals/activations/*.py",
    ),
    "stats": ("stats/*.py",),
}
# Tests of whole runs, for the areas of the training path.
RUN_TESTS = (
    "tests/test_train.py",
    "tests/test_resume.py",
    "tests/test_preemption.py",
    "tests/test_damage.py",
)
RUN_AREAS = ("step", "seeds", "order", "checkpoint", "records")
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
    """Test all mutants, and write mutants.json and mutants.md."""
    parser = command.parser("mutants", __doc__)
    add = parser.add_argument
    add(
        "--count",
        type=int,
        default=80,
        metavar="N",
        help="number of mutants, an eighth in each area, or all in --files "
        "(default: %(default)s)",
    )
    add(
        "--files",
        type=_patterns,
        metavar="PATTERN,...",
        help="modules to put faults into, under jbias (default: the areas)",
    )
    add(
        "--tests",
        type=_patterns,
        metavar="FILE,...",
        help="test files to run for each mutant (default: those of its module)",
    )
    add(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="random seed of the sample (default: %(default)s)",
    )
    add(
        "--marks",
        default="not slow",
        help="marks of the tests to run, as for pytest -m (default: %(default)s)",
    )
    add(
        "--seconds",
        type=float,
        default=300.0,
        metavar="S",
        help="time limit in seconds for all tests of one mutant (default: %(default)g)",
    )
    add(
        "--out",
        type=pathlib.Path,
        default=ROOT / "build/mutants",
        metavar="DIR",
        help="folder for the results (default: build/mutants)",
    )
    add(
        "--again",
        action="store_true",
        help="retest the mutants that survived before (default: test new mutants only)",
    )
    args = parser.parse_args()
    areas = {"files": args.files} if args.files else AREAS
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "mutants.json"
    finished = json.loads(path.read_text()) if path.exists() else []
    row_by_id = {_mutant_id(row): row for row in finished}
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "jbias"
        shutil.copytree(ROOT, copy, ignore=_ignored)
        for mutant in draw_mutants(args.count, args.seed, areas=areas):
            row = row_by_id.get(_mutant_id(mutant))
            if row is None or (args.again and _is_alive(row)):
                tests = args.tests or _test_files(copy, mutant)
                outcome = _test(
                    copy, mutant, tests=tests, marks=args.marks, seconds=args.seconds
                )
                row = {**mutant, **outcome}
                print(len(rows) + 1, row["file"], row["line"], row["end"], flush=True)
            rows.append(row)
            path.write_text(json.dumps(rows, indent=1))
    flags = f"--count={args.count} --seed={args.seed} --seconds={args.seconds:g}"
    for flag, patterns in (("files", args.files), ("tests", args.tests)):
        flags += f" --{flag}={','.join(patterns)}" if patterns else ""
    source = f"`python -m qa.mutants {flags}`, {datetime.date.today()}."
    (args.out / "mutants.md").write_text(f"{_page(rows, areas)}\n{source}\n")


def _patterns(text: str) -> tuple[str, ...]:
    """argparse type: patterns of files, separated by commas."""
    return tuple(text.split(","))


def _mutant_id(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return a key that identifies a mutant, by its file, span and change."""
    return tuple(row[key] for key in ("area", "file", "start", "end_at", "old", "new"))


def _is_alive(row: dict[str, Any]) -> bool:
    """Return True if no test killed the mutant."""
    return not row["end"].startswith("killed")


def _ignored(folder: str, names: list[str]) -> set[str]:
    """Return names at the top of the checkout that tests do not need (for copytree)."""
    if pathlib.Path(folder) != ROOT:
        return set()
    patterns = (".git", ".venv*", "build", "runs", "*.egg-info")
    return {n for pattern in patterns for n in fnmatch.filter(names, pattern)}


def draw_mutants(
    count: int, seed: int, *, areas: Mapping[str, tuple[str, ...]] = AREAS
) -> list[dict[str, Any]]:
    """Return random mutants, the same number of each area.

    areas: patterns of files under jbias, by area. ValueError for a pattern without files, and
    for an area with too few possible mutants.
    """
    rng, mutants = random.Random(seed), []
    for area, patterns in areas.items():
        files = []
        for pattern in patterns:
            matches = sorted((ROOT / "jbias").glob(pattern))
            must, remedy = "be files under jbias", "write such as algos/mmd.py"
            errors.check(matches, "mutants: --files", must, pattern, remedy)
            files += matches
        changes = [
            (file, change) for file in files for change in _changes(file.read_text())
        ]
        for file, change in rng.sample(changes, count // len(areas)):
            mutant = {
                "area": area,
                "file": file.relative_to(ROOT).as_posix(),
                "line": change.line,
                "start": change.start,
                "end_at": change.end,
                "old": file.read_text()[change.start : change.end],
                "new": change.new,
            }
            mutants.append(mutant)
    return mutants


class _Change(NamedTuple):
    """A possible mutation: text[start:end], on a line counted from 1, becomes `new`."""

    line: int
    start: int
    end: int
    new: str


def _changes(text: str) -> Iterator[_Change]:
    """Yield the possible mutations in the functions of a module's source."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def span(node: ast.AST) -> tuple[int, int]:
        first = starts[node.lineno - 1] + node.col_offset
        return first, starts[node.end_lineno - 1] + node.end_col_offset

    tree = ast.parse(text)
    docstrings = {
        id(node.body[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and ast.get_docstring(node, clean=False) is not None
    }
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    nodes = {
        id(node): node
        for function in functions
        for statement in function.body
        for node in ast.walk(statement)
    }
    for node in nodes.values():
        if id(node) in docstrings or not hasattr(node, "lineno"):
            continue
        a, b = span(node)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = span(node.left)[1], span(node.comparators[0])[0]
            sign = _COMPARE[type(node.ops[0])]
            if re.fullmatch(r"[\s<>=!a-z]+", text[left:right]):
                yield _Change(node.lineno, left, right, f" {sign} ")
        elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATE:
            left, right = span(node.left)[1], span(node.right)[0]
            if re.fullmatch(r"[\s+*/%&|-]+", text[left:right]):
                yield _Change(node.lineno, left, right, f" {_OPERATE[type(node.op)]} ")
        elif isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
            new = not node.value if type(node.value) is bool else node.value + 1
            yield _Change(node.lineno, a, b, repr(new))
        elif isinstance(node, ast.BoolOp):
            first, second = node.values[:2]
            left, right = span(first)[1], span(second)[0]
            sign = "or" if isinstance(node.op, ast.And) else "and"
            if re.fullmatch(r"\s*(and|or)\s*", text[left:right]):
                yield _Change(node.lineno, left, right, f" {sign} ")
        elif isinstance(node, ast.If | ast.IfExp):
            a, b = span(node.test)
            yield _Change(node.lineno, a, b, f"(not ({text[a:b]}))")
        elif isinstance(node, ast.Expr | ast.AugAssign):
            yield _Change(node.lineno, a, b, "pass")


def _test(
    copy: pathlib.Path,
    mutant: dict[str, Any],
    *,
    tests: Sequence[str],
    marks: str,
    seconds: float,
) -> dict[str, Any]:
    """Run the tests of a mutant; return how they ended, their number and seconds.

    copy: folder of the checkout's copy. tests: test files. marks: pytest's -m. seconds: time
    limit.
    """
    path = copy / mutant["file"]
    text = path.read_text()
    start, end = mutant["start"], mutant["end_at"]
    path.write_text(text[:start] + mutant["new"] + text[end:])
    began = time.monotonic()
    try:
        done = _pytest(copy, marks, tests, seconds)
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        outcome = f"killed by {failed[1]}" if failed else "survived"
        if done.returncode not in (0, 1, 2) or (done.returncode and not failed):
            outcome = f"killed: pytest ended with {done.returncode}"
    except subprocess.TimeoutExpired:
        failed, outcome = None, f"no failure in {seconds:.0f} s"
    finally:
        path.write_text(text)
    test_seconds = round(time.monotonic() - began)
    if failed and failed[1] not in _PASSING:
        if _pytest(copy, marks, [failed[1].partition("[")[0]], None).returncode:
            raise SystemExit(
                f"mutants: {failed[1]} fails without a mutant; fix it first"
            )
        _PASSING.add(failed[1])
    return {"end": outcome, "tests": len(tests), "seconds": test_seconds}


_PASSING: set[str] = set()  # Tests that have passed without a mutant.


def _pytest(
    copy: pathlib.Path, marks: str, tests: list[str], seconds: float | None
) -> subprocess.CompletedProcess:
    """Run tests of the copy until the first fails; return the finished process."""
    xla_flags = os.environ.get("XLA_FLAGS", "")
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-xq",
            "-m",
            marks,
            "-p",
            "no:cacheprovider",
            *tests,
        ],
        cwd=copy,
        env={
            **os.environ,
            "PYTHONPATH": str(copy),
            "JAX_PLATFORMS": "cpu",
            "PYTHONDONTWRITEBYTECODE": "1",
            "XLA_FLAGS": f"{xla_flags} --xla_backend_optimization_level=0",
        },
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def _test_files(copy: pathlib.Path, mutant: dict[str, Any]) -> list[str]:
    """Return the test files of a mutant's module, those named after the module first."""
    module = pathlib.Path(mutant["file"])
    folder, name = module.parent.name, module.stem
    word = re.compile(rf"\b{re.escape(name)}\b")
    is_of_runs = mutant["area"] in RUN_AREAS
    folders = ("training", "runs") if is_of_runs else (folder,)
    files = [
        path.relative_to(copy).as_posix()
        for path in sorted((copy / "tests").rglob("test_*.py"))
        if path.parent.name in folders or word.search(path.read_text())
    ]
    named_after = [file for file in files if name in file]
    run_tests = RUN_TESTS if is_of_runs else ()
    return list(dict.fromkeys([*named_after, *files, *run_tests]))


def _page(rows: list[dict[str, Any]], areas: Iterable[str]) -> str:
    """Return the table of areas as Markdown."""
    lines = [
        "| area | mutants | killed | not killed |",
        "|---|---:|---:|---|",
    ]
    for area in areas:
        of_area = [row for row in rows if row["area"] == area]
        alive = [row for row in of_area if _is_alive(row)]
        places = ", ".join(f"{r['file']}:{r['line']} ({r['end']})" for r in alive)
        killed = len(of_area) - len(alive)
        lines.append(f"| {area} | {len(of_area)} | {killed} | {places} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
