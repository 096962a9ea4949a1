"""Frozen random filters: all spatial convolutions keep their initial random weights.

The net learns combinations of random filters: 1x1 convolutions, normalisations and the
linear layer.
Source: Gavrikov and Keuper, "The Power of Linear Combinations: Learning with Random
Convolutions", https://arxiv.org/abs/2301.11360.
Reference code: https://github.com/paulgavrikov/tinytorchtrainer at 3333f63, option
`conv_spatial`.
"""

import functools
import math

from flax import linen as nn

from jbias import errors
from jbias.algos import base, erm


def make(net: nn.Module, *, area: int = 1) -> base.Algo:
    """Return ERM that does not train convolutions over more than `area` pixels.

    area: number of pixels of a kernel; 1 freezes all but 1x1 convolutions.

    Weight decay does not apply to frozen kernels. In a second stage, or with `config.init`,
    frozen kernels keep the weights of the earlier stage or run. For a net without such
    convolutions this equals ERM bit for bit. ValueError for an area below 1.
    """
    errors.check_condition("frozen_filters", "at least 1", area=area)
    spatial = functools.cache(lambda: spatial_kernels(net, area))
    update = base.Update("class", lambda path: path not in spatial())
    return erm.make(net)._replace(updates=(update,))


def spatial_kernels(net: nn.Module, area: int = 1) -> frozenset[base.Path]:
    """Return the paths of the kernels of convolutions over more than `area` pixels."""
    return frozenset(
        path
        for path, shape in base.parameters(net).items()
        if path[-1] == "kernel" and len(shape) == 4 and math.prod(shape[:2]) > area
    )


ALGOS = {"frozen_filters": make}
