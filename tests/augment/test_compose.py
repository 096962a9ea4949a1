"""The random choice between methods of mixing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias.augment import compose
from tests import cases

KEY = jax.random.key(5)


def test_one_of_chooses_by_the_shares():
    """MixUp changes all pixels, CutMix and FMix paste pixels; FMix's masks are no boxes."""
    image = jnp.stack([jnp.zeros((16, 16, 1)), jnp.ones((16, 16, 1))])
    batch = {"image": image, "target": jnp.eye(2)}
    apply = compose.one_of(
        kinds=("mixup", "cutmix", "fmix"),
        alphas=(1.0, 1.0, 1.0),
        shares=(1, 2, 3),
        mix_group=2,
    )

    @jax.jit
    def masks(key):
        mixed = apply(batch, key)
        return mixed["image"][1, ..., 0], mixed["target"][1, 0]

    mask, partner_weight = jax.lax.map(masks, jax.random.split(KEY, 1200))
    mask = np.asarray(mask)[np.asarray(partner_weight) > 0]
    hard = np.isin(mask, (0, 1)).all((1, 2))
    rows, columns = (mask == 0).any(2), (mask == 0).any(1)
    boxed = ((mask == 0) == rows[:, :, None] & columns[:, None, :]).all((1, 2))
    counts = [(~hard).sum(), (hard & boxed).sum(), (hard & ~boxed).sum()]
    # A mask of FMix with little of one image may be a box, too, but not often.
    expected = np.array([1, 2, 3]) / 6 * len(mask)
    assert np.abs(counts - expected).max() < 4 * (len(mask) / 4) ** 0.5


@cases.each(
    ("options", "words"),
    [
        ({"kinds": ("mixup", "cutout")}, "kinds must be one of mixup, cutmix, fmix"),
        (
            {"kinds": ("mixup",)},
            "must have the same length, at least 1, got 1, 2 and 2",
        ),
        ({"alphas": (0.0, 1.0)}, "alphas must be in"),
        ({"shares": (0.0, 1.0)}, "shares must be in"),
    ],
)
def test_one_of_refuses_bad_options(options, words):
    with pytest.raises(ValueError, match=f"one_of: .*{words}"):
        compose.one_of(**options)
