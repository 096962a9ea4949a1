"""Values of the data-distortion study: the measure they come from, and omitted seeds."""

import json

import numpy as np
import pytest

from jbias.report.pages.distortion import distortion_groups, distortion_page
from tests import cases
from tests.report import distorted


def test_intervals_of_accuracies_end_at_0_and_100():
    value = distortion_groups.summarise(range(2), [99.0, 99.9], within=(0, 100))
    assert value.high == 100 and 80 < value.low < 99
    assert distortion_groups.summarise(range(2), [99.0, 99.9]).high > 100


@cases.each(
    ("basic_lead", "method_lead", "flips"),
    [
        (-40, 40, "yes"),
        (40, 40, "no"),
        (-40, -40, "no"),
        (-40, 0, "cannot be told"),
        (0, 40, "cannot be told"),
    ],
)
def test_flips_are_decided_by_intervals(basic_lead, method_lead, flips):
    noise = np.array([-2.0, 0, 2])
    leads = [
        distortion_groups.summarise(range(3), x + noise)
        for x in (basic_lead, method_lead)
    ]
    assert distortion_page.flips(leads[0], leads[1]) == flips
    single = [
        distortion_groups.summarise((0,), [float(x)]) for x in (basic_lead, method_lead)
    ]
    assert distortion_page.flips(single[0], single[1]) == "cannot be told"


def write(folder, make_measurements, seeds=2, data="cifar10"):
    """Write a study of basic networks.

    make_measurements: function of a seed that returns its measurements.
    """
    for seed in range(seeds):
        distorted.write(
            folder / str(seed),
            make_measurements(seed),
            method="basic",
            data=data,
            seed=seed,
        )
    study, _ = distortion_groups.read([f"{folder}/*"])
    (group,) = study.groups.values()
    return study, group


def test_a_network_that_decides_for_one_class_has_no_index(tmp_path):
    def make_measurements(seed):
        rng = np.random.default_rng(seed)
        numbers, by_condition = distorted.fake_interference(rng, "basic", ("4x4",))
        if seed == 1:  # Every decision is for class 9.
            by_condition[""].prediction[:] = 9
        return {("grid_shuffle", "grid_shuffle", "test"): (numbers, by_condition, {})}

    study, group = write(tmp_path / "one", make_measurements)
    value = study.value("di_grid", group.key)
    assert value.seeds == (0,) and value.left_out == 1
    table = distortion_page.comparison(distortion_page.value_layout(study), study)
    (line,) = distortion_page.notes_on_indices(table.data)
    assert "no index for 1 seed of basic, with decisions for one class" in line
    study, group = write(tmp_path / "all", lambda _: make_measurements(1))
    value = study.value("di_grid", group.key)
    assert np.isnan(value.mean) and value.left_out == 2 and value.images == distorted.N
    table = distortion_page.comparison(distortion_page.value_layout(study), study)
    assert table.rows[0][4] == "– (n = 0 of 2)"


def test_imagenet_is_shuffled_in_8_by_8(tmp_path):
    def make_measurements(seed):
        rng = np.random.default_rng(seed)
        numbers, by_condition = distorted.fake_interference(
            rng, "basic", ("2x2", "4x4", "8x8")
        )
        return {("grid_shuffle", "grid_shuffle", "test"): (numbers, by_condition, {})}

    _, group = write(tmp_path, make_measurements, data="imagenet")
    assert distortion_groups.interference_condition(group, "di_grid")[1] == "8x8"


def fake_box_measures(**options):
    """Return a cut_occlusion measure per name, with its options, filled by another set."""
    rng = np.random.default_rng(0)
    numbers, by_condition = distorted.fake_interference(rng, "basic", ("other",))
    fills = distorted.box_options("other")
    return {
        (name, "cut_occlusion", "test"): (numbers, by_condition, fills | box)
        for name, box in options.items()
    }


def test_each_table_selects_measures_by_box_options(tmp_path):
    uniform = dict(area="uniform", placement="restricted")
    part = dict(area=0.3, placement="restricted")
    measurements = fake_box_measures(uniform=uniform, any={}, part=part)
    _, group = write(tmp_path, lambda _: measurements)
    for quantity, name in (("di_anywhere", "any"), ("di_other", "part")):
        place, _ = distortion_groups.interference_condition(group, quantity)
        assert place == (name, "test")


def test_several_measures_that_fit_are_refused(tmp_path):
    _, group = write(tmp_path / "a", lambda _: fake_box_measures(one={}, two={}))
    with pytest.raises(ValueError, match="one@test, two@test"):
        distortion_groups.interference_condition(group, "di_anywhere")


@cases.each(
    ("options", "is_refused"),
    [
        ({"site": "stage2"}, True),
        ({"quantise": True}, True),
        ({"site": "stage3"}, False),
    ],
)
def test_seeds_with_different_options_are_refused(tmp_path, options, is_refused):
    rng = np.random.default_rng(0)
    numbers = distorted.fake_occlusion(rng, "basic", "test")
    key = ("occlusion", "occlusion", "test")
    study, group = write(
        tmp_path, lambda seed: {key: (numbers, None, options if seed else {})}
    )
    if is_refused:
        with pytest.raises(
            ValueError, match=r"same options for all seeds.*\(2 kinds\)"
        ):
            distortion_groups.find_measurement(group, "occlusion", fill="black")
    else:
        place = distortion_groups.find_measurement(group, "occlusion", fill="black")
        assert place == ("occlusion", "test")
    lines = list(distortion_page.notes_on_options(study))
    assert len(lines) == is_refused and all(
        "with 2 sets of options" in line for line in lines
    )
    description = json.loads((tmp_path / "1/measures/occlusion@test.json").read_text())
    assert description["measure"]["options"] == options
