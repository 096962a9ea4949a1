"""The table of networks in the documentation equals that of the code."""

import pathlib
import re

import pytest

from benchmarks import roofline
from jbias import models
from jbias.models import taps
from studies import networks_table
from tests import cases

TEXT = (pathlib.Path(__file__).parents[2] / "docs/models.md").read_text("utf-8")
LINES = TEXT.splitlines()
# To trace all takes a minute; of each file of networks one.
QUICK = {"cnn", "resnet18", "vgg11", "alexnet", "preact_resnet18", "squeezenet1_1"}
QUICK |= {"mobilenetv3_small", "bagnet9", "vit_small32"}
# Thousand million multiplications, of torchvision's pages on its models.
PUBLISHED = {"resnet18": 1.814, "vgg11": 7.609, "alexnet": 0.714}
PUBLISHED |= {"squeezenet1_1": 0.349, "mobilenetv3_small": 0.057}


def test_every_network_has_its_line_in_order():
    start = LINES.index(networks_table.HEAD[0])
    assert LINES[start + 1] == networks_table.HEAD[1]
    matches = [re.match(r"\| `(\w+)` \|", line) for line in LINES[start + 2 :]]
    names = [match[1] for match in matches[: len(models.MODELS)]]
    assert names == list(models.MODELS) and matches[len(names)] is None


def test_the_page_has_the_sources_of_the_networks():
    assert networks_table.sources() in " ".join(TEXT.split())


@pytest.mark.slow
@cases.each(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
        for name in models.MODELS
    ],
)
def test_each_line_describes_its_network(name):
    assert networks_table.row(name) in LINES


@pytest.mark.slow
@cases.each("name", PUBLISHED)
def test_multiplications_are_the_published_ones(name):
    flops, _, _ = roofline.forward(models.MODELS[name](1000), 224)
    assert flops / 2e9 == pytest.approx(PUBLISHED[name], abs=6e-4)


def test_sites_are_abbreviated_by_ranges():
    names = ["stem.conv", "stem", "stage1.block0.conv1", "stage1.block2.conv3"]
    names += ["stage1", "stage4.block1.conv2", "stage4", "fc1"]
    expected = "stem.conv, stem, stage1-4.block0-2.conv1-3, stage1-4, fc1"
    assert taps.abbreviate(names) == expected and taps.abbreviate([]) == ""
