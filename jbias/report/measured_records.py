"""Records of measured networks: each network once, and what is left out, in words."""

import json
import pathlib
from collections.abc import Sequence

import pandas as pd

from jbias.runs import results, selection

_ONE = ["run", "seed", "step"]  # What a network is in records.


def read(workdirs: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """Reads the evaluations of workdirs (paths or globs); says what is left out.

    Networks with the same weights, preprocessing and classes count once: the one with the
    most records, the first of equals. Raises ValueError as `results.read` does, and where
    nothing was measured.
    """
    records = selection.evaluations(results.read(workdirs), trained=True)
    if records.empty:
        raise ValueError(f"{' '.join(workdirs)}: must hold evaluations, got none")
    alike = _alike(records)
    _, empty = results.find_workdirs(workdirs)
    told = [f"Nothing was measured of {', '.join(map(str, empty))}."] if empty else []
    if alike:
        again = [one for those in alike for one in those[1:]]
        known = pd.MultiIndex.from_frame(records[_ONE])
        records = records[~known.isin(again)].reset_index(drop=True)
        names = "; ".join(", ".join(map(_words, those)) for those in alike)
        told.append(f"The same weights, counted once, as the first: {names}.")
    return records, told


def config(workdir: str) -> dict:
    """Reads what a workdir holds; nothing where it has no config.json."""
    path = pathlib.Path(workdir) / "config.json"
    return read_json(path) if path.exists() else {}


def measures(workdir: str) -> dict[tuple[str, str], dict]:
    """Reads how each measure was made, by its name and its set; of a run there are none.

    ValueError names a file that is damaged or of another version.
    """
    found = {}
    for file in sorted((pathlib.Path(workdir) / "measures").glob("*.json")):
        measure, _, dataset = file.stem.partition("@")
        found[measure, dataset] = told = read_json(file)
        lost = [key for key in ("measure", "images", "seconds") if key not in told]
        if lost:
            raise ValueError(
                f"{file}: must have {', '.join(lost)}; it is of another version, so measure"
                " the network again into another --out"
            )
    return found


def read_json(path: pathlib.Path) -> dict:
    """Reads a JSON file; ValueError names one that is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path}: must be JSON, got a damaged file ({error})"
        ) from None


def _alike(records: pd.DataFrame) -> list[list[tuple]]:
    """Gives networks that are one, the one that counts first."""
    sizes = records.groupby([*_ONE, "workdir"], observed=True).size()
    found: dict[str, dict[tuple, int]] = {}
    for (*one, workdir), size in sizes.items():
        identity = _identity(workdir)
        if identity is not None:
            those = found.setdefault(identity, {})
            those[tuple(one)] = those.get(tuple(one), 0) + size
    return [
        sorted(those, key=those.get, reverse=True)
        for those in found.values()
        if len(those) > 1
    ]


def _identity(workdir: str) -> str | None:
    """Gives what decides a network's answers; None where it was not kept."""
    run = config(workdir).get("run", {})
    if "digest" not in run:
        return None  # Of a run that was trained, where "run" says on what.
    return json.dumps({k: v for k, v in run.items() if k != "path"}, sort_keys=True)


def _words(one: tuple) -> str:
    run, seed, step = one
    return f"{run} seed {seed} step {step}" if step else str(run)
