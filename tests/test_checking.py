"""`--check` says what the first step does, and leaves nothing behind."""

import math
import pathlib
import re

import jax
import pytest

from jbias import checking, main, models
from jbias.models import taps
from jbias.runtime import messages
from tests import cases, smoke_runs

ROOT = pathlib.Path(__file__).parents[1]
TAP = ROOT / "examples" / "own_tap.py"
MINE = """
import jax
import jax.numpy as jnp
from jbias.algos import base, erm

def unused(net):
    plain = erm.make(net)

    def losses(params, stats, batch, key, static=None):
        named, aux = plain.losses(params, {"net": stats["net"]}, batch, key)
        style = jnp.sum(jax.lax.stop_gradient(params["style"]["bias"]))
        named["style"] = jnp.sum(params["style"]["kernel"] ** 2) + style
        return named, aux._replace(stats={**aux.stats, "style": stats["style"]})

    def part(key, image, net):
        return {"params": {k: jnp.ones(3) for k in ("bias", "kernel", "spare")}}

    def moves(path):
        return path[0] == "style" and path[1] != "spare"

    updates = base.Update("class", lambda path: path[0] == "net"), base.Update("style", moves)
    return base.Algo(net, losses, updates, {"style": part})

def broken(net):
    def tap(x, site, key):
        return x @ x[:, :3]
    return erm.make(net.clone(tap=tap))
"""


def checked(name: str, **entries) -> dict[str, str]:
    config = smoke_runs.small(algo={"name": name}, inputs=(), **entries)
    config.model = {"name": "cnn", "width": 4}
    lines = checking.check(config)
    return dict(re.split(r"  +", line, maxsplit=1) for line in lines)


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_a_tap_is_told_with_its_sites():
    told = checked(f"{TAP}:make")
    assert told["tap"] == "acts at 2 of 4 sites: stage1-2"
    assert told["losses"] == "class, apart, moved (logged)"
    assert "'image': float32[32,32,32,3]" in told["batch"]
    assert told["logits"] == "float32[32,16]"
    found = re.fullmatch(
        r"([\d,]+) weights, a gradient for (\d+) of (\d+) arrays", told["net"]
    )
    net = models.MODELS["cnn"](16, width=4)
    leaves = jax.tree.leaves(taps.shapes(net, 32).variables["params"])
    sizes = [math.prod(x.shape) for x in leaves]
    assert found.groups() == (f"{sum(sizes):,}", str(len(sizes)), str(len(sizes)))
    assert told["against ERM"] == "another program"


@cases.each("name", ["erm", "own"])
def test_what_is_erm_is_told_so(name, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from jbias.algos import erm\ndef make(net):\n    return erm.make(net)\n"
    )
    told = checked("erm" if name == "erm" else f"{path}:make")
    assert told["against ERM"].startswith("the same program: ") and "tap" not in told


def test_weights_that_nothing_moves_are_named(mine):
    told = checked(f"{mine}:unused")
    assert told["style"] == (
        "9 weights, a gradient for 1 of 3 arrays; no loss reaches bias; "
        "no update trains spare"
    )
    assert "no loss" not in told["net"] and "no update" not in told["net"]


def test_a_second_stream_and_stages_are_traced():
    """As mixing with a second set has them, before a stage of another algorithm."""
    config = smoke_runs.small(inputs=({"name": "mixup"},))
    config.model = {"name": "cnn", "width": 4}
    other = {"data": "fractals", "split": "train", "n": 64}
    config.train.other = {**other, "inputs": ({"name": "flip"},)}
    config.stages = ({"epochs": 1.0}, {"algo": {"name": "frozen_filters"}})
    lines = checking.check(config)
    assert sum(line.startswith("config.stages") for line in lines) == 2
    assert sum("another program" in line for line in lines) == 1
    assert any("'other': {...}" in line for line in lines)


def test_what_is_wrong_names_ones_own_line(mine):
    with pytest.raises(
        messages.UserCodeError, match=r"mine\.py:26, in tap: ValueError"
    ):
        checked(f"{mine}:broken")


def test_an_error_of_a_check_is_a_line_and_makes_no_workdir(
    mine, tmp_path, monkeypatch, capsys
):
    monkeypatch.delenv("JBIAS_TRACEBACK", raising=False)
    monkeypatch.chdir(tmp_path)
    spec = main.run_spec.RunSpec.from_config(
        smoke_runs.small(algo={"name": f"{mine}:broken"})
    )
    assert main._check(spec) == 2
    said = capsys.readouterr().err
    assert said.startswith("jbias: error in ") and said.count("\n") == 1
    assert not (tmp_path / "runs").exists()
