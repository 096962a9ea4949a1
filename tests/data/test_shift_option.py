"""Option `shift` of data sets: disjoint parts of a split with the requested tables."""

import dataclasses

import numpy as np
import pytest

from jbias import data
from jbias.data import shifts, sources
from tests import cases

CLASSES = ("ant", "bee", "cat", "dog")
COLOURS = ("red", "yellow", "green", "blue")


@pytest.fixture(scope="module")
def full_set():
    """Source of 1,600 different images, a hundred of every class and colour."""
    n = 1600
    number = np.arange(n, dtype=np.uint32)
    images = np.zeros((n, 1, 2, 3), np.uint8)
    images.reshape(n, 6)[:, :4] = number[:, None].view(np.uint8)
    cells = np.random.default_rng(0).permutation(number) % 16
    return sources.ArraySource(
        images=images,
        name="made/train",
        classes=CLASSES,
        space="names",
        columns={
            "label": (cells // 4).astype(np.int32),
            "colour": (cells % 4).astype(np.int32),
            "stripes": np.random.default_rng(1).integers(0, 2, n).astype(np.int32),
        },
        measures=("accuracy",),
        preprocessing="",
        fingerprint="0",
        cite="",
        values={"colour": COLOURS},
    )


@pytest.fixture
def part(full_set):
    def take(name, level="C6", attribute="colour", **options):
        shift = dict(level=level, part=name, attribute=attribute, **options)
        return shifts.apply(full_set, shift)

    return take


@pytest.mark.parametrize("level", ["M4", "C6", "J4", "C0", "only-green"])
def test_parts_share_no_image(part, level):
    sources = [part(name, level) for name in ("train", "valid", "id", "ood")]
    images = np.concatenate([source.images for source in sources])
    assert len(np.unique(images.reshape(len(images), -1), axis=0)) == len(images)
    assert len({source.fingerprint for source in sources}) == 4
    again = part("train", level)
    np.testing.assert_array_equal(again.images, sources[0].images)
    assert again.fingerprint == sources[0].fingerprint


def test_a_conditional_extreme_has_disjoint_values(part):
    for name in ("train", "valid", "id", "ood"):
        source = part(name)
        has_low_class, has_low_value = (
            source.columns["label"] < 2,
            source.columns["attribute"] < 2,
        )
        assert (
            (has_low_value == has_low_class).all()
            if name != "ood"
            else (has_low_value != has_low_class).all()
        )
        assert source.values["attribute"] == COLOURS


def test_the_note_has_the_realised_table(part):
    assert part("id", images=800).note == (
        "shift C6, id: red/yellow/green/blue 10 10 0 0 of each of ant+bee,"
        " 0 0 10 10 of each of cat+dog"
    )


def test_all_levels_have_one_size(part):
    sizes = {
        level: tuple(len(part(name, level)) for name in ("train", "id", "ood"))
        for level in shifts.LEVELS
    }
    assert len(set(sizes.values())) == 1
    # An extreme takes half of the cells, which hold train, valid and id of 9 in 10 ...
    train, in_distribution, _ = sizes["C6"]
    assert 780 <= train + 2 * in_distribution <= 800


def test_the_option_images_sets_the_size_of_train_valid_and_id(part):
    sizes = [len(part(name, images=500)) for name in ("train", "valid", "id", "ood")]
    assert sizes == [400, 50, 50, 50]
    sizes = [
        len(part(name, images=500, held=0.2)) for name in ("train", "valid", "ood")
    ]
    assert sizes == [300, 100, 100]


def test_one_value_is_trained_on_and_each_other_tested_on(part):
    trained = [part(name, "only-green") for name in ("train", "valid", "id")]
    assert all((source.columns["attribute"] == 2).all() for source in trained)
    assert sum(map(len, trained)) == 400
    other = part("ood-blue", "only-green")
    assert len(other) == 400
    assert (other.columns["attribute"] == 3).all()
    few = part("ood-blue", "only-green", images=160)
    assert len(few) == 16
    assert np.ptp(np.bincount(few.columns["label"], minlength=4)) == 0
    assert len(part("ood", "only-green")) == 1200


def test_order_and_groups_say_which_values_go_with_which_classes(part):
    ordered = part("train", order="red+blue+green+yellow")
    assert ordered.values["attribute"] == ("red", "blue", "green", "yellow")
    in_first_group = ordered.columns["label"] < 2
    attributes = ordered.columns["attribute"][in_first_group]
    colours = {ordered.values["attribute"][i] for i in attributes}
    assert colours == {"red", "blue"}
    grouped = part("train", groups="ant/dog")
    label, attribute = grouped.columns["label"], grouped.columns["attribute"]
    attributes_by_class = [np.unique(attribute[label == k]).tolist() for k in range(4)]
    assert attributes_by_class == [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3], [2, 3]]


def test_values_without_names_are_called_by_their_numbers(part):
    assert part("ood", attribute="stripes").values["attribute"] == ("0", "1")


@cases.each(
    ("options", "message"),
    [
        (dict(level="C7"), "level must be one of M0"),
        (dict(part="test"), "part must be one of train"),
        (
            dict(attribute="color"),
            "column of the set, got 'color'; did you mean 'colour'",
        ),
        (dict(attribute="label"), "attribute must be a column of the set"),
        (dict(images=-1), "images must be a whole number >= 0"),
        (dict(held=0.5), "held must be between"),
        (dict(groups="ant/cow"), "groups must be classes of two groups"),
        (dict(groups="ant+bee/cat"), "two of equally many classes"),
        (dict(groups="ant+bee/bee"), "a class once, got 'bee' again"),
        (dict(level="only-red", images=4), "that no part is empty, 4 are too few"),
        (dict(order="red+blue"), "order must name each value once"),
        (dict(level="only-plaid"), "values must be different ones"),
        (dict(level="only-red", part="ood-red"), "values must be different ones"),
        (dict(lebel="C6"), "known options, got 'lebel'; did you mean 'level'"),
        (dict(images=100_000), "images must be at most 800 at C6"),
    ],
)
def test_wrong_options_are_refused_in_a_line(full_set, options, message):
    shift = {"level": "C6", "part": "train", "attribute": "colour", **options}
    with pytest.raises(ValueError, match=message) as error:
        shifts.apply(full_set, shift)
    assert "\n" not in str(error.value)


def test_values_that_do_not_occur_are_left_out(full_set):
    not_yellow = np.flatnonzero(full_set.columns["colour"] != 1)
    subset = sources.take(full_set, not_yellow, digest="no yellow")
    source = shifts.apply(subset, dict(level="C6", part="ood", attribute="colour"))
    assert source.values["attribute"] == ("red", "green", "blue")
    assert source.columns["attribute"].max() == 2


def test_every_set_has_the_option():
    with pytest.raises(ValueError, match="attribute must be a column of the set"):
        data.load("shapes", "silhouette", n=64, shift=dict(level="C6", part="id"))


def test_too_few_images_are_counted(full_set):
    few = sources.take(full_set, np.arange(20), digest="few")
    with pytest.raises(shifts.Infeasible, match="images must be there of every class"):
        shifts.apply(few, dict(level="C6", part="id", attribute="colour"))


def test_a_class_without_images_of_the_value_is_refused(full_set):
    y, colour = full_set.columns["label"], full_set.columns["colour"]
    kept_images = np.flatnonzero((y != 3) | (colour != 2))
    subset = sources.take(full_set, kept_images, digest="no green dogs")
    with pytest.raises(
        shifts.Infeasible, match="dog has 0 with green; leave the class"
    ):
        shifts.apply(subset, dict(level="only-green", part="train", attribute="colour"))


def test_an_attribute_with_one_value_cannot_be_shifted_to_others(full_set):
    red_images = np.flatnonzero(full_set.columns["colour"] == 0)
    subset = sources.take(full_set, red_images, digest="red")
    for part in ("train", "ood"):
        shift = dict(level="only-red", part=part, attribute="colour")
        with pytest.raises(ValueError, match="must have at least two values.*got red"):
            shifts.apply(subset, shift)


def test_all_parts_share_one_opened_set(monkeypatch):
    """A set is opened once for all its parts, because opening is slow."""
    calls, entry = [], dataclasses.replace(data.DATASETS["shapes"])
    open_split = entry.open

    def open_counted(_, *args, **options):
        calls.append(args)
        return open_split(*args, **options)

    monkeypatch.setattr(type(entry), "open", open_counted)
    monkeypatch.setattr(data, "DATASETS", {"shapes": entry})
    for part in ("train", "valid", "id", "ood"):
        shift = dict(level="C6", part=part)
        data.load("shapes", "train", n=2048, correlation=1 / 16, shift=shift)
    assert len(calls) == 1
    data.load("shapes", "valid", n=64)
    assert len(calls) == 2


def test_the_seed_distributes_the_images_of_one_value(part):
    first, repeated, other = (
        part("id", "only-red", seed=seed).fingerprint for seed in (0, 0, 1)
    )
    assert first == repeated != other
