"""Both probes of occlusion: hidden pixels, fills, and independence of the batch."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import evals, models
from jbias.evals import inference, registry
from jbias.models import taps
from jbias.stimuli import grad_cam, occlusion, shown
from tests import cases

N, SIDE = 6, 16
IMAGES = np.random.default_rng(0).integers(1, 256, (N, SIDE, SIDE, 3), np.uint8)
OTHERS = shown.Partners(
    "others",
    "test_occlusion",
    lambda: np.random.default_rng(1).integers(1, 256, (3, SIDE, SIDE, 3), np.uint8),
)


def at(variables, image, site):
    """Return activations, 4 x 4 block means of the image, and gradients of channel 0 only."""
    assert site == "stage3"
    a = image.reshape(len(image), 4, SIDE // 4, 4, SIDE // 4, 3).mean((2, 4))
    return a, jnp.zeros_like(a).at[..., 0].set(variables)


NETWORK = inference.BoundJaxNetwork(
    lambda variables, image: image.mean((1, 2)) * variables, jnp.float32(1), at
)


def show_stimuli(occlusion_probe, condition, rows=range(N)):
    """Return a condition's stimuli, in [0, 1], of the images with the given indices."""
    rows = np.array(rows)
    label = np.zeros(len(rows), np.int32)
    batch = inference.Batch(IMAGES[rows], rows, label, label, len(rows))
    stimuli = inference.make_stimuli(NETWORK, occlusion_probe, batch, condition)
    return np.asarray(stimuli)


def find_hidden(stimuli, fill=0.0, rows=range(N)):
    """Return a mask of the pixels that differ from the image; all must have the fill."""
    image = IMAGES[np.array(rows)] / np.float32(255)
    mask = (abs(stimuli - image) > 1e-6).any(-1)
    expected = np.broadcast_to(fill, stimuli.shape)[mask]
    np.testing.assert_allclose(stimuli[mask], expected)
    return mask


@functools.cache
def make_occlusion(**options):
    return occlusion.make(fractions=(0.1, 0.3), **options)


MASKS = ("rectangle", "fourier", "grad_cam most", "grad_cam least", "grad_cam random")


def test_conditions_are_masks_and_fractions_with_parameters_of_one_structure():
    occlusion_probe = occlusion.make()
    assert len(occlusion_probe.conditions) == 1 + 5 * 9
    assert list(occlusion_probe.conditions)[:3] == [
        "",
        "rectangle 0.1",
        "rectangle 0.2",
    ]
    assert {"grad_cam most 0.3", "fourier 0.9"} <= set(occlusion_probe.conditions)
    cut_probe = occlusion.make_cut_occlusion(fills=("black", "mean"))
    structures = {
        str(jax.tree.map(lambda x: (x.shape, x.dtype), parameters))
        for any_probe in (occlusion_probe, cut_probe)
        for parameters in any_probe.conditions.values()
    }
    assert len(structures) == 2  # One for each probe.
    assert set(occlusion_probe.network_steps.counts) == {
        n for n in occlusion_probe.conditions if n.startswith("grad_cam")
    }
    assert not occlusion.make(masks=("rectangle", "fourier")).network_steps


@pytest.mark.slow
@cases.each("mask_name", MASKS)
def test_the_given_fraction_is_hidden_and_other_pixels_do_not_change(mask_name):
    mask = find_hidden(show_stimuli(make_occlusion(), f"{mask_name} 0.3"))
    sides = round(math.sqrt(0.3) * SIDE) // 2 * 2
    pixels = sides**2 if mask_name == "rectangle" else math.ceil(0.3 * SIDE**2)
    assert set(mask.sum((1, 2))) == {pixels}


@pytest.mark.slow
@cases.each("mask_name", MASKS)
def test_an_images_mask_does_not_depend_on_its_batch(mask_name):
    condition = f"{mask_name} 0.3"
    all_stimuli = show_stimuli(make_occlusion(), condition)
    two_stimuli = show_stimuli(make_occlusion(), condition, rows=(4, 1))
    np.testing.assert_array_equal(two_stimuli, all_stimuli[[4, 1]])


@pytest.mark.slow
def test_masks_are_drawn_for_each_condition_and_seed():
    masks = {
        (name, seed): find_hidden(
            show_stimuli(make_occlusion(seed=seed), f"{name} 0.3")
        )
        for name in ("rectangle", "fourier")
        for seed in (0, 1)
    }
    for name in ("rectangle", "fourier"):
        assert (masks[name, 0] != masks[name, 1]).any((1, 2)).sum() > 1
    smaller_mask = find_hidden(show_stimuli(make_occlusion(), "fourier 0.1"))
    assert (smaller_mask & ~masks["fourier", 0]).any()


@pytest.mark.slow
def test_grad_cam_hides_the_most_or_the_least_salient():
    """The map is that of the unchanged image; the random order is one of the two orders."""
    activations, gradients = at(
        jnp.float32(1), jnp.asarray(IMAGES / np.float32(255)), "stage3"
    )
    maps = np.asarray(grad_cam.maps(activations, gradients, SIDE, SIDE))
    by_order = {
        order: find_hidden(show_stimuli(make_occlusion(), f"grad_cam {order} 0.3"))
        for order in occlusion.ORDERS
    }
    for saliency, most, least, random_half in zip(
        maps, *by_order.values(), strict=True
    ):
        assert saliency[most].min() >= saliency[~most].max()
        assert saliency[least].max() <= saliency[~least].min()
        assert np.array_equal(random_half, most) != np.array_equal(random_half, least)
    # In maps of 8 bits pixels tie: the first pixels of a tie are hidden.
    quantised_maps = np.floor(255 * maps)
    coarse = find_hidden(
        show_stimuli(make_occlusion(quantise=True), "grad_cam most 0.3")
    )
    for saliency, mask in zip(quantised_maps, coarse):
        assert saliency[mask].min() >= saliency[~mask].max()
        edge = np.flatnonzero(saliency.ravel() == saliency[mask].min())
        is_visible = ~mask.ravel()[edge]
        assert np.array_equal(is_visible, np.sort(is_visible))


def test_the_map_is_computed_once_per_batch():
    """A batch takes one gradient, and one forward pass per condition and unchanged."""
    occlusion_probe = make_occlusion(masks=("grad_cam",), orders=("most",))
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
    inference.run_probe(
        network, occlusion_probe, batches, {"": inference.DecisionRule(8)}
    )
    jax.effects_barrier()
    assert len(occlusion_probe.conditions) == 3
    assert (calls.count("asked"), calls.count("pulled")) == (2 * 3, 2)


@pytest.mark.slow
def test_hidden_pixels_follow_the_map_of_the_condition():
    """One map serves all conditions of a convolutional network, to the bit."""
    net = models.MODELS["cnn"](4, width=4)
    image = IMAGES / np.float32(255)
    variables = jax.jit(net.init)(jax.random.key(3), image)

    def max_logit_gradient(variables, image, site):
        return taps.site_gradient(
            net, variables, image, site, lambda logits: logits.max(-1)
        )

    network = NETWORK._replace(variables=variables, at=max_logit_gradient)
    occlusion_probe, index = (
        make_occlusion(masks=("grad_cam",), site="stage2"),
        np.arange(N),
    )
    batch = inference.Batch(IMAGES, index, index, index, N)
    maps = inference.run_look(network, occlusion_probe, batch)
    image_maps = jax.jit(lambda *args: grad_cam.image_maps(net, *args, "stage2"))
    saliency = image_maps(variables, image)
    order = np.argsort(-np.asarray(saliency).reshape(N, -1), 1, kind="stable")
    for fraction in (0.1, 0.3):
        count = math.ceil(fraction * SIDE**2)
        for mask_name, places in (
            ("most", order[:, :count]),
            ("least", order[:, -count:]),
        ):
            condition = f"grad_cam {mask_name} {fraction}"
            mask = find_hidden(
                inference.make_stimuli(
                    network, occlusion_probe, batch, condition, look_result=maps
                )
            )
            np.testing.assert_array_equal(
                np.sort(places, 1), [np.flatnonzero(image_mask) for image_mask in mask]
            )


def test_random_order_hides_the_most_or_the_least_salient_equally_often():
    occlusion_probe = occlusion.make(
        masks=("grad_cam",), orders=("random",), fractions=(0.5,)
    )
    n = 400
    image = np.repeat(np.linspace(0, 1, SIDE, dtype=np.float32)[None], SIDE, 0)
    image = np.broadcast_to(0.1 + image[None, :, :, None] / 2, (n, SIDE, SIDE, 3))
    look = functools.partial(at, jnp.float32(1))
    params = occlusion_probe.conditions["grad_cam random 0.5"]

    @jax.jit
    def hide(image):
        rows = shown.Rows(image, jnp.arange(n), None, None, look)
        steps = occlusion_probe.network_steps
        return steps.move(rows._replace(seen=steps.look(rows)), params, image)

    stimuli = np.asarray(hide(jnp.asarray(image)))
    brightest = (stimuli[:, :, SIDE // 2 :] == 0).all((1, 2, 3))
    darkest = (stimuli[:, :, : SIDE // 2] == 0).all((1, 2, 3))
    assert np.all(brightest != darkest)
    assert abs(brightest.sum() - n / 2) < 4 * math.sqrt(n) / 2


@pytest.mark.slow
@pytest.mark.parametrize("fill", ["mean", "other"])
def test_hidden_pixels_show_the_fill(fill):
    occlusion_probe = make_occlusion(fill=fill, others=OTHERS, mean=(0.5, 0.25, 0.75))
    for mask_name in ("rectangle", "grad_cam most"):
        stimuli = show_stimuli(occlusion_probe, f"{mask_name} 0.3")
        if fill == "mean":
            find_hidden(stimuli, np.float32((0.5, 0.25, 0.75)))
            continue
        image = IMAGES / np.float32(255)
        partners = OTHERS.read() / np.float32(255)
        for stimulus, original in zip(stimuli, image):
            mask = (abs(stimulus - original) > 1e-6).any(-1)
            assert any(np.allclose(stimulus[mask], x[mask]) for x in partners)


@pytest.mark.slow
def test_cut_occlusion_has_the_same_rectangles_under_every_fill():
    cut_probe = occlusion.make_cut_occlusion(others=OTHERS, mean=(0.0, 0.1, 0.2))
    assert list(cut_probe.conditions) == ["", "black", "mean", "other"]
    assert not find_hidden(show_stimuli(cut_probe, "")).any()
    black = find_hidden(show_stimuli(cut_probe, "black"))
    mean = find_hidden(show_stimuli(cut_probe, "mean"), np.float32((0.0, 0.1, 0.2)))
    np.testing.assert_array_equal(black, mean)
    of_partners = show_stimuli(cut_probe, "other")
    changed = (abs(of_partners - IMAGES / np.float32(255)) > 1e-6).any(-1)
    assert not changed[~black].any() and changed[black].mean() > 0.9
    assert len(set(black.sum((1, 2)))) > 1


def test_cut_occlusion_of_one_area_inside_the_image():
    cut_probe = occlusion.make_cut_occlusion(
        area=0.25, placement="restricted", fills=("black",)
    )
    assert set(find_hidden(show_stimuli(cut_probe, "black")).sum((1, 2))) == {64}


@cases.each("name", ["grid_shuffle", "cut_occlusion", "occlusion"])
def test_numbers_are_accuracies_and_interference(name):
    """A network that answers one of K classes under distortion has an index of 100 (K-1) %."""
    options = dict(fills=("black",)) if name == "cut_occlusion" else {}
    occlusion_probe = registry.PROBES[name].load()(classes=("a", "b"), **options)
    label = np.array([0, 0, 1, 1])
    clean = evals.Decisions(np.array([0, 1, 1, 0]), {"label": label})
    one_class = evals.Decisions(np.zeros(4, int), {"label": label})
    decisions_by_condition = {
        condition: one_class if condition else clean
        for condition in occlusion_probe.conditions
    }
    values = {
        (number.metric, number.condition): number.value
        for number in occlusion_probe.numbers(decisions_by_condition)
    }
    assert len(values) == 2 * len(decisions_by_condition) - 1
    for condition in decisions_by_condition:
        assert values["accuracy", condition] == 0.5
        if condition:
            # Errors were equally frequent in both classes; now all are in one.
            assert values["di_index", condition] == pytest.approx(2 * 0.5)


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
def test_occlusion_refuses_invalid_options(options):
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
def test_cut_occlusion_refuses_invalid_options(options):
    with pytest.raises(ValueError, match=f"^cut_occlusion: {next(iter(options))[:4]}"):
        occlusion.make_cut_occlusion(**options)
