"""Malformed data sets: images, tables of attributes, archives, shards, arrays."""

import io
import pathlib
import pickle
import tarfile

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from PIL import Image

from qa.fuzz import attempts, mutations

_CLASSES = ("cat", "dog")


def noise_image(number: int, kind: str) -> bytes:
    """Return an encoded noise image; number: seed. kind: Pillow's name of the format."""
    rng = np.random.default_rng(number)
    out = io.BytesIO()
    pixels = rng.integers(0, 255, (24, 20, 3), np.uint8)
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def write_inputs(folder: pathlib.Path) -> None:
    """Write a small data set in every file format."""
    write_folders(folder / "folder")
    _write_attributed(folder / "attributed")
    _write_tar(folder / "tar")
    _write_parquet(folder / "parquet")
    (folder / "npz").mkdir()
    images = np.zeros((4, 24, 20, 3), np.uint8)
    labels = np.arange(4) % 2
    np.savez(folder / "npz/train.npz", images=images, labels=labels, classes=_CLASSES)
    write_cifar(folder / "cifar10")
    _write_records(folder / "records")


def write_folders(root: pathlib.Path) -> None:
    """Write images of several formats to a folder per class."""
    for number, kind in enumerate(("png", "jpeg", "webp", "tiff", "bmp", "ppm")):
        for name in _CLASSES:
            path = root / "train" / name / f"{number}.{kind.replace('jpeg', 'jpg')}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(noise_image(number, kind))


def _write_attributed(root: pathlib.Path) -> None:
    """Write images with a table of attributes."""
    rows = ["file,class,hair,smile"]
    for i in range(6):
        (root / "all").mkdir(parents=True, exist_ok=True)
        (root / f"all/{i}.png").write_bytes(noise_image(i, "png"))
        rows.append(
            f"all/{i}.png,{_CLASSES[i % 2]},{'red' if i < 3 else 'grey'},{i % 2}"
        )
    (root / "train.csv").write_text("\n".join([*rows, ""]))


def _write_tar(root: pathlib.Path) -> None:
    """Write a tar archive of images and classes."""
    root.mkdir()
    with tarfile.open(root / "train.tar", "w") as archive:
        for i in range(4):
            image, label = noise_image(i, "png"), b"%d" % (i % 2)
            for name, data in ((f"{i}.png", image), (f"{i}.cls", label)):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


def _write_parquet(root: pathlib.Path) -> None:
    """Write a Parquet file of images and labels."""
    root.mkdir()
    rows = [{"bytes": noise_image(i, "png"), "path": f"{i}.png"} for i in range(4)]
    frame = pd.DataFrame({"image": rows, "label": np.arange(4) % 2})
    frame.to_parquet(root / "train.parquet")


def write_cifar(root: pathlib.Path) -> None:
    """Write a test batch of two images in the format of CIFAR-10."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    data = np.zeros((2, 3072), np.uint8)
    (folder / "test_batch").write_bytes(
        pickle.dumps({b"data": data, b"labels": [0, 1], b"x": b"y"}, 2)
    )
    names = {b"label_names": [b"class %d" % i for i in range(10)]}
    (folder / "batches.meta").write_bytes(pickle.dumps(names, 2))


def _write_records(root: pathlib.Path) -> None:
    """Write ArrayRecord files of the set `folder`."""
    from jbias.prepare import main

    argv = ["records", f"--src={root.parent}/folder", "--split=train", f"--dst={root}"]
    assert main(argv) == 0


# Name of the data set of each folder, and further flags that read it.
_SETS = {
    "folder": ("folder", ()),
    "attributed": ("attributed", ("--splits=train",)),
    "tar": ("folder", ("--splits=train",)),
    "parquet": ("folder", ("--splits=train",)),
    "npz": ("npz", ("--splits=train",)),
    "cifar10": ("cifar10", ("--splits=test",)),
    "records": ("folder", ("--splits=train",)),
}


@st.composite
def sets(draw: st.DrawFn, folder: pathlib.Path, out: pathlib.Path) -> attempts.Case:
    """Draw a file of a data set with other bytes, for `jbias prepare check`."""
    name = draw(st.sampled_from([*_SETS]))
    files = sorted(p for p in (folder / name).rglob("*") if p.is_file())
    path = draw(st.sampled_from(files))
    if name == "attributed" and draw(st.booleans()):
        path = folder / "attributed/train.csv"
    data = draw(mutations.edited(path.read_bytes()))
    dataset, flags = _SETS[name]
    file = str(path.relative_to(folder))
    argv = ("check", f"--data={dataset}", f"--src={folder}/{name}", *flags)
    return attempts.Case(file, argv, file, data)
