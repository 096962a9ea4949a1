"""Print the table of networks in docs/models.md, computed from the networks, and their sources.

    python -m studies.networks_table

Prints Markdown and writes no file. GMACs count convolutions and matrix products, as in
benchmarks/roofline.py, for an image of the network's usual side (224, 32 or 28 pixels).

Takes about 20 seconds on two cores.
"""

import re
import types
from collections.abc import Mapping
from typing import NamedTuple

import jax

from benchmarks import roofline
from jbias import models
from jbias.models import registry
from studies import command

CLASSES = 1000
_SIDES = {"cnn": 28, "preact_resnet18": 32}
_TORCHVISION = "torchvision, timm"


class Family(NamedTuple):
    """Facts about the networks of a module.

    source: link to the paper; "" for our own network. files: origins of weight files that
    jbias reads, one for each naming scheme, with the version after a space if an origin has
    several schemes.
    """

    source: str
    files: tuple[str, ...]

    def origins(self) -> list[str]:
        """Return the origins without versions, each once."""
        return list(
            dict.fromkeys(re.sub(r" (before )?[\d.]+$", "", x) for x in self.files)
        )


def _arxiv(text: str, number: str) -> str:
    """Return a link to a paper."""
    return f"[{text}](https://arxiv.org/abs/{number})"


# By the name of the module.
FAMILIES: Mapping[str, Family] = types.MappingProxyType(
    {
        "cnn": Family("", ()),
        "resnet": Family(_arxiv("ResNet", "1512.03385"), (_TORCHVISION, "SimCLRv2's")),
        "vgg": Family(_arxiv("VGG", "1409.1556"), ("torchvision",)),
        "alexnet": Family(_arxiv("AlexNet", "1404.5997"), ("torchvision",)),
        "preact_resnet": Family(
            _arxiv("PreAct-ResNet", "1603.05027"), ("FMix's authors'",)
        ),
        "densenet": Family(_arxiv("DenseNet", "1608.06993"), ("torchvision",)),
        "mobilenetv3": Family(_arxiv("MobileNetV3", "1905.02244"), ("torchvision",)),
        "squeezenet": Family(_arxiv("SqueezeNet", "1602.07360"), ("torchvision",)),
        "bagnet": Family(_arxiv("BagNet", "1904.00760"), ("its authors'",)),
        "vit": Family(
            _arxiv("ViT", "2010.11929"),
            (
                "timm",
                "torchvision",
                "torchvision before 0.14",
                "transformers",
                "transformers 5",
            ),
        ),
    }
)
_RESNEXT = _arxiv("ResNeXt", "1611.05431")
HEAD = (
    "| Name | Parameters | GMACs | Files |",
    "| --- | --- | --- | --- |",
)


def family(name: str) -> Family:
    """Return the facts about the module of network `name`."""
    module = type(models.MODELS[name](CLASSES)).__module__
    facts_of_module = FAMILIES[module.rpartition(".")[2]]
    if name.startswith("resnext"):
        return facts_of_module._replace(source=_RESNEXT)
    return facts_of_module


def row(name: str) -> str:
    """Return a network's row: at 1000 classes, for images of its usual side."""
    net, side = models.MODELS[name](CLASSES), _SIDES.get(name, 224)
    flops, _, parameters = roofline.forward(net, side)
    network_family = family(name)
    assert len(network_family.files) == len(registry.dialects(name)), name
    cells = (
        f"`{name}`",
        f"{parameters:,}",
        f"{flops / 2e9:.3g}",
        ", ".join(network_family.origins()) or "none",
    )
    return f"| {' | '.join(cells)} |"


def sources() -> str:
    """Return the papers of all networks as Markdown, each once, in the order of the table."""
    links = dict.fromkeys(family(name).source for name in models.MODELS)
    return f"Sources: {', '.join(filter(None, links))}."


def main() -> None:
    """Print the table and the sources."""
    command.parser("networks_table", __doc__).parse_args()
    jax.config.update("jax_platforms", "cpu")
    print("\n".join((*HEAD, *map(row, models.MODELS))))
    print(f"\n{sources()}")


if __name__ == "__main__":
    main()
