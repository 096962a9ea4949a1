"""Simulated networks and readings, whose statistics have closed forms."""

from collections.abc import Callable, Sequence

import numpy as np

from jbias.calibrating import measures as measures_lib
from jbias.calibrating import rows
from jbias.measures import decisions

FAMILIES = ("trained", "mixed_images")  # Those that are ranked.
WITH_RULES = ("rule", *FAMILIES)
DIALS = tuple(round(0.1 * k, 1) for k in range(11))
LEVELS = {"high": 0.95, "low": 0.5}
RECORD = measures_lib.SuiteNumber("simulated", "test", "value")
CLASSES, IMAGES = 16, 960


def measure(direction: int = 1, *, is_share: bool = True) -> measures_lib.Measure:
    """Return the measure that simulated readings are of."""
    return measures_lib.Measure(
        "a simulated measure",
        (RECORD,),
        direction,
        needs="decisions",
        source="simulation",
        is_share=is_share,
    )


def networks(
    *,
    families: Sequence[str] = FAMILIES,
    levels: dict[str, float] = LEVELS,
    shortcut: str = "",
    strength: float = 0.0,
    hidden: int = 0,
) -> list[rows.PlantedNetwork]:
    """Return a network for each family, level and dial, with the dial verified exactly."""
    result = []
    for family in families:
        for level, accuracy in levels.items():
            for dial in DIALS:
                name = f"{family}-{level}-{dial}-{shortcut}{strength}-{hidden}"
                share = 1 - (strength if shortcut else 0)
                shares = {"colour": 0.0, "size": 0.0}
                if shortcut:
                    shares[shortcut] = strength
                network = rows.PlantedNetwork(
                    network=name,
                    family=family,
                    dial=dial,
                    planned_dial=dial,
                    level=level,
                    group=family,
                    cluster=name,
                    shortcut=shortcut,
                    strength=strength,
                    seed=0,
                    hidden=hidden,
                    classes=CLASSES,
                    images=IMAGES,
                    accuracy=accuracy,
                    chance=1 / CLASSES,
                    verified_images=IMAGES,
                    verified_shape=share * dial,
                    verified_texture=share * (1 - dial),
                    verified_colour=shares["colour"],
                    verified_size=shares["size"],
                    verified_neither=0.0,
                )
                result.append(network)
    return result


def leaning(
    of_networks: Sequence[rows.PlantedNetwork],
) -> list[rows.PlantedNetwork]:
    """Return networks of which the trained ones rely on one cue more than was planned.

    Their dial d becomes d^2 / (d^2 + (1 - d)^2), which is verified in the decisions for either cue.
    """
    result = []
    for network in of_networks:
        if network.family == "trained":
            odds = network.planned_dial**2, (1 - network.planned_dial) ** 2
            dial = odds[0] / sum(odds)
            network = with_reliance(network, dial)._replace(dial=dial)
        result.append(network)
    return result


def with_reliance(network: rows.PlantedNetwork, reliance: float) -> rows.PlantedNetwork:
    """Return a network whose decisions for shape or texture have another verified reliance."""
    either = network.verified_shape + network.verified_texture
    return network._replace(
        verified_shape=either * reliance, verified_texture=either * (1 - reliance)
    )


def guessing_networks(count: int) -> list[rows.PlantedNetwork]:
    """Return networks without a dial whose accuracy is exactly chance."""
    return [
        rows.PlantedNetwork(
            network=f"none-{k}",
            family="none",
            dial=None,
            planned_dial=None,
            level="chance",
            group="none",
            cluster=f"none-{k}",
            shortcut="",
            strength=0.0,
            seed=k,
            hidden=0,
            classes=CLASSES,
            images=IMAGES,
            accuracy=1 / CLASSES,
            chance=1 / CLASSES,
        )
        for k in range(count)
    ]


def readings(
    of_networks: Sequence[rows.PlantedNetwork],
    value_of: Callable[[rows.PlantedNetwork], float],
    *,
    name: str = "simulated",
    images: int = IMAGES,
    draw: int = 0,
    n: int | None = None,
) -> list[rows.Reading]:
    """Return a reading without interval for each network."""
    return [
        rows.Reading(
            network=network.network,
            measure=name,
            images=images,
            draw=draw,
            value=value_of(network),
            lower=None,
            upper=None,
            n=n,
            seconds=2.0,
        )
        for network in of_networks
    ]


def binomial_readings(
    of_networks: Sequence[rows.PlantedNetwork],
    rng: np.random.Generator,
    *,
    images: int = IMAGES,
    draw: int = 0,
) -> list[rows.Reading]:
    """Return readings that are shares of `images` decisions with the dial as probability."""
    result = []
    for network in of_networks:
        count = int(rng.binomial(images, network.dial))
        lower, upper = decisions.wilson_interval(count, images)
        reading = rows.Reading(
            network=network.network,
            measure="simulated",
            images=images,
            draw=draw,
            value=count / images,
            lower=lower,
            upper=upper,
            n=images,
            seconds=2.0,
        )
        result.append(reading)
    return result
