"""Sets of the same classes in several domains: PACS and Office-Home.

PACS: photographs, art paintings, cartoons and sketches of the same seven classes, in
<root>/{photo,art_painting,cartoon,sketch}/<class>/*.{jpg,png}, as published (227 pixels) or
made smaller. Office-Home: 65 classes of everyday things in
<root>/{Art,Clipart,Product,Real World}/<class>/*.jpg, as published.
"""

from collections.abc import Mapping
from types import MappingProxyType

from jbias.data import base, folder, tables

OFFICE_HOME_COUNTS: Mapping[str, int] = MappingProxyType(
    {"art": 2427, "clipart": 4365, "product": 4439, "real_world": 4357}
)
_SPELLINGS = MappingProxyType(
    {
        "art": ("Art",),
        "clipart": ("Clipart",),
        "product": ("Product",),
        "real_world": ("Real World", "Real_World", "RealWorld", "Real"),
    }
)
PACS_COUNTS: Mapping[str, int] = MappingProxyType(
    {"photo": 1670, "art_painting": 2048, "cartoon": 2344, "sketch": 3929}
)
PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")

pacs = folder.named_classes("pacs", PACS_CLASSES, PACS_COUNTS, native=True)
office_home = folder.named_classes(
    "office_home", tables.class_names("office_home"), OFFICE_HOME_COUNTS, _SPELLINGS
)
SPECS: Mapping[str, base.Spec] = MappingProxyType(
    {
        "pacs": base.spec("pacs", pacs, PACS_COUNTS),
        "office_home": base.spec("office_home", office_home, OFFICE_HOME_COUNTS),
    }
)
