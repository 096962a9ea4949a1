"""Malformed data sets: images, tables of attributes, archives, shards, arrays."""

import io
import pathlib
import pickle
import tarfile

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from PIL import Image

from benchmarks.fuzz import attempts, mutations

_CLASSES = ("cat", "dog")


def _image(number: int, kind: str) -> bytes:
    rng = np.random.default_rng(number)
    out = io.BytesIO()
    pixels = rng.integers(0, 255, (24, 20, 3), np.uint8)
    Image.fromarray(pixels).save(out, kind)
    return out.getvalue()


def made(folder: pathlib.Path) -> None:
    """A set in every form that lies in files."""
    _folders(folder / "folder")
    _attributed(folder / "attributed")
    _tar(folder / "tar")
    _parquet(folder / "parquet")
    (folder / "npz").mkdir()
    images = np.zeros((4, 24, 20, 3), np.uint8)
    labels = np.arange(4) % 2
    np.savez(folder / "npz/train.npz", images=images, labels=labels, classes=_CLASSES)
    _cifar(folder / "cifar10")
    _records(folder / "records")


def _folders(root: pathlib.Path) -> None:
    for number, kind in enumerate(("png", "jpeg", "webp", "tiff", "bmp", "ppm")):
        for name in _CLASSES:
            path = root / "train" / name / f"{number}.{kind.replace('jpeg', 'jpg')}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_image(number, kind))


def _attributed(root: pathlib.Path) -> None:
    rows = ["file,class,hair,smile"]
    for i in range(6):
        (root / "all").mkdir(parents=True, exist_ok=True)
        (root / f"all/{i}.png").write_bytes(_image(i, "png"))
        rows.append(
            f"all/{i}.png,{_CLASSES[i % 2]},{'red' if i < 3 else 'grey'},{i % 2}"
        )
    (root / "train.csv").write_text("\n".join([*rows, ""]))


def _tar(root: pathlib.Path) -> None:
    root.mkdir()
    with tarfile.open(root / "train.tar", "w") as archive:
        for i in range(4):
            both = ((f"{i}.png", _image(i, "png")), (f"{i}.cls", b"%d" % (i % 2)))
            for name, data in both:
                member = tarfile.TarInfo(name)
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


def _parquet(root: pathlib.Path) -> None:
    root.mkdir()
    rows = [{"bytes": _image(i, "png"), "path": f"{i}.png"} for i in range(4)]
    frame = pd.DataFrame({"image": rows, "label": np.arange(4) % 2})
    frame.to_parquet(root / "train.parquet")


def _cifar(root: pathlib.Path) -> None:
    place = root / "cifar-10-batches-py"
    place.mkdir(parents=True)
    data = np.zeros((2, 3072), np.uint8)
    (place / "test_batch").write_bytes(
        pickle.dumps({b"data": data, b"labels": [0, 1], b"x": b"y"}, 2)
    )
    names = {b"label_names": [b"class %d" % i for i in range(10)]}
    (place / "batches.meta").write_bytes(pickle.dumps(names, 2))


def _records(root: pathlib.Path) -> None:
    from jbias.prepare import main

    argv = ["records", f"--src={root.parent}/folder", "--split=train", f"--dst={root}"]
    assert main(argv) == 0


# The set of each folder, and the files in it that are damaged.
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
    """One file of a set with other bytes, for `prepare check`."""
    name = draw(st.sampled_from([*_SETS]))
    files = sorted(p for p in (folder / name).rglob("*") if p.is_file())
    path = draw(st.sampled_from(files))
    if name == "attributed" and draw(st.booleans()):
        path = folder / "attributed/train.csv"
    data = draw(mutations.edited(path.read_bytes()))
    reader, more = _SETS[name]
    file = str(path.relative_to(folder))
    argv = ("check", f"--data={reader}", f"--src={folder}/{name}", *more)
    return attempts.Case(file, argv, file, data)
