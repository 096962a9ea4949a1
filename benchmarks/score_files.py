"""What readers of score tables make of the same files: jbias, autorank and scikit-posthocs.

    pip install autorank scikit-posthocs
    python -m benchmarks.score_files --out=benchmarks/results/score-files.md

Each file of tests/scores has expected scores, made without a look at any reader. jbias gets
the path. autorank and scikit-posthocs read no files; they get what their examples give them,
the frame of `pandas.read_csv(path, index_col=0)` (or read_excel, read_parquet) and a table
whose columns are populations and whose rows are samples. An answer is right where the
populations are the file's algorithms and the samples its data sets, or data sets and runs;
wrong where something else was tested without a word. It takes half a minute.
"""

import argparse
import contextlib
import importlib.metadata
import io
import json
import math
import pathlib
import warnings

import numpy as np
import pandas as pd

from jbias import scores
from jbias.runtime import messages

FOLDER = pathlib.Path(__file__).parents[1] / "tests" / "scores"
SETS = ("score_files", "more_files")
PEERS = ("autorank", "scikit-posthocs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="the Markdown file to write")
    args = parser.parse_args()
    expected = [
        {**entry, "file": f"{name}/{entry['file']}"}
        for name in SETS
        for entry in json.loads((FOLDER / name / "expected.json").read_text("utf-8"))
    ]
    rows = [[entry["file"], *answers(entry)] for entry in expected]
    lines = [
        "# Score tables, as three tools read them",
        "",
        f"Made by `python -m benchmarks.score_files --out={args.out}`, jbias of this commit, "
        + ", ".join(
            f"{name} {importlib.metadata.version(name)}" for name in (*PEERS, "pandas")
        )
        + ".",
        "",
        (
            "What counts as right is said in `benchmarks/score_files.py`. The peers read no "
            "files: theirs is the answer to the frame that pandas makes of one."
        ),
        "",
        "| tool | read right | refused rightly | refused, though readable | wrong without a word |",
        "| --- | --: | --: | --: | --: |",
    ]
    for number, name in enumerate(("jbias", *PEERS), start=1):
        words = [row[number] for row in rows]
        counts = [sum(word.startswith(kind) for word in words) for kind in KINDS]
        lines.append(f"| {name} | " + " | ".join(map(str, counts)) + " |")
    lines += [
        "",
        "| file | jbias | autorank | scikit-posthocs |",
        "| --- | --- | --- | --- |",
    ]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    pathlib.Path(args.out).write_text("\n".join(lines) + "\n", "utf-8")
    messages.print_text("\n".join(lines[:12]))


KINDS = ("right", "refused rightly", "refused:", "wrong")


def answers(entry: dict) -> list[str]:
    """Return what each tool makes of a file, in a few words."""
    path = FOLDER / entry["file"]
    is_readable = entry["outcome"] in ("read", "summary")
    found = [judge_jbias(path, entry, is_readable)]
    for peer in (ask_autorank, ask_posthocs):
        found.append(judge_peer(peer, path, entry, is_readable))
    return found


def judge_jbias(path: pathlib.Path, entry: dict, is_readable: bool) -> str:
    try:
        tidy = scores.read(path).tidy
    except ValueError:
        return "refused: readable" if is_readable else "refused rightly"
    if not is_readable:
        return "wrong"
    found = tidy[["algorithm", "dataset", "run", "score"]].itertuples(
        index=False, name=None
    )
    right = {(a, d, str(r), rounded(s)) for a, d, r, s, _ in entry["scores"]}
    return "right" if {(*k, rounded(s)) for *k, s in found} == right else "wrong"


def rounded(score: float | None) -> float | None:
    return None if score is None or math.isnan(score) else round(score, 9)


def judge_peer(ask, path: pathlib.Path, entry: dict, is_readable: bool) -> str:
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            np.errstate(all="ignore"),
        ):
            warnings.simplefilter("ignore")
            populations, samples = ask(frame_of(path))
    except Exception as error:  # noqa: BLE001 - whatever a tool raises
        reason = " ".join(str(error).split())[:40].replace("|", "/")
        kind = "refused:" if is_readable else "refused rightly:"
        return f"{kind} {type(error).__name__} {reason}"
    if len(populations) < 2:
        return "refused: nothing to compare" if is_readable else "refused rightly"
    rows = entry.get("scores") or entry.get("then") or []
    algorithms = {row[0] for row in rows}
    cells = {(row[1], row[2]) for row in rows}
    sets = {row[1] for row in rows}
    if (
        is_readable
        and set(populations) == algorithms
        and samples in (len(sets), len(cells))
    ):
        return "right"
    return f"wrong: tests {', '.join(map(str, populations))[:40]} over {samples}"


def frame_of(path: pathlib.Path) -> pd.DataFrame:
    """Return what a user's first line makes of a file."""
    if path.suffix == ".parquet":
        return pd.read_parquet(path).pipe(
            lambda frame: frame.set_index(frame.columns[0])
        )
    if path.suffix == ".xlsx":
        return pd.read_excel(path, index_col=0)
    return pd.read_csv(path, index_col=0)


def ask_autorank(frame: pd.DataFrame) -> tuple[list[str], int]:
    import autorank

    result = autorank.autorank(frame, alpha=0.05, verbose=False)
    return list(result.rankdf.index), result.num_samples


def ask_posthocs(frame: pd.DataFrame) -> tuple[list[str], int]:
    import scikit_posthocs

    result = scikit_posthocs.posthoc_nemenyi_friedman(frame)
    return list(result.columns), len(frame)


if __name__ == "__main__":
    main()
