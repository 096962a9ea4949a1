"""Sets of the same classes in several domains: PACS and Office-Home.

PACS: photographs, art paintings, cartoons and sketches of the same seven classes, in
<root>/{photo,art_painting,cartoon,sketch}/<class>/*.{jpg,png}, as published (227 pixels) or
made smaller. Office-Home: 65 classes of everyday things in
<root>/{Art,Clipart,Product,Real World}/<class>/*.jpg, as published.
"""

from collections.abc import Mapping
from types import MappingProxyType

from jbias.data import base, folder, tables

PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")

pacs = folder.named_classes("pacs", PACS_CLASSES, native=True)
office_home = folder.named_classes("office_home", tables.class_names("office_home"))
SPECS: Mapping[str, base.Spec] = MappingProxyType(
    {
        "pacs": base.spec("pacs", pacs),
        "office_home": base.spec("office_home", office_home),
    }
)
