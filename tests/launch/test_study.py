"""The study of a search: sampling, pruning, reporting, and resuming after a kill."""

import json
import pathlib

import numpy as np
import optuna
import pandas as pd
import pytest
import scipy.stats

from jbias.launch import study, trials
from jbias.launch.search import Search
from jbias.runs import results, status
from tests import cases, smoke_runs

CONFIG = "configs/erm.py:smoke,seeds=1"
OTHER = "configs/padain.py:smoke,seeds=1"
WORDS = ("not started", "interrupted")
# ml_collections still calls what Python 3.12 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(smoke_runs.ROOT)


def search(*axes: str, config=(CONFIG,), kind: str = "random", **more) -> Search:
    changes = [f"--config.{axis}" for axis in axes]
    return Search([*config], changes, kind, **more)


def ledger(
    settings: Search, workdir=pathlib.Path("x"), *, keep: bool = False, words=WORDS
):
    planned = study.plan(settings, workdir)
    optuna_study = study.open_study(settings, workdir, keep=keep)
    opened = study.Ledger(settings, workdir, optuna_study, planned)
    if keep:
        opened.prepare(words)
    return opened


def drawn(settings: Search) -> list[dict[str, str]]:
    return [trial.values for trial in ledger(settings).trials.values()]


def evaluate(trial: trials.Trial, curve: dict[int, float], word: str = "") -> None:
    """Write the records of a run, and its end."""
    for step, value in curve.items():
        record = results.Record(
            *("r", "erm", "", "cnn", "shapes", 0, 0, step, 1.0),
            *(results.VALID, "", "accuracy", value, None, None),
        )
        results.write(trial.workdir / "evals" / f"{step}.jsonl", [record])
    if word:
        (trial.workdir / "done").write_text(f"{word}\n")


RATE = "optim.rate=log_uniform(1e-3, 1)"


def test_a_grid_has_all_combinations():
    values = drawn(search("optim.rate=[1, 2]", "epochs=[1, 2, 3]", kind="grid"))
    pairs = [
        (trial_values["optim.rate"], trial_values["epochs"]) for trial_values in values
    ]
    assert pairs == [(a, b) for a in "12" for b in "123"]
    assert drawn(search(kind="grid")) == [{}]
    with pytest.raises(ValueError, match="take --sampler=random, or tpe"):
        drawn(search("optim.rate=uniform(0, 1)", kind="grid"))


def test_more_draws_or_axes_change_none():
    few, more = drawn(search(RATE, trials=5)), drawn(search(RATE, trials=20))
    assert more[:5] == few
    both = drawn(search("optim.decay=uniform(0, 1)", RATE, trials=5))
    rates = [{"optim.rate": values["optim.rate"]} for values in both]
    assert rates == few
    assert drawn(search(RATE, trials=5, seed=1)) != few


def test_all_configs_get_the_same_draws():
    all_trials = ledger(search(RATE, config=(CONFIG, OTHER), trials=3)).trials.values()
    assert [trial.name.partition("-")[0] for trial in all_trials] == 3 * [
        "erm",
        "padain",
    ]
    values = [trial.values["optim.rate"] for trial in all_trials]
    assert values[::2] == values[1::2] and len({*values}) == 3


@pytest.mark.parametrize("kind", ["uniform", "log_uniform"])
def test_draws_are_uniform(kind, monkeypatch):
    make_trial = lambda search, workdir, params: trials.Trial(
        str(params), workdir, (), {}, params
    )
    monkeypatch.setattr(trials, "make", make_trial)
    all_trials = ledger(
        search(f"a={kind}(0.01, 100)", trials=500, seed=3)
    ).trials.values()
    values = np.array([trial.config["a"] for trial in all_trials])
    values = np.log10(values) + 2 if kind == "log_uniform" else values / 25
    assert scipy.stats.kstest(values / 4, "uniform").pvalue > 0.01


def test_draws_are_different_and_end():
    options = dict(trials=3, seed=1)
    values = drawn(search("optim.rate=[0.1, 0.2, 0.3]", **options))
    assert sorted(trial_values["optim.rate"] for trial_values in values) == [
        "0.1",
        "0.2",
        "0.3",
    ]
    with pytest.raises(ValueError, match="about 3 different combinations, got 4"):
        drawn(search("optim.rate=[0.1, 0.2, 0.3]", trials=4))
    with pytest.raises(ValueError, match="at least 1"):
        search(trials=0)


def good(rate: str) -> float:
    """Return an accuracy with its maximum at 0.05."""
    return 1 - min(1.0, abs(np.log10(float(rate) / 0.05)) / 3)


def test_tpe_goes_by_results_and_is_a_function_of_them(tmp_path):
    def rates(workdir) -> list[str]:
        search_ledger = ledger(search(RATE, kind="tpe", trials=25), workdir, keep=True)
        drawn_rates = []
        while trial := search_ledger.next_trial():
            drawn_rates.append(trial.values["optim.rate"])
            evaluate(trial, {1: good(drawn_rates[-1])}, "finished")
            search_ledger.finish(trials.read_status(trial))
        return drawn_rates

    drawn_rates = rates(tmp_path / "a")
    assert rates(tmp_path / "b") == drawn_rates
    assert len({*drawn_rates}) == 25
    late, early = drawn_rates[15:], drawn_rates[:10]
    assert np.mean([*map(good, late)]) > np.mean([*map(good, early)]) + 0.1


def test_draws_of_tpe_are_known_to_the_next_start(tmp_path):
    settings = search(RATE, kind="tpe", trials=4)
    first = ledger(settings, tmp_path, keep=True)
    assert first.num_undrawn == 4
    names = []
    for ended in (True, False):
        trial = first.next_trial()
        names.append(trial.name)
        evaluate(trial, {1: 0.5}, "finished" if ended else "")
    first.finish(trials.read_status(first.trials[names[0]]))
    for keep in (False, True):
        again = ledger(settings, tmp_path, keep=keep)
        assert [*again.trials] == names and again.num_undrawn == 2
    assert again.next_trial().name == names[1]
    assert len([*iter(again.next_trial, None)]) == 2
    assert len(again.trials) == 4


def test_tpe_ends_where_there_are_no_others(tmp_path):
    search_ledger = ledger(
        search("optim.rate=[0.1, 0.2]", kind="tpe", trials=5), tmp_path, keep=True
    )
    rates = []
    while trial := search_ledger.next_trial():
        rates.append(trial.values["optim.rate"])
        evaluate(trial, {1: 0.5}, "finished")
        search_ledger.finish(trials.read_status(trial))
    assert sorted(rates) == ["0.1", "0.2"] and not search_ledger.num_undrawn


CURVES = [{1: 0.2, 2: 0.4, 3: 0.6}, {1: 0.4, 2: 0.6, 3: 0.8}, {1: 0.6, 2: 0.8, 3: 1.0}]


def follow(search_ledger: study.Ledger, curve: dict[int, float]) -> str:
    """Return why the next trial is stopped; its evaluations arrive one by one."""
    trial, reason = search_ledger.next_trial(), ""
    for step, value in curve.items():
        evaluate(trial, {step: value})
        reason = reason or search_ledger.report(trials.read_status(trial))
    if curve and not reason:
        evaluate(trial, {}, "finished")
        search_ledger.finish(trials.read_status(trial))
    return reason


@cases.each(
    ("stop", "curve", "stops"),
    [
        ("median", {1: 0.39}, True),  # The median at 1 is 0.4.
        ("median", {1: 0.4}, False),  # Not worse: strictly below is what stops.
        ("median", {1: 0.45, 2: 0.1}, True),  # Its best, 0.45, against 0.6.
        ("median", {1: 0.65, 2: 0.1}, False),
        ("median", {}, False),
        ("never", {1: 0.0, 2: 0.0}, False),
        ("asha", {1: 0.59}, True),  # Of four at step 1 the best one goes on.
        ("asha", {1: 0.61}, False),
    ],
)
def test_a_pruner_stops_by_the_records_of_runs(stop, curve, stops, tmp_path):
    axis = "optim.rate=[0.1, 0.2, 0.3, 0.4]"
    search_ledger = ledger(search(axis, kind="grid", stop=stop), tmp_path, keep=True)
    for known in CURVES:
        follow(search_ledger, known)
    why = follow(search_ledger, curve)
    assert bool(why) == stops
    assert not stops or f"{stop}: its validation accuracy at step {max(curve)}" in why


def test_hyperband_stops_bad_trials_of_each_bracket(tmp_path):
    axis = f"optim.rate={[i / 100 for i in range(1, 19)]}"
    search_ledger = ledger(
        search(axis, kind="grid", stop="hyperband"), tmp_path, keep=True
    )
    good = [follow(search_ledger, {1: 0.8, 2: 0.9, 3: 1.0}) for _ in range(8)]
    assert not any(good[1:])
    bad = [follow(search_ledger, {1: 0.0, 2: 0.0, 3: 0.0}) for _ in range(10)]
    assert {why.partition(",")[0][-6:] for why in bad} == {"step 1", "step 3"}


@cases.each("more", [dict(fewest=4), dict(grace=1)])
def test_few_completed_trials_and_the_grace_stop_none(more, tmp_path):
    axis = "optim.rate=[0.1, 0.2, 0.3, 0.4]"
    search_ledger = ledger(
        search(axis, kind="grid", stop="median", **more), tmp_path, keep=True
    )
    for known in CURVES:
        trial = search_ledger.next_trial()
        evaluate(trial, known, "finished")
        search_ledger.finish(trials.read_status(trial))
    trial = search_ledger.next_trial()
    evaluate(trial, {1: 0.0})
    assert not search_ledger.report(trials.read_status(trial))


@cases.each("name", ["done", status.STOPPED_FILE, "evals/1.jsonl"])
def test_a_damaged_trial_is_ignored_and_does_not_stop_the_search(name, tmp_path):
    axis = "optim.rate=[0.1, 0.2]"
    search_ledger = ledger(
        search(axis, kind="grid", stop="median", fewest=1), tmp_path, keep=True
    )
    damaged = search_ledger.next_trial()
    evaluate(damaged, {1: 1.0}, "" if "stop" in name else "finished")
    (damaged.workdir / name).write_bytes(b"\xff")
    look = trials.read_status(damaged)
    assert look.state.phase == "damaged"
    assert str(damaged.workdir / name) in look.state.reason
    search_ledger.finish(look)
    trial = search_ledger.next_trial()
    evaluate(trial, {1: 0.0})
    assert not search_ledger.report(trials.read_status(trial))


def test_ended_trials_are_recorded_and_changed_trials_run_again(tmp_path):
    axis = "optim.rate=[0.1, 0.2, 0.3, 0.4, 0.5]"
    search_ledger = ledger(search(axis, kind="grid"), tmp_path, keep=True)
    done, diverged, failed, stopped, interrupted = iter(search_ledger.next_trial, None)
    evaluate(done, {1: 0.3, 2: 0.2}, "finished")
    evaluate(diverged, {1: 0.5}, "diverged")
    failed.workdir.mkdir()
    (failed.workdir / "log.txt").write_text("jbias: disk: full\n")
    stopped.workdir.mkdir()
    trials.mark_stopped(stopped.workdir, "too low")
    evaluate(interrupted, {1: 0.1})
    (interrupted.workdir / "config.json").write_text("{}")
    for trial in (done, diverged, failed, stopped, interrupted):
        search_ledger.finish(trials.read_status(trial))
    states = {
        trial_.user_attrs["run"]: (trial_.state.name, trial_.value)
        for trial_ in search_ledger.study.trials
    }
    assert states == {
        done.name: ("COMPLETE", 0.3),
        diverged.name: ("COMPLETE", 0.0),
        failed.name: ("FAIL", None),
        stopped.name: ("PRUNED", None),
        interrupted.name: ("RUNNING", None),
    }

    def again(*words: str) -> list[str]:
        opened = ledger(search(axis, kind="grid"), tmp_path, keep=True, words=words)
        return [trial_.name for trial_ in iter(opened.next_trial, None)]

    assert again(*WORDS) == [interrupted.name]
    (done.workdir / "done").unlink()  # Somebody trains it once more.
    assert again(*WORDS) == [interrupted.name, done.name]
    assert sorted(again(*WORDS, "failed")) == sorted(
        trial_.name for trial_ in (interrupted, done, failed)
    )


def test_a_study_that_is_lost_or_half_written_loses_no_trial(tmp_path):
    settings = search("optim.rate=[0.1, 0.2, 0.3]", kind="grid")
    first = ledger(settings, tmp_path, keep=True)
    trial = first.next_trial()
    evaluate(trial, {1: 0.5}, "finished")
    first.finish(trials.read_status(trial))
    second = first.next_trial()
    path = tmp_path / ".sweep/study.log"
    whole = path.read_bytes()
    for cut in range(whole.rindex(b"\n", 0, -1) + 1, len(whole), 7):
        path.write_bytes(whole[:cut])
        opened = ledger(settings, tmp_path, keep=True)
        names = [next_trial.name for next_trial in iter(opened.next_trial, None)]
        assert names[0] == second.name and len({*names}) == len(names) == 2
    path.unlink()
    opened = ledger(settings, tmp_path, keep=True)
    assert len([*iter(opened.next_trial, None)]) == 3
    opened.finish(trials.read_status(trial))
    (done,) = opened.study.get_trials(states=(optuna.trial.TrialState.COMPLETE,))
    assert done.value == 0.5 and done.intermediate_values == {1: 0.5}


@pytest.mark.parametrize("kind", ["grid", "random", "tpe"])
def test_a_kill_at_any_line_of_the_journal_draws_the_same(kind, tmp_path):
    axis = "optim.rate=[0.1, 0.2, 0.3]" if kind == "grid" else RATE
    settings = search(axis, kind=kind, trials=3)
    whole = ledger(settings, tmp_path / "whole", keep=True)
    wanted = [drawn_trial.name for drawn_trial in iter(whole.next_trial, None)]
    lines = (tmp_path / "whole/.sweep/study.log").read_bytes().splitlines(keepends=True)
    for count in range(1, len(lines)):
        path = tmp_path / f"{count}/.sweep/study.log"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"".join(lines[:count]))
        resumed = ledger(settings, tmp_path / str(count), keep=True)
        assert [
            drawn_trial.name for drawn_trial in iter(resumed.next_trial, None)
        ] == wanted
        assert (
            len({drawn_trial.user_attrs["run"] for drawn_trial in resumed.study.trials})
            == 3
        )


@cases.each("storage", ["own.log", "sqlite:///{}/x.db"])
def test_a_study_may_lie_elsewhere(storage, tmp_path, monkeypatch):
    named = storage.format(tmp_path) if "://" in storage else str(tmp_path / storage)
    settings = search("optim.rate=[0.1, 0.2]", kind="grid", storage=named)
    first = ledger(settings, tmp_path / "runs", keep=True)
    trial = first.next_trial()
    evaluate(trial, {1: 0.5}, "finished")
    first.finish(trials.read_status(trial))
    (again,) = iter(ledger(settings, tmp_path / "runs", keep=True).next_trial, None)
    assert again.name != trial.name
    assert not (tmp_path / "runs/.sweep").exists()


@cases.each(
    "storage", ["nosuch://x", "sqlite:////no/such/folder/x.db", "{}/broken.log"]
)
def test_a_study_that_cannot_be_read_is_refused_in_one_line(storage, tmp_path):
    (tmp_path / "broken.log").write_text('{"op_code": 99}\n[]\n')
    settings = search(kind="grid", storage=storage.format(tmp_path))
    with pytest.raises(ValueError, match="--storage: the study cannot be read"):
        ledger(settings, tmp_path, keep=True)


def test_the_importance_of_axes_is_drawn_and_written(tmp_path):
    axes = (RATE, "optim.decay=uniform(0, 1)")
    search_ledger = ledger(search(*axes, kind="tpe", trials=12), tmp_path, keep=True)
    with pytest.raises(
        ValueError, match="--importance: two trials must be done, got 0"
    ):
        study.write_importance(search_ledger, print)
    while trial := search_ledger.next_trial():
        evaluate(trial, {1: good(trial.values["optim.rate"])}, "finished")
        search_ledger.finish(trials.read_status(trial))
    messages = []
    study.write_importance(search_ledger, messages.append)
    table = pd.read_csv(tmp_path / "importance.csv").set_index("axis").importance
    assert table.idxmax() == "optim.rate" and abs(table.sum() - 1) < 1e-6
    assert (tmp_path / "importance.png").read_bytes()[:4] == b"\x89PNG"
    assert str(tmp_path / "importance.csv") in messages[0]


def test_settings_without_effect_on_numbers_keep_the_study(tmp_path):
    searches = [search(RATE, trials=5), search(RATE, trials=9, stop="asha")]
    searches += [search(RATE, "run.devices=0"), search(RATE, "epochs=3.0")]
    searches += [search(RATE, seed=1)]
    opened = (study.open_study(settings, tmp_path, keep=True) for settings in searches)
    first, longer, devices, *changed = [
        opened_study.study_name for opened_study in opened
    ]
    assert first == longer == devices and len({first, *changed}) == 3


def test_stored_settings_are_json(tmp_path):
    """The attributes in the study are JSON, which optuna-dashboard reads."""
    search_ledger = ledger(search(RATE, trials=2), tmp_path, keep=True)
    search_ledger.next_trial()
    lines = (tmp_path / ".sweep/study.log").read_text().splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines)
