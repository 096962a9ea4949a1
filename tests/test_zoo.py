"""The models of the bias study: all of them, once, and found by their files."""

import csv
import pathlib

import pytest

from jbias import models
from jbias.configs import zoo
from jbias.models import state_dicts
from tests import cases

ROOT = pathlib.Path(__file__).parents[1]


def published():
    """Return the models in the numbers of the study: {identifier: row}."""
    path = ROOT / "examples/published/biases.csv"
    with path.open(newline="") as file:
        return {row["model"]: row for row in csv.DictReader(file)}


def test_has_the_models_of_the_published_numbers():
    transformers = {k for k, e in zoo.ZOO.items() if e.model == "vit_base16"}
    assert zoo.ZOO.keys() - transformers == set(published())
    assert len(published()) == 48 and len(transformers) == 5


def test_categories_and_budgets_are_the_published_ones():
    for name, row in published().items():
        entry = zoo.ZOO[name]
        assert entry.category == row["training"]
        assert entry.eps == (float(row["epsilon"]) if row["epsilon"] else None)
        assert bool(entry.norm) == (entry.eps is not None)


def test_two_models_normalise_nothing():
    plain = [e.id for e in zoo.ZOO.values() if e.constants == zoo.NONE]
    assert plain == ["resnet50_diffusionnoise_fixed_nonoise", "resnet50_simclrv2"]


def test_every_file_belongs_to_exactly_one_entry():
    names = [name for e in zoo.ZOO.values() for name in (*e.files, *e.heads)]
    assert len(set(names)) == len(names)
    for entry in zoo.ZOO.values():
        assert entry.model in models.MODELS and entry.where.startswith("https://")
        default_files = (f"{entry.id}.pth", f"{entry.id}/model.safetensors")
        for name in (*entry.files, *default_files):
            assert zoo.find(pathlib.Path("somewhere") / name) is entry
        for name in entry.heads:
            assert zoo.find(name) is None and zoo.is_head(name)
    assert zoo.find("mine.pth") is None and not zoo.is_head("mine.pth")


@cases.each("end", [*state_dicts.SUFFIXES, ".pth.tar"])
def test_an_identifier_is_recognised_in_every_readable_format(end):
    """Identifiers may contain dots."""
    for name in ("resnet50_swav", "resnet50.a1_in1k"):
        assert zoo.find(f"models/{name}{end}") is zoo.ZOO[name]
    assert zoo.find("models/resnet50_swav.onnx") is None


def test_sams_file_is_of_its_positions_and_classes():
    """Files of 384 pixels, and of other classes, are published under its name."""
    needing = [entry for entry in zoo.ZOO.values() if entry.needs]
    assert [entry.files for entry in needing] == [("ViT-B_16.npz",)]
    net = models.MODELS[needing[0].model](1000, grid=224 // 16)
    assert {key: getattr(net, key) for key in needing[0].needs} == needing[0].needs


def test_heads_are_looked_for(tmp_path):
    entry = zoo.ZOO["resnet50_swav"]
    with pytest.raises(ValueError, match=r"needs its linear layer in swav_800ep_eval"):
        entry.options(tmp_path)
    (tmp_path / entry.heads[0]).touch()
    assert entry.options(tmp_path)["head"] == tmp_path / entry.heads[0]
    assert "head" not in zoo.ZOO["tv_resnet50"].options(tmp_path)
