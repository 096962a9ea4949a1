"""RM: three masks per run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jbias.augment import fmix

KEY = jax.random.key(5)
SIZE = 12


def test_random_masks_are_three_a_run():
    """Three equally likely pairs over batches; other pairs for another seed."""
    apply = fmix.random_masks(mix_group=2)
    image = jnp.stack([jnp.zeros((SIZE, SIZE, 1)), jnp.ones((SIZE, SIZE, 1))])

    @jax.jit
    def masks(once):
        def mix(key):
            batch = {"image": image, "target": jnp.eye(2), "once": once}
            mixed = apply(batch, key)
            return mixed["image"][1], mixed["target"][1]

        return jax.lax.map(mix, jax.random.split(KEY, 600))

    pairs_by_seed = {}
    for seed in range(2):
        mask, target = (np.asarray(x) for x in masks(jax.random.key(seed)))
        met = target[:, 0] > 0  # Else the image met itself.
        pairs = [m.tobytes() + t.tobytes() for m, t in zip(mask[met], target[met])]
        counts = {pair: pairs.count(pair) for pair in pairs}
        assert len(counts) == 3
        assert scipy.stats.chisquare(list(counts.values())).pvalue > 0.001
        pairs_by_seed[seed] = set(counts)
        np.testing.assert_allclose(
            mask[met].mean((1, 2, 3)), target[met, 1], atol=1 / SIZE**2 + 1e-6
        )
    assert not pairs_by_seed[0] & pairs_by_seed[1]


def test_random_masks_need_the_run_s_key():
    batch = {"image": jnp.zeros((2, SIZE, SIZE, 1)), "target": jnp.eye(2)}
    with pytest.raises(ValueError, match="random_masks: the batch must have the key"):
        fmix.random_masks(mix_group=2)(batch, KEY)
    with pytest.raises(ValueError, match="random_masks: count must be 1 or more"):
        fmix.random_masks(count=0)
