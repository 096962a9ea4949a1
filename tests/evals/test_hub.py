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


def weights(path, model, **options):
    """A file of a random network under the names that timm and torchvision give."""
    drawn = registry.shapes(model, dict(stem="small", width=2, **options))
    entries = weight_names.entries(drawn, registry.dialects(model)[0])
    rng = np.random.default_rng(0)
    arrays = {name: rng.random(one.shape, np.float32) for name, one in entries.items()}
    safetensors.write(path, arrays, {"format": "pt"})
    return path.read_bytes()


@pytest.fixture
def server(tmp_path, monkeypatch):
    with hub_server.running() as one:
        monkeypatch.setenv("HF_ENDPOINT", one.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield one


def opened(*given):
    """Networks that --checkpoint names, and lines of those that cannot be read."""
    args, _ = cli.parse(evaluate.parser(), [*given, "--suite=x.py"], "suite", jc.check)
    refused = []
    paths = networks.check_arguments(args, "out", {})
    of = args, lambda line: None, lambda name, line: refused.append(line)
    return [*networks.open_networks(paths, *of)], refused


def test_it_has_the_records_of_the_same_file_here(server, tmp_path):
    classes = data.load("shapes", "edge", n=32).classes
    content = weights(tmp_path / "net.safetensors", "resnet18", classes=len(classes))
    server.files["someone/small-net", "model.safetensors"] = content
    (tmp_path / "s.py").write_text(SUITE)
    (tmp_path / "names.txt").write_text("\n".join(classes))
    named, out = f"hf:someone/small-net@{COMMIT}", tmp_path / "out"
    given = [f"--suite={tmp_path}/s.py", f"--classes={tmp_path}/names.txt"]
    given += [f"--checkpoint={named}", f"--checkpoint={tmp_path}/net.safetensors"]
    assert evaluate.main([*given, f"--out={out}"]) == 0
    there, here = out / f"someone-small-net-{COMMIT[:8]}", out / "net"
    runs = [
        json.loads((one / "config.json").read_text())["run"] for one in (there, here)
    ]
    digest = hashlib.sha256(content).hexdigest()[:16]
    assert runs[0] == runs[1] | {"path": named} and runs[0]["digest"] == digest
    lines = [(one / "evals/accuracy@edge.jsonl").read_text() for one in (there, here)]
    assert lines[0].replace(there.name, "net") == lines[1]
    server.shutdown()  # What is there goes on without it.
    shutil.rmtree(there)
    assert evaluate.main([*given, f"--out={out}"]) == 0
    assert (there / "evals/accuracy@edge.jsonl").read_text() == lines[0]


def test_a_repository_of_a_published_name_is_known(server, tmp_path):
    content = weights(tmp_path / "x", "resnet50", classes=1000)
    server.files["timm/resnet50.a1_in1k", "model.safetensors"] = content
    (one,), refused = opened(f"--checkpoint=hf:timm/resnet50.a1_in1k@{COMMIT}")
    assert (one.name, one.fields["model"]) == ("resnet50.a1_in1k", "resnet50")
    assert one.about["category"] == "training_recipes" and not refused
    assert one.about["path"] == f"hf:timm/resnet50.a1_in1k@{COMMIT}"


def test_what_is_no_network_is_named_and_the_others_are_read(server, tmp_path):
    safetensors.write(tmp_path / "x", {"a.weight": np.zeros(3, np.float32)}, {})
    server.files["someone/else", "model.safetensors"] = (tmp_path / "x").read_bytes()
    server.files["someone/net", "model.safetensors"] = weights(
        tmp_path / "y", "resnet18", classes=1000
    )
    names = [f"hf:someone/{name}@{COMMIT}" for name in ("else", "net", "net")]
    (one,), (line,) = opened(*(f"--checkpoint={name}" for name in names))
    assert one.name == networks.path_stem(names[1])
    assert line.startswith(f"{names[0]}: ")
    assert "has no entry of any network of models.MODELS" in line


def test_a_branch_is_refused_before_anything_is_opened(server, capsys):
    given = "--checkpoint=hf:timm/resnet50.a1_in1k@main", "--suite=jbias:suites/biases"
    assert evaluate.main(given) == 2
    line = capsys.readouterr().err
    assert "must be pinned by a commit" in line and line.count("\n") == 1
    assert hub.is_hub("hf:a/b@c") and not hub.is_hub("hf.pth")
