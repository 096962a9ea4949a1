"""The order of tiles: a model that ignores it gets the score 0."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.measures import configural, decisions
from jbias.stimuli import shown, tile_order
from tests import cases

RANDOM = np.random.default_rng(0)


def count_pairs(prediction, label, pair):
    columns = {"label": np.asarray(label), "pair": np.asarray(pair)}
    numbers = configural.numbers(
        {"": decisions.Decisions(np.asarray(prediction), columns)}
    )
    return {number.metric: (number.count, number.n) for number in numbers}


def test_a_pair_counts_if_both_images_are_right():
    """Four pairs: both right, one right, swapped, none right; and one image without partner."""
    counts = count_pairs(
        prediction=[0, 2, 4, 7, 1, 3, 5, 9, 0],
        label=[0, 2, 5, 6, 1, 4, 4, 8, 0],
        pair=[7, 3, 1, 2, 7, 3, 1, 2, 5],
    )
    assert counts["configural_substitute"] == (1, 4)
    assert counts["accuracy"] == (3, 8)
    assert counts["foil_rate"] == (2, 8)


def test_the_score_is_between_its_bounds():
    """2 acc - 1 <= score <= acc for any decisions; both bounds are reached."""
    pair, label = np.repeat(np.arange(50), 2), np.tile([0, 1], 50)
    for share in np.linspace(0, 1, 21):
        is_right = RANDOM.random(100) < share
        counts = count_pairs(np.where(is_right, label, 2), label, pair)
        pairs_right, accuracy = (
            counts["configural_substitute"][0],
            counts["accuracy"][0],
        )
        assert accuracy - 50 <= pairs_right <= accuracy / 2
    assert count_pairs(label, label, pair)["configural_substitute"] == (50, 50)


def test_intervals_count_pairs_as_independent_not_images():
    """With both images or none right per pair, the interval is that of the number of pairs."""
    label, pair = np.tile([0, 1], 400), np.repeat(np.arange(400), 2)

    def width(prediction):
        columns = {"label": label, "pair": pair}
        numbers = configural.numbers({"": decisions.Decisions(prediction, columns)})
        numbers_by_metric = {number.metric: number for number in numbers}
        assert numbers_by_metric["accuracy"][1:4] == (0.5, 400, 800)
        assert numbers_by_metric["accuracy_lower"].n == 400
        pair_score = numbers_by_metric["configural_substitute"]
        expected_interval = decisions.wilson_interval(pair_score.count, 400)
        interval = [
            numbers_by_metric[f"configural_substitute_{end}"].value
            for end in ("lower", "upper")
        ]
        assert interval == [*expected_interval]
        intervals = [
            [numbers_by_metric[f"{metric}_{end}"].value for end in ("lower", "upper")]
            for metric in ("accuracy", "foil_rate")
        ]
        return [high - low for low, high in intervals]

    assert width(np.repeat(np.arange(400) % 2, 2)) == [0, 0]
    pair_score = np.where(pair % 2, label, 9)
    expected = 2 * 1.96 * np.sqrt(0.25 / 400)
    assert width(pair_score) == [pytest.approx(expected, rel=0.1), 0]


def test_a_model_that_ignores_the_order_of_tiles_gets_no_pair_right():
    """It has equal answers within pairs; guessing gets 1 / K^2 of the pairs right."""
    pair, label = np.repeat(np.arange(500), 2), RANDOM.integers(0, 4, 1000)
    label[1::2] = (label[::2] + 1 + label[1::2] % 3) % 4
    counts = count_pairs(np.repeat(RANDOM.integers(0, 4, 500), 2), label, pair)
    assert counts["configural_substitute"] == (0, 500)
    assert counts["accuracy"][0] <= 500
    guessed_pairs = count_pairs(RANDOM.integers(0, 4, 1000), label, pair)[
        "configural_substitute"
    ][0]
    assert abs(guessed_pairs - 500 / 16) < 4 * np.sqrt(500 / 16 * 15 / 16)


@cases.each(
    ("pair", "message"),
    [
        ([0, 0, 0, 1], "a pair must have two images, got 3"),
        ([0, 1, 2, 3], "both images of a pair must be shown, got none"),
    ],
)
def test_invalid_pairs_are_refused(pair, message):
    with pytest.raises(ValueError, match=message):
        count_pairs([0] * 4, [0] * 4, pair)
    with pytest.raises(ValueError, match="must have a column pair"):
        configural.numbers(
            {"": decisions.Decisions(np.zeros(2), {"label": np.zeros(2)})}
        )


def test_swaps_move_every_tile_and_no_two_orders_share_a_place():
    for _ in range(20):
        places = RANDOM.permutation(16)
        orders = [tile_order.swaps(places, which) for which in range(4)]
        assert orders[0].tolist() == [*range(16)]
        for order, other_order in itertools.combinations(orders, 2):
            assert (order != other_order).all()
        for order in orders:
            assert (order[order] == orders[0]).all()  # Tiles are swapped in pairs.
        assert (orders[1][orders[2]] == orders[3]).all()


def test_a_tile_moves_to_all_other_places_equally_often():
    orders = [tile_order.swaps(RANDOM.permutation(16), 1) for _ in range(6000)]
    counts = np.stack([(np.array(orders) == tile).sum(0) for tile in range(16)])
    expected = 6000 / 15
    assert (np.diag(counts) == 0).all()
    off = counts[~np.eye(16, dtype=bool)]
    # Chi squared of fewer than 225 degrees: 299 is passed once in a thousand.
    assert ((off - expected) ** 2 / expected).sum() < 299


def test_images_are_shown_with_tiles_in_other_places():
    order_probe = tile_order.make()
    image = RANDOM.random((5, 32, 24, 3), np.float32)
    rows = shown.Rows(jnp.asarray(image), jnp.arange(5), None, None)
    show = jax.jit(order_probe.show, static_argnums=2)
    stimuli = {
        name: np.asarray(
            show(rows, order_probe.conditions[name], order_probe.static(name))
        )
        for name in order_probe.conditions
    }
    np.testing.assert_array_equal(stimuli[""], image)
    cut_tiles = lambda x: x.reshape(5, 4, 8, 4, 6, 3).swapaxes(2, 3).reshape(5, 16, -1)
    for tiles, swapped_tiles in zip(
        cut_tiles(image), cut_tiles(stimuli["swapped"]), strict=True
    ):
        assert not (tiles == swapped_tiles).all(1).any()
        assert sorted(map(tuple, tiles)) == sorted(map(tuple, swapped_tiles))


@cases.each(("h", "w"), [(30, 35), (32, 24)])
def test_pixels_beyond_the_sixteen_tiles_do_not_move(h, w):
    """The plain image does not change; the swapped image has the same pixels."""
    order_probe = tile_order.make()
    image = RANDOM.random((3, h, w, 3), np.float32)
    rows = shown.Rows(jnp.asarray(image), jnp.arange(3), None, None)
    plain, swapped = (
        np.asarray(order_probe.show(rows, parameters, order_probe.static(name)))
        for name, parameters in order_probe.conditions.items()
    )
    np.testing.assert_array_equal(plain, image)
    np.testing.assert_array_equal(swapped[:, h // 4 * 4 :], image[:, h // 4 * 4 :])
    np.testing.assert_array_equal(
        swapped[:, :, w // 4 * 4 :], image[:, :, w // 4 * 4 :]
    )
    for original, swapped_image in zip(image, swapped, strict=True):
        assert (original != swapped_image).any()
        np.testing.assert_array_equal(
            np.sort(original, None), np.sort(swapped_image, None)
        )


def test_order_dependence_is_the_difference_between_plain_and_swapped():
    label = np.arange(40) % 4
    columns = {"label": label}
    right, wrong = (decisions.Decisions(x, columns) for x in (label, label + 1))
    partly_right = decisions.Decisions(np.where(np.arange(40) < 10, label, 9), columns)

    def value(plain, swapped):
        first, *ends = configural.order_numbers({"": plain, "swapped": swapped})[:3]
        assert first.metric == "order_dependence"
        interval = decisions.wilson_interval(first.count, 40)
        assert [number.value for number in ends] == [*interval]
        return first.value

    assert (
        value(right, right)
        == value(partly_right, partly_right)
        == value(wrong, right)
        == 0
    )
    assert value(right, partly_right) == 0.75 and value(right, wrong) == 1
    assert value(partly_right, wrong) == 0.25
