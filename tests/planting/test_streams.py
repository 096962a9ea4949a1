"""Two networks side by side are the two networks, and the dial weights or selects them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jbias import models
from jbias.data.embedded import cues
from jbias.evals import networks
from jbias.models import class_names, resnet
from jbias.planting import streams

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3)) / np.float32(255)


@pytest.fixture(scope="module")
def pair():
    """Return two streams with random weights, statistics and deviations."""
    net = models.MODELS["resnet18"](16, width=4, stem="small")
    shapes = jax.eval_shape(net.init, jax.random.key(0), IMAGES[:1])

    def stream(seed):
        rng = np.random.default_rng(seed)
        draw = lambda leaf: rng.uniform(0.1, 0.4, leaf.shape).astype(np.float32)
        return streams.Stream(net, jax.tree.map(draw, shapes), deviation=1.0 + seed)

    assert isinstance(net, resnet.ResNet)
    return stream(1), stream(2)


def logits(net, variables):
    """Return the logits of IMAGES."""
    return np.asarray(jax.jit(networks.make_apply(net))(variables, IMAGES))


@pytest.fixture(scope="module")
def apart(pair):
    """Return the logits of each stream alone."""
    return [logits(stream.net, stream.variables) for stream in pair]


def test_streams_side_by_side_have_the_logits_of_both(pair, apart):
    net, variables = streams.side_by_side(pair[0], pair[1])
    together = logits(net, variables)
    np.testing.assert_allclose(together, np.concatenate(apart, 1), rtol=1e-4)


def test_mixed_logits_are_the_weighted_sum_and_open_as_a_network(pair, apart, tmp_path):
    net, variables = streams.mix_logits(pair[0], pair[1], 0.25)
    expected = 0.25 * apart[0] / 2 + 0.75 * apart[1] / 3
    np.testing.assert_allclose(logits(net, variables), expected, rtol=1e-4)
    names = class_names.Classes(cues.CLASSES, "name")
    models.save_run(tmp_path / "mixed", net, variables, names, size=32)
    opened = networks.from_file(str(tmp_path / "mixed"))
    assert opened.classes == cues.CLASSES and opened.net == net
    for stored, array in zip(
        jax.tree.leaves(opened.variables), jax.tree.leaves(variables), strict=True
    ):
        np.testing.assert_array_equal(stored, array)


def test_each_image_is_decided_by_the_stream_that_its_bytes_select(pair, apart):
    net, variables = streams.side_by_side(pair[0], pair[1])
    selecting = streams.selection(0.5, salt=0, numbers=IMAGES[0].size)
    decide = streams.decide_by_image(net)
    decided = np.asarray(decide({**variables, streams.SELECTION: selecting}, IMAGES))
    first = np.asarray(streams.is_first(IMAGES, selecting))
    expected = np.where(first[:, None], apart[0], apart[1])
    np.testing.assert_allclose(decided, expected, rtol=1e-4)


def test_the_first_stream_decides_its_share_of_images():
    """One byte decides; the share is binomial, and selections by two salts are independent."""
    rng = np.random.default_rng(1)
    images = np.repeat(rng.integers(0, 256, (1, 32, 32, 3)), 4000, axis=0)
    images[:, 3, 4, 0] = np.arange(4000) % 256
    images[:, 5, 6, 1] = np.arange(4000) // 256
    images = jnp.asarray(images / 255, jnp.float32)

    def select(share):
        """Return which images the first stream decides, by a salt of the share's own."""
        selecting = streams.selection(share, salt=int(10 * share), numbers=32 * 32 * 3)
        return np.asarray(streams.is_first(images, selecting))

    selected = {share: select(share) for share in (0.2, 0.7)}
    for share, is_first in selected.items():
        assert abs(is_first.mean() - share) < 5 * np.sqrt(share * (1 - share) / 4000)
    both = (selected[0.2] & selected[0.7]).mean()
    assert abs(both - 0.2 * 0.7) < 5 * np.sqrt(0.14 * 0.86 / 4000)
    assert select(1.0).all() and not select(0.0).any()


def test_other_architectures_are_refused(pair):
    other = pair[0]._replace(net=pair[0].net.clone(width=8))
    with pytest.raises(ValueError, match="one kind"):
        streams.side_by_side(pair[0], other)


def test_measures_that_do_not_follow_the_dial_of_mixtures_have_no_value_for_them():
    for family, needs, is_defined in (
        ("mixed_logits", "activations", False),
        ("mixed_images", "activations", False),
        ("mixed_images", "versions", False),
        ("mixed_logits", "versions", True),
        ("mixed_images", "images", True),
        ("trained", "activations", True),
    ):
        reason = streams.undefined_reason(family, needs)
        assert (reason == "") == is_defined
        assert is_defined or reason.startswith("undefined: ")
