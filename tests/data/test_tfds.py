"""What TensorFlow Datasets writes is read without it, pixel for pixel."""

import io
import pathlib

import numpy as np
import pytest
from PIL import Image

from jbias import data

CLASSES = ["ant", "cat", "dog"]


def picture(i):
    pixels = np.random.default_rng(i).integers(0, 256, (16, 16, 3), np.uint8)
    encoded = io.BytesIO()
    Image.fromarray(pixels).save(encoded, "PNG")
    encoded.seek(0)
    return pixels, encoded


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """{format: a data_dir}, written by TFDS itself."""
    tfds = pytest.importorskip("tensorflow_datasets")
    from etils import epath

    class Tiny(tfds.core.GeneratorBasedBuilder):
        pkg_dir_path = epath.Path(tmp_path_factory.mktemp("package"))
        code_path = pkg_dir_path / "tiny.py"
        VERSION = tfds.core.Version("1.2.0")

        def _info(self):
            features = {
                "image": tfds.features.Image(shape=(None, None, 3)),
                "label": tfds.features.ClassLabel(names=CLASSES),
                "file_name": tfds.features.Text(),
            }
            return self.dataset_info_from_configs(
                features=tfds.features.FeaturesDict(features), citation="Some, 2020"
            )

        def _split_generators(self, manager):
            return {"train": self._generate_examples()}

        def _generate_examples(self):
            for i in range(9):
                held = {"image": picture(i)[1], "label": i % 3, "file_name": f"x{i}"}
                yield str(i), held

    folders = {}
    for form in ("array_record", "parquet"):
        folders[form] = tmp_path_factory.mktemp(form)
        Tiny(data_dir=str(folders[form]), file_format=form).download_and_prepare()
    return folders


@pytest.mark.parametrize("form", ["array_record", "parquet"])
def test_reads_what_tfds_wrote(prepared, form):
    options = dict(root=str(prepared[form]), builder="tiny", size=16)
    source = data.load("tfds", "train", **options)
    assert (source.classes, len(source)) == (tuple(CLASSES), 9)
    assert source.cite == "Some, 2020"
    expected = {picture(i)[0].tobytes(): i % 3 for i in range(9)}
    found = {
        one["image"].tobytes(): one["label"]
        for one in map(source.__getitem__, range(9))
    }
    assert found == expected
    (prepared[form] / "tiny" / "0.9.0").mkdir(exist_ok=True)  # The latest counts.
    assert len(data.load("tfds", "train[:50%]", **options)) == 6


def test_refuses_what_it_cannot_read(tmp_path):
    options = dict(root=str(tmp_path), size=8)
    old = tmp_path / "old" / "1.0.0"
    old.mkdir(parents=True)
    pathlib.Path(old / "old-train.tfrecord-00000-of-00001").write_bytes(b"")
    (tmp_path / "many" / "one").mkdir(parents=True)
    for name, message in (
        ("old", "got TFRecord, .* --file_format=array_record"),
        ("many", "got one; a config belongs to the builder"),
        ("odl", "did you mean 'old'"),
    ):
        with pytest.raises(ValueError, match=message):
            data.load("tfds", "train", builder=name, **options)
