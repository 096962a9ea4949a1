"""Sets of the same classes in several domains: PACS and Office-Home.

PACS: photographs, art paintings, cartoons and sketches of the same seven classes, in
<root>/{photo,art_painting,cartoon,sketch}/<class>/*.{jpg,png}, as published (227 pixels) or
made smaller. Office-Home: 65 classes of everyday things in
<root>/{Art,Clipart,Product,Real World}/<class>/*.jpg, as published.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from jbias.data import base, folder, listing, sources, tables, transforms

OFFICE_HOME_CITE = (
    "Venkateswara, Eusebio, Chakraborty and Panchanathan: Deep Hashing Network for"
    " Unsupervised Domain Adaptation. CVPR 2017, https://arxiv.org/abs/1706.07522"
)
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


def office_home(
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
    path, part = folder.find_folder(where, root, split, spellings)
    classes = tables.class_names("office_home")
    listing.match_classes(where, listing.class_folders(where, path), classes)
    files = listing.scan(where, path, {name: name for name in classes}, ignore)
    return folder.build(
        where,
        part,
        store=sources.FileStore(path, files.names),
        files=files,
        name=f"office_home/{split}",
        classes=classes,
        space="names",
        transform=transforms.preprocess(size, resize, crop),
        published=OFFICE_HOME_COUNTS.get(part.base),
        cite=OFFICE_HOME_CITE,
    )


OFFICE_HOME_SPEC = base.Spec(
    office_home,
    splits=tuple(OFFICE_HOME_COUNTS),
    cite=OFFICE_HOME_CITE,
    licence="of the authors' page: non-commercial research and education",
    about=(
        "65 classes in 4 domains, 15,588 images (Art 2,427, Clipart 4,365, Product"
        " 4,439, Real World 4,357): <root>/<domain>/<class>/*.jpg"
    ),
    size="about 1.1 GB packed",
    where="https://hemanthdv.github.io/officehome-dataset/",
)

PACS_CITE = (
    "Li, Yang, Song and Hospedales: Deeper, Broader and Artier Domain Generalization."
    " ICCV 2017, https://arxiv.org/abs/1710.03077"
)
PACS_COUNTS: Mapping[str, int] = MappingProxyType(
    {"photo": 1670, "art_painting": 2048, "cartoon": 2344, "sketch": 3929}
)
PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


def pacs(
    split: str,
    *,
    root: str,
    size: int = 224,
    resize: int | None = None,
    crop: bool = True,
    ignore: Sequence[str] = (),
) -> sources.EncodedSource:
    """Lists one style, or a part of it such as "photo[:90%]"."""
    where = f"data.pacs {split}"
    path, part = folder.find_folder(where, root, split)
    listing.match_classes(where, listing.class_folders(where, path), PACS_CLASSES)
    files = listing.scan(where, path, {name: name for name in PACS_CLASSES}, ignore)
    return folder.build(
        where,
        part,
        store=sources.FileStore(path, files.names),
        files=files,
        name=f"pacs/{split}",
        classes=PACS_CLASSES,
        space="names",
        transform=transforms.preprocess(size, resize, crop, native=True),
        published=PACS_COUNTS.get(part.base),
        cite=PACS_CITE,
    )


PACS_SPEC = base.Spec(
    pacs,
    splits=tuple(PACS_COUNTS),
    cite=PACS_CITE,
    licence="none stated; for research",
    about=(
        "7 classes in 4 styles, 9,991 images (photo 1,670, art_painting 2,048, cartoon"
        " 2,344, sketch 3,929): <root>/<style>/<class>/*.jpg"
    ),
    size="about 0.2 GB",
    where="https://domaingeneralization.github.io",
)
