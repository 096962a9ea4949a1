"""The environment of the command `jbias ask` in tests."""

import ssl

import pytest

from jbias.asking import pacing
from tests.asking import stub_images


@pytest.fixture
def endpoint_environment(monkeypatch):
    """A key, and short waits where the endpoint does not ask for one."""
    monkeypatch.setenv("OPENAI_API_KEY", stub_images.KEY)
    monkeypatch.setattr(pacing, "backoff", lambda failures, draw: 0.01)
    # Certificates take long to load, and the server here needs none.
    plain = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: plain)
