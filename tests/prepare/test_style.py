"""The command that trains the compact style transfer."""

import jax.numpy as jnp
import numpy as np
import pytest

from jbias import prepare
from jbias.models import style_transfer, weight_files
from jbias.prepare import style
from tests import cases


def run(out, *more):
    return prepare.main(["style", f"--out={out}", "--pictures=32", *more])


@pytest.fixture(scope="module")
def pictures():
    return style.draw(np.random.default_rng(0), 64)


def test_ones_own_target_is_the_picture_without_noise(pictures):
    """With tiles in place of turned patterns: colours to the level, patterns by spread."""
    batch = style.batch(np.random.default_rng(1), pictures)
    batch["order"] = np.arange(style.BATCH)
    found = np.asarray(style.target(batch))
    plain = batch["pattern"] == style.NO_PATTERN
    np.testing.assert_allclose(found[plain], batch["carrier"][plain] / 255, atol=1e-6)
    added = (found - batch["carrier"] / 255).std((1, 2, 3))[~plain]
    shares = style.tiles()[batch["pattern"][~plain]].std((1, 2))
    assert (added < 1.3 * batch["strength"][~plain] * shares + 0.01).all()


def test_targets_take_colours_and_patterns_of_the_style(pictures):
    batch = style.batch(np.random.default_rng(2), pictures)
    flat = {**batch, "strength": 0 * batch["strength"]}
    found, order = np.asarray(style.target(flat)), batch["order"]
    inside = ((found > 0) & (found < 1)).all((1, 2, 3))
    carrier = batch["carrier"][order] / 255
    np.testing.assert_allclose(
        found.mean((1, 2))[inside], carrier.mean((1, 2))[inside], atol=1e-4
    )
    added = np.asarray(style.target(batch)) - found
    one = {**batch, "origin": batch["origin"] + style.PERIOD}
    np.testing.assert_array_equal(style.target(one), found + added)
    none = batch["pattern"][order] == style.NO_PATTERN
    assert not added[none].any() and added[~none].any((1, 2, 3)).all()


@pytest.mark.slow
def test_training_lowers_the_error_and_is_of_the_seed(tmp_path, capsys):
    said, kernels = [], []
    for i, steps in enumerate((1, 8, 8)):
        out = tmp_path / "new" / f"{i}.npz"
        assert run(out, f"--steps={steps}") == 0
        said.append(float(capsys.readouterr().out.split("error ")[1].split()[0]))
        kernels.append(weight_files.read_npz(out)["encoder/conv1/kernel"])
        style_transfer.small(weights=out)
    assert said[1] < said[0]
    np.testing.assert_array_equal(kernels[1], kernels[2])
    assert (kernels[0] != kernels[1]).any()


@pytest.mark.slow
def test_photographs_join(tmp_path):
    out = tmp_path / "fractal.npz"
    assert run(out, "--data=fractals", "--n=4", "--steps=1") == 0
    assert jnp.isfinite(weight_files.read_npz(out)["decoder/tiles"]).all()


@cases.each(
    ("arguments", "message"),
    [
        (["--steps=0"], "--steps must be at least 1 and --pictures 32, got 0 and 32"),
        (["--data=nonesuch"], "nonesuch"),
        (["--data=fractals", "--size=16"], "at least 32 pixels"),
    ],
)
def test_refuses_in_one_line(arguments, message, tmp_path, capsys):
    out = tmp_path / "none.npz"
    assert run(out, *arguments) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1 and not out.exists()
