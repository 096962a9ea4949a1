"""The option `shift` of data sets: parts of one split, with the tables asked for."""

import dataclasses

import numpy as np
import pytest

from jbias import data
from jbias.data import shifts, sources
from tests import cases

CLASSES = ("ant", "bee", "cat", "dog")
COLOURS = ("red", "yellow", "green", "blue")


@pytest.fixture(scope="module")
def whole():
    """1,600 different images, a hundred of every class and colour."""
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
def part(whole):
    def take(name, level="C6", attribute="colour", **options):
        chosen = dict(level=level, part=name, attribute=attribute, **options)
        return shifts.apply(whole, chosen)

    return take


@pytest.mark.parametrize("level", ["M4", "C6", "J4", "C0", "only-green"])
def test_parts_share_no_image(part, level):
    parts = [part(name, level) for name in ("train", "valid", "id", "ood")]
    images = np.concatenate([one.images for one in parts])
    assert len(np.unique(images.reshape(len(images), -1), axis=0)) == len(images)
    assert len({one.fingerprint for one in parts}) == 4
    again = part("train", level)
    np.testing.assert_array_equal(again.images, parts[0].images)
    assert again.fingerprint == parts[0].fingerprint


def test_a_conditional_extreme_has_disjoint_values(part):
    for name in ("train", "valid", "id", "ood"):
        one = part(name)
        first, low = one.columns["label"] < 2, one.columns["attribute"] < 2
        assert (low == first).all() if name != "ood" else (low != first).all()
        assert one.values["attribute"] == COLOURS


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
    train, own, _ = sizes["C6"]
    assert 780 <= train + 2 * own <= 800


def test_images_says_how_many_there_are_to_train_validate_and_test_like_training(part):
    sizes = [len(part(name, images=500)) for name in ("train", "valid", "id", "ood")]
    assert sizes == [400, 50, 50, 50]
    sizes = [
        len(part(name, images=500, held=0.2)) for name in ("train", "valid", "ood")
    ]
    assert sizes == [300, 100, 100]


def test_one_value_is_trained_on_and_each_other_tested_on(part):
    trained = [part(name, "only-green") for name in ("train", "valid", "id")]
    assert all((one.columns["attribute"] == 2).all() for one in trained)
    assert sum(map(len, trained)) == 400
    other = part("ood-blue", "only-green")
    assert len(other) == 400
    assert (other.columns["attribute"] == 3).all()
    few = part("ood-blue", "only-green", images=160)
    assert len(few) == 16
    assert np.ptp(np.bincount(few.columns["label"], minlength=4)) == 0
    assert len(part("ood", "only-green")) == 1200


def test_order_and_groups_say_which_values_go_with_which_classes(part):
    one = part("train", order="red+blue+green+yellow")
    assert one.values["attribute"] == ("red", "blue", "green", "yellow")
    shown = {
        one.values["attribute"][i]
        for i in one.columns["attribute"][one.columns["label"] < 2]
    }
    assert shown == {"red", "blue"}
    two = part("train", groups="ant/dog")
    of = [
        np.unique(two.columns["attribute"][two.columns["label"] == k]).tolist()
        for k in range(4)
    ]
    assert of == [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3], [2, 3]]


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
def test_wrong_options_are_refused_in_a_line(whole, options, message):
    chosen = {"level": "C6", "part": "train", "attribute": "colour", **options}
    with pytest.raises(ValueError, match=message) as error:
        shifts.apply(whole, chosen)
    assert "\n" not in str(error.value)


def test_values_that_do_not_occur_are_none(whole):
    seen = np.flatnonzero(whole.columns["colour"] != 1)
    some = sources.take(whole, seen, digest="no yellow")
    one = shifts.apply(some, dict(level="C6", part="ood", attribute="colour"))
    assert one.values["attribute"] == ("red", "green", "blue")
    assert one.columns["attribute"].max() == 2


def test_every_set_has_the_option():
    with pytest.raises(ValueError, match="attribute must be a column of the set"):
        data.load("shapes", "silhouette", n=64, shift=dict(level="C6", part="id"))


def test_too_few_images_are_counted(whole):
    few = sources.take(whole, np.arange(20), digest="few")
    with pytest.raises(shifts.Infeasible, match="images must be there of every class"):
        shifts.apply(few, dict(level="C6", part="id", attribute="colour"))


def test_a_class_without_images_of_the_value_is_refused(whole):
    y, colour = whole.columns["label"], whole.columns["colour"]
    seen = np.flatnonzero((y != 3) | (colour != 2))
    some = sources.take(whole, seen, digest="no green dogs")
    with pytest.raises(
        shifts.Infeasible, match="dog has 0 with green; leave the class"
    ):
        shifts.apply(some, dict(level="only-green", part="train", attribute="colour"))


def test_parts_come_of_one_opened_set(monkeypatch):
    """Opening is what takes long: it is done once for all parts."""
    opened, entry = [], data.DATASETS["shapes"]

    def make(*args, **options):
        opened.append(args)
        return entry.make(*args, **options)

    row = dataclasses.replace(entry, make=make)
    monkeypatch.setattr(data, "DATASETS", {"shapes": row})
    even = dict(n=2048, correlation=1 / 16)
    for part in ("train", "valid", "id", "ood"):
        data.load("shapes", "train", **even, shift=dict(level="C6", part=part))
    assert len(opened) == 1
    data.load("shapes", "valid", n=64)
    assert len(opened) == 2


def test_the_seed_deals_the_images_of_one_value(part):
    one, same, other = (
        part("id", "only-red", seed=seed).fingerprint for seed in (0, 0, 1)
    )
    assert one == same != other
