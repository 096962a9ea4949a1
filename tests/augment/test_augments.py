"""Laws of every batch transform."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import augment
from tests import cases

B, SIZE, CLASSES = 8, 16, 5
RNG = np.random.default_rng(0)
SMOOTH = RNG.uniform(size=(B, 4, 4, 3)).repeat(4, 1).repeat(4, 2)
BATCH = {
    "image": jnp.asarray(0.7 * SMOOTH + 0.3 * RNG.uniform(size=SMOOTH.shape), "f4"),
    "target": jax.nn.one_hot(jnp.arange(B) % CLASSES, CLASSES),
    "index": jnp.arange(B),
    "other": {"image": jnp.asarray(RNG.uniform(size=SMOOTH.shape), "f4")},
}
KEY, ONCE = jax.random.key(3), jax.random.key(4)


def _swapped(batch, permute, alpha):
    return batch["image"] + alpha * (permute(batch["image"]) - batch["image"]) / 2


# Options that make each act on every image, in groups of half of the batch.
OPTIONS = {
    "stylize": {"transfer": _swapped},
    "flip": {"p": 1.0},
    "gaussian_noise": {"p": 1.0},
    "random_erasing": {"p": 1.0},
    "colour_jitter": {"p": 1.0},
    "grayscale": {"p": 1.0},
    "blur": {"p": 1.0},
    "half": {"which": "bottom", "mix": augment.AUGMENTS["mixup"](mix_group=B // 2)},
    "standardise_as": dict(mean=(0.5,), std=(0.5,), as_mean=(0.4,), as_std=(0.2,)),
}
# They change no image; these only labels or the loss.
QUIET = {"smooth_labels", "binary_targets", "views"}


def run_transform(name, rows=B, key=KEY):
    """Return the transform of the first `rows` examples; a group is half of the batch."""
    options = dict(OPTIONS.get(name, {}))
    if "mix_group" in (augment.AUGMENTS[name].__kwdefaults__ or {}):
        options["mix_group"] = B // 2
    apply = augment.AUGMENTS[name](**options)
    batch = jax.tree.map(lambda x: x[:rows], BATCH)
    static = {}

    @jax.jit
    def run(batch, key):
        transformed = apply({**batch, "once": ONCE}, key)
        for name_of_constant in ("views", "consistency", "binary"):
            if name_of_constant in transformed:
                static[name_of_constant] = transformed.pop(name_of_constant)
        transformed.pop("once")
        return transformed

    return {**run(batch, key), **static}


@cases.each(
    "name",
    augment.AUGMENTS,
    quick=(
        "mixup",
        "replace",
        "smooth_labels",
    ),
)
def test_results_are_batches_of_images_in_range(name):
    batch = run_transform(name)
    views = batch.get("views", 1)
    assert batch["image"].shape == (B * views, SIZE, SIZE, 3)
    assert batch["image"].dtype == jnp.float32
    # Style networks of the original do not cut; the stand-in here cannot leave.
    assert -1e-6 <= batch["image"].min() <= batch["image"].max() <= 1 + 1e-6
    assert batch["target"].shape == (B * views, CLASSES)
    if name != "binary_targets":
        np.testing.assert_allclose(batch["target"].sum(-1), 1, rtol=1e-5)
    assert isinstance(views, int)
    if "weight" in batch:
        assert batch["weight"].shape == (B * views,)
    assert batch["index"].shape == (B * views,)


@cases.each(
    "name",
    augment.AUGMENTS,
    quick=(
        "mixup",
        "smooth_labels",
        "replace",
    ),
)
def test_results_are_a_function_of_the_key(name):
    first, again, other = (
        run_transform(name, key=key)["image"] for key in (KEY, KEY, jax.random.key(9))
    )
    np.testing.assert_array_equal(first, again)
    if name not in QUIET | {"flip", "grayscale", "replace", "standardise_as"}:
        assert (first != other).any()


@cases.each(
    "name",
    augment.AUGMENTS,
    quick=(
        "mixup",
        "replace",
        "binary_targets",
    ),
)
def test_results_depend_on_the_place_and_the_group_only(name):
    """The first half of a batch gives the same results as in the whole batch."""
    full_batch, half = run_transform(name), run_transform(name, rows=B // 2)
    rows = len(half["image"])
    for entry in ("image", "target"):
        # Other shapes, other fusions: a unit in the last place.
        np.testing.assert_allclose(full_batch[entry][:rows], half[entry], atol=3e-6)


@cases.each(
    "name",
    sorted(set(augment.AUGMENTS) - QUIET),
    quick=(
        "mixup",
        "standardise_as",
        "replace",
    ),
)
def test_transforms_change_images(name):
    batch = run_transform(name)
    assert (batch["image"][-2:] != BATCH["image"][-2:]).any()


@cases.each(
    ("name", "options", "message"),
    [
        ("flip", {"p": 1.5}, r"p must be in \[0, 1\], got 1.5"),
        ("pad_crop", {"pad": -1}, "pad must be at least 0, got -1"),
        ("random_resized_crop", {"size": 0}, "size must be at least 1, got 0"),
        ("random_resized_crop", {"area": (0.5, 2)}, "area must be a range"),
        (
            "random_erasing",
            {"area": (0.5, 0.1)},
            r"area must be in \[0, 0.1\], got 0.5",
        ),
        (
            "random_erasing",
            {"aspect": (0, 1)},
            r"aspect must be in \[1e-06, 1\], got 0",
        ),
        ("augmix", {"alpha": 0.0}, "alpha must be positive, got 0.0"),
        ("augmix", {"js": -1.0}, "js must be at least 0, got -1.0"),
        ("pixmix", {"beta": 0.0}, "beta must be positive, got 0.0"),
        ("rand_conv", {"std": (1, 0, 1)}, "std must be positive, got 0"),
    ],
)
def test_options_without_meaning_are_refused(name, options, message):
    with pytest.raises(ValueError, match=f"^{name}: {message}.*; change "):
        augment.AUGMENTS[name](**options)
