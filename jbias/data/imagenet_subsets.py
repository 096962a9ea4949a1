"""ImageNet-A and ImageNet-R: 200 of the 1000 classes each, and choices among these.

Layout as unpacked: <root>/imagenet-a/<wnid>/*.jpg, <root>/imagenet-r/<wnid>/*.jpg; the
split is the folder's name. By the authors' rule a network chooses among the 200
classes; `restrict=False` in a config's entry lets it choose among all of its own.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from jbias.data import folder, listing, sources, spec, wordnet

CITE_A = (
    "Hendrycks, Zhao, Basart, Steinhardt and Song: Natural Adversarial Examples."
    " CVPR 2021, https://arxiv.org/abs/1907.07174"
)
CITE_R = (
    "Hendrycks, Basart, Mu, Kadavath, Wang, Dorundo, Desai, Zhu, Parajuli, Guo, Song,"
    " Steinhardt and Gilmer: The Many Faces of Robustness: A Critical Analysis of"
    " Out-of-Distribution Generalization. ICCV 2021, https://arxiv.org/abs/2006.16241"
)


def make_a(
    split: str,
    *,
    root: str,
    size: int = 224,
    resize: int | None = None,
    crop: bool = True,
    ignore: Sequence[str] = (),
) -> sources.EncodedSource:
    """Lists ImageNet-A: photos that a ResNet-50 got wrong."""
    own = dict(root=root, size=size, resize=resize, crop=crop, ignore=ignore)
    return _only(folder.make(split, space="wnid", **own), "imagenet_a", 7_500, CITE_A)


def make_r(
    split: str,
    *,
    root: str,
    size: int = 224,
    resize: int | None = None,
    crop: bool = True,
    ignore: Sequence[str] = (),
) -> sources.EncodedSource:
    """Lists ImageNet-R: art, cartoons, sculptures and other renditions."""
    own = dict(root=root, size=size, resize=resize, crop=crop, ignore=ignore)
    return _only(folder.make(split, space="wnid", **own), "imagenet_r", 30_000, CITE_R)


def _only(
    found: sources.EncodedSource, name: str, published: int, cite: str
) -> sources.EncodedSource:
    """Holds a folder to the 200 published classes, and choices to them."""
    split = found.name.rpartition("/")[2]
    listing.match_classes(
        f"data.{name} {split}", found.classes, wordnet.subsets()[name]
    )
    note = found.note
    if "[" not in split and len(found) != published:
        note = f"{len(found):,} images on disk, the published set has {published:,}"
    return dataclasses.replace(
        found, name=f"{name}/{split}", restrict=True, note=note, cite=cite
    )


SPECS: Mapping[str, spec.Spec] = MappingProxyType(
    {
        "imagenet_a": spec.Spec(
            make_a,
            splits=(),
            cite=CITE_A,
            licence=(
                "MIT (hendrycks/natural-adv-examples); images belong to who took them"
            ),
            about="200 WordNet classes, 7,500 photos: <root>/imagenet-a/<wnid>/*.jpg",
            size="0.7 GB packed",
            where="https://github.com/hendrycks/natural-adv-examples",
        ),
        "imagenet_r": spec.Spec(
            make_r,
            splits=(),
            cite=CITE_R,
            licence="none stated; images belong to who made them",
            about=(
                "200 WordNet classes, 30,000 renditions: <root>/imagenet-r/<wnid>/*.jpg"
            ),
            size="2.2 GB packed",
            where="https://github.com/hendrycks/imagenet-r",
        ),
    }
)
