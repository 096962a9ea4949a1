"""PACS: photographs, art paintings, cartoons and sketches of the same seven classes.

Layout: <root>/{photo,art_painting,cartoon,sketch}/<class>/*.{jpg,png}, as published
(227 pixels) or made smaller.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from jbias.data import folder, listing, sources, spec, stores, transforms

CITE = (
    "Li, Yang, Song and Hospedales: Deeper, Broader and Artier Domain Generalization."
    " ICCV 2017, https://arxiv.org/abs/1710.03077"
)
COUNTS: Mapping[str, int] = MappingProxyType(
    {"photo": 1670, "art_painting": 2048, "cartoon": 2344, "sketch": 3929}
)
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


def make(
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
    path, part = folder.find(where, root, split)
    listing.match_classes(where, listing.class_folders(where, path), CLASSES)
    files = listing.scan(where, path, {name: name for name in CLASSES}, ignore)
    return folder.build(
        where,
        part,
        store=stores.Files(path, files.names),
        files=files,
        name=f"pacs/{split}",
        classes=CLASSES,
        space="names",
        transform=transforms.preprocess(size, resize, crop, native=True),
        published=COUNTS.get(part.base),
        cite=CITE,
    )


SPEC = spec.Spec(
    make,
    splits=tuple(COUNTS),
    cite=CITE,
    licence="none stated; for research",
    about=(
        "7 classes in 4 styles, 9,991 images (photo 1,670, art_painting 2,048, cartoon"
        " 2,344, sketch 3,929): <root>/<style>/<class>/*.jpg"
    ),
    size="about 0.2 GB",
    where="https://domaingeneralization.github.io",
)
