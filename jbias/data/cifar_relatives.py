"""CIFAR-10-C, CIFAR-100-C and CIFAR-10.1, from the arrays that their authors publish.

<root>/[CIFAR-10-C/]{<corruption>,labels}.npy: 50,000 images a corruption, of which
severity s has rows 10,000 (s - 1) to 10,000 s; a split is "fog/3".
<root>/[datasets/]cifar10.1_{v4,v6}_{data,labels}.npy; a split is "v4" or "v6".

Sources: hendrycks/robustness at 8190fe3, modestyachts/CIFAR-10.1 at d9982ab.
"""

import itertools
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from jbias.data import (
    arrays,
    class_names,
    corruptions,
    listing,
    sources,
    spec,
    transforms,
)
from jbias.foreign import opening

CITE_C = (
    "Hendrycks and Dietterich: Benchmarking Neural Network Robustness to Common"
    " Corruptions and Perturbations. ICLR 2019, https://arxiv.org/abs/1903.12261"
)
CITE_1 = (
    "Recht, Roelofs, Schmidt and Shankar: Do CIFAR-10 Classifiers Generalize to"
    " CIFAR-10? 2018, https://arxiv.org/abs/1806.00451; images from 80 Million Tiny"
    " Images, Torralba, Fergus and Freeman, PAMI 2008"
)
COUNTS_1: Mapping[str, int] = MappingProxyType({"v4": 2_021, "v6": 2_000})
SEVERITIES = tuple(
    f"{name}/{level}"
    for name, level in itertools.product(
        corruptions.CORRUPTIONS, corruptions.SEVERITIES
    )
)


def ten(
    split: str, *, root: str, size: int = 32, resize: int | None = None
) -> sources.ArraySource:
    """Reads one corruption and severity of CIFAR-10-C, "fog/3"."""
    return _corrupted("cifar10_c", "CIFAR-10-C", "cifar10", split, root, size, resize)


def hundred(
    split: str, *, root: str, size: int = 32, resize: int | None = None
) -> sources.ArraySource:
    """Reads one corruption and severity of CIFAR-100-C, by the fine labels."""
    return _corrupted(
        "cifar100_c", "CIFAR-100-C", "cifar100", split, root, size, resize
    )


def new(
    split: str, *, root: str, size: int = 32, resize: int | None = None
) -> sources.ArraySource:
    """Reads CIFAR-10.1, "v6" with balanced classes or "v4"."""
    where = f"data.cifar10_1 {split}"
    part = listing.parse_split(where, split)
    names = [f"cifar10.1_{part.base}_{what}.npy" for what in ("data", "labels")]
    images, labels = _read(where, root, "datasets", names)
    _same_length(where, images, labels)
    return arrays.build(
        where,
        part,
        np.array(images),
        labels,
        classes=class_names.of("cifar10"),
        transform=transforms.preprocess(size, resize, native=True),
        published=COUNTS_1[part.base],
        name=f"cifar10_1/{split}",
        space="names",
        measures=("accuracy",),
        cite=CITE_1,
    )


def _corrupted(
    name: str,
    below: str,
    clean: str,
    split: str,
    root: str,
    size: int,
    resize: int | None,
) -> sources.ArraySource:
    where = f"data.{name} {split}"
    part = listing.parse_split(where, split)
    corruption, _, severity = part.base.partition("/")
    images, labels = _read(where, root, below, [f"{corruption}.npy", "labels.npy"])
    _same_length(where, images, labels)
    n, rest = divmod(len(images), len(corruptions.SEVERITIES))
    if rest:
        raise ValueError(
            f"{where}: {corruption}.npy must have as many images of each of the five"
            f" severities, got {len(images):,} in all; fetch it again"
        )
    rows = slice((int(severity) - 1) * n, int(severity) * n)
    return arrays.build(
        where,
        part,
        np.array(images[rows]),
        labels[rows],
        classes=class_names.of(clean),
        transform=transforms.preprocess(size, resize, native=True),
        published=10_000,
        name=f"{name}/{split}",
        space="names",
        measures=("accuracy",),
        cite=CITE_C,
    )


def _read(
    where: str, root: str, below: str, names: Sequence[str]
) -> tuple[np.ndarray, ...]:
    """Opens arrays that lie in <root> or <root>/<below>, without reading them all."""
    root = listing.existing(where, os.path.expanduser(root), "root")
    place = next(
        (
            place
            for place in (root, os.path.join(root, below))
            if os.path.isfile(os.path.join(place, names[0]))
        ),
        root,
    )
    found = []
    for name in names:
        path = os.path.join(place, name)
        try:
            path = opening.regular(path)
            found.append(np.load(path, mmap_mode="r", allow_pickle=False))
        except FileNotFoundError as error:
            raise spec.Missing(
                f"{where}: needs {path!r}, which is not there"
            ) from error
        except (OSError, ValueError, EOFError) as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"{path}: must be a whole .npy file: {reason}; fetch it again"
            ) from error
    return tuple(found)


def _same_length(where: str, images: np.ndarray, labels: np.ndarray) -> None:
    if labels.shape != images.shape[:1]:
        raise ValueError(
            f"{where}: every image must have a label, got images {images.shape} and"
            f" labels {labels.shape}; fetch both again"
        )


_ABOUT_C = (
    "test images of {} under 15 corruptions and 4 more, 5 severities each, 10,000 of 32"
    " pixels in each of the 95 splits such as fog/3: <root>/{{<corruption>,labels}}.npy"
)
SPECS: Mapping[str, spec.Spec] = MappingProxyType(
    {
        "cifar10_c": spec.Spec(
            ten,
            splits=SEVERITIES,
            cite=CITE_C,
            licence="CC BY 4.0 (Zenodo)",
            about=_ABOUT_C.format("CIFAR-10"),
            size="2.9 GB",
            where="https://zenodo.org/record/2535967",
        ),
        "cifar100_c": spec.Spec(
            hundred,
            splits=SEVERITIES,
            cite=CITE_C,
            licence="CC BY 4.0 (Zenodo)",
            about=_ABOUT_C.format("CIFAR-100"),
            size="2.9 GB",
            where="https://zenodo.org/record/3555552",
        ),
        "cifar10_1": spec.Spec(
            new,
            splits=tuple(COUNTS_1),
            cite=CITE_1,
            licence="as Tiny Images, of which they are part; for research",
            about=(
                "new test images for CIFAR-10 of 32 pixels, v4 2,021, v6 2,000:"
                " <root>/cifar10.1_{v4,v6}_{data,labels}.npy"
            ),
            size="12 MB",
            where="https://github.com/modestyachts/CIFAR-10.1",
        ),
    }
)
