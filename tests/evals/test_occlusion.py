"""Both probes of occlusion: what they show, and that it is each image's own."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import evals, models
from jbias.evals import grad_cam, inference, occlusion, probe, probe_registry
from jbias.models import taps
from tests import cases

N, SIDE = 6, 16
IMAGES = np.random.default_rng(0).integers(1, 256, (N, SIDE, SIDE, 3), np.uint8)
OTHERS = probe.Partners(
    "others",
    "test_occlusion",
    lambda: np.random.default_rng(1).integers(1, 256, (3, SIDE, SIDE, 3), np.uint8),
)


def at(variables, image, site):
    """Activations are 4 by 4 means of the image; the first channel alone counts."""
    assert site == "stage3"
    a = image.reshape(len(image), 4, SIDE // 4, 4, SIDE // 4, 3).mean((2, 4))
    return a, jnp.zeros_like(a).at[..., 0].set(variables)


NETWORK = inference.BoundJaxNetwork(
    lambda variables, image: image.mean((1, 2)) * variables, jnp.float32(1), at
)


def shown(made, condition, rows=range(N)):
    rows = np.array(rows)
    label = np.zeros(len(rows), np.int32)
    batch = inference.Batch(IMAGES[rows], rows, label, label, len(rows))
    return np.asarray(inference.make_stimuli(NETWORK, made, batch, condition))


def hidden(seen, instead=0.0, rows=range(N)):
    """Return which pixels differ from the image; all of these have the fill."""
    image = IMAGES[np.array(rows)] / np.float32(255)
    mask = (abs(seen - image) > 1e-6).any(-1)
    np.testing.assert_allclose(seen[mask], np.broadcast_to(instead, seen.shape)[mask])
    return mask


@functools.cache
def made_occlusion(**options):
    return occlusion.make(fractions=(0.1, 0.3), **options)


WAYS = ("rectangle", "fourier", "grad_cam most", "grad_cam least", "grad_cam random")


def test_conditions_are_masks_and_fractions_in_one_tree():
    made = occlusion.make()
    assert len(made.conditions) == 1 + 5 * 9
    assert list(made.conditions)[:3] == ["", "rectangle 0.1", "rectangle 0.2"]
    assert {"grad_cam most 0.3", "fourier 0.9"} <= set(made.conditions)
    trees = {
        str(jax.tree.map(lambda x: (x.shape, x.dtype), one))
        for one in (
            *made.conditions.values(),
            *occlusion.make_cut_occlusion(fills=("black", "mean")).conditions.values(),
        )
    }
    assert len(trees) == 2
    assert set(made.steps) == {n for n in made.conditions if n.startswith("grad_cam")}
    assert not occlusion.make(masks=("rectangle", "fourier")).look


@pytest.mark.slow
@cases.each("way", WAYS)
def test_so_many_pixels_are_hidden_and_the_rest_is_the_image(way):
    mask = hidden(shown(made_occlusion(), f"{way} 0.3"))
    sides = round(math.sqrt(0.3) * SIDE) // 2 * 2
    pixels = sides**2 if way == "rectangle" else math.ceil(0.3 * SIDE**2)
    assert set(mask.sum((1, 2))) == {pixels}


@pytest.mark.slow
@cases.each("way", WAYS)
def test_masks_are_an_image_s_own_whatever_its_batch(way):
    all_of, few = (
        shown(made_occlusion(), f"{way} 0.3", rows) for rows in (range(N), (4, 1))
    )
    np.testing.assert_array_equal(few, all_of[[4, 1]])


@pytest.mark.slow
def test_masks_are_drawn_anew_for_each_condition_and_seed():
    masks = {
        (name, seed): hidden(shown(made_occlusion(seed=seed), f"{name} 0.3"))
        for name in ("rectangle", "fourier")
        for seed in (0, 1)
    }
    for name in ("rectangle", "fourier"):
        assert (masks[name, 0] != masks[name, 1]).any((1, 2)).sum() > 1
    less = hidden(shown(made_occlusion(), "fourier 0.1"))
    assert (less & ~masks["fourier", 0]).any()


@pytest.mark.slow
def test_grad_cam_hides_the_most_or_the_least_salient():
    """By the map of the image as it is; at random it is one of the two."""
    seen = at(jnp.float32(1), jnp.asarray(IMAGES / np.float32(255)), "stage3")
    maps = np.asarray(grad_cam.maps(*seen, SIDE, SIDE))
    by_order = {
        order: hidden(shown(made_occlusion(), f"grad_cam {order} 0.3"))
        for order in occlusion.ORDERS
    }
    for one, most, least, either in zip(maps, *by_order.values(), strict=True):
        assert one[most].min() >= one[~most].max()
        assert one[least].max() <= one[~least].min()
        assert np.array_equal(either, most) != np.array_equal(either, least)
    # 8 bits: ties go by place, so that other pixels may go.
    steps = np.floor(255 * maps)
    coarse = hidden(shown(made_occlusion(quantise=True), "grad_cam most 0.3"))
    for one, mask in zip(steps, coarse):
        assert one[mask].min() >= one[~mask].max()
        edge = np.flatnonzero(one.ravel() == one[mask].min())
        kept = ~mask.ravel()[edge]
        assert np.array_equal(kept, np.sort(kept))


def test_the_network_is_asked_for_a_map_once_a_batch():
    """One pull, and the image as it is and under each condition shown once."""
    made = made_occlusion(masks=("grad_cam",), orders=("most",))
    calls, label = [], np.zeros(4, np.int32)

    def apply(variables, image):
        jax.debug.callback(lambda: calls.append("asked"))
        return NETWORK.apply(variables, image)

    def look(*args):
        jax.debug.callback(lambda: calls.append("pulled"))
        return at(*args)

    batches = [
        inference.Batch(IMAGES[:4], np.arange(4), label, label, 4),
        inference.Batch(IMAGES[2:], np.arange(2, 6), label, label, 4),
    ]
    network = inference.BoundJaxNetwork(apply, NETWORK.variables, look)
    inference.run_probe(network, made, batches, {"": inference.DecisionRule(8)})
    jax.effects_barrier()
    assert len(made.conditions) == 3
    assert (calls.count("asked"), calls.count("pulled")) == (2 * 3, 2)


@pytest.mark.slow
def test_hidden_pixels_are_those_of_a_map_made_for_the_condition():
    """One map serves all conditions of a convolutional network, to the bit."""
    net = models.MODELS["cnn"](4, width=4)
    image = IMAGES / np.float32(255)
    variables = jax.jit(net.init)(jax.random.key(3), image)

    def of(variables, image, site):
        return taps.site_gradient(
            net, variables, image, site, lambda logits: logits.max(-1)
        )

    network = NETWORK._replace(variables=variables, at=of)
    made, index = made_occlusion(masks=("grad_cam",), site="stage2"), np.arange(N)
    batch = inference.Batch(IMAGES, index, index, index, N)
    seen = inference.run_look(network, made, batch)
    by_itself = jax.jit(lambda *args: grad_cam.image_maps(net, *args, "stage2"))
    saliency = by_itself(variables, image)
    order = np.argsort(-np.asarray(saliency).reshape(N, -1), 1, kind="stable")
    for fraction in (0.1, 0.3):
        count = math.ceil(fraction * SIDE**2)
        for way, places in (("most", order[:, :count]), ("least", order[:, -count:])):
            condition = f"grad_cam {way} {fraction}"
            mask = hidden(
                inference.make_stimuli(network, made, batch, condition, seen=seen)
            )
            np.testing.assert_array_equal(
                np.sort(places, 1), [np.flatnonzero(one) for one in mask]
            )


def test_the_coin_is_fair():
    made = occlusion.make(masks=("grad_cam",), orders=("random",), fractions=(0.5,))
    n = 400
    image = np.repeat(np.linspace(0, 1, SIDE, dtype=np.float32)[None], SIDE, 0)
    image = np.broadcast_to(0.1 + image[None, :, :, None] / 2, (n, SIDE, SIDE, 3))
    look = functools.partial(at, jnp.float32(1))
    params = made.conditions["grad_cam random 0.5"]

    @jax.jit
    def moved(image):
        rows = probe.Rows(image, jnp.arange(n), None, None, look)
        return made.move(rows._replace(seen=made.look(rows)), params, image)

    seen = np.asarray(moved(jnp.asarray(image)))
    brightest = (seen[:, :, SIDE // 2 :] == 0).all((1, 2, 3))
    darkest = (seen[:, :, : SIDE // 2] == 0).all((1, 2, 3))
    assert np.all(brightest != darkest)
    assert abs(brightest.sum() - n / 2) < 4 * math.sqrt(n) / 2


@pytest.mark.slow
@pytest.mark.parametrize("fill", ["mean", "other"])
def test_hidden_pixels_are_those_of_the_fill(fill):
    made = made_occlusion(fill=fill, others=OTHERS, mean=(0.5, 0.25, 0.75))
    for way in ("rectangle", "grad_cam most"):
        seen = shown(made, f"{way} 0.3")
        if fill == "mean":
            hidden(seen, np.float32((0.5, 0.25, 0.75)))
            continue
        image = IMAGES / np.float32(255)
        others = OTHERS.read() / np.float32(255)
        for one, own in zip(seen, image):
            mask = (abs(one - own) > 1e-6).any(-1)
            assert any(np.allclose(one[mask], other[mask]) for other in others)


@pytest.mark.slow
def test_cut_occlusion_has_the_same_rectangles_under_every_fill():
    made = occlusion.make_cut_occlusion(others=OTHERS, mean=(0.0, 0.1, 0.2))
    assert list(made.conditions) == ["", "black", "mean", "other"]
    assert not hidden(shown(made, "")).any()
    black = hidden(shown(made, "black"))
    mean = hidden(shown(made, "mean"), np.float32((0.0, 0.1, 0.2)))
    np.testing.assert_array_equal(black, mean)
    other = shown(made, "other")
    changed = (abs(other - IMAGES / np.float32(255)) > 1e-6).any(-1)
    assert not changed[~black].any() and changed[black].mean() > 0.9
    assert len(set(black.sum((1, 2)))) > 1


def test_cut_occlusion_of_one_area_inside_the_image():
    made = occlusion.make_cut_occlusion(
        area=0.25, placement="restricted", fills=("black",)
    )
    assert set(hidden(shown(made, "black")).sum((1, 2))) == {64}


@cases.each("name", ["grid_shuffle", "cut_occlusion", "occlusion"])
def test_numbers_are_accuracies_and_interference(name):
    """By condition; a network that answers one class under distortion has 100 (K-1) %."""
    options = dict(fills=("black",)) if name == "cut_occlusion" else {}
    made = probe_registry.PROBES[name](classes=("a", "b"), **options)
    label = np.array([0, 0, 1, 1])
    clean = evals.Decisions(np.array([0, 1, 1, 0]), {"label": label})
    biased = evals.Decisions(np.zeros(4, int), {"label": label})
    found = {one: clean if not one else biased for one in made.conditions}
    told = {(one.metric, one.condition): one.value for one in made.numbers(found)}
    assert len(told) == 2 * len(found) - 1
    for condition in found:
        assert told["accuracy", condition] == 0.5
        if condition:
            # Errors were half and half, all are now of one of two classes.
            assert told["di_index", condition] == pytest.approx(2 * 0.5)


@cases.each(
    "options",
    [
        dict(fractions=(0.3, 0.3)),
        dict(fractions=(0.0,)),
        dict(fractions=(0.12345,)),
        dict(masks=("square",)),
        dict(orders=()),
        dict(fill="grey"),
        dict(fill="other"),
    ],
)
def test_occlusion_refuses_what_has_no_meaning(options):
    with pytest.raises(ValueError, match=f"^occlusion: {next(iter(options))[:4]}"):
        occlusion.make(**options)


@cases.each(
    "options",
    [
        dict(area=1.5),
        dict(area="gamma"),
        dict(area=0.3, placement="inside"),
        dict(fills=("black", "black")),
        dict(fills=("other",)),
    ],
)
def test_cut_occlusion_refuses_what_has_no_meaning(options):
    with pytest.raises(ValueError, match=f"^cut_occlusion: {next(iter(options))[:4]}"):
        occlusion.make_cut_occlusion(**options)
