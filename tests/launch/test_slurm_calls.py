"""Calls of SLURM's programs; the tests replace these programs."""

import types

import optuna
import pytest
import submitit  # Imported in a test it would close what pytest captures.

from jbias.launch import slurm, study, trial_loop, trials
from jbias.launch.search import Search
from tests import smoke_runs

CONFIG = "configs/erm.py:smoke,seeds=1"
# ml_collections still calls what Python 3.12 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")


@pytest.fixture
def todo(tmp_path):
    """Return three trials in one folder."""
    return [
        trials.Trial(name, tmp_path / name, (), {}, {"run": {"devices": 0}})
        for name in "abc"
    ]


class Cluster:
    """Replacement of submitit's executor, squeue and scontrol."""

    def __init__(self):
        self.jobs, self.killed, self.called, self.most = {}, False, [], 1001
        self.parallel = []

    def executor(self, folder, max_num_timeout):
        return types.SimpleNamespace(
            update_parameters=self._set_parameters, submit_array=self._submit_array
        )

    def _set_parameters(self, *, job_name, array_parallelism, **_):
        self.name = job_name
        self.parallel.append(array_parallelism)

    def _submit_array(self, commands):
        assert len(commands) <= self.most
        first = 7 + len(self.jobs)
        ids = [f"{first}_{i}" for i in range(len(commands))]
        ids = ids if len(commands) > 1 else [str(first)]
        self.jobs |= dict.fromkeys(ids, self.name)
        if self.killed:
            raise KeyboardInterrupt
        return [types.SimpleNamespace(job_id=job_id) for job_id in ids]

    def call(self, *command):
        self.called.append(command)
        if command[0] == "scontrol":
            return f"MaxArraySize            = {self.most}\nMaxJobCount = 10000\n"
        if command[0] != "squeue":
            return ""
        lines = [f"{number}|PENDING|{name}" for number, name in self.jobs.items()]
        return "\n".join(["3|RUNNING|of|another", *lines, ""])


@pytest.fixture
def cluster(monkeypatch):
    cluster_double = Cluster()
    monkeypatch.setattr(submitit, "SlurmExecutor", cluster_double.executor)
    monkeypatch.setattr(slurm, "_call", cluster_double.call)
    return cluster_double


@pytest.fixture
def executor(cluster):
    created = slurm.Executor(
        slurm.OPTIONS, optuna.create_study(), lambda line: None, 256
    )
    assert created.active_trials() == {} and not cluster.called
    return created


@pytest.mark.parametrize("count", [1, 3])
def test_jobs_of_a_killed_start_are_recognised(count, todo, cluster, executor):
    cluster.killed = True
    with pytest.raises(KeyboardInterrupt):
        executor.start(todo[:count])
    expected = dict.fromkeys("abc"[:count], "queued")
    assert executor.active_trials() == expected and executor.num_free() == 256 - count
    cluster.killed = False
    executor.start(todo[count:] or todo[:1])
    assert executor.active_trials() == {**expected, **dict.fromkeys("abc", "queued")}


def test_names_of_arrays_differ(todo, cluster, executor):
    for _ in range(2):
        executor.start(todo)
    assert len({*cluster.jobs.values()}) == 2


def test_arrays_are_at_most_as_large_as_the_cluster_allows(todo, cluster, executor):
    cluster.most = 2
    executor.start(todo)
    assert [*cluster.jobs] == ["7_0", "7_1", "9"]
    assert len({*cluster.jobs.values()}) == 2
    assert executor.active_trials() == dict.fromkeys("abc", "queued")
    assert cluster.parallel == [128, 128]  # Jobs at a time, of both together.


def test_a_trial_is_cancelled_once(tmp_path, cluster, monkeypatch):
    """A trial that the pruner rejects repeatedly is cancelled once."""
    monkeypatch.chdir(smoke_runs.ROOT)
    search = Search([CONFIG], ["--config.optim.rate=[0.1, 0.2]"], stop="median")
    opened = study.open_study(search, tmp_path, keep=True)
    ledger = study.Ledger(search, tmp_path, opened, study.plan(search, tmp_path))
    first, second = ledger.trials.values()
    for trial in (first, second):
        trial.workdir.mkdir()
    executor = slurm.Executor(slurm.OPTIONS, ledger.study, lambda line: None, 256)
    executor.start([first, second])
    trials.mark_stopped(second.workdir, "by an earlier process")
    polls, active_trials = [], executor.active_trials

    def six_times() -> dict[str, str]:
        polls.append(0)
        return dict.fromkeys(active_trials(), "running") if len(polls) < 6 else {}

    monkeypatch.setattr(executor, "active_trials", six_times)
    monkeypatch.setattr(executor, "poll_seconds", 0)
    monkeypatch.setattr(ledger, "report", lambda look: "too low")
    args = types.SimpleNamespace(wait=True, every=60)
    trial_loop.run_trials(ledger, executor, ["not started"], args=args, say=print)
    cancelled = [call for call in cluster.called if call[0] == "scancel"]
    assert cancelled == [("scancel", "7_0")]
    states = {
        trial.user_attrs["run"]: trial.state.name for trial in ledger.study.trials
    }
    assert states == {first.name: "PRUNED", second.name: "PRUNED"}
