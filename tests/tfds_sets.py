"""A small set of TensorFlow Datasets, written by TFDS itself."""

import functools
import io
import tempfile

import numpy as np
import pytest
from PIL import Image

CLASSES = ["ant", "cat", "dog"]


def picture(i):
    pixels = np.random.default_rng(i).integers(0, 256, (16, 16, 3), np.uint8)
    encoded = io.BytesIO()
    Image.fromarray(pixels).save(encoded, "PNG")
    encoded.seek(0)
    return pixels, encoded


@functools.cache  # TFDS takes a name once.
def tiny_builder():
    """Return a TFDS builder class, "tiny", that writes n images without TensorFlow."""
    tfds = pytest.importorskip("tensorflow_datasets")
    from etils import epath

    class Tiny(tfds.core.GeneratorBasedBuilder):
        pkg_dir_path = epath.Path(tempfile.mkdtemp(prefix="tiny-"))
        code_path = pkg_dir_path / "tiny.py"
        VERSION = tfds.core.Version("1.2.0")
        n = 9

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
            for i in range(self.n):
                features = {
                    "image": picture(i)[1],
                    "label": i % 3,
                    "file_name": f"x{i}",
                }
                yield str(i), features

    return Tiny
