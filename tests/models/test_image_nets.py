"""DeepAugment's networks against PyTorch implementations, and their weight files."""

import json
import pathlib
import runpy
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import prepare
from jbias.augment import deepaugment, deepaugment_edsr
from jbias.models import cae, edsr, registry, torch_layers, weight_files
from tests import cases

ORACLES = pathlib.Path(__file__).parents[1] / "oracles"
DRAWN = runpy.run_path(str(ORACLES / "deepaugment_weights.py"))
TORCH_MADE = runpy.run_path(str(ORACLES / "torch_made.py"))
STORED = np.load(ORACLES / "deepaugment.npz")
NETS = {"cae": cae, "edsr": edsr}
SMALL = {"cae": {"width": 8}, "edsr": {"features": 4, "blocks": 4, "scale": 2}}
KEYS = jax.random.split(jax.random.key(0), 2)


def draw_weights(net):
    return {name: DRAWN["draw"](name, s) for name, s in NETS[net].shapes().items()}


@pytest.mark.parametrize("net", NETS)
def test_names_and_shapes_equal_the_published_files(net):
    shapes = json.loads((ORACLES / "deepaugment.json").read_text())[net]
    expected = {name: tuple(shape) for name, shape in shapes.items()}
    assert NETS[net].shapes() == expected
    assert dict(NETS[net].PUBLISHED.shapes) == expected


def assert_near_stored(value, name):
    # Float32 against float64, through up to 37 layers.
    expected = STORED[name]
    assert np.ptp(expected, axis=(1, 2)).min() > 0.01
    np.testing.assert_allclose(value, expected, atol=1e-4 * np.abs(expected).max())


def test_the_autoencoder_equals_pytorch():
    weights = draw_weights("cae")
    assert_near_stored(
        jax.jit(cae.encode)(weights, DRAWN["image"](18, 13)), "cae/latent"
    )
    assert_near_stored(jax.jit(cae.decode)(weights, DRAWN["code"](3, 4)), "cae/decoded")


def test_the_super_resolution_network_equals_pytorch():
    enlarged = jax.jit(edsr.apply)(draw_weights("edsr"), DRAWN["image"](7, 6))
    assert_near_stored(enlarged, "edsr/enlarged")


def test_damage_equals_pytorch():
    weight, bank = DRAWN["kernels"](0), DRAWN["kernels"](1)
    damaged = {
        "gelu": deepaugment.gelu(weight),
        "filtered": deepaugment_edsr._filtered(weight, bank),
        "rotated": np.rot90(weight, 1, (2, 3)),
        "rotated/channels": np.rot90(weight, 3, (0, 1)),
    }
    for name, value in damaged.items():
        np.testing.assert_allclose(value, STORED[name], atol=1e-5)


@cases.each("net", NETS)
@cases.each("size", ["small", "published"])
def test_sizes_are_inferred_from_the_weights(net, size):
    sizes = SMALL[net] if size == "small" else {}
    shapes = NETS[net].shapes(**sizes)
    weights = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    assert NETS[net].shapes(**NETS[net].sizes_of(weights)) == shapes


@cases.each(("height", "width"), [(32, 32), (19, 30), (8, 9)])
def test_the_autoencoder_cuts_sides_to_multiples_of_four(height, width):
    weights = cae.init(jax.random.key(0), width=8)
    image = jnp.zeros((2, height, width, 3))
    output = jax.eval_shape(cae.apply, weights, image, KEYS)
    assert output.shape == (2, height // 4 * 4, width // 4 * 4, 3)


@pytest.mark.parametrize("scale", [2, 4])
def test_the_super_resolution_network_enlarges(scale):
    weights = edsr.init(jax.random.key(0), features=4, blocks=4, scale=scale)
    output = jax.eval_shape(edsr.apply, weights, jnp.zeros((1, 5, 7, 3)))
    assert output.shape == (1, 5 * scale, 7 * scale, 3)


def test_bits_are_1_with_the_encoders_probability():
    latent = jnp.broadcast_to(
        jnp.linspace(-1.2, 1.2, 9)[None, None, None, :], (2, 50, 50, 9)
    )
    bits = np.asarray(cae.binarise(latent, KEYS))
    assert np.abs(bits - bits.round()).max() < 1e-6
    chance = np.clip((1 + np.asarray(latent[0, 0, 0])) / 2, 0, 1)
    gap = np.abs(bits.mean((0, 1, 2)) - chance)
    assert (gap <= 4 * (chance * (1 - chance) / 5000) ** 0.5 + 1e-6).all()
    assert not np.array_equal(bits[0], bits[1])


def test_the_gradient_of_a_bit_equals_that_of_its_probability():
    latent = jnp.zeros((2, 3, 3, 4))
    gradient = jax.grad(lambda x: cae.binarise(x, KEYS).sum())(latent)
    np.testing.assert_array_equal(gradient, np.full(latent.shape, 0.5))


def test_pixels_spread_row_by_row():
    x = jnp.arange(8.0).reshape(1, 1, 1, 8)
    shuffled = torch_layers.pixel_shuffle(x)
    np.testing.assert_array_equal(shuffled[0, ..., 0], [[0, 1], [2, 3]])
    np.testing.assert_array_equal(shuffled[0, ..., 1], [[4, 5], [6, 7]])


def test_the_mean_s_shift_cancels_and_is_not_trained():
    weights = edsr.init(jax.random.key(0), features=4, blocks=4, scale=2)
    shift = weights["sub_mean.bias"] + weights["add_mean.bias"]
    np.testing.assert_array_equal(shift, 0)
    fixed = {name for name in weights if not edsr.is_trainable(name)}
    assert fixed == {
        f"{s}_mean.{k}" for s in ("sub", "add") for k in ("weight", "bias")
    }


@pytest.mark.parametrize("net", NETS)
def test_weights_of_any_size_are_read_back(net, tmp_path):
    weights = NETS[net].init(jax.random.key(1), **SMALL[net])
    path = tmp_path / "small.npz"
    weight_files.write_npz(path, {name: np.asarray(x) for name, x in weights.items()})
    loaded = weight_files.load(NETS[net].PUBLISHED, path)
    assert set(loaded) == set(weights)
    for name, value in weights.items():
        np.testing.assert_array_equal(loaded[name], value)


@pytest.mark.parametrize(("net", "other"), [("cae", "edsr"), ("edsr", "cae")])
def test_weights_of_the_other_network_are_refused(net, other, tmp_path):
    weights = NETS[other].init(jax.random.key(1), **SMALL[other])
    path = tmp_path / "small.npz"
    weight_files.write_npz(path, {name: np.asarray(x) for name, x in weights.items()})
    with pytest.raises(ValueError, match=rf"models.{net}: .*small.npz: must hold"):
        weight_files.load(NETS[net].PUBLISHED, path)


@pytest.mark.parametrize("net", NETS)
def test_missing_files_are_named_with_their_place(net, tmp_path):
    file, url = next(iter(NETS[net].PUBLISHED.files)), NETS[net].PUBLISHED.url
    for path in (tmp_path, tmp_path / "absent.npz"):
        with pytest.raises(ValueError) as error:
            weight_files.load(NETS[net].PUBLISHED, path)
        message = str(error.value)
        assert file in message and url in message and "without them" in message


@pytest.mark.parametrize("net", NETS)
def test_altered_files_are_refused(net, tmp_path):
    (file,) = NETS[net].PUBLISHED.files
    (tmp_path / file).write_bytes(b"something else")
    with pytest.raises(
        ValueError, match=f"git blob id {NETS[net].PUBLISHED.files[file]}"
    ):
        weight_files.load(NETS[net].PUBLISHED, tmp_path)


@pytest.mark.parametrize("net", NETS)
def test_published_files_are_converted(net, tmp_path, monkeypatch, capsys):
    """Files of the published format: every number is converted under its name."""
    (file,) = NETS[net].PUBLISHED.files
    shutil.copy(ORACLES / f"deepaugment_{net}.pth", tmp_path / file)
    ids = {file: weight_files.blob_id(tmp_path / file)}
    entry = NETS[net].PUBLISHED._replace(files=ids)
    monkeypatch.setattr(registry, "CONVERTERS", {net: entry})
    out = tmp_path / "converted.npz"
    command = ["weights", f"--net={net}", f"--src={tmp_path}", f"--out={out}"]
    assert prepare.main(command) == 0
    loaded = weight_files.load(NETS[net].PUBLISHED, out)
    assert {name: x.shape for name, x in loaded.items()} == NETS[net].shapes()
    for name, value in loaded.items():
        np.testing.assert_array_equal(value, TORCH_MADE["tensor"](name, value.shape))


def test_the_published_files_are_known_to_the_command():
    for net, module in NETS.items():
        assert registry.CONVERTERS[net] is module.PUBLISHED


@pytest.mark.parametrize("sizes", [{"width": 12}, {"width": 0}])
def test_odd_widths_are_refused(sizes):
    with pytest.raises(ValueError, match="multiple of 8"):
        cae.shapes(**sizes)


@cases.each("sizes", [{"blocks": 3}, {"scale": 3}, {"features": 0}])
def test_odd_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match="blocks at least 4"):
        edsr.shapes(**sizes)
