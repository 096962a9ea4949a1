"""Options of every algorithm at full strength, for tests of all algorithms."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from jbias import models

# Networks without batch norms.
_PLAIN = frozenset(
    {"vgg11", "vgg16", "vgg19", "alexnet", "squeezenet1_0", "squeezenet1_1"}
    | {name for name in models.MODELS if name.startswith("vit")}
)
_WITHOUT_LINEAR_HEAD = frozenset({"squeezenet1_0", "squeezenet1_1"})
_NO_RESNETS = frozenset(
    name for name in models.MODELS if not name.startswith(("resnet", "resnext"))
)


def recoloured(batch, permute, alpha):
    """Swap mean colours of images, as a replacement of style transfer."""
    image = batch["image"]
    colour = image.mean((1, 2), keepdims=True)
    return image + alpha * (permute(colour) - colour)


def select_all(path) -> bool:
    """Select every weight of the net."""
    return True


@dataclasses.dataclass(frozen=True)
class Method:
    """Options of an algorithm: at full strength, and those that make it equal to ERM.

    moves: selects the weights of the net that it trains. start: largest distance of its
    first class loss from ln k. config: options of complete runs that differ from `strong`.
    inputs: the batch transforms that it needs. refuses: names of the networks on which it is
    refused, with `refusal` in the message, unless it has the options `remedy`.
    communicated: largest bytes that a step moves between devices, as a multiple of the bytes
    of its gradients; a tuple has a number for each compiled program of an algorithm whose
    steps differ (Algo.static), in the order of steps. passes: number of passes through the
    same batch norms in a step.
    """

    strong: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    nulls: tuple[Mapping[str, Any], ...] = ()
    moves: Any = select_all
    loss: str = "class"
    start: float = 0.5
    views: int = 1
    config: Mapping[str, Any] | None = None
    inputs: tuple = ()
    refuses: frozenset[str] = frozenset()
    refusal: str = ""
    remedy: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    communicated: float | tuple[float, ...] = 1.05
    passes: int = 1

    @property
    def options(self) -> dict[str, Any]:
        """Return the options of a complete run."""
        return dict(self.strong if self.config is None else self.config)


class Columns(dict):
    """Columns of training data, as an option that a cache can hold."""

    __hash__ = object.__hash__


# Groups and environments of very different size; those of the tests' batches.
COLUMNS = Columns(
    label=np.repeat(np.arange(5), 12),
    attribute=np.minimum(np.arange(60) % 12, 2),
    domain=np.arange(60) % 4 // 3,
)
ONE_GROUP = Columns(label=np.zeros(9, int), attribute=np.full(9, 2))


def with_columns(**options) -> dict[str, Any]:
    """Return options of an algorithm that needs the columns of the training data."""
    return {"columns": COLUMNS, **options}


def _group(**options) -> dict[str, Any]:
    return {"mix_group": 4, **options}


def _no_linear(path) -> bool:
    return path[0] != "fc"


METHODS: Mapping[str, Method] = {
    "erm": Method(),
    # The discriminator's step (the second program) differentiates its loss twice, for the
    # penalty; on CPUs XLA sums both contributions to its gradient separately, 1.99 in all.
    "cdann": Method(
        with_columns(weight=1.0, grad_penalty=0.1),
        (with_columns(weight=0.0),),
        config={"weight": 1.0, "grad_penalty": 0.1},
        communicated=(1.05, 2.1),
    ),
    # A covariance of 64 features is summed for each of two environments.
    "coral": Method(
        with_columns(gamma=10.0),
        (with_columns(gamma=0.0),),
        config={"gamma": 10.0},
        communicated=1.15,
    ),
    # As of cdann.
    "dann": Method(
        with_columns(weight=1.0, grad_penalty=0.1),
        (with_columns(weight=0.0),),
        config={"weight": 1.0, "grad_penalty": 0.1},
        communicated=(1.05, 2.1),
    ),
    # On CPUs XLA sums the gradients of its two passes separately; on GPUs it adds them first
    # (AllReduceReassociate).
    "debiased": Method(
        _group(transfer=recoloured, alpha=1.0, gamma=0.5),
        (_group(stylised=False),),
        config=_group(transfer={"name": "render"}, alpha=1.0, gamma=0.5),
        refuses=_PLAIN,
        refusal="aux_bn must be False",
        remedy={"aux_bn": False},
        communicated=2.1,
    ),
    # Two moments of the features of its layer are summed.
    "dfr": Method(
        moves=lambda path: path[0] == "fc",
        start=3.0,
        refuses=_WITHOUT_LINEAR_HEAD,
        refusal="needs a net that ends in a linear layer",
        communicated=1.5,
    ),
    "dsu": Method(_group(p=1.0), (_group(p=0.0),), start=1.5),
    "efdmix": Method(_group(p=1.0, stages=(1, 2, 3)), (_group(p=0.0),)),
    "eqrm": Method(
        with_columns(alpha=0.9, burn_in=0.0),
        (with_columns(burn_in=1.0), {"columns": ONE_GROUP}),
        config={"alpha": 0.9, "burn_in": 0.5},
    ),
    # Two moments of the gradients of the last layer are summed for each environment.
    "fishr": Method(
        with_columns(weight=10.0, anneal=0.0),
        (with_columns(weight=0.0),),
        config={"weight": 10.0, "anneal": 0.5},
        refuses=_WITHOUT_LINEAR_HEAD,
        refusal="needs a net that ends in a linear layer",
        communicated=1.15,
    ),
    "frozen_filters": Method(
        nulls=({"area": 9},),
        moves=lambda path: "conv" not in path[-2],
    ),
    "group_dro": Method(
        with_columns(eta=1.0, adjustment=1.0),
        ({"columns": ONE_GROUP},),
        config={"eta": 1.0, "adjustment": 1.0},
    ),
    # Which features are dropped moves a fresh net of eight images by 0.2 either way.
    "infodrop": Method(
        {"temperature": 0.5},
        ({"rate": 0},),
        start=0.8,
        refuses=_NO_RESNETS,
        refusal="infodrop: needs a ResNet",
    ),
    "irm": Method(
        with_columns(weight=100.0, anneal=0.5),
        (with_columns(weight=0.0),),
        config={"weight": 100.0, "anneal": 0.5},
    ),
    "linear_probe": Method(moves=lambda path: path[0] == "fc", start=3.0),
    # Gradients are summed for the inner step, too.
    "mldg": Method(
        with_columns(beta=1.0, inner_rate=0.1),
        (with_columns(meta_test=0),),
        config={"beta": 1.0, "inner_rate": 0.1},
        communicated=2.1,
        passes=2,
    ),
    "mixstyle": Method(
        _group(p=1.0, stages=(1, 2, 3)),
        (_group(p=0.0), _group(p=0.0, traced=("p",))),
    ),
    # Each device needs the features of all images, because the kernel is of all pairs: 64
    # features of 64 images, gathered once and summed once, are 0.105 of the gradients here.
    "mmd": Method(
        with_columns(weight=10.0),
        (with_columns(weight=0.0),),
        config={"weight": 10.0},
        communicated=1.15,
    ),
    "padain": Method(_group(p=1.0), (_group(p=0.0), _group(p=0.0, traced=("p",)))),
    "pgd": Method({"eps": 0.1}, ({"eps": 0},), start=3.0),
    "reweight": Method(
        with_columns(power=0.5),
        (with_columns(power=0.0), {"columns": ONE_GROUP}),
        config={"power": 0.5},
        start=2.0,
    ),
    "rsc": Method(
        {"features": 0.5, "examples": 0.5},
        ({"features": 0.0}, {"examples": 0.0}, {"anneal": 1.0}),
        config={"features": 0.5, "examples": 0.5, "anneal": 0.5},
        refuses=_WITHOUT_LINEAR_HEAD,
        refusal="needs a net that ends in a linear layer",
    ),
    "sagnet": Method(
        _group(),
        (_group(w_adv=0.0, randomise_style=False, dropout=0.0),),
        refuses=_PLAIN,
        refusal="trains the batch norms before stage 3",
        remedy={"w_adv": 0},
    ),
    # Each device needs the projections of all images.
    "simclr": Method(
        {"features": 16},
        moves=_no_linear,
        loss="contrast",
        views=2,
        inputs=({"name": "views", "views": 2}, {"name": "flip"}),
        communicated=1.2,
    ),
    "vrex": Method(
        with_columns(beta=10.0, anneal=0.5),
        (with_columns(beta=0.0),),
        config={"beta": 10.0, "anneal": 0.5},
    ),
}
