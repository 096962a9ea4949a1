"""Reading what passes the sites of a network, in evaluation."""

import jax
import jax.numpy as jnp
import pytest

from jbias import models
from jbias.models import taps

KEY = jax.random.key(0)
IMAGE = jax.random.uniform(KEY, (2, 16, 16, 3))


@pytest.fixture(scope="module", params=["cnn", "resnet18"])
def net(request):
    options = {} if request.param == "cnn" else {"stem": "small"}
    return models.MODELS[request.param](5, width=8, **options)


def test_reading_changes_no_logit(net):
    variables = net.init(KEY, IMAGE)
    logits, seen = taps.read(net, variables, IMAGE)
    assert jnp.array_equal(logits, net.apply(variables, IMAGE))
    assert list(seen) == list(taps.sites(net, 16))
    assert jnp.array_equal(
        seen["stage2"], net.apply(variables, IMAGE, method="features")
    )


def test_sites_are_in_the_order_of_the_network(net):
    sites = taps.sites(net, 16)
    assert sites[-2:] == ("stage2.conv", "stage2") or sites[:2] == (
        "stem.conv",
        "stem",
    )
    assert len(set(sites)) == len(sites)


def test_variables_hold_nothing_that_was_read(net):
    assert set(net.init(KEY, IMAGE)) == {"params", "stats"}
