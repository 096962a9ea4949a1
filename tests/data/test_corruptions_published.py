"""With the draws of the released code, corrupted images equal those of the released code.

Samples of the released code's output are in oracles/corruptions.npz, made by the script beside it.
"""

import pathlib

import numpy as np
import pytest

from jbias.data import corruptions
from jbias.data.corruptions import imagenet_c_bar as bar
from tests import cases

ORACLE = pathlib.Path(__file__).parents[1] / "oracles" / "corruptions.npz"
STRIDE = {32: 5, 64: 9, 224: 27}
# Their last digit differs before fractions are cut off: (share of bytes that may be 1
# off). All else is equal to the bit.
NEARLY = {"brightness": 0.06, "saturate": 0.06, "zoom_blur": 0.02}
# Chance alone; JPEG is Pillow's in both; photographs are not there.
UNTOLD = {"impulse_noise", "jpeg_compression", "frost"}


class Stream(np.random.RandomState):
    """NumPy's frozen generator `RandomState` under the method names of `Generator`."""

    integers = np.random.RandomState.randint


@pytest.fixture(scope="module")
def oracle():
    with np.load(ORACLE) as stored:
        return dict(stored)


@cases.each("side", STRIDE)
@cases.each("name", sorted(set(corruptions.CORRUPTIONS) - UNTOLD))
def test_images_equal_imagenet_c(oracle, name, side):
    check(oracle, name, side)


@cases.each("side", [32, 224])
@cases.each("name", corruptions.BAR)
def test_images_equal_imagenet_c_bar(oracle, name, side, monkeypatch):
    lattices = iter(zip(oracle["gradients"], oracle["order"].astype(int), strict=True))

    monkeypatch.setattr(bar, "lattice", lambda xp, rng: next(lattices))
    check(oracle, name, side)


def check(oracle, name, side):
    image, step = oracle[f"picture/{side}"], STRIDE[side]
    assert (oracle[f"{side}/{name}"] != image[::step, ::step]).any()
    for severity, expected in enumerate(oracle[f"{side}/{name}"], 1):
        out = corruptions.corrupt(image, name, severity, Stream(severity))
        off = np.abs(out[::step, ::step].astype(int) - expected)
        assert off.max() <= (name in NEARLY), severity
        assert (off > 0).mean() <= NEARLY.get(name, 0), severity
