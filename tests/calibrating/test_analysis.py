"""Laws of the analysis on simulated networks: its statistics have closed forms."""

import math

import numpy as np
import pytest
import scipy.stats

from jbias.calibrating import analysis, measure_results, output, rows
from jbias.calibrating import curves as curves_lib
from jbias.calibrating import rules as rules_lib
from tests.calibrating import simulated

RULES = rules_lib.Rules(draws=200)


def analyse(networks, readings, *, direction=1, is_share=True, **options):
    """Return the analysis of the simulated measure."""
    measures = {
        "simulated": simulated.measure(direction, is_share=is_share),
    }
    return analysis.analyse(
        networks, readings, options.pop("rules", RULES), measures=measures, **options
    )


def row_of(result) -> dict:
    (row,) = result.measures.to_dict("records")
    return row


def of_all_levels(result):
    """Return the rows of families over all levels, by family."""
    table = result.families
    return table[table["level"] == "all"].set_index("family")


def test_a_measure_that_is_the_dial_has_rho_1_and_no_error():
    networks = simulated.networks()
    row = row_of(
        analyse(networks, simulated.readings(networks, lambda network: network.dial))
    )
    assert row["rho"] == pytest.approx(1) and row["rho_lower"] == pytest.approx(1)
    assert row["error"] == pytest.approx(0, abs=1e-12)
    assert row["bias"] == pytest.approx(0, abs=1e-12)
    assert row["rho_given_accuracy"] == pytest.approx(1)
    assert row["verdict"] == measure_results.MEASURES_SHAPE
    assert row["networks"] == len(networks) and row["seconds"] == 2.0
    assert (row["accuracy_lower"], row["accuracy_upper"]) == (0.4, 1.0)
    assert math.isnan(row["coverage"]) and row["intervals"] == 0


def test_a_reversed_measure_is_reversed_unless_its_direction_is_known():
    networks = simulated.networks()
    readings = simulated.readings(networks, lambda network: 1 - network.dial)
    row = row_of(analyse(networks, readings))
    assert row["rho"] == pytest.approx(-1)
    assert row["verdict"] == measure_results.REVERSED
    assert row["error"] == pytest.approx(row["error_of_guess"])
    row = row_of(analyse(networks, readings, direction=-1))
    assert row["rho"] == pytest.approx(1) and row["error"] == pytest.approx(0, abs=1e-9)
    assert row["bias"] == pytest.approx(0, abs=1e-12)
    row = row_of(analyse(networks, readings, direction=0))
    assert row["rho"] == pytest.approx(1)
    assert (row["expected_direction"], row["direction"]) == (0, -1)
    assert row["verdict"] == measure_results.MEASURES_SHAPE


def test_values_that_differ_in_their_last_bits_are_ties():
    """Two neighbouring dials share a value, but for its last bit: ρ is that of tied values."""
    networks = simulated.networks()
    values = [(place // 2) / 10 for place in range(len(simulated.DIALS))]
    of_dial = dict(zip(simulated.DIALS, values, strict=True))

    def with_last_bit(network):
        value = of_dial[network.dial]
        return value + 2 * np.spacing(value) * (round(10 * network.dial) % 2)

    tied, noisy = (
        row_of(analyse(networks, simulated.readings(networks, value_of)))
        for value_of in (lambda network: of_dial[network.dial], with_last_bit)
    )
    expected = scipy.stats.spearmanr(simulated.DIALS, values).statistic
    assert expected < 1 and tied["rho"] == pytest.approx(expected, abs=1e-12)
    assert tied["error"] > 0.01
    for statistic in ("rho", "error", "bias", "middle_error"):
        assert noisy[statistic] == pytest.approx(tied[statistic], abs=1e-12)


def test_three_levels_are_not_a_measure_however_many_dials_are_at_the_ends():
    """The error is small over all networks, as most are at the ends, but not in the middle."""
    networks = [
        *simulated.networks(),
        *(
            network._replace(network=f"{network.network}-{k}")
            for k in range(6)
            for network in simulated.networks()
            if network.dial in (0.0, 1.0)
        ),
    ]

    def level_of(network):
        """Return 0, 1 or 2: low, middle or high."""
        return float(np.digitize(network.dial, [0.15, 0.85]))

    row = row_of(analyse(networks, simulated.readings(networks, level_of)))
    assert row["rho_lower"] >= RULES.least_rho and row["error"] <= RULES.most_error
    assert row["middle_networks"] == 28
    expected = np.mean([abs(dial - 0.5) for dial in simulated.DIALS[2:9]])
    assert row["middle_error"] == pytest.approx(expected) and expected > 0.1
    assert row["verdict"] == measure_results.RANKS


def test_without_dials_in_the_middle_there_is_no_verdict():
    networks = [x for x in simulated.networks() if not 0.1 < x.dial < 0.9]
    row = row_of(analyse(networks, simulated.readings(networks, lambda x: x.dial)))
    assert row["networks"] >= RULES.least_networks and row["middle_networks"] == 0
    assert row["verdict"] == measure_results.TOO_FEW


def test_a_value_that_all_images_do_not_give_is_not_taken_from_fewer():
    networks = simulated.networks()
    readings = simulated.readings(networks, lambda network: network.dial)
    readings[0] = readings[0]._replace(value=None, reason="undefined")
    readings += simulated.readings(networks, lambda network: 0.9, images=120)
    row = row_of(analyse(networks, readings))
    assert row["networks"] == len(networks) - 1 and row["without_value"] == 1
    assert row["rho"] == pytest.approx(1)


@pytest.mark.slow
def test_noise_has_the_error_of_a_guess_and_no_relation():
    """Over many drawn measures of noise, rho is 0 on average, and no verdict is favourable."""
    networks = simulated.networks()
    rng = np.random.default_rng(0)
    drawn = [
        row_of(analyse(networks, simulated.readings(networks, lambda _: rng.random())))
        for _ in range(40)
    ]
    rhos = [row["rho"] for row in drawn]
    # 44 networks: the standard deviation of rho is 1 / sqrt(43), of its mean 0.024.
    assert abs(np.mean(rhos)) < 0.08
    assert np.mean([row["error"] for row in drawn]) > 0.25
    favourable = {measure_results.MEASURES_SHAPE, measure_results.RANKS}
    assert not favourable & {row["verdict"] for row in drawn}
    no_relation = [row["verdict"] == measure_results.NO_RELATION for row in drawn]
    assert np.mean(no_relation) > 0.8


def test_a_measure_of_accuracy_alone_has_no_relation_to_the_dial():
    networks = simulated.networks()
    row = row_of(
        analyse(
            networks, simulated.readings(networks, lambda network: network.accuracy)
        )
    )
    assert row["rho"] == pytest.approx(0, abs=1e-12)
    assert row["verdict"] == measure_results.NO_RELATION
    assert row["rho_of_accuracy"] == pytest.approx(1)


def test_wilsons_interval_of_the_dial_covers_it_in_95_of_100_networks():
    networks = simulated.networks(families=("rule", "mixed_images"))
    readings = simulated.binomial_readings(networks, np.random.default_rng(1))
    row = row_of(analyse(networks, readings))
    assert row["intervals"] == len(networks) / 2  # Those of high accuracy.
    assert row["coverage_lower"] <= 0.95 <= row["coverage_upper"]
    assert abs(row["bias"]) < 0.01


def test_a_measure_with_a_constant_bias_ranks_and_reads_well_but_covers_nothing():
    networks = simulated.networks()
    readings = [
        reading._replace(
            value=reading.value + 0.3,
            lower=reading.lower + 0.3,
            upper=reading.upper + 0.3,
        )
        for reading in simulated.binomial_readings(networks, np.random.default_rng(1))
    ]
    row = row_of(analyse(networks, readings))
    assert row["bias"] == pytest.approx(0.3, abs=0.01) and row["coverage"] == 0
    assert row["verdict"] == measure_results.MEASURES_SHAPE
    without_scale = row_of(analyse(networks, readings, is_share=False))
    assert math.isnan(without_scale["bias"]) and without_scale["intervals"] == 0
    assert without_scale["rho"] == row["rho"] and without_scale["error"] == row["error"]


def test_a_curve_that_differs_between_families_ranks_within_but_reads_wrongly():
    """The error is of families that the curve has not seen, so it shows the difference."""
    offsets = {"trained": 0.0, "mixed_images": 1.0}
    networks = simulated.networks()
    result = analyse(
        networks,
        simulated.readings(
            networks, lambda network: 0.1 * network.dial + offsets[network.family]
        ),
    )
    assert (result.families["rho"] > 0.99).all()
    assert row_of(result)["error"] > 0.3


def test_images_needed_is_the_smallest_number_whose_error_is_within_the_bound():
    """The error of a share of n decisions is about 0.8 sqrt(p (1 - p) / n)."""
    networks = simulated.networks()
    rng = np.random.default_rng(2)
    readings = []
    for images in (4, 16, 64, 256, 960):
        for draw in range(1 if images == 960 else 5):
            readings += simulated.binomial_readings(
                networks, rng, images=images, draw=draw
            )
    result = analyse(networks, readings)
    sizes = result.sizes.set_index("images")
    assert (
        sizes["error"].is_monotonic_decreasing and sizes["rho"].is_monotonic_increasing
    )
    expected = np.mean([0.8 * math.sqrt(p * (1 - p) / 16) for p in simulated.DIALS])
    assert sizes.loc[16, "error"] == pytest.approx(expected, rel=0.3)
    assert row_of(result)["images_needed"] == 16
    strict = rules_lib.Rules(draws=200, most_error=0.02)
    assert row_of(analyse(networks, readings, rules=strict))["images_needed"] == 256
    perfect = rules_lib.Rules(draws=200, most_error=0.0001)
    assert row_of(analyse(networks, readings, rules=perfect))["images_needed"] is None


def test_a_number_of_images_that_few_networks_have_is_left_out():
    networks = simulated.networks()
    readings = simulated.readings(networks, lambda network: network.dial)
    readings += simulated.readings(
        networks[:20], lambda network: network.dial, images=100
    )
    assert analyse(networks, readings).sizes["images"].tolist() == [simulated.IMAGES]


def test_a_shortcut_lies_where_it_moves_the_value_at_an_unchanged_dial():
    """A value that a shortcut of strength s draws towards 1 moves by s (1 - dial)."""
    base = simulated.networks()
    cases = [("colour", 0.16), ("colour", 0.6), ("size", 0.6)]
    with_shortcut = [
        network
        for shortcut, strength in cases
        for network in simulated.networks(shortcut=shortcut, strength=strength)
    ]

    def value_of(network):
        pull = network.strength if network.shortcut == "colour" else 0.0
        return network.dial + pull * (1 - network.dial)

    networks = [*base, *with_shortcut]
    result = analyse(networks, simulated.readings(networks, value_of))
    shortcuts = result.shortcuts.set_index(["shortcut", "strength"])
    for strength in (0.16, 0.6):
        row = shortcuts.loc["colour", f"{strength:g}"]
        assert row["shift"] == pytest.approx(strength / 2, abs=1e-9)
        assert row["shift_lower"] < strength / 2 < row["shift_upper"]
        assert row["error"] == pytest.approx(strength / 2) and row["networks"] == 44
        assert row["increase_lower"] < strength / 2 < row["increase_upper"]
    assert shortcuts["lies"].tolist() == [False, True, True, False, False]
    assert shortcuts.loc["colour", "all"]["shift"] == pytest.approx(0.19)
    assert shortcuts.loc["colour", "all"]["networks"] == 88
    assert shortcuts.loc["size", "0.6"]["shift"] == pytest.approx(0, abs=1e-9)
    assert row_of(result)["lies"] == "colour" and row_of(result)["untested"] == ""
    # Networks with a shortcut are suspected from their decisions, and change no other number.
    assert shortcuts["suspected"].tolist() == [0, 44, 44, 44, 44]
    assert row_of(result)["networks"] == len(base)
    assert row_of(result)["error"] == pytest.approx(0, abs=1e-12)


def pooled(result) -> dict:
    """Return the row of the only shortcut, over all strengths."""
    table = result.shortcuts
    (row,) = table[table["strength"] == "all"].to_dict("records")
    return row


def moved_networks(family) -> list[rows.PlantedNetwork]:
    """Return networks of a family whose shortcut has moved the verified reliance to 0.9."""
    planted = simulated.networks(families=(family,), shortcut="size", strength=0.6)
    return [simulated.with_reliance(network, 0.9) for network in planted]


def test_a_measure_that_shows_no_relation_is_not_tested_under_a_shortcut():
    networks = [
        *simulated.networks(),
        *simulated.networks(shortcut="size", strength=0.6),
    ]
    rng = np.random.default_rng(0)
    result = analyse(networks, simulated.readings(networks, lambda _: rng.random()))
    row = row_of(result)
    assert row["verdict"] == measure_results.NO_RELATION
    assert row["lies"] == "" and row["untested"] == "colour; size"


def test_a_measure_does_not_lie_about_reliance_that_the_shortcut_has_changed():
    """Mixtures with a shortcut that are not as planted, and decision rules, are left out."""
    moved = [*moved_networks("rule"), *moved_networks("mixed_images")]
    networks = [*simulated.networks(), *moved]
    readings = simulated.readings(
        networks, lambda network: 0.9 if network.shortcut else network.dial
    )
    result = analyse(networks, readings)
    row = pooled(result)
    near = [dial for dial in simulated.DIALS if abs(dial - 0.9) <= 0.05]
    assert row["networks"] == 2 * len(near) < len(moved)
    assert not row["lies"] and row_of(result)["untested"] == "colour; size"


@pytest.mark.parametrize(
    ("value_of", "shift"),
    [
        (lambda network: network.dial, 0.0),
        # The mean planned dial is 0.5.
        (lambda network: network.planned_dial, 0.5 - 0.9),
    ],
)
def test_trained_networks_with_a_shortcut_are_compared_by_their_true_dials(
    value_of, shift
):
    """A measure that follows the changed reliance has no shift; one that does not is wrong."""
    moved = [network._replace(dial=0.9) for network in moved_networks("trained")]
    networks = [*simulated.networks(), *moved]
    result = analyse(networks, simulated.readings(networks, value_of))
    row = pooled(result)
    assert row["networks"] == len(moved) == 22
    assert row["shift"] == pytest.approx(shift, abs=1e-9)
    sizes = [abs(0.9 - dial) for dial in simulated.DIALS]
    assert row["error"] == pytest.approx(np.mean(sizes) if shift else 0, abs=1e-9)
    assert row["lies"] == bool(shift)


@pytest.mark.parametrize(("num_dials", "is_tested"), [(4, False), (5, True)])
def test_a_shortcut_is_tested_with_networks_of_enough_planned_dials(
    num_dials, is_tested
):
    """Networks of one planned dial are compared with the same networks: they are one cluster."""
    dials = simulated.DIALS[1 : 1 + num_dials]
    moved = [
        network
        for strength in (0.5, 0.6)
        for network in simulated.networks(
            families=("trained",), shortcut="colour", strength=strength
        )
        if network.dial in dials
    ]
    networks = [*simulated.networks(), *moved]
    result = analyse(
        networks, simulated.readings(networks, lambda x: x.dial + x.strength)
    )
    row = pooled(result)
    assert row["networks"] == 4 * num_dials
    assert row["is_tested"] == row["lies"] == is_tested
    assert math.isnan(row["increase_lower"]) != is_tested
    assert ("colour" in row_of(result)["untested"]) != is_tested


def test_a_shortcut_that_was_not_learned_is_not_tested():
    """Networks whose decisions do not follow the shortcut say nothing about it."""
    planted = simulated.networks(shortcut="size", strength=0.5)
    planted = [
        network._replace(
            verified_size=0.2,
            verified_shape=0.8 * network.dial,
            verified_texture=0.8 * (1 - network.dial),
        )
        for network in planted
    ]
    networks = [*simulated.networks(), *planted]
    readings = simulated.readings(networks, lambda x: x.dial + 0.3 * x.strength)
    result = analyse(networks, readings)
    assert result.shortcuts.empty and "size" in row_of(result)["untested"]
    learned = [x._replace(verified_size=0.3) for x in planted[::2]]
    networks = [*simulated.networks(), *learned, *planted[1::2]]
    row = pooled(analyse(networks, readings))
    assert (row["networks"], row["not_learned"]) == (22, 22) and row["is_tested"]


def test_networks_with_and_without_a_shortcut_are_paired_by_the_planned_dial():
    """The error of the networks without the shortcut is subtracted, also if their dials differ."""
    base = simulated.leaning(simulated.networks())
    moved = [network._replace(dial=0.9) for network in moved_networks("trained")]
    networks = [*base, *moved]

    def value_of(network):
        return network.dial + (0.05 if network.family == "trained" else 0.0)

    result = analyse(networks, simulated.readings(networks, value_of))
    row = pooled(result)
    assert row["networks"] == len(moved)
    mixtures = [network for network in base if network.family != "trained"]
    curve = curves_lib.fit(
        [value_of(network) for network in mixtures],
        [network.dial for network in mixtures],
        direction=1,
    )
    without = [
        float(curve.read(value_of(network))) - network.dial
        for network in base
        if network.family == "trained"
    ]
    shift = float(curve.read(0.95)) - 0.9 - np.mean(without)
    assert row["shift"] == pytest.approx(shift, abs=1e-9)
    assert row["error_without"] == pytest.approx(np.mean(np.abs(without)))


def test_decision_rules_change_no_number_but_bias_and_coverage():
    """Exact rules would make measures of decisions seem better than measures rules do not have."""
    networks = simulated.networks(families=simulated.WITH_RULES)
    rng = np.random.default_rng(0)

    def value_of(network):
        noise = 0 if network.family == "rule" else rng.normal(0, 0.3)
        return network.dial + noise

    readings = simulated.readings(networks, value_of)
    result = analyse(networks, readings)
    with_rules = row_of(result)
    of_image_networks = [x for x in readings if not x.network.startswith("rule")]
    without = row_of(analyse(networks, of_image_networks))
    for name in ("networks", "rho", "rho_lower", "rho_upper", "error", "verdict"):
        assert with_rules[name] == without[name], name
    rules = of_all_levels(result).loc["rule"]
    assert rules["rho"] == pytest.approx(1) and rules["networks"] == 22
    # Rules are read by the curve of the others.
    curve = result.curves.by_measure["simulated"].knots
    errors = [abs(float(curve.read(dial)) - dial) for dial in simulated.DIALS]
    assert rules["error"] == pytest.approx(np.mean(errors))


def test_networks_are_read_by_the_curve_of_other_groups_and_drawn_by_cluster():
    """Trained networks of two designs are read by each other; clusters widen the interval."""
    networks = [
        network._replace(
            group=f"trained-{network.level}", cluster=f"c{10 * network.dial // 2}"
        )
        for network in simulated.networks(families=("trained",))
    ]
    rng = np.random.default_rng(0)
    readings = simulated.readings(networks, lambda x: x.dial + rng.normal(0, 0.1))
    row = row_of(analyse(networks, readings))
    assert row["error"] < 0.2 and row["verdict"] != measure_results.TOO_FEW
    apart = [network._replace(cluster=network.network) for network in networks]
    of_networks = row_of(analyse(apart, readings))
    assert row["rho_lower"] != of_networks["rho_lower"]
    alone = [network._replace(group="trained") for network in networks]
    untested = row_of(analyse(alone, readings))
    assert math.isnan(untested["error"])
    assert untested["verdict"] == measure_results.TOO_FEW


def test_measures_are_compared_with_the_best_by_pairs_of_errors():
    """A measure with the same noise is not behind; one that guesses is, by its interval."""
    networks = simulated.networks()
    rng = np.random.default_rng(1)
    measures = {
        name: simulated.measure()
        for name in ("exact", "noisy", "also noisy", "useless")
    }
    readings = simulated.readings(networks, lambda x: x.dial, name="exact")
    for name in ("noisy", "also noisy"):
        readings += simulated.readings(
            networks, lambda x: x.dial + rng.normal(0, 0.15), name=name
        )
    readings += simulated.readings(networks, lambda _: rng.random(), name="useless")
    result = analysis.analyse(networks, readings, RULES, measures=measures)
    table = result.measures.set_index("measure")
    assert table.loc["exact", "behind_best"] == 0
    assert table.loc["noisy", "behind_best_lower"] > 0
    assert table["behind_best"].to_numpy() == pytest.approx(
        (table["error"] - table.loc["exact", "error"]).to_numpy()
    )
    without_exact = {name: measures[name] for name in [*measures][1:]}
    table = analysis.analyse(networks, readings, RULES, measures=without_exact).measures
    table = table.set_index("measure")
    tied = table.loc[["noisy", "also noisy"]]
    assert (tied["behind_best_lower"] <= 0).all()
    assert table.loc["useless", "behind_best_lower"] > 0


def test_the_best_measure_has_values_for_nearly_all_networks():
    """An exact measure of a third of the networks is not what others are compared with."""
    networks = simulated.networks()
    rng = np.random.default_rng(1)
    measures = {"few": simulated.measure(), "noisy": simulated.measure()}
    readings = simulated.readings(networks, lambda x: x.dial, name="few")
    readings = [x._replace(value=None) if k % 3 else x for k, x in enumerate(readings)]
    readings += simulated.readings(
        networks, lambda x: x.dial + rng.normal(0, 0.1), name="noisy"
    )
    rules = rules_lib.Rules(draws=200, least_networks=10, least_middle_networks=5)
    table = analysis.analyse(networks, readings, rules, measures=measures).measures
    table = table.set_index("measure")
    assert table.loc["few", "verdict"] == measure_results.MEASURES_SHAPE
    assert table.loc["few", "error"] < table.loc["noisy", "error"]
    assert table.loc["noisy", "behind_best"] == 0 > table.loc["few", "behind_best"]


def test_hidden_networks_are_compared_with_the_best_measure_of_the_fixed_curves():
    """Although another measure is exact on them."""
    networks = [*simulated.networks(), *simulated.networks(hidden=1)]
    rng = np.random.default_rng(1)
    measures = {"best": simulated.measure(), "second": simulated.measure()}
    readings = simulated.readings(
        networks, lambda x: x.dial + x.hidden * rng.normal(0, 0.05), name="best"
    )
    readings += simulated.readings(
        networks, lambda x: x.dial + (1 - x.hidden) * rng.normal(0, 0.05), name="second"
    )
    fixed = analysis.analyse(networks, readings, RULES, measures=measures).curves
    table = analysis.analyse(
        networks, readings, RULES, measures=measures, frozen=fixed
    ).measures.set_index("measure")
    assert table.loc["second", "error"] < table.loc["best", "error"]
    assert table.loc["best", "behind_best"] == 0 > table.loc["second", "behind_best"]


def networks_not_as_planted():
    """Return networks of which those mixed by images rely on both cues alike, whatever their dial."""
    return [
        network._replace(verified_shape=0.5, verified_texture=0.5)
        if network.family == "mixed_images"
        else network._replace(group=f"{network.family}-{network.level}")
        for network in simulated.networks(families=simulated.WITH_RULES)
    ]


def test_the_numbers_without_selection_have_the_networks_that_are_not_as_planted():
    """A measure that repeats the verification is perfect on the networks that passed it."""
    networks = networks_not_as_planted()
    readings = simulated.readings(networks, lambda network: network.verified_shape)
    row = row_of(analyse(networks, readings))
    assert row["unselected_networks"] == 44 > row["networks"]
    assert row["unselected_rho"] < row["rho"] - 0.05
    assert row["unselected_error"] > row["error"] + 0.05


def test_a_network_without_verification_is_not_ranked():
    networks = simulated.networks()
    networks[0] = networks[0]._replace(verified_shape=None, verified_texture=None)
    readings = simulated.readings(networks, lambda network: network.dial)
    assert row_of(analyse(networks, readings))["networks"] == len(networks) - 1


def test_a_trained_network_whose_dial_could_not_be_verified_is_listed_and_not_ranked():
    networks = simulated.networks()
    readings = simulated.readings(networks, lambda network: network.dial)
    place = next(k for k, x in enumerate(networks) if x.family == "trained")
    networks[place] = networks[place]._replace(
        dial=None, verified_images=0, verified_shape=None, verified_texture=None
    )
    result = analyse(networks, readings)
    assert row_of(result)["networks"] == len(networks) - 1
    (flagged,) = result.flagged.to_dict("records")
    assert flagged["network"] == networks[place].network
    assert flagged["flags"] == "not verified" and math.isnan(flagged["dial"])
    # Failing networks have a range of their own: this network is none of them.
    assert math.isnan(row_of(result)["unranked_lower"])


def test_the_truth_of_trained_networks_is_their_verified_reliance():
    """None is left out, however far it is from the plan, and the plan enters no statistic."""
    networks = simulated.leaning(simulated.networks())
    assert max(abs(x.dial - x.planned_dial) for x in networks) > 0.1
    readings = simulated.readings(networks, lambda network: network.dial)
    result = analyse(
        networks, readings, rules=rules_lib.Rules(most_planting_error=0.01, draws=200)
    )
    row = row_of(result)
    assert row["networks"] == row["unselected_networks"] == len(networks)
    assert row["rho"] == pytest.approx(1)
    assert row["bias"] == pytest.approx(0, abs=1e-12)
    assert row["error"] < 0.02  # Curves of other families have knots at other dials.
    other_plans = [
        network._replace(planned_dial=0.5) if network.family == "trained" else network
        for network in networks
    ]
    first, second = analyse(networks, readings), analyse(other_plans, readings)
    assert first.measures.equals(second.measures)
    assert first.families.equals(second.families)


def test_a_measure_that_shrinks_towards_one_half_has_opposite_biases():
    networks = simulated.networks()
    readings = simulated.readings(networks, lambda x: 0.5 + 0.6 * (x.dial - 0.5))
    row = row_of(analyse(networks, readings))
    assert row["bias"] == pytest.approx(0, abs=1e-12)
    # The mean distance of the five dials on one side from 1/2 is 0.3.
    assert row["bias_below_half"] == pytest.approx(0.4 * 0.3)
    assert row["bias_above_half"] == pytest.approx(-0.4 * 0.3)


def test_coverage_is_that_of_each_family():
    networks = simulated.networks(families=simulated.WITH_RULES)
    rng = np.random.default_rng(1)
    readings = [
        reading._replace(lower=0.98, upper=0.99)
        if reading.network.startswith("trained")
        else reading
        for reading in simulated.binomial_readings(networks, rng)
    ]
    result = analyse(networks, readings)
    families = of_all_levels(result)
    assert families.loc["trained", "coverage"] == 0
    assert families.loc["rule", "coverage"] > 0.8
    assert (families["intervals"] == 22).all()
    by_level = result.families.set_index(["family", "level"])
    assert by_level.loc[("rule", "low"), "intervals"] == 11


def test_the_time_of_a_measure_is_that_of_networks_that_see_images():
    networks = simulated.networks(families=simulated.WITH_RULES)
    readings = [
        reading._replace(seconds=0.01 if reading.network.startswith("rule") else 7.0)
        for reading in simulated.readings(networks, lambda network: network.dial)
    ]
    only_rules = [x for x in readings if x.network.startswith("rule")]
    assert row_of(analyse(networks, readings))["seconds"] == 7
    assert math.isnan(row_of(analyse(networks, only_rules))["seconds"])


def test_guessing_networks_are_flagged_and_change_no_statistic():
    networks = simulated.networks()
    guessing = simulated.guessing_networks(20)
    readings = simulated.readings(networks, lambda network: network.dial)
    noisy = simulated.readings(guessing, lambda network: network.seed / 19)
    plain = analyse(networks, readings)
    result = analyse([*networks, *guessing], [*readings, *noisy])
    assert result.flagged["flags"].tolist() == ["at chance"] * 20
    failing = result.planted.set_index("family").loc["none"]
    assert failing["networks"] == failing["flagged"] == 20
    assert "failing networks that are flagged: 20 of 20" in [*output.lines(result)]
    row, without = row_of(result), row_of(plain)
    assert (row["unranked_lower"], row["unranked_upper"]) == (0, 1)
    unchanged = {*row} - {"unranked_lower", "unranked_upper", "seconds"}
    assert {key: row[key] for key in unchanged if row[key] == row[key]} == {
        key: without[key] for key in unchanged if without[key] == without[key]
    }


def test_a_network_with_a_dial_but_few_decisions_is_not_ranked():
    networks = simulated.networks()
    networks[0] = networks[0]._replace(verified_images=90)
    readings = simulated.readings(networks, lambda network: network.dial)
    result = analyse(networks, readings)
    assert result.flagged["flags"].tolist() == ["few decisions"]
    assert row_of(result)["networks"] == len(networks) - 1


def test_missing_values_are_counted_and_change_no_rank():
    networks = simulated.networks()
    readings = simulated.readings(networks, lambda network: network.dial)
    readings[3] = readings[3]._replace(value=None, reason="undefined")
    row = row_of(analyse(networks, readings))
    assert row["without_value"] == 1 and row["networks"] == len(networks) - 1
    assert row["rho"] == pytest.approx(1)


def test_networks_that_are_not_as_planted_are_counted_and_left_out():
    networks = networks_not_as_planted()
    result = analyse(
        networks, simulated.readings(networks, lambda network: network.dial)
    )
    planted = result.planted.set_index(["family", "level"])
    assert planted.loc[("rule", "high"), "error"] == pytest.approx(0, abs=1e-12)
    assert planted.loc[("rule", "low"), "rho"] == pytest.approx(1)
    mixed = planted.loc[("mixed_images", "high")]
    distances = np.abs(np.array(simulated.DIALS) - 0.5)
    assert mixed["error"] == pytest.approx(distances.mean())
    assert mixed["not_planted"] == (distances > 0.05).sum() == 10
    assert math.isnan(mixed["rho"])
    assert row_of(result)["networks"] == 44 - 2 * 10


def test_trained_networks_far_from_their_plan_are_counted_as_such_and_stay():
    networks = simulated.leaning(simulated.networks(families=simulated.WITH_RULES))
    readings = simulated.readings(networks, lambda network: network.dial)
    planted = analyse(networks, readings).planted.set_index(["family", "level"])
    differences = [
        abs(network.dial - network.planned_dial)
        for network in networks
        if (network.family, network.level) == ("trained", "high")
    ]
    trained = planted.loc[("trained", "high")]
    assert trained["error"] == pytest.approx(np.mean(differences))
    assert trained["largest_error"] == pytest.approx(max(differences))
    assert trained["rho"] == pytest.approx(1) and trained["not_planted"] == 0
    assert planted.loc[("rule", "high"), "error"] == pytest.approx(0, abs=1e-12)


def test_guesses_do_not_change_the_verified_reliance():
    """A rule that guesses in a share g of images has dial (1 - g) + g / 16 for the shape."""
    guessed = 0.75
    networks = [
        network._replace(
            verified_shape=(1 - guessed) * network.dial + guessed / 16,
            verified_texture=(1 - guessed) * (1 - network.dial) + guessed / 16,
            verified_colour=guessed / 16,
            verified_size=guessed / 16,
            verified_neither=guessed * 12 / 16,
        )
        for network in simulated.networks()
    ]
    result = analyse(
        networks, simulated.readings(networks, lambda network: network.dial)
    )
    assert (result.planted["error"] < 1e-9).all()
    assert row_of(result)["networks"] == len(networks)


def test_a_family_whose_dial_is_no_share_is_ranked_among_itself_only():
    """A weight of logits is not on the scale of decisions, so that it shifts no curve."""
    ranked = simulated.networks()
    weighted = [
        network._replace(
            verified_shape=network.dial**4, verified_texture=1 - network.dial**4
        )
        for network in simulated.networks(families=("mixed_logits",))
    ]
    networks = [*ranked, *weighted]
    readings = simulated.readings(networks, lambda network: network.verified_shape)
    result = analyse(networks, readings)
    row = row_of(result)
    assert row["networks"] == len(ranked) and row["verified"] == len(networks)
    assert row["error"] == pytest.approx(0, abs=1e-12)
    assert row["rho_verified"] == pytest.approx(1)
    assert row["bias_verified"] == pytest.approx(0, abs=1e-12)
    families = of_all_levels(result)
    assert families.loc["mixed_logits", "rho"] == pytest.approx(1)
    assert math.isnan(families.loc["mixed_logits", "error"])
    assert families.loc["mixed_logits", "networks"] == len(weighted)


def test_hidden_networks_are_read_by_the_fixed_curves_only():
    """If the hidden networks' values are shifted, the error is the shift, as nothing is fitted."""
    open_networks = simulated.networks()
    hidden = simulated.networks(hidden=1)
    networks = [*open_networks, *hidden]
    readings = simulated.readings(open_networks, lambda network: network.dial)
    readings += simulated.readings(hidden, lambda network: min(1.0, network.dial + 0.2))
    fixed = analyse(networks, readings)
    assert row_of(fixed)["networks"] == len(open_networks)
    result = analyse(networks, readings, frozen=fixed.curves)
    expected = np.mean([min(0.2, 1 - dial) for dial in simulated.DIALS])
    assert row_of(result)["error"] == pytest.approx(expected)
    assert row_of(result)["verdict"] == measure_results.RANKS
    assert result.shortcuts.empty
    knots = result.curves.by_measure["simulated"].knots
    assert knots == fixed.curves.by_measure["simulated"].knots
    with pytest.raises(ValueError, match="must have hidden networks"):
        analyse(open_networks, readings[: len(open_networks)], frozen=fixed.curves)


def test_the_analysis_of_open_networks_sees_nothing_of_hidden_ones():
    """Tables and curves are the same with hidden networks, whatever their dials and values."""
    open_networks = simulated.leaning(simulated.networks())
    open_networks += simulated.networks(shortcut="size", strength=0.5)
    readings = simulated.binomial_readings(open_networks, np.random.default_rng(1))
    hidden = [x._replace(dial=0.7) for x in simulated.networks(hidden=1)]
    of_hidden = simulated.readings(hidden, lambda network: 0.1)
    alone = analyse(open_networks, readings)
    with_hidden = analyse([*hidden, *open_networks], [*of_hidden, *readings])
    for name, table in alone.tables().items():
        assert table.equals(with_hidden.tables()[name]), name
    assert curves_lib.to_json(alone.curves) == curves_lib.to_json(with_hidden.curves)


def test_hidden_networks_must_follow_the_direction_of_the_fixed_curve():
    """A reversed relation is no success, also if no direction was expected of the measure."""
    open_networks, hidden = simulated.networks(), simulated.networks(hidden=1)
    networks = [*open_networks, *hidden]
    readings = simulated.readings(open_networks, lambda network: -network.dial)
    for sign, verdict in (
        (-1, measure_results.MEASURES_SHAPE),
        (1, measure_results.REVERSED),
    ):
        of_hidden = simulated.readings(hidden, lambda network, s=sign: s * network.dial)
        fixed = analyse(networks, [*readings, *of_hidden], direction=0)
        result = analyse(
            networks, [*readings, *of_hidden], direction=0, frozen=fixed.curves
        )
        assert row_of(result)["verdict"] == verdict


def test_hidden_networks_with_a_shortcut_are_compared_with_their_dial():
    networks = [
        *simulated.networks(),
        *simulated.networks(hidden=1),
        *simulated.networks(hidden=1, shortcut="size", strength=0.5),
    ]
    readings = simulated.readings(
        networks, lambda network: network.dial * (1 - network.strength)
    )
    fixed = analyse(networks, readings)
    result = analyse(networks, readings, frozen=fixed.curves)
    row = pooled(result)
    expected = np.mean(simulated.DIALS) / 2
    assert row["shift"] == pytest.approx(-expected)
    assert row["error"] == pytest.approx(expected) and row["lies"]
    assert row["error_without"] == pytest.approx(0, abs=1e-12)


def test_the_curves_of_an_analysis_can_be_written_and_read(tmp_path):
    networks = simulated.networks()
    readings = simulated.binomial_readings(networks, np.random.default_rng(1))
    curves = analyse(networks, readings).curves
    path = tmp_path / "curves.json"
    path.write_text(curves_lib.to_json(curves))
    read = curves_lib.read(path).by_measure["simulated"]
    assert read.knots == curves.by_measure["simulated"].knots
    assert read.verdict == measure_results.MEASURES_SHAPE and read.accuracy == (0.4, 1)


def test_wrong_tables_are_refused():
    networks = simulated.networks()
    readings = simulated.readings(networks, lambda network: network.dial)
    with pytest.raises(ValueError, match="names must differ"):
        analyse([*networks, networks[0]], readings)
    stray = readings[0]._replace(network="stray")
    with pytest.raises(ValueError, match="stray must be a network"):
        analyse(networks, [*readings, stray])


def test_few_networks_have_no_verdict():
    networks = simulated.networks(families=("rule",))[:12]
    row = row_of(
        analyse(networks, simulated.readings(networks, lambda network: network.dial))
    )
    assert row["verdict"] == measure_results.TOO_FEW
    assert math.isnan(row["error"])  # There is no other family to read from.


def test_readings_are_rows_of_the_study():
    networks = simulated.networks()
    readings = simulated.binomial_readings(networks, np.random.default_rng(1))
    for kind, table in ((rows.PlantedNetwork, networks), (rows.Reading, readings)):
        assert rows.loads(rows.dumps(table, kind), kind, where="a.csv") == table
