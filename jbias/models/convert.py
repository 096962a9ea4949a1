"""Published weights that `prepare weights` converts. CONVERTERS is the table of contents."""

import types
from collections.abc import Mapping

from jbias.models import adain, cae, edsr, published

CONVERTERS: Mapping[str, published.Published] = types.MappingProxyType(
    {entry.name: entry for entry in (adain.PUBLISHED, cae.PUBLISHED, edsr.PUBLISHED)}
)
