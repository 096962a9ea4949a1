"""What other packages keep to themselves, and is used all the same.

Nothing public does it. Each such name has a test that names the version that took it away.
"""

import ast
import importlib.util
import inspect
from importlib import metadata

import jax
import optuna
import pytest

from jbias.launch import slurm
from jbias.runs import checkpoints
from jbias.runtime import processes
from tests import source_files

KNOWN = {
    "orbax.checkpoint._src",  # test_orbax_asks_tensorstore_at_one_place
    # Which cluster this is: test_jax_detects_clusters. Settings of the process and of the
    # thread: test_jax_tells_settings_apart.
    "jax._src",
    "submitit.slurm.slurm._make_sbatch_string",  # test_submitit_writes_scripts
    "submitit.core._submit",  # Likewise.
    "gcsfs.core.GCSFileSystem._request",  # test_gcsfs_asks_at_one_place
    "os._exit",  # Documented.
}


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def imported(tree: ast.Module) -> dict[str, str]:
    """What the names of a file that other packages' modules have mean, in full."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {
                one.asname or one.name.split(".")[0]: one.name for one in node.names
            }
        if isinstance(node, ast.ImportFrom):
            names = {
                one.asname or one.name: f"{node.module}.{one.name}"
                for one in node.names
            }
            found |= names
    return {
        name: whole for name, whole in found.items() if not whole.startswith("jbias")
    }


def used(text: str) -> set[str]:
    """The private names of other packages, up to the first that is."""
    tree = ast.parse(text)
    modules, found = imported(tree), [*imported(tree).values()]
    for node in ast.walk(tree):
        chain, at = [], node
        while isinstance(at, ast.Attribute):
            chain, at = [at.attr, *chain], at.value
        if chain and isinstance(at, ast.Name) and at.id in modules:
            found.append(".".join([modules[at.id], *chain]))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += node.value.split() if " -m " in f" {node.value}" else []
    cut = set()
    for name in found:
        parts = name.split(".")
        first = next((i for i, part in enumerate(parts) if private(part)), None)
        cut |= {".".join(parts[: first + 1])} if first else set()
    return cut


def test_private_names_are_seen():
    assert used("from a.b._src import x") == {"a.b._src"}
    assert used("import a as b\nb.C._d.e()") == {"a.C._d"}
    assert used("def f():\n    from a import b\n    b._d(self._e, b.__name__)") == {
        "a.b._d"
    }
    assert used("run = '-u -m a.core._d'") == {"a.core._d"}


def test_no_private_name_is_used_that_no_test_knows():
    found = set()
    for path in source_files.PYTHON:
        found |= used(path.read_text("utf-8"))
    assert found == KNOWN


def broken(package: str, what: str) -> str:
    return (
        f"{package} {metadata.version(package)} has no {what} any more: cap {package} in "
        "setup.cfg, or find another way"
    )


def test_jax_tells_settings_apart():
    message = broken("jax", "config.config_states with get_global, as contexts")
    from jax._src import config

    known = getattr(config, "config_states", {})
    assert "jax_enable_x64" in known, message
    with known["jax_enable_x64"](True):
        assert (known["jax_enable_x64"].value, jax.config.jax_enable_x64) == (
            True,
            True,
        )
        assert known["jax_enable_x64"].get_global() is False, message


def test_jax_detects_clusters():
    message = broken("jax", "clusters.ClusterEnv.auto_detect_unset_distributed_params")
    try:
        from jax._src import clusters

        detect = clusters.ClusterEnv.auto_detect_unset_distributed_params
    except (ImportError, AttributeError):
        pytest.fail(message)
    asked = {*processes._DETECTED, "initialization_timeout"}
    assert inspect.signature(detect).parameters.keys() == asked, message


def test_orbax_asks_tensorstore_at_one_place():
    message = broken("orbax-checkpoint", "tensorstore_utils.ts, whose JSON leaks")
    try:
        from orbax.checkpoint._src.serialization import tensorstore_utils

        names = vars(tensorstore_utils.ts)
    except (ImportError, AttributeError):
        pytest.fail(message)
    assert names["KvStore"].Spec is checkpoints._Spec, message


def test_submitit_writes_scripts():
    message = broken("submitit", "slurm._make_sbatch_string as it was")
    from submitit.slurm import slurm as theirs

    write = getattr(theirs, "_make_sbatch_string", None)
    assert write, message
    asked = {"command", "folder", "map_count", *slurm._parameters(slurm.OPTIONS)}
    assert asked <= inspect.signature(write).parameters.keys(), message
    message = broken("submitit", "module core._submit, which jobs run")
    assert importlib.util.find_spec("submitit.core._submit"), message


def test_optuna_takes_a_trial_up_by_its_id():
    """Of a study that another process has asked: `_trial_id` of what lists it."""
    made = optuna.create_study()
    asked = made.ask()
    asked.suggest_float("x", 0, 1)
    (known,) = made.get_trials(states=(optuna.trial.TrialState.RUNNING,))
    message = broken("optuna", "FrozenTrial._trial_id that Trial(study, id) takes")
    try:
        again = optuna.Trial(made, known._trial_id)
    except (AttributeError, TypeError):
        pytest.fail(message)
    assert (again.number, again.params) == (asked.number, asked.params), message


def test_gcsfs_asks_at_one_place():
    from gcsfs import core

    files = core.GCSFileSystem
    for name in ("_call", "_request", "_mkdir", "_makedirs"):
        told = broken("gcsfs", f"coroutine GCSFileSystem.{name}, which is replaced")
        assert inspect.iscoroutinefunction(getattr(files, name, None)), told
    once = broken("gcsfs", "GCSFileSystem._request.__wrapped__, which asks once")
    assert inspect.iscoroutinefunction(getattr(files._request, "__wrapped__", None)), (
        once
    )
