"""Office-Home: 65 classes of everyday things in four domains.

Layout: <root>/{Art,Clipart,Product,Real World}/<class>/*.jpg, as published.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from jbias.data import (
    class_names,
    folder,
    listing,
    sources,
    spec,
    stores,
    transforms,
)

CITE = (
    "Venkateswara, Eusebio, Chakraborty and Panchanathan: Deep Hashing Network for"
    " Unsupervised Domain Adaptation. CVPR 2017, https://arxiv.org/abs/1706.07522"
)
COUNTS: Mapping[str, int] = MappingProxyType(
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


def make(
    split: str,
    *,
    root: str,
    size: int = 224,
    resize: int | None = None,
    crop: bool = True,
    ignore: Sequence[str] = (),
) -> sources.EncodedSource:
    """Lists one domain, or a part of it such as "art[:90%]"."""
    where = f"data.office_home {split}"
    spellings = _SPELLINGS[split.partition("[")[0]]
    path, part = folder.find(where, root, split, spellings)
    classes = class_names.of("office_home")
    listing.match_classes(where, listing.class_folders(where, path), classes)
    files = listing.scan(where, path, {name: name for name in classes}, ignore)
    return folder.build(
        where,
        part,
        store=stores.Files(path, files.names),
        files=files,
        name=f"office_home/{split}",
        classes=classes,
        space="names",
        transform=transforms.preprocess(size, resize, crop),
        published=COUNTS.get(part.base),
        cite=CITE,
    )


SPEC = spec.Spec(
    make,
    splits=tuple(COUNTS),
    cite=CITE,
    licence="of the authors' page: non-commercial research and education",
    about=(
        "65 classes in 4 domains, 15,588 images (Art 2,427, Clipart 4,365, Product"
        " 4,439, Real World 4,357): <root>/<domain>/<class>/*.jpg"
    ),
    size="about 1.1 GB packed",
    where="https://hemanthdv.github.io/officehome-dataset/",
)
