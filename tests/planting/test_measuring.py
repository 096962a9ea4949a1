"""A study of decision rules: tables, resumption, and readings from fewer images."""

import numpy as np
import pytest

from jbias.calibrating import measures, rows
from jbias.measures import cue_conflict, decisions
from jbias.planting import making, measuring, plans, rules

pytestmark = pytest.mark.slow  # All tests make and measure a study.
DIALS = (0.25, 0.75)
PLANNED = [
    *(plans.Plan(f"rule-{dial:g}", "rule", dial) for dial in DIALS),
    plans.Plan("none-constant", "none", None, level="constant"),
]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Return a study of decision rules, made and measured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JBIAS_CACHE", str(tmp_path_factory.mktemp("cache")))
        study = making.Study(
            tmp_path_factory.mktemp("study"),
            scale=plans.SMOKE,
            arguments="smoke",
            say=lambda line: None,
        )
        making.make(study, PLANNED)
        measuring.measure(study, PLANNED, subsamples=(60,), draws=2)
        yield study


@pytest.fixture(scope="module")
def readings(study):
    """Return the readings of the study by (network, measure, images, draw)."""
    table = rows.read(study.folder / "readings.csv", rows.Reading)
    return {(x.network, x.measure, x.images, x.draw): x for x in table}


def test_networks_have_their_plan_and_their_verified_reliance(study):
    table = rows.read(study.folder / "networks.csv", rows.PlantedNetwork)
    assert [row.network for row in table] == [plan.name for plan in PLANNED]
    for row, dial in zip(table, DIALS):
        assert row.dial == row.planned_dial == dial and row.accuracy > 0.85
        either = row.verified_shape + row.verified_texture
        assert abs(row.verified_shape / either - dial) < 0.2
    assert table[-1].dial is None and table[-1].accuracy == table[-1].chance


def test_shape_bias_of_a_rule_is_within_five_standard_deviations_of_its_dial(readings):
    for dial in DIALS:
        for key in ("shape_bias", "shape_bias_free"):
            reading = readings[f"rule-{dial:g}", key, 240, 0]
            assert reading.lower <= reading.value <= reading.upper
            deviation = np.sqrt(dial * (1 - dial) / reading.n)
            assert abs(reading.value - dial) < 5 * deviation


def test_every_measure_has_a_reading_and_those_of_changed_images_a_reason(readings):
    for plan in PLANNED:
        for key, measure in measures.MEASURES.items():
            whole = [
                reading
                for (name, measure_key, images, _), reading in readings.items()
                if (name, measure_key) == (plan.name, key) and images in (0, 224, 240)
            ]
            (reading,) = whole
            if measure.needs in ("images", "versions", "activations"):
                assert reading.value is None and reading.reason == rules.NEEDS_IMAGES
            elif plan.family == "rule":
                assert reading.value is not None and reading.seconds >= 0


def test_readings_from_fewer_images_are_of_a_subsample_of_the_decisions(
    study, readings
):
    task = ("shape_bias", "cue_conflict")
    whole = measuring._decisions(study.measured / "rule-0.75", task)
    values = set()
    for draw in range(2):
        few = measuring.subsample(whole, task[1], 60, draw)[""]
        assert len(few.prediction) == 60
        index = few.columns["index"]
        np.testing.assert_array_equal(few.prediction, whole[""].prediction[index])
        expected = cue_conflict.shape_bias(
            few.prediction, few.columns["label"], few.columns["texture"]
        )
        reading = readings["rule-0.75", "shape_bias", 60, draw]
        assert reading.value == expected.value
        assert reading.n == expected.n_shape + expected.n_texture
        values.add(tuple(index))
    assert len(values) == 2


def test_pairs_of_pictures_stay_together_and_small_sets_have_no_subsample():
    number = np.arange(240)
    columns = {"label": number % 16, "pair": number // 2, "index": number}
    decided = {"": decisions.Decisions(number % 16, columns)}
    few = measuring.subsample(decided, "anagrams", 60, 0)[""]
    pairs, counts = np.unique(few.columns["pair"], return_counts=True)
    assert len(pairs) == 30 and {*counts.tolist()} == {2}
    assert measuring.subsample(decided, "anagrams", 240, 0) == {}


def test_a_second_call_shows_nothing_again_and_changes_no_table(study, monkeypatch):
    def fail(*_):
        raise AssertionError("a network was opened again")

    monkeypatch.setattr(making, "open_network", fail)
    tables = ("networks.csv", "readings.csv")
    texts = [(study.folder / name).read_text() for name in tables]
    making.make(study, PLANNED)
    measuring.measure(study, PLANNED, subsamples=(60,), draws=2)
    assert [(study.folder / name).read_text() for name in tables] == texts


def test_a_network_that_is_not_made_is_not_measured_and_breaks_no_table(study, capsys):
    plan = plans.Plan("rule-missing", "rule", 0.5)
    measuring.measure(study, [*PLANNED, plan], subsamples=(60,), draws=2)
    assert study.failures == ["rule-missing: not made, so not measured"]
    study.failures.clear()
    readings = rows.read(study.folder / "readings.csv", rows.Reading)
    assert {x.network for x in readings} == {x.name for x in PLANNED}


def test_a_value_that_is_undefined_from_all_images_is_not_read_from_fewer(readings):
    without_value = {
        (network, key)
        for (network, key, _, draw), reading in readings.items()
        if reading.value is None and draw == 0
    }
    few = {(network, key) for (network, key, images, _) in readings if images == 60}
    assert few and not few & without_value


def test_a_study_without_time_starts_no_network(tmp_path):
    late = making.Study(
        tmp_path, scale=plans.SMOKE, say=lambda line: None, is_due=lambda: True
    )
    assert making.make(late, PLANNED) == []
    assert measuring.measure(late, PLANNED) == []
