"""Names of target devices are parsed as clouds and vendors write them."""

import pytest

from jbias.training.tuning import targets
from tests import cases


@cases.each(
    ("text", "generation", "shape"),
    [
        ("v5e:4x4", "v5e", (4, 4)),
        ("v5e-16", "v5e", (4, 4)),
        ("v5e-8", "v5e", (2, 4)),
        ("v4-32", "v4", (2, 2, 4)),  # Cores: two a chip.
        ("v2-8", "v2", (2, 2)),
        ("v5p:2x2x1", "v5p", (2, 2, 1)),
        ("V6E-64", "v6e", (8, 8)),
        ("h100x8", "h100", (8,)),
        ("a100-4", "a100", (4,)),
        ("h200", "h200", (1,)),
        ("v5e", "v5e", (1, 1)),
        ("h100x16", "h100", (16,)),
        ("cpu", "cpu", (1,)),
    ],
)
def test_names(text, generation, shape):
    target = targets.parse(text)
    assert target == (text, generation, shape)
    assert target.platform == (target.kind.platform if target.kind else "cpu")


@cases.each(
    "text",
    [
        "",
        "tpu",
        "h100x0",
        "h100x9",
        "v4-3",
        "v5e-12",
        "v5e:4",
        "v4:2x2",
        "v5e:0x2",
        "h100:2x2",
        "cpu-2",
    ],
)
def test_other_names_are_refused_with_a_remedy(text):
    with pytest.raises(ValueError, match=r"--on: .*(such as|one of)"):
        targets.parse(text)


@cases.each(
    ("text", "hosts"), [("v5e-8", 1), ("v6e:2x4", 1), ("v5e-16", 4), ("v5e", 1)]
)
def test_the_number_of_hosts_equals_that_of_clouds(text, hosts):
    pytest.importorskip("libtpu")
    devices = targets.devices(targets.parse(text))
    assert len({device.process_index for device in devices}) == hosts


@cases.each(
    ("kind", "count", "name"),
    [
        ("TPU v5 lite", 16, "v5e-16"),
        ("TPU v5p", 4, "v5p-8"),
        ("TPU v4", 16, "v4-32"),
        ("TPU v6 lite", 1, "v6e-1"),
        ("NVIDIA H100 80GB HBM3", 8, "h100x8"),
        ("cpu", 2, "cpu"),
    ],
)
def test_a_device_kind_and_a_count_give_a_target(kind, count, name):
    assert targets.from_device_kind(kind, count).name == name


def test_an_unknown_device_kind_is_refused():
    with pytest.raises(ValueError, match="must be cpu or one of"):
        targets.from_device_kind("NVIDIA T4", 1)
