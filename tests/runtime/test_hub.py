"""Weights on the hub are downloaded once, pinned and complete, or refused in one line."""

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
    with hub_server.running() as test_server:
        test_server.files[REPOSITORY, "model.safetensors"] = WEIGHTS
        test_server.files[REPOSITORY, "pytorch_model.bin"] = PICKLED
        yield test_server


@pytest.fixture
def cache(server, tmp_path, monkeypatch):
    """Fixture: the folder of huggingface_hub's cache, for the test server; sleeps do
    nothing.
    """
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return tmp_path / "hub"


def fetch(reference=NAMED):
    return pathlib.Path(hub.fetch(reference, "--checkpoint"))


def refusal(reference=NAMED):
    with pytest.raises(ValueError) as raised:
        fetch(reference)
    line = str(raised.value)
    assert line.startswith("--checkpoint: ") and "\n" not in line
    return line


def test_a_file_is_fetched_once_and_is_there_without_a_network(server, cache):
    path = fetch()
    assert path.read_bytes() == WEIGHTS
    folder = cache / "models--timm--resnet18.a1_in1k"
    assert path == folder / "snapshots" / COMMIT / "model.safetensors"
    assert path.resolve().name == hashlib.sha256(WEIGHTS).hexdigest()
    assert [line.split()[0] for line in server.requests] == ["GET"]
    server.shutdown()
    assert fetch() == path and len(server.requests) == 1


def test_pickled_weights_are_used_if_there_are_no_others(server, cache):
    del server.files[REPOSITORY, "model.safetensors"]
    path = fetch()
    assert path.name == "pytorch_model.bin" and path.read_bytes() == PICKLED
    count = len(server.requests)
    assert fetch() == path and len(server.requests) == count


def test_offline_the_cache_may_know_the_pickled_weights_alone(
    server, cache, monkeypatch
):
    """Another program may have cached only the pickled weights."""
    del server.files[REPOSITORY, "model.safetensors"]
    path = fetch()
    for mark in cache.glob("*/.no_exist/*/*"):
        mark.unlink()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch() == path


@cases.each(
    ("reference", "message"),
    [
        (f"hf:{REPOSITORY}", "got '': a branch or tag can move"),
        (f"hf:{REPOSITORY}@main", f"got 'main'.*write hf:{REPOSITORY}@COMMIT"),
        (f"hf:{REPOSITORY}@{COMMIT[:12]}", "40 hexadecimal digits"),
        (f"hf:{REPOSITORY}@{OTHER.upper()}", "40 hexadecimal digits"),
        (f"hf:resnet50@{COMMIT}", "must be hf:OWNER/NAME@COMMIT"),
        (f"hf:timm/../x@{COMMIT}", "must be hf:OWNER/NAME@COMMIT"),
    ],
)
def test_references_without_a_commit_are_refused(reference, message, server, cache):
    line = refusal(reference)
    assert re.search(message, line)
    assert not server.requests


@cases.each(
    ("change", "message"),
    [
        (
            {"files": {}},
            "does not exist, or is private (401); correct the name, or log",
        ),
        ({"gated": {REPOSITORY}}, "may not be read (403); accept its terms at URL and"),
        ({"status": 403}, "may not be read (403); accept its terms at URL and log in"),
        (
            {"status": 503},
            "is not in the cache and cannot be reached (the server answers with status 503",
        ),
        (
            {"short": 9},
            "could not be fetched (its 6991 bytes must have the digest",
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
def test_failed_downloads_name_the_cause_and_a_remedy(
    change, message, server, cache, monkeypatch
):
    for key, value in change.items():
        monkeypatch.setattr(server, key, value)
    assert message.replace("URL", f"{server.url}/{REPOSITORY}") in refusal()
    assert not [*cache.glob("*/blobs/*.incomplete")]


def test_a_missing_commit_is_refused(server, cache):
    line = refusal(f"hf:{REPOSITORY}@{OTHER}")
    assert "has no such commit" in line and f"{REPOSITORY}/commits/main" in line


def test_errors_without_a_network_name_the_file_to_fetch(server, cache, monkeypatch):
    url = f"{server.url}/{REPOSITORY}/resolve/{COMMIT}/model.safetensors"
    by_hand = f"fetch {url} elsewhere and give the path of that file"
    server.server_close()
    server.shutdown()
    line = refusal()
    assert "not in the cache and cannot be reached (" in line and by_hand in line
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    line = refusal()
    assert "offline mode is enabled" in line and by_hand in line


def test_errors_without_the_package_name_the_package_or_file(monkeypatch):
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    line = refusal()
    assert "pip install 'jbias[hub]', or fetch https://huggingface.co/timm/" in line
    assert f"/resolve/{COMMIT}/model.safetensors elsewhere" in line


def test_files_changed_in_the_cache_are_refused_and_downloaded_again(server, cache):
    stored = fetch().resolve()
    stored.chmod(0o600)
    stored.write_bytes(WEIGHTS[:-1] + b"x")
    assert f"{stored} must have the SHA-256 that it is named by" in refusal()
    stored.unlink()
    assert fetch().read_bytes() == WEIGHTS


def test_the_cache_follows_hf_home(server, tmp_path):
    code = "import sys; from jbias.runtime import hub; print(hub.fetch(*sys.argv[1:]))"
    env = os.environ | {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": server.url}
    env.pop("HF_HUB_CACHE", None)
    command = [sys.executable, "-c", code, NAMED, "--checkpoint"]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    path = pathlib.Path(done.stdout.strip())
    assert path.is_relative_to(tmp_path / "home/hub")
    assert path.read_bytes() == WEIGHTS


ODD_HEADERS = {
    "a path as ETag": ({"ETag": '"../../../../outside"'}, "must be a SHA-256"),
    "an absolute path": ({"X-Linked-ETag": "/outside/file"}, "must be a SHA-256"),
    "no SHA-256": ({"ETag": '"abc"'}, "must be a SHA-256"),
    "a SHA-256 in capitals": ({"ETag": f'"{"A" * 64}"'}, "must be a SHA-256"),
    "escapes": ({"ETag": '"\x1b[2J"'}, "must be a SHA-256, got '\"\\\\x1b"),
    "no ETag": ({"ETag": None}, "must be a SHA-256, got ''"),
    "no commit": ({"X-Repo-Commit": None}, "must be of commit"),
    "a path as commit": ({"X-Repo-Commit": "../../x"}, "must be of commit"),
    "compressed": ({"Content-Encoding": "gzip"}, "sends it as gzip"),
    "two sizes": ({"X-Linked-Size": "5"}, "sends two sizes, [5, 7000]"),
    "another file": ({"ETag": f'"{"a" * 64}"'}, "must have the digest aaaa"),
    "a file of this machine": ({"Location": "file:///etc/passwd"}, "no https address"),
    "another host": ({"Location": "http://127.0.0.2:1/x"}, "no https address"),
    "nothing": ({"Location": ""}, "which is no address"),
    "a port of letters": ({"Location": "https://127.0.0.1:abc/x"}, "is no address"),
    "a host that is none": ({"Location": "https://[::1/x"}, "which is no address"),
    "too large": ({"Content-Length": str(10**15)}, "above the limit of 20 GiB"),
}


@cases.each("name", ODD_HEADERS)
def test_an_untrusted_answer_writes_nothing(name, server, cache):
    """No file is written inside or outside the cache."""
    server.headers, reason = ODD_HEADERS[name]
    line = refusal()
    assert reason in line and line.isprintable()
    written = [path for path in cache.parent.rglob("*") if path.is_file()]
    assert not written


def test_bodies_longer_than_announced_or_the_limit_are_cut_off(
    server, cache, monkeypatch
):
    server.headers, server.extra = {"Content-Length": None}, b"x" * 10**7
    monkeypatch.setenv(hub.LIMIT_VARIABLE, "0.001")
    assert "is sent without its size, above the limit of 0.001 GiB" in refusal()
    monkeypatch.setenv(hub.LIMIT_VARIABLE, "0.000001")
    server.headers = {}
    assert "raise it by JBIAS_HUB_GIB=GIB" in refusal()
    assert not [path for path in cache.rglob("*") if path.is_file()]


@cases.each("text", ["0", "-1", "1e308", "1e400", "1_0", "inf", "nan", "ten", "٠"])
def test_a_limit_that_is_no_plain_number_of_gib_is_refused(
    text, server, cache, monkeypatch
):
    monkeypatch.setenv(hub.LIMIT_VARIABLE, text)
    must = "JBIAS_HUB_GIB must be a number of GiB above 0 and at most 1000000, got"
    assert f"{must} {text!r}" in refusal()
    assert not server.requests


def test_without_a_length_the_whole_file_is_taken(server, cache):
    server.headers = {"Content-Length": None}
    assert fetch().read_bytes() == WEIGHTS


def test_a_small_file_that_git_keeps_is_checked_by_git_s_digest(server, cache):
    digest = hashlib.sha1(f"blob {len(WEIGHTS)}\0".encode() + WEIGHTS).hexdigest()
    server.headers = {"ETag": f'"{digest}"'}
    assert fetch().read_bytes() == WEIGHTS


def test_a_busy_server_is_waited_for_as_long_as_it_asks(server, cache, capsys):
    server.busy, server.retry_after = 2, "7"
    assert fetch().read_bytes() == WEIGHTS
    assert capsys.readouterr().err.count("too many requests; waiting 7 seconds") == 2


@pytest.mark.parametrize(("busy", "retry_after"), [(9, "1"), (1, "3600")])
def test_a_server_that_stays_busy_is_an_error(busy, retry_after, server, cache):
    server.busy, server.retry_after = busy, retry_after
    assert f"(429, too many requests); try again in {retry_after} seconds" in refusal()


def test_a_slow_body_is_reported_and_aborted(server, cache, monkeypatch, capsys):
    server.drip = 0.02
    monkeypatch.setattr(hub, "_QUIET_SECONDS", 0.1)
    monkeypatch.setattr(hub, "_SLOW_SECONDS", 0.5)
    assert "fewer than 1024 bytes per second arrived" in refusal()
    assert f"jbias: fetching hf:{REPOSITORY}: 0 of 0 MB" in capsys.readouterr().err


def test_slow_headers_are_reported_and_aborted(server, cache, monkeypatch, capsys):
    server.header_drip = 0.02
    monkeypatch.setattr(hub, "_QUIET_SECONDS", 0.1)
    monkeypatch.setattr(hub, "_HEADERS_SECONDS", 0.5)
    began = time.monotonic()
    assert "(no whole answer came within 0.5 seconds)" in refusal()
    assert time.monotonic() - began < 5
    server.header_drip = 0.0
    assert "jbias: waiting for 127.0.0.1" in capsys.readouterr().err


def test_only_the_file_is_requested_and_the_token_is_sent(server, tmp_path):
    """Use a new process, because huggingface_hub sends some requests once per process."""
    code = (
        "from jbias.runtime import hub; hub._open_as_it_is = hub._open\n"
        "def _open(url, headers):\n"
        "    print(headers['authorization'])\n"
        "    return hub._open_as_it_is(url, headers)\n"
        f"hub._open = _open; hub.fetch({NAMED!r}, '--checkpoint')"
    )
    variables = {"HF_HOME": str(tmp_path), "HF_ENDPOINT": server.url, "HF_TOKEN": "own"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "Bearer own\n"
    path = f"/{REPOSITORY}/resolve/{COMMIT}/model.safetensors"
    assert server.requests == [f"GET {path}"]


@pytest.mark.parametrize("part", ["", "blobs", f"snapshots/{COMMIT}"])
def test_a_link_out_of_the_cache_is_not_followed(part, server, cache, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    link = cache / "models--timm--resnet18.a1_in1k" / part
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside)
    assert "out of the cache" in refusal()
    assert not [*outside.iterdir()]


def test_a_cached_file_that_is_a_link_out_of_the_cache_is_refused(
    server, cache, tmp_path
):
    path = fetch()
    (tmp_path / "other").write_bytes(WEIGHTS)
    path.unlink()
    path.symlink_to(tmp_path / "other")
    assert "out of the cache" in refusal()


def test_a_cache_that_cannot_be_written_names_hf_home(server, cache):
    cache.write_text("")
    line = refusal()
    assert "cannot be written (" in line and "set HF_HOME to another folder" in line


def test_a_cache_that_is_itself_a_link_is_used(server, cache, tmp_path):
    (tmp_path / "disk").mkdir()
    cache.symlink_to(tmp_path / "disk")
    assert fetch().read_bytes() == WEIGHTS == fetch().read_bytes()
    assert len(server.requests) == 1


@cases.each(
    "address", ["http://127.0.0.1:abc", "http://[::1", "ftp://x", "hub", "http://"]
)
def test_an_endpoint_that_is_no_address_is_named(monkeypatch, address):
    monkeypatch.setenv("HF_ENDPOINT", address)
    with pytest.raises(ValueError, match="HF_ENDPOINT: must be an address"):
        hub.fetch(f"hf:o/n@{'a' * 40}", "--checkpoint")
