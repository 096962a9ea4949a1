"""Networks: a plain backbone each, with named taps. MODELS is the table of contents."""

import types
from collections.abc import Callable, Mapping

from flax import linen as nn

from jbias.models import resnet

MODELS: Mapping[str, Callable[..., nn.Module]] = types.MappingProxyType(
    {
        "resnet18": resnet.resnet18,
        "resnet34": resnet.resnet34,
        "resnet50": resnet.resnet50,
    }
)
