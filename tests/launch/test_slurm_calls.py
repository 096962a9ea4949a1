"""What SLURM is asked and told, by programs that stand in for it."""

import json
import types

import pytest
import submitit  # Imported in a test it would close what pytest captures.

from jbias.launch import slurm, trials
from jbias.runs import status


@pytest.fixture
def todo(tmp_path):
    """Three trials in one folder."""
    return [
        trials.Trial(name, tmp_path / name, (), {}, {"run": {"devices": 0}})
        for name in "abc"
    ]


class Cluster:
    """Stands in for submitit's executor, and for squeue."""

    def __init__(self):
        self.jobs, self.killed, self.called = {}, False, []

    def executor(self, folder, max_num_timeout):
        return types.SimpleNamespace(
            update_parameters=self._named, submit_array=self._submitted
        )

    def _named(self, *, job_name, **_):
        self.name = job_name

    def _submitted(self, found):
        first = 7 + len(self.jobs)
        ids = [f"{first}_{i}" for i in range(len(found))]
        ids = ids if len(found) > 1 else [str(first)]
        self.jobs |= dict.fromkeys(ids, self.name)
        if self.killed:
            raise KeyboardInterrupt
        return [types.SimpleNamespace(job_id=one) for one in ids]

    def call(self, *command):
        self.called.append(command)
        if command[0] != "squeue":
            return ""
        lines = [f"{number}|PENDING|{name}" for number, name in self.jobs.items()]
        return "\n".join(["3|RUNNING|of|another", *lines, ""])


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster()
    monkeypatch.setattr(submitit, "SlurmExecutor", made.executor)
    monkeypatch.setattr(slurm, "_call", made.call)
    return made


@pytest.mark.parametrize("count", [1, 3])
def test_jobs_of_a_start_that_was_killed_are_found(count, todo, cluster):
    assert slurm.active(todo) == {} and not cluster.called
    cluster.killed = True
    with pytest.raises(KeyboardInterrupt):
        slurm.submit(todo[:count], slurm.OPTIONS, print)
    assert not slurm._ids_path(todo).exists()
    expected = dict.fromkeys("abc"[:count], "queued")
    assert slurm.active(todo) == expected
    # Known by their numbers now, whatever is submitted next.
    cluster.killed = False
    slurm.submit(todo[count:] or todo[:1], slurm.OPTIONS, print)
    assert slurm.active(todo) == {**expected, **dict.fromkeys("abc", "queued")}
    known = json.loads(slurm._ids_path(todo).read_text())
    last = {1: dict(a="7", b="8_0", c="8_1"), 3: dict(a="10", b="7_1", c="7_2")}
    assert known == last[count]


def test_names_of_arrays_differ(todo, cluster):
    for _ in range(2):
        slurm.submit(todo, slurm.OPTIONS, lambda line: None)
    assert len({*cluster.jobs.values()}) == 2


def test_a_trial_is_cancelled_once(todo, cluster, monkeypatch):
    """The rule finds it again at each look, until it has saved and left."""
    slurm.submit(todo, slurm.OPTIONS, lambda line: None)
    looks = []

    def active(_):
        looks.append(0)
        return {"a": "running", "b": "running"} if len(looks) < 6 else {}

    running = status.RunStatus("running")
    monkeypatch.setattr(status, "read", lambda workdir: running)
    monkeypatch.setattr(slurm, "active", active)
    trials.mark_stopped(todo[1].workdir, "by one who waited before")
    rule = lambda live: [(trial, "too low") for trial in live]
    slurm.wait(todo, say=lambda line: None, stop=rule, look=0)
    sent = [one for one in cluster.called if one[0] == "scancel"]
    assert sent == [("scancel", "7_0")]


@pytest.mark.parametrize("file", ["slurm.json", "slurm-asked.json"])
@pytest.mark.parametrize("text", ["[]", "1", '{"a": 1}', "[" * 10**5, '{"name": "x"}'])
def test_a_damaged_file_of_jobs_is_refused(file, text, todo, cluster):
    (path := todo[0].workdir.parent / ".sweep" / file).parent.mkdir()
    path.write_text(text)
    if (file, text) != ("slurm.json", '{"name": "x"}'):
        with pytest.raises(ValueError, match=f"{file}: must be the JSON of a search"):
            slurm.active(todo)
