"""Digests of a run's files, to compare a run after a fault with an unbroken run."""

import hashlib
import json
import pathlib
from collections.abc import Mapping

import jax
import numpy as np

from jbias.runs import checkpoints
from jbias.runtime import checkpoint_files

BEST = "the best step"


def read_end(workdir: pathlib.Path) -> dict[str, str]:
    """Return digests of all that two equal runs must have in common.

    These are weights, records, decisions, the file `done`, and under BEST the best step of
    each seed.
    """
    digests = {
        path.relative_to(workdir).as_posix(): digest(path.read_bytes())
        for pattern in ("evals/*.jsonl", "decisions/*/*.parquet", "done")
        for path in sorted(workdir.glob(pattern))
    }
    for name, leaf in weights(workdir).items():
        digests[name] = digest(np.ascontiguousarray(leaf).tobytes())
    digests[BEST] = json.dumps(_best(workdir))
    return digests


def _best(workdir: pathlib.Path) -> dict[str, tuple[float, int]]:
    """Return (best validation accuracy, minus its step) among the checkpoints, by seed."""
    best = {}
    for path in workdir.glob("checkpoints/*/metrics/metrics"):
        for seed, value in json.loads(path.read_text()).items():
            # The negative step prefers the first of equal accuracies.
            candidate = (value, -int(path.parts[-3]))
            best[seed] = max(best.get(seed, candidate), candidate)
    return dict(sorted(best.items()))


def weights(workdir: pathlib.Path) -> dict[str, np.ndarray]:
    """Return all arrays of the latest checkpoint, by its step and their names."""
    step = checkpoints.steps(workdir / "checkpoints")[-1]
    tree = checkpoint_files.read_stored_states(workdir / "checkpoints" / str(step))
    leaves = jax.tree.leaves_with_path(tree)
    return {f"{step}{jax.tree_util.keystr(path)}": leaf for path, leaf in leaves}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digest_protected(workdir: pathlib.Path) -> Mapping[str, str]:
    """Return digests of all files that a refused run must not change, by path.

    These are the config, checkpoints, records, decisions and the file `done`.
    """
    patterns = ("config.json", "checkpoints/**/*", "evals/*", "decisions/**/*", "done")
    return {
        path.relative_to(workdir).as_posix(): digest(path.read_bytes())
        for pattern in patterns
        for path in sorted(workdir.glob(pattern))
        if path.is_file()
    }
