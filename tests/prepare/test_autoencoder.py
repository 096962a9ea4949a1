"""The command `prepare autoencoder`, which trains the small networks that DeepAugment
damages.
"""

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
def test_a_trained_network_reconstructs_images(net, tmp_path, capsys):
    out = tmp_path / "new" / "weights.npz"
    assert train(net, out, *TRAINED[net]) == 0
    printed_error = float(capsys.readouterr().out.split("error ")[1].split()[0])
    net_entry = autoencoder.NETS[net]
    weights = weight_files.load(net_entry.model.PUBLISHED, out)
    images = data.load("shapes", "valid", size=32, n=96).images
    error = autoencoder.rms_error(net_entry, weights, images, net_entry.enlarge)
    assert abs(error - printed_error) < 1e-3
    flat_error = np.sqrt(
        np.mean(((images - images.mean((1, 2), keepdims=True)) / 255) ** 2)
    )
    assert error < LEFT[net] * flat_error
    for name in filter(lambda name: not net_entry.trained(name), weights):
        np.testing.assert_array_equal(
            weights[name], net_entry.model.init(KEY, **SIZES)[name]
        )


@pytest.mark.slow
def test_training_depends_on_the_seed():
    net, images = autoencoder.NETS["edsr"], data.load("shapes", "valid", n=96).images

    def train_weight(seed):
        key = jax.random.key(seed)
        weights = autoencoder.train(
            net, images, SIZES, key, steps=3, batch=8, rate=1e-3
        )
        return weights["head.0.weight"]

    first = train_weight(0)
    np.testing.assert_array_equal(first, train_weight(0))
    assert not np.array_equal(first, train_weight(1))


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
def test_bad_arguments_are_refused_in_one_line(arguments, message, tmp_path, capsys):
    out = tmp_path / "x.npz"
    assert prepare.main(["autoencoder", f"--out={out}", *SHAPES, *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not out.exists()


@pytest.mark.slow
def test_a_network_that_learnt_nothing_is_refused(tmp_path, capsys):
    """At such a learning rate all images turn white."""
    assert train("cae", tmp_path / "x.npz", "--width=8", "--steps=30", "--rate=30") == 2
    error_text = capsys.readouterr().err
    assert (
        "better than one colour" in error_text and "lower --rate than 30" in error_text
    )
    assert error_text.count("\n") == 1 and not (tmp_path / "x.npz").exists()


@pytest.mark.slow
def test_deepaugment_trains_a_network_without_weights(tmp_path, monkeypatch, capsys):
    small_net = autoencoder.NETS["edsr"]._replace(small=SIZES, steps=100)
    monkeypatch.setattr(autoencoder, "NETS", {"edsr": small_net})
    out = tmp_path / "out"
    command = ["deepaugment", "--net=edsr", f"--out={out}", *SHAPES]
    assert prepare.main(command) == 0
    first_weights = (out / "edsr.npz").read_bytes()
    assert prepare.main(command) == 0
    assert "0 images made, 96 in all" in capsys.readouterr().out
    assert (out / "edsr.npz").read_bytes() == first_weights
