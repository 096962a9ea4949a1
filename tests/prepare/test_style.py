"""The command that trains the compact style transfer."""

import jax.numpy as jnp
import numpy as np
import pytest

from jbias import prepare
from jbias.models import style_transfer, weight_files
from jbias.prepare import style
from tests import cases


def run(out, *args):
    return prepare.main(["style", f"--out={out}", "--pictures=32", *args])


@pytest.fixture(scope="module")
def pictures():
    return style.draw(np.random.default_rng(0), 64)


def test_the_target_for_a_pictures_own_style_is_the_picture(pictures):
    """With tiles in place of rotated patterns: colours are equal, patterns have the right
    spread.
    """
    batch = style.batch(np.random.default_rng(1), pictures)
    batch["order"] = np.arange(style.BATCH)
    target = np.asarray(style.target(batch))
    has_no_pattern = batch["pattern"] == style.NO_PATTERN
    np.testing.assert_allclose(
        target[has_no_pattern], batch["carrier"][has_no_pattern] / 255, atol=1e-6
    )
    pattern_spread = (target - batch["carrier"] / 255).std((1, 2, 3))[~has_no_pattern]
    shares = style.tiles()[batch["pattern"][~has_no_pattern]].std((1, 2))
    assert (
        pattern_spread < 1.3 * batch["strength"][~has_no_pattern] * shares + 0.01
    ).all()


def test_targets_take_colours_and_patterns_of_the_style(pictures):
    batch = style.batch(np.random.default_rng(2), pictures)
    flat = {**batch, "strength": 0 * batch["strength"]}
    flat_target, order = np.asarray(style.target(flat)), batch["order"]
    is_unclipped = ((flat_target > 0) & (flat_target < 1)).all((1, 2, 3))
    carrier = batch["carrier"][order] / 255
    np.testing.assert_allclose(
        flat_target.mean((1, 2))[is_unclipped],
        carrier.mean((1, 2))[is_unclipped],
        atol=1e-4,
    )
    added = np.asarray(style.target(batch)) - flat_target
    moved_by_a_period = {**batch, "origin": batch["origin"] + style.PERIOD}
    np.testing.assert_array_equal(style.target(moved_by_a_period), flat_target + added)
    has_no_pattern = batch["pattern"][order] == style.NO_PATTERN
    assert (
        not added[has_no_pattern].any() and added[~has_no_pattern].any((1, 2, 3)).all()
    )


@pytest.mark.slow
def test_training_lowers_the_error_and_depends_on_the_seed(tmp_path, capsys):
    errors, kernels = [], []
    for i, steps in enumerate((1, 8, 8)):
        out = tmp_path / "new" / f"{i}.npz"
        assert run(out, f"--steps={steps}") == 0
        errors.append(float(capsys.readouterr().out.split("error ")[1].split()[0]))
        kernels.append(weight_files.read_npz(out)["encoder/conv1/kernel"])
        style_transfer.small(weights=out)
    assert errors[1] < errors[0]
    np.testing.assert_array_equal(kernels[1], kernels[2])
    assert (kernels[0] != kernels[1]).any()


@pytest.mark.slow
def test_photographs_may_be_added_to_the_pictures(tmp_path):
    out = tmp_path / "fractal.npz"
    assert run(out, "--data=fractals", "--n=4", "--steps=1") == 0
    assert jnp.isfinite(weight_files.read_npz(out)["decoder/tiles"]).all()


@cases.each(
    ("args", "message"),
    [
        (["--steps=0"], "--steps must be at least 1 and --pictures 32, got 0 and 32"),
        (["--data=nonesuch"], "nonesuch"),
        (["--data=fractals", "--size=16"], "at least 32 pixels"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(args, message, tmp_path, capsys):
    out = tmp_path / "none.npz"
    assert run(out, *args) == 2
    error_text = capsys.readouterr().err
    assert message in error_text and error_text.count("\n") == 1 and not out.exists()
