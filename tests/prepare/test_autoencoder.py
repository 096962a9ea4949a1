"""The command that trains the small networks that are damaged later."""

import jax
import numpy as np
import pytest

from jbias import data, prepare
from jbias.models import weight_files
from jbias.prepare import autoencoder
from tests import cases

SHAPES = ["--data=shapes", "--split=valid", "--n=96"]
TRAINED = {
    "cae": ["--width=8", "--steps=400"],
    "edsr": ["--features=8", "--blocks=4", "--steps=200"],
}
# Undamaged, as a share of what one colour an image leaves: the bits of a narrow
# autoencoder keep shapes and colours, super-resolution by 2 keeps nearly all.
LEFT = {"cae": 0.8, "edsr": 0.5}


KEY = jax.random.key(0)
SIZES = {"features": 8, "blocks": 4, "scale": 2}


def train(net, out, *more):
    return prepare.main(["autoencoder", f"--net={net}", f"--out={out}", *SHAPES, *more])


@pytest.mark.slow
@pytest.mark.parametrize("net", TRAINED)
def test_a_trained_network_gives_images_back(net, tmp_path, capsys):
    out = tmp_path / "new" / "weights.npz"
    assert train(net, out, *TRAINED[net]) == 0
    said = float(capsys.readouterr().out.split("error ")[1].split()[0])
    chosen = autoencoder.NETS[net]
    weights = weight_files.load(chosen.model.PUBLISHED, out)
    images = data.load("shapes", "valid", size=32, n=96).images
    found = autoencoder.rms_error(chosen, weights, images, chosen.enlarge)
    assert abs(found - said) < 1e-3
    flat = np.sqrt(np.mean(((images - images.mean((1, 2), keepdims=True)) / 255) ** 2))
    assert found < LEFT[net] * flat
    for name in filter(lambda name: not chosen.trained(name), weights):
        np.testing.assert_array_equal(
            weights[name], chosen.model.init(KEY, **SIZES)[name]
        )


@pytest.mark.slow
def test_training_is_of_the_seed():
    net, images = autoencoder.NETS["edsr"], data.load("shapes", "valid", n=96).images
    options = dict(steps=3, batch=8, rate=1e-3)
    made = [
        autoencoder.train(net, images, SIZES, jax.random.key(seed), **options)[
            "head.0.weight"
        ]
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(made[0], made[1])
    assert not np.array_equal(made[0], made[2])


@cases.each(
    ("arguments", "message"),
    [
        (["--net=vae"], "--net: unknown 'vae'; did you mean 'cae'? Known: cae, edsr"),
        (["--net=cae", "--blocks=4"], "--blocks is no size of cae, which has width"),
        (["--net=cae", "--width=12"], "width must be a multiple of 8, got 12"),
        (
            ["--net=edsr", "--scale=4", "--size=34"],
            "must be a multiple of 4 for edsr, got 34 times 1",
        ),
        (["--net=edsr", "--blocks=2"], "blocks at least 4"),
        (["--net=cae", "--steps=0"], "--steps, --batch and --images must be at least"),
    ],
)
def test_refuses_in_one_line(arguments, message, tmp_path, capsys):
    out = tmp_path / "x.npz"
    assert prepare.main(["autoencoder", f"--out={out}", *SHAPES, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not out.exists()


@pytest.mark.slow
def test_a_network_that_learnt_nothing_is_refused(tmp_path, capsys):
    """A rate at which all turns white."""
    assert train("cae", tmp_path / "x.npz", "--width=8", "--steps=30", "--rate=30") == 2
    said = capsys.readouterr().err
    assert "better than one colour" in said and "lower --rate than 30" in said
    assert said.count("\n") == 1 and not (tmp_path / "x.npz").exists()


@pytest.mark.slow
def test_deepaugment_trains_one_where_there_is_none(tmp_path, monkeypatch, capsys):
    small = autoencoder.NETS["edsr"]._replace(small=SIZES, steps=100)
    monkeypatch.setattr(autoencoder, "NETS", {"edsr": small})
    out = tmp_path / "out"
    command = ["deepaugment", "--net=edsr", f"--out={out}", *SHAPES]
    assert prepare.main(command) == 0
    before = (out / "edsr.npz").read_bytes()
    assert prepare.main(command) == 0
    assert "0 images made, 96 in all" in capsys.readouterr().out
    assert (out / "edsr.npz").read_bytes() == before
