"""Faults of every kind in a real run end with the right bits or one clear refusal."""

import json
import os
import random
import subprocess
import sys
import types

import pytest

from qa import chaos, chaos_faults, chaos_hooks, chaos_processes, chaos_runs
from tests import smoke_runs


@pytest.mark.slow
@pytest.mark.parametrize(
    "kinds",
    [chaos_faults.KINDS, chaos_processes.KINDS],
    ids=["one process", "two processes"],
)
def test_one_fault_of_every_kind_loses_nothing(kinds, tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "qa.chaos",
            "--seed=7",
            "--jobs=2",
            f"--trials={len(kinds)}",
            f"--kinds={','.join(kinds)}",
            f"--work={tmp_path / 'work'}",
            f"--out={tmp_path}",
        ],
        cwd=smoke_runs.ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    output = all_output(done, tmp_path)
    assert done.returncode == 0, output
    results = json.loads((tmp_path / "chaos.json").read_text())["results"]
    counts = results["kinds"].pop("all")
    assert set(results["kinds"]) | set(results["lacking"]) == set(kinds), output
    assert counts["tried"] + counts["missed"] == len(kinds), output
    assert counts["missed"] < 3, output
    assert counts["recovered"] + counts["refused"] == counts["tried"], output
    if kinds is chaos_faults.KINDS:
        assert counts["refused"] > 1, output  # Two starts, and a write that fails.


def all_output(done, folder) -> str:
    """Return the output of a benchmark and its trials, with logs of lost runs."""
    texts = [f"exit code {done.returncode}", done.stdout, done.stderr]
    for pattern in ("work/*/trials.jsonl", "work/*/trial*/**/log.txt"):
        for path in sorted(folder.glob(pattern)):
            texts.append(f"{path}:\n{path.read_text(errors='replace')}")
    return "\n\n".join(texts)


def test_unclear_errors_and_different_bits_count_as_lost():
    """A silent end, a traceback, two lines or other bits make a run lost."""
    line = "jbias: no room; make some"

    class Bench:
        def __init__(self, last):
            self.run = lambda: chaos_runs.Ended(*last)

    def outcome(first, last=(0, "")):
        return chaos_runs.judge(Bench(last), chaos_runs.Ended(*first))[0]

    assert outcome((-9, "")) == chaos_runs.RECOVERED
    assert outcome((2, line)) == chaos_runs.REFUSED
    for first in (
        (2, ""),
        (2, f"{line}\n{line}"),
        (2, f"Traceback ...\n{line}"),
        (1, line),
        (-11, ""),
        (-9, "Traceback ..."),
        (-1000, "it hangs"),
    ):
        assert outcome(first) == chaos_runs.LOST
    for last in ((chaos_runs.OTHER_BITS, ""), (2, line), (0, "Traceback")):
        assert outcome((-9, ""), last) == chaos_runs.LOST


def test_a_peer_s_end_must_name_the_lost_one_in_one_line(tmp_path):
    bench = chaos_runs.Bench(tmp_path, tmp_path)
    line = "jbias: processes: process 1 of 2 (a, pid 7) was lost; start all processes again"

    def problem(code, output):
        ended = chaos_runs.Ended(code, output)
        return chaos_processes._describe_bad_end(bench, ended, lost=1, what="was lost")

    assert not problem(69, line)
    assert not problem(
        2,
        "jbias: processes: not all of 2 processes reached localhost:7 within 30 s, or two ...",
    )
    for code, output in (
        (0, ""),  # Without the file `done`.
        (2, line),
        (-6, line),
        (69, ""),
        (69, f"{line}\n{line}"),
        (69, f"Traceback ...\n{line}"),
        (69, line.replace("1 of", "0 of")),
        (-9, "it hangs"),
    ):
        assert problem(code, output), output


def test_results_of_one_process_may_differ_by_rounding_and_one_image():
    accuracy = dict(metric="accuracy", step=8, value=0.5, count=16)
    assert chaos_processes._is_close_record(
        {**accuracy}, {**accuracy, "value": 0.53, "count": 17}
    )
    assert not chaos_processes._is_close_record(
        {**accuracy}, {**accuracy, "value": 0.56, "count": 18}
    )
    assert not chaos_processes._is_close_record({**accuracy}, {**accuracy, "step": 9})
    loss = dict(metric="loss", step=8, value=2.0, count=None)
    assert chaos_processes._is_close_record({**loss}, {**loss, "value": 2.0005})
    assert not chaos_processes._is_close_record({**loss}, {**loss, "value": 2.01})


@pytest.mark.parametrize("over", [True, False])
def test_a_peer_is_killed_by_time_or_was_over(over, tmp_path, monkeypatch):
    """A kill at a random time counts as missed if the process had ended."""
    ended = chaos_runs.Ended(0 if over else -9, "")
    child = types.SimpleNamespace(
        is_over=over, kill=lambda: None, wait=lambda *_: ended
    )
    started = []
    monkeypatch.setattr(
        chaos_processes,
        "start",
        lambda bench, hooks: started.append(hooks) or [child] * 2,
    )
    monkeypatch.setattr(chaos_processes, "_counts", lambda bench: {"seconds": 0.01})
    monkeypatch.setattr(chaos_processes, "_describe_bad_end", lambda *_, **__: "")
    monkeypatch.setattr(chaos_processes, "judge", lambda *_: (chaos_runs.RECOVERED, ""))

    class Draws(random.Random):
        choice = staticmethod(lambda values: "time" if "time" in values else 0.01)

    bench = chaos_runs.Bench(tmp_path, tmp_path / "trial")
    bench.trial.mkdir()
    assert chaos_processes.kill_peer(bench, Draws(0))[0] == chaos_runs.RECOVERED
    assert started == [{}] and chaos_hooks.is_missed(bench.trial) == over


def test_harm_is_done_to_a_file_and_differs_from_trial_to_trial():
    content = bytes(range(100))
    harmed = {chaos_faults._damage(content, random.Random(seed)) for seed in range(30)}
    assert content not in harmed
    assert len(harmed) > 10


def test_the_table_counts_by_kind_and_in_all():
    records = {
        number: dict(kind=kind, outcome=outcome)
        for number, (kind, outcome) in enumerate(
            [("a", "recovered"), ("a", "lost"), ("b", "refused"), ("b", "missed")]
        )
    }
    counts, text = chaos.table(records, ["a", "b"])
    assert counts["a"] == dict(tried=2, recovered=1, refused=0, lost=1, missed=0)
    assert counts["all"] == dict(tried=3, recovered=1, refused=1, lost=1, missed=1)
    assert "| b | 1 | 0 | 1 | 0 | 1 |" in text


@pytest.mark.parametrize("happened", [True, False])
def test_events_that_never_happened_are_not_counted_as_survived(
    tmp_path, monkeypatch, happened
):
    def fault(bench, rng):
        hook = chaos_hooks.act_at(bench.workdir, "step", 2, lambda: None)
        callbacks = []
        monkeypatch.setattr(
            chaos_hooks,
            "_call_at_points",
            lambda _, callback: callbacks.append(callback),
        )
        hook()
        for _ in range(1 + happened):
            callbacks[0]("step")
        return chaos_runs.RECOVERED, ""

    monkeypatch.setattr(chaos, "KINDS", {"a": fault})
    outcome = chaos.run_trial(0, "a", 0, tmp_path)["outcome"]
    assert outcome == ("recovered" if happened else "missed")
