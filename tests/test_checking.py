"""`--check` describes the first training step and writes no files."""

import math
import pathlib
import re

import jax
import pytest

from jbias import checking, main, models
from jbias import config as jc
from jbias.models import taps
from jbias.runtime import messages
from tests import cases, smoke_runs

ROOT = pathlib.Path(__file__).parents[1]
TAP = ROOT / "examples" / "own_tap.py"
ALGORITHMS = """
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
def algorithm_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(ALGORITHMS)
    return path


def test_a_tap_is_listed_with_its_sites():
    description = checked(f"{TAP}:make")
    assert description["tap"] == "acts at 2 of 4 sites: stage1-2"
    assert description["losses"] == "class, apart, moved (logged)"
    assert "'image': float32[32,32,32,3]" in description["batch"]
    assert description["logits"] == "float32[32,16]"
    match = re.fullmatch(
        r"([\d,]+) weights, a gradient for (\d+) of (\d+) arrays", description["net"]
    )
    net = models.MODELS["cnn"](16, width=4)
    leaves = jax.tree.leaves(taps.shapes(net, 32).variables["params"])
    sizes = [math.prod(x.shape) for x in leaves]
    assert match.groups() == (f"{sum(sizes):,}", str(len(sizes)), str(len(sizes)))
    assert description["against ERM"] == "another program"


@cases.each("name", ["erm", "own"])
def test_programs_equal_to_erm_are_recognised(name, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from jbias.algos import erm\ndef make(net):\n    return erm.make(net)\n"
    )
    description = checked("erm" if name == "erm" else f"{path}:make")
    assert (
        description["against ERM"].startswith("the same program: ")
        and "tap" not in description
    )


@cases.each(
    "preset",
    (
        *("cdann", "coral", "dann", "debiased", "dfr", "dsu", "eqrm", "fishr"),
        *("group_dro", "infodrop", "irm", "mixstyle", "mldg", "mmd", "padain"),
        *("rsc", "sagnet", "sam", "swad", "vrex"),
    ),
    quick=("dann",),
)
def test_each_algorithm_of_a_preset_is_checked(preset):
    """Also one whose steps are of two programs, such as DANN."""
    config = jc.load(f"jbias:{preset}:smoke,seeds=1", flag="config")
    text = "\n".join(checking.check(config))
    assert re.search(r"^logits +float32\[\d+,16\]$", text, re.MULTILINE), text


def test_weights_without_loss_or_update_are_named(algorithm_file):
    description = checked(f"{algorithm_file}:unused")
    assert description["style"] == (
        "9 weights, a gradient for 1 of 3 arrays; no loss reaches bias; "
        "no update trains spare"
    )
    assert "no loss" not in description["net"] and "no update" not in description["net"]


@pytest.mark.slow
def test_a_second_stream_and_stages_are_traced():
    """Check mixing with a second data set, followed by a stage of another algorithm."""
    config = smoke_runs.small(inputs=({"name": "mixup"},))
    config.model = {"name": "cnn", "width": 4}
    other = {"data": "fractals", "split": "train", "n": 64}
    config.train.other = {**other, "inputs": ({"name": "flip"},)}
    config.stages = ({"epochs": 1.0}, {"algo": {"name": "frozen_filters"}})
    lines = checking.check(config)
    assert sum(line.startswith("config.stages") for line in lines) == 2
    assert sum("another program" in line for line in lines) == 1
    assert any("'other': {...}" in line for line in lines)


def test_errors_name_the_line_in_the_user_file(algorithm_file):
    with pytest.raises(
        messages.UserCodeError, match=r"mine\.py:26, in tap: ValueError"
    ):
        checked(f"{algorithm_file}:broken")


def test_an_error_of_a_check_is_one_line_and_makes_no_workdir(
    algorithm_file, tmp_path, monkeypatch, capsys
):
    monkeypatch.delenv("JBIAS_TRACEBACK", raising=False)
    monkeypatch.chdir(tmp_path)
    spec = main.run_spec.RunSpec.from_config(
        smoke_runs.small(algo={"name": f"{algorithm_file}:broken"})
    )
    assert main._check(spec) == 2
    message = capsys.readouterr().err
    assert message.startswith("jbias: error in ") and message.count("\n") == 1
    assert not (tmp_path / "runs").exists()
