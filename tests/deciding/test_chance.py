"""Methods at chance are named, by the rule of the report: Wilson's interval and 1 / k or 2 / k."""

import json

import pytest

from jbias.deciding import chance
from jbias.deciding import comparison as comparison_lib
from jbias.runs import results

BIAS = comparison_lib.Settings(metric="shape_bias", dataset="conflict")
ACCURACY = comparison_lib.Settings(metric="accuracy", dataset="conflict")


def write_run(workdir, share):
    """Write a run of two seeds: `share` of 240 decisions among 16 classes match a cue, or are right."""
    records = [
        results.Record(
            run="r",
            algorithm="erm",
            variant="",
            model="cnn",
            train_data="d",
            stage=0,
            seed=seed,
            step=1,
            epoch=1.0,
            dataset=dataset,
            condition="",
            metric=metric,
            value=value,
            n=240,
        )
        for seed in (0, 1)
        for dataset, metric, value in (
            ("valid", "accuracy", 0.5),
            ("conflict", "accuracy", share),
            ("conflict", "fraction_neither", 1 - share),
            ("conflict", "shape_bias", 0.5),
        )
    ]
    results.write(workdir / "evals/1.jsonl", records)
    rule = "argmax over the network's 16 classes"
    data = {"conflict": {"decision": rule}}
    (workdir / "provenance.json").write_text(json.dumps({"data": data}))
    (workdir / "config.json").write_text(json.dumps({"seeds": [0, 1]}))
    (workdir / "done").write_text("finished\n")
    return workdir


# With 240 images, the lower end of the interval of 40 / 240 is 0.125 = 2 / 16, to 0.001.
@pytest.mark.parametrize(
    ("count", "is_at_chance"), [(30, True), (39, True), (43, False)]
)
def test_shape_bias_of_guesses_is_named(tmp_path, count, is_at_chance):
    run = write_run(tmp_path / "a", count / 240)
    good = write_run(tmp_path / "b", 0.9)
    lines = chance.describe(BIAS, {"guesses": [run], "erm": [good]})
    assert [line.partition(":")[0] for line in lines] == ["guesses"] * is_at_chance
    # A run that has not finished has no score yet.
    (run / "done").unlink()
    assert chance.describe(BIAS, {"guesses": [run], "erm": [good]}) == []


def test_accuracy_is_void_only_if_both_methods_guess(tmp_path):
    """A method at chance may be worse than one above chance."""
    low, high = write_run(tmp_path / "a", 0.05), write_run(tmp_path / "b", 0.9)
    assert chance.describe(ACCURACY, {"a": [low], "b": [high]}) == []
    lines = chance.describe(ACCURACY, {"a": [low], "b": [low]})
    assert len(lines) == 2
    assert "accuracy at chance on conflict (5.0 % with 16 classes" in lines[0]
