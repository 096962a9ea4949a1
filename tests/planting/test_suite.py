"""The suite of calibration has every number that a measure is read from."""

import pytest

from jbias import config as jc
from jbias.calibrating import measures, rows
from jbias.planting import making, measuring, plans, streams


def test_the_suite_has_the_measure_and_set_of_every_number():
    suite = jc.load("jbias:suites/calibration:dial=0.5", flag="suite")
    for key, measure in measures.MEASURES.items():
        for record in measure.records:
            assert record.dataset in suite.sets, key
            assert record.dataset in suite.measures[record.measure].sets, key


def test_training_images_of_a_network_are_in_the_suite_only_with_their_dial():
    suite = jc.load("jbias:suites/calibration", flag="suite")
    assert "occlusion" not in suite.measures and "train" not in suite.sets
    planted = jc.load(
        "jbias:suites/calibration:dial=0.25,shortcut=size,strength=0.5", flag="suite"
    )
    for split in ("train", "valid"):
        options = planted.sets[split]
        assert (options.dial, options.shortcut, options.strength) == (0.25, "size", 0.5)


@pytest.mark.slow  # Trains a network and shows it all sets: a minute.
def test_networks_that_see_images_have_a_reading_of_every_measure(
    tmp_path, monkeypatch
):
    """Every value is a number, or undefined for a reason; none is missing."""
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "cache"))
    planned = [
        plans.Plan("trained", "trained", 1.0, shortcut="colour", strength=0.25),
        plans.Plan("mixed_logits", "mixed_logits", 0.5),
        plans.Plan("mixed_images", "mixed_images", 0.5),
        plans.Plan("diverged", "none", None, level="diverged"),
    ]
    lines = []
    study = making.Study(
        tmp_path / "study", scale=plans.SMOKE, arguments="smoke", say=lines.append
    )
    networks = {row.network: row for row in making.make(study, planned)}
    readings = measuring.measure(study, planned, subsamples=())
    assert {*networks} == {plan.name for plan in planned}
    assert networks["diverged"].accuracy is None
    assert networks["trained"].planned_dial == 1
    assert networks["trained"].dial == networks["trained"].verified_reliance
    for reading in readings:
        reason = reading.reason
        if reading.network == "diverged":
            assert reading.value is None and "finite" in reason
        elif streams.undefined_reason(
            networks[reading.network].family,
            measures.MEASURES[reading.measure].needs,
        ):
            assert reading.value is None and reason.startswith("undefined: ")
        elif reading.measure == "iocclusion" and reading.network != "trained":
            assert reason.startswith("not measured")
        else:
            assert (reading.value is None) == reason.startswith("undefined"), reading
            assert reading.images > 0 and reading.seconds is not None
    assert rows.read(study.folder / "readings.csv", rows.Reading) == readings


def test_reliable_cues_are_in_the_suite_as_in_training(tmp_path, monkeypatch):
    monkeypatch.setenv("JBIAS_CACHE", str(tmp_path / "cache"))
    (plan,) = [
        plan
        for plan in plans.visible(plans.SMOKE)
        if plan.name.startswith("trained-1-agreement-")
    ]
    study = making.Study(tmp_path, scale=plans.SMOKE, arguments="smoke")
    source = measuring.own_suite(study, plan).sources["valid"]
    label = source.columns["label"]
    agreement = [(source.columns[cue] == label).mean() for cue in ("shape", "texture")]
    assert abs(agreement[0] - 0.95) < 0.07 and abs(agreement[1] - 0.6) < 0.16
