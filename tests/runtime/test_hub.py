"""Weights named on the hub are fetched once, pinned, whole, or refused in one line."""

import hashlib
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

from jbias.runtime import hub
from tests import cases, hub_server

constants = pytest.importorskip("huggingface_hub.constants")

COMMIT, OTHER = hub_server.COMMIT, "f" * 40
REPOSITORY = "timm/resnet18.a1_in1k"
NAMED = f"hf:{REPOSITORY}@{COMMIT}"
WEIGHTS, PICKLED = b"weights" * 1000, b"pickled" * 1000


@pytest.fixture
def server():
    with hub_server.running() as one:
        one.files[REPOSITORY, "model.safetensors"] = WEIGHTS
        one.files[REPOSITORY, "pytorch_model.bin"] = PICKLED
        yield one


@pytest.fixture
def cache(server, tmp_path, monkeypatch):
    """What huggingface_hub keeps, of that server alone; it waits for nothing."""
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return tmp_path / "hub"


def fetch(named=NAMED):
    return pathlib.Path(hub.fetch(named, "--checkpoint"))


def refusal(named=NAMED):
    with pytest.raises(ValueError) as raised:
        fetch(named)
    line = str(raised.value)
    assert line.startswith("--checkpoint: ") and "\n" not in line
    return line


def test_a_file_is_fetched_once_and_is_there_without_a_network(server, cache):
    path = fetch()
    assert path.read_bytes() == WEIGHTS
    folder = cache / "models--timm--resnet18.a1_in1k"
    assert path == folder / "snapshots" / COMMIT / "model.safetensors"
    assert path.resolve().name == hashlib.sha256(WEIGHTS).hexdigest()
    assert [line.split()[0] for line in server.asked] == ["HEAD", "GET"]
    server.shutdown()
    assert fetch() == path and len(server.asked) == 2


def test_pickled_weights_are_taken_where_there_are_no_others(server, cache):
    del server.files[REPOSITORY, "model.safetensors"]
    path = fetch()
    assert path.name == "pytorch_model.bin" and path.read_bytes() == PICKLED
    count = len(server.asked)
    assert fetch() == path and len(server.asked) == count


def test_offline_the_cache_may_know_the_pickled_weights_alone(
    server, cache, monkeypatch
):
    """As another program left it, which asked for no other file."""
    del server.files[REPOSITORY, "model.safetensors"]
    path = fetch()
    for mark in cache.glob("*/.no_exist/*/*"):
        mark.unlink()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch() == path


@cases.each(
    ("named", "told"),
    [
        (f"hf:{REPOSITORY}", "got '': a branch or tag can move"),
        (f"hf:{REPOSITORY}@main", f"got 'main'.*write hf:{REPOSITORY}@COMMIT"),
        (f"hf:{REPOSITORY}@{COMMIT[:12]}", "40 hexadecimal digits"),
        (f"hf:{REPOSITORY}@{OTHER.upper()}", "40 hexadecimal digits"),
        (f"hf:resnet50@{COMMIT}", "must be hf:OWNER/NAME@COMMIT"),
        (f"hf:timm/../x@{COMMIT}", "must be hf:OWNER/NAME@COMMIT"),
    ],
)
def test_what_is_not_pinned_is_refused(named, told, server, cache):
    line = refusal(named)
    assert re.search(told, line)
    assert not server.asked


@cases.each(
    ("change", "told"),
    [
        ({"files": {}}, "is not there, or private (401); correct the name, or log in"),
        ({"gated": {REPOSITORY}}, "may not be read (403); accept its terms at URL and"),
        ({"status": 403}, "may not be read (403); accept its terms at URL and log in"),
        (
            {"status": 503},
            "is not in the cache and cannot be reached (Server error '503",
        ),
        (
            {"short": 9},
            "could not be fetched (Consistency check failed: file should be",
        ),
        ({"dropped": 9}, "could not be fetched (peer closed connection"),
        ({"commit": OTHER}, f"URL must be of commit {COMMIT}, got "),
        (
            {"files": {(REPOSITORY, "net.pth"): b"x"}},
            "has neither model.safetensors nor pytorch_model.bin; fetch its file of weights "
            + f"from URL/tree/{COMMIT} and give the path of that file",
        ),
    ],
)
def test_what_cannot_be_had_says_why_and_what_to_do(
    change, told, server, cache, monkeypatch
):
    for key, value in change.items():
        monkeypatch.setattr(server, key, value)
    assert told.replace("URL", f"{server.url}/{REPOSITORY}") in refusal()
    assert not [*cache.glob("*/blobs/*.incomplete")]


def test_a_commit_that_is_not_there(server, cache):
    line = refusal(f"hf:{REPOSITORY}@{OTHER}")
    assert "has no such commit" in line and f"{REPOSITORY}/commits/main" in line


def test_without_a_network_it_says_what_to_fetch(server, cache, monkeypatch):
    url = f"{server.url}/{REPOSITORY}/resolve/{COMMIT}/model.safetensors"
    by_hand = f"fetch {url} elsewhere and give the path of that file"
    server.server_close()
    server.shutdown()
    line = refusal()
    assert "not in the cache and cannot be reached (" in line and by_hand in line
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    line = refusal()
    assert "offline mode is enabled" in line and by_hand in line


def test_without_the_package_it_says_what_to_install_or_fetch(monkeypatch):
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    line = refusal()
    assert "pip install 'jbias[hub]', or fetch https://huggingface.co/timm/" in line
    assert f"/resolve/{COMMIT}/model.safetensors elsewhere" in line


def test_what_was_changed_in_the_cache_is_refused_and_fetched_again(server, cache):
    stored = fetch().resolve()
    stored.chmod(0o600)
    stored.write_bytes(WEIGHTS[:-1] + b"x")
    assert f"{stored} must have the SHA-256 that it is named by" in refusal()
    stored.unlink()
    assert fetch().read_bytes() == WEIGHTS


def test_the_cache_is_where_hf_home_says(server, tmp_path):
    code = "import sys; from jbias.runtime import hub; print(hub.fetch(*sys.argv[1:]))"
    env = os.environ | {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": server.url}
    env.pop("HF_HUB_CACHE", None)
    command = [sys.executable, "-c", code, NAMED, "--checkpoint"]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    path = pathlib.Path(done.stdout.strip())
    assert path.is_relative_to(tmp_path / "home/hub")
    assert path.read_bytes() == WEIGHTS
