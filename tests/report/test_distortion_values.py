"""Values of the data-distortion study: which measure they are of, and which seeds have none."""

import json

import numpy as np
import pytest

from jbias.report import distortion_page, distortion_study
from tests import cases
from tests.report import distorted


def test_accuracies_end_at_0_and_100():
    found = distortion_study.summarise(range(2), [99.0, 99.9], within=(0, 100))
    assert found.high == 100 and 80 < found.low < 99
    assert distortion_study.summarise(range(2), [99.0, 99.9]).high > 100


@cases.each(
    ("before", "now", "flips"),
    [
        (-40, 40, "yes"),
        (40, 40, "no"),
        (-40, -40, "no"),
        (-40, 0, "cannot be told"),
        (0, 40, "cannot be told"),
    ],
)
def test_a_flip_is_told_by_intervals(before, now, flips):
    noise = np.array([-2.0, 0, 2])
    leads = [distortion_study.summarise(range(3), x + noise) for x in (before, now)]
    assert distortion_page.flips(*leads) == flips
    single = [distortion_study.summarise((0,), [float(x)]) for x in (before, now)]
    assert distortion_page.flips(*single) == "cannot be told"


def write(folder, found, seeds=2, data="cifar10"):
    """A study of basic networks; found: what is measured of a seed."""
    for seed in range(seeds):
        where = folder / str(seed)
        distorted.write(where, found(seed), method="basic", data=data, seed=seed)
    study, _ = distortion_study.read([f"{folder}/*"])
    (group,) = study.groups.values()
    return study, group


def test_a_network_of_one_class_has_no_index(tmp_path):
    def found(seed):
        rng = np.random.default_rng(seed)
        numbers, by = distorted.shuffled(rng, "basic", ("4x4",))
        if seed == 1:  # Whatever it is shown.
            by[""].prediction[:] = 9
        return {("grid_shuffle", "grid_shuffle", "test"): (numbers, by, {})}

    study, group = write(tmp_path / "one", found)
    value = study.value("di_grid", group.key)
    assert value.seeds == (0,) and value.left_out == 1
    table = distortion_page.comparison(distortion_page.value_layout(study), study)
    (line,) = distortion_page.notes_on_indices(table.data)
    assert "no index for 1 seed of basic, with decisions for one class" in line
    study, group = write(tmp_path / "all", lambda _: found(1))
    value = study.value("di_grid", group.key)
    assert np.isnan(value.mean) and value.left_out == 2 and value.images == distorted.N
    table = distortion_page.comparison(distortion_page.value_layout(study), study)
    assert table.rows[0][4] == "– (n = 0 of 2)"


def test_imagenet_is_shuffled_in_8_by_8(tmp_path):
    def found(seed):
        rng = np.random.default_rng(seed)
        by = distorted.shuffled(rng, "basic", ("2x2", "4x4", "8x8"))
        return {("grid_shuffle", "grid_shuffle", "test"): (*by, {})}

    _, group = write(tmp_path, found, data="imagenet")
    assert distortion_study.interference_condition(group, "di_grid")[1] == "8x8"


def boxes(*measures, **options):
    """cut_occlusion of each name, with its options, of images of another set."""
    rng = np.random.default_rng(0)
    by = distorted.shuffled(rng, "basic", ("other",))
    return {
        (name, "cut_occlusion", "test"): (*by, distorted.boxes("other") | own)
        for name, own in zip(measures, options.values(), strict=True)
    }


def test_each_table_has_boxes_of_its_own(tmp_path):
    uniform = dict(area="uniform", placement="restricted")
    part = dict(area=0.3, placement="restricted")
    names = "uniform", "any", "part"
    found = boxes(*names, a=uniform, b={}, c=part)
    _, group = write(tmp_path, lambda _: found)
    for quantity, name in (("di_anywhere", "any"), ("di_other", "part")):
        place, _ = distortion_study.interference_condition(group, quantity)
        assert place == (name, "test")


def test_several_measures_that_fit_are_refused(tmp_path):
    _, group = write(tmp_path / "a", lambda _: boxes("one", "two", a={}, b={}))
    with pytest.raises(ValueError, match="one@test, two@test"):
        distortion_study.interference_condition(group, "di_anywhere")


@cases.each(
    ("options", "refused"),
    [
        ({"site": "stage2"}, True),
        ({"quantise": True}, True),
        ({"site": "stage3"}, False),
    ],
)
def test_seeds_are_measured_alike(tmp_path, options, refused):
    rng = np.random.default_rng(0)
    numbers = distorted.hidden(rng, "basic", "test")
    key = ("occlusion", "occlusion", "test")
    study, group = write(
        tmp_path, lambda seed: {key: (numbers, None, options if seed else {})}
    )
    if refused:
        with pytest.raises(
            ValueError, match=r"same options for all seeds.*\(2 kinds\)"
        ):
            distortion_study.find_measurement(group, "occlusion", fill="black")
    else:
        place = distortion_study.find_measurement(group, "occlusion", fill="black")
        assert place == ("occlusion", "test")
    lines = list(distortion_page.notes_on_options(study))
    assert len(lines) == refused and all(
        "with 2 sets of options" in line for line in lines
    )
    told = json.loads((tmp_path / "1/measures/occlusion@test.json").read_text())
    assert told["measure"]["options"] == options
