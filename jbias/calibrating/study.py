"""The tables of a study with flags: networks, their readings, and how they were planted."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from jbias.calibrating import flags as flags_lib
from jbias.calibrating import recovery, rows
from jbias.calibrating import rules as rules_lib

VALUE_DECIMALS = 12  # To which values of measures are compared.


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """The tables of a study that is analysed.

    networks: a row per network, with the columns of rows.PlantedNetwork and `above_chance`
      (accuracy, 0 at chance and 1 if all is correct), `verified`
      (rows.PlantedNetwork.verified_reliance), `flags` (kinds, separated by "; ", "" without),
      `is_flagged`, `is_shortcut_only` (no flag but a suspected shortcut), `is_planted` (the
      verified reliance of a mixture by images is near the dial; False if it was not verified;
      True for other families), `is_learned` (decisions follow the planted shortcut; True without
      one), `is_comparable` and `is_ranked`, see analysis.py.
    readings: a row per reading, with the columns of rows.Reading and those of its
      network, whose column `images` is `test_images`.
    """

    networks: pd.DataFrame
    readings: pd.DataFrame

    def main(self, measure: str) -> pd.DataFrame:
        """Return the readings of a measure from all images, a row per network with a value.

        A measure that is undefined from all images has no value, also if one from fewer is defined.
        """
        readings = self.readings[self.readings["measure"] == measure]
        order = readings.sort_values(["images", "draw"], ascending=[False, True])
        of_all_images = order.drop_duplicates("network")
        has_value = of_all_images["value"].notna()
        return of_all_images[has_value].sort_values("network", kind="stable")


def prepare(
    networks: Sequence[rows.PlantedNetwork],
    readings: Sequence[rows.Reading],
    rules: rules_lib.Rules,
    *,
    hidden: bool = False,
) -> Study:
    """Return the tables of the open networks, or of the hidden ones, with flags.

    ValueError if a name of a network is repeated, and for readings of an unknown network.
    """
    names = [network.network for network in networks]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise ValueError(f"networks.csv: names must differ, got twice {duplicates[0]}")
    unknown = sorted({reading.network for reading in readings} - {*names})
    if unknown:
        raise ValueError(
            f"readings.csv: {unknown[0]} must be a network of networks.csv; measure again"
        )
    chosen = [network for network in networks if network.hidden == int(hidden)]
    frame = pd.DataFrame(chosen, columns=list(rows.PlantedNetwork._fields))
    verified = [name for name in frame.columns if name.startswith("verified_")]
    numeric = ["dial", "planned_dial", "accuracy", *verified]
    frame[numeric] = frame[numeric].astype(float)
    flags = [
        flags_lib.flags(flags_lib.of_network(network), rules.limits)
        for network in chosen
    ]
    kinds = [[flag.kind for flag in raised] for raised in flags]
    frame = frame.assign(
        above_chance=recovery.above_chance(frame["accuracy"], frame["chance"]),
        verified=np.array([network.verified_reliance for network in chosen], float),
        flags=["; ".join(dict.fromkeys(raised)) for raised in kinds],
        flag_texts=["; ".join(flag.text for flag in raised) for raised in flags],
        is_flagged=[bool(raised) for raised in kinds],
        is_shortcut_only=[{*raised} == {flags_lib.SHORTCUT} for raised in kinds],
    )
    may_rank = frame["family"].isin(rules.ranked_families)
    is_near = (frame["verified"] - frame["dial"]).abs() <= rules.most_planting_error
    is_plain = frame["dial"].notna() & (frame["shortcut"] == "")
    frame["is_planted"] = is_near | ~may_rank
    frame["is_learned"] = [_is_learned(x, rules.least_learned) for x in chosen]
    frame["is_comparable"] = is_plain & ~frame["is_flagged"] & frame["is_planted"]
    frame["is_ranked"] = frame["is_comparable"] & may_rank
    table = pd.DataFrame(readings, columns=list(rows.Reading._fields))
    floats = ["value", "lower", "upper", "n", "seconds"]
    table[floats] = table[floats].astype(float)
    # Differences of shares that are equal differ in their last bits, and would not be ties.
    table["value"] = table["value"].round(VALUE_DECIMALS)
    details = frame.rename(columns={"images": "test_images"})
    table = table[table["network"].isin(frame["network"])]
    return Study(frame, table.merge(details, on="network", validate="many_to_one"))


def _is_learned(network: rows.PlantedNetwork, least: float) -> bool:
    """Return True without a shortcut, and if enough decisions follow it; False if unknown.

    least: share of decisions for the shortcut's class, less guesses, of the planted strength.
    """
    if not network.shortcut:
        return True
    share = getattr(network, f"verified_{network.shortcut}")
    return share is not None and share - network.guesses >= least * network.strength


def flagged(networks: pd.DataFrame) -> pd.DataFrame:
    """Return the flagged networks, with the kinds of flags and the numbers behind them."""
    rows_with_flags = networks[networks["is_flagged"]]
    columns = ["network", "family", "level", "planned_dial", "dial", "shortcut"]
    columns += ["strength", "accuracy", "flags", "flag_texts"]
    return rows_with_flags[columns].reset_index(drop=True)


def planted(networks: pd.DataFrame) -> pd.DataFrame:
    """Return how the verified reliance agrees with the planned dial, by family, level and shortcut.

    Statistics are over networks without a flag; not_planted counts those that are left out, as
    their verified reliance is too far from the dial. For trained networks the agreement is for
    information: their dial is the verified reliance, so that none is left out. Failing networks
    have no dial: all should be flagged.
    """
    result = []
    for (family, level, shortcut), group in networks.groupby(
        ["family", "level", "shortcut"]
    ):
        is_verified = group["planned_dial"].notna() & group["verified"].notna()
        ranked = group[~group["is_flagged"] & is_verified]
        verified = ranked["verified"].to_numpy()
        planned_dials = ranked["planned_dial"].to_numpy()
        differences = np.abs(verified - planned_dials)
        result.append(
            {
                "family": family,
                "level": level,
                "shortcut": shortcut,
                "networks": len(group),
                "flagged": int(group["is_flagged"].sum()),
                "not_planted": int((~ranked["is_planted"]).sum()),
                "verified": len(ranked),
                "rho": recovery.rho(verified, planned_dials),
                "error": float(differences.mean()) if len(ranked) else math.nan,
                "largest_error": float(differences.max()) if len(ranked) else math.nan,
            }
        )
    return pd.DataFrame(result)
