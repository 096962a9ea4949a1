"""EFDMix: mixes whole distributions and keeps ranks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core

from jbias.algos import mixstyle
from jbias.runtime import xla

KEY = jax.random.key(6)
RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(8, 6, 5, 4)), jnp.float32)
ORDER = jnp.array([[1, 2, 3, 0], [2, 3, 1, 0]])
PARTNER = np.array([1, 2, 3, 0, 6, 7, 5, 4])
SHARE = jnp.asarray(RNG.uniform(size=(8, 1, 1, 1)), jnp.float32)


def flat(x):
    return np.asarray(x, np.float64).reshape(len(x), -1, x.shape[-1])


def test_sorted_values_are_mixed():
    """All order statistics are mixed, and so all moments, not only the first two."""
    mixed = np.sort(flat(mixstyle.match(X, ORDER, SHARE)), axis=1)
    own_sorted, share = np.sort(flat(X), axis=1), flat(SHARE)
    expected = share * own_sorted + (1 - share) * own_sorted[PARTNER]
    np.testing.assert_allclose(mixed, expected, atol=1e-6)


def test_ranks_are_unchanged():
    mixed = mixstyle.match(X, ORDER, SHARE)
    np.testing.assert_array_equal(
        np.argsort(flat(mixed), axis=1), np.argsort(flat(X), axis=1)
    )


def test_share_1_is_the_identity():
    mixed = mixstyle.match(X, ORDER, jnp.ones((8, 1, 1, 1)))
    np.testing.assert_array_equal(mixed, X)


def test_share_0_gives_the_partners_distribution():
    mixed = mixstyle.match(X, ORDER, jnp.zeros((8, 1, 1, 1)))
    expected = np.sort(flat(X), axis=1)[PARTNER]
    np.testing.assert_allclose(np.sort(flat(mixed), axis=1), expected, atol=1e-6)


def test_equal_values_get_different_values_of_the_partner():
    """After a ReLU many values are zero; the result still has the partner's whole
    distribution.
    """
    x = jnp.maximum(X, 0.5)
    mixed = mixstyle.match(x, ORDER, jnp.zeros((8, 1, 1, 1)))
    expected = np.sort(flat(x), axis=1)[PARTNER]
    np.testing.assert_allclose(np.sort(flat(mixed), axis=1), expected, atol=1e-6)


@pytest.mark.slow
def test_gradients_have_the_closed_form_for_image_and_partner():
    """dy/dx is the identity; dy/dx' moves (1 - share) to the value of equal rank."""
    x, share = X[:4, :3, :2, :2], SHARE[:4]
    jacobian = jax.jacrev(lambda x: mixstyle.match(x, ORDER[:1], share))(x)
    jacobian = np.asarray(jacobian).reshape(4, 6, 2, 4, 6, 2)
    expected = np.zeros(jacobian.shape)
    ranks = np.argsort(np.argsort(flat(x), axis=1), axis=1)
    for i, j in enumerate(PARTNER[:4]):
        for c in range(2):
            is_equal_rank = ranks[i, :, None, c] == ranks[j, None, :, c]
            expected[i, :, c, j, :, c] += (1 - float(share[i, 0, 0, 0])) * is_equal_rank
            expected[i, :, c, i, :, c] += np.eye(6)
    np.testing.assert_allclose(jacobian, expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("channels", [4, 128])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_sorting_on_a_tpu_gives_the_same_values(dtype, channels):
    """Includes the layout in which a TPU sorts when the channels fill its lanes."""
    x = jnp.tile(jnp.maximum(X, -0.5), channels // 4).astype(dtype)

    def moved(x):
        return mixstyle.match(x, ORDER, SHARE)

    def match_and_pull():
        y, pull = jax.vjp(moved, x)
        return y, *pull(jnp.arange(y.size, dtype=dtype).reshape(y.shape))

    expected = match_and_pull()
    with xla.compiling_for("tpu"):
        program = str(jax.make_jaxpr(match_and_pull)())
        on_tpu = match_and_pull()
    assert "sort[" in program
    assert ("layout_constraint" in program) == (channels == 128)
    # Two gathers of whole images: values to the partners, and gradients back.
    assert program.count("gather[") == 2
    for array, expected_array in zip(on_tpu, expected, strict=True):
        np.testing.assert_array_equal(array, expected_array)


@pytest.mark.slow
def test_a_tpu_gathers_large_images_in_slices(monkeypatch):
    """A TPU gathers large images in slices; the results and gradients stay the same."""

    def matched():
        y, pull = jax.vjp(lambda x: mixstyle.match(x, ORDER, SHARE), X)
        return y, *pull(jnp.arange(X.size, dtype=X.dtype).reshape(X.shape))

    expected = matched()
    monkeypatch.setattr(mixstyle, "_MAX_GATHERED_BYTES", 5 * 4 * 4)
    with xla.compiling_for("tpu"):
        program = str(jax.make_jaxpr(matched)())
        sliced = matched()
    assert "f32[2,24,5,4]" in program  # Six slices of each of the 4 images of a group.
    for array, expected_array in zip(sliced, expected, strict=True):
        np.testing.assert_array_equal(array, expected_array)


@pytest.mark.slow
@pytest.mark.parametrize("acts", [False, True])
def test_the_gate_on_a_tpu_stores_no_indices(acts, net):
    """Gated steps equal a CPU's to the bit; no condition hands places to the gradient."""
    algo = mixstyle.efdmix(net, p=jnp.array(float(acts)), alpha=1.0, mix_group=4)
    dy = jnp.asarray(RNG.normal(size=X.shape), jnp.float32)

    def step(x):
        y, pull = jax.vjp(lambda x: algo.net.tap(x, "stage1", KEY), x)
        return y, *pull(dy)

    expected = jax.jit(step)(X)
    with xla.compiling_for("tpu"):
        gated = jax.jit(lambda x: step(x))(X)
        program = jax.make_jaxpr(lambda x: step(x))(X)
    for array, expected_array in zip(gated, expected, strict=True):
        np.testing.assert_array_equal(array, expected_array)
    assert (expected[0] != X).any() == acts

    def shapes_from_conditions(jaxpr):
        for eqn in jaxpr.eqns:
            if eqn.primitive.name == "cond":
                yield from (x.aval.shape for x in eqn.outvars)
            for inner in core.jaxprs_in_params(eqn.params):
                yield from shapes_from_conditions(inner)

    shapes = [*shapes_from_conditions(program.jaxpr)]
    assert [shape for shape in shapes if len(shape) > 2] == [X.shape] * 2


def test_half_precision_is_kept():
    half = X.astype(jnp.bfloat16)
    mixed = mixstyle.match(half, ORDER, SHARE)
    assert mixed.dtype == jnp.bfloat16
    own_sorted, share = np.sort(flat(half), axis=1), flat(SHARE)
    expected = share * own_sorted + (1 - share) * own_sorted[PARTNER]
    np.testing.assert_allclose(np.sort(flat(mixed), axis=1), expected, atol=0.05)


@pytest.mark.slow
def test_efdmix_acts_after_the_chosen_stages_with_its_probability(net):
    tap = mixstyle.efdmix(net, p=1.0, stages=(2,), mix_group=4).net.tap
    assert tap(X, "stage1", KEY) is X
    assert (tap(X, "stage2", KEY) != X).any()
    assert mixstyle.efdmix(net, p=0.0, mix_group=4).net.tap is None


@pytest.mark.slow
def test_maps_of_a_single_pixel_are_mixed_too(net):
    tap = mixstyle.efdmix(net, p=1.0, alpha=1.0, mix_group=4).net.tap
    x = X[:, :1, :1]
    mixed = np.asarray(tap(x, "stage1", KEY)).reshape(2, 4, 4)
    lowest, highest = (f(x.reshape(2, 4, 4), axis=1) for f in (np.min, np.max))
    assert (mixed >= lowest[:, None] - 1e-6).all()
    assert (mixed <= highest[:, None] + 1e-6).all()


def test_errors_have_the_name_efdmix(net):
    with pytest.raises(ValueError, match=r"efdmix: p must be in \[0, 1\], got 2"):
        mixstyle.efdmix(net, p=2)
