"""The networks of a study of calibration: what is planted in each, before any is made.

A study has networks of five families (calibrating.rows.FAMILIES). Names are unique and say what is
planted. `visible` lists the networks of the study, `hidden` a second set with other dials, which
are drawn from a seed. Mixed networks of the second set have streams of their own.
"""

import itertools
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from jbias import errors

NUM_CLASSES = 16
# Share of a rule's decisions that are guesses, by level of accuracy.
LAPSES: Mapping[str, float] = types.MappingProxyType(
    {"high": 0.05, "middle": 0.4, "low": 0.75}
)
# Levels of accuracy of trained networks, in the order of Scale.epochs.
TRAINED_LEVELS = ("high", "low")
# Of each eight hidden networks. Measures that change images cannot be read from rules, so that most
# hidden networks see images; networks mixed by images need no training of their own.
_HIDDEN_FAMILIES = (
    "rule",
    "trained",
    "mixed_images",
    "mixed_logits",
    "trained",
    "mixed_images",
    "mixed_images",
    "none",
)
# First seeds of trained networks and of streams. Networks of different kinds have different seeds,
# so that none share initial weights; seeds below 10 were used in trials.
_TRAINED_SEED, _STREAM_SEED = 10, 20
_HIDDEN_STREAM_SEED, _HIDDEN_TRAINED_SEED = 100, 200
# Failing networks, which have no dial.
FAILURES: Mapping[str, str] = types.MappingProxyType(
    {
        "chance": "guesses",
        "constant": "decides for one class",
        "untrained": "random weights",
        "shuffled": "trained on labels that were drawn at random",
        "diverged": "a weight is not a number",
    }
)


# Shares of training images in which shape and texture are of the label's class, by the dial: the
# best decision follows the more reliable cue. Colour and size are unrelated to the label.
AGREEMENTS: Mapping[float, tuple[float, float]] = types.MappingProxyType(
    {1.0: (0.95, 0.6), 0.0: (0.6, 0.95)}
)


class Plan(NamedTuple):
    """A network to make; fields as in calibrating.rows.PlantedNetwork.

    dial: the planned dial. A trained network's reliance, which is verified, may differ from it.
    options: further options, which the family's maker reads: "design", "agrees" and "hidden" of
    the training images (data.embedded.cues.make).
    """

    name: str
    family: str
    dial: float | None
    level: str = "high"
    shortcut: str = ""
    strength: float = 0.0
    seed: int = 0
    hidden: int = 0
    options: Mapping[str, Any] = types.MappingProxyType({})

    @property
    def group(self) -> str:
        """Return the name of the networks that are made alike, see rows.PlantedNetwork."""
        if self.family != "trained":
            return self.family
        design = self.options.get("design", self.level)
        return f"trained-{'availability' if 'hidden' in self.options else design}"

    @property
    def cluster(self) -> str:
        """Return the name of the networks that are not independent, see rows.PlantedNetwork."""
        if self.family.startswith("mixed"):
            return f"streams-{self.seed}"
        return self.name.removesuffix(f"-s{self.seed}")


class Scale(NamedTuple):
    """The size of a study.

    rule_dials, trained_dials, mixed_dials: the planned dials of each family.
    shortcut_dials: those of rules and trained networks with a shortcut; they are added to
    rule_dials and trained_dials, so that there are networks without the shortcut. Bootstrap
    intervals need five.
    strengths: of the shortcuts, which dials have in turns. further_shortcuts: shortcut, dial and
    strength of more trained networks: of those above, too few learn size, and one that learns
    colour decides too rarely for shape or texture.
    seeds: of trained networks without a shortcut; there is one with.
    stream_pairs: number of pairs of streams, which mixed networks take in turns.
    epochs: epochs of training at each of TRAINED_LEVELS.
    shares_without: shares of training images without the more reliable cue, see `_agreeing`; if
    texture is more reliable, only the first.
    train_images: images of a training set. hidden_networks: number of hidden networks.
    """

    rule_dials: tuple[float, ...] = tuple(round(0.1 * k, 1) for k in range(11))
    # Networks rely on shape for 7 and 5 % of decisions at 0.45, 12 and 43 % at 0.5, and 92 and 98 %
    # at 0.55.
    trained_dials: tuple[float, ...] = (0.45, 0.5, 0.51, 0.525, 0.55)
    mixed_dials: tuple[float, ...] = (0.0, 0.25, 0.4, 0.5, 0.6, 0.75, 1.0)
    shortcut_dials: tuple[float, ...] = (0.2, 0.45, 0.5, 0.55, 0.8)
    strengths: tuple[float, ...] = (0.5, 0.25)
    further_shortcuts: tuple[tuple[str, float, float], ...] = (
        ("colour", 0.2, 0.25),
        ("size", 0.2, 0.75),
        ("size", 0.45, 0.75),
        ("size", 0.55, 0.75),
    )
    seeds: int = 2
    stream_pairs: int = 5
    epochs: tuple[float, float] = (15.0, 8.0)
    shares_without: tuple[float, ...] = (0.5, 0.35, 0.2)
    train_images: int = 4096
    width: int = 8
    hidden_networks: int = 40


FULL = Scale()
SMOKE = Scale(
    rule_dials=(0.0, 1.0),
    trained_dials=(0.0, 1.0),
    mixed_dials=(0.5,),
    shortcut_dials=(),
    strengths=(),
    further_shortcuts=(),
    seeds=1,
    stream_pairs=1,
    epochs=(1.5, 0.4),
    shares_without=(0.5,),
    train_images=480,
    width=4,
    hidden_networks=8,
)


def visible(scale: Scale = FULL) -> list[Plan]:
    """Return the networks of the study whose dials the analysis may see."""
    return [
        *_rules(scale),
        *_trained(scale),
        *_mixed(scale),
        *(
            Plan(f"none-{level}", "none", None, level=level, seed=0)
            for level in FAILURES
        ),
    ]


def hidden(seed: int, scale: Scale = FULL) -> list[Plan]:
    """Return a second set of networks, with dials, levels and shortcuts drawn from a seed.

    Names have the seed, so that sets of two seeds share no folder, and do not say what is planted.
    """
    rng = np.random.default_rng([seed, NUM_CLASSES])
    plans = []
    for number in range(scale.hidden_networks):
        name = f"{hidden_prefix(seed)}{number:03d}"
        family = _HIDDEN_FAMILIES[number % len(_HIDDEN_FAMILIES)]
        dial = float(rng.random())
        if family == "trained":  # Reliance changes there; see `Scale`.
            dial = 0.45 + 0.1 * dial
        dial = round(dial, 3)
        shortcut = str(rng.choice(["", "colour", "size"], p=[0.75, 0.125, 0.125]))
        strength = float(rng.choice(scale.strengths or (0.25,)))
        failure = str(rng.choice([*FAILURES]))
        if family == "none":
            plans.append(Plan(name, "none", None, level=failure, seed=number, hidden=1))
            continue
        levels = {"rule": tuple(LAPSES), "trained": TRAINED_LEVELS}
        level = str(rng.choice(levels.get(family, ("high",))))
        has_shortcut = bool(shortcut) and family in levels
        plans.append(
            Plan(
                name,
                family,
                dial,
                level=level,
                shortcut=shortcut if has_shortcut else "",
                strength=strength if has_shortcut else 0.0,
                seed=_HIDDEN_STREAM_SEED + number % scale.stream_pairs
                if family.startswith("mixed")
                else _HIDDEN_TRAINED_SEED + number,
                hidden=1,
            )
        )
    return plans


def hidden_prefix(seed: int) -> str:
    """Return the start of the names of the hidden networks of a seed."""
    return f"hidden-{seed}-"


def _rules(scale: Scale) -> list[Plan]:
    """Return decision rules: all dials at all levels, and some dials with shortcuts."""
    dials = sorted({*scale.rule_dials, *scale.shortcut_dials})
    plans = [
        Plan(f"rule-{dial:g}-{level}", "rule", dial, level=level)
        for level, dial in itertools.product(LAPSES, dials)
    ]
    return plans + _with_shortcuts("rule", scale, seed=0)


def _trained(scale: Scale) -> list[Plan]:
    """Return trained networks: all dials and seeds after many epochs, and after few.

    Each level has seeds of its own. Networks with a shortcut have the first seed of those without.
    """
    dials = sorted({*scale.trained_dials, *scale.shortcut_dials})
    plans = []
    for number, level in enumerate(TRAINED_LEVELS):
        first = _TRAINED_SEED + number * scale.seeds
        for dial, seed in itertools.product(dials, range(first, first + scale.seeds)):
            name = f"trained-{dial:g}-{level}-s{seed}"
            plans.append(Plan(name, "trained", dial, level, seed=seed))
    with_shortcut = [
        _with_shortcut("trained", shortcut, dial, strength, seed=_TRAINED_SEED)
        for shortcut, dial, strength in scale.further_shortcuts
    ]
    return [
        *plans,
        *_with_shortcuts("trained", scale, seed=_TRAINED_SEED),
        *with_shortcut,
        *_agreeing(scale),
    ]


def _agreeing(scale: Scale) -> list[Plan]:
    """Return networks trained on cues that agree with the label in a share of the images.

    The planned dial is that of the best decision about images with both cues: 1 if shape is more
    reliable than texture, else 0. Of each dial, some networks see both cues in all images
    ("agreement"), and some do not see the more reliable cue in a share of them ("availability").
    """
    unrelated = (1 / NUM_CLASSES, 1 / 4)
    plans = []
    for dial, agrees in AGREEMENTS.items():
        options = {"design": "agreement", "agrees": (*agrees, *unrelated)}
        by_name = {"agreement": options}
        for share in scale.shares_without if dial else scale.shares_without[:1]:
            without = (share, 0.0) if dial else (0.0, share)
            by_name[f"availability-{share:g}"] = {**options, "hidden": without}
        for name, chosen in by_name.items():
            plans += [
                Plan(
                    f"trained-{dial:g}-{name}-s{seed}",
                    "trained",
                    dial,
                    seed=seed,
                    options=chosen,
                )
                for seed in range(_TRAINED_SEED, _TRAINED_SEED + scale.seeds)
            ]
    return plans


def _with_shortcuts(family: str, scale: Scale, *, seed: int) -> list[Plan]:
    """Return a network of a family with each shortcut at each dial; strengths are in turns."""
    strengths = itertools.cycle(scale.strengths)
    strength_by_dial = dict(zip(scale.shortcut_dials, strengths))
    return [
        _with_shortcut(family, shortcut, dial, strength, seed=seed)
        for shortcut in ("colour", "size")
        for dial, strength in strength_by_dial.items()
    ]


def _with_shortcut(
    family: str, shortcut: str, dial: float, strength: float, *, seed: int
) -> Plan:
    """Return a network of a family with a shortcut."""
    name = f"{family}-{dial:g}-{shortcut}-{strength:g}-s{seed}"
    return Plan(name, family, dial, shortcut=shortcut, strength=strength, seed=seed)


def _mixed(scale: Scale) -> list[Plan]:
    """Return networks of two streams, mixed by logits and by images.

    Networks of neighbouring dials have different streams, so that a value that differs between
    streams only does not rise with the dial. By images, each dial is mixed from two pairs.
    """
    plans = []
    for number, dial in enumerate(scale.mixed_dials):
        pairs = [
            _STREAM_SEED + place % scale.stream_pairs for place in (number, number + 2)
        ]
        plans.append(
            Plan(f"mixed_logits-{dial:g}", "mixed_logits", dial, seed=pairs[0])
        )
        plans += [
            Plan(f"mixed_images-{dial:g}-p{pair}", "mixed_images", dial, seed=pair)
            for pair in dict.fromkeys(pairs)
        ]
    return plans


def check(plans: list[Plan]) -> None:
    """Raise ValueError unless names are unique and valid, and dials are in [0, 1]."""
    names = [plan.name for plan in plans]
    for plan in plans:
        errors.check_folder_name("a planted network's name", plan.name)
        if plan.dial is not None:
            errors.check(0 <= plan.dial <= 1, plan.name, "be in [0, 1]", plan.dial)
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        errors.refuse("planted networks", "have unique names", duplicates)
