"""Scores of seeds come from finished runs only, by the rules of `runs.selection`."""

import json

import pytest

from jbias.deciding import comparison as comparison_lib
from jbias.deciding import seed_scores
from jbias.runs import results, selection

SETTINGS = comparison_lib.Settings(metric="accuracy", dataset="edge")


def _record(seed, step, dataset, metric, value):
    """Return a record of the test's run."""
    return results.Record(
        run="r",
        algorithm="erm",
        variant="",
        model="cnn",
        train_data="d",
        stage=0,
        seed=seed,
        step=step,
        epoch=float(step),
        dataset=dataset,
        condition="",
        metric=metric,
        value=value,
    )


def write_run(workdir, scores, *, done="finished", hours=1.0):
    """Write a run with two evaluations per seed; scores: (valid, edge) per step, None: diverged."""
    workdir.mkdir(parents=True)
    config = {"algo": {"name": "erm"}, "train": {"data": "d"}, "seeds": [*scores]}
    (workdir / "config.json").write_text(json.dumps(config))
    for step in range(2):
        records = []
        for seed, pairs in scores.items():
            if pairs is None:
                record = _record(seed, step, "train", "diverged", 1.0)
                records.append(record._replace(status="diverged"))
                continue
            for name, value in zip(("valid", "edge"), pairs[step], strict=True):
                records.append(_record(seed, step, name, "accuracy", value))
        results.write(workdir / "evals" / f"{step}.jsonl", records)
    total = {"device_hours": hours}
    (workdir / "costs.json").write_text(json.dumps({"total": total}))
    if done:
        (workdir / "done").write_text(done)
    return workdir


SCORES = {0: [(0.5, 0.1), (0.4, 0.2)], 1: [(0.3, 0.7), (0.6, 0.8)], 2: None}


def test_scores_are_those_of_the_selected_evaluation_and_none_if_diverged(tmp_path):
    run = write_run(tmp_path / "run", SCORES)
    assert seed_scores.read([run], SETTINGS) == {0: 0.1, 1: 0.8, 2: None}
    frame = results.read(run)
    for rule, rows in {
        "best_validation": selection.best_validation(frame),
        "last_n:2": selection.last_n(frame, 2),
        "at_epoch:1": selection.at_epoch(frame, 1.0),
        "best_on:valid": selection.best_on(frame, "valid"),
    }.items():
        rows = rows[rows["dataset"] == "edge"]
        settings = comparison_lib.Settings(
            metric="accuracy", dataset="edge", selection=rule
        )
        expected = dict(zip(rows["seed"], rows["value"])) | {2: None}
        assert seed_scores.read([run], settings) == expected


def test_a_run_that_has_not_ended_has_no_scores(tmp_path):
    """Its selected evaluation could still change."""
    run = write_run(tmp_path / "run", SCORES, done="")
    assert seed_scores.read([run, tmp_path / "absent"], SETTINGS) == {}


def test_runs_of_which_every_seed_diverged_have_no_score(tmp_path):
    run = write_run(tmp_path / "run", {3: None, 4: None}, done="diverged")
    assert seed_scores.read([run], SETTINGS) == {3: None, 4: None}
    for path in (run / "evals").glob("*"):
        path.unlink()
    assert seed_scores.read([run], SETTINGS) == {3: None, 4: None}


def test_batches_are_read_from_their_folders_with_their_hours(tmp_path):
    plan = comparison_lib.Comparison(
        settings=SETTINGS,
        methods=("new",),
        reference="old",
        first_seeds=(0,),
        are_trained=False,
    ).with_batches(
        [comparison_lib.Batch("new", (0, 1, 2)), comparison_lib.Batch("old", (0, 1))]
    )
    write_run(tmp_path / "new-seeds-0-2", SCORES, hours=0.25)
    scores = seed_scores.read_batches(tmp_path, plan)
    assert scores == {"new": {0: 0.1, 1: 0.8, 2: None}, "old": {}}
    write_run(tmp_path / "old-seeds-0-1", SCORES, hours=0.5, done="")
    assert seed_scores.device_hours(tmp_path, plan) == 0.75


def test_an_undefined_metric_is_no_score(tmp_path):
    """Such as the shape bias of a network that decides for neither cue."""
    scores = {5: [(0.5, None), (0.4, None)], 6: [(0.5, 0.1), (0.4, 0.2)]}
    run = write_run(tmp_path / "run", scores)
    assert seed_scores.read([run], SETTINGS) == {5: None, 6: 0.1}


def test_wrong_requests_are_refused_in_one_line(tmp_path):
    run = write_run(tmp_path / "run", SCORES)
    other = write_run(tmp_path / "other", {1: SCORES[1]})
    with pytest.raises(ValueError, match="seed 1 is also in"):
        seed_scores.read([run, other], SETTINGS)
    settings = comparison_lib.Settings(metric="shape_bias", dataset="edge")
    with pytest.raises(
        ValueError, match="has no shape_bias on edge; .* accuracy on edge"
    ):
        seed_scores.read([run], settings)
    for rule, message in {
        "best_valid": "did you mean 'best_validation'",
        "last_n": "must be like last_n:N",
        "last_n:0": "must be like last_n:N",
        "best_validation:3": "must be like best_validation",
        "best_on:edge": "is then no test set",
    }.items():
        settings = comparison_lib.Settings(
            metric="accuracy", dataset="edge", selection=rule
        )
        with pytest.raises(ValueError, match=message):
            seed_scores.check_settings(settings)


def test_names_are_plain_unless_two_are_equal():
    erm = {"algo": {"name": "erm"}, "variant": "", "seeds": [0]}
    mixup = {**erm, "variant": "mixup"}
    assert seed_scores.names([mixup], erm) == ["erm-mixup", "erm"]
    slow = {**erm, "optim": {"rate": 0.1}}
    assert seed_scores.names([slow], erm) == ["erm", "erm-reference"]
    first, second, reference = seed_scores.names([slow, erm], mixup)
    assert first != second
    assert first.startswith("erm-")
    assert reference == "erm-mixup"
    # Seeds do not change a name.
    other_seeds = {**slow, "seeds": [4]}
    assert seed_scores.names([other_seeds, erm], mixup) == [first, second, reference]
