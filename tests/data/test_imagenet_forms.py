"""Real ImageNet files in every storage format give the same batches, in the order of
WordNet.
"""

import io
import pathlib
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from jbias import data, prepare
from jbias.data import loader
from tests import cases


@pytest.fixture(scope="module")
def root(unpacked):
    return unpacked("imagenet-sample", "imagenet-sample/val") / "imagenet-sample"


@pytest.fixture(scope="module")
def folder(root):
    return data.load("folder", "val", root=str(root), size=224, space="wnid")


@pytest.fixture(scope="module")
def images(folder):
    return loader.decode_all(folder, workers=2)


def test_labels_follow_wordnet(folder):
    assert len(folder) == len(folder.classes) == 1000
    assert list(folder.classes) == sorted(folder.classes)
    np.testing.assert_array_equal(folder.columns["label"], np.arange(1000))
    assert (folder.classes[0], folder.classes[999]) == ("n01440764", "n15075141")


def test_evaluation_images_equal_pillow_steps_by_hand(folder, images):
    for i in range(0, 1000, 25):
        with Image.open(folder.store.where(i)) as image_file:
            image = image_file.convert("RGB")
        wide, short = image.width > image.height, min(image.size)
        long = int(256 * max(image.size) / short)
        size = (long, 256) if wide else (256, long)
        image = image.resize(size, Image.Resampling.BILINEAR)
        left, top = round((size[0] - 224) / 2), round((size[1] - 224) / 2)
        expected = np.asarray(image.crop((left, top, left + 224, top + 224)))
        np.testing.assert_array_equal(images[i], expected)


def as_tar(source, out):
    for start in range(0, 1000, 400):
        with tarfile.open(out / f"val-{start:06d}.tar", "w") as archive:
            for i in range(start, min(start + 400, 1000)):
                content = pathlib.Path(source.store.where(i)).read_bytes()
                key = source.files[i].removesuffix(".JPEG").replace("/", "_")
                for ending, member in (("jpg", content), ("cls", b"%d" % i)):
                    entry = tarfile.TarInfo(f"{key}.{ending}")
                    entry.size = len(member)
                    archive.addfile(entry, io.BytesIO(member))


def as_parquet(source, out):
    (out / "data").mkdir()
    order = np.random.default_rng(0).permutation(1000)
    for part, rows in enumerate(np.split(order, 2)):
        images = [
            {
                "bytes": pathlib.Path(source.store.where(i)).read_bytes(),
                "path": source.files[i],
            }
            for i in rows
        ]
        table = pa.table({"image": images, "label": pa.array(rows, pa.int64())})
        path = out / "data" / f"val-{part:05d}-of-00002.parquet"
        pq.write_table(table, path, row_group_size=100)


def as_records(source, out):
    src = str(pathlib.Path(source.store.root).parent)
    command = ["records", f"--src={src}", "--split=val", f"--dst={out}", "--shards=3"]
    assert prepare.main(command) == 0


@pytest.mark.slow
@cases.each("write", [as_tar, as_parquet, as_records])
def test_every_form_gives_the_same_batches(folder, images, write, tmp_path):
    write(folder, tmp_path)
    names = tmp_path / "wnids.txt"
    names.write_text("\n".join(folder.classes))
    source = data.load(
        "folder",
        "val",
        root=str(tmp_path),
        size=224,
        space="wnid",
        classes=str(names),
    )
    assert source.classes == folder.classes
    np.testing.assert_array_equal(source.columns["label"], folder.columns["label"])
    np.testing.assert_array_equal(loader.decode_all(source, workers=2), images)
