"""Decision rules that read the known cues of an image, with exact planted reliance.

A rule decides by a cue that is drawn for each image: the shortcut with probability `strength`;
otherwise shape with probability `dial`, else texture. With probability `lapse`, and if the image
does not show the cue, it guesses. So the probability of each decision is known exactly.

Logits are the logarithms of these probabilities plus Gumbel noise. The largest is then a draw from
the probabilities, and the order of the others is a draw without replacement, from which the ranks
of both cues are computed (Gumbel 1954; Yellott 1977, https://doi.org/10.1016/0022-2496(77)90026-8).
Every rule has noise of its own: with common noise, values of rules would rise with their dials by
construction, and rules would not be independent. A rule sees no pixels: it gives no decisions
about changed images.
"""

import dataclasses
import types
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from jbias.data.embedded import cues
from jbias.evals import inference, networks
from jbias.planting import plans
from jbias.stimuli import shown

NEEDS_IMAGES = "needs images: a decision rule reads cues, and sees no changed images"


class Rule(NamedTuple):
    """The probabilities of a decision rule.

    dial, shortcut, strength: see plans.Plan. lapse: share of guesses. constant: a class that is
    always decided, whatever the image shows; None for a rule of cues.
    """

    dial: float = 0.5
    shortcut: str = ""
    strength: float = 0.0
    lapse: float = 0.0
    constant: int | None = None

    @property
    def weights(self) -> dict[str, float]:
        """Return the probability that each cue decides, by name; they sum to 1."""
        remaining = 1 - self.strength if self.shortcut else 1.0
        weights = {
            "shape": remaining * self.dial,
            "texture": remaining * (1 - self.dial),
        }
        if self.shortcut:
            weights[self.shortcut] = self.strength
        return weights


def is_rule(plan: plans.Plan) -> bool:
    """Return True for a plan of a decision rule, also of a failing one."""
    return plan.family == "rule" or plan.level in ("constant", "chance")


def of_plan(plan: plans.Plan) -> Rule:
    """Return the rule of a plan of the family "rule", or of a failing rule."""
    if plan.level == "constant":
        return Rule(constant=plan.seed % plans.NUM_CLASSES)
    if plan.level == "chance":
        return Rule(lapse=1.0)
    return Rule(
        dial=plan.dial,
        shortcut=plan.shortcut,
        strength=plan.strength,
        lapse=plans.LAPSES[plan.level],
    )


def shown_classes(
    columns: Mapping[str, Int[np.ndarray, "n"]],
) -> dict[str, Int[np.ndarray, "n"]]:
    """Return the class of each cue by image, -1 where an image does not show the cue.

    columns: of a split of the set "cues". {} for other sets, whose cues are unknown.
    """
    if "cue" in columns:
        label, cue = columns["label"], columns["cue"]
        return {
            name: np.where(cue == number, label, -1)
            for number, name in enumerate(("shape", "texture"))
        }
    classes = {name: columns[name] for name in cues.CUES if name in columns}
    if "size" in classes:
        # Without a shape the class of a size is unknown.
        absent = np.full(len(classes["size"]), -1)
        has_shape = "shape" in classes
        place = classes["shape"] % cues.NUM_SIZES if has_shape else absent
        of_size = cues.NUM_SIZES * classes["size"] + place
        classes["size"] = of_size if has_shape else absent
    return classes


def probabilities(
    rule: Rule, classes: Mapping[str, Int[np.ndarray, "n"]], num_images: int
) -> Float[np.ndarray, "n k"]:
    """Return the probability of each decision about each image.

    classes: result of `shown_classes`.
    """
    k = plans.NUM_CLASSES
    if rule.constant is not None:
        return np.tile(np.eye(k)[rule.constant], (num_images, 1))
    shares = np.zeros((num_images, k))
    for cue, weight in rule.weights.items():
        of_cue = np.asarray(classes.get(cue, np.full(num_images, -1)))
        is_shown = of_cue >= 0
        shares[np.flatnonzero(is_shown), of_cue[is_shown]] += weight
        shares[~is_shown] += weight / k
    return (1 - rule.lapse) * shares + rule.lapse / k


@dataclasses.dataclass(frozen=True, eq=False)
class RuleNetwork(networks.Network):
    """A decision rule as a network; implements inference.BoundNetwork."""

    rule: Rule
    seed: int
    apply = at = net = None
    graded = True
    variables: Any = ()

    def predict(
        self, image: shown.Images, origin: inference.StimulusOrigin
    ) -> inference.Logits:
        """Return logits; ValueError for changed images, and for sets with unknown cues.

        image: ignored. origin: the set and the numbers of the images.
        """
        columns = {} if origin.source is None else origin.source.columns
        classes = shown_classes(columns)
        if not classes:
            raise ValueError(f"{self.name}: {NEEDS_IMAGES}")
        num_images = len(columns["label"])
        shares = probabilities(self.rule, classes, num_images)
        texts = (self.name, origin.dataset)
        stream = [self.seed, *(zlib.crc32(text.encode()) for text in texts)]
        noise = np.random.default_rng(stream).gumbel(size=shares.shape)
        with np.errstate(divide="ignore"):
            logits = np.log(shares) + noise
        return jnp.asarray(logits[np.asarray(origin.index)], jnp.float32)


def open_network(plan: plans.Plan, space: str) -> RuleNetwork:
    """Return the network of a rule. space: label space of the set "cues"."""
    rule = of_plan(plan)
    fields = {
        "run": plan.name,
        "algorithm": plan.family,
        "variant": "",
        "model": "rule",
        "train_data": "none",
        "stage": 0,
        "seed": plan.seed,
        "step": 0,
        "epoch": 0.0,
    }
    return RuleNetwork(
        name=plan.name,
        classes=cues.CLASSES,
        space=space,
        digest=f"{zlib.crc32(repr((rule, plan.seed, plan.name)).encode()):08x}",
        fields=types.MappingProxyType(fields),
        about={"category": plan.family},
        rule=rule,
        seed=plan.seed,
    )
