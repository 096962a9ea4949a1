"""Stored draws of the distorting probes: measures of different days use the same stimuli.

For images 0 to 2 of a set of 8 by 8 pixels, seed 0. After an intended change of the draws,
numbers measured before it are not comparable with new ones: then change these, too.
"""

import numpy as np
import pytest

from jbias.evals import inference, probe, probe_registry
from tests import cases

N, SIDE = 3, 8
IMAGES = np.random.default_rng(0).integers(1, 256, (N, SIDE, SIDE, 3), np.uint8)


def shown(name: str, condition: str, **options) -> np.ndarray:
    made = probe_registry.PROBES[name](**options)
    network = inference.BoundJaxNetwork(
        lambda _, image: image.mean((1, 2)), np.float32(1)
    )
    rows = np.arange(N, dtype=np.int32)
    batch = inference.Batch(IMAGES, rows, rows, rows, N)
    return np.asarray(inference.make_stimuli(network, made, batch, condition))


def hidden(*args, **options) -> list[str]:
    """Return the mask of black pixels, one byte per row of pixels."""
    black = (shown(*args, **options) == 0).all(-1)
    return [np.packbits(one).tobytes().hex() for one in black]


def test_tiles():
    """Tiles are at their stored places, row by row."""
    found = shown("grid_shuffle", "2x2", grids=(2,), classes=("a",))
    places = [(slice(i, i + 4), slice(j, j + 4)) for i in (0, 4) for j in (0, 4)]
    tiles = [
        [
            next(
                k
                for k, p in enumerate(places)
                if abs(image[p] / 255 - one[q]).max() < 1e-6
            )
            for q in places
        ]
        for image, one in zip(IMAGES, found, strict=True)
    ]
    assert tiles == [[3, 0, 2, 1], [3, 1, 2, 0], [2, 1, 0, 3]]


BOXES = dict(fills=("black",), classes=("a",))


INSIDE = dict(area="uniform", placement="restricted")


@pytest.mark.slow
@cases.each(
    ("name", "condition", "options", "kept"),
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
def test_what_is_hidden(name, condition, options, kept):
    assert hidden(name, condition, **options) == kept


@cases.each(
    ("condition", "kept"),
    [
        ("mixup", [129.365, 122.073, 122.622]),
        ("cutmix", [129.365, 122.073, 123.005]),
        ("fmix", [128.125, 122.073, 122.260]),
        ("fmix by share", [123.313, 122.073, 122.260]),
    ],
)
def test_mixed_images(condition, kept):
    """The mean of each, in 1/255; the second has met itself."""
    others = probe.Partners("itself", "kept", lambda: IMAGES)
    found = 255 * shown("mixing", condition, others=others).mean((1, 2, 3))
    np.testing.assert_allclose(found, kept, atol=0.01)
