"""What a run of the chaos came to, and what it holds, to compare with another's."""

import hashlib
import json
import pathlib
from collections.abc import Mapping

import jax
import numpy as np
import orbax.checkpoint as ocp

from jbias.runs import checkpoints

BEST = "the best step"


def end_of(workdir: pathlib.Path) -> dict[str, str]:
    """What two runs must have in common: weights, records, decisions, best step, fate."""
    found = {
        path.relative_to(workdir).as_posix(): digest(path.read_bytes())
        for pattern in ("evals/*.jsonl", "decisions/*/*.parquet", "done")
        for path in sorted(workdir.glob(pattern))
    }
    for name, leaf in weights(workdir).items():
        found[name] = digest(np.ascontiguousarray(leaf).tobytes())
    found[BEST] = json.dumps(_best(workdir))
    return found


def _best(workdir: pathlib.Path) -> dict[str, tuple[float, int]]:
    """Each seed's best validation accuracy and its step, among the checkpoints kept."""
    best = {}
    for path in workdir.glob("checkpoints/*/metrics/metrics"):
        for seed, value in json.loads(path.read_text()).items():
            one = (value, -int(path.parts[-3]))  # Of equal ones the first.
            best[seed] = max(best.get(seed, one), one)
    return dict(sorted(best.items()))


def weights(workdir: pathlib.Path) -> dict[str, np.ndarray]:
    """All numbers of the latest checkpoint, by its step and their names."""
    manager = checkpoints.CheckpointStore(workdir / "checkpoints").manager
    step = manager.latest_step()
    args = ocp.args.Composite(state=ocp.args.StandardRestore())
    tree = manager.restore(step, args=args)["state"]
    manager.close()
    leaves = jax.tree.leaves_with_path(tree)
    return {f"{step}{jax.tree_util.keystr(path)}": leaf for path, leaf in leaves}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def held(workdir: pathlib.Path) -> Mapping[str, str]:
    """What no refusal may change: identity, checkpoints, records, decisions."""
    patterns = ("config.json", "checkpoints/**/*", "evals/*", "decisions/**/*", "done")
    return {
        path.relative_to(workdir).as_posix(): digest(path.read_bytes())
        for pattern in patterns
        for path in sorted(workdir.glob(pattern))
        if path.is_file()
    }
