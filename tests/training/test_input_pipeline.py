"""Batches: gathered from stored images, read from files, cropped for evaluation."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jbias.data import loader
from jbias.training import input_pipeline
from tests import cases


def test_gather_without_classes_knows_no_target():
    data = {"image": np.zeros((4, 2, 2, 3), np.uint8)}
    assert set(input_pipeline.assemble_batch(data, jnp.array([1]), None)) == {
        "image",
        "index",
    }


def test_gather_makes_the_batch():
    images = np.arange(4 * 2 * 2 * 3, dtype=np.uint8).reshape(4, 2, 2, 3)
    columns = {"label": np.array([2, 0, 1, 2]), "attribute": np.array([5, 6, 7, 8])}
    data = {"image": images, **columns}
    batch = jax.jit(input_pipeline.assemble_batch, static_argnums=2)(
        data, jnp.array([3, 1]), 3
    )
    np.testing.assert_allclose(batch["image"], images[[3, 1]] / np.float32(255))
    np.testing.assert_array_equal(batch["target"], [[0, 0, 1], [1, 0, 0]])
    np.testing.assert_array_equal(batch["attribute"], [8, 6])
    np.testing.assert_array_equal(batch["index"], [3, 1])


@cases.each(("n", "batch"), [(10, 4), (8, 4), (3, 4), (1, 1)])
def test_the_first_n_rows_of_padded_batches_are_the_examples(n, batch):
    images = np.random.default_rng(0).integers(0, 256, (n, 2, 2, 3), np.uint8)
    batches = list(loader.batches([images], batch, loader.ReaderOptions(1)))
    assert {len(x) for x in batches} == {batch}
    np.testing.assert_array_equal(np.concatenate(batches)[:n], images)


@dataclasses.dataclass(frozen=True)
class Files:
    """Images that are read one by one."""

    images: np.ndarray
    size: int = 2

    def image(self, number: int) -> np.ndarray:
        return self.images[number]


@cases.each("batch", [1, 40, 64, 1000])
def test_consecutive_sets_share_batches_with_padding_at_the_end_only(batch):
    """Some images are in memory, and others are read from files."""
    images = np.random.default_rng(0).integers(0, 256, (200, 2, 2, 3), np.uint8)
    index = np.arange(70, 199)
    several = [
        images[:3],
        images[3:70],
        loader.EncodedImages(Files(images), index),
        images[199:],
    ]
    batches = list(loader.batches(several, batch, loader.ReaderOptions(2)))
    assert {len(x) for x in batches} == {batch}
    assert len(batches) == -(-200 // batch)
    np.testing.assert_array_equal(np.concatenate(batches)[:200], images)


@cases.each("rows", [slice(2), slice(30, 99), np.array([5]), np.array([39, 3, 3, 0])])
def test_images_in_files_are_indexed_like_images_in_memory(rows):
    images = np.random.default_rng(0).integers(0, 256, (60, 2, 2, 3), np.uint8)
    index = np.arange(10, 50)
    unread = loader.LazyImages(
        loader.EncodedImages(Files(images), index), loader.ReaderOptions(2)
    )
    assert (len(unread), unread.shape) == (40, images[index].shape)
    np.testing.assert_array_equal(unread[rows], images[index][rows])
