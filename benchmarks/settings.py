"""Named settings of benchmarks: network, image size and batch. Imports no framework."""

import dataclasses
import types
from collections.abc import Mapping

CLASSES = 16  # Classes of the embedded data set.


@dataclasses.dataclass(frozen=True)
class Setting:
    """A network of jbias.models, the side of its images in pixels, and a seed's batch."""

    model: str
    width: int
    stem: str  # "" for networks with a single stem.
    size: int
    batch: int


SETTINGS: Mapping[str, Setting] = types.MappingProxyType(
    {
        "tiny": Setting("resnet18", 4, "small", 32, 8),
        "shapes": Setting("resnet18", 16, "small", 32, 64),
        "cifar16": Setting("resnet18", 16, "small", 32, 128),
        "cifar64": Setting("resnet18", 64, "small", 32, 128),
        "imagenet": Setting("resnet50", 64, "imagenet", 224, 256),
    }
)
