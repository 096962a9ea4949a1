"""A tap that acts at no site is an error when the step is traced."""

import functools
import re

import jax
import pytest

from jbias.runtime import messages
from tests import smoke_runs

ALGORITHMS = """
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jbias.algos import base, erm

def make(net, *, site="stage2", stage=0, p=0.5, variant=""):
    def tap(x, name, key):
        acts = p and name in (site, f"stage{stage}")
        return x * (1 + p) if acts else x
    return erm.make(net.clone(tap=tap))

def keeping(net, *, site="stage2"):
    def losses(params, stats, batch, key, static=None):
        powers = []
        def tap(x, name, key):
            if name == site:
                powers.append(jnp.mean(x**2))
            return x
        tapped = net.clone(tap=tap)
        named, aux = erm.make(tapped).losses(params, stats, batch, key, static)
        return {"class": named["class"] + sum(powers)}, aux
    return base.Algo(net, losses)

def off(net, *, p=0.0):
    return make(net, p=p)

def later(net, *, site="stage2"):
    def losses(params, stats, batch, key, static=None):
        def tap(x, name, key):
            return x * 1.5 if static and name == site else x
        return erm.make(net.clone(tap=tap)).losses(params, stats, batch, key, static)
    return base.Algo(net, losses, static=lambda step, steps: step >= 100)

def marking(net, *, site="stage2"):
    unmarked = keeping(net, site=site)
    def losses(*args):
        named, aux = unmarked.losses(*args)
        return {"class": checkpoint_name(named["class"], "not given to a tap")}, aux
    return base.Algo(net, losses)
"""


@pytest.fixture
def traced(tmp_path):
    """Return a function that traces the step of an algorithm: traced("make", site="stem")."""
    path = tmp_path / "mine.py"
    path.write_text(ALGORITHMS)

    def trace(function, **options):
        config = smoke_runs.small(
            algo=dict(name=f"{path}:{function}", **options)
        ).to_dict()
        stage = smoke_runs.stage(config)
        state, key, batch, shared, static = stage.shapes
        step = functools.partial(stage.program.step, static=static)
        jax.eval_shape(step, state, (key, batch), shared)

    return trace


IDLE = r"must let the tap of .*mine\.py:.* act at a site of ResNet, got "
KNOWN = r"Known: stem\.conv, stem, stage1-4\.block0-1\.conv1-2, stage1-4$"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "options", "pattern"),
    [
        (
            "make",
            dict(site="stage9", variant="soft", p=0.0),
            rf"config\.algo\.site: {IDLE}'stage9', .* you mean 'stage4'\? {KNOWN}",
        ),
        ("keeping", dict(site="Stage2"), f"{IDLE}'Stage2', .* mean 'stage2'"),
        (
            "make",
            dict(site="", stage=9),
            rf"config\.algo: {IDLE}.*'stage': 9}}, .* site: {KNOWN}",
        ),
        ("marking", dict(site="stage9"), f"{IDLE}'stage9', .* mean 'stage4'"),
        ("make", dict(p=0.0), None),
        ("off", {}, None),
        ("off", dict(p=0.0), None),
        ("later", {}, None),
        ("keeping", dict(site="stem"), None),
    ],
)
def test_a_tap_that_acts_at_no_site_is_refused(traced, function, options, pattern):
    if pattern is None:
        traced(function, **options)
        return
    with pytest.raises(ValueError) as caught:
        traced(function, **options)
    assert re.search(pattern, messages.describe_error(caught.value))
