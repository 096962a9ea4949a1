"""The ensemble of a run's seeds as a network: `jbias evaluate --ensemble`.

logits: the mean of the members' logits, as in Arpit et al., "Ensemble of Averages", NeurIPS 2022
  (https://arxiv.org/abs/2110.10832), whose members are averages of weights (configs/eoa.py). Code:
  https://github.com/salesforce/ensemble-of-averages at 19183f1, domainbed/EoA.py, `accuracy`,
  which sums the outputs of the members' linear layers. Its members are runs with different
  hyperparameters, too; here they are the seeds of one run.
probabilities: the mean of the members' probabilities, as in Lakshminarayanan et al., "Deep
  ensembles", NeurIPS 2017 (https://arxiv.org/abs/1612.01474).

An ensemble of n seeds costs n forward passes per image.
"""

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from jbias import errors
from jbias.evals import inference, networks
from jbias.stimuli import shown

RULES = ("logits", "probabilities")


@dataclasses.dataclass(frozen=True, eq=False)
class EnsembleNetwork(networks.Network):
    """The ensemble of several networks with the same classes; rule: one of RULES."""

    members: tuple[networks.FlaxNetwork, ...]
    rule: str

    @property
    def preprocessing(self) -> dict[str, Any]:
        """Return the constants of the first member, which all members share."""
        return self.members[0].preprocessing

    def dtype(self, requested: Any) -> Any:
        """Return the precision of the members; requested: see `Network.dtype`."""
        return self.members[0].dtype(requested)

    def bind(self, dtype: Any, devices: jax.sharding.Mesh) -> "BoundEnsemble":
        """Return the ensemble in a precision, with the weights of all members on the devices.

        dtype: result of the method `dtype`. errors.NotFiniteError if a weight is NaN or infinite.
        """
        bound = tuple(member.bind(dtype, devices) for member in self.members)
        return BoundEnsemble(
            apply=_make_apply(tuple(member.apply for member in bound), self.rule),
            variables=tuple(member.variables for member in bound),
            members=bound,
            rule=self.rule,
        )


class BoundEnsemble(NamedTuple):
    """An `inference.BoundNetwork` whose logits are those of an ensemble.

    `apply` is one program for gradients; `predict` uses the program of each member, which
    members share if their modules are equal. An ensemble has no sites.
    """

    apply: Callable[[PyTree, shown.Images], inference.Logits]
    variables: PyTree
    members: tuple[inference.BoundJaxNetwork, ...]
    rule: str
    at: None = None
    net: None = None
    graded: bool = True

    def predict(
        self, image: shown.Images, origin: inference.StimulusOrigin
    ) -> inference.Logits:
        """Return the ensemble's logits of stimuli in [0, 1]."""
        logits = tuple(member.predict(image, origin) for member in self.members)
        return _combine_compiled(logits, rule=self.rule)


def combine(logits: Sequence[inference.Logits], rule: str) -> inference.Logits:
    """Return the logits of an ensemble, given each member's logits.

    rule: "logits", the mean of logits; or "probabilities", the logarithm of the mean of the
    probabilities, whose softmax is that mean. One member's logits are returned unchanged.
    """
    if len(logits) == 1:
        return logits[0]
    stacked = jnp.stack(logits)
    if rule == "logits":
        return stacked.mean(0)
    log_sum = jax.nn.logsumexp(jax.nn.log_softmax(stacked), axis=0)
    return log_sum - jnp.log(len(logits))


_combine_compiled = jax.jit(combine, static_argnames="rule")


@functools.cache
def _make_apply(applies: tuple[Callable, ...], rule: str) -> Callable:
    """Return the function (variables of all members, images) -> logits of the ensemble.

    Equal arguments get the same function object, so that it is compiled once.
    """

    def apply(variables: PyTree, image: shown.Images) -> inference.Logits:
        logits = [
            apply_member(of_member, image).astype(jnp.float32)
            for apply_member, of_member in zip(applies, variables, strict=True)
        ]
        return combine(logits, rule)

    return apply


def of_seeds(
    members: Sequence[networks.FlaxNetwork], rule: str = "logits"
) -> EnsembleNetwork:
    """Return the ensemble of the seeds of a run, or of one branch of a run.

    The records have the run's algorithm; the variant and the run's name tell the ensemble from
    its members. ValueError for members with different classes, and for another rule.
    """
    errors.check_choice("ensemble", rule, RULES, name="rule")
    first = members[0]
    for member in members[1:]:
        if (member.space, member.classes) != (first.space, first.classes):
            raise ValueError(
                f"ensemble: the members must have the same classes, {first.name} and "
                f"{member.name} have not; name runs of one training set"
            )
    label = f"ensemble-of-{len(members)}"
    if rule == "probabilities":
        label += "-by-probabilities"
    fields = {
        **first.fields,
        "run": f"{first.fields['run']}-{label}",
        "variant": "+".join(filter(None, (first.fields["variant"], label))),
        "seed": 0,
        "step": max(member.fields["step"] for member in members),
        "epoch": max(member.fields["epoch"] for member in members),
    }
    digests = "-".join([rule, *(member.digest for member in members)])
    seeds = [member.fields["seed"] for member in members]
    return EnsembleNetwork(
        name=f"{first.fields['run']}-{label}",
        classes=first.classes,
        space=first.space,
        digest=hashlib.sha256(digests.encode()).hexdigest()[:16],
        fields=fields,
        about={**first.about, "members": seeds},
        members=tuple(members),
        rule=rule,
    )


def with_ensembles(
    opened: Iterable[networks.Network], rule: str
) -> Iterator[networks.Network]:
    """Yield each network, and after the last seed of a run the ensemble of the run's seeds.

    A run with config.vary has an ensemble per branch. Weights files and runs of one seed have
    none. opened: networks, the seeds of a run one after the other. rule: one of RULES.
    """

    def run_of(network: networks.Network) -> Any:
        """Return the run, and branch, that a network belongs to; None if it is of no run."""
        is_of_run = "config" in network.about
        return (network.about["path"], network.fields["run"]) if is_of_run else None

    for run, of_run in itertools.groupby(opened, run_of):
        members = []
        for network in of_run:
            yield network
            if run is not None:
                members.append(network)
        if len(members) > 1:
            yield of_seeds(members, rule)
