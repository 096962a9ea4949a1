"""Networks of timm by name, with weights of a file: equal to timm's, or refused in one line."""

import argparse
import os
import pickle

import numpy as np
import pytest

from jbias import evaluate, look, timm_networks
from jbias.evals import networks
from jbias.measuring import cli
from jbias.runtime import timm_names
from tests import cases

NAME = "test_resnet"  # timm's network for tests, of 0.5 million weights.


@cases.each(
    ("text", "expected", "folder"),
    [
        ("timm:x", ("x", "", False), "x"),
        ("timm:x.tag?pretrained=true", ("x.tag", "", False), "x.tag"),
        ("timm:x?pretrained=false", ("x", "", True), "x-random"),
        ("timm:x@{file}", ("x", "{file}", False), "x-own"),
        ("timm:own@{file}", ("own", "{file}", False), "own"),
    ],
)
def test_names_have_a_file_or_random_weights(text, expected, folder, tmp_path):
    file = tmp_path / "own.pth"
    file.touch()
    parsed = timm_names.parse(text.format(file=file), "MODEL")
    name, path, is_random = expected
    assert parsed == (name, path.format(file=file), is_random)
    assert parsed.network_name == folder


@cases.each(
    ("text", "message"),
    [
        ("timm:x@", "no such file"),
        ("timm:x@none.pth", "no such file"),
        ("timm:x?pretrained=false@none.pth", "must have a file or random weights"),
        ("timm:x?classes=3", "must end with"),
    ],
)
def test_invalid_names_are_refused_in_one_line(text, message):
    with pytest.raises(ValueError, match=message) as error:
        networks.find_checkpoints([text])
    assert "\n" not in str(error.value)


def test_commands_without_a_suite_refuse_names_of_timm():
    args = argparse.Namespace(checkpoint=["timm:x"], model=None, zoo="")
    lines = []
    opened = networks.open_networks(
        ["timm:x"], args, print, lambda name, line: lines.append(line)
    )
    assert not [*opened] and "give a file of weights" in lines[0]


@pytest.fixture(scope="module")
def timm():
    return pytest.importorskip("timm", reason="timm is not installed")


@pytest.fixture(scope="module")
def trained(timm, tmp_path_factory):
    """Return (folder of files with the same random weights, the network, images, logits)."""
    import safetensors.torch
    import torch

    torch.manual_seed(3)
    net = timm.create_model(NAME, num_classes=16).eval()
    for layer in net.modules():
        if isinstance(layer, torch.nn.BatchNorm2d):
            layer.running_mean.uniform_(-0.1, 0.1)
            layer.weight.data.uniform_(0.5, 1.5)
    folder = tmp_path_factory.mktemp("timm")
    state = net.state_dict()
    safetensors.torch.save_file(state, folder / "tensors.safetensors")
    torch.save(state, folder / "plain.pth")
    wrapped = {f"module.{key}": value for key, value in state.items()}
    torch.save({"state_dict": wrapped, "epoch": 3}, folder / "wrapped.pth.tar")
    images = torch.rand(4, 3, 40, 40)
    with torch.no_grad():
        return folder, net, images, net(images)


@cases.each("file", ["tensors.safetensors", "plain.pth", "wrapped.pth.tar"])
def test_a_file_gives_timms_network_to_the_bit(file, trained):
    import torch

    folder, _, images, logits = trained
    module, name = timm_networks.make(f"timm:{NAME}@{folder / file}", "MODEL")
    assert name == f"{NAME}-{file.rsplit('.', 1)[0]}"
    assert "state_dict" not in module.pretrained_cfg
    with torch.no_grad():
        assert torch.equal(module.eval()(images), logits)


def test_missing_unknown_and_misshapen_arrays_are_refused_in_one_line(
    trained, tmp_path
):
    import torch

    state = trained[1].state_dict()
    state["own.weight"] = state.pop("fc.bias")
    state["bn1.weight"] = torch.zeros(5)
    torch.save(state, tmp_path / "other.pth")
    with pytest.raises(ValueError) as error:
        timm_networks.make(f"timm:{NAME}@{tmp_path / 'other.pth'}", "--checkpoint")
    line = str(error.value)
    assert line.startswith("--checkpoint: timm:") and "\n" not in line
    assert "1 missing (fc.bias), 1 unknown (own.weight), 1 of another shape" in line
    assert "(bn1.weight: [5] in the file, [32] in the network)" in line
    three = r"\d+ missing \([^,]+, [^,]+, [^,]+ \.\.\.\), \d+ unknown \([^,]+, [^,]+, "
    with pytest.raises(ValueError, match=three):
        timm_networks.make(f"timm:test_vit@{tmp_path / 'other.pth'}", "MODEL")


def test_a_wrong_name_suggests_near_names(timm):
    with pytest.raises(ValueError) as error:
        timm_networks.check(["timm:resnet5O"], "MODEL")
    line = str(error.value)
    assert "timm has no network 'resnet5O'; did you mean timm:" in line
    assert "timm:resnet50" in line and 1 <= line.count("timm:") <= 3


def test_a_file_runs_no_code(timm, tmp_path):
    class Attack:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    (tmp_path / "a.pth").write_bytes(pickle.dumps(Attack()))
    with pytest.raises(ValueError, match=r"a\.pth: ") as error:
        timm_networks.make(f"timm:{NAME}@{tmp_path / 'a.pth'}", "MODEL")
    assert "\n" not in str(error.value)
    assert [x.name for x in tmp_path.iterdir()] == ["a.pth"]


def test_without_a_cache_a_line_says_what_to_fetch(timm, tmp_path, monkeypatch, capfd):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    suite = "--suite=jbias:suites/biases:smoke"
    out = f"--out={tmp_path}"
    assert evaluate.main(["--checkpoint=timm:resnet50", suite, out]) == 2
    assert look.main(["--checkpoint=timm:resnet50", suite, out]) == 2
    assert cli.main(["timm:resnet50", "--data=shapes", out]) == 2
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert "`hf download timm/resnet50.a1_in1k model.safetensors`" in line
        assert "timm/resnet50.a1_in1k/resolve/main/model.safetensors" in line
        assert "timm:resnet50@FOLDER/model.safetensors" in line


@pytest.mark.slow
def test_evaluate_and_look_take_a_network_of_timm(trained, tmp_path):
    from jbias import data, torch

    folder, net, *_ = trained
    classes = tmp_path / "classes.txt"
    names = data.load("shapes", "test", n=16).classes
    classes.write_text("\n".join(names))
    flags = [
        f"--checkpoint=timm:{NAME}@{folder / 'plain.pth'}",
        f"--classes={classes}",
        "--suite=jbias:suites/distortion:data=shapes,size=32,images=32",
        "--only=accuracy,grid_shuffle",
    ]
    assert evaluate.main([*flags, f"--out={tmp_path / 'measured'}"]) == 0
    result = tmp_path / "measured" / f"{NAME}-plain" / "evals"
    assert any(result.glob("*.jsonl"))
    import jbias

    wrapped = torch.wrap(net, classes=names, name="wrapped")
    direct = jbias.measure(
        wrapped,
        "jbias:suites/distortion:data=shapes,size=32,images=32",
        only=["accuracy", "grid_shuffle"],
        out=tmp_path / "measured",
    )
    named = jbias.measure(
        f"timm:{NAME}@{folder / 'plain.pth'}",
        "jbias:suites/distortion:data=shapes,size=32,images=32",
        only=["accuracy", "grid_shuffle"],
        classes=names,
        out=tmp_path / "python",
    )
    np.testing.assert_array_equal(direct.numbers["value"], named.numbers["value"])
    site = ["--site=layer4.0", "--images=2", "--maps=4", f"--out={tmp_path / 'look'}"]
    assert look.main([*flags, *site]) == 0
    assert (tmp_path / "look" / "saliency@test.png").exists()
