"""Networks of the hub are measured, named and recorded as files of weights are."""

import hashlib
import json
import shutil

import numpy as np
import pytest

from jbias import config as jc
from jbias import data, evaluate
from jbias.evals import networks
from jbias.models import registry, safetensors, weight_names
from jbias.runtime import cli, hub
from tests import hub_server

constants = pytest.importorskip("huggingface_hub.constants")

COMMIT = hub_server.COMMIT
SUITE = """
import ml_collections

def get_config(text=""):
    c = ml_collections.ConfigDict()
    c.size = 32
    c.sets = dict(edge=dict(data="shapes", split="edge", n=32))
    c.measures = dict(accuracy=dict(probe="plain", sets=("edge",)))
    return c
"""


def write_weights(path, model, **options):
    """Write a random network with the names of timm and torchvision; return the bytes."""
    shapes = registry.shapes(model, dict(stem="small", width=2, **options))
    entries = weight_names.entries(shapes, registry.dialects(model)[0])
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.random(shape.shape, np.float32) for name, shape in entries.items()
    }
    safetensors.write(path, arrays, {"format": "pt"})
    return path.read_bytes()


@pytest.fixture
def server(tmp_path, monkeypatch):
    with hub_server.running() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield hub


def open_networks(*arguments):
    """Return the networks that --checkpoint names, and the lines of unreadable ones."""
    arguments = [*arguments, "--suite=x.py"]
    args, _ = cli.parse(evaluate.parser(), arguments, "suite", jc.check)
    error_lines = []
    paths = networks.check_arguments(args, "out", {})
    opened = networks.open_networks(
        paths, args, lambda line: None, lambda name, line: error_lines.append(line)
    )
    return [*opened], error_lines


def test_a_hub_network_has_the_records_of_the_same_local_file(server, tmp_path):
    classes = data.load("shapes", "edge", n=32).classes
    content = write_weights(
        tmp_path / "net.safetensors", "resnet18", classes=len(classes)
    )
    server.files["someone/small-net", "model.safetensors"] = content
    (tmp_path / "s.py").write_text(SUITE)
    (tmp_path / "names.txt").write_text("\n".join(classes))
    hub_path, out = f"hf:someone/small-net@{COMMIT}", tmp_path / "out"
    arguments = [f"--suite={tmp_path}/s.py", f"--classes={tmp_path}/names.txt"]
    arguments += [
        f"--checkpoint={hub_path}",
        f"--checkpoint={tmp_path}/net.safetensors",
    ]
    assert evaluate.main([*arguments, f"--out={out}"]) == 0
    hub_folder, file_folder = out / f"someone-small-net-{COMMIT[:8]}", out / "net"
    runs = [
        json.loads((folder / "config.json").read_text())["run"]
        for folder in (hub_folder, file_folder)
    ]
    digest = hashlib.sha256(content).hexdigest()[:16]
    assert runs[0] == runs[1] | {"path": hub_path} and runs[0]["digest"] == digest
    lines = [
        (folder / "evals/accuracy@edge.jsonl").read_text()
        for folder in (hub_folder, file_folder)
    ]
    assert lines[0].replace(hub_folder.name, "net") == lines[1]
    server.shutdown()  # Downloaded files are used without the server.
    shutil.rmtree(hub_folder)
    assert evaluate.main([*arguments, f"--out={out}"]) == 0
    assert (hub_folder / "evals/accuracy@edge.jsonl").read_text() == lines[0]


def test_a_repository_of_a_published_name_is_known(server, tmp_path):
    content = write_weights(tmp_path / "x", "resnet50", classes=1000)
    server.files["timm/resnet50.a1_in1k", "model.safetensors"] = content
    (network,), error_lines = open_networks(
        f"--checkpoint=hf:timm/resnet50.a1_in1k@{COMMIT}"
    )
    assert (network.name, network.fields["model"]) == ("resnet50.a1_in1k", "resnet50")
    assert network.about["category"] == "training_recipes" and not error_lines
    assert network.about["path"] == f"hf:timm/resnet50.a1_in1k@{COMMIT}"


def test_a_file_that_is_no_network_is_named_and_the_other_networks_are_read(
    server, tmp_path
):
    safetensors.write(tmp_path / "x", {"a.weight": np.zeros(3, np.float32)}, {})
    server.files["someone/else", "model.safetensors"] = (tmp_path / "x").read_bytes()
    server.files["someone/net", "model.safetensors"] = write_weights(
        tmp_path / "y", "resnet18", classes=1000
    )
    names = [f"hf:someone/{name}@{COMMIT}" for name in ("else", "net", "net")]
    (network,), (line,) = open_networks(*(f"--checkpoint={name}" for name in names))
    assert network.name == networks.path_stem(names[1])
    assert line.startswith(f"{names[0]}: ")
    assert "has no entry of any network of models.MODELS" in line


def test_a_branch_is_refused_before_anything_is_opened(server, capsys):
    arguments = (
        "--checkpoint=hf:timm/resnet50.a1_in1k@main",
        "--suite=jbias:suites/biases",
    )
    assert evaluate.main(arguments) == 2
    line = capsys.readouterr().err
    assert "must be pinned by a commit" in line and line.count("\n") == 1
    assert hub.is_hub("hf:a/b@c") and not hub.is_hub("hf.pth")
