"""Private names of other packages that jbias uses, as no public name does the same.

Each of these names has a test, whose message says which version removed the name.
"""

import ast
import importlib.util
import inspect
from importlib import metadata

import jax
import optuna
import pytest

from jbias.launch import slurm
from jbias.runtime import processes
from tests import source_files

KNOWN = {
    # Detection of clusters: test_jax_detects_clusters. Settings of process and thread:
    # test_jax_separates_settings_of_thread_and_process.
    "jax._src",
    "submitit.slurm.slurm._make_sbatch_string",  # test_submitit_writes_scripts
    "submitit.core._submit",  # test_submitit_writes_scripts
    "gcsfs.core.GCSFileSystem._request",  # test_gcsfs_sends_requests_in_one_place
    "os._exit",  # Documented.
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def list_imports(tree: ast.Module) -> dict[str, str]:
    """Return the full name of each imported name of a file, except jbias's own."""
    full_names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            full_names |= {
                alias.asname or alias.name.split(".")[0]: alias.name
                for alias in node.names
            }
        if isinstance(node, ast.ImportFrom):
            names = {
                alias.asname or alias.name: f"{node.module}.{alias.name}"
                for alias in node.names
            }
            full_names |= names
    return {
        name: full_name
        for name, full_name in full_names.items()
        if not full_name.startswith("jbias")
    }


def find_private_names(text: str) -> set[str]:
    """Return the private names of other packages in a file, cut after the private part."""
    tree = ast.parse(text)
    modules, names = list_imports(tree), [*list_imports(tree).values()]
    for node in ast.walk(tree):
        chain, inner = [], node
        while isinstance(inner, ast.Attribute):
            chain, inner = [inner.attr, *chain], inner.value
        if chain and isinstance(inner, ast.Name) and inner.id in modules:
            names.append(".".join([modules[inner.id], *chain]))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            names += node.value.split() if " -m " in f" {node.value}" else []
    private_names = set()
    for name in names:
        words = name.split(".")
        first = next((i for i, word in enumerate(words) if is_private(word)), None)
        private_names |= {".".join(words[: first + 1])} if first else set()
    return private_names


def test_private_names_are_detected():
    assert find_private_names("from a.b._src import x") == {"a.b._src"}
    assert find_private_names("import a as b\nb.C._d.e()") == {"a.C._d"}
    assert find_private_names(
        "def f():\n    from a import b\n    b._d(self._e, b.__name__)"
    ) == {"a.b._d"}
    assert find_private_names("run = '-u -m a.core._d'") == {"a.core._d"}


def test_every_private_name_in_use_has_a_test():
    names = set()
    for path in source_files.PYTHON:
        names |= find_private_names(path.read_text("utf-8"))
    assert names == KNOWN


def broken_message(package: str, feature: str) -> str:
    return (
        f"{package} {metadata.version(package)} has no {feature} any more: cap {package} in "
        "setup.cfg, or find another way"
    )


def test_jax_separates_settings_of_thread_and_process():
    message = broken_message("jax", "config.config_states with get_global, as contexts")
    from jax._src import config

    states = getattr(config, "config_states", {})
    assert "jax_enable_x64" in states, message
    with states["jax_enable_x64"](True):
        assert (states["jax_enable_x64"].value, jax.config.jax_enable_x64) == (
            True,
            True,
        )
        assert states["jax_enable_x64"].get_global() is False, message


def test_jax_detects_clusters():
    message = broken_message(
        "jax", "clusters.ClusterEnv.auto_detect_unset_distributed_params"
    )
    try:
        from jax._src import clusters

        detect = clusters.ClusterEnv.auto_detect_unset_distributed_params
    except (ImportError, AttributeError):
        pytest.fail(message)
    expected = {*processes._DETECTED, "initialization_timeout"}
    assert inspect.signature(detect).parameters.keys() == expected, message


def test_submitit_writes_scripts():
    message = broken_message("submitit", "slurm._make_sbatch_string as it was")
    from submitit.slurm import slurm as submitit_slurm

    write = getattr(submitit_slurm, "_make_sbatch_string", None)
    assert write, message
    needed = {"command", "folder", "map_count", *slurm._parameters(slurm.OPTIONS)}
    assert needed <= inspect.signature(write).parameters.keys(), message
    message = broken_message("submitit", "module core._submit, which jobs run")
    assert importlib.util.find_spec("submitit.core._submit"), message


def test_optuna_resumes_a_trial_by_its_id():
    """The id is the `_trial_id` of a trial that another process has started."""
    study = optuna.create_study()
    trial = study.ask()
    trial.suggest_float("x", 0, 1)
    (frozen,) = study.get_trials(states=(optuna.trial.TrialState.RUNNING,))
    message = broken_message(
        "optuna", "FrozenTrial._trial_id that Trial(study, id) takes"
    )
    try:
        resumed = optuna.Trial(study, frozen._trial_id)
    except (AttributeError, TypeError):
        pytest.fail(message)
    assert (resumed.number, resumed.params) == (trial.number, trial.params), message


def test_gcsfs_sends_requests_in_one_place():
    from gcsfs import core

    files = core.GCSFileSystem
    for name in ("_call", "_request", "_mkdir", "_makedirs"):
        message = broken_message(
            "gcsfs", f"coroutine GCSFileSystem.{name}, which is replaced"
        )
        assert inspect.iscoroutinefunction(getattr(files, name, None)), message
    message_of_request = broken_message(
        "gcsfs", "GCSFileSystem._request.__wrapped__, which asks once"
    )
    assert inspect.iscoroutinefunction(getattr(files._request, "__wrapped__", None)), (
        message_of_request
    )
