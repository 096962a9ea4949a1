"""Sets that share ImageNet's 1000 classes: new photos, sketches, corruptions, styles.

All lie as <root>/<split>/<class>/*, in class folders or shards as wordnet_sets has
them; the folder names of the authors' archives are known too. imagenet_c and
imagenet_c_bar have a split for each corruption and severity, "fog/3", published at 224
pixels and not resized again, nor are those of stylized_imagenet.

Sources: modestyachts/ImageNetV2 at 0b0c3fe, HaohanWang/ImageNet-Sketch at 03b2038,
hendrycks/robustness at 8190fe3, facebookresearch/augmentation-corruption at ba4d5a5,
rgeirhos/Stylized-ImageNet at 3d58825, hendrycks/imagenet-r at 3131cac, DeepAugment.
Sizes of imagenet_c and imagenet_c_bar are of images that `prepare corrupt` made.
"""

import itertools
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from jbias.data import (
    corruptions,
    folder,
    imagenet,
    sources,
    spec,
    transforms,
    wordnet_sets,
)


def _relative(
    name: str,
    folders: Mapping[str, tuple[str, ...]],
    counts: Mapping[str, int],
    *,
    native: bool = False,
    **told: str,
) -> spec.Spec:
    """The row of one set.

    `folders` are its splits and where else each may lie, `counts` the published images
    of each; `native` says that all images have one size.
    """

    def make(
        split: str,
        *,
        root: str,
        size: int = 224,
        resize: int | None = None,
        crop: bool = True,
        subset: bool = False,
        classes: str = "",
        ignore: Sequence[str] = (),
    ) -> sources.EncodedSource:
        """Lists a split, or a part of one; options as those of `imagenet`."""
        where = f"data.{name} {split}"
        found, part = wordnet_sets.find(
            where,
            root,
            split,
            spellings=folders.get(split.partition("[")[0], ()),
            ignore=ignore,
            classes=classes,
            subset=subset,
        )
        return folder.build(
            where,
            part,
            store=found.store,
            files=found.files,
            classes=found.classes,
            name=f"{name}/{split}",
            space="wnid",
            transform=transforms.preprocess(size, resize, crop, native=native),
            published=counts.get(part.base),
            cite=told["cite"],
        )

    return spec.Spec(make, splits=tuple(folders), **told)


def _severities(
    names: Mapping[str, corruptions.Corruption],
) -> dict[str, tuple[str, ...]]:
    """Splits such as "fog/3", and the folders of the archive that they may lie in."""
    found = {}
    for name, level in itertools.product(names, corruptions.SEVERITIES):
        entry = names[name]
        archive = "extra" if entry.extra else entry.family
        found[f"{name}/{level}"] = (f"{archive}/{name}/{level}",)
    return found


_V2 = {
    "matched-frequency": ("imagenetv2-matched-frequency-format-val",),
    "threshold-0.7": ("imagenetv2-threshold0.7-format-val",),
    "top-images": ("imagenetv2-top-images-format-val",),
}
_C, _BAR = _severities(corruptions.CORRUPTIONS), _severities(corruptions.BAR)

SPECS: Mapping[str, spec.Spec] = MappingProxyType(
    {
        "imagenet_v2": _relative(
            "imagenet_v2",
            _V2,
            dict.fromkeys(_V2, 10_000),
            cite=(
                "Recht, Roelofs, Schmidt and Shankar: Do ImageNet Classifiers"
                " Generalize to ImageNet? ICML 2019, https://arxiv.org/abs/1902.10811"
            ),
            licence="code MIT (modestyachts/ImageNetV2); images as ImageNet's",
            about=(
                "1,000 classes in folders 0 to 999, 10,000 new photos in each of"
                " matched-frequency, threshold-0.7 and top-images:"
                " <root>/imagenetv2-<variant>-format-val/<number>/*.jpeg"
            ),
            size="3.8 GB packed",
            where="https://huggingface.co/datasets/vaishaal/ImageNetV2",
        ),
        "imagenet_sketch": _relative(
            "imagenet_sketch",
            {"sketch": ("ImageNet-Sketch", "imagenet-sketch")},
            {"sketch": 50_889},
            cite=(
                "Wang, Ge, Lipton and Xing: Learning Robust Global Representations by"
                " Penalizing Local Predictive Power. NeurIPS 2019,"
                " https://arxiv.org/abs/1905.13549"
            ),
            licence="MIT (HaohanWang/ImageNet-Sketch); images belong to who made them",
            about="1,000 WordNet classes, 50,889 sketches: <root>/sketch/<wnid>/*.JPEG",
            size="7.6 GB packed",
            where="https://github.com/HaohanWang/ImageNet-Sketch",
        ),
        "imagenet_c": _relative(
            "imagenet_c",
            _C,
            dict.fromkeys(_C, imagenet.COUNTS["val"]),
            cite=(
                "Hendrycks and Dietterich: Benchmarking Neural Network Robustness to"
                " Common Corruptions and Perturbations. ICLR 2019,"
                " https://arxiv.org/abs/1903.12261"
            ),
            licence="CC BY 4.0 (Zenodo); images as ImageNet's",
            about=(
                "validation images of ImageNet at 224 pixels under 15 corruptions and 4"
                " more, 5 severities each, 50,000 images in each of the 95 splits such"
                " as fog/3: <root>/<corruption>/<severity>/<wnid>/*.JPEG"
            ),
            size="about 65 GB packed (estimated)",
            where="https://zenodo.org/record/2235448",
            native=True,
        ),
        "imagenet_c_bar": _relative(
            "imagenet_c_bar",
            _BAR,
            dict.fromkeys(_BAR, imagenet.COUNTS["val"]),
            cite=(
                "Mintun, Kirillov and Xie: On Interaction Between Augmentations and"
                " Corruptions in Natural Corruption Robustness. NeurIPS 2021,"
                " https://arxiv.org/abs/2102.11273"
            ),
            licence=(
                "code MIT (facebookresearch/augmentation-corruption); images as"
                " ImageNet's"
            ),
            about=(
                "validation images of ImageNet at 224 pixels under 10 other"
                " corruptions, 5 severities each, 50,000 images in each of the 50"
                " splits such as sparkles/3:"
                " <root>/<corruption>/<severity>/<wnid>/*.JPEG"
            ),
            size="about 30 GB packed (estimated)",
            where="https://github.com/facebookresearch/augmentation-corruption",
            native=True,
        ),
        "stylized_imagenet": _relative(
            "stylized_imagenet",
            {"train": (), "val": ("validation",)},
            imagenet.COUNTS,
            cite=(
                "Geirhos, Rubisch, Michaelis, Bethge, Wichmann and Brendel:"
                " ImageNet-trained CNNs are biased towards texture; increasing shape"
                " bias improves accuracy and robustness. ICLR 2019,"
                " https://arxiv.org/abs/1811.12231"
            ),
            licence="as ImageNet's; not handed out, made from it by the authors' code",
            about=(
                "ImageNet in the styles of paintings at 224 pixels, train 1,281,167,"
                " val 50,000: <root>/{train,val}/<wnid>/*.png"
            ),
            size="134 GB made",
            where="https://github.com/rgeirhos/Stylized-ImageNet and ImageNet itself",
            native=True,
        ),
        "deepaugment": _relative(
            "deepaugment",
            {"cae": ("CAE",), "edsr": ("EDSR",)},
            dict.fromkeys(("cae", "edsr"), imagenet.COUNTS["train"]),
            cite=(
                "Hendrycks, Basart, Mu, Kadavath, Wang, Dorundo, Desai, Zhu, Parajuli,"
                " Guo, Song, Steinhardt and Gilmer: The Many Faces of Robustness: A"
                " Critical Analysis of Out-of-Distribution Generalization. ICCV 2021,"
                " https://arxiv.org/abs/2006.16241"
            ),
            licence="code MIT (hendrycks/imagenet-r); images as ImageNet's",
            about=(
                "training images of ImageNet as distorted networks render them,"
                " 1,281,167 in each of cae and edsr: <root>/{CAE,EDSR}/<wnid>/*.JPEG"
            ),
            size=(
                "about as large as ImageNet's training images (the authors give no"
                " size)"
            ),
            where="https://github.com/hendrycks/imagenet-r/tree/master/DeepAugment",
        ),
    }
)
