"""Names of devices that need not be here are read as clouds and vendors write them."""

import pytest

from jbias.training import targets
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
    found = targets.parse(text)
    assert found == (text, generation, shape)
    assert found.platform == (found.kind.platform if found.kind else "cpu")


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
def test_hosts_are_those_of_clouds(text, hosts):
    pytest.importorskip("libtpu")
    found = targets.devices(targets.parse(text))
    assert len({one.process_index for one in found}) == hosts


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
def test_devices_that_a_run_had_have_a_name(kind, count, name):
    assert targets.from_device_kind(kind, count).name == name


def test_devices_of_no_known_kind_have_none():
    with pytest.raises(ValueError, match="must be cpu or one of"):
        targets.from_device_kind("NVIDIA T4", 1)
