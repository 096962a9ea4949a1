"""Sets that share classes with ImageNet: new photos, sketches, corruptions, styles, subsets.

RELATIVE_SPECS share its 1000 classes and lie in <root>/<split>/<class>/*, in class folders or
shards as imagenet.py reads them; the folder names of the authors' archives are known too.
imagenet_c and imagenet_c_bar have a split for each corruption and severity, "fog/3",
published at 224 pixels and not resized again, nor are those of stylized_imagenet. Sources:
modestyachts/ImageNetV2 at 0b0c3fe, HaohanWang/ImageNet-Sketch at 03b2038,
hendrycks/robustness at 8190fe3, facebookresearch/augmentation-corruption at ba4d5a5,
rgeirhos/Stylized-ImageNet at 3d58825, hendrycks/imagenet-r at 3131cac, DeepAugment.
Sizes of imagenet_c and imagenet_c_bar are of images that `prepare corrupt` made.

SUBSET_SPECS are ImageNet-A and ImageNet-R, with 200 of the 1000 classes each, as unpacked:
<root>/imagenet-a/<wnid>/*.jpg, <root>/imagenet-r/<wnid>/*.jpg; the split is the folder's
name. By the authors' rule a network chooses among the 200 classes; `restrict=False` in a
config's entry lets it choose among all of its own.

"imagenet16" has the images of ImageNet that belong to Geirhos' 16 classes, labelled by these:
an image is there if its class is a member of one of the 16 (Geirhos et al., ICLR 2019; 207 of
the 1,000 are), so that what is made for 16 classes, such as the critical band of Subramanian
et al. (NeurIPS 2023), can be asked of clean images.

"tiny_imagenet" has 200 classes at 64 pixels, in the published layout: <root>/wnids.txt,
<root>/train/<wnid>/images/*.JPEG, <root>/val/images/*.JPEG with
<root>/val/val_annotations.txt. The published test split has no labels.
"""

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from jaxtyping import Int

from jbias.data import (
    base,
    corruptions,
    folder,
    imagenet,
    labels,
    listing,
    sources,
    transforms,
    wordnet,
)
from jbias.untrusted import opening

IMAGENET16_CITE = (
    "Geirhos, Rubisch, Michaelis, Bethge, Wichmann and Brendel: ImageNet-trained CNNs are"
    " biased towards texture. ICLR 2019, https://openreview.net/forum?id=Bygh9j09KX;"
    " images from ImageNet, https://doi.org/10.1007/s11263-015-0816-y"
)


def imagenet16(
    split: str,
    *,
    root: str,
    size: int = 224,
    resize: int | None = None,
    crop: bool = True,
    subset: bool = False,
    classes: str = "",
    ignore: Sequence[str] = (),
    each: int = 0,
) -> sources.EncodedSource:
    """Lists the members' images of "train", "val" or a part of one.

    each: at most so many images of one of the 16, evenly spaced over its members'; 0 is
      all, of which more than half are dogs. The other options are those of `imagenet`.
    ValueError where no image is of a member.
    """
    if type(each) is not int or each < 0:
        raise ValueError(
            f"data.imagenet16 {split}: each must be 0 (all) or more, got {each!r}"
        )
    found = imagenet.make(
        split,
        root=root,
        size=size,
        resize=resize,
        crop=crop,
        subset=subset,
        classes=classes,
        ignore=ignore,
    )
    table = labels.geirhos16()
    number = {wnid: i for i, wnids in enumerate(table.values()) for wnid in wnids}
    of = np.array([number.get(wnid, -1) for wnid in found.classes], np.int32)
    label = of[found.columns["label"]]
    kept = _evenly_spaced(label, each)
    if not len(kept):
        raise ValueError(
            f"data.imagenet16 {split}: some images must be of Geirhos' 16 classes, none of"
            f" {len(found):,} in {root!r} is"
        )
    columns = {name: column[kept] for name, column in found.columns.items()}
    return dataclasses.replace(
        found,
        store=found.store.take(kept),
        classes=tuple(table),
        space="entry16",
        columns={**columns, "label": label[kept]},
        arrays={name: array[kept] for name, array in found.arrays.items()},
        name=f"imagenet16/{split}",
        note=f"the members' {len(kept):,} of {len(found):,} images",
        cite=IMAGENET16_CITE,
        fingerprint=f"{found.fingerprint} of 16 classes, {each or 'all'} of each",
    )


def _evenly_spaced(label: Int[np.ndarray, "n"], each: int) -> Int[np.ndarray, "m"]:
    """Places of the images of a class, at most so many of each, in their order."""
    places = [np.flatnonzero(label == number) for number in range(16)]
    if each:
        places = [
            place[np.unique(np.linspace(0, len(place) - 1, each).round().astype(int))]
            if len(place) > each
            else place
            for place in places
        ]
    return np.sort(np.concatenate(places))


IMAGENET16_SPEC = base.Spec(
    imagenet16,
    splits=tuple(imagenet.COUNTS),
    cite=IMAGENET16_CITE,
    licence=imagenet.LICENCE,
    about=(
        "16 classes, of ImageNet's the members, val 10,350: <root>/{train,val}/<wnid>/*.JPEG"
    ),
    size="155 GB packed",
    where="https://image-net.org/download-images after registration",
)


def _relative(
    name: str,
    folders: Mapping[str, tuple[str, ...]],
    counts: Mapping[str, int],
    *,
    native: bool = False,
    **told: str,
) -> base.Spec:
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
        found, part = imagenet.find_wordnet_split(
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

    return base.Spec(make, splits=tuple(folders), **told)


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

RELATIVE_SPECS: Mapping[str, base.Spec] = MappingProxyType(
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

CITE_A = (
    "Hendrycks, Zhao, Basart, Steinhardt and Song: Natural Adversarial Examples."
    " CVPR 2021, https://arxiv.org/abs/1907.07174"
)
CITE_R = (
    "Hendrycks, Basart, Mu, Kadavath, Wang, Dorundo, Desai, Zhu, Parajuli, Guo, Song,"
    " Steinhardt and Gilmer: The Many Faces of Robustness: A Critical Analysis of"
    " Out-of-Distribution Generalization. ICCV 2021, https://arxiv.org/abs/2006.16241"
)


def imagenet_a(
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
    return _restrict_to_200(
        folder.make(split, space="wnid", **own), "imagenet_a", 7_500, CITE_A
    )


def imagenet_r(
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
    return _restrict_to_200(
        folder.make(split, space="wnid", **own), "imagenet_r", 30_000, CITE_R
    )


def _restrict_to_200(
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


SUBSET_SPECS: Mapping[str, base.Spec] = MappingProxyType(
    {
        "imagenet_a": base.Spec(
            imagenet_a,
            splits=(),
            cite=CITE_A,
            licence=(
                "MIT (hendrycks/natural-adv-examples); images belong to who took them"
            ),
            about="200 WordNet classes, 7,500 photos: <root>/imagenet-a/<wnid>/*.jpg",
            size="0.7 GB packed",
            where="https://github.com/hendrycks/natural-adv-examples",
        ),
        "imagenet_r": base.Spec(
            imagenet_r,
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

TINY_CITE = (
    "Le and Yang: Tiny ImageNet Visual Recognition Challenge. Stanford CS231N, 2015;"
    " images from ImageNet, https://doi.org/10.1007/s11263-015-0816-y"
)
TINY_COUNTS: Mapping[str, int] = MappingProxyType({"train": 100_000, "val": 10_000})


def tiny_imagenet(
    split: str,
    *,
    root: str,
    size: int = 64,
    resize: int | None = None,
    crop: bool = True,
    ignore: Sequence[str] = (),
) -> sources.EncodedSource:
    """Lists "train", "val", or a part of one such as "train[:90%]"."""
    where = f"data.tiny_imagenet {split}"
    path, part = folder.find_folder(where, root, split)
    wnids = _tiny_lines(where, os.path.join(os.path.expanduser(root), "wnids.txt"))
    classes = tuple(sorted(wnids))
    read = _tiny_train if part.base == "train" else _tiny_val
    files = read(where, path, classes, ignore)
    return folder.build(
        where,
        part,
        store=sources.FileStore(path, files.names),
        files=files,
        name=f"tiny_imagenet/{split}",
        classes=classes,
        space="wnid",
        transform=transforms.preprocess(size, resize, crop, native=True),
        published=TINY_COUNTS.get(part.base),
        cite=TINY_CITE,
    )


def _tiny_train(where, path, classes, ignore) -> listing.Files:
    listing.match_classes(where, listing.class_folders(where, path), classes)
    return listing.scan(where, path, {c: f"{c}/images" for c in classes}, ignore)


def _tiny_val(where, path, classes, ignore) -> listing.Files:
    """Lists val/images, with labels from val_annotations.txt."""
    files = listing.scan(where, path, {"val": "images"}, ignore)
    table = os.path.join(path, "val_annotations.txt")
    rows = dict(
        _tiny_row(table, i, row, classes) for i, row in _tiny_numbered(where, table)
    )
    for names, others, what in (
        (files.names, rows, "have a line in val_annotations.txt"),
        (rows, set(files.names), "exist in val/images"),
    ):
        lost = [name for name in names if name not in others]
        if lost:
            raise ValueError(
                f"{where}: every validation image must {what}, {len(lost)} do not,"
                f" first {lost[0]!r}; unpack the archive again"
            )
    ids = {name: label for label, name in enumerate(classes)}
    found = np.array([ids[rows[name]] for name in files.names], np.int32)
    return files._replace(labels=found).take(np.argsort(found, kind="stable"))


def _tiny_numbered(where, path) -> list[tuple[int, str]]:
    return list(enumerate(_tiny_lines(where, path), start=1))


def _tiny_row(table: str, number: int, line: str, classes) -> tuple[str, str]:
    cells = line.split("\t")
    if len(cells) < 2 or cells[1] not in classes:
        raise ValueError(
            f"{table}:{number}: a line must read <file> tab <wnid of wnids.txt> ...,"
            f" got {line!r}"
        )
    return f"images/{cells[0]}", cells[1]


def _tiny_lines(where: str, path: str) -> list[str]:
    try:
        with opening.text(path) as file:
            return [line for line in file.read().splitlines() if line.strip()]
    except FileNotFoundError:
        raise base.Missing(
            f"{where}: the published layout must be whole, {path!r} is missing; unpack"
            " the archive again, or use data set 'folder' with space='wnid'"
        ) from None


TINY_SPEC = base.Spec(
    tiny_imagenet,
    splits=tuple(TINY_COUNTS),
    cite=TINY_CITE,
    licence="ImageNet's terms of access: non-commercial research and education",
    about=(
        "200 WordNet classes at 64 pixels, train 100,000, val 10,000:"
        " <root>/{wnids.txt,train/<wnid>/images,val/images,val/val_annotations.txt}"
    ),
    size="0.25 GB packed",
    where="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
)
