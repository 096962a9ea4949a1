"""Complete runs: the files that they write, and configs that they refuse."""

import contextlib
import dataclasses
import json
import math
import pathlib
import shutil
import signal
import types

import numpy as np
import pytest
from etils import epath

from jbias import build, run_spec, train
from jbias import config as jc
from jbias.runs import (
    checkpoints,
    checksums,
    loggers,
    results,
    selection,
    workdirs,
)
from jbias.runtime import messages, signals
from jbias.training import monitoring, schedule, setup, store
from tests import cases, smoke_runs

OWN_ALGORITHM = pathlib.Path(__file__).parent / "own_algorithm.py"


@pytest.fixture(scope="module")
def logged():
    """Return a list that `finished` fills with what loggers get: (step, numbers)."""
    return []


@pytest.fixture(scope="module")
def finished(tmp_path_factory, logged):
    """Return a finished run of two seeds that stored its decisions.

    Each step has a progress line, and metrics are read one step later.
    """
    config = smoke_runs.small()
    config.run.update(decisions=True, steps_per_dispatch=1, log_seconds=1e-6)
    with config.unlocked():
        config.tests.edge.size = 40  # Shares no batch with the others.
    workdir = tmp_path_factory.mktemp("runs") / "erm"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(monitoring, "DEPTH", 1)
        patch.setattr(
            loggers.Loggers,
            "scalars",
            lambda self, step, numbers: logged.append((step, numbers)),
        )
        assert train.run(config, workdir)
    return config, workdir


def test_each_progress_line_has_the_losses_read_since_the_last(finished, logged):
    """Steps 4 and 8 end an evaluation, so that no earlier step is read at step 5."""
    losses = {
        step: [numbers[name]["progress/loss_class"] for name in ("seed-0", "seed-1")]
        for step, numbers in logged
        if "progress/loss_class" in numbers.get("seed-0", {})
    }
    assert [*losses] == [2, 3, 4, 6, 7, 8]
    values = [value for of_seeds in losses.values() for value in of_seeds]
    assert len(set(values)) == 12 and np.isfinite(values).all()
    means = {
        step: numbers["mean"]["progress/loss_class"]
        for step, numbers in logged
        if step in losses and "progress/loss_class" in numbers["mean"]
    }
    assert means == {step: np.mean(of_seeds) for step, of_seeds in losses.items()}


def test_every_set_seed_and_epoch_is_recorded_once(finished):
    _, workdir = finished
    rows = [r for r in smoke_runs.records(workdir) if r["dataset"] != "train"]
    keys = {(r["seed"], r["step"], r["dataset"], r["metric"]) for r in rows}
    sets = [("valid", "accuracy"), ("edge", "accuracy"), ("cue_conflict", "accuracy")]
    cue_metrics = ("fraction_neither", "mrr_shape", "mrr_texture", "mrr_relative")
    sets += [("cue_conflict", metric) for metric in ("shape_bias", *cue_metrics)]
    assert keys == {(s, t, d, m) for s in (0, 1) for t in (4, 8) for d, m in sets}
    assert len(rows) == len(keys)
    assert {(r["step"], r["epoch"]) for r in rows} == {(4, 1.0), (8, 2.0)}


def test_accuracies_are_counts_of_all_images(finished):
    _, workdir = finished
    n = {"valid": 64, "edge": 48, "cue_conflict": 240}
    for r in smoke_runs.records(workdir):
        if r["metric"] == "accuracy":
            assert r["n"] == n[r["dataset"]]
            assert r["value"] == r["count"] / r["n"]


def test_records_are_functions_of_the_decisions(finished):
    from jbias import evals
    from jbias.evals import decision_files
    from jbias.measures import cue_conflict

    _, workdir = finished
    for r in smoke_runs.records(workdir):
        if r["dataset"] != "cue_conflict":
            continue
        path = workdir / "decisions" / "cue_conflict" / f"{r['step']}.parquet"
        decided = decision_files.read(path)[r["seed"]]
        numbers = {
            number.metric: (number.value, number.count, number.n)
            for measure in ("accuracy", "shape_bias")
            for number in evals.MEASURES[measure](decided)
        }
        assert numbers[r["metric"]] == (r["value"], r["count"], r["n"])
        confidence = decided.columns["confidence"]
        right = decided.prediction == decided.columns["label"]
        likelihood = decided.columns["likelihood"]
        assert ((0 < confidence) & (confidence <= 1.0001)).all()
        np.testing.assert_array_equal(likelihood[right], confidence[right])
        assert (likelihood[~right] <= confidence[~right]).all()
        for (
            name,
            cue,
        ) in cue_conflict.RANKED.items():  # The first place is the decision.
            first = decided.columns[name] == 1
            assert (first == (decided.prediction == decided.columns[cue])).all()
            assert decided.columns[name].max() > 1
    edge = decision_files.read(workdir / "decisions/edge/8.parquet")[0]
    assert not edge.columns.keys() & cue_conflict.RANKED.keys()


def test_provenance_has_config_data_device_and_packages(finished):
    config, workdir = finished
    provenance = json.loads((workdir / "provenance.json").read_text())
    assert provenance["config"] == jc.to_dict(config)
    assert provenance["data"]["edge"]["n"] == provenance["data"]["edge"]["scored"] == 48
    assert len(provenance["data"]["train/0"]["fingerprint"]) >= 16
    assert provenance["device"]["platform"] == "cpu"
    assert {"jax", "flax", "optax", "orbax-checkpoint"} <= provenance["packages"].keys()


@pytest.mark.slow
def test_seeds_in_waves_are_recorded_as_seeds_together(finished, tmp_path, capsys):
    config, workdir = finished
    config = config.copy_and_resolve_references()
    config.run.memory = 0.015
    assert train.run(config, tmp_path / "waves")
    assert "2 seeds in waves of at most 1: 2 together need" in capsys.readouterr().err
    assert smoke_runs.records(tmp_path / "waves") == smoke_runs.records(workdir)
    config.run.memory = 1e-4
    with pytest.raises(
        ValueError, match="one seed needs .* take --config.train.accumulate"
    ):
        train.run(config, tmp_path / "none")
    assert not (tmp_path / "none").exists()  # The remedies are of another identity.


@pytest.mark.slow
def test_a_run_begun_in_waves_ends_the_same_without(finished, tmp_path, monkeypatch):
    config, workdir = finished
    config = config.copy_and_resolve_references()
    config.run.together = 1
    save = store.RunStore.save

    def saved_then_stopped(*args, **kwargs):
        save(*args, **kwargs)
        raise RuntimeError("stopped")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="^stopped"):
        patch.setattr(store.RunStore, "save", saved_then_stopped)
        train.run(config, tmp_path / "run")
    assert not (tmp_path / "run" / "done").exists()
    config.run.together = 0
    assert train.run(config, tmp_path / "run")
    assert smoke_runs.records(tmp_path / "run") == smoke_runs.records(workdir)


@pytest.mark.slow
def test_a_stop_signal_after_the_save_decision_still_saves(
    finished, tmp_path, monkeypatch
):
    config, workdir = finished
    config = config.copy_and_resolve_references()
    config.run.steps_per_dispatch = 1
    decide = schedule.due

    def decide_then_stop(step, *args, **options):
        todo = decide(step, *args, **options)
        if step == 2:  # Nothing but training is due at step 2.
            assert todo.action is schedule.Action.ADVANCE
            signal.raise_signal(signal.SIGTERM)
        return todo

    with monkeypatch.context() as patch:
        patch.setattr(schedule, "due", decide_then_stop)
        with pytest.raises(signals.Interrupted, match="SIGTERM at step 3: saved"):
            train.run(config, tmp_path / "run")
    assert checkpoints.steps(tmp_path / "run" / "checkpoints")[-1] == 3
    assert train.run(config, tmp_path / "run")
    assert smoke_runs.records(tmp_path / "run") == smoke_runs.records(workdir)


def test_a_second_start_says_done_and_changes_nothing(finished, capsys):
    config, workdir = finished
    contents = {p: p.read_bytes() for p in (workdir / "evals").iterdir()}
    assert train.run(config, workdir)
    assert "is done: nothing to do" in capsys.readouterr().err
    assert contents == {p: p.read_bytes() for p in (workdir / "evals").iterdir()}


def test_a_lost_evaluation_is_repeated_from_its_checkpoint(finished, tmp_path):
    config, workdir = finished
    copied = tmp_path / "run"
    shutil.copytree(workdir, copied)
    (copied / "done").unlink()
    last = max(copied.glob("evals/*.jsonl"), key=lambda path: int(path.stem))
    last.unlink()
    assert train.run(config, copied)
    assert smoke_runs.records(copied) == smoke_runs.records(workdir)


def make_store(saved: dict, check_lock=lambda: None) -> store.RunStore:
    """Return the store of a run of one seed, without files; `saved` gets what is saved."""

    def save(step, states, info, valid):
        saved.update(info, valid=valid)

    run_options = {"eval_batch": 16, "decisions": False}
    return store.RunStore(
        types.SimpleNamespace(config={"run": run_options}),
        epath.Path("none"),
        group=None,
        checkpoints=types.SimpleNamespace(save=save, step=-1, complete=True),
        records=types.SimpleNamespace(sums_until=lambda step: {}),
        decisions=None,
        costs=types.SimpleNamespace(write=lambda step: None),
        monitor=monitoring.Monitor((0,)),
        log=types.SimpleNamespace(
            failures=lambda *_: None,
            saved=lambda step: None,
            saving=contextlib.nullcontext,
        ),
        check_lock=check_lock,
    )


EXPERIMENT = types.SimpleNamespace(
    stage=types.SimpleNamespace(number=0, rollback=None),
    placed=types.SimpleNamespace(
        layout=types.SimpleNamespace(unpack=lambda states: states)
    ),
    has_statistics=lambda step: True,
)


def test_a_process_without_the_lock_saves_nothing():
    """Another process may have claimed the workdir in the meantime."""

    def raise_lost():
        raise ValueError("the lock was taken over")

    saved = {}
    with pytest.raises(ValueError, match="taken over"):
        make_store(saved, raise_lost).save(EXPERIMENT, (), 1)
    assert not saved


@cases.each("without_evaluation", [True, False])
def test_a_checkpoint_records_a_pending_evaluation_only_for_another_process(
    without_evaluation,
):
    saved = {}
    run_store = make_store(saved)
    run_store.save(EXPERIMENT, (), 8, without_evaluation=without_evaluation)
    evaluation_options = {"eval_batch": 16, "decisions": False}
    assert (saved["step"], saved["left"]) == (
        8,
        evaluation_options if without_evaluation else None,
    )
    assert saved["valid"] == ({} if without_evaluation else None)
    assert run_store.progress.left == (8 if without_evaluation else schedule.NEVER)
    assert run_store.monitor.resets == int(without_evaluation)


def test_another_config_is_refused_by_its_differing_keys(finished):
    config, workdir = finished
    other = config.copy_and_resolve_references()
    other.optim.rate = 0.5
    other.run.log_seconds = 1.0  # Not part of the identity.
    with pytest.raises(ValueError, match="another config") as refused:
        train.run(other, workdir)
    assert "optim.rate: 0.1 != 0.5" in str(refused.value)
    assert "log_seconds" not in str(refused.value)


@pytest.mark.slow
def test_a_workdir_begun_with_another_preset_names_both_presets(tmp_path):
    """The error is one line of the two commands, three differences and the count of others."""
    config, workdir = smoke_runs.small(), tmp_path / "run"
    config.epochs = 0.5
    first, command = "--config=configs/erm.py:demo", "--config=configs/erm.py:small"
    spec = run_spec.RunSpec.from_config(config)
    assert train.run(dataclasses.replace(spec, command=first), workdir)
    config.update(dict(epochs=1.0, size=16))
    config.optim.update(dict(rate=0.5, momentum=0.5))
    spec = run_spec.RunSpec.from_config(config)
    with pytest.raises(ValueError, match="another config") as refused:
        train.run(dataclasses.replace(spec, command=command), workdir)
    assert str(refused.value) == (
        f"workdir: {workdir} holds another config: it was started with {first}, not with "
        f"{command}; 4 entries differ (started != given): epochs: 0.5 != 1.0; "
        "optim.momentum: 0.9 != 0.5; optim.rate: 0.1 != 0.5; and 1 more; name another "
        f"--workdir, or give {first} to resume the run"
    )


def test_a_changed_config_file_is_not_recommended_as_the_remedy(tmp_path):
    """The file was edited, so that the same command now gives another config."""
    config, workdir = smoke_runs.small(), tmp_path / "run"
    config.epochs = 0.5
    command = "--config=mine.py:demo"
    spec = run_spec.RunSpec.from_config(config)
    assert train.run(dataclasses.replace(spec, command=command), workdir)
    config.epochs = 1.0
    spec = run_spec.RunSpec.from_config(config)
    with pytest.raises(ValueError, match="another config") as refused:
        train.run(dataclasses.replace(spec, command=command), workdir)
    assert str(refused.value) == (
        f"workdir: {workdir} holds another config: the config of {command} has changed "
        "since the run was started; 1 entry differs (started != given): epochs: 0.5 != "
        "1.0; name another --workdir"
    )


def test_report_reads_the_run(finished):
    _, workdir = finished
    table = selection.best_validation(results.read([workdir]))
    assert set(table["dataset"]) == {"valid", "edge", "cue_conflict"}
    assert set(table["seed"]) == {0, 1}


def test_a_second_process_is_refused(finished, tmp_path):
    from jbias.runs import workdirs

    config, _ = finished
    refused = pytest.raises(ValueError, match="another process is at work")
    with workdirs.claim(tmp_path, jc.to_dict(config)), refused:
        train.run(config, tmp_path)


def test_a_workdir_with_foreign_files_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match="holds files but no run"):
        train.run(smoke_runs.small(), tmp_path)


def test_files_of_an_early_error_do_not_prevent_a_restart(
    tmp_path, monkeypatch, capsys
):
    """The traceback remains; files of an earlier start or of a search do not matter."""
    workdir = tmp_path / "run"
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="early"):
        patch.setattr(setup, "open_run", _raise_early)
        train.run(smoke_runs.small(), workdir)
    assert (workdir / "traceback.txt").exists()
    (workdir / "stopped.json").write_text("{}")
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="early"):
        patch.setattr(setup, "open_run", _raise_early)
        train.run(smoke_runs.small(), workdir)
    (workdir / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match="holds files but no run"):
        train.run(smoke_runs.small(), workdir)


BUGGY = """
from jbias.algos import base, erm

def make(net, *, site="stage1", p=0.5):
    tap = lambda x, name, key: x * (1 + p) if name == site else x
    plain = erm.make(net.clone(tap=tap))
    def losses(params, stats, batch, key, static=None):
        batch = {**batch, "image": batch["images"]}
        return plain.losses(params, stats, batch, key, static)
    return base.Algo(net, losses)
"""


def _one_seed(path, **algo):
    config = smoke_runs.small(
        algo={"name": f"{path}:make", **algo}, epochs=1.0, seeds=(0,)
    )
    config.tests = {}
    return config


@pytest.mark.slow
def test_errors_of_the_first_start_can_be_fixed_in_the_same_workdir(tmp_path):
    """A single seed is traced only after the config was recorded."""
    workdir, path = tmp_path / "run", tmp_path / "mine.py"
    path.write_text(BUGGY)
    config = _one_seed(path, site="stage9")
    config.init = str(tmp_path / "nofile.pth")
    with pytest.raises(ValueError, match=r"config\.init: .*nofile\.pth"):
        train.run(config, workdir)
    config.init = ""
    with pytest.raises(messages.UserCodeError, match="KeyError: 'images'"):
        train.run(config, workdir)
    path.write_text(BUGGY.replace("images", "image"))
    with pytest.raises(ValueError, match=r"config\.algo\.site: .*'stage9'"):
        train.run(config, workdir)
    config.algo.site = "stage2"
    assert train.run(config, workdir)
    stored = json.loads((workdir / "config.json").read_text())
    provenance = json.loads((workdir / "provenance.json").read_text())
    assert (
        stored == provenance["config"] == jc.to_dict(config)
        and not provenance["resumed"]
    )
    assert provenance["own_code"] == build.user_file_digests(stored)
    checksums.check(workdir, lambda name: True)
    config.algo.site = "stage3"
    with pytest.raises(ValueError, match="another config.*stage2.* != .*stage3"):
        train.run(config, workdir)


@pytest.mark.slow
def test_a_run_finishes_if_its_records_cannot_be_compacted(tmp_path, monkeypatch):
    """Compaction may fail on a damaged line; readers of the records name that line."""

    def refuse(workdir):
        raise ValueError("evals/20.jsonl:3: must be a JSON object")

    monkeypatch.setattr(results, "compact", refuse)
    config = smoke_runs.small(epochs=1.0, seeds=(0,))
    config.tests = {}
    assert train.run(config, tmp_path / "run")
    assert workdirs.read_done(epath.Path(tmp_path / "run")) == "finished"


IMPORTING = """
import sys
from jbias.algos import erm
sys.path.append({folder!r})
import imported_module

def make(net, *, p=imported_module.P):
    return erm.make(net)
"""


def test_a_done_run_is_refused_after_its_code_changed(tmp_path, capfd):
    """A done run is refused while its code files differ, and accepted once they are restored."""
    workdir, path, imported = (
        tmp_path / x for x in ("run", "mine.py", "imported_module.py")
    )
    contents = {path: IMPORTING.format(folder=str(tmp_path)), imported: "P = 0.5\n"}
    for file, text in contents.items():
        file.write_text(text)
    config = _one_seed(path)
    assert train.run(config, workdir)
    records = {file: file.read_bytes() for file in workdir.glob("evals/*")}
    for file, text in contents.items():
        file.write_text(text + "# Edited.\n")
        with pytest.raises(
            ValueError, match=rf"{file.name} has changed since this run"
        ):
            train.run(config, workdir)
        file.write_text(text)
    capfd.readouterr()
    assert train.run(config, workdir)
    assert "is done: nothing to do" in capfd.readouterr().err
    assert records == {file: file.read_bytes() for file in workdir.glob("evals/*")}


@cases.each(
    "written",
    [
        *("checkpoints/4", "evals/4.jsonl", "vary/rate=1/evals/4.jsonl", "done"),
        *("replaced/4", "evaluate.lock", ""),
    ],
)
def test_a_run_that_computed_anything_keeps_its_identity(tmp_path, written):
    """A run also keeps its config with an evaluation lock, and with no further files."""
    workdir, old, new = epath.Path(tmp_path), {"seeds": [0]}, {"seeds": [1]}
    workdirs.record_config(workdir, old)
    checksums.write(
        workdir,
        {"config.json": checksums.checksum((workdir / "config.json").read_bytes())},
    )
    if written:
        workdirs.record_provenance(workdir, {"config": old})
        (workdir / written).parent.mkdir(parents=True, exist_ok=True)
    if written and not written.endswith("lock"):
        (workdir / written).write_text("")
    is_evaluated = written.endswith("lock") and workdirs.claim_evaluation(workdir)
    with is_evaluated or contextlib.nullcontext():
        with (
            pytest.raises(ValueError, match=r"another config.*seeds: \[0\] != \[1\]"),
            workdirs.claim(workdir, new),
        ):
            pass
        workdirs.record_config(workdir, new, anew=True)
    assert json.loads((workdir / "config.json").read_text()) == old
    assert (workdir / "provenance.json").exists() == bool(written)
    assert checksums.read(workdir)


def test_a_run_without_results_is_replaced_by_another_config(tmp_path):
    workdir, old, new = epath.Path(tmp_path), {"seeds": [0]}, {"seeds": [1]}
    workdirs.record_config(workdir, old)
    workdirs.record_provenance(workdir, {"config": old})
    (workdir / "checkpoints").mkdir()
    for name in ("vary/a/config.json", "wandb/jbias.json", "decisions/edge/4.parquet"):
        (workdir / name).parent.mkdir(parents=True, exist_ok=True)
        (workdir / name).write_text("{}")
    with workdirs.claim(workdir, new):
        with (
            pytest.raises(ValueError, match="another process is at work"),
            workdirs.claim(workdir, new),
        ):
            pass
        workdirs.record_config(workdir, new, anew=True)
    assert json.loads((workdir / "config.json").read_text()) == new
    assert {path.name for path in workdir.iterdir()} <= {
        *("config.json", "checkpoints", "lock")
    }


def _raise_early(*args, **kwargs):
    raise RuntimeError("early")


@pytest.mark.slow
def test_a_diverged_seed_is_marked_and_other_seeds_continue(tmp_path, capsys):
    """The loss of a seed becomes NaN at random; other seeds are trained to the end."""
    config = smoke_runs.small(
        algo={"name": f"{OWN_ALGORITHM}:make", "chance": 0.2}, epochs=2.0
    )
    config.seeds = (0, 1, 2)
    assert train.run(config, tmp_path / "run")
    rows = smoke_runs.records(tmp_path / "run")
    marks = {r["seed"]: r["value"] for r in rows if r["metric"] == "diverged"}
    assert 0 < len(marks) < 3, "choose another chance"
    messages = capsys.readouterr().err
    for seed in (0, 1, 2):
        later = [r for r in rows if r["seed"] == seed and r["dataset"] == "edge"]
        is_diverged = [r["step"] >= marks.get(seed, math.inf) for r in later]
        assert [r["status"] == "diverged" for r in later] == is_diverged
        assert [r["value"] is None for r in later] == is_diverged
        assert [r["count"] is None for r in later] == is_diverged
        if seed in marks:
            step = int(marks[seed])
            assert f"seed {seed} diverged: loss not finite at step {step}" in messages


@pytest.mark.slow
def test_when_all_diverge_the_run_ends_and_says_so(tmp_path, capsys):
    config = smoke_runs.small(algo={"name": f"{OWN_ALGORITHM}:make", "chance": 1.0})
    assert not train.run(config, tmp_path / "run")
    assert "every seed diverged" in capsys.readouterr().err
    assert not train.run(config, tmp_path / "run"), "done, and still diverged"


@pytest.mark.slow
def test_stages_follow_one_another(tmp_path):
    """SagNet's head is added to the net that ERM trained; training of the net continues."""
    sagnet = jc.to_dict(smoke_runs.small("sagnet"))["algo"]
    config = smoke_runs.small(stages=({"epochs": 1.0}, {"algo": sagnet, "epochs": 1.0}))
    assert train.run(config, tmp_path / "run")
    rows = [r for r in smoke_runs.records(tmp_path / "run") if r["dataset"] == "train"]
    assert {r["algorithm"] for r in rows} == {"erm+sagnet"}
    assert {(r["stage"], r["step"], r["epoch"]) for r in rows} == {
        (0, 4, 1.0),
        (1, 8, 2.0),
    }
    losses = ("class", "style", "adv")
    assert {r["metric"] for r in rows if r["stage"] == 1} == {
        *(f"loss_{name}" for name in losses),
        *(f"gradient_norm_{name}" for name in losses),
        *(f"gradient_norm_{name}_max" for name in losses),
    }


def _split_options(options):
    """Return the options that select a training set from its data set."""
    return {key: options[key] for key in ("split", "n", "correlation")}


@cases.each(
    ("change", "message"),
    [
        (lambda c: c.algo.update(name="ermm"), "unknown 'ermm'; did you mean 'erm'"),
        (lambda c: c.train.update(batch=129), "config.train.batch: must be 1 to 128"),
        (lambda c: c.tests.edge.update(split="egde"), "config.tests.edge: .*'edge'"),
        (lambda c: c.train.update(data="shape"), "config.train: .*'shapes'"),
        (lambda c: c.model.update(name="resnet19"), "did you mean 'resnet18'"),
        (lambda c: setattr(c, "eval_every", "soon"), "config.eval_every: must be"),
        (lambda c: setattr(c, "precision", "half"), "config.precision"),
        (lambda c: c.run.update(strategy="magic"), "strategy: must be one of"),
        (lambda c: c.run.update(evaluate="there"), "config.run.evaluate: must be here"),
        (lambda c: c.run.update(devices=99), "run.devices must be"),
        (lambda c: c.run.loading.update(gib=1e-6), "or choose a smaller config.size"),
        (lambda c: setattr(c, "inputs", ({"name": "flop"},)), "did you mean 'flip'"),
        (lambda c: setattr(c, "seeds", ()), "config.seeds"),
        (lambda c: setattr(c, "seeds", (0, 2**32)), "config.seeds"),
        (lambda c: setattr(c, "epochs", -1.0), "config.epochs: must be positive"),
        (lambda c: c.optim.update(momentum=5.0), "optim.momentum: must be in"),
        (lambda c: c.model.update(width=0), "config.model.width: must be 1"),
        (lambda c: setattr(c, "epocs", 3), "unknown 'epocs'; did you mean 'epochs'"),
        (lambda c: c.optim.update(name="adam"), "unknown option 'momentum'"),
        (lambda c: c.model.update(widht=3), "did you mean 'width'"),
        (lambda c: c.optim.schedule.update(name="cosin"), "did you mean 'cosine'"),
        (
            lambda c: c.tests.update(valid=c.valid),
            "must not be 'train' or 'valid', got 'valid'",
        ),
        (
            lambda c: setattr(
                c, "valid", dict(data="shapes", **_split_options(c.train))
            ),
            "valid is the training set",
        ),
        (lambda c: setattr(c, "valid", c.train), "config.valid: .*got 'accumulate'"),
        (lambda c: setattr(c, "seeds", (1, 1)), "config.seeds"),
    ],
)
def test_invalid_configs_are_refused_before_anything_is_written(
    tmp_path, change, message
):
    config = smoke_runs.small()
    with config.unlocked():
        change(config)
    with pytest.raises(ValueError, match=message) as refused:
        train.run(config, tmp_path / "run")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.slow
def test_other_data_under_the_same_config_is_refused(finished, tmp_path):
    config, workdir = finished
    copy = tmp_path / "copy"
    shutil.copytree(workdir, copy)
    (copy / "done").unlink()
    path = copy / "provenance.json"
    provenance = json.loads(path.read_text())
    provenance["data"]["edge"]["fingerprint"] = "another"
    path.write_text(json.dumps(provenance))
    (copy / "sums.json").unlink()  # Else the checksum would be wrong.
    with pytest.raises(ValueError, match="other data or code.*edge.fingerprint"):
        train.run(config, copy)


@cases.each(
    ("preset", "change", "message"),
    [
        ("padain", {"p": 1.5}, "p must be in"),
        ("sagnet", {"dropout": 1.5}, "dropout must be in"),
        ("sagnet", {"w_adv": -1.0}, "w_adv must be"),
    ],
)
def test_an_algorithm_refuses_invalid_options(tmp_path, preset, change, message):
    config = smoke_runs.small(preset)
    config.algo.update(change)
    with pytest.raises(ValueError, match=message):
        train.run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists(), "a refused run leaves nothing"


def test_an_unknown_option_of_an_algorithm_is_refused_by_name(tmp_path):
    config = smoke_runs.small("padain")
    with config.algo.unlocked():
        config.algo.mixgroup = 4
    with pytest.raises(ValueError, match="'mixgroup'; did you mean 'mix_group'"):
        train.run(config, tmp_path)
