"""Orders of tiles: what does not see them scores nothing, whatever else it knows."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.evals import configural, decisions, probe
from tests import cases

RANDOM = np.random.default_rng(0)


def told(prediction, label, pair):
    columns = {"label": np.asarray(label), "pair": np.asarray(pair)}
    found = configural.numbers(
        {"": decisions.Decisions(np.asarray(prediction), columns)}
    )
    return {one.metric: (one.count, one.n) for one in found}


def test_a_pair_counts_where_both_are_right():
    """Four pairs, not in order: both right, one right, swapped, neither; and half a pair."""
    found = told(
        prediction=[0, 2, 4, 7, 1, 3, 5, 9, 0],
        label=[0, 2, 5, 6, 1, 4, 4, 8, 0],
        pair=[7, 3, 1, 2, 7, 3, 1, 2, 5],
    )
    assert found["configural_substitute"] == (1, 4)
    assert found["accuracy"] == (3, 8)
    assert found["foil_rate"] == (2, 8)


def test_the_score_is_between_its_bounds():
    """2 acc - 1 <= score <= acc, whoever decides; both ends are reached."""
    pair, label = np.repeat(np.arange(50), 2), np.tile([0, 1], 50)
    for share in np.linspace(0, 1, 21):
        right = RANDOM.random(100) < share
        found = told(np.where(right, label, 2), label, pair)
        both, accuracy = found["configural_substitute"][0], found["accuracy"][0]
        assert accuracy - 50 <= both <= accuracy / 2
    assert told(label, label, pair)["configural_substitute"] == (50, 50)


def test_two_pictures_of_a_pair_are_not_two_draws():
    """One right of each pair always, or both or none: the interval is that over pairs."""
    label, pair = np.tile([0, 1], 400), np.repeat(np.arange(400), 2)

    def width(prediction):
        columns = {"label": label, "pair": pair}
        found = configural.numbers({"": decisions.Decisions(prediction, columns)})
        by = {one.metric: one for one in found}
        assert by["accuracy"][1:4] == (0.5, 400, 800)
        assert by["accuracy_lower"].n == 400
        both = by["configural_substitute"]
        ends = decisions.wilson_interval(both.count, 400)
        told = [by[f"configural_substitute_{end}"].value for end in ("lower", "upper")]
        assert told == [*ends]
        sides = [
            [by[f"{metric}_{end}"].value for end in ("lower", "upper")]
            for metric in ("accuracy", "foil_rate")
        ]
        return [high - low for low, high in sides]

    assert width(np.repeat(np.arange(400) % 2, 2)) == [0, 0]
    both = np.where(pair % 2, label, 9)
    expected = 2 * 1.96 * np.sqrt(0.25 / 400)
    assert width(both) == [pytest.approx(expected, rel=0.1), 0]


def test_what_sees_a_bag_of_tiles_never_gets_a_pair_right():
    """It answers alike, so half of the pictures at most; guessing gets 1 / K^2 of pairs."""
    pair, label = np.repeat(np.arange(500), 2), RANDOM.integers(0, 4, 1000)
    label[1::2] = (label[::2] + 1 + label[1::2] % 3) % 4
    found = told(np.repeat(RANDOM.integers(0, 4, 500), 2), label, pair)
    assert found["configural_substitute"] == (0, 500)
    assert found["accuracy"][0] <= 500
    guessed = told(RANDOM.integers(0, 4, 1000), label, pair)["configural_substitute"][0]
    assert abs(guessed - 500 / 16) < 4 * np.sqrt(500 / 16 * 15 / 16)


@cases.each(
    ("pair", "said"),
    [
        ([0, 0, 0, 1], "a pair must have two images, got 3"),
        ([0, 1, 2, 3], "both images of a pair must be shown, got none"),
    ],
)
def test_what_are_no_pairs_is_refused(pair, said):
    with pytest.raises(ValueError, match=said):
        told([0] * 4, [0] * 4, pair)
    with pytest.raises(ValueError, match="must have a column pair"):
        configural.numbers(
            {"": decisions.Decisions(np.zeros(2), {"label": np.zeros(2)})}
        )


def test_swaps_leave_no_tile_and_no_two_orders_agree_anywhere():
    for _ in range(20):
        places = RANDOM.permutation(16)
        orders = [configural.swaps(places, which) for which in range(4)]
        assert orders[0].tolist() == [*range(16)]
        for one, other in itertools.combinations(orders, 2):
            assert (one != other).all()
        for one in orders:
            assert (one[one] == orders[0]).all()  # Pairs change places.
        assert (orders[1][orders[2]] == orders[3]).all()


def test_a_tile_goes_to_each_other_place_as_often():
    orders = [configural.swaps(RANDOM.permutation(16), 1) for _ in range(6000)]
    counts = np.stack([(np.array(orders) == tile).sum(0) for tile in range(16)])
    expected = 6000 / 15
    assert (np.diag(counts) == 0).all()
    off = counts[~np.eye(16, dtype=bool)]
    # Chi squared of fewer than 225 degrees: 299 is passed once in a thousand.
    assert ((off - expected) ** 2 / expected).sum() < 299


def test_images_are_shown_with_tiles_in_other_places():
    made = configural.make_tile_order()
    image = RANDOM.random((5, 32, 24, 3), np.float32)
    rows = probe.Rows(jnp.asarray(image), jnp.arange(5), None, None)
    show = jax.jit(made.show, static_argnums=2)
    seen = {
        name: np.asarray(show(rows, made.conditions[name], made.static(name)))
        for name in made.conditions
    }
    np.testing.assert_array_equal(seen[""], image)
    cut = lambda x: x.reshape(5, 4, 8, 4, 6, 3).swapaxes(2, 3).reshape(5, 16, -1)
    for one, other in zip(cut(image), cut(seen["swapped"]), strict=True):
        assert not (one == other).all(1).any()
        assert sorted(map(tuple, one)) == sorted(map(tuple, other))


@cases.each(("h", "w"), [(30, 35), (32, 24)])
def test_what_sixteen_tiles_leave_of_the_sides_stays(h, w):
    """The image as it is is shown so, and swapped it has the same pixels."""
    made = configural.make_tile_order()
    image = RANDOM.random((3, h, w, 3), np.float32)
    rows = probe.Rows(jnp.asarray(image), jnp.arange(3), None, None)
    plain, swapped = (
        np.asarray(made.show(rows, one, made.static(name)))
        for name, one in made.conditions.items()
    )
    np.testing.assert_array_equal(plain, image)
    np.testing.assert_array_equal(swapped[:, h // 4 * 4 :], image[:, h // 4 * 4 :])
    np.testing.assert_array_equal(
        swapped[:, :, w // 4 * 4 :], image[:, :, w // 4 * 4 :]
    )
    for one, other in zip(image, swapped, strict=True):
        assert (one != other).any()
        np.testing.assert_array_equal(np.sort(one, None), np.sort(other, None))


def test_order_dependence_is_nothing_for_what_sees_a_bag():
    label = np.arange(40) % 4
    columns = {"label": label}
    right, wrong = (decisions.Decisions(x, columns) for x in (label, label + 1))
    some = decisions.Decisions(np.where(np.arange(40) < 10, label, 9), columns)

    def value(plain, swapped):
        first, *ends = configural.order_numbers({"": plain, "swapped": swapped})[:3]
        assert first.metric == "order_dependence"
        interval = decisions.wilson_interval(first.count, 40)
        assert [one.value for one in ends] == [*interval]
        return first.value

    assert value(right, right) == value(some, some) == value(wrong, right) == 0
    assert value(right, some) == 0.75 and value(right, wrong) == 1
    assert value(some, wrong) == 0.25
