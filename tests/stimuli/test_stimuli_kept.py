"""Stored draws of the distorting probes: all versions of the package use the same stimuli.

The draws are those of images 0 to 2 of 8 by 8 pixels with seed 0. After an intended change
of the draws, older numbers are not comparable with new ones: then update the stored draws.
"""

import numpy as np
import pytest

from jbias.evals import inference, registry
from jbias.stimuli import shown
from tests import cases

N, SIDE = 3, 8
IMAGES = np.random.default_rng(0).integers(1, 256, (N, SIDE, SIDE, 3), np.uint8)


def show_stimuli(name: str, condition: str, **options) -> np.ndarray:
    distorting_probe = registry.PROBES[name].load()(**options)
    network = inference.BoundJaxNetwork(
        lambda _, image: image.mean((1, 2)), np.float32(1)
    )
    rows = np.arange(N, dtype=np.int32)
    batch = inference.Batch(IMAGES, rows, rows, rows, N)
    return np.asarray(
        inference.make_stimuli(network, distorting_probe, batch, condition)
    )


def pack_hidden(*args, **options) -> list[str]:
    """Return the masks of black pixels as hexadecimal bytes, one byte per row of pixels."""
    black = (show_stimuli(*args, **options) == 0).all(-1)
    return [np.packbits(mask).tobytes().hex() for mask in black]


def test_shuffled_tiles_are_at_their_stored_places():
    stimuli = show_stimuli("grid_shuffle", "2x2", grids=(2,), classes=("a",))
    places = [(slice(i, i + 4), slice(j, j + 4)) for i in (0, 4) for j in (0, 4)]

    def find_tile(image, tile):
        """Return the number of the place in the image where the tile comes from."""
        (number,) = (
            number
            for number, place in enumerate(places)
            if abs(image[place] / 255 - tile).max() < 1e-6
        )
        return number

    tiles = [
        [find_tile(image, stimulus[place]) for place in places]
        for image, stimulus in zip(IMAGES, stimuli, strict=True)
    ]
    assert tiles == [[3, 0, 2, 1], [3, 1, 2, 0], [2, 1, 0, 3]]


BOXES = dict(fills=("black",), classes=("a",))


INSIDE = dict(area="uniform", placement="restricted")


@pytest.mark.slow
@cases.each(
    ("name", "condition", "options", "expected"),
    [
        (
            "cut_occlusion",
            "black",
            dict(area="beta", **BOXES),
            ["fcfcfcfc00000000", "00e0e0e0e0e0e000", "fefefefe00000000"],
        ),
        (
            "cut_occlusion",
            "black",
            dict(**INSIDE, **BOXES),
            ["1e1e1e1e00000000", "ffffffffffffffff", "0000000000606000"],
        ),
        (
            "occlusion",
            "rectangle 0.3",
            dict(masks=("rectangle",)),
            ["00f0f0f0f0000000", "0000f0f0f0f00000", "0000f0f0f0f00000"],
        ),
        (
            "occlusion",
            "fourier 0.3",
            dict(masks=("fourier",)),
            ["0303036e7ca00003", "8383000081c3c3c3", "00001e3f1f0e0600"],
        ),
    ],
)
def test_hidden_pixels_are_the_stored_ones(name, condition, options, expected):
    assert pack_hidden(name, condition, **options) == expected


@cases.each(
    ("condition", "expected"),
    [
        ("mixup", [129.365, 122.073, 122.622]),
        ("cutmix", [129.365, 122.073, 123.005]),
        ("fmix", [128.125, 122.073, 122.260]),
        ("fmix by share", [123.313, 122.073, 122.260]),
    ],
)
def test_mixed_images_have_their_stored_means(condition, expected):
    """The means of images, in 1/255; the second image is mixed with itself."""
    partners = shown.Partners("itself", "kept", lambda: IMAGES)
    means = 255 * show_stimuli("mixing", condition, others=partners).mean((1, 2, 3))
    np.testing.assert_allclose(means, expected, atol=0.01)
