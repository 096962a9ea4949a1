"""Compare how jbias, autorank and scikit-posthocs read the same files of scores.

    pip install autorank scikit-posthocs
    python -m qa.score_files --out=qa/results/score-files.md

Each file of tests/scores has expected scores, written down without running any reader. jbias
gets the path. autorank and scikit-posthocs read no files; they get a data frame as in their
documentation: that of `pandas.read_csv(path, index_col=0)` (or read_excel, read_parquet), whose
columns are populations and whose rows are samples.

An answer is right if the populations are the file's algorithms, with one sample per data set, or
per data set and run. An answer is wrong if something else was tested without a message. Writes the
table to --out, and prints its summary.

Takes about half a minute on two cores (an estimate).
"""

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
from qa import command

FOLDER = pathlib.Path(__file__).parents[1] / "tests" / "scores"
SETS = ("score_files", "more_files")
PEERS = ("autorank", "scikit-posthocs")


def main() -> None:
    """Read all files with each tool, and write the page."""
    parser = command.parser("score_files", __doc__)
    parser.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        help="Markdown file to write the table to (required)",
    )
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
        f"Made by `python -m qa.score_files --out={args.out}`, jbias of this commit, "
        + ", ".join(
            f"{name} {importlib.metadata.version(name)}" for name in (*PEERS, "pandas")
        )
        + ".",
        "",
        (
            "What counts as right is said in `qa/score_files.py`. The peers read no "
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
    """Return the judgement on each tool's answer for a file, in a few words."""
    path = FOLDER / entry["file"]
    is_readable = entry["outcome"] in ("read", "summary")
    judgements = [judge_jbias(path, entry, is_readable)]
    for peer in (ask_autorank, ask_posthocs):
        judgements.append(judge_peer(peer, path, entry, is_readable))
    return judgements


def judge_jbias(path: pathlib.Path, entry: dict, is_readable: bool) -> str:
    """Return "right", "wrong", or how jbias refused a file.

    entry: the expected scores. is_readable: True if the file should be read.
    """
    try:
        tidy = scores.read(path).tidy
    except ValueError:
        return "refused: readable" if is_readable else "refused rightly"
    if not is_readable:
        return "wrong"
    rows = tidy[["algorithm", "dataset", "run", "score"]].itertuples(
        index=False, name=None
    )
    scores_read = {(a, d, r, rounded(s)) for a, d, r, s in rows}
    expected = {(a, d, str(r), rounded(s)) for a, d, r, s, _ in entry["scores"]}
    return "right" if scores_read == expected else "wrong"


def rounded(score: float | None) -> float | None:
    """Return a score with nine decimals, or None for a missing score."""
    return None if score is None or math.isnan(score) else round(score, 9)


def judge_peer(ask, path: pathlib.Path, entry: dict, is_readable: bool) -> str:
    """Return "right", or how a peer refused a file or what it tested instead.

    ask: maps a frame to the populations and the number of samples that the peer tests.
    entry, is_readable: as of `judge_jbias`.
    """
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            np.errstate(all="ignore"),
        ):
            warnings.simplefilter("ignore")
            populations, samples = ask(frame_of(path))
    except Exception as error:  # noqa: BLE001 - peers raise any type
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
    """Return the frame that pandas reads from a file, with the first column as index."""
    if path.suffix == ".parquet":
        return pd.read_parquet(path).pipe(
            lambda frame: frame.set_index(frame.columns[0])
        )
    if path.suffix == ".xlsx":
        return pd.read_excel(path, index_col=0)
    return pd.read_csv(path, index_col=0)


def ask_autorank(frame: pd.DataFrame) -> tuple[list[str], int]:
    """Return the populations and the number of samples that autorank tests."""
    import autorank

    result = autorank.autorank(frame, alpha=0.05, verbose=False)
    return list(result.rankdf.index), result.num_samples


def ask_posthocs(frame: pd.DataFrame) -> tuple[list[str], int]:
    """Return the populations and the number of samples that scikit-posthocs tests."""
    import scikit_posthocs

    result = scikit_posthocs.posthoc_nemenyi_friedman(frame)
    return list(result.columns), len(frame)


if __name__ == "__main__":
    main()
