"""Training and reports use no network connection."""

import re
import socket

import pytest

from jbias import train
from tests import cases, smoke_runs, source_files

FILES = source_files.PYTHON
LOCAL = ("127.0.0.1", "::1", "localhost")


@pytest.fixture
def requested_addresses(monkeypatch):
    """Refuse connections to other machines; return the list of requested addresses."""
    addresses = []

    def connect(self, address, *_):
        if self.family != socket.AF_UNIX and address[0] not in LOCAL:
            addresses.append(address)
            raise OSError(f"no network: {address}")
        return original_connect(self, address)

    def resolve(host, *args, **options):
        if host not in (*LOCAL, None, ""):
            addresses.append(host)
            raise OSError(f"no network: {host}")
        return original_resolve(host, *args, **options)

    original_connect, original_resolve = socket.socket.connect, socket.getaddrinfo
    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return addresses


def test_the_fixture_records_a_connection(requested_addresses):
    with pytest.raises(OSError, match="no network"):
        socket.create_connection(("192.0.2.1", 80), timeout=1)
    assert requested_addresses


@pytest.mark.slow
def test_a_run_requests_no_address(requested_addresses, tmp_path):
    config = smoke_runs.small(seeds=(0,), tests={})
    config.epochs = 0.5
    assert train.run(config, tmp_path / "run")
    assert not requested_addresses


@cases.each(
    ("pattern", "why"),
    [
        (
            r"\burl(open|retrieve)\b|\brequests\.(?!jsonl)|\bhttp\.client|\burllib(?!\.parse)",
            "fetches",
        ),
        (r"shell=True|os\.system|os\.popen", "starts a shell"),
        (r"(?<![\w.])(eval|exec)\(", "runs text"),
        (
            r"\bpickle\.loads?\(|allow_pickle=True|read_pickle|torch\.load\(\w+\)",
            "obeys",
        ),
        (
            r"\byaml\.(?!safe_dump\()|\bjoblib\b|\bmarshal\.|extractall|tempfile\.mktemp",
            "trusts",
        ),
        (r"np\.load\((?![^)]*allow_pickle=False)", "leaves pickles to numpy's default"),
    ],
)
def test_no_module_uses_unsafe_functions(pattern, why):
    names = [p.name for p in FILES if re.search(pattern, p.read_text())]
    # `prepare tfds` is asked to download a set.
    assert names == (["tfds.py"] if why == "fetches" else []), why
