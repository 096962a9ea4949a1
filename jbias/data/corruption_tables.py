"""Settings of ImageNet-C's corruptions: by name and side of the image, five severities.

What the numbers of a row mean is said by the function of that name. Sides: 224 for
ImageNet-C, 64 for Tiny-ImageNet-C, 32 for CIFAR-10-C and CIFAR-100-C. The third number of
frost scales the photographs; those of elastic_transform were multiplied by the side, with
244 for 224 as in the reference.
Source: Hendrycks and Dietterich, ICLR 2019, https://arxiv.org/abs/1903.12261; numbers of
https://github.com/hendrycks/robustness at 8190fe3, ImageNet-C/create_c.
"""

from collections.abc import Mapping
from types import MappingProxyType

from jbias.data import packaged

Row = tuple[float, ...]
Table = Mapping[int, tuple[Row, Row, Row, Row, Row]]

SETTINGS: Mapping[str, Table] = MappingProxyType(
    {
        name: MappingProxyType(
            {int(side): tuple(map(tuple, rows)) for side, rows in sides.items()}
        )
        for name, sides in packaged.table("corruptions").items()
    }
)
